//! The hover: the details of a statement, function, class or loop, for readers who know PyTorch and
//! need not know GPUs. It also repeats what the line's hint or lens shows.

mod callers;
mod expressions;
mod modules;
mod operator_table;

use std::cell::Cell;
use std::ops::Range;

use super::explained::MIN_REPORTED_SHARE;
use super::headline::with_provenance;
use super::headline::{headline, moment_of_peak, peak};
use super::lenses::kinds;
use super::page::{Page, Piece, count, name, ordinal, strong, text};
use super::share::{gpu_busy, rank, share_of_peak, share_of_whole};
use super::what_ifs;
use super::{bottleneck, explained, iteration_times};
use super::{devices, findings};
use crate::cost_map::{CostMap, PlacedExpression, ScopeCost, StatementCost};
use ridgeline_base::units;
use ridgeline_diagnose::finding::Finding;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::study::Study;
use ridgeline_predict::device_comparison::Comparison;
use ridgeline_profile::utilization::Utilization;
use ridgeline_profile::{
    Estimate, MODULES_PER_LINE, MemoryByKind, ModuleId, Phase, PhaseTimes, Profile, Provenance,
};
use ridgeline_python::{SourceIndex, character_at, expression_label};

/// A text about a span, also as plain text for editors without Markdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hover {
    /// The byte range that the hover is about.
    pub span: Range<usize>,
    /// The text as Markdown.
    pub markdown: String,
    /// The same without markup.
    pub plain: String,
}

/// The maximum number of lines, not counting blank ones. The panel shows the rest.
const MAX_LINES: usize = 12;
/// The maximum number of layers listed.
const MAX_MODULES: usize = 3;
/// The maximum number of notes, and of parts that are not attributed.
const MAX_NOTES: usize = 2;

/// Results other than the profile that a hover includes.
#[derive(Clone, Copy, Debug, Default)]
pub struct HoverContext<'a> {
    /// The comparison of this profile with other devices, with the user's prices.
    pub device_comparison: Option<&'a Comparison>,
    /// The estimated speedups of optimizations.
    pub what_ifs: Option<&'a Study>,
    /// The findings at the line, each with the measurement it is based on.
    pub findings: &'a [(&'a Finding, Option<&'a Profile>)],
    /// URLs that apply an edit when clicked, for editors that follow them.
    pub links: &'a [(EditKind, String)],
    /// URIs of the profile's files by index, for editors that follow them.
    pub files: &'a [Option<String>],
}

/// Returns the hover at `offset`. `None` if nothing was measured or found there.
pub fn hover(
    profile: &Profile,
    context: HoverContext<'_>,
    costs: &CostMap,
    index: &SourceIndex,
    offset: usize,
) -> Option<Hover> {
    let line = index.lines().line_of(offset);
    let writer = Writer {
        profile,
        context,
        costs,
        index,
        offset,
        word: word_at(index.text(), offset),
        findings: Cell::new(context.findings),
    };
    // The last line is reserved for the device and PyTorch version.
    let mut page = Page::with_room(MAX_LINES - 1);
    let found = !context.findings.is_empty();
    let mut span = found.then(|| index.lines().trimmed(index.text(), line));

    let training_loop = costs
        .training_loop
        .as_ref()
        .filter(|found| (found.first_line..=found.last_line).contains(&line));
    if let Some(training) = training_loop {
        page.gap();
        writer.headline(&mut page, training.provenance);
        span.get_or_insert(training.header.clone());
    }
    if let Some(scope) = scope_on_line(costs, index, line) {
        page.gap();
        writer.scope(&mut page, scope, index);
        span.get_or_insert(scope.name.clone());
    }
    let definition = costs.definition_on_line(line);
    if let Some(cost) = definition {
        page.gap();
        writer.definition(&mut page, cost);
        span.get_or_insert(cost.span.clone());
    }
    // The memory of a module that was created here is that of the definition.
    let has_cost = |cost: &&StatementCost| {
        let has_memory = cost.total_memory.total() > 0 && definition.is_none();
        cost.total_time.total() > 0.0 || has_memory
    };
    if let Some(cost) = costs.statement_on_line(line).filter(has_cost) {
        page.gap();
        writer.statement(&mut page, cost, training_loop.is_some());
        span.get_or_insert(cost.span.clone());
    }
    writer.causes(&mut page);
    let span = span.filter(|_| !page.is_empty())?;
    page.gap();
    page.extend(1);
    writer.origin(&mut page);
    let (markdown, plain) = page.finish();
    Some(Hover { span, markdown, plain })
}

/// Returns the hover of a line without measurements, for its findings.
pub fn of_findings(
    found: &[(&Finding, Option<&Profile>)],
    index: &SourceIndex,
    offset: usize,
) -> Option<Hover> {
    let mut page = Page::with_room(MAX_LINES);
    findings::in_hover(&mut page, found);
    let span = index.lines().trimmed(index.text(), index.lines().line_of(offset));
    let (markdown, plain) = page.finish();
    (!plain.is_empty()).then_some(Hover { span, markdown, plain })
}

/// Returns the function or class whose `def`, `class` or decorator is on a line.
fn scope_on_line<'a>(costs: &'a CostMap, index: &SourceIndex, line: u32) -> Option<&'a ScopeCost> {
    let statement = index.statement_on_line(line);
    let scope = index
        .scopes()
        .iter()
        .position(|scope| scope.statement.is_some() && scope.statement == statement)?;
    costs.scopes.iter().find(|cost| cost.scope == scope)
}

/// Returns the name under the cursor: `conv1` of `self.conv1(x)`. Empty if there is none.
fn word_at(text: &str, offset: usize) -> &str {
    let offset = character_at(text, offset);
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let start = text[..offset]
        .char_indices()
        .rev()
        .take(100)
        .take_while(|(_, letter)| is_part(*letter))
        .last()
        .map_or(offset, |(at, _)| at);
    let end = text[offset..]
        .char_indices()
        .take(100)
        .find(|(_, letter)| !is_part(*letter))
        .map_or(offset, |(at, _)| offset + at);
    text.get(start..end).unwrap_or_default()
}

struct Writer<'a> {
    profile: &'a Profile,
    context: HoverContext<'a>,
    costs: &'a CostMap,
    index: &'a SourceIndex,
    /// Where the cursor is.
    offset: usize,
    /// The name under the cursor.
    word: &'a str,
    /// The findings at the line that are not written yet.
    findings: Cell<&'a [(&'a Finding, Option<&'a Profile>)]>,
}

impl Writer<'_> {
    /// Writes the findings, which explain the cost and suggest a fix: right below the first cost.
    fn causes(&self, page: &mut Page) {
        findings::in_hover(page, self.findings.take());
    }

    fn headline(&self, page: &mut Page, provenance: Provenance) {
        let profile = self.profile;
        let iteration = &profile.iteration;
        page.line(&[strong(headline(profile, provenance))]);
        if let Some(before) = profile.estimate.as_ref().and_then(|estimate| estimate.before) {
            let format_rate =
                |rate| format!("{} {} · ", units::significant(rate), iteration.rate_unit());
            let rate = before.samples_per_second().map(format_rate).unwrap_or_default();
            let (time, peak) = (before.time_ns, before.peak_bytes as f64);
            page.line(&[text(format!(
                "before this edit: {rate}{} · peak {}",
                units::duration(time),
                units::bytes(peak)
            ))]);
        }
        let mut about = Vec::new();
        about.extend(iteration_times::batch(iteration));
        about.extend(iteration_times::spread(profile));
        if !about.is_empty() {
            page.line(&[text(about.join(" · "))]);
        }
        self.bottleneck(page);
        self.causes(page);
        if let Some(what_ifs) = self.context.what_ifs {
            what_ifs::in_hover(page, what_ifs, self.context.links);
        }
        page.gap();
        let phases = Phase::ALL.map(|phase| (phase.name(), iteration.phases.get(phase)));
        let phases = phases
            .into_iter()
            .filter(|(_, time)| share_of_whole(*time, profile) >= MIN_REPORTED_SHARE);
        let mut parts: Vec<String> =
            phases.map(|(name, time)| format!("{name} {}", self.time(time))).collect();
        for part in profile.untracked.iter().filter(|part| part.time_ns > 0.0).take(MAX_NOTES) {
            parts.push(format!("not attributed: {} {}", part.name, self.time(part.time_ns)));
        }
        if !parts.is_empty() {
            page.line(&[strong("Time:"), text(format!(" {}", parts.join(" · ")))]);
        }
        let mut facts = profile.metrics.as_ref().map_or_else(Vec::new, |metrics| {
            explained::facts(&metrics.whole, metrics.iteration_ns, profile, metrics.on_gpu)
        });
        if facts.is_empty() {
            facts
                .extend(gpu_busy(profile).map(|busy| format!("GPU busy {}", units::percent(busy))));
        }
        self.facts(page, "", &facts);
        if profile.memory.peak_bytes > 0 {
            let (peak, moment) = (peak(profile), moment_of_peak(profile));
            let kinds = self.memory_kinds(&profile.memory.at_peak);
            let kinds = if kinds.is_empty() { kinds } else { format!(" {kinds}") };
            page.line(&[strong(format!("Peak memory {peak}{moment}:")), text(kinds)]);
            if let Some(allocated) = explained::allocation_phases(profile) {
                page.line(&[text(format!("allocated: {allocated}"))]);
            }
        }
        for note in profile.notes.iter().take(MAX_NOTES) {
            page.line(&[text(note.clone())]);
        }
        if let Some(comparison) = self.context.device_comparison {
            devices::in_hover(page, comparison);
        }
    }

    /// Writes the bottleneck and the other relevant savings.
    fn bottleneck(&self, page: &mut Page) {
        let Some(found) = &self.profile.bottleneck else { return };
        page.line(&[strong(bottleneck::verdict(found, self.profile))]);
        let others = bottleneck::others(found);
        if !others.is_empty() {
            page.line(&[text(format!("Other savings (overlapping): {others}"))]);
        }
    }

    /// Returns the utilization of the statements' self time, and that time in nanoseconds.
    fn own_facts<'b>(
        &self,
        statements: impl Iterator<Item = &'b StatementCost>,
    ) -> (Vec<String>, f64) {
        let (mut self_part, mut self_ns): (Option<Utilization>, f64) = (None, 0.0);
        for cost in statements {
            self_ns += cost.self_time.total();
            let lines = self.costs.recorded_lines(self.profile, cost);
            for part in lines.filter_map(|line| line.utilization.as_ref()) {
                self_part.get_or_insert_default().add(part);
            }
        }
        (explained::of_part(self_part.as_ref(), self_ns, self.profile), self_ns)
    }

    fn scope(&self, page: &mut Page, cost: &ScopeCost, index: &SourceIndex) {
        let total = cost.total_time.total();
        let title = with_provenance(self.time_of(total), cost.provenance);
        let name_of_scope = index.scope_name(cost.scope);
        let kind = if cost.is_class { "class" } else { "function" };
        page.line(&[strong(title), text(format!(" in the {kind} ")), name(&name_of_scope)]);
        self.stale(page, cost.provenance, kind);
        self.causes(page);
        self.phases(page, &cost.total_time);
        if cost.modules.is_empty() {
            let is_inside = |statement: &&StatementCost| {
                cost.span.start <= statement.span.start && statement.span.end <= cost.span.end
            };
            let (facts, own_ns) = self.own_facts(self.costs.statements.iter().filter(is_inside));
            let prefix = if calls_others(own_ns, total) { "own lines: " } else { "" };
            self.facts(page, prefix, &facts);
        } else {
            let modules = self.modules(&cost.modules);
            self.facts(page, "", &explained::of_modules(modules, self.profile));
        }
        self.memory(page, &cost.total_memory);
    }

    fn facts(&self, page: &mut Page, prefix: &str, facts: &[String]) {
        if !facts.is_empty() {
            page.line(&[text(format!("{prefix}{}", facts.join(" · ")))]);
        }
    }

    fn statement(&self, page: &mut Page, cost: &StatementCost, is_loop: bool) {
        let total = cost.total_time.total();
        let under_cursor = self.costs.expression_at(self.profile, cost, self.index, self.offset);
        if let Some(expression) = &under_cursor {
            self.expression(page, expression);
        }
        let mut title = vec![strong(with_provenance(self.time_of(total), cost.provenance))];
        if is_loop {
            title.push(text(" on this line, waiting for data"));
        } else if under_cursor.is_some() {
            title.push(text(" on this line"));
        }
        let own = cost.self_time.total();
        let calls_lines = calls_others(own, total);
        // The rank is by self time. Next to a total that is mostly in calls it would look
        // contradictory.
        let rank = self.rank(cost);
        if let Some(rank) = rank.as_ref().filter(|_| !calls_lines) {
            title.push(text(format!(" · {rank}")));
        }
        page.line(&title);
        self.stale(page, cost.provenance, "line");
        self.causes(page);
        let called = (cost.calls > 0.0 && (cost.calls - 1.0).abs() > 0.05)
            .then(|| format!("called {} times per iteration", count(cost.calls)));
        let phases = self.phase_times(&cost.total_time).into_iter().filter(|_| !is_loop);
        let parts: Vec<String> = phases.chain(called).collect();
        if !parts.is_empty() {
            page.line(&[text(parts.join(" · "))]);
        }
        if own > 0.0 && calls_lines {
            let rank = rank.map(|rank| format!(" ({rank})")).unwrap_or_default();
            let below = units::duration(total - own);
            // The time of `loss.backward()` is also counted on the forward line of each operator.
            let only_backward = cost.total_time.backward > 0.95 * total;
            let below_text = if only_backward {
                format!("{below} also counted on forward lines")
            } else {
                let own = units::duration(own);
                format!("self {own}{rank} · in calls {below}")
            };
            page.line(&[text(below_text)]);
        }
        let spread_over_ranks = self.costs.file.and_then(|file| {
            let lines = self.costs.recorded_lines(self.profile, cost);
            super::ranks::of_lines(self.profile, file, lines)
        });
        if let Some(spread_over_ranks) = spread_over_ranks {
            page.line(&[text(spread_over_ranks)]);
        }
        let (facts, _) = self.own_facts(std::iter::once(cost));
        if !facts.is_empty() {
            self.facts(page, if calls_lines { "self: " } else { "" }, &facts);
        } else if let Some(device) = cost.device_time {
            let mut parts = vec![format!("GPU busy {}", units::duration(device.kernel_ns))];
            if device.launch_ns > 0.0 {
                parts.push(format!("launch overhead {}", units::duration(device.launch_ns)));
            }
            if device.idle_ns > 0.0 {
                parts.push(format!("GPU idle {}", units::duration(device.idle_ns)));
            }
            page.line(&[text(parts.join(" · "))]);
        }
        self.memory(page, &cost.total_memory);
        if cost.provenance == Provenance::Measured {
            let lines = self.costs.recorded_lines(self.profile, cost);
            callers::write(page, self.profile, self.context.files, lines);
        }
        let mut modules: Vec<ModuleId> = Vec::new();
        for module in self.costs.recorded_lines(self.profile, cost).flat_map(|line| &line.modules) {
            if modules.len() < MODULES_PER_LINE && !modules.contains(module) {
                modules.push(*module);
            }
        }
        // The facts of a single layer are those of the line.
        let facts_are_shown = modules.len() == 1 && !calls_lines && !facts.is_empty();
        self.module_list(page, &modules, facts_are_shown);
        if under_cursor.is_none() && !is_loop {
            let placed = self.costs.expressions(self.profile, cost, self.index);
            expressions::table(page, self.index, &placed, total);
        }
        let lines = self.costs.recorded_lines(self.profile, cost);
        operator_table::write(page, self.profile, lines.flat_map(|line| &line.operators).collect());
    }

    /// Writes the cost of the expression under the cursor.
    fn expression(&self, page: &mut Page, expression: &PlacedExpression<'_>) {
        let times = &expression.cost.total_time;
        let time = strong(self.time_of(times.total()));
        let label = name(&expression_label(self.index, &expression.span));
        let mut parts = self.phase_times(times);
        if parts.len() < 2 {
            parts.clear();
        }
        let parts: String = parts.into_iter().map(|part| format!(" · {part}")).collect();
        page.line(&[time, text(" in "), label, text(parts)]);
    }

    /// `4.2 ms (8%)`.
    fn time(&self, time_ns: f64) -> String {
        let share = units::percent(share_of_whole(time_ns, self.profile));
        format!("{} ({share})", units::duration(time_ns))
    }

    /// `4.2 ms (8% of the iteration)`.
    fn time_of(&self, time_ns: f64) -> String {
        if time_ns <= 0.0 {
            // A constructor whose module's weights are held.
            return "no time per iteration".to_owned();
        }
        let share = units::percent(share_of_whole(time_ns, self.profile));
        format!("{} ({share} of the iteration)", units::duration(time_ns))
    }

    /// The rank of the statement's self time among all lines of the profile.
    fn rank(&self, cost: &StatementCost) -> Option<String> {
        Some(match rank(self.profile, cost.self_time.total())? {
            1 => "most expensive line".to_owned(),
            rank => format!("{} most expensive line", ordinal(rank)),
        })
    }

    fn phases(&self, page: &mut Page, times: &PhaseTimes) {
        let parts = self.phase_times(times);
        if !parts.is_empty() {
            page.line(&[text(parts.join(" · "))]);
        }
    }

    /// `forward 20 ms`, `backward 30 ms`, without negligible phases.
    fn phase_times(&self, times: &PhaseTimes) -> Vec<String> {
        let total = times.total();
        let worth = Phase::ALL.into_iter().filter(|&phase| times.get(phase) > 0.002 * total);
        worth
            .map(|phase| format!("{} {}", phase.name(), units::duration(times.get(phase))))
            .collect()
    }

    fn memory(&self, page: &mut Page, memory: &MemoryByKind) {
        let total = memory.total();
        if total == 0 {
            return;
        }
        let share = units::percent(share_of_peak(total, self.profile));
        let total = units::bytes(total as f64);
        page.line(&[text(format!("holds {total} ({share} of peak memory): {}", kinds(memory)))]);
    }

    /// `weights 9.0 MB (8%) · activations 90 MB (75%)`.
    fn memory_kinds(&self, memory: &MemoryByKind) -> String {
        let kinds = memory.named().into_iter();
        let kinds =
            kinds.filter(|(_, bytes)| share_of_peak(*bytes, self.profile) >= MIN_REPORTED_SHARE);
        let parts = kinds.map(|(kind, bytes)| {
            let share = units::percent(share_of_peak(bytes, self.profile));
            format!("{kind} {} ({share})", units::bytes(bytes as f64))
        });
        parts.collect::<Vec<_>>().join(" · ")
    }

    fn stale(&self, page: &mut Page, provenance: Provenance, what: &str) {
        match provenance {
            Provenance::Measured => {}
            Provenance::Estimated => {
                page.line(&[text(match &self.profile.estimate {
                    None => "~ estimated: total measured, split over lines as in another run",
                    Some(Estimate { before: Some(_), target: None }) => {
                        "~ estimated: the measurement, scaled by the operator costs of the unsaved \
                        text"
                    }
                    Some(_) => "~ estimated from operator shapes; nothing was run",
                })]);
            }
            Provenance::Stale => {
                page.line(&[text(format!("measured before this {what} changed"))]);
            }
        }
    }

    fn origin(&self, page: &mut Page) {
        let how = match &self.profile.estimate {
            Some(Estimate { target: Some(_), .. } | Estimate { before: None, .. }) => {
                "estimated for "
            }
            _ => "measured on ",
        };
        let device = match &*self.profile.device.display_name() {
            "" => "an unknown device".to_owned(),
            name => name.to_owned(),
        };
        let mut parts: Vec<Piece> = vec![text(how), text(device)];
        if !self.profile.torch_version.is_empty() {
            parts.push(text(format!(", PyTorch {}", self.profile.torch_version)));
        }
        if let Some(roof) = &self.profile.device.measured_roof {
            parts.push(text(format!(", peaks measured on {}", roof.on)));
        }
        page.line(&parts);
    }
}

/// Returns whether a relevant part of the total is spent in calls.
fn calls_others(own_ns: f64, total_ns: f64) -> bool {
    own_ns < 0.95 * total_ns
}

#[cfg(test)]
mod tests;
