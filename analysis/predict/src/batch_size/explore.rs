//! What to find out next: which batches to estimate and which to run, so that the curve is known
//! where a person looks and the largest batch is known exactly, and nothing runs out of memory.

use super::Evidence;
use super::curve::Curve;
use super::largest::Capacity;
use super::rounds;

/// One thing to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// What an iteration of this batch holds and does, under fake tensors.
    Estimate(u64),
    /// How long an iteration of this batch takes.
    Run(u64),
    /// How much longer or shorter iterations of these batches take than of the current one, all of
    /// them side by side.
    SideBySide {
        /// Below the current one.
        smaller: Option<u64>,
        /// Above it.
        larger: Option<u64>,
    },
}

/// How far to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// What the device holds. Without it no batch larger than those that ran is run.
    pub capacity: Option<Capacity>,
    /// Fake tensors may be asked.
    pub estimates: bool,
    /// Short runs may be made.
    pub runs: bool,
    /// Several batches may run side by side, in turns.
    pub side_by_side: bool,
}

/// Estimates of one exploration. Halving finds any largest batch up to [`FAR`] times the current one
/// with fewer.
const MOST_ESTIMATES: usize = 16;
/// Runs at other batches than the current one: half and double, where people look first, each twice,
/// because a machine's speed changes within seconds. With the current one they show whether the curve
/// is straight.
const MOST_RUNS: usize = 4;
const RUNS_OF_EACH: usize = 2;
/// Runs at the current batch before others: the measurement, which timed few iterations, and one more
/// that times as many as the others. After each other run it is run once more: machines become slower
/// and faster over minutes, and [`super::time`] takes that out.
const RUNS_AT_CURRENT: usize = 2;
/// How often batches run side by side.
const MOST_TIMES_SIDE_BY_SIDE: usize = 6;
/// Of these, so many may come to nothing.
const MOST_FAILURES: usize = 3;
/// Larger batches are not estimated: the program would have to make so many samples.
const FAR: u64 = 64;

/// The batches near the current one that are worth a run, the best first.
///
/// Half and double the current one, and between them multiples of a quarter of it, so that a multiple
/// of a power of two stays one. The odd quarters come last: for programs that take those before not.
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

/// The next thing to find out, in the order in which it is worth most; nothing where enough is known
/// or can be.
pub fn next_question(evidence: &Evidence, current: u64, bounds: &Bounds) -> Option<Question> {
    if current == 0 {
        return None;
    }
    let estimate = bounds.estimates.then(|| next_estimate(evidence, current, bounds)).flatten();
    let estimate = estimate.map(Question::Estimate);
    if estimate.is_some() || !bounds.runs {
        return estimate;
    }
    if let Some(question) = side_by_side(evidence, current, bounds) {
        return Some(question);
    }
    // Where batches ran side by side, runs one after another would tell less.
    let is_known = !evidence.in_turns.is_empty();
    next_run(evidence, current, bounds).filter(|_| !is_known).map(Question::Run)
}

/// How many times at the most the program will run for the questions that are left; each of the batches
/// that run side by side is one.
pub fn most_runs_left(evidence: &Evidence, current: u64, bounds: &Bounds) -> usize {
    if !bounds.runs || current == 0 {
        return 0;
    }
    let of_batch = |batch: u64| evidence.runs.iter().filter(|run| run.batch == batch).count();
    if bounds.side_by_side || !evidence.in_turns.is_empty() {
        let (smaller, larger) = neighbours(evidence, current, bounds);
        let others: Vec<u64> = smaller.into_iter().chain(larger).collect();
        let times = others.first().map_or(0, |first| of_batch(*first));
        return MOST_TIMES_SIDE_BY_SIDE.saturating_sub(times) * (others.len() + 1);
    }
    let others = evidence.runs.iter().filter(|run| run.batch != current).count();
    let at_current = (RUNS_AT_CURRENT + MOST_RUNS).saturating_sub(of_batch(current));
    MOST_RUNS.saturating_sub(others) + at_current
}

fn next_estimate(evidence: &Evidence, current: u64, bounds: &Bounds) -> Option<u64> {
    let failures = |failed: &&super::Failed| matches!(failed.question, Question::Estimate(_));
    let failed = evidence.failed.iter().filter(failures).count();
    if failed >= MOST_FAILURES || evidence.estimates.len() + failed >= MOST_ESTIMATES {
        return None;
    }
    let open = |batch: u64| {
        batch > 0 && !evidence.estimated(batch) && !evidence.failed(Question::Estimate(batch))
    };
    // What cannot be estimated at the batch that ran cannot be elsewhere.
    if evidence.failed(Question::Estimate(current)) {
        return None;
    }
    let far = current.saturating_mul(FAR);
    let first = [current, current.saturating_mul(2), current / 2];
    if let Some(batch) = first.into_iter().find(|batch| open(*batch)) {
        return Some(batch);
    }
    let curve = Curve::fit(evidence).ok()?;
    let Some(largest) = bounds.capacity.map(|capacity| curve.largest(capacity)) else {
        let some = [current.saturating_mul(8), far];
        return some.into_iter().find(|batch| open(*batch));
    };
    match largest {
        // It is exact where it and the next one were both estimated.
        Some(largest) if largest.value <= far => {
            let value = largest.value;
            let near = [value, value.saturating_add(1)].into_iter().find(|batch| open(*batch))?;
            // Where the peak bends, the line comes near from one side alone, in ever smaller steps.
            let is_turn = evidence.estimates.len() % 2 == 1;
            let middle = bounds.capacity.and_then(|capacity| middle(evidence, &curve, capacity));
            Some(middle.filter(|batch| is_turn && open(*batch)).unwrap_or(near))
        }
        // Far away: where the straight line may turn is looked at once.
        _ => open(far).then_some(far),
    }
}

/// Halfway between the largest batch that was estimated to fit and the smallest that was not.
fn middle(evidence: &Evidence, curve: &Curve, capacity: Capacity) -> Option<u64> {
    let left = capacity.left() as f64;
    let fits = |batch: &u64| curve.peak_bytes(*batch).is_some_and(|peak| peak.value <= left);
    let estimated = || evidence.estimates.iter().map(|estimate| estimate.batch);
    let enough = estimated().filter(fits).max()?;
    let too_many = estimated().filter(|batch| !fits(batch)).min()?;
    (too_many.saturating_sub(enough) > 2).then(|| enough + (too_many - enough) / 2)
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
    if others >= MOST_RUNS || failed >= MOST_FAILURES {
        return None;
    }
    let times = |batch: u64| evidence.runs.iter().filter(|run| run.batch == batch).count();
    let (smaller, larger) = neighbours(evidence, current, bounds);
    let next = smaller.into_iter().chain(larger).min_by_key(|batch| times(*batch))?;
    (times(next) < RUNS_OF_EACH).then_some(next)
}

/// The batches below and above the current one that are worth a run. The least favourable end of the
/// range counts: nothing is run that might not fit.
fn neighbours(evidence: &Evidence, current: u64, bounds: &Bounds) -> (Option<u64>, Option<u64>) {
    let ran = evidence.runs.iter().map(|run| run.batch).max().unwrap_or(current);
    let curve = Curve::fit(evidence).ok();
    let fits = |batch: u64| {
        let peak = curve.as_ref().and_then(|curve| curve.peak_bytes(batch));
        let left = bounds.capacity.map(|capacity| capacity.left() as f64);
        peak.zip(left).is_some_and(|(peak, left)| peak.high <= left)
    };
    let mut open = probes(current);
    open.retain(|batch| !evidence.failed(Question::Run(*batch)) && (*batch <= ran || fits(*batch)));
    let first = |is_it: &dyn Fn(u64) -> bool| open.iter().copied().find(|batch| is_it(*batch));
    (first(&|batch| batch < current), first(&|batch| batch > current))
}

fn side_by_side(evidence: &Evidence, current: u64, bounds: &Bounds) -> Option<Question> {
    if !bounds.side_by_side || rounds::are_enough(&evidence.in_turns, current) {
        return None;
    }
    let (smaller, larger) = neighbours(evidence, current, bounds);
    let others: Vec<u64> = smaller.into_iter().chain(larger).collect();
    let times = evidence.runs.iter().filter(|run| others.first() == Some(&run.batch)).count();
    let question = Question::SideBySide { smaller, larger };
    if others.is_empty() || times >= MOST_TIMES_SIDE_BY_SIDE || evidence.failed(question) {
        return None;
    }
    // All of them are in memory at once.
    let curve = Curve::fit(evidence).ok()?;
    let peaks = others.iter().chain([&current]).map(|batch| curve.peak_bytes(*batch));
    let together: f64 = peaks.map(|peak| peak.map(|peak| peak.high)).sum::<Option<f64>>()?;
    (together <= bounds.capacity?.left() as f64).then_some(question)
}
