//! Inlay hints: the time of a statement at the end of its line, and optionally those of the
//! expressions within it.
//!
//! A hint on every line would be noise, so these have none:
//! - statements that take a small share of the iteration, or little time;
//! - lines that enclose everything, such as `main()`: 100% there is no information. Within the
//!   training loop they have hints, because that is where users look;
//! - the `for` of the training loop, except for its wait for data: the lens above it has the
//!   iteration time. If the loop is in another file, the statement that enters it has that lens.
//!
//! A line with both forward and backward time shows them separately, `fwd 93 · bwd 94 ms`: its
//! backward time is also part of `loss.backward()`, so shares that include both would add up to
//! more than the iteration.
//!
//! Optionally, a hint shows the change since an earlier run if it exceeds noise, in the unit of the
//! time: `4.2 ms · 8% ▲0.6`.

use std::ops::Range;

use super::entry_statement::entry_statement;
use super::headline::short_headline;
use super::share::{share, share_of_whole};
use crate::cost_map::{CostMap, StatementCost};
use ridgeline_base::units;
use ridgeline_profile::{Phase, PhaseTimes, Profile, Provenance};
use ridgeline_python::{SourceIndex, expression_anchor};

/// Hints are shorter than this, in characters.
pub const MAX_CHARACTERS: usize = 24;

/// A text at the end of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Byte offset: after the last character of the statement's last line, or within an expression.
    pub offset: usize,
    /// The line of the hint, counted from 1.
    pub line: u32,
    /// `4.2 ms · 8%`.
    pub label: String,
    /// The origin of the number; stale hints should be faded.
    pub provenance: Provenance,
}

/// Settings of hints.
#[derive(Clone, Debug, PartialEq)]
pub struct HintOptions {
    /// Statements below this share of the iteration, 0 to 1, have no hint.
    pub min_share: f64,
    /// Statements below this time, in nanoseconds, have no hint.
    pub min_duration_ns: f64,
    /// Whether lines that create modules show the cost of those modules.
    pub definitions: bool,
    /// Whether the expressions within a line have hints, if it has several that qualify.
    pub expressions: bool,
    /// Whether the loop's line shows the iteration time, for editors without lenses.
    pub headline: bool,
    /// The run that changes are shown against.
    pub change: Since,
}

/// The run that changes are shown against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Since {
    /// No changes are shown.
    #[default]
    Off,
    /// The previous run.
    LastRun,
    /// The latest run of the commit at HEAD.
    Head,
}

impl Default for HintOptions {
    fn default() -> HintOptions {
        HintOptions {
            min_share: 0.01,
            min_duration_ns: 1_000.0,
            definitions: false,
            expressions: false,
            headline: false,
            change: Since::Off,
        }
    }
}

/// Returns the hints of one file within `range` (bytes of the current text), in source order: at
/// most one for each line, and those of expressions.
pub fn hints(
    profile: &Profile,
    costs: &CostMap,
    index: &SourceIndex,
    range: Range<usize>,
    options: &HintOptions,
) -> Vec<Hint> {
    let mut found: Vec<Hint> = Vec::new();
    let mut add =
        |span: &Range<usize>, line: u32, label: Option<String>, provenance: Provenance| {
            if let Some(label) = label
                && span.end >= range.start
                && span.start <= range.end
            {
                let offset = index.lines().trimmed(index.text(), line).end;
                found.push(Hint { offset, line, label, provenance });
            }
        };
    if options.headline {
        if let Some(training) = &costs.training_loop {
            let label = headline(profile, training.provenance);
            add(&training.header, training.last_line, label, training.provenance);
        } else if let Some(entry) = entry_statement(profile, costs, index) {
            let label = headline(profile, entry.provenance);
            add(&entry.span, entry.last_line, label, entry.provenance);
        }
    }
    for cost in in_range(&costs.statements, &range, |cost| &cost.span) {
        let label = statement_label(profile, costs, cost, options);
        add(&cost.span, cost.last_line, label, cost.provenance);
    }
    if options.definitions {
        for cost in in_range(&costs.definitions, &range, |cost| &cost.span) {
            let (time, share) = (cost.total_time.total(), share(&cost.total_time, profile));
            let shown = share >= options.min_share && time >= options.min_duration_ns;
            let label = shown.then(|| label(time, share, cost.provenance));
            add(&cost.span, cost.last_line, label, cost.provenance);
        }
    }
    // Keep the first hint of each line: the loop, then the statement, then the modules created
    // there.
    found.sort_by_key(|hint| hint.line);
    found.dedup_by_key(|hint| hint.line);
    if options.expressions {
        for cost in in_range(&costs.statements, &range, |cost| &cost.span) {
            add_expressions(&mut found, profile, costs, cost, index, options);
        }
        found.sort_by_key(|hint| hint.offset);
    }
    found
}

fn add_expressions(
    found: &mut Vec<Hint>,
    profile: &Profile,
    costs: &CostMap,
    cost: &StatementCost,
    index: &SourceIndex,
    options: &HintOptions,
) {
    let mut expressions = costs.expressions(profile, cost, index);
    expressions.retain(|one| {
        let time = one.cost.total_time.total();
        share_of_whole(time, profile) >= options.min_share && time >= options.min_duration_ns
    });
    // A single one would repeat the line.
    if expressions.len() < 2 || encloses_all_phases(profile, costs, cost) {
        return;
    }
    found.extend(expressions.into_iter().map(|one| {
        let offset = expression_anchor(index, &one.span);
        Hint {
            offset,
            line: index.lines().line_of(offset),
            label: short(units::duration(one.cost.total_time.total())),
            provenance: cost.provenance,
        }
    }));
}

/// Returns the costs that may touch `range`; spans are sorted and do not overlap.
fn in_range<'a, T>(
    costs: &'a [T],
    range: &Range<usize>,
    span: impl Fn(&T) -> &Range<usize>,
) -> &'a [T] {
    let first = costs.partition_point(|cost| span(cost).end < range.start);
    let end = costs.partition_point(|cost| span(cost).start <= range.end);
    costs.get(first..end).unwrap_or_default()
}

fn statement_label(
    profile: &Profile,
    costs: &CostMap,
    cost: &StatementCost,
    options: &HintOptions,
) -> Option<String> {
    let is_loop = is_training_loop(costs, cost);
    let time = shown_ns(profile, costs, cost)?;
    let share = share_of_whole(time, profile);
    if share < options.min_share || time < options.min_duration_ns {
        return None;
    }
    let split = (!is_loop).then(|| split_label(&cost.total_time, cost.provenance)).flatten();
    let label = split.unwrap_or_else(|| label(time, share, cost.provenance));
    // The time of a loop's hint is only its wait for data, but its change covers the whole body.
    let changed = changed(profile, costs, cost, options.change).filter(|_| !is_loop);
    if let Some(changed) = changed.filter(|_| cost.provenance == Provenance::Measured) {
        return Some(with_change(time, &label, changed));
    }
    let named = format!("data {label}");
    let waits = is_loop || (cost.is_for && cost.total_time.data > 0.5 * time);
    let is_short = named.chars().count() < MAX_CHARACTERS;
    Some(if waits && is_short { named } else { label })
}

fn is_training_loop(costs: &CostMap, cost: &StatementCost) -> bool {
    costs.training_loop.as_ref().is_some_and(|found| found.header == cost.span)
}

/// Returns the time that a statement's hint and heat show, in nanoseconds: including calls, or only
/// the wait for data if it is the training loop. `None` if the statement only encloses the loop.
pub(super) fn shown_ns(profile: &Profile, costs: &CostMap, cost: &StatementCost) -> Option<f64> {
    if is_training_loop(costs, cost) {
        return Some(cost.self_time.data);
    }
    (!encloses_all_phases(profile, costs, cost)).then(|| cost.total_time.total())
}

/// `fwd 93 · bwd 94 ms`, for a line with time in both passes.
fn split_label(time: &PhaseTimes, provenance: Provenance) -> Option<String> {
    let (forward, backward) = (time.forward, time.backward);
    let is_both = forward > 0.0 && backward > 0.0;
    let is_all = forward + backward > 0.95 * time.total();
    if !is_both || !is_all || provenance == Provenance::Stale {
        return None;
    }
    let (name, unit) = units::scale(forward.max(backward));
    let number = |time: f64| match time / unit {
        large if large >= 9.95 => format!("{large:.0}"),
        small => format!("{small:.1}"),
    };
    let mark = if provenance == Provenance::Estimated { "~" } else { "" };
    let label = format!("{mark}fwd {} · bwd {} {name}", number(forward), number(backward));
    (label.chars().count() < MAX_CHARACTERS).then_some(label)
}

/// Returns the increase in time since the reference run, in nanoseconds. `None` if it does not
/// exceed noise.
fn changed(profile: &Profile, costs: &CostMap, cost: &StatementCost, since: Since) -> Option<f64> {
    let stored = profile.since.as_ref()?;
    let changes = match since {
        Since::Off => None,
        Since::LastRun => stored.last.as_ref(),
        Since::Head => stored.head.as_ref(),
    }?;
    let file = costs.file?;
    let lines = costs.recorded_lines(profile, cost);
    let line_changes = lines.filter_map(|line| changes.line(file, line.line));
    line_changes.reduce(|sum, line| sum + line).filter(|sum| *sum != 0.0)
}

/// `4.2 ms · 8% ▲0.6`; without the share if that is too long.
fn with_change(time_ns: f64, label: &str, changed_ns: f64) -> String {
    let time = units::duration(time_ns);
    let (_, unit) = units::scale(time_ns);
    let arrow = if changed_ns > 0.0 { '▲' } else { '▼' };
    let number = units::significant(changed_ns.abs() / unit);
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => &number,
    };
    let change = format!(" {arrow}{number}");
    let shown = [format!("{label}{change}"), format!("{time}{change}")];
    let is_short = |text: &String| text.chars().count() < MAX_CHARACTERS;
    shown.into_iter().find(is_short).unwrap_or_else(|| label.to_owned())
}

/// Returns whether the statement only encloses the loop: it is outside the loop, all phases run
/// below it, and its self time is negligible.
pub(super) fn encloses_all_phases(
    profile: &Profile,
    costs: &CostMap,
    cost: &StatementCost,
) -> bool {
    let is_in_loop = costs.training_loop.as_ref().is_some_and(|found| {
        found.span.start <= cost.span.start && cost.span.end <= found.span.end
    });
    let is_caller = cost.self_time.total() < 0.05 * cost.total_time.total();
    !is_in_loop && is_caller && has_all_phases(profile, cost)
}

/// Returns whether all phases run in or below a statement, if the iteration has several.
pub(super) fn has_all_phases(profile: &Profile, cost: &StatementCost) -> bool {
    let phases = profile.iteration.phases;
    let iteration_ns = phases.total();
    // Time outside any phase is mostly outside any line too, so `Other` is ignored.
    let relevant_phases = || {
        Phase::ALL
            .into_iter()
            .filter(|phase| *phase != Phase::Other && phases.get(*phase) > 0.02 * iteration_ns)
    };
    let all_phases =
        relevant_phases().all(|phase| cost.total_time.get(phase) > 0.9 * phases.get(phase));
    // With only a forward phase, as in an inference loop, every layer's line would seem to enclose
    // everything.
    let several = relevant_phases().count() > 1;
    several && all_phases && iteration_ns > 0.0
}

fn label(time_ns: f64, share: f64, provenance: Provenance) -> String {
    let time = short(units::duration(time_ns));
    let share =
        if share.is_finite() { units::percent(share.clamp(0.0, 1.0)) } else { String::new() };
    match provenance {
        Provenance::Measured if share.is_empty() => time,
        Provenance::Measured => format!("{time} · {share}"),
        Provenance::Estimated if share.is_empty() => format!("~{time}"),
        Provenance::Estimated => format!("~{time} · {share}"),
        Provenance::Stale => format!("was {time}"),
    }
}

fn headline(profile: &Profile, provenance: Provenance) -> Option<String> {
    let time_ns = profile.iteration.time_ns;
    let short = |time_ns| short(units::duration(time_ns));
    (time_ns > 0.0).then(|| short_headline(profile, provenance, MAX_CHARACTERS, short))
}

/// A damaged recording may contain times of centuries.
fn short(duration: String) -> String {
    if duration.chars().count() <= 9 { duration } else { "> 1 day".to_owned() }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::costs;
    use ridgeline_compare::fixture::{TRAIN, profile};

    /// Formats the lines that have hints, with the hint at the end.
    fn check(today: impl Fn(String) -> String, options: &HintOptions, expected: Expect) {
        let today = today(profile(TRAIN).0);
        let (profile, costs, index) = costs(TRAIN, Some(&today));
        let mut shown = String::new();
        for hint in hints(&profile, &costs, &index, 0..today.len(), options) {
            assert!(hint.label.chars().count() < MAX_CHARACTERS);
            let line = index.lines().trimmed(&today, hint.line);
            assert_eq!(hint.offset, line.end);
            shown += &format!("{}  ‹{}›\n", &today[line], hint.label);
        }
        expected.assert_eq(&shown);
    }

    #[test]
    fn only_expensive_lines_have_hints() {
        check(
            |text| text,
            &HintOptions::default(),
            expect![[r#"
                x = torch.relu(self.conv(x))  ‹fwd 20 · bwd 30 ms›
                )  ‹fwd 3.0 · bwd 7.0 ms›
                for x, y in loader:  ‹data 8.0 ms · 8%›
                loss = F.cross_entropy(model(x), y)  ‹fwd 25 · bwd 40 ms›
                optimizer.step()  ‹20 ms · 20%›
            "#]],
        );
    }

    #[test]
    fn headline_hint_for_editors_without_lenses() {
        let options = HintOptions { headline: true, min_share: 0.2, ..HintOptions::default() };
        check(
            |text| text,
            &options,
            expect![[r#"
                x = torch.relu(self.conv(x))  ‹fwd 20 · bwd 30 ms›
                for x, y in loader:  ‹100 ms · 320/s›
                loss = F.cross_entropy(model(x), y)  ‹fwd 25 · bwd 40 ms›
                optimizer.step()  ‹20 ms · 20%›
            "#]],
        );
    }

    #[test]
    fn with_definitions() {
        let options = HintOptions { definitions: true, min_share: 0.5, ..HintOptions::default() };
        check(
            |text| text,
            &options,
            expect![[r#"
                self.conv = nn.Conv2d(3, 64, 7)  ‹65 ms · 65%›
                x = torch.relu(self.conv(x))  ‹fwd 20 · bwd 30 ms›
                loss = F.cross_entropy(model(x), y)  ‹fwd 25 · bwd 40 ms›
                model = Net()  ‹85 ms · 85%›
            "#]],
        );
    }

    #[test]
    fn expressions_within_a_line() {
        let (mut profile, costs, index) = costs(TRAIN, None);
        crate::fixture::add_expressions(&mut profile);
        let text = |min_share| {
            let options = HintOptions { expressions: true, min_share, ..HintOptions::default() };
            let line = index.lines().trimmed(index.text(), 8);
            let mut shown = index.text()[line.clone()].to_owned();
            for hint in hints(&profile, &costs, &index, line.clone(), &options).iter().rev() {
                shown.insert_str(hint.offset - line.start, &format!("‹{}›", hint.label));
            }
            shown
        };
        expect!["x = torch.relu‹10 ms›(self.conv‹37.5 ms›(x))‹fwd 20 · bwd 30 ms›"]
            .assert_eq(&text(0.01));
        // One alone would be the line.
        expect!["x = torch.relu(self.conv(x))‹fwd 20 · bwd 30 ms›"].assert_eq(&text(0.2));
    }

    #[test]
    fn hints_follow_their_statements() {
        let edit = |text: String| {
            format!("import os\r\n\r\n{}", text.replace("x.mean", "# é\n        x.mean"))
        };
        check(
            edit,
            &HintOptions::default(),
            expect![[r#"
                x = torch.relu(self.conv(x))  ‹fwd 20 · bwd 30 ms›
                )  ‹fwd 3.0 · bwd 7.0 ms›
                for x, y in loader:  ‹data 8.0 ms · 8%›
                loss = F.cross_entropy(model(x), y)  ‹fwd 25 · bwd 40 ms›
                optimizer.step()  ‹20 ms · 20%›
            "#]],
        );
    }

    #[test]
    fn a_changed_statement_is_stale_and_a_deleted_one_has_no_hint() {
        let edit = |text: String| {
            text.replace("torch.relu", "torch.tanh")
                .replace("        optimizer.step()\n", "")
                .replace("(2, 3)", "(1, 2)")
        };
        check(
            edit,
            &HintOptions::default(),
            expect![[r#"
                x = torch.tanh(self.conv(x))  ‹was 50 ms›
                )  ‹was 10 ms›
                for x, y in loader:  ‹data 8.0 ms · 8%›
                loss = F.cross_entropy(model(x), y)  ‹fwd 25 · bwd 40 ms›
            "#]],
        );
    }

    #[test]
    fn estimates_are_marked() {
        assert_eq!(label(4.2e6, 0.08, Provenance::Estimated), "~4.2 ms · 8%");
        assert_eq!(label(4.2e6, 0.08, Provenance::Stale), "was 4.2 ms");
        assert_eq!(label(4.2e6, 0.0004, Provenance::Measured), "4.2 ms · <0.1%");
    }

    #[test]
    fn forward_and_backward_are_separate() {
        let shown = |forward: f64, backward: f64, optimizer: f64| {
            let time = PhaseTimes { forward, backward, optimizer, ..PhaseTimes::default() };
            split_label(&time, Provenance::Measured)
        };
        assert_eq!(shown(93e6, 94.4e6, 0.0).as_deref(), Some("fwd 93 · bwd 94 ms"));
        assert_eq!(shown(1.24e6, 0.31e6, 0.0).as_deref(), Some("fwd 1.2 · bwd 0.3 ms"));
        assert_eq!(shown(930e3, 1.9e6, 1.0).as_deref(), Some("fwd 0.9 · bwd 1.9 ms"));
        assert_eq!(shown(93e6, 0.0, 0.0), None);
        assert_eq!(shown(93e6, 94e6, 40e6), None, "a whole step");
        assert_eq!(shown(1e30, 1e30, 0.0), None);
        assert_eq!(shown(f64::NAN, 1.0, 0.0), None);
    }

    #[test]
    fn only_hints_in_the_range() {
        let (profile, costs, index) = costs(TRAIN, None);
        let line = index.lines().trimmed(index.text(), 8);
        let found = hints(&profile, &costs, &index, line, &HintOptions::default());
        assert_eq!(found.iter().map(|hint| hint.line).collect::<Vec<_>>(), [8]);
    }

    /// Returns the hint of line 8 if it takes `longer_ms` more than in the previous run.
    fn labels_since(longer_ms: f64, change: Since) -> Vec<String> {
        let (mut profile, costs, index) = costs(TRAIN, None);
        let mut before = ridgeline_compare::run::Run::of(&profile);
        for line in before.lines.iter_mut().filter(|line| line.line == 8) {
            line.total_ns = (line.total_ns as f64 - longer_ms * 1e6) as u64;
        }
        let changes = ridgeline_compare::since::changes_since(&before, &profile);
        let since = ridgeline_profile::since::Since { last: Some(changes), ..Default::default() };
        profile.since = Some(std::sync::Arc::new(since));
        let options = HintOptions { change, ..HintOptions::default() };
        let found = hints(&profile, &costs, &index, 0..index.text().len(), &options);
        found.into_iter().filter(|hint| hint.line == 8).map(|hint| hint.label).collect()
    }

    #[test]
    fn changes_since_the_last_run() {
        assert_eq!(labels_since(12.0, Since::LastRun), ["fwd 20 · bwd 30 ms ▲12"]);
        assert_eq!(labels_since(-25.0, Since::LastRun), ["fwd 20 · bwd 30 ms ▼25"]);
        // Within noise, without the reference run, and with changes turned off.
        assert_eq!(labels_since(2.0, Since::LastRun), ["fwd 20 · bwd 30 ms"]);
        assert_eq!(labels_since(12.0, Since::Head), ["fwd 20 · bwd 30 ms"]);
        assert_eq!(labels_since(12.0, Since::Off), ["fwd 20 · bwd 30 ms"]);
    }

    #[test]
    fn a_change_has_the_unit_of_its_time() {
        assert_eq!(with_change(4.2e6, "4.2 ms · 8%", 0.6e6), "4.2 ms · 8% ▲0.6");
        assert_eq!(with_change(830e3, "830 µs · 0.4%", -120e3), "830 µs · 0.4% ▼120");
        assert_eq!(with_change(830e3, "830 µs · <0.1%", -1120e3), "830 µs · <0.1% ▼1120");
        assert_eq!(with_change(1.3e9, "1.3 s · 99%", 1e30), "1.3 s · 99%");
    }

    proptest! {
        #[test]
        fn a_label_is_short(time in any::<f64>(), share in any::<f64>(), kind in 0..3) {
            let provenance = [Provenance::Measured, Provenance::Estimated, Provenance::Stale][kind as usize];
            let label = label(time, share, provenance);
            prop_assert!(label.chars().count() < MAX_CHARACTERS, "{label}");
        }
    }
}
