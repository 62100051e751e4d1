//! The time of an iteration by batch.
//!
//! `time = a + b * work`, where `work` is the batch itself, or, where estimates say what the
//! operators cost at other batches, that cost. `a` is what an iteration takes whatever its batch:
//! the optimizer, launching kernels, Python.
//!
//! What else goes on at a machine can only make an iteration longer, so the quickest of a run's
//! iterations says most about the program (Chen and Revels, "Robust benchmarking in noisy
//! environments", 2016). The line goes through those, the middle one where a batch ran several times;
//! its height is then set so that it meets the *median* iterations, which are what is shown everywhere
//! else.
//!
//! Where batches ran side by side, in turns, nothing of that is needed: each turn is compared with the
//! current batch's of its round, and the middle one of these ratios counts, of several runs the middle
//! run's. The height is the measurement's.
//!
//! Not every program is a straight line: caches end, and other kernels are chosen. Where the runs lie
//! further from it than runs differ by themselves, the curve leaves it towards them.

use std::collections::BTreeMap;

use super::line::Line;
use super::{Estimate, Evidence, Round, Run, rounds};
use ridgeline_base::statistics::median;
use ridgeline_operators::range::Range;

/// One deviation of a run's median from the next run's, of a program that was not changed, where
/// there are too few runs to tell: `docs/accuracy.md`, "Batch size".
const SCATTER: f64 = 0.02;
/// Four of five cases lie within so many standard deviations.
const FOUR_OF_FIVE: f64 = 1.2816;
/// How far the shape of the curve can be wrong for each doubling away from what ran: caches end,
/// other kernels are chosen.
const PER_DOUBLING: f64 = 0.02;
/// The same where one batch alone ran, and the work is an estimate's.
const PER_DOUBLING_OF_ESTIMATES: f64 = 0.12;

/// The fitted time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Time {
    work: Work,
    line: Fitted,
    /// `(batch, share)`: by how much of itself the line is left towards what ran, by batch.
    bends: Vec<(f64, f64)>,
    /// From the quickest iteration to the median one.
    usual: f64,
    /// The smallest and the largest batch that ran.
    ran: (u64, u64),
}

#[derive(Clone, Debug, PartialEq)]
enum Fitted {
    Line(Line),
    /// Through nothing and one run.
    Ratio(f64),
}

/// What an iteration has to do at each batch.
#[derive(Clone, Debug, PartialEq)]
enum Work {
    Batch,
    /// `(batch, cost)`, by batch, at least two.
    Costs(Vec<(f64, f64)>),
}

impl Time {
    /// Nothing where the runs and estimates do not say how the time depends on the batch.
    pub(super) fn fit(evidence: &Evidence) -> Option<Time> {
        let Evidence { runs, in_turns, estimates, .. } = evidence;
        let measured = side_by_side(runs, in_turns).unwrap_or_else(|| by_batch(&steadied(runs)));
        let usual = usual(&measured)?;
        let ran = (*measured.first_key_value()?.0, *measured.last_key_value()?.0);
        let costs = Work::of(estimates);
        if measured.len() == 1 {
            let work = costs?;
            let (batch, one) = measured.first_key_value()?;
            let ratio = one.quickest / work.at(*batch as f64);
            let line = Fitted::Ratio(ratio);
            return ratio.is_finite().then_some(Time { work, line, bends: Vec::new(), usual, ran });
        }
        let fit = |work: &Work| {
            let points = measured.iter().map(|(batch, one)| (work.at(*batch as f64), one.quickest));
            Line::fit(&points.collect::<Vec<(f64, f64)>>())
        };
        let plain = fit(&Work::Batch)?;
        // The costs' kinks are worth having only where they explain the runs better.
        let (work, line) = match costs.and_then(|work| Some((fit(&work)?, work))) {
            Some((line, work)) if measured.len() > 2 && line.scatter < plain.scatter => {
                (work, line)
            }
            _ => (Work::Batch, plain),
        };
        let points = measured.iter().map(|(batch, one)| (*batch as f64, one.quickest));
        let bends = bends(&line, &work, points);
        Some(Time { work, line: Fitted::Line(line), bends, usual, ran })
    }

    /// Nanoseconds of an iteration.
    pub(super) fn at(&self, batch: u64) -> Range {
        let work = self.work.at(batch as f64);
        let doublings = doublings(batch, self.ran);
        let (value, share) = match &self.line {
            Fitted::Line(line) => {
                let noise = line.deviation(work, line.scatter.max(SCATTER));
                let value = line.at(work) * (1.0 + between(&self.bends, batch as f64));
                (value, FOUR_OF_FIVE * noise + PER_DOUBLING * doublings)
            }
            Fitted::Ratio(ratio) => {
                (ratio * work, FOUR_OF_FIVE * SCATTER + PER_DOUBLING_OF_ESTIMATES * doublings)
            }
        };
        let value = value * self.usual;
        Range { low: value / (1.0 + share), value, high: value * (1.0 + share) }
    }
}

/// How far what ran lies from the line, as shares of it, less what is likely to be noise: of a
/// deviation of which so much is noise, the rest is what it is best taken for (James and Stein,
/// "Estimation with quadratic loss", 1961).
fn bends(line: &Line, work: &Work, points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let kept = 1.0 - (SCATTER / line.scatter.max(SCATTER)).powi(2);
    let share = |(batch, time): (f64, f64)| {
        let height = line.at(work.at(batch));
        let share = if height > 0.0 { time / height - 1.0 } else { 0.0 };
        (batch, kept * share)
    };
    points.map(share).filter(|(_, share)| share.is_finite()).collect()
}

/// Between two points in proportion, and beyond the outer ones as at them; 0 without points.
fn between(points: &[(f64, f64)], x: f64) -> f64 {
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

/// How many doublings a batch is away from those that ran.
pub(super) fn doublings(batch: u64, (first, last): (u64, u64)) -> f64 {
    let ratio = |more: u64, less: u64| (more.max(1) as f64 / less.max(1) as f64).log2();
    ratio(batch, last).max(ratio(first, batch)).max(0.0)
}

/// What batches take that ran in turns with the first run's, whose median iteration is the height.
/// Nothing where none did.
fn side_by_side(runs: &[Run], in_turns: &[Vec<Round>]) -> Option<BTreeMap<u64, Timed>> {
    let first = runs.first()?;
    let height = median(&usable(first).collect::<Vec<f64>>())?;
    let timed = rounds::ratios(in_turns, first.batch).into_iter().filter_map(|(batch, ratios)| {
        let time = height * median(&ratios)?;
        Some((batch, Timed { quickest: time, median: time }))
    });
    Some(timed.collect::<BTreeMap<u64, Timed>>()).filter(|timed| timed.len() > 1)
}

/// The runs as they would have been on a machine that stays as fast as it was: a run between two of the
/// first one's batch is compared with these, and what they changed by is taken out of it.
fn steadied(runs: &[Run]) -> Vec<Run> {
    /// A machine that changes by more does something else.
    const MOST: f64 = 2.0;
    let references: Vec<(usize, f64)> = runs
        .iter()
        .enumerate()
        .filter(|(_, run)| Some(run.batch) == runs.first().map(|first| first.batch))
        .filter_map(|(index, run)| Some((index, quickest(run)?)))
        .collect();
    let levels: Vec<f64> = references.iter().map(|(_, level)| *level).collect();
    let Some(usual) = median(&levels) else { return runs.to_vec() };
    let level_at = |index: usize| {
        let after = references.partition_point(|(at, _)| *at < index);
        let before = after.checked_sub(1).and_then(|before| references.get(before));
        match (before, references.get(after)) {
            (_, Some((at, level))) if *at == index => *level,
            (Some((_, before)), Some((_, after))) => (before * after).sqrt(),
            (Some((_, level)), None) | (None, Some((_, level))) => *level,
            (None, None) => usual,
        }
    };
    let steady = |(index, run): (usize, &Run)| {
        let factor = (usual / level_at(index)).clamp(1.0 / MOST, MOST);
        Run { timed_ns: run.timed_ns.iter().map(|time| time * factor).collect(), ..run.clone() }
    };
    runs.iter().enumerate().map(steady).collect()
}

/// What the runs of one batch took, in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Timed {
    /// The quickest iteration of a run: the middle one of the runs.
    quickest: f64,
    /// The median of all their iterations.
    median: f64,
}

/// What each batch took that has a run with usable times.
fn by_batch(runs: &[Run]) -> BTreeMap<u64, Timed> {
    let mut iterations: BTreeMap<u64, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.batch > 0) {
        if let Some(one) = quickest(run) {
            let (quickest, times) = iterations.entry(run.batch).or_default();
            quickest.push(one);
            times.extend(usable(run));
        }
    }
    let timed = |(batch, (quickest, times)): (u64, (Vec<f64>, Vec<f64>))| {
        Some((batch, Timed { quickest: median(&quickest)?, median: median(&times)? }))
    };
    iterations.into_iter().filter_map(timed).collect()
}

fn usable(run: &Run) -> impl Iterator<Item = f64> + '_ {
    run.timed_ns.iter().copied().filter(|time| time.is_finite() && *time > 0.0)
}

fn quickest(run: &Run) -> Option<f64> {
    usable(run).reduce(f64::min)
}

/// How much longer the median iteration takes than the quickest: the median over the batches.
fn usual(measured: &BTreeMap<u64, Timed>) -> Option<f64> {
    let ratios: Vec<f64> = measured.values().map(|one| one.median / one.quickest).collect();
    median(&ratios)
}
