//! Iteration times if they vary: their spread, and slow iterations.

use super::page::ordinal;
use ridgeline_base::units;
use ridgeline_profile::slow_iterations::SlowIterations;
use ridgeline_profile::{IterationCost, Profile};

/// Iterations within this fraction of their median are shown with a percentage, others with their
/// range.
const MAX_EVEN_SPREAD: f64 = 0.1;

/// `102 ms`, `9.2 ms on average` if some iterations are slow, or `102 ms in the first iteration` of a program that has no
/// other.
pub(super) fn time(iteration: &IterationCost) -> String {
    let time = units::duration(iteration.mean_ns());
    match (iteration.slow.is_some(), iteration.is_first) {
        (true, _) => format!("{time} on average"),
        (false, true) => format!("{time} in the first iteration"),
        (false, false) => time,
    }
}

/// `batch size 32`, or `batch size ~20 (from the shape of the model's input)`.
pub(super) fn batch(iteration: &IterationCost) -> Option<String> {
    let size = iteration.batch_size?;
    let Some(source) = iteration.batch_guessed_from else {
        return Some(format!("batch size {size}"));
    };
    Some(format!("batch size ~{size} (from the shape of {})", source.name()))
}

/// `median of 6 iterations, 123 ms to 650 ms`, or `typically 2.4 ms, but every 16th iteration takes
/// 83 ms (ppo.py:210)`.
pub(super) fn spread(profile: &Profile) -> Option<String> {
    let iteration = &profile.iteration;
    if let Some(slow) = &iteration.slow {
        let (typical, long) = (units::duration(slow.typical_ns), units::duration(slow.slow_ns));
        let lines = places(slow, profile);
        let frequency = match slow.period {
            Some(period) => format!("every {} iteration takes {long}", ordinal(period as usize)),
            None => format!("{} of {} iterations take {long}", slow.count, slow.of),
        };
        let caveat = if slow.are_whole_periods {
            ""
        } else {
            "; line costs are those of a typical iteration"
        };
        return Some(format!("typically {typical}, but {frequency}{lines}{caveat}"));
    }
    let times = &iteration.timed_ns;
    let range = range(times, iteration.time_ns)?;
    Some(format!("median of {} iterations, {range}", times.len()))
}

/// ` (ppo.py:210)`, or ` (train.py:105, 116)`. Empty if it is unknown what makes them slow.
fn places(slow: &SlowIterations, profile: &Profile) -> String {
    let mut text = String::new();
    let mut before = None;
    for one in &slow.lines {
        let Some(file) = profile.files.get(one.file.0 as usize) else { continue };
        text.push_str(if text.is_empty() { " (" } else { ", " });
        if before != Some(one.file) {
            text.push_str(&file.path);
            text.push(':');
        }
        text.push_str(&one.line.to_string());
        before = Some(one.file);
    }
    if !text.is_empty() {
        text.push(')');
    }
    text
}

/// The range of times in nanoseconds around their median: `±2%` or `123 ms to 650 ms`.
pub(super) fn range(times: &[f64], median: f64) -> Option<String> {
    let (shortest, longest) = (min(times)?, max(times)?);
    if times.len() < 2 || !(shortest > 0.0 && median > 0.0 && longest.is_finite()) {
        return None;
    }
    let farthest = (longest - median).max(median - shortest) / median;
    Some(if farthest <= MAX_EVEN_SPREAD {
        format!("±{}", units::percent(farthest))
    } else {
        format!("{} to {}", units::duration(shortest), units::duration(longest))
    })
}

fn min(times: &[f64]) -> Option<f64> {
    times.iter().copied().min_by(f64::total_cmp)
}

fn max(times: &[f64]) -> Option<f64> {
    times.iter().copied().max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_profile::slow_iterations::SlowLine;
    use ridgeline_profile::{FileFacts, FileId};

    fn with(timed_ms: &[f64], slow: Option<SlowIterations>) -> Profile {
        let mut profile = Profile::default();
        profile.files.push(FileFacts { path: "ppo.py".to_owned(), ..FileFacts::default() });
        profile.iteration.timed_ns = timed_ms.iter().map(|ms| ms * 1e6).collect();
        profile.iteration.time_ns = 150e6;
        profile.iteration.slow = slow;
        profile
    }

    #[track_caller]
    fn check(timed_ms: &[f64], slow: Option<SlowIterations>, expected: &str) {
        assert_eq!(spread(&with(timed_ms, slow)).unwrap_or_default(), expected);
    }

    #[test]
    fn a_spread_is_a_percentage_or_a_range() {
        check(&[149.0, 150.0, 153.0], None, "median of 3 iterations, ±2%");
        let uneven = [650.0, 164.0, 123.0, 127.0, 149.0, 160.0];
        check(&uneven, None, "median of 6 iterations, 123 ms to 650 ms");
        check(&[150.0], None, "");
        check(&[0.0, 150.0], None, "");
    }

    #[test]
    fn slow_iterations_have_a_period_and_a_line() {
        let slow = SlowIterations {
            period: Some(11),
            count: 3,
            of: 40,
            typical_ns: 2.4e6,
            slow_ns: 83e6,
            mean_ns: 9.2e6,
            lines: vec![SlowLine { file: FileId(0), line: 210, share: 0.9 }],
            are_whole_periods: true,
        };
        let profile = with(&[], Some(slow.clone()));
        assert_eq!(time(&profile.iteration), "9.2 ms on average");
        let only = IterationCost { is_first: true, ..with(&[], None).iteration };
        assert_eq!(time(&only), "150 ms in the first iteration");
        check(
            &[],
            Some(slow.clone()),
            "typically 2.4 ms, but every 11th iteration takes 83 ms (ppo.py:210)",
        );
        let mut several = slow.clone();
        several.lines.push(SlowLine { file: FileId(0), line: 212, share: 0.1 });
        several.lines.push(SlowLine { file: FileId(9), line: 1, share: 0.1 });
        check(
            &[],
            Some(several),
            "typically 2.4 ms, but every 11th iteration takes 83 ms (ppo.py:210, 212)",
        );
        let irregular =
            SlowIterations { period: None, lines: Vec::new(), are_whole_periods: false, ..slow };
        check(
            &[],
            Some(irregular),
            "typically 2.4 ms, but 3 of 40 iterations take 83 ms; line costs are those of a typical iteration",
        );
    }
}
