//! What a terminal shows: a file's source with its costs in the margin, and a summary.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use anstyle::{AnsiColor, Style as Ansi};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::headline::{headline, moment_of_peak, peak};
use super::lenses::kinds;
use super::share::{gpu_busy, share_of_peak, share_of_whole};
use super::{bottleneck, explained, iteration_times};
use crate::cost_map::CostMap;
use ridgeline_base::printable::{clean, shorten};
use ridgeline_base::units;
use ridgeline_profile::{
    LineCost, MemoryByKind, ModuleCost, Phase, PhaseTimes, Profile, Provenance,
};
use ridgeline_python::SourceIndex;

/// How to write for a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// With ANSI colours.
    pub color: bool,
    /// Columns.
    pub width: usize,
}

const FAINT: Ansi = Ansi::new().dimmed();
const BOLD: Ansi = Ansi::new().bold();
const WARM: Ansi = AnsiColor::Yellow.on_default();
const HOT: Ansi = AnsiColor::Red.on_default().bold();
const CALM: Ansi = AnsiColor::Cyan.on_default();

/// Narrower terminals are written for as if they had this many columns.
const MIN_WIDTH: usize = 40;
const MAX_WIDTH: usize = 200;
/// A tab goes to the next multiple of this.
const TAB: usize = 4;
/// So many lines are shown around one with a cost.
const AROUND: usize = 3;
/// Fewer lines than this are not worth leaving out.
const SHORTEST_LEFT_OUT: usize = 6;
/// So many functions and classes around a line are shown.
const MAX_SCOPES: usize = 8;
/// The share of the iteration from which on a line is warm, and hot.
const WARM_SHARE: f64 = 0.05;
const HOT_SHARE: f64 = 0.2;
/// How many lines, modules and kernels a summary names.
const TOP: usize = 8;

/// A file's source with its costs in the margin. Long stretches without costs are left out.
pub fn annotated_source(
    profile: &Profile,
    costs: &CostMap,
    index: &SourceIndex,
    style: Style,
) -> String {
    let margin = Margin::new(style);
    let mut page = String::new();
    let _ = writeln!(page, "{}", style.paint(FAINT, &margin.heading()));
    let rows: Vec<Option<Row>> =
        (1..=line_count(index)).map(|line| row(profile, costs, line)).collect();
    let kept = kept(&rows, index);
    let mut line = 1;
    for group in kept.chunk_by(|a, b| a == b) {
        let is_left_out = group.first() == Some(&false) && group.len() >= SHORTEST_LEFT_OUT;
        if is_left_out {
            let told = format!("{:>width$}⋯ {} lines", "", group.len(), width = margin.width());
            let _ = writeln!(page, "{}", style.paint(FAINT, &told));
        }
        for row in rows.iter().skip(line as usize - 1).take(group.len()) {
            if !is_left_out {
                page += &margin.row(profile, row.as_ref(), line, index, style);
            }
            line += 1;
        }
    }
    page
}

/// A range of a file's lines, counted from 1, with their costs in the margin. No line in it is left out.
pub fn annotated_lines(
    profile: &Profile,
    costs: &CostMap,
    index: &SourceIndex,
    lines: RangeInclusive<u32>,
    style: Style,
) -> String {
    let margin = Margin::new(style);
    let mut page = format!("{}\n", style.paint(FAINT, &margin.heading()));
    for line in *lines.start().max(&1)..=*lines.end().min(&line_count(index)) {
        page += &margin.row(profile, row(profile, costs, line).as_ref(), line, index, style);
    }
    page
}

/// The number of lines as a reader counts them: the empty line after the last line end is none.
fn line_count(index: &SourceIndex) -> u32 {
    let count = index.lines().count();
    let is_ended = index.lines().start_of(count) == index.text().len() && count > 1;
    count - u32::from(is_ended)
}

/// By line: those with costs, a few around them, and the `def` and `class` that they are in.
fn kept(rows: &[Option<Row>], index: &SourceIndex) -> Vec<bool> {
    let mut kept = vec![false; rows.len()];
    let mut keep = |first: usize, last: usize| {
        let last = last.min(rows.len());
        kept.get_mut(first.min(last)..last).unwrap_or_default().fill(true);
    };
    let mut scope_before = 0;
    for (at, _) in rows.iter().enumerate().filter(|(_, row)| row.is_some()) {
        keep(at.saturating_sub(AROUND), at + 1 + AROUND);
        let start = index.lines().trimmed(index.text(), u32::try_from(at + 1).unwrap_or(u32::MAX));
        let scope = index.scope_at(start.start);
        if scope == scope_before {
            continue;
        }
        scope_before = scope;
        let mut around = index.scopes().get(scope);
        for _ in 0..MAX_SCOPES {
            let Some(scope) = around else { break };
            if let Some(header) = scope.statement.and_then(|at| index.statements().get(at)) {
                keep(header.first_line as usize - 1, header.last_line as usize);
            }
            around = scope.parent.and_then(|parent| index.scopes().get(parent as usize));
        }
    }
    kept
}

/// What stands beside a line.
struct Row {
    time: PhaseTimes,
    memory: MemoryByKind,
    provenance: Provenance,
}

/// Beside the first line of a statement: its own cost, or what the modules cost that it made.
fn row(profile: &Profile, costs: &CostMap, line: u32) -> Option<Row> {
    let counts = |row: &Row| {
        share_of_whole(row.time.total(), profile) >= 0.0005
            || share_of_peak(row.memory.total(), profile) >= 0.0005
    };
    let statement = costs.statement_on_line(line).filter(|cost| cost.first_line == line);
    let statement = statement.map(|cost| Row {
        time: cost.total_time,
        memory: cost.total_memory,
        provenance: cost.provenance,
    });
    let definition = costs.definition_on_line(line).filter(|cost| cost.first_line == line);
    let definition = definition.map(|cost| Row {
        time: cost.total_time,
        memory: cost.memory,
        provenance: cost.provenance,
    });
    match (statement.filter(counts), definition.filter(counts)) {
        (Some(statement), Some(definition)) => {
            let own_is_more = statement.time.total() >= definition.time.total();
            Some(if own_is_more { statement } else { definition })
        }
        (statement, definition) => statement.or(definition),
    }
}

/// Which columns the terminal is wide enough for.
struct Margin {
    width: usize,
    phases: bool,
    memory: bool,
    bar: usize,
}

const COLUMN: usize = 9;
const SHARE: usize = 6;

impl Margin {
    fn new(style: Style) -> Margin {
        let width = style.width.clamp(MIN_WIDTH, MAX_WIDTH);
        Margin {
            width,
            phases: width >= 100,
            memory: width >= 64,
            bar: if width >= 80 { 8 } else { 4 },
        }
    }

    /// Columns up to the line numbers.
    fn width(&self) -> usize {
        let phases = if self.phases { 2 * COLUMN } else { 0 };
        let memory = if self.memory { COLUMN } else { 0 };
        COLUMN + SHARE + 1 + self.bar + phases + memory + 1
    }

    fn heading(&self) -> String {
        let mut text =
            format!("{:>COLUMN$}{:>SHARE$} {:bar$}", "time", "share", "", bar = self.bar);
        if self.phases {
            text += &format!("{:>COLUMN$}{:>COLUMN$}", "forward", "backward");
        }
        if self.memory {
            text += &format!("{:>COLUMN$}", "memory");
        }
        text.trim_end().to_owned()
    }

    fn row(
        &self,
        profile: &Profile,
        row: Option<&Row>,
        line: u32,
        index: &SourceIndex,
        style: Style,
    ) -> String {
        let digits = index.lines().count().max(1).ilog10() as usize + 1;
        let numbers = style.paint(FAINT, &format!("{line:>digits$} │"));
        let taken = self.width() + digits + 3;
        let start = index.lines().start_of(line);
        let code = index.text().get(start..index.lines().trimmed(index.text(), line).end);
        let code = fit(code.unwrap_or_default(), self.width.saturating_sub(taken));
        let costs = match row {
            Some(row) => self.costs(profile, row, style),
            None => " ".repeat(self.width()),
        };
        let space = if code.is_empty() { "" } else { " " };
        format!("{costs}{numbers}{space}{code}\n")
    }

    fn costs(&self, profile: &Profile, row: &Row, style: Style) -> String {
        let total = row.time.total();
        let share = share_of_whole(total, profile);
        let mark = match row.provenance {
            Provenance::Measured => "",
            Provenance::Estimated => "~",
            Provenance::Stale => "?",
        };
        let time = |ns: f64| if ns > 0.0 { units::duration(ns) } else { String::new() };
        let look = match row.provenance {
            Provenance::Stale => FAINT,
            _ if share >= HOT_SHARE => HOT,
            _ if share >= WARM_SHARE => WARM,
            _ => Ansi::new(),
        };
        let shown = if total > 0.0 { format!("{mark}{}", time(total)) } else { String::new() };
        let percent = if total > 0.0 { units::percent(share) } else { String::new() };
        let mut text = style.paint(look, &format!("{shown:>COLUMN$}{percent:>SHARE$}"));
        text += &format!(" {}", style.paint(look, &bar(share, self.bar)));
        if self.phases {
            let forward = time(row.time.forward);
            let backward = time(row.time.backward);
            text += &format!("{forward:>COLUMN$}{backward:>COLUMN$}");
        }
        if self.memory {
            let bytes = row.memory.total();
            let is_much = share_of_peak(bytes, profile) >= 0.0005;
            let memory = if is_much { units::bytes(bytes as f64) } else { String::new() };
            text += &style.paint(CALM, &format!("{memory:>COLUMN$}"));
        }
        text + " "
    }
}

/// The headline, phases, memory, the costliest lines and modules, and notes.
pub fn summary(profile: &Profile, style: Style) -> String {
    let mut page = Summary { profile, style, text: String::new() };
    page.headline();
    page.bottleneck();
    page.phases();
    page.ranks();
    page.memory();
    page.lines();
    page.modules();
    page.kernels();
    page.notes();
    page.text
}

struct Summary<'a> {
    profile: &'a Profile,
    style: Style,
    text: String,
}

impl Summary<'_> {
    fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    fn section(&mut self, title: &str, about: &str) {
        let title = self.style.paint(BOLD, title);
        let about = if about.is_empty() { String::new() } else { format!("  {}", clean(about)) };
        self.text.push('\n');
        self.line(&format!("{title}{about}"));
    }

    fn headline(&mut self) {
        let profile = self.profile;
        let headline = headline(profile, Provenance::Measured);
        if headline.is_empty() {
            self.line("No iteration was measured.");
        } else {
            self.line(&self.style.paint(BOLD, &headline));
        }
        let mut about = vec![match &*profile.device.display_name() {
            "" => "unknown device".to_owned(),
            name => clean(name),
        }];
        if !profile.torch_version.is_empty() {
            about.push(format!("PyTorch {}", clean(&profile.torch_version)));
        }
        about.extend(iteration_times::batch(&profile.iteration));
        self.line(&self.style.paint(FAINT, &about.join(" · ")));
        if let Some(spread) = iteration_times::spread(profile) {
            let look = if profile.iteration.slow.is_some() { WARM } else { FAINT };
            self.line(&self.style.paint(look, &clean(&spread)));
        }
    }

    /// `  forward    31 ms   30% ███▌`
    fn bar_line(&mut self, name: &str, amount: &str, share: f64, look: Ansi) {
        let percent = units::percent(share);
        let width = self.style.width.clamp(MIN_WIDTH, MAX_WIDTH);
        let bar = bar(share, width.saturating_sub(43).min(40));
        let text = format!("  {name:<23}{amount:>9}{percent:>7} {}", self.style.paint(look, &bar));
        self.line(&text);
    }

    /// The verdict with the savings, and what the device is used for.
    fn bottleneck(&mut self) {
        let profile = self.profile;
        if let Some(found) = &profile.bottleneck {
            let of = if profile.iteration.slow.is_some() { "; of a typical iteration" } else { "" };
            self.section("Bottleneck", &format!("{}{of}", bottleneck::ABOUT));
            self.line(&format!("  {}", bottleneck::verdict(found, profile)));
            for saving in bottleneck::shown(found) {
                let label = bottleneck::label(saving.cause, found.gpu_busy.is_some());
                self.bar_line(label, &units::duration(saving.time_ns), saving.share, HOT);
            }
        }
        let Some(metrics) = &profile.metrics else { return };
        let on_gpu = metrics.on_gpu;
        let whole = explained::facts(&metrics.whole, metrics.iteration_ns, profile, on_gpu);
        self.facts("  ", &whole);
        for phase in Phase::ALL {
            let facts = explained::of_phase(phase, profile);
            self.facts(&format!("  {:<10}", phase.name()), &facts);
        }
    }

    /// Facts behind a name, in as many rows as they need.
    fn facts(&mut self, name: &str, facts: &[String]) {
        let columns = self.style.width.clamp(MIN_WIDTH, MAX_WIDTH);
        let mut row = name.to_owned();
        let mut is_begun = false;
        for fact in facts {
            if is_begun && row.width() + 3 + fact.width() > columns {
                self.line(&self.style.faint(&row));
                row = " ".repeat(name.width());
                is_begun = false;
            }
            row += if is_begun { " · " } else { "" };
            row += fact;
            is_begun = true;
        }
        if is_begun {
            self.line(&self.style.faint(&row));
        }
    }

    fn ranks(&mut self) {
        let Some(ranks) = self.profile.ranks.as_deref() else { return };
        let about = format!("{} ranks; everything below is for rank 0", ranks.world_size);
        self.section("Ranks", &about);
        for row in super::ranks::rows(ranks) {
            self.line(&row);
        }
    }

    fn phases(&mut self) {
        let iteration = &self.profile.iteration;
        if iteration.time_ns.is_nan() || iteration.time_ns <= 0.0 {
            return;
        }
        self.section("Time per iteration", "");
        for phase in Phase::ALL {
            let time = iteration.phases.get(phase);
            if time > 0.0 {
                let share = share_of_whole(time, self.profile);
                self.bar_line(phase.name(), &units::duration(time), share, WARM);
            }
        }
        for part in &self.profile.untracked {
            if share_of_whole(part.time_ns, self.profile) >= 0.005 {
                let share = units::percent(share_of_whole(part.time_ns, self.profile));
                let name = shorten(&clean(&part.name), 60);
                let time = units::duration(part.time_ns);
                self.line(
                    &self.style.paint(FAINT, &format!("  not attributed: {name} {time} ({share})")),
                );
            }
        }
    }

    fn memory(&mut self) {
        let memory = &self.profile.memory;
        if memory.peak_bytes == 0 {
            return;
        }
        let (peak, moment) = (peak(self.profile), moment_of_peak(self.profile));
        self.section("Peak memory", &format!("{peak}{moment}"));
        for (kind, bytes) in memory.at_peak.named() {
            if bytes > 0 {
                let share = share_of_peak(bytes, self.profile);
                self.bar_line(kind, &units::bytes(bytes as f64), share, CALM);
            }
        }
        if let Some(made) = explained::made(self.profile) {
            self.line(&self.style.faint(&format!("  allocated: {made}")));
        }
    }

    fn lines(&mut self) {
        let mut lines: Vec<(usize, &LineCost)> = self
            .profile
            .lines
            .iter()
            .enumerate()
            .flat_map(|(file, lines)| lines.iter().map(move |line| (file, line)))
            .filter(|(_, line)| line.self_time.total() > 0.0)
            .collect();
        if lines.is_empty() {
            return;
        }
        lines.sort_by(|(_, a), (_, b)| b.self_time.total().total_cmp(&a.self_time.total()));
        self.section("Most expensive lines", "");
        for (file, line) in lines.into_iter().take(TOP) {
            let path = self.profile.files.get(file).map_or("?", |file| file.path.as_str());
            let place = format!("{}:{}", shorten(&clean(path), 40), line.line);
            let memory = line.self_memory.total();
            let mut parts = vec![place];
            if !line.scope.is_empty() {
                parts.push(self.style.paint(FAINT, &shorten(&clean(&line.scope), 40)));
            }
            if share_of_peak(memory, self.profile) >= 0.01 {
                parts.push(kinds(&line.self_memory));
            }
            let own = line.self_time.total();
            let facts = explained::of_part(line.utilization.as_ref(), own, self.profile);
            self.cost(own, &parts.join("  "), &facts);
        }
    }

    /// A row, with its facts: one beside it, more below.
    fn cost(&mut self, time_ns: f64, what: &str, facts: &[String]) {
        let share = units::percent(share_of_whole(time_ns, self.profile));
        let beside = match facts {
            [fact] => format!("  {}", self.style.faint(fact)),
            _ => String::new(),
        };
        self.line(&format!("  {:>9}{share:>7}  {what}{beside}", units::duration(time_ns)));
        if facts.len() > 1 {
            self.facts(&" ".repeat(12), facts);
        }
    }

    /// Those that have no parts: the cost of the others is the sum of theirs, mostly.
    fn modules(&mut self) {
        let modules = &self.profile.modules;
        let mut has_parts = vec![false; modules.len()];
        for module in modules {
            let parent = module.parent.and_then(|parent| has_parts.get_mut(parent.0 as usize));
            if let Some(parent) = parent {
                *parent = true;
            }
        }
        let mut single: Vec<&ModuleCost> = modules
            .iter()
            .zip(has_parts)
            .filter(|(module, has_parts)| !has_parts && module.total_time.total() > 0.0)
            .map(|(module, _)| module)
            .collect();
        if single.is_empty() {
            return;
        }
        single.sort_by(|a, b| b.total_time.total().total_cmp(&a.total_time.total()));
        self.section("Most expensive layers", "");
        for module in single.into_iter().take(TOP) {
            let path = if module.path.is_empty() { "the model" } else { &module.path };
            let type_name = self.style.paint(FAINT, &shorten(&clean(&module.type_name), 30));
            let what = format!("{}  {type_name}", shorten(&clean(path), 48));
            let facts = explained::of_modules(std::iter::once(module), self.profile);
            self.cost(module.total_time.total(), &what, &facts);
        }
    }

    fn kernels(&mut self) {
        let Some(busy) = gpu_busy(self.profile).map(units::percent) else { return };
        self.section("Most expensive kernels", &format!("GPU busy {busy}"));
        let width = self.style.width.clamp(MIN_WIDTH, MAX_WIDTH).saturating_sub(40).max(20);
        for kernel in self.profile.kernels.iter().take(TOP) {
            let occupancy = kernel
                .occupancy
                .map_or_else(String::new, |share| format!("  {} occupancy", units::percent(share)));
            let what = format!("{}{occupancy}", shorten(&clean(&kernel.name), width));
            self.cost(kernel.time_ns, &what, &[]);
        }
    }

    fn notes(&mut self) {
        if self.profile.notes.is_empty() && self.profile.coverage.time <= 0.0 {
            return;
        }
        self.section("Notes", "");
        let coverage = self.profile.coverage;
        if coverage.time > 0.0 {
            let (time, memory) = (units::percent(coverage.time), units::percent(coverage.memory));
            self.line(&format!(
                "  {time} of op time and {memory} of activations attributed to your code"
            ));
        }
        for note in &self.profile.notes {
            self.line(&format!("  {}", shorten(&clean(note), 400)));
        }
    }
}

impl Style {
    /// What to see first.
    pub(super) fn bold(self, text: &str) -> String {
        self.paint(BOLD, text)
    }

    /// What is said beside the matter.
    pub(super) fn faint(self, text: &str) -> String {
        self.paint(FAINT, text)
    }

    fn paint(self, look: Ansi, text: &str) -> String {
        if self.color && !text.trim().is_empty() {
            format!("{look}{text}{look:#}")
        } else {
            text.to_owned()
        }
    }
}

/// A share as blocks, in eighths of a cell; always `cells` wide.
fn bar(share: f64, cells: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
    // Something is not nothing.
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let part = match eighths % 8 {
        1 => "▏",
        2 => "▎",
        3 => "▍",
        4 => "▌",
        5 => "▋",
        6 => "▊",
        7 => "▉",
        _ => "",
    };
    let text = format!("{}{part}", "█".repeat(eighths / 8));
    let used = eighths.div_ceil(8);
    text + &" ".repeat(cells.saturating_sub(used))
}

/// A line of source in `columns` columns: tabs to spaces, what would move the cursor replaced, wide
/// characters counted as two, and cut with `…` where it is longer.
fn fit(code: &str, columns: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    // A line may be megabytes long; no more of it is looked at than can be shown.
    for letter in code.chars().take(4 * columns + 1) {
        let shown = match letter {
            '\t' => " ".repeat(TAB - used % TAB),
            '\u{feff}' if used == 0 => String::new(),
            letter => clean(letter.encode_utf8(&mut [0; 4])),
        };
        let width = if letter == '\t' { shown.len() } else { letter_width(&shown) };
        if used + width > columns {
            while used + 1 > columns
                && let Some(last) = text.pop()
            {
                used -= last.width().unwrap_or(0).min(used);
            }
            text.push('…');
            return text;
        }
        used += width;
        text.push_str(&shown);
    }
    text
}

fn letter_width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

#[cfg(test)]
mod tests;
