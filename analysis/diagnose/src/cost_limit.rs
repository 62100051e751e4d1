//! Limits the cost of a finding to the time of its lines and of its phase.
//!
//! Cost models are wrong now and then. A saving of 3.4 ms at a line that takes 0.9 ms is wrong
//! whatever the model says, and costs the trust in the next finding.

use super::finding::{Cost, Finding, SourceLine};
use ridgeline_profile::{Phase, PhaseTimes, Profile};

/// Returns the finding with its cost limited to the time of its lines and its phase.
pub(super) fn limit_cost(finding: Finding, profile: &Profile) -> Finding {
    let Some(cost) = finding.cost else { return finding };
    let limits =
        [time_of_lines(&finding, profile), time_of_phase(finding.rule, &profile.iteration.phases)];
    let max_ns = limits.into_iter().flatten().fold(profile.iteration.mean_ns(), f64::min);
    let exceeds_limit = max_ns > 0.0 && cost.time_ns > max_ns;
    let cost = if exceeds_limit { Cost { time_ns: max_ns, ..cost } } else { cost };
    Finding { cost: Some(cost), ..finding }
}

/// The time of all lines that belong to it, in nanoseconds. Returns `None` if none of them ran in
/// the iteration, such as the line that creates a loader.
fn time_of_lines(finding: &Finding, profile: &Profile) -> Option<f64> {
    // The first is about iterations that may not have been profiled, the second about every line that
    // gets the tokens.
    if matches!(finding.rule, "iteration-varies" | "padding-waste") {
        return None;
    }
    let mut places: Vec<&SourceLine> = std::iter::once(&finding.at)
        .chain(finding.related.iter().map(|(place, _)| place))
        .chain(&finding.loop_lines)
        .collect();
    places.sort_unstable();
    places.dedup();
    let total: f64 = places.into_iter().filter_map(|place| time_of_line(place, profile)).sum();
    (total > 0.0).then_some(total)
}

fn time_of_line(place: &SourceLine, profile: &Profile) -> Option<f64> {
    let file = profile.files.iter().position(|file| file.path == place.path)?;
    let lines = profile.lines.get(file)?;
    let at = lines.binary_search_by_key(&place.line, |line| line.line).ok()?;
    Some(lines.get(at)?.total_time.total())
}

/// The time of the phase that a rule is about, in nanoseconds, whatever line the finding is at.
fn time_of_phase(rule: &str, phases: &PhaseTimes) -> Option<f64> {
    let phase = match rule {
        "loader-no-workers" | "loader-transform" | "loader-workers-restarted" => Phase::Data,
        "unfused-optimizer" => Phase::Optimizer,
        _ => return None,
    };
    Some(phases.get(phase)).filter(|time_ns| *time_ns > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_profile::{FileFacts, LineCost};

    fn profile() -> Profile {
        let mut profile = Profile::default();
        profile.iteration.time_ns = 100e6;
        profile.iteration.phases = PhaseTimes { data: 28e6, ..PhaseTimes::default() };
        profile.files = vec![FileFacts { path: "t.py".to_owned(), ..FileFacts::default() }];
        let line = |line, ms: f64| LineCost {
            line,
            total_time: PhaseTimes { forward: ms * 1e6, ..PhaseTimes::default() },
            ..LineCost::default()
        };
        profile.lines = vec![vec![line(3, 4.0), line(5, 2.0)]];
        profile
    }

    #[track_caller]
    fn check(rule: &'static str, line: u32, related: &[u32], cost_ms: f64, expected_ms: f64) {
        let place = |line| SourceLine { path: "t.py".to_owned(), line };
        let finding = Finding {
            rule,
            at: place(line),
            related: related.iter().map(|line| (place(*line), String::new())).collect(),
            cost: Some(Cost::time(cost_ms * 1e6).predicted()),
            ..Finding::default()
        };
        let cost = limit_cost(finding, &profile()).cost.expect("it has a cost");
        assert_eq!(cost, Cost::time(expected_ms * 1e6).predicted());
    }

    #[test]
    fn a_cost_is_limited_to_its_lines() {
        check("attention-written-out", 3, &[], 3.0, 3.0);
        check("attention-written-out", 3, &[], 9.0, 4.0);
        check("attention-written-out", 3, &[5, 3], 9.0, 6.0);
        // A line that did not run in the iteration sets no limit.
        check("cudnn-benchmark-off", 1, &[], 9.0, 9.0);
        check("cudnn-benchmark-off", 1, &[], 900.0, 100.0);
    }

    #[test]
    fn a_cost_of_a_loop_is_limited_to_the_lines_of_the_loop() {
        let place = |line| SourceLine { path: "t.py".to_owned(), line };
        let finding = Finding {
            rule: "python-loop",
            at: place(5),
            loop_lines: vec![place(3), place(5)],
            cost: Some(Cost::time(9e6).predicted()),
            ..Finding::default()
        };
        let cost = limit_cost(finding, &profile()).cost.expect("it has a cost");
        assert_eq!(cost, Cost::time(6e6).predicted());
    }

    #[test]
    fn a_cost_is_limited_to_its_phase() {
        check("loader-no-workers", 1, &[], 34.8, 28.0);
        check("iteration-varies", 5, &[], 9.0, 9.0);
        check("padding-waste", 5, &[], 9.0, 9.0);
    }
}
