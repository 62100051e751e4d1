//! Slow iterations: their times, and the line that makes them slow.

use std::collections::{BTreeMap, BTreeSet};

use super::Sums;
use super::contexts::Contexts;
use super::join::Join;
use super::lines::{LineIndex, Lines};
use ridgeline_base::statistics::median;
use ridgeline_profile::slow_iterations::{SlowIterations, SlowLine};
use ridgeline_profile::{BUSY_SHARE, FileId};
use ridgeline_recording::manifest::{Iterations, SlowStack};

/// The minimum ratio of a line's time in slow iterations to that in the others for it to be the
/// cause.
const MIN_RATIO: f64 = 2.0;
/// The minimum share of the additional time of slow iterations for a line to be the cause.
const MIN_SHARE: f64 = 0.3;
/// The minimum number of samples of the stack in slow iterations, and in the others.
const MIN_SAMPLES: f64 = 3.0;
/// The number of lines that are reported at most, the minimum share of each, and of all together.
const MAX_LINES: usize = 3;
const MIN_LINE_SHARE: f64 = 0.15;
const MIN_EXPLAINED: f64 = 0.5;
/// The maximum share of a line in the other iterations. A line with more, such as the call of
/// `main`, contains the loop.
const MAX_SHARE_OF_OTHERS: f64 = 0.5;
/// The maximum difference between the mean and what a period predicts, as a share. On a busy machine, a period may be an
/// accident.
const MAX_DEVIATION: f64 = 0.25;

/// Returns the slow iterations found by the recorder; `None` if there is only one without a period,
/// which may be an accident, or if other programs may have caused them: the machine was busy, they have no period, and
/// no line is known that makes them slow.
pub(super) fn from_recorder(iterations: &Iterations) -> Option<SlowIterations> {
    let wall = Split::of(&iterations.timed_ns, &iterations.slow);
    let (typical_ns, slow_ns) = (median(&wall.others)?, median(&wall.slow)?);
    // Other programs delay some iterations, but that says nothing about the period.
    let undisturbed_ns = iterations.undisturbed_ns();
    let undisturbed = Split::of(&undisturbed_ns, &iterations.slow);
    let is_period = |&period: &u32| {
        period >= 2 && undisturbed.mean_that_fits(&undisturbed_ns, Some(period)).is_some()
    };
    let period = iterations.period.filter(is_period);
    let may_be_of_others = iterations.waited_share() >= BUSY_SHARE
        && lines_of_stacks(&iterations.slow_stacks).is_empty();
    if period.is_none() && (iterations.slow.len() < 2 || may_be_of_others) {
        return None;
    }
    let mean_ns = match (wall.mean_that_fits(&iterations.timed_ns, period), period) {
        (Some(mean_ns), _) => mean_ns,
        (None, Some(period)) => mean_of_typical_period(&iterations.timed_ns, period)?,
        // The positions of an accidental period are not those of the slow iterations.
        (None, None) => return None,
    };
    let is_sound = typical_ns > 0.0 && slow_ns >= typical_ns && mean_ns >= typical_ns;
    let profiled = u32::try_from(iterations.profiled.len()).ok()?;
    is_sound.then_some(SlowIterations {
        period,
        count: wall.slow.len() as u32,
        of: iterations.timed_ns.len() as u32,
        typical_ns,
        slow_ns,
        mean_ns,
        lines: Vec::new(),
        are_whole_periods: period
            .is_some_and(|period| profiled > 0 && profiled.is_multiple_of(period)),
    })
}

/// The times of slow iterations and of the others.
struct Split {
    slow: Vec<f64>,
    others: Vec<f64>,
}

impl Split {
    fn of(times_ns: &[u64], slow: &[usize]) -> Split {
        let times = |is_slow: bool| -> Vec<f64> {
            let chosen = times_ns.iter().enumerate().filter(|(at, _)| slow.contains(at) == is_slow);
            chosen.map(|(_, &ns)| ns as f64).collect()
        };
        Split { slow: times(true), others: times(false) }
    }

    /// Returns the mean of these times, if the two medians explain it: with one slow iteration in each period, or with
    /// as many as there are. With a period, the mean of a typical one counts if the mean of all does not fit, because
    /// a delay of a single iteration changes only the latter.
    fn mean_that_fits(&self, times_ns: &[u64], period: Option<u32>) -> Option<f64> {
        let (typical_ns, slow_ns) = (median(&self.others)?, median(&self.slow)?);
        let slow_share = match period {
            Some(period) => 1.0 / f64::from(period),
            None => self.slow.len() as f64 / times_ns.len() as f64,
        };
        let predicted_ns = typical_ns + slow_share * (slow_ns - typical_ns);
        let of_typical = period.and_then(|period| mean_of_typical_period(times_ns, period));
        let means = [mean_over_periods(times_ns, period), of_typical];
        let fits = |mean: &f64| (mean - predicted_ns).abs() <= MAX_DEVIATION * predicted_ns;
        means.into_iter().flatten().find(fits)
    }
}

/// Returns the mean time, over whole periods if there is a period.
fn mean_over_periods(times_ns: &[u64], period: Option<u32>) -> Option<f64> {
    let whole = times_ns.get(first_of_whole_periods(times_ns.len(), period)..)?;
    (!whole.is_empty()).then(|| whole.iter().map(|&ns| ns as f64).sum::<f64>() / whole.len() as f64)
}

/// Returns the mean time over one period, of which each iteration takes the median of those at its place.
fn mean_of_typical_period(times_ns: &[u64], period: u32) -> Option<f64> {
    let at_place = |place: usize| -> Vec<f64> {
        times_ns.iter().skip(place).step_by(period as usize).map(|&ns| ns as f64).collect()
    };
    let medians: Option<Vec<f64>> =
        (0..period as usize).map(|place| median(&at_place(place))).collect();
    Some(medians?.iter().sum::<f64>() / f64::from(period))
}

/// Returns the index of the first timed iteration of whole periods; 0 if there is no period.
pub(super) fn first_of_whole_periods(timed: usize, period: Option<u32>) -> usize {
    period.map_or(0, |period| if (period as usize) <= timed { timed % period as usize } else { 0 })
}

/// Returns the line that makes the slow profiled iterations slow: the outermost one that hardly
/// runs in the others.
pub(super) fn line(
    period: u32,
    join: &Join<'_>,
    contexts: &Contexts<'_>,
    sums: &Sums,
    lines: &mut Lines,
) -> Option<SlowLine> {
    let (slow, places) = by_place(join.windows, period)?;
    // Splits times by iteration into that of the slow one and the mean of the others.
    let split = |times: &[f64]| {
        let places = sums_by_place(times.iter().copied(), period);
        let slow_ns = places.get(slow).copied().unwrap_or(0.0);
        (slow_ns, (places.iter().sum::<f64>() - slow_ns) / f64::from(period - 1))
    };
    let slow_iteration_ns = places.get(slow).copied()?;
    let other_iteration_ns =
        (places.iter().sum::<f64>() - slow_iteration_ns) / f64::from(period - 1);
    // By line: its time in slow iterations, and its mean time in the others.
    let mut found: BTreeMap<usize, (LineIndex, (f64, f64))> = BTreeMap::new();
    for (id, context, ..) in sums.by_context(contexts) {
        let (slow_ns, others) = split(sums.costs.by_iteration.of(id.0 as usize));
        if slow_ns == 0.0 && others == 0.0 {
            continue;
        }
        lines.each_on(&join.places.log.stacks, context.stacks(), usize::MAX, |line, _| {
            let (_, times) = found.entry(line.index()).or_insert((line, (0.0, 0.0)));
            times.0 += slow_ns;
            times.1 += others;
        });
    }
    let excess = |times: &(f64, f64)| times.0 - times.1;
    let additional_ns = slow_iteration_ns - other_iteration_ns;
    let (line, line_ns) = found
        .into_values()
        .filter(|(_, times)| {
            let has_loop = times.1 > MAX_SHARE_OF_OTHERS * other_iteration_ns;
            !has_loop
                && times.0 >= MIN_RATIO * times.1
                && excess(times) >= MIN_SHARE * additional_ns
        })
        .map(|(line, times)| (line, excess(&times)))
        // The first of equal lines is the outermost: lines are numbered from the outermost frame.
        .reduce(|best, one| if one.1 > best.1 * 1.001 { one } else { best })?;
    let (file, line) = lines.location(line)?;
    let share = if additional_ns > 0.0 { (line_ns / additional_ns).min(1.0) } else { 0.0 };
    Some(SlowLine { file: FileId(file), line, share })
}

/// Returns the lines with most of the additional time of slow iterations, by samples of the stack: the outermost ones that
/// hardly run in the others. Empty if a few lines do not have most of it.
pub(super) fn lines_of_stacks(stacks: &[SlowStack]) -> Vec<SlowLine> {
    let count = |of: fn(&SlowStack) -> u32| stacks.iter().map(|stack| f64::from(of(stack))).sum();
    let totals: (f64, f64) = (count(|stack| stack.slow), count(|stack| stack.others));
    let mut found: Vec<SlowLine> = Vec::new();
    let mut stacks: Vec<&SlowStack> = stacks.iter().collect();
    if totals.0 < MIN_SAMPLES || totals.1 < MIN_SAMPLES {
        return found;
    }
    let explained = |found: &[SlowLine]| found.iter().map(|line| line.share).sum::<f64>();
    while found.len() < MAX_LINES && explained(&found) < MIN_EXPLAINED {
        let Some(line) = slowest_line(&stacks, totals) else { break };
        stacks.retain(|stack| {
            stack.lines.iter().all(|at| (at.file, at.line) != (line.file.0, line.line))
        });
        found.push(line);
    }
    if explained(&found) < MIN_EXPLAINED {
        found.clear();
    }
    found
}

/// Returns the line with the largest share of the additional time. `totals` are the numbers of all samples in slow
/// iterations, and in the others.
fn slowest_line(stacks: &[&SlowStack], totals: (f64, f64)) -> Option<SlowLine> {
    // The share of each line in slow iterations and in the others, and its smallest depth.
    let mut shares: BTreeMap<(u32, u32), (f64, f64, usize)> = BTreeMap::new();
    for stack in stacks {
        // A recursive function is on the stack several times.
        let mut counted = BTreeSet::new();
        for (depth, at) in stack.lines.iter().enumerate() {
            if counted.insert((at.file, at.line)) {
                let share = shares.entry((at.file, at.line)).or_insert((0.0, 0.0, depth));
                share.0 += f64::from(stack.slow) / totals.0;
                share.1 += f64::from(stack.others) / totals.1;
                share.2 = share.2.min(depth);
            }
        }
    }
    let excess = |share: &(f64, f64, usize)| share.0 - share.1;
    let ((file, line), share) = shares
        .into_iter()
        .filter(|(_, share)| {
            let has_loop = share.1 > MAX_SHARE_OF_OTHERS;
            !has_loop && share.0 >= MIN_RATIO * share.1 && excess(share) >= MIN_LINE_SHARE
        })
        .max_by(|(first, a), (second, b)| {
            excess(a).total_cmp(&excess(b)).then(b.2.cmp(&a.2)).then(second.cmp(first))
        })?;
    Some(SlowLine { file: FileId(file), line, share: excess(&share) })
}

/// Returns the position of the slow iteration within a period of the profiled iterations.
pub(super) fn slow_place(windows: &[(i64, i64)], period: u32) -> Option<usize> {
    by_place(windows, period).map(|(slow, _)| slow)
}

/// Returns the position of the slow iteration in a period, and the total time of the profiled
/// iterations at each position.
fn by_place(windows: &[(i64, i64)], period: u32) -> Option<(usize, Vec<f64>)> {
    let lengths = windows.iter().map(|(start, end)| end.saturating_sub(*start) as f64);
    let places = sums_by_place(lengths, period);
    let slow = places.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b))?.0;
    Some((slow, places))
}

fn sums_by_place(times: impl Iterator<Item = f64>, period: u32) -> Vec<f64> {
    let mut places = Vec::new();
    for (at, time_ns) in times.enumerate() {
        let place = at % period.max(1) as usize;
        // Positions come in order, so a missing one is always the next.
        match places.get_mut(place) {
            Some(sum) => *sum += time_ns,
            None => places.push(time_ns),
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_recording::manifest::Location;

    #[track_caller]
    fn check(timed_ns: &[u64], slow: &[usize], period: Option<u32>, expected: Option<Option<u32>>) {
        let iterations = Iterations {
            timed_ns: timed_ns.to_vec(),
            slow: slow.to_vec(),
            period,
            ..Iterations::default()
        };
        assert_eq!(from_recorder(&iterations).map(|slow| slow.period), expected);
    }

    #[test]
    fn waiting_for_the_cpu_hides_no_period() {
        let iterations = Iterations {
            timed_ns: vec![9, 2, 2, 20, 9, 2, 2, 9],
            timed_waited_ns: vec![0, 0, 0, 18, 0, 0, 0, 7],
            slow: vec![0, 4],
            period: Some(4),
            ..Iterations::default()
        };
        let found = from_recorder(&iterations).expect("slow iterations");
        assert_eq!(found.period, Some(4));
        // Throughput is still over wall time.
        assert_eq!(found.mean_ns, 55.0 / 8.0);
    }

    #[test]
    fn a_period_must_explain_the_mean() {
        check(&[9, 2, 2, 2, 9, 2, 2, 2], &[0, 4], Some(4), Some(Some(4)));
        // Other programs slowed down some of the others.
        check(&[9, 2, 2, 8, 9, 2, 2, 2], &[0, 4], Some(4), Some(Some(4)));
        check(&[9, 2, 2, 20, 9, 2, 2, 9], &[0, 4], Some(4), None);
        // The recorder knows the period of a single slow iteration from the lengths of loops.
        check(&[2, 9, 2, 2], &[1], Some(4), Some(Some(4)));
        check(&[2, 9, 2, 2], &[1], None, None);
    }

    fn stacks(stacks: &[(&[u32], u32, u32)]) -> Vec<SlowStack> {
        let stack = |&(lines, slow, others): &(&[u32], u32, u32)| SlowStack {
            lines: lines.iter().map(|&line| Location { file: 0, line }).collect(),
            slow,
            others,
        };
        stacks.iter().map(stack).collect()
    }

    /// On a busy machine, slow iterations without a period and a line are those of other programs.
    #[test]
    fn slow_iterations_of_a_busy_machine() {
        let mut iterations = Iterations {
            timed_ns: vec![9, 9, 2, 2, 2, 2, 2, 2],
            timed_waited_ns: vec![0, 0, 1, 1, 1, 0, 0, 0],
            slow: vec![0, 1],
            ..Iterations::default()
        };
        assert!(from_recorder(&iterations).is_none());
        iterations.slow_stacks = stacks(&[(&[50, 10], 2, 30), (&[50, 14], 20, 0)]);
        assert!(from_recorder(&iterations).is_some());
        iterations.slow_stacks.clear();
        iterations.timed_waited_ns.fill(0);
        assert!(from_recorder(&iterations).is_some());
    }

    #[track_caller]
    fn check_stacks(all: &[(&[u32], u32, u32)], expected: &[u32]) {
        let stacks = stacks(all);
        let found: Vec<u32> = lines_of_stacks(&stacks).iter().map(|one| one.line).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_line_of_slow_iterations_by_stacks() {
        // Line 50 calls `main`, whose loop trains on line 10 and evaluates on line 14.
        let train: (&[u32], u32, u32) = (&[50, 10], 2, 30);
        check_stacks(&[train, (&[50, 14, 81], 20, 0), (&[50, 14, 82], 5, 0)], &[14]);
        // The evaluation is rarely quick.
        check_stacks(&[train, (&[50, 14, 81], 25, 3)], &[14]);
        // The same work takes longer.
        check_stacks(&[(&[50, 10], 20, 20), (&[50, 11], 22, 20)], &[]);
        // A plot, whose lines take equally long.
        let plot: Vec<[u32; 2]> = (20..26).map(|line| [50, line]).collect();
        let of = |lines: usize| {
            let lines = plot.iter().take(lines).map(|stack| (&stack[..], 10, 0));
            std::iter::once(train).chain(lines).collect::<Vec<_>>()
        };
        check_stacks(&of(3), &[20, 21]);
        check_stacks(&of(5), &[20, 21, 22]);
        check_stacks(&of(6), &[]);
        // Recursion.
        check_stacks(&[train, (&[50, 14, 81, 14, 81], 20, 0)], &[14]);
        // Too few samples.
        check_stacks(&[(&[50, 10], 0, 30), (&[50, 14], 2, 0)], &[]);
        check_stacks(&[(&[50, 14], 20, 0)], &[]);
        check_stacks(&[], &[]);
    }

    #[test]
    fn one_delayed_iteration_hides_no_period() {
        // Without the delay, the mean is 3.75.
        let iterations = Iterations {
            timed_ns: vec![9, 2, 2, 2, 9, 2, 2, 2, 200, 2, 2, 2, 9, 2, 2, 2],
            slow: vec![0, 4, 8, 12],
            period: Some(4),
            ..Iterations::default()
        };
        let found = from_recorder(&iterations).expect("slow iterations");
        assert_eq!((found.period, found.mean_ns), (Some(4), 3.75));
    }

    #[test]
    fn slow_iterations_without_a_period_must_explain_the_mean() {
        check(&[9, 9, 2, 2, 2, 2, 2, 2], &[0, 1], None, Some(None));
        // "2 of 8 iterations take 3 ns" does not make 14 ns of 2 ns.
        check(&[3, 2, 2, 100, 3, 2, 2, 2], &[0, 4], None, None);
    }
}
