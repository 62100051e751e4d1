//! Finds the iterations, and the duration of one without the profiler.

use super::contexts::Contexts;
use super::costs::Costs;
use super::fast_lines;
use super::metrics::trace_steps::{TraceStep, TraceSteps, in_order};
use super::scale::{Scale, Unprofiled};
use super::slow_iterations;
use ridgeline_base::statistics::{median, median_index};
use ridgeline_profile::Phase;
use ridgeline_profile::slow_iterations::SlowIterations;
use ridgeline_recording::Recording;
use ridgeline_recording::manifest::{Iterations, TimedPhases};
use ridgeline_recording::trace::Trace;

/// The iterations to attribute.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Steps {
    /// Start and end in nanoseconds, sorted and without overlaps.
    pub windows: Vec<(i64, i64)>,
    /// The window whose memory is replayed.
    pub measured: Option<(i64, i64)>,
    /// The median iteration of a trace recorded elsewhere, if it has iterations.
    pub median_of_trace: Option<TraceStep>,
    /// Nanoseconds of each unprofiled iteration.
    pub timed_ns: Vec<f64>,
    /// The slow iterations, if there are any.
    pub slow: Option<SlowIterations>,
    /// Phases that were timed without the profiler, with their share of an unprofiled iteration.
    pub phases: Vec<(Phase, f64)>,
    /// Nanoseconds of the recorder for a line event, if known.
    pub line_event_ns: Option<f64>,
}

impl Steps {
    /// Returns the iterations of a recording: those of the manifest, else those found in the trace
    /// (see [`TraceSteps`]), else the whole trace as one.
    pub(crate) fn new(recording: &Recording) -> Steps {
        if let Some(manifest) = &recording.manifest {
            let profiled = &manifest.iterations.profiled;
            let slow = slow_iterations::from_recorder(&manifest.iterations);
            let measured = manifest.iterations.measured.and_then(|measured| profiled.get(measured));
            let measured = measured.or(profiled.last()).copied().filter(|(start, end)| start < end);
            return Steps {
                measured,
                windows: typical_windows(in_order(profiled.clone()), measured, slow.as_ref()),
                timed_ns: manifest.iterations.timed_ns.iter().map(|&ns| ns as f64).collect(),
                phases: shares(&manifest.iterations, slow.as_ref()),
                slow,
                median_of_trace: None,
                line_event_ns: manifest.line_log.and_then(|log| log.event_ns).map(|ns| ns as f64),
            };
        }
        let trace = &recording.trace;
        let measured = whole_trace(trace);
        let steps = TraceSteps::new(trace);
        let median_of_trace = steps.as_ref().and_then(TraceSteps::median);
        let windows = steps.map_or_else(|| measured.into_iter().collect(), |steps| steps.windows);
        Steps { measured, windows, median_of_trace, ..Steps::default() }
    }

    /// Returns the window of median length.
    pub(crate) fn median_window(&self) -> Option<(i64, i64)> {
        if let Some(median) = self.median_of_trace {
            return Some(median.window);
        }
        let lengths: Vec<u64> =
            self.windows.iter().map(|(start, end)| end.abs_diff(*start)).collect();
        self.windows.get(median_index(&lengths)?).copied()
    }

    /// Whether iterations were timed without the profiler.
    pub(crate) fn has_unprofiled_time(&self) -> bool {
        self.slow.is_some() || !self.timed_ns.is_empty()
    }

    /// Returns the total nanoseconds of all windows.
    pub(crate) fn profiled_total_ns(&self) -> f64 {
        self.windows.iter().map(|(start, end)| end.saturating_sub(*start) as f64).sum()
    }

    /// Returns the mean nanoseconds of a profiled iteration.
    pub(crate) fn profiled_mean_ns(&self) -> f64 {
        if self.windows.is_empty() {
            0.0
        } else {
            self.profiled_total_ns() / self.windows.len() as f64
        }
    }

    /// Whether a context's cost is its mean over the profiled iterations, which are whole periods.
    /// Otherwise it is the cost in a typical iteration.
    pub(crate) fn are_whole_periods(&self) -> bool {
        self.slow.as_ref().is_some_and(|slow| slow.are_whole_periods)
    }

    /// Returns the nanoseconds per iteration: the mean of whole periods, else the median of the
    /// unprofiled iterations, else the median of a trace recorded elsewhere, else the mean of the
    /// profiled iterations.
    pub(crate) fn iteration_ns(&self) -> f64 {
        if let Some(slow) = &self.slow {
            return slow.time_ns();
        }
        let of_trace = || self.median_of_trace.map(|median| median.time_ns as f64);
        median(&self.timed_ns).or_else(of_trace).unwrap_or_else(|| self.profiled_mean_ns())
    }

    /// Returns the nanoseconds without the profiler of the iteration whose window begins at
    /// `start_ns`.
    pub(crate) fn iteration_at_ns(&self, start_ns: i64) -> f64 {
        let Some(slow) = &self.slow else { return self.iteration_ns() };
        let at = self.windows.iter().position(|(start, _)| *start == start_ns);
        let is_slow = slow.are_whole_periods
            && at.zip(slow.period).is_some_and(|(at, period)| {
                slow_iterations::slow_place(&self.windows, period) == Some(at % period as usize)
            });
        if is_slow { slow.slow_ns } else { slow.typical_ns }
    }

    /// Returns the divisor from a sum over the profiled iterations to one iteration without the
    /// profiler, for times that the profiler lengthens as much as the iteration.
    pub(crate) fn iterations_in_sum(&self) -> f64 {
        if !self.has_unprofiled_time() {
            return self.windows.len().max(1) as f64;
        }
        let slowed = (self.profiled_mean_ns() / self.iteration_ns()).max(1.0);
        let slowed = if slowed.is_finite() { slowed } else { 1.0 };
        self.windows.len().max(1) as f64 * slowed
    }

    /// Computes the factors from costs of the profiled iterations to one iteration without the
    /// profiler.
    pub(crate) fn scale(
        &self,
        recording: &Recording,
        costs: &Costs,
        contexts: &Contexts<'_>,
    ) -> Scale {
        let phases: Vec<Phase> = contexts.iter().map(|(_, context)| context.phase).collect();
        let rest_ns = costs.leaked_ns + costs.unexplained_ns;
        let mut known_together = Vec::new();
        // They were measured in typical iterations.
        if self.slow.is_none() {
            known_together = fast_lines::known_together(recording, contexts, &self.phases);
        }
        let unprofiled = Unprofiled {
            iteration_ns: self.iteration_ns(),
            phases: &self.phases,
            known_together: &known_together,
            line_event_ns: self.line_event_ns,
        };
        Scale::new(&costs.contexts, &phases, rest_ns, self.windows.len(), unprofiled)
    }
}

/// Returns the windows that are not slow iterations, or all windows if whole periods were profiled.
fn typical_windows(
    windows: Vec<(i64, i64)>,
    measured: Option<(i64, i64)>,
    slow: Option<&SlowIterations>,
) -> Vec<(i64, i64)> {
    let Some(slow) = slow.filter(|slow| !slow.are_whole_periods) else { return windows };
    let length = |(start, end): (i64, i64)| end.saturating_sub(start) as f64;
    let shortest = windows.iter().copied().map(length).fold(f64::INFINITY, f64::min);
    // The profiler slows both kinds down, so the threshold is the mean of their ratios.
    let most = shortest * (slow.slow_ns / slow.typical_ns).sqrt();
    let is_typical = |window: &(i64, i64)| length(*window) <= most;
    // The displayed memory is that of the measured iteration.
    if measured.is_some_and(|measured| !is_typical(&measured)) {
        return windows;
    }
    windows.into_iter().filter(is_typical).collect()
}

/// Returns the phases that were timed without the profiler: for each the median of its shares, or
/// over whole periods the share of the sum.
fn shares(iterations: &Iterations, slow: Option<&SlowIterations>) -> Vec<(Phase, f64)> {
    let TimedPhases { backward, optimizer } = &iterations.timed_phases;
    let known = [(Phase::Backward, backward), (Phase::Optimizer, optimizer)];
    let timed = &iterations.timed_ns;
    let first = slow
        .filter(|slow| slow.are_whole_periods)
        .map(|slow| slow_iterations::first_of_whole_periods(timed.len(), slow.period));
    let found = known.into_iter().filter_map(|(phase, times)| {
        let share = match first {
            Some(first) => {
                let sum = |of: &[u64]| of.iter().skip(first).map(|&ns| ns as f64).sum::<f64>();
                Some(sum(times) / sum(timed))
            }
            None => {
                let pairs = times.iter().zip(timed);
                let shares: Vec<f64> =
                    pairs.map(|(&part, &whole)| part as f64 / whole as f64).collect();
                median(&shares)
            }
        };
        let share = share.filter(|share| *share > 0.0 && *share < 1.0)?;
        (times.len() == timed.len()).then_some((phase, share))
    });
    found.collect()
}

fn whole_trace(trace: &Trace) -> Option<(i64, i64)> {
    let operators = trace.operators.iter().map(|operator| (operator.start_ns, operator.end_ns()));
    let calls = trace.runtime_calls.iter().map(|call| (call.start_ns, call.end_ns()));
    let activities = trace.activities.iter().map(|activity| (activity.start_ns, activity.end_ns()));
    operators
        .chain(calls)
        .chain(activities)
        .reduce(|(start, end), (a_start, a_end)| (start.min(a_start), end.max(a_end)))
        .filter(|(start, end)| start < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_windows_do_not_overflow() {
        let steps = Steps { windows: vec![(i64::MIN, i64::MAX)], ..Steps::default() };
        assert!(steps.profiled_mean_ns().is_finite());
    }
}
