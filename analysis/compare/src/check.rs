//! Checks a run against budgets: iteration time, memory, number of findings, and regression from a
//! baseline.

use serde::Serialize;

use super::change::{Measure, Verdict};
use super::run::Run;
use super::{Comparison, compare};
use ridgeline_base::units;
use ridgeline_base::units::difference;
use ridgeline_diagnose::finding::{Finding, SourceLine};
use ridgeline_diagnose::severity::Severity;

/// The budgets of a run. Budgets that are not set are not checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Budgets {
    /// Maximum relative regression of iteration time and peak memory from the baseline: 0.05 is 5%.
    pub max_regression: f64,
    /// Maximum iteration time in nanoseconds.
    pub max_time_ns: Option<f64>,
    /// Maximum peak memory in bytes.
    pub max_memory_bytes: Option<u64>,
    /// Maximum number of findings of a severity and above.
    pub max_findings: Vec<(Severity, u32)>,
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets {
            max_regression: 0.05,
            max_time_ns: None,
            max_memory_bytes: None,
            max_findings: Vec::new(),
        }
    }
}

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Passed,
    /// Over the budget.
    Broken,
    /// It could not be checked.
    NotJudged,
}

/// One check and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Item {
    /// Name of the check: `time-budget`, `memory-budget`, `findings-warning`, `time-regression`,
    /// `memory-regression`.
    pub name: String,
    pub status: Status,
    /// The result as a sentence without a full stop.
    pub message: String,
    /// The line at which the result is reported: for a regression, the line that became slower or
    /// larger by most.
    pub at: Location,
}

/// A line of the project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Location {
    /// Path relative to the project's root, separated by `/`.
    pub file: String,
    /// Line number, counted from 1.
    pub line: u32,
}

impl Location {
    fn of(place: &SourceLine) -> Location {
        Location { file: place.path.clone(), line: place.line.max(1) }
    }
}

/// A finding with its severity, as reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportedFinding {
    /// The rule's name.
    pub rule: String,
    /// `warning`, `information` or `hint`.
    pub severity: &'static str,
    /// The finding and its cause.
    pub message: String,
    /// Cost in nanoseconds per iteration; null if it was not measured.
    pub time_ns: Option<f64>,
    /// Cost in bytes at the peak; null if it was not measured.
    pub bytes: Option<f64>,
    pub at: Location,
}

/// The result of checking a run against budgets.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Check {
    /// Name of the device; `None` if there is no run.
    pub device: Option<String>,
    /// Every check that was made.
    pub items: Vec<Item>,
    /// The findings, most expensive first.
    pub findings: Vec<ReportedFinding>,
    /// The comparison with the baseline, if there is one.
    pub comparison: Option<Comparison>,
    /// The reason why there is no run to check.
    pub error: Option<String>,
}

/// The input of a check.
#[derive(Clone, Debug)]
pub struct CheckInput<'a> {
    /// The run to check.
    pub run: &'a Run,
    /// The baseline to compare with.
    pub baseline: Option<&'a Run>,
    /// The findings of the run, or the reason why the rules could not run, as a sentence without a
    /// full stop.
    pub findings: Result<&'a [(Severity, Finding)], &'a str>,
    /// The line of the training loop, or the program's first line if it is unknown.
    pub at: &'a SourceLine,
}

/// Returns the severity with this name.
pub fn severity_named(name: &str) -> Option<Severity> {
    let all = [Severity::Warning, Severity::Information, Severity::Hint];
    all.into_iter().find(|severity| severity.name() == name)
}

/// Checks a run against budgets.
pub fn check(input: &CheckInput<'_>, budgets: &Budgets) -> Check {
    let at = Location::of(input.at);
    let comparison = input.baseline.map(|baseline| compare(baseline, input.run));
    let mut items = Vec::new();
    items.extend(budgets.max_time_ns.map(|limit| time_budget(input.run, limit, &at)));
    items.extend(budgets.max_memory_bytes.map(|limit| memory_budget(input.run, limit, &at)));
    items.extend(
        budgets
            .max_findings
            .iter()
            .map(|(min_severity, limit)| findings_budget(input, *min_severity, *limit, &at)),
    );
    if let Some(comparison) = &comparison {
        items.push(time_regression(comparison, budgets.max_regression, &at));
        items.push(memory_regression(comparison, budgets.max_regression, &at));
    }
    let findings = input.findings.unwrap_or_default().iter().map(reported_finding).collect();
    let device = Some(input.run.device.clone()).filter(|device| !device.is_empty());
    Check { device, items, findings, comparison, error: None }
}

impl Check {
    /// Creates the result for a run that failed.
    pub fn failed(error: impl Into<String>) -> Check {
        Check { error: Some(error.into()), ..Check::default() }
    }

    /// Whether a check failed, or there was no run to check.
    pub fn is_broken(&self) -> bool {
        self.error.is_some() || self.items.iter().any(|item| item.status == Status::Broken)
    }

    /// Returns the result with every check that could not be made counted as failed.
    #[must_use]
    pub fn strict(mut self) -> Check {
        for item in self.items.iter_mut().filter(|item| item.status == Status::NotJudged) {
            item.status = Status::Broken;
        }
        self
    }

    /// Whether a time check failed, which a second run may not confirm.
    pub fn is_slow(&self) -> bool {
        let mut items = self.items.iter();
        items.any(|item| item.status == Status::Broken && item.name.starts_with("time-"))
    }

    /// Returns the result of two runs of the same text: a check that passes in one of the runs
    /// passes. Checks that could not be made in the second run do not count.
    #[must_use]
    pub fn confirmed(mut self, again: &Check) -> Check {
        for item in self.items.iter_mut().filter(|item| item.status == Status::Broken) {
            let other = again.items.iter().find(|other| other.name == item.name);
            if let Some(other) = other.filter(|other| other.status == Status::Passed) {
                *item = other.clone();
            } else if item.name.starts_with("time-")
                && other.is_some_and(|other| other.status == Status::Broken)
            {
                item.message.push_str(", confirmed by a second run");
            }
        }
        self
    }
}

fn item(name: impl Into<String>, status: Status, message: String, at: &Location) -> Item {
    Item { name: name.into(), status, message, at: at.clone() }
}

fn status(is_broken: bool) -> Status {
    if is_broken { Status::Broken } else { Status::Passed }
}

fn time_budget(run: &Run, limit: f64, at: &Location) -> Item {
    if run.time_ns <= 0.0 {
        let message = "no iterations were timed".to_owned();
        return item("time-budget", Status::NotJudged, message, at);
    }
    let (iteration_time, limit_text) = (units::duration(run.time_ns), units::duration(limit));
    let message = format!("iteration time is {iteration_time}; the budget is {limit_text}");
    item("time-budget", status(run.time_ns > limit), message, at)
}

fn memory_budget(run: &Run, limit: u64, at: &Location) -> Item {
    if run.peak_bytes == 0 {
        let message = "no memory was recorded".to_owned();
        return item("memory-budget", Status::NotJudged, message, at);
    }
    let (peak, limit_text) = (units::bytes(run.peak_bytes as f64), units::bytes(limit as f64));
    let rank = run.peak_rank.map_or(String::new(), |rank| format!(" on rank {rank}"));
    let message = format!("peak memory is {peak}{rank}; the budget is {limit_text}");
    item("memory-budget", status(run.peak_bytes > limit), message, at)
}

fn findings_budget(
    input: &CheckInput<'_>,
    min_severity: Severity,
    limit: u32,
    at: &Location,
) -> Item {
    let name = format!("findings-{}", min_severity.name());
    let findings = match input.findings {
        Ok(findings) => findings,
        Err(why) => return item(name, Status::NotJudged, why.to_owned(), at),
    };
    let mut counted = findings.iter().filter(|(severity, _)| *severity >= min_severity);
    let at = counted.clone().next().map_or(at.clone(), |(_, finding)| Location::of(&finding.at));
    let count = counted.by_ref().count();
    let above = if min_severity == Severity::Warning { "" } else { " or above" };
    let what = format!("findings of severity {}{above}", min_severity.name());
    let message = format!("{count} {what}; the budget is {limit}");
    item(name, status(count > limit as usize), message, &at)
}

fn time_regression(comparison: &Comparison, limit: f64, at: &Location) -> Item {
    const NAME: &str = "time-regression";
    // With different batch sizes, iterations are different work: compare samples per second
    // instead.
    let (measure, slower_by, of) = match comparison.time.verdict {
        Verdict::Unknown => {
            let throughput = &comparison.throughput;
            (throughput, throughput.ratio.map(f64::recip), "per sample, ")
        }
        _ => (&comparison.time, comparison.time.ratio, ""),
    };
    let Some(ratio) = slower_by.filter(|_| measure.verdict != Verdict::Unknown) else {
        let why = comparison.unlike.clone();
        let why = why.unwrap_or("too few timed iterations to separate a change from noise".into());
        let message = format!("cannot be compared with the baseline: {why}");
        return item(NAME, Status::NotJudged, message, at);
    };
    let by = difference(ratio);
    let p = comparison.test.map_or(String::new(), |test| {
        format!(
            ", {} p = {:.3}",
            test.name,
            if ratio >= 1.0 { test.p_slower } else { test.p_faster }
        )
    });
    let message = match measure.verdict {
        Verdict::WithinNoise => {
            format!("{of}no significant change from the baseline ({by}, within noise{p})")
        }
        verdict => {
            let (by, allowed) = (units::percent((ratio - 1.0).abs()), units::percent(limit));
            format!("{of}{by} {} than the baseline{p}; the limit is {allowed}", verdict.name())
        }
    };
    let is_broken = measure.verdict == Verdict::Slower && ratio - 1.0 > limit;
    if !is_broken {
        return item(NAME, Status::Passed, message, at);
    }
    let worst = worst(comparison, at, |row| &row.own);
    item(NAME, Status::Broken, with_notes(message, comparison), &worst)
}

fn memory_regression(comparison: &Comparison, limit: f64, at: &Location) -> Item {
    const NAME: &str = "memory-regression";
    let peak = &comparison.peak;
    let Some(ratio) = peak.ratio.filter(|_| peak.verdict != Verdict::Unknown) else {
        let why = comparison.unlike.as_deref().unwrap_or("one of the runs recorded no memory");
        let message = format!("cannot be compared with the baseline: {why}");
        return item(NAME, Status::NotJudged, message, at);
    };
    let by = difference(ratio);
    let message = match peak.verdict {
        Verdict::WithinNoise => format!("peak memory matches the baseline ({by})"),
        verdict => {
            let (by, allowed) = (units::percent((ratio - 1.0).abs()), units::percent(limit));
            let rank = comparison.after.peak_rank;
            let rank = rank.map_or(String::new(), |rank| format!(" on rank {rank}"));
            format!(
                "peak memory is {by} {} than the baseline{rank}; the limit is {allowed}",
                verdict.name()
            )
        }
    };
    let is_broken = peak.verdict == Verdict::Larger && ratio - 1.0 > limit;
    if !is_broken {
        return item(NAME, Status::Passed, message, at);
    }
    let worst = worst(comparison, at, |row| &row.memory);
    item(NAME, Status::Broken, with_notes(message, comparison), &worst)
}

/// Appends the notes of the comparison, which may be the cause: another PyTorch version, or the
/// same code.
fn with_notes(message: String, comparison: &Comparison) -> String {
    match comparison.notes.as_slice() {
        [] => message,
        notes => format!("{message} ({})", notes.join("; ")),
    }
}

/// Returns the line that became worse by most, or `at` if none is significant.
fn worst(
    comparison: &Comparison,
    at: &Location,
    of: impl Fn(&super::LineRow) -> &Measure,
) -> Location {
    let is_worse = |verdict: Verdict| verdict.is_worse() || verdict == Verdict::New;
    let rows = comparison.lines.iter().filter(|row| is_worse(of(row).verdict));
    let worst = rows.max_by(|a, b| of(a).difference().total_cmp(&of(b).difference()));
    worst
        .and_then(|row| Some(Location { file: row.file.clone(), line: row.line_after? }))
        .unwrap_or_else(|| at.clone())
}

fn reported_finding((severity, finding): &(Severity, Finding)) -> ReportedFinding {
    let message = match finding.why.as_str() {
        "" => finding.message.clone(),
        why => format!("{}. {why}", finding.message),
    };
    ReportedFinding {
        rule: finding.rule.to_owned(),
        severity: severity.name(),
        message,
        time_ns: finding.cost.map(|cost| cost.time_ns).filter(|time| time.is_finite()),
        bytes: finding.cost.map(|cost| cost.bytes).filter(|bytes| bytes.is_finite()),
        at: Location::of(&finding.at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{RunLine, VERSION};

    fn run(time_ms: f64, peak_bytes: u64, line_ms: u64) -> Run {
        Run {
            version: VERSION,
            device: "cpu".to_owned(),
            batch_size: Some(8),
            time_ns: time_ms * 1e6,
            timed_ns: (0..7).map(|at| (time_ms + 0.01 * f64::from(at - 3)) * 1e6).collect(),
            peak_bytes,
            files: vec!["train.py".to_owned()],
            lines: vec![RunLine {
                line: 12,
                checksum: 7,
                total_ns: line_ms * 1_000_000,
                own_ns: line_ms * 1_000_000,
                bytes: peak_bytes / 2,
                ..RunLine::default()
            }],
            ..Run::default()
        }
    }

    fn of(run: &Run, baseline: Option<&Run>, budgets: &Budgets) -> Check {
        let place = SourceLine { path: "train.py".to_owned(), line: 1 };
        let warning = |severity| (severity, Finding { rule: "hidden-sync", ..Finding::default() });
        let findings = [warning(Severity::Warning), warning(Severity::Hint)];
        check(&CheckInput { run, baseline, findings: Ok(&findings), at: &place }, budgets)
    }

    fn statuses(check: &Check) -> Vec<(&str, Status)> {
        check.items.iter().map(|item| (item.name.as_str(), item.status)).collect()
    }

    #[test]
    fn budgets_pass_or_fail() {
        let budgets = |time: f64, memory, warnings| Budgets {
            max_time_ns: Some(time * 1e6),
            max_memory_bytes: Some(memory),
            max_findings: vec![(Severity::Warning, warnings), (Severity::Hint, 1)],
            ..Budgets::default()
        };
        use Status::{Broken, Passed};
        let names = ["time-budget", "memory-budget", "findings-warning", "findings-hint"];
        let expect = |answers: [Status; 4]| names.into_iter().zip(answers).collect::<Vec<_>>();
        let run = run(10.0, 1000, 5);
        let found = of(&run, None, &budgets(11.0, 1000, 1));
        assert_eq!(statuses(&found), expect([Passed, Passed, Passed, Broken]));
        assert_eq!(found.items[0].message, "iteration time is 10 ms; the budget is 11 ms");
        let found = of(&run, None, &budgets(9.0, 999, 0));
        assert_eq!(statuses(&found), expect([Broken, Broken, Broken, Broken]));
        assert_eq!(of(&run, None, &Budgets::default()).items, []);
        let with_ranks = Run { world_size: Some(2), peak_rank: Some(1), ..run };
        let found = of(&with_ranks, None, &budgets(11.0, 999, 1));
        let expected = "peak memory is 1.0 kB on rank 1; the budget is 999 B";
        assert_eq!(found.items[1].message, expected);
    }

    #[test]
    fn a_regression_is_reported_at_its_line() {
        use Status::{Broken, NotJudged, Passed};
        let (before, worse) = (run(10.0, 1000, 5), run(12.0, 1200, 8));
        let regressions =
            |of: [Status; 2]| vec![("time-regression", of[0]), ("memory-regression", of[1])];
        let found = of(&worse, Some(&before), &Budgets::default());
        assert_eq!(statuses(&found), regressions([Broken, Broken]));
        assert_eq!(found.items[0].at.line, 12);
        assert!(found.items[0].message.starts_with("20% slower than the baseline"), "{found:?}");
        let other_torch = |torch: &str, run: &Run| Run { torch: torch.to_owned(), ..run.clone() };
        let (then, now) = (other_torch("2.4.1", &before), other_torch("2.15.0", &worse));
        let found = of(&now, Some(&then), &Budgets::default());
        for item in &found.items {
            let expected = "(PyTorch versions differ: 2.4.1 and 2.15.0)";
            assert!(item.message.ends_with(expected), "{item:?}");
        }
        let allowed = Budgets { max_regression: 0.25, ..Budgets::default() };
        assert_eq!(statuses(&of(&worse, Some(&before), &allowed)), regressions([Passed, Passed]));
        assert_eq!(
            statuses(&of(&before, Some(&before), &Budgets::default())),
            regressions([Passed, Passed])
        );
        assert_eq!(
            statuses(&of(&before, Some(&worse), &Budgets::default())),
            regressions([Passed, Passed])
        );
        let elsewhere = Run { device: "NVIDIA H200".to_owned(), ..before.clone() };
        let found = of(&worse, Some(&elsewhere), &Budgets::default());
        assert_eq!(statuses(&found), regressions([NotJudged, NotJudged]));
        assert!(!found.is_broken() && found.clone().strict().is_broken());
        assert_eq!(statuses(&found.strict()), regressions([Broken, Broken]));
        let same = of(&before, Some(&before), &Budgets::default());
        assert_eq!(same.clone().strict(), same);
        // A baseline of almost no time is no baseline.
        let nothing = Run { time_ns: 1e-300, timed_ns: vec![1e-300; 7], ..before.clone() };
        let found = of(&before, Some(&nothing.sanitized()), &Budgets::default());
        assert_eq!(statuses(&found), regressions([NotJudged, Passed]));
        // Half the batch in the same time is half the throughput.
        let batch = Run { batch_size: Some(16), ..before.clone() };
        let found = of(&before, Some(&batch), &Budgets::default());
        assert_eq!(statuses(&found), regressions([Broken, NotJudged]));
        let message = &found.items[0].message;
        assert_eq!(message, "per sample, 100% slower than the baseline; the limit is 5%");
    }

    #[test]
    fn a_second_run_confirms_regressions() {
        let (before, worse) = (run(10.0, 1000, 5), run(12.0, 1000, 8));
        let slow = of(&worse, Some(&before), &Budgets::default());
        let fast = of(&before, Some(&before), &Budgets::default());
        assert!(slow.is_slow() && !fast.is_slow());
        assert!(!slow.clone().confirmed(&fast).is_broken());
        let twice = slow.clone().confirmed(&slow);
        assert!(twice.is_broken() && twice.items[0].message.ends_with("confirmed by a second run"));
        // A second run without a result does not change the first result.
        let untimed =
            of(&Run { timed_ns: Vec::new(), ..before.clone() }, Some(&before), &Budgets::default());
        assert_eq!(untimed.items[0].status, Status::NotJudged);
        let once = slow.clone().confirmed(&untimed);
        assert!(once.is_broken() && !once.items[0].message.contains("second run"));
        assert!(slow.clone().confirmed(&Check::default()).is_broken());
    }

    #[test]
    fn missing_findings_are_not_judged() {
        let place = SourceLine::default();
        let run = run(10.0, 1000, 5);
        let input = CheckInput { run: &run, baseline: None, findings: Err("no graph"), at: &place };
        let budgets = Budgets { max_findings: vec![(Severity::Warning, 0)], ..Budgets::default() };
        let found = check(&input, &budgets);
        assert_eq!(statuses(&found), [("findings-warning", Status::NotJudged)]);
        assert_eq!(found.items[0].at.line, 1);
    }
}
