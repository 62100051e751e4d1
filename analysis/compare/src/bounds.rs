//! What two runs of one program may differ by.

use super::change::Verdict;
use super::run::Run;
use super::statistics::{self, SIGNIFICANCE, Test};
use super::{NOISE_OF_MEMORY, positive};

/// Medians of the same program differ by so much from run to run, whatever a test over the iterations
/// of each says: they share what differs from run to run.
const NOISE: f64 = 0.02;

/// The same for runs of few iterations, whose medians say less (docs/benchmarks.md has them 3 to 9
/// percent apart).
const NOISE_OF_FEW: f64 = 0.05;

/// So many iterations are no longer few.
const MANY: usize = 5;

/// What a line, a module or a phase costs is its share of the profiled iterations, which are two as a
/// rule. The same line of the same program comes out up to so much apart.
const NOISE_OF_ROW: f64 = 0.1;

/// Nothing that is smaller than this share of the iteration is told of.
const LEAST_SHARE: f64 = 0.005;

/// The iteration: by the test, and by the least change that matters.
pub(super) fn of_iteration(
    before: &Run,
    after: &Run,
    (then, now): (Option<f64>, Option<f64>),
    test: Option<&Test>,
) -> Verdict {
    let (Some(then), Some(now), Some(test)) = (then, now, test) else { return Verdict::Unknown };
    let change = now / then - 1.0;
    let is_few = before.timed_ns.len().min(after.timed_ns.len()) < MANY;
    let least = if is_few { NOISE_OF_FEW } else { NOISE };
    if change.abs() <= least {
        return Verdict::WithinNoise;
    }
    if !test.can_tell() {
        return Verdict::Unknown;
    }
    match change > 0.0 {
        true if test.p_slower <= SIGNIFICANCE => Verdict::Slower,
        false if test.p_faster <= SIGNIFICANCE => Verdict::Faster,
        _ => Verdict::WithinNoise,
    }
}

/// The bounds of lines, modules and phases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// By which share a row may differ; nothing where the iterations' spread is unknown.
    share: Option<f64>,
    /// The least difference that is told of, in nanoseconds.
    least_ns: f64,
    /// The same in bytes.
    least_bytes: f64,
    /// Rows that cost less were left out of the earlier run, and of the later one, in nanoseconds.
    left_out: (f64, f64),
}

impl Bounds {
    pub(super) fn new(before: &Run, after: &Run) -> Bounds {
        let spreads = spread(&before.timed_ns).zip(spread(&after.timed_ns));
        Bounds {
            share: spreads.map(|(then, now)| then.max(now).max(NOISE_OF_ROW)),
            least_ns: LEAST_SHARE * before.time_ns.max(after.time_ns).max(0.0),
            least_bytes: LEAST_SHARE * before.peak_bytes.max(after.peak_bytes) as f64,
            left_out: (before.left_out_below_ns as f64, after.left_out_below_ns as f64),
        }
    }

    /// A time that both runs have.
    pub(super) fn of_row(&self, before: &Timed, after: &Timed) -> Verdict {
        let difference = after.time_ns - before.time_ns;
        if difference == 0.0 {
            return Verdict::WithinNoise;
        }
        let Some(share) = self.share else { return Verdict::Unknown };
        let spreads = [before, after].into_iter().filter_map(|row| spread(&row.samples));
        let least =
            spreads.fold(share, f64::max) * before.time_ns.max(after.time_ns) + self.least_ns;
        if difference.abs() <= least || !is_told_by_samples(before, after) {
            return Verdict::WithinNoise;
        }
        if difference > 0.0 { Verdict::Slower } else { Verdict::Faster }
    }

    /// Memory that both runs have.
    pub(super) fn of_memory(&self, before: f64, after: f64) -> Verdict {
        let difference = after - before;
        match difference.abs() <= (NOISE_OF_MEMORY * before.max(after)).max(self.least_bytes) {
            true => Verdict::WithinNoise,
            false if difference > 0.0 => Verdict::Slower,
            false => Verdict::Faster,
        }
    }

    /// What became of a row that one of the runs has alone, from its time with everything that it
    /// calls.
    pub(super) fn presence(&self, before: Option<f64>, after: Option<f64>) -> Verdict {
        match (before, after) {
            (Some(cost), None) if cost >= self.left_out.1 => Verdict::Gone,
            (None, Some(cost)) if cost >= self.left_out.0 => Verdict::New,
            _ => Verdict::Unknown,
        }
    }

    /// A time that one of the runs has alone.
    pub(super) fn of_lone(&self, cost: f64, presence: Verdict) -> Verdict {
        if cost <= self.least_ns { Verdict::WithinNoise } else { presence }
    }

    /// Memory that one of the runs has alone.
    pub(super) fn of_lone_memory(&self, bytes: f64, presence: Verdict) -> Verdict {
        if bytes <= self.least_bytes { Verdict::WithinNoise } else { presence }
    }
}

/// A row's time, and what it took in each of the profiled iterations.
#[derive(Clone, Debug, Default)]
pub(super) struct Timed {
    pub time_ns: f64,
    /// Empty where that is not known.
    pub samples: Vec<f64>,
}

impl Timed {
    pub(super) fn new<'a>(time_ns: u64, samples: impl IntoIterator<Item = &'a u64>) -> Timed {
        let samples = samples.into_iter().map(|time_ns| *time_ns as f64).collect();
        Timed { time_ns: time_ns as f64, samples }
    }
}

/// Whether the test tells a difference, too. Two and two iterations, as there are as a rule, are too few
/// for it; of so few all of one run have to be on one side of all of the other.
///
/// Another program that takes the processor makes a line slow in one iteration and another line in the
/// next, which the iterations without a profiler do not show. What is typical of each part of a line
/// stands a part that was disturbed once, and no more where there are two.
fn is_told_by_samples(before: &Timed, after: &Timed) -> bool {
    let Some(test) = statistics::mann_whitney(&before.samples, &after.samples) else { return true };
    let p = if after.time_ns > before.time_ns { test.p_slower } else { test.p_faster };
    p <= SIGNIFICANCE.max(test.p_least)
}

/// How far the iterations of a run lie apart: the distance between their quartiles as a share of their
/// median, between the least and the most where there are few. Nothing for fewer than two.
fn spread(timed_ns: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = timed_ns.iter().copied().filter(|time| time.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1).filter(|last| *last > 0)?;
    let cut = if sorted.len() < MANY { 0 } else { last / 4 };
    let (low, high) = (sorted.get(cut)?, sorted.get(last - cut)?);
    let middle = positive(*sorted.get(last / 2)?)?;
    Some((high - low) / middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_iterations() {
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[100.0]), None);
        assert_eq!(spread(&[110.0, 100.0, 90.0]), Some(0.2));
        assert_eq!(spread(&[100.0, 90.0, 100.0, 100.0, 900.0]), Some(0.0));
        assert_eq!(spread(&[0.0, 0.0]), None);
        assert_eq!(spread(&[f64::NAN, 1.0]), None);
    }
}
