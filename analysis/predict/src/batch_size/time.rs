//! Iteration time by batch.
//!
//! `time = a + b * work`, where `work` is the batch, or the cost of the operators if estimates give
//! it for other batches. `a` is the time of an iteration regardless of its batch: the optimizer,
//! kernel launches, Python.
//!
//! Other load on a machine can only make an iteration longer, so the fastest iteration of a run
//! says most about the program (Chen and Revels, "Robust benchmarking in noisy environments",
//! 2016). The line goes through those, or their median if a batch ran several times. It is then
//! scaled to match the *median* iterations, which are displayed everywhere else.
//!
//! None of this is needed if batches took turns: each turn is compared with that of the current
//! batch in its round, and the median of these ratios is used, and over several runs the median
//! run. The scale is that of the measurement.
//!
//! Not every program is a straight line: caches overflow, and other kernels are chosen. If the runs
//! deviate from the line by more than the noise between runs, the curve bends towards them.

use std::collections::BTreeMap;

use super::line::Line;
use super::{Estimate, Evidence, Round, Run, rounds};
use ridgeline_base::statistics::median;
use ridgeline_operators::range::Range;

/// The relative standard deviation between the medians of two runs of an unchanged program, used if
/// there are too few runs to measure it: `docs/accuracy.md`, "Unsaved text and other batch sizes".
const SCATTER: f64 = 0.02;
/// The half width of an 80% interval, in standard deviations.
const HALF_WIDTH_80: f64 = 1.2816;
/// Additional error of the curve's shape for each doubling away from the batches that ran: caches
/// overflow, other kernels are chosen.
const PER_DOUBLING: f64 = 0.02;
/// The same if only one batch ran, and the work is estimated.
const PER_DOUBLING_OF_ESTIMATES: f64 = 0.12;

/// The fitted time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Time {
    work: Work,
    line: Fitted,
    /// `(batch, share)`, sorted by batch: the relative deviation from the line towards the runs.
    bends: Vec<(f64, f64)>,
    /// Time of the median iteration divided by that of the fastest.
    median_factor: f64,
    /// The smallest and the largest batch that ran.
    ran: (u64, u64),
}

#[derive(Clone, Debug, PartialEq)]
enum Fitted {
    Line(Line),
    /// A line through the origin and one run.
    Ratio(f64),
}

/// The work of an iteration at each batch.
#[derive(Clone, Debug, PartialEq)]
enum Work {
    Batch,
    /// `(batch, cost)`, sorted by batch, at least two.
    Costs(Vec<(f64, f64)>),
}

impl Time {
    /// Returns `None` if the runs and estimates do not show how the time depends on the batch.
    pub(super) fn fit(evidence: &Evidence) -> Option<Time> {
        let Evidence { runs, in_turns, estimates, .. } = evidence;
        let measured =
            times_in_turns(runs, in_turns).unwrap_or_else(|| by_batch(&without_drift(runs)));
        let median_factor = median_factor(&measured)?;
        let ran = (*measured.first_key_value()?.0, *measured.last_key_value()?.0);
        let costs = Work::of(estimates);
        if measured.len() == 1 {
            let work = costs?;
            let (batch, one) = measured.first_key_value()?;
            let ratio = one.fastest / work.at(*batch as f64);
            let line = Fitted::Ratio(ratio);
            return ratio.is_finite().then_some(Time {
                work,
                line,
                bends: Vec::new(),
                median_factor,
                ran,
            });
        }
        let fit = |work: &Work| {
            let points = measured.iter().map(|(batch, one)| (work.at(*batch as f64), one.fastest));
            Line::fit(&points.collect::<Vec<(f64, f64)>>())
        };
        let plain = fit(&Work::Batch)?;
        // Use the costs, which have kinks, only if they explain the runs better.
        let (work, line) = match costs.and_then(|work| Some((fit(&work)?, work))) {
            Some((line, work)) if measured.len() > 2 && line.scatter < plain.scatter => {
                (work, line)
            }
            _ => (Work::Batch, plain),
        };
        let points = measured.iter().map(|(batch, one)| (*batch as f64, one.fastest));
        let bends = bends(&line, &work, points);
        Some(Time { work, line: Fitted::Line(line), bends, median_factor, ran })
    }

    /// Returns the iteration time in nanoseconds.
    pub(super) fn at(&self, batch: u64) -> Range {
        let work = self.work.at(batch as f64);
        let doublings = doublings(batch, self.ran);
        let (value, share) = match &self.line {
            Fitted::Line(line) => {
                let noise = line.deviation(work, line.scatter.max(SCATTER));
                let value = line.at(work) * (1.0 + interpolate(&self.bends, batch as f64));
                (value, HALF_WIDTH_80 * noise + PER_DOUBLING * doublings)
            }
            Fitted::Ratio(ratio) => {
                (ratio * work, HALF_WIDTH_80 * SCATTER + PER_DOUBLING_OF_ESTIMATES * doublings)
            }
        };
        let value = value * self.median_factor;
        Range { low: value / (1.0 + share), value, high: value * (1.0 + share) }
    }
}

/// The relative deviations of the runs from the line, shrunk by the likely noise: the best estimate
/// of a deviation is the part of it that is not noise (James and Stein, "Estimation with quadratic
/// loss", 1961).
fn bends(line: &Line, work: &Work, points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let shrinkage = 1.0 - (SCATTER / line.scatter.max(SCATTER)).powi(2);
    let share = |(batch, time): (f64, f64)| {
        let height = line.at(work.at(batch));
        let share = if height > 0.0 { time / height - 1.0 } else { 0.0 };
        (batch, shrinkage * share)
    };
    points.map(share).filter(|(_, share)| share.is_finite()).collect()
}

/// Interpolates linearly between points, and is constant beyond the outer ones; 0 without points.
fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|(knot, _)| *knot < x);
    let before = after.checked_sub(1).and_then(|before| points.get(before));
    match (before, points.get(after)) {
        (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        (Some((_, y)), None) | (None, Some((_, y))) => *y,
        (None, None) => 0.0,
    }
}

impl Work {
    fn of(estimates: &[Estimate]) -> Option<Work> {
        let mut costs: BTreeMap<u64, f64> = BTreeMap::new();
        for estimate in estimates {
            let cost = estimate.cost_ns.filter(|cost| cost.is_finite() && *cost > 0.0);
            costs.extend(cost.map(|cost| (estimate.batch, cost)));
        }
        let costs: Vec<(f64, f64)> =
            costs.into_iter().map(|(batch, cost)| (batch as f64, cost)).collect();
        (costs.len() >= 2).then_some(Work::Costs(costs))
    }

    fn at(&self, batch: f64) -> f64 {
        match self {
            Work::Batch => batch,
            Work::Costs(costs) => along(costs, batch),
        }
    }
}

/// Interpolates linearly between `points` (sorted by `x`) at `x`. Extrapolates from the outer two on each
/// side, but not below a tenth of the nearest point. A single point is a constant; without points the
/// result is NaN.
pub(super) fn along(points: &[(f64, f64)], x: f64) -> f64 {
    let ((x0, y0), (x1, y1)) = match points {
        [] => return f64::NAN,
        [(_, height)] => return *height,
        [first, second, rest @ ..] => {
            let mut piece = (*first, *second);
            for next in rest {
                if piece.1.0 >= x {
                    break;
                }
                piece = (piece.1, *next);
            }
            piece
        }
    };
    let height = y0 + (y1 - y0) * (x - x0) / (x1 - x0);
    height.max(0.1 * y0.min(y1))
}

/// Returns the number of doublings between a batch and the range of those that ran.
pub(super) fn doublings(batch: u64, (first, last): (u64, u64)) -> f64 {
    let ratio = |more: u64, less: u64| (more.max(1) as f64 / less.max(1) as f64).log2();
    ratio(batch, last).max(ratio(first, batch)).max(0.0)
}

/// The times of batches that took turns with that of the first run, scaled to the median iteration
/// of the first run. `None` if there are none.
fn times_in_turns(runs: &[Run], in_turns: &[Vec<Round>]) -> Option<BTreeMap<u64, BatchTime>> {
    let first = runs.first()?;
    let reference = median(&usable(first).collect::<Vec<f64>>())?;
    let timed = rounds::ratios(in_turns, first.batch).into_iter().filter_map(|(batch, ratios)| {
        let time = reference * median(&ratios)?;
        Some((batch, BatchTime { fastest: time, median: time }))
    });
    Some(timed.collect::<BTreeMap<u64, BatchTime>>()).filter(|timed| timed.len() > 1)
}

/// Returns the runs as if the machine's speed had been constant: the drift between repeated runs of
/// the first batch is removed from the runs in between.
fn without_drift(runs: &[Run]) -> Vec<Run> {
    /// The maximum drift that is corrected. A larger one has another cause.
    const MAX_DRIFT: f64 = 2.0;
    let references: Vec<(usize, f64)> = runs
        .iter()
        .enumerate()
        .filter(|(_, run)| Some(run.batch) == runs.first().map(|first| first.batch))
        .filter_map(|(index, run)| Some((index, fastest(run)?)))
        .collect();
    let levels: Vec<f64> = references.iter().map(|(_, level)| *level).collect();
    let Some(median_level) = median(&levels) else { return runs.to_vec() };
    let level_at = |index: usize| {
        let after = references.partition_point(|(at, _)| *at < index);
        let before = after.checked_sub(1).and_then(|before| references.get(before));
        match (before, references.get(after)) {
            (_, Some((at, level))) if *at == index => *level,
            (Some((_, before)), Some((_, after))) => (before * after).sqrt(),
            (Some((_, level)), None) | (None, Some((_, level))) => *level,
            (None, None) => median_level,
        }
    };
    let corrected = |(index, run): (usize, &Run)| {
        let factor = (median_level / level_at(index)).clamp(1.0 / MAX_DRIFT, MAX_DRIFT);
        Run { timed_ns: run.timed_ns.iter().map(|time| time * factor).collect(), ..run.clone() }
    };
    runs.iter().enumerate().map(corrected).collect()
}

/// The times of the runs of one batch, in nanoseconds.
#[derive(Clone, Debug, Default)]
struct BatchTime {
    /// The fastest iteration of a run: the median over the runs.
    fastest: f64,
    /// The median of all iterations.
    median: f64,
}

/// Returns the times of each batch that has a run with usable times.
fn by_batch(runs: &[Run]) -> BTreeMap<u64, BatchTime> {
    let mut iterations: BTreeMap<u64, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.batch > 0) {
        if let Some(one) = fastest(run) {
            let (fastest, times) = iterations.entry(run.batch).or_default();
            fastest.push(one);
            times.extend(usable(run));
        }
    }
    let timed = |(batch, (fastest, times)): (u64, (Vec<f64>, Vec<f64>))| {
        Some((batch, BatchTime { fastest: median(&fastest)?, median: median(&times)? }))
    };
    iterations.into_iter().filter_map(timed).collect()
}

fn usable(run: &Run) -> impl Iterator<Item = f64> + '_ {
    run.timed_ns.iter().copied().filter(|time| time.is_finite() && *time > 0.0)
}

fn fastest(run: &Run) -> Option<f64> {
    usable(run).reduce(f64::min)
}

/// Time of the median iteration divided by that of the fastest: the median over the batches.
fn median_factor(measured: &BTreeMap<u64, BatchTime>) -> Option<f64> {
    let ratios: Vec<f64> = measured.values().map(|one| one.median / one.fastest).collect();
    median(&ratios)
}
