//! Which rank the others wait for, and why: it has more to do, or it is slower at the same.
//!
//! Ranks that train together end an iteration together, so the slowest sets the pace and the others'
//! surplus is waiting. Whether a surplus is real is told by the iterations' own variation: what two
//! iterations of one rank differ by is no difference between ranks.

use ridgeline_profile::ranks::{LineOfRank, RankCost, Ranks};

/// Below this share of the iteration, ranks count as even.
const LEAST_SHARE: f64 = 0.05;
/// Ranks whose iterations differ by more do not train together.
const SAME_PACE: f64 = 0.3;
/// From this ratio on, one rank does more work than another.
const MORE_WORK: f64 = 1.1;
/// A line with this share of the surplus is where it comes from; one with less is part of it.
const MOST_OF_IT: f64 = 0.5;
const PART_OF_IT: f64 = 0.1;
/// Lines that are named beside the first.
const MOST_LINES: usize = 5;

/// Of one slow line: its share of the surplus, the surplus's share of the iteration, how often the surplus is
/// what iterations vary by, and how often the line's time is that of the others.
const OF_ONE_LINE: f64 = 0.8;
const OF_ITERATION: f64 = 0.25;
const TIMES_VARIATION: f64 = 3.0;
const TIMES_THEIRS: f64 = 3.0;
/// A rank whose other lines take longer by this ratio has less of the machine.
const SAME_ELSEWHERE: f64 = 1.5;

/// Why a rank takes longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// It alone runs the first of the lines.
    Alone,
    /// Its batches have more samples: its own, and those of the others.
    LargerBatch(u64, u64),
    /// It runs the first of the lines more often: times in an iteration, and those of the others.
    MoreCalls(f64, f64),
    /// Its operators compute more: floating-point operations, and those of the others.
    MoreOperations(f64, f64),
    /// It does the same, and takes longer.
    Slower,
}

/// A line and the nanoseconds that it takes longer there.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowLine {
    /// Relative to the project's root.
    pub path: String,
    /// Counted from 1, in the text that ran.
    pub line: u32,
    /// Nanoseconds of one iteration more than the others take for it.
    pub surplus_ns: f64,
}

/// One rank that the others wait for.
#[derive(Clone, Debug, PartialEq)]
pub struct Uneven {
    /// Its number.
    pub rank: u32,
    /// Nanoseconds of one iteration that it computes longer than the others (their median).
    pub surplus_ns: f64,
    /// Nanoseconds of one iteration that it computes longer than all ranks do on average: what is saved
    /// where its work is divided among them.
    pub beyond_mean_ns: f64,
    /// Why.
    pub cause: Cause,
    /// The lines that take longer there, the most first. None where no line has much of the surplus:
    /// then it takes longer on all of them.
    pub lines: Vec<SlowLine>,
}

/// The rank that the others wait for; nothing where they are even, or where that is within what
/// iterations vary by.
pub fn uneven(ranks: &Ranks) -> Option<Uneven> {
    let all = &ranks.ranks;
    let time = ranks.spread(|rank| rank.time_ns);
    let trains_together = all.iter().all(|rank| rank.exchange_ns.is_some());
    if !trains_together || time.width() > SAME_PACE * time.most.1 {
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
    if surplus_ns < LEAST_SHARE * slow.time_ns || surplus_ns <= varies_ns {
        return None;
    }
    if let Some(line) =
        runs_alone(slow, &others).filter(|it| it.surplus_ns >= MOST_OF_IT * surplus_ns)
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
        .filter(|line| line.surplus_ns >= PART_OF_IT * surplus_ns)
        .collect();
    lines.sort_by(|one, other| other.surplus_ns.total_cmp(&one.surplus_ns));
    lines.truncate(MOST_LINES);
    let cause = cause(slow, &others, lines.first());
    let first = lines.first().map_or(0.0, |line| line.surplus_ns);
    if cause == Cause::Slower && first < MOST_OF_IT * surplus_ns {
        // A slower processor or GPU is slower everywhere; a line that stands out by little is none.
        lines.clear();
    }
    Some(Uneven { rank: slow.rank, surplus_ns, beyond_mean_ns, cause, lines })
}

/// Whether the rank is much slower on one line and as fast as the others elsewhere. A rank that other
/// programs slow down is slower everywhere, though most of that may be on the line that takes most of the
/// time.
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
    first.surplus_ns >= OF_ONE_LINE * found.surplus_ns
        && found.surplus_ns >= OF_ITERATION * slow.time_ns
        && found.surplus_ns >= TIMES_VARIATION * varies_ns
        && here(slow) >= TIMES_THEIRS * theirs(&here)
        && elsewhere(slow) <= SAME_ELSEWHERE * theirs(&elsewhere)
}

/// The line that takes most of those which no other rank runs.
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
        && own as f64 > MORE_WORK * theirs as f64
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
        && own > MORE_WORK * theirs
    {
        return Cause::MoreCalls(own, theirs);
    }
    match median(others.iter().map(|rank| rank.flops)) {
        Some(theirs) if theirs > 0.0 && slow.flops > MORE_WORK * theirs => {
            Cause::MoreOperations(slow.flops, theirs)
        }
        _ => Cause::Slower,
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    ridgeline_base::statistics::median(&values)
}
