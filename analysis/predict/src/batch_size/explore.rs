//! Decides which batches to estimate and which to run next, so that the curve is accurate near the
//! current batch, the largest batch is exact, and nothing runs out of memory.

use super::Evidence;
use super::curve::Curve;
use super::largest::Capacity;
use super::rounds;

/// A run or estimate to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Estimate the memory and cost of this batch on fake tensors.
    Estimate(u64),
    /// Measure the iteration time of this batch.
    Run(u64),
    /// Measure the iteration times of these batches relative to the current one, in one run in
    /// which they take turns.
    SideBySide {
        /// A batch below the current one.
        smaller: Option<u64>,
        /// A batch above the current one.
        larger: Option<u64>,
    },
}

/// Limits of the exploration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The memory of the device. If unknown, no batch larger than those that ran is run.
    pub capacity: Option<Capacity>,
    /// Whether estimates on fake tensors are allowed.
    pub estimates: bool,
    /// Whether short runs are allowed.
    pub runs: bool,
    /// Whether several batches may run concurrently, in turns.
    pub side_by_side: bool,
}

/// The maximum number of estimates. Bisection finds any largest batch up to [`MAX_FACTOR`] times
/// the current one with fewer.
const MAX_ESTIMATES: usize = 16;
/// The maximum number of runs at other batches: half and double, which users look at first, each
/// twice because a machine's speed changes within seconds. Together with the current batch they
/// show whether the curve is straight.
const MAX_RUNS: usize = 4;
const RUNS_PER_BATCH: usize = 2;
/// The number of runs at the current batch before others: the measurement, which timed few
/// iterations, and another run that times as many as the others. The current batch also runs again
/// after each other run, because machines become slower and faster over minutes and [`super::time`]
/// corrects for that.
const RUNS_AT_CURRENT: usize = 2;
/// The maximum number of runs in which batches take turns.
const MAX_RUNS_IN_TURNS: usize = 6;
/// The maximum number of failed estimates, and of failed runs.
const MAX_FAILURES: usize = 3;
/// The largest batch to estimate, as a multiple of the current one: the program would have to
/// create that many samples.
const MAX_FACTOR: u64 = 64;

/// Returns the batches near the current one that are worth a run, best first.
///
/// These are half and double the current one, and multiples of a quarter of it in between, so that
/// a multiple of a power of two stays one. The odd quarters come last, for programs that do not
/// accept the others.
pub fn probes(current: u64) -> Vec<u64> {
    let quarters = |quarters: u64| (current.saturating_mul(quarters).saturating_add(2)) / 4;
    let mut probes: Vec<u64> = Vec::new();
    for batch in [2, 8, 6, 3, 5, 7].map(quarters) {
        if batch > 0 && batch != current && !probes.contains(&batch) {
            probes.push(batch);
        }
    }
    probes
}

/// Returns the next run or estimate, most useful first. `None` if enough is known or nothing more
/// can be found out.
pub fn next_question(evidence: &Evidence, current: u64, bounds: &Bounds) -> Option<Question> {
    if current == 0 {
        return None;
    }
    let estimate = bounds.estimates.then(|| next_estimate(evidence, current, bounds)).flatten();
    let estimate = estimate.map(Question::Estimate);
    if estimate.is_some() || !bounds.runs {
        return estimate;
    }
    if let Some(question) = in_turns(evidence, current, bounds) {
        return Some(question);
    }
    // If batches took turns, separate runs would be less accurate.
    let took_turns = !evidence.in_turns.is_empty();
    next_run(evidence, current, bounds).filter(|_| !took_turns).map(Question::Run)
}

/// Returns the maximum number of runs of the program that are left. Each batch of a run in turns
/// counts as one.
pub fn max_runs_left(evidence: &Evidence, current: u64, bounds: &Bounds) -> usize {
    if !bounds.runs || current == 0 {
        return 0;
    }
    let runs_of = |batch: u64| evidence.runs.iter().filter(|run| run.batch == batch).count();
    if bounds.side_by_side || !evidence.in_turns.is_empty() {
        let (smaller, larger) = neighbors(evidence, current, bounds);
        let others: Vec<u64> = smaller.into_iter().chain(larger).collect();
        let times = others.first().map_or(0, |first| runs_of(*first));
        return MAX_RUNS_IN_TURNS.saturating_sub(times) * (others.len() + 1);
    }
    let others = evidence.runs.iter().filter(|run| run.batch != current).count();
    let at_current = (RUNS_AT_CURRENT + MAX_RUNS).saturating_sub(runs_of(current));
    MAX_RUNS.saturating_sub(others) + at_current
}

fn next_estimate(evidence: &Evidence, current: u64, bounds: &Bounds) -> Option<u64> {
    let failures = |failed: &&super::Failed| matches!(failed.question, Question::Estimate(_));
    let failed = evidence.failed.iter().filter(failures).count();
    if failed >= MAX_FAILURES || evidence.estimates.len() + failed >= MAX_ESTIMATES {
        return None;
    }
    let is_untried = |batch: u64| {
        batch > 0 && !evidence.estimated(batch) && !evidence.failed(Question::Estimate(batch))
    };
    // If the current batch cannot be estimated, other batches cannot either.
    if evidence.failed(Question::Estimate(current)) {
        return None;
    }
    let far = current.saturating_mul(MAX_FACTOR);
    let first = [current, current.saturating_mul(2), current / 2];
    if let Some(batch) = first.into_iter().find(|batch| is_untried(*batch)) {
        return Some(batch);
    }
    let curve = Curve::fit(evidence).ok()?;
    let Some(largest) = bounds.capacity.map(|capacity| curve.largest(capacity)) else {
        let candidates = [current.saturating_mul(8), far];
        return candidates.into_iter().find(|batch| is_untried(*batch));
    };
    match largest {
        // The largest batch is exact once it and the next one were both estimated.
        Some(largest) if largest.value <= far => {
            let value = largest.value;
            let near =
                [value, value.saturating_add(1)].into_iter().find(|batch| is_untried(*batch))?;
            // If the peak bends, the line approaches from one side only, in ever smaller steps. So
            // bisect every second time.
            let bisects = evidence.estimates.len() % 2 == 1;
            let middle = bounds.capacity.and_then(|capacity| middle(evidence, &curve, capacity));
            Some(middle.filter(|batch| bisects && is_untried(*batch)).unwrap_or(near))
        }
        // Far away: check once whether the line bends.
        _ => is_untried(far).then_some(far),
    }
}

/// Returns the batch halfway between the largest that was estimated to fit and the smallest that
/// was not.
fn middle(evidence: &Evidence, curve: &Curve, capacity: Capacity) -> Option<u64> {
    let left = capacity.available_bytes() as f64;
    let fits = |batch: &u64| curve.peak_bytes(*batch).is_some_and(|peak| peak.value <= left);
    let estimated = || evidence.estimates.iter().map(|estimate| estimate.batch);
    let largest_fitting = estimated().filter(fits).max()?;
    let too_many = estimated().filter(|batch| !fits(batch)).min()?;
    (too_many.saturating_sub(largest_fitting) > 2)
        .then(|| largest_fitting + (too_many - largest_fitting) / 2)
}

fn next_run(evidence: &Evidence, current: u64, bounds: &Bounds) -> Option<u64> {
    let failures = |failed: &&super::Failed| matches!(failed.question, Question::Run(_));
    let failed = evidence.failed.iter().filter(failures).count();
    let others = evidence.runs.iter().filter(|run| run.batch != current).count();
    let at_current = evidence.runs.iter().filter(|run| run.batch == current).count();
    if at_current < RUNS_AT_CURRENT + others && !evidence.failed(Question::Run(current)) {
        return Some(current);
    }
    if at_current == 0 {
        return None;
    }
    if others >= MAX_RUNS || failed >= MAX_FAILURES {
        return None;
    }
    let times = |batch: u64| evidence.runs.iter().filter(|run| run.batch == batch).count();
    let (smaller, larger) = neighbors(evidence, current, bounds);
    let next = smaller.into_iter().chain(larger).min_by_key(|batch| times(*batch))?;
    (times(next) < RUNS_PER_BATCH).then_some(next)
}

/// Returns the batches below and above the current one that are worth a run. The upper end of the
/// predicted range must fit, so that nothing runs out of memory.
fn neighbors(evidence: &Evidence, current: u64, bounds: &Bounds) -> (Option<u64>, Option<u64>) {
    let largest_ran = evidence.runs.iter().map(|run| run.batch).max().unwrap_or(current);
    let curve = Curve::fit(evidence).ok();
    let fits = |batch: u64| {
        let peak = curve.as_ref().and_then(|curve| curve.peak_bytes(batch));
        let left = bounds.capacity.map(|capacity| capacity.available_bytes() as f64);
        peak.zip(left).is_some_and(|(peak, left)| peak.high <= left)
    };
    let mut candidates = probes(current);
    candidates.retain(|batch| {
        !evidence.failed(Question::Run(*batch)) && (*batch <= largest_ran || fits(*batch))
    });
    let first = |is_wanted: &dyn Fn(u64) -> bool| {
        candidates.iter().copied().find(|batch| is_wanted(*batch))
    };
    (first(&|batch| batch < current), first(&|batch| batch > current))
}

fn in_turns(evidence: &Evidence, current: u64, bounds: &Bounds) -> Option<Question> {
    if !bounds.side_by_side || rounds::are_enough(&evidence.in_turns, current) {
        return None;
    }
    let (smaller, larger) = neighbors(evidence, current, bounds);
    let others: Vec<u64> = smaller.into_iter().chain(larger).collect();
    let times = evidence.runs.iter().filter(|run| others.first() == Some(&run.batch)).count();
    let question = Question::SideBySide { smaller, larger };
    if others.is_empty() || times >= MAX_RUNS_IN_TURNS || evidence.failed(question) {
        return None;
    }
    // All of them are in memory at the same time.
    let curve = Curve::fit(evidence).ok()?;
    let peaks = others.iter().chain([&current]).map(|batch| curve.peak_bytes(*batch));
    let total: f64 = peaks.map(|peak| peak.map(|peak| peak.high)).sum::<Option<f64>>()?;
    (total <= bounds.capacity?.available_bytes() as f64).then_some(question)
}
