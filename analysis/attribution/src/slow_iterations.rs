//! Slow iterations: their times, and the line that makes them slow.

use std::collections::BTreeMap;

use super::Sums;
use super::contexts::Contexts;
use super::join::Join;
use super::lines::{LineIndex, Lines};
use ridgeline_base::statistics::median;
use ridgeline_profile::FileId;
use ridgeline_profile::slow_iterations::SlowIterations;
use ridgeline_recording::manifest::Iterations;
use ridgeline_recording::observed::LineTimes;

/// The minimum ratio of a line's time in slow iterations to that in the others for it to be the
/// cause.
const MIN_RATIO: f64 = 2.0;
/// The minimum share of the additional time of slow iterations for a line to be the cause.
const MIN_SHARE: f64 = 0.3;
/// The same for the time in a line's own code, which is a smaller part than that of the call of a rollout.
const MIN_OWN_SHARE: f64 = 0.2;
/// The maximum share of a line in the other iterations. A line with more, such as the call of
/// `main`, contains the loop.
const MAX_SHARE_OF_OTHERS: f64 = 0.5;
/// The maximum difference between the mean and what a period predicts, as a share. On a busy machine, a period may be an
/// accident.
const MAX_DEVIATION: f64 = 0.25;

/// Returns the slow iterations found by the recorder; `None` if there is only one without a period,
/// which may be an accident.
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
    if iterations.slow.len() < 2 && period.is_none() {
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
        line: None,
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
) -> Option<(FileId, u32)> {
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
    let min_excess = MIN_SHARE * (slow_iteration_ns - other_iteration_ns);
    let (line, _) = found
        .into_values()
        .filter(|(_, times)| {
            let has_loop = times.1 > MAX_SHARE_OF_OTHERS * other_iteration_ns;
            !has_loop && times.0 >= MIN_RATIO * times.1 && excess(times) >= min_excess
        })
        .map(|(line, times)| (line, excess(&times)))
        // The first of equal lines is the outermost: lines are numbered from the outermost frame.
        .reduce(|best, one| if one.1 > best.1 * 1.001 { one } else { best })?;
    let (file, line) = lines.location(line)?;
    Some((FileId(file), line))
}

/// Returns the line that is slow in one of the iterations with timed lines: the one with most of the additional time
/// of the slowest iteration, in its own code. `None` if no line has much of it.
pub(super) fn line_of_slowest(timed: &[LineTimes]) -> Option<(FileId, u32)> {
    let count = timed.iter().map(|line| line.ns.len()).max()?;
    let time = |line: &LineTimes, at: usize| line.ns.get(at).copied().unwrap_or(0) as f64;
    let total = |at: usize| timed.iter().map(|line| time(line, at)).sum::<f64>();
    let slowest = (0..count).max_by(|&a, &b| total(a).total_cmp(&total(b)))?;
    let excess = |line: &LineTimes| {
        let times: Vec<f64> = (0..count).map(|at| time(line, at)).collect();
        time(line, slowest) - median(&times).unwrap_or(0.0)
    };
    let all: f64 = timed.iter().map(|line| excess(line).max(0.0)).sum();
    let line = timed.iter().max_by(|a, b| excess(a).total_cmp(&excess(b)))?;
    (all > 0.0 && excess(line) >= MIN_OWN_SHARE * all)
        .then_some((FileId(line.at.file), line.at.line))
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

    #[test]
    fn the_line_of_the_slowest_iteration() {
        let line =
            |line: u32, ns: &[u64]| LineTimes { at: Location { file: 0, line }, ns: ns.to_vec() };
        let update = line(3, &[50, 52, 60, 50]);
        let play = line(9, &[0, 0, 400]);
        let choose = line(12, &[0, 0, 300]);
        let found = line_of_slowest(&[update.clone(), play, choose]);
        assert_eq!(found, Some((FileId(0), 9)));
        // Many lines share it.
        let small: Vec<LineTimes> = (20..30).map(|at| line(at, &[0, 0, 10, 0])).collect();
        assert_eq!(line_of_slowest(&small), None);
        assert_eq!(line_of_slowest(&[]), None);
        assert_eq!(line_of_slowest(&[line(3, &[])]), None);
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
