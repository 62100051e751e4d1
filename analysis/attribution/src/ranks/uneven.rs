//! Finds the rank that the others wait for, and the reason: more work, or slower at the same work.
//!
//! Ranks that train together end an iteration together, so the slowest sets the pace and the others
//! wait. Whether a surplus is real depends on the variation of iterations: a difference that also
//! occurs between iterations of one rank is not a difference between ranks.

use ridgeline_profile::ranks::{LineOfRank, RankCost, Ranks};

/// The minimum surplus as a share of the iteration; below it, ranks count as even.
const MIN_SHARE: f64 = 0.05;
/// The maximum relative difference between iterations of ranks that train together.
const MAX_PACE_DIFFERENCE: f64 = 0.3;
/// The minimum ratio at which one rank has more work than another.
const MIN_WORK_RATIO: f64 = 1.1;
/// The minimum share of the surplus for a line to be its cause; with less, the line is one of
/// several.
const MIN_CAUSE_SHARE: f64 = 0.5;
/// The minimum share of the surplus for a line to be named.
const MIN_NAMED_SHARE: f64 = 0.1;
/// The maximum number of further lines that are named.
const MAX_LINES: usize = 5;

// A single line is slow only above all of these minimums.
/// The line's share of the surplus.
const MIN_LINE_SHARE: f64 = 0.8;
/// The surplus's share of the iteration.
const MIN_ITERATION_SHARE: f64 = 0.25;
/// The ratio of the surplus to the variation of iterations.
const MIN_VARIATION_RATIO: f64 = 3.0;
/// The ratio of the line's time to that on the other ranks.
const MIN_LINE_RATIO: f64 = 3.0;
/// The ratio from which a rank is also slower on its other lines, because it has less of the
/// machine.
const MAX_RATIO_ELSEWHERE: f64 = 1.5;

/// The reason why a rank takes longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// Only this rank runs the first of the lines.
    Alone,
    /// Its batches are larger: its samples, and those of the others.
    LargerBatch(u64, u64),
    /// It runs the first of the lines more often: its executions per iteration, and those of the
    /// others.
    MoreCalls(f64, f64),
    /// Its operators compute more: its floating-point operations, and those of the others.
    MoreOperations(f64, f64),
    /// It does the same work and takes longer.
    Slower,
}

/// A line that takes longer on the slow rank.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowLine {
    /// Path relative to the project's root.
    pub path: String,
    /// Line number, counted from 1, in the text that ran.
    pub line: u32,
    /// Nanoseconds per iteration more than on the other ranks.
    pub surplus_ns: f64,
}

/// The rank that the others wait for.
#[derive(Clone, Debug, PartialEq)]
pub struct Uneven {
    pub rank: u32,
    /// Nanoseconds per iteration that it computes longer than the others (their median).
    pub surplus_ns: f64,
    /// Nanoseconds per iteration that it computes longer than the mean of all ranks: the saving if
    /// its work were distributed evenly.
    pub beyond_mean_ns: f64,
    pub cause: Cause,
    /// The lines that take longer there, largest surplus first. Empty if no line has much of the
    /// surplus, because the rank is slower on all of them.
    pub lines: Vec<SlowLine>,
}

/// Returns the rank that the others wait for; `None` if the ranks are even, or the difference is
/// within the variation of iterations.
pub fn uneven(ranks: &Ranks) -> Option<Uneven> {
    let all = &ranks.ranks;
    let time = ranks.spread(|rank| rank.time_ns);
    let trains_together = all.iter().all(|rank| rank.exchange_ns.is_some());
    if !trains_together || time.width() > MAX_PACE_DIFFERENCE * time.max.1 {
        return None;
    }
    let slow = all.iter().max_by(|one, other| one.computing_ns.total_cmp(&other.computing_ns))?;
    let others: Vec<&RankCost> = all.iter().filter(|rank| rank.rank != slow.rank).collect();
    let of_others =
        |value: &dyn Fn(&RankCost) -> f64| median(others.iter().map(|rank| value(rank)));
    let surplus_ns = slow.computing_ns - of_others(&|rank| rank.computing_ns)?;
    let mean_ns = all.iter().map(|rank| rank.computing_ns).sum::<f64>() / all.len().max(1) as f64;
    let beyond_mean_ns = slow.computing_ns - mean_ns;
    let varies_ns = all.iter().map(|rank| rank.varies_ns).fold(0.0, f64::max);
    if surplus_ns < MIN_SHARE * slow.time_ns || surplus_ns <= varies_ns {
        return None;
    }
    if let Some(line) =
        runs_alone(slow, &others).filter(|it| it.surplus_ns >= MIN_CAUSE_SHARE * surplus_ns)
    {
        let cause = Cause::Alone;
        let lines = vec![line];
        return Some(Uneven { rank: slow.rank, surplus_ns, beyond_mean_ns, cause, lines });
    }
    let mut lines: Vec<SlowLine> = slow
        .lines
        .iter()
        .filter_map(|((path, line), cost)| {
            let theirs =
                of_others(&|rank| rank.line(path, *line).map_or(0.0, |cost| cost.computing_ns))?;
            let surplus_ns = cost.computing_ns - theirs;
            Some(SlowLine { path: path.clone(), line: *line, surplus_ns })
        })
        .filter(|line| line.surplus_ns >= MIN_NAMED_SHARE * surplus_ns)
        .collect();
    lines.sort_by(|one, other| other.surplus_ns.total_cmp(&one.surplus_ns));
    lines.truncate(MAX_LINES);
    let cause = cause(slow, &others, lines.first());
    let first = lines.first().map_or(0.0, |line| line.surplus_ns);
    if cause == Cause::Slower && first < MIN_CAUSE_SHARE * surplus_ns {
        // A slower CPU or GPU is slower everywhere; a line that stands out only slightly is not the
        // cause.
        lines.clear();
    }
    Some(Uneven { rank: slow.rank, surplus_ns, beyond_mean_ns, cause, lines })
}

/// Whether the rank is much slower on one line and as fast as the others elsewhere. A rank that
/// other programs slow down is slower everywhere, although most of that may be on the line that
/// takes most of the time.
pub fn is_of_one_line(ranks: &Ranks, found: &Uneven) -> bool {
    let Some(first) = found.lines.first() else { return false };
    let all = ranks.ranks.iter();
    let (slow, others): (Vec<_>, Vec<_>) = all.partition(|rank| rank.rank == found.rank);
    let Some(slow) = slow.first() else { return false };
    let here =
        |rank: &RankCost| rank.line(&first.path, first.line).map_or(0.0, |line| line.computing_ns);
    let elsewhere = |rank: &RankCost| rank.computing_ns - here(rank);
    let theirs = |value: &dyn Fn(&RankCost) -> f64| {
        median(others.iter().map(|rank| value(rank))).unwrap_or(0.0)
    };
    let varies_ns = ranks.ranks.iter().map(|rank| rank.varies_ns).fold(0.0, f64::max);
    first.surplus_ns >= MIN_LINE_SHARE * found.surplus_ns
        && found.surplus_ns >= MIN_ITERATION_SHARE * slow.time_ns
        && found.surplus_ns >= MIN_VARIATION_RATIO * varies_ns
        && here(slow) >= MIN_LINE_RATIO * theirs(&here)
        && elsewhere(slow) <= MAX_RATIO_ELSEWHERE * theirs(&elsewhere)
}

/// Returns the line with most time that no other rank runs.
fn runs_alone(slow: &RankCost, others: &[&RankCost]) -> Option<SlowLine> {
    let is_alone = |path: &str, line: u32| {
        others.iter().all(|rank| rank.line(path, line).is_none_or(|cost| cost.calls == 0.0))
    };
    slow.lines
        .iter()
        .filter(|((path, line), cost)| cost.calls > 0.0 && is_alone(path, *line))
        .max_by(|(_, one), (_, other)| one.total_ns.total_cmp(&other.total_ns))
        .map(|((path, line), cost)| SlowLine {
            path: path.clone(),
            line: *line,
            surplus_ns: cost.total_ns,
        })
}

fn cause(slow: &RankCost, others: &[&RankCost], line: Option<&SlowLine>) -> Cause {
    let batches: Vec<u64> = others.iter().filter_map(|rank| rank.batch_size).collect();
    let largest = batches.iter().max().copied();
    if let (Some(own), Some(theirs)) = (slow.batch_size, largest)
        && batches.len() == others.len()
        && own as f64 > MIN_WORK_RATIO * theirs as f64
    {
        return Cause::LargerBatch(own, theirs);
    }
    let at = |rank: &RankCost| -> Option<LineOfRank> {
        let line = line?;
        rank.line(&line.path, line.line)
    };
    let theirs = median(others.iter().filter_map(|rank| at(rank).map(|cost| cost.calls)));
    if let (Some(own), Some(theirs)) = (at(slow).map(|cost| cost.calls), theirs)
        && theirs > 0.0
        && own > MIN_WORK_RATIO * theirs
    {
        return Cause::MoreCalls(own, theirs);
    }
    match median(others.iter().map(|rank| rank.flops)) {
        Some(theirs) if theirs > 0.0 && slow.flops > MIN_WORK_RATIO * theirs => {
            Cause::MoreOperations(slow.flops, theirs)
        }
        _ => Cause::Slower,
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    ridgeline_base::statistics::median(&values)
}
