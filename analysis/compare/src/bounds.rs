//! Noise thresholds: how much two runs of the same program can differ.

use super::change::Verdict;
use super::run::Run;
use super::statistics::{self, SIGNIFICANCE, Test};
use super::{MEMORY_NOISE, positive};

/// Relative noise of medians between runs of the same program. A test over the iterations of each
/// run does not detect it, because all iterations of a run share it.
const ITERATION_NOISE: f64 = 0.02;

/// The same for runs of few iterations, whose medians are less accurate (3 to 9 percent apart in
/// docs/benchmarks.md).
const NOISE_WITH_FEW_ITERATIONS: f64 = 0.05;

/// The number of iterations from which a run has many.
const MIN_MANY_ITERATIONS: usize = 5;

/// Relative noise of lines, modules and phases. Their cost is a share of the profiled iterations,
/// usually two, and differs by this much between runs of the same program.
const ROW_NOISE: f64 = 0.1;

/// Differences below this share of the iteration are not reported.
const MIN_REPORTED_SHARE: f64 = 0.005;

/// Judges the iteration time, by the test and by the smallest change that matters.
pub(super) fn of_iteration(
    before: &Run,
    after: &Run,
    (then, now): (Option<f64>, Option<f64>),
    test: Option<&Test>,
) -> Verdict {
    let (Some(then), Some(now), Some(test)) = (then, now, test) else { return Verdict::Unknown };
    let change = now / then - 1.0;
    let is_few = before.timed_ns.len().min(after.timed_ns.len()) < MIN_MANY_ITERATIONS;
    let threshold = if is_few { NOISE_WITH_FEW_ITERATIONS } else { ITERATION_NOISE };
    if change.abs() <= threshold {
        return Verdict::WithinNoise;
    }
    if !test.can_detect_change() {
        return Verdict::Unknown;
    }
    match change > 0.0 {
        true if test.p_slower <= SIGNIFICANCE => Verdict::Slower,
        false if test.p_faster <= SIGNIFICANCE => Verdict::Faster,
        _ => Verdict::WithinNoise,
    }
}

/// The noise thresholds of lines, modules and phases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Relative noise of a row; `None` if the spread of the iterations is unknown.
    share: Option<f64>,
    /// The smallest reported difference, in nanoseconds.
    min_ns: f64,
    /// The smallest reported difference, in bytes.
    min_bytes: f64,
    /// Cost in nanoseconds below which rows are missing from the earlier run, and from the later
    /// run.
    left_out: (f64, f64),
}

impl Bounds {
    pub(super) fn new(before: &Run, after: &Run) -> Bounds {
        let spreads = spread(&before.timed_ns).zip(spread(&after.timed_ns));
        Bounds {
            share: spreads.map(|(then, now)| then.max(now).max(ROW_NOISE)),
            min_ns: MIN_REPORTED_SHARE * before.time_ns.max(after.time_ns).max(0.0),
            min_bytes: MIN_REPORTED_SHARE * before.peak_bytes.max(after.peak_bytes) as f64,
            left_out: (before.left_out_below_ns as f64, after.left_out_below_ns as f64),
        }
    }

    /// Judges a time that both runs have.
    pub(super) fn of_row(&self, before: &RowTimes, after: &RowTimes) -> Verdict {
        let difference = after.time_ns - before.time_ns;
        if difference == 0.0 {
            return Verdict::WithinNoise;
        }
        let Some(share) = self.share else { return Verdict::Unknown };
        let spreads = [before, after].into_iter().filter_map(|row| spread(&row.samples));
        let threshold =
            spreads.fold(share, f64::max) * before.time_ns.max(after.time_ns) + self.min_ns;
        if difference.abs() <= threshold || !is_shown_by_samples(before, after) {
            return Verdict::WithinNoise;
        }
        if difference > 0.0 { Verdict::Slower } else { Verdict::Faster }
    }

    /// Judges memory that both runs have.
    pub(super) fn of_memory(&self, before: f64, after: f64) -> Verdict {
        let difference = after - before;
        match difference.abs() <= (MEMORY_NOISE * before.max(after)).max(self.min_bytes) {
            true => Verdict::WithinNoise,
            false if difference > 0.0 => Verdict::Slower,
            false => Verdict::Faster,
        }
    }

    /// Returns the verdict on a row that only one run has, from its total time.
    pub(super) fn presence(&self, before: Option<f64>, after: Option<f64>) -> Verdict {
        match (before, after) {
            (Some(cost), None) if cost >= self.left_out.1 => Verdict::Gone,
            (None, Some(cost)) if cost >= self.left_out.0 => Verdict::New,
            _ => Verdict::Unknown,
        }
    }

    /// Judges a time that only one run has.
    pub(super) fn of_unmatched(&self, cost: f64, presence: Verdict) -> Verdict {
        if cost <= self.min_ns { Verdict::WithinNoise } else { presence }
    }

    /// Judges memory that only one run has.
    pub(super) fn of_unmatched_memory(&self, bytes: f64, presence: Verdict) -> Verdict {
        if bytes <= self.min_bytes { Verdict::WithinNoise } else { presence }
    }
}

/// A row's time, and its time in each profiled iteration.
#[derive(Clone, Debug, Default)]
pub(super) struct RowTimes {
    pub time_ns: f64,
    /// Empty if unknown.
    pub samples: Vec<f64>,
}

impl RowTimes {
    pub(super) fn new<'a>(time_ns: u64, samples: impl IntoIterator<Item = &'a u64>) -> RowTimes {
        let samples = samples.into_iter().map(|time_ns| *time_ns as f64).collect();
        RowTimes { time_ns: time_ns as f64, samples }
    }
}

/// Whether the samples also show a difference. Two samples per run, which is usual, are too few for
/// a significant test; then all samples of one run must be on one side of all samples of the other.
///
/// Another program on the CPU slows down a line in one iteration and another line in the next,
/// which the unprofiled iterations do not show. The typical time of each part of a line tolerates
/// one disturbed iteration, but only if there are more than two.
fn is_shown_by_samples(before: &RowTimes, after: &RowTimes) -> bool {
    let Some(test) = statistics::mann_whitney(&before.samples, &after.samples) else { return true };
    let p = if after.time_ns > before.time_ns { test.p_slower } else { test.p_faster };
    p <= SIGNIFICANCE.max(test.p_least)
}

/// Returns the spread of a run's iterations: their interquartile range divided by the median, or
/// the full range if there are few. Returns `None` for fewer than two.
fn spread(timed_ns: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = timed_ns.iter().copied().filter(|time| time.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1).filter(|last| *last > 0)?;
    let cut = if sorted.len() < MIN_MANY_ITERATIONS { 0 } else { last / 4 };
    let (low, high) = (sorted.get(cut)?, sorted.get(last - cut)?);
    let middle = positive(*sorted.get(last / 2)?)?;
    Some((high - low) / middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_relative_to_the_median() {
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[100.0]), None);
        assert_eq!(spread(&[110.0, 100.0, 90.0]), Some(0.2));
        assert_eq!(spread(&[100.0, 90.0, 100.0, 100.0, 900.0]), Some(0.0));
        assert_eq!(spread(&[0.0, 0.0]), None);
        assert_eq!(spread(&[f64::NAN, 1.0]), None);
    }
}
