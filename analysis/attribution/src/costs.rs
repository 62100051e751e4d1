//! The cost of each context: the sum over the instants of the iterations.

use super::contexts::{ContextId, Contexts};
use super::device::{Busy, Launches};
use super::join::Join;
use super::timeline::Piece;
use ridgeline_base::intervals::Interval;

/// The cost of one context, summed over the profiled iterations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    /// Nanoseconds of the iterations attributed to the context, on the host or a GPU.
    pub time_ns: f64,
    /// The same if every iteration were the typical one (see [`typical`]). For whole periods, equal
    /// to `time_ns`.
    pub typical_ns: f64,
    /// The host's part of `time_ns`: all of it on a CPU, the GPU's idle time on a GPU.
    pub host_ns: f64,
    /// Number of operators recorded in the host's part.
    pub operators: f64,
    /// Number of line events recorded in the host's part.
    pub line_events: f64,
    /// Nanoseconds of the recorder in the host's part.
    pub recorder_ns: f64,
    /// Nanoseconds of waits for other ranks in the host's part.
    pub waited_ns: f64,
    /// Sum of the full durations of kernels and copies that it launched, in nanoseconds.
    pub kernel_ns: f64,
    /// Host nanoseconds in launch calls.
    pub launch_ns: f64,
}

/// Costs by context and by operator.
#[derive(Debug, Default)]
pub(super) struct Costs {
    pub contexts: Vec<Cost>,
    /// Times by context and iteration.
    pub by_iteration: ByIteration,
    /// By shown operator: nanoseconds of the host's part.
    pub operators: Vec<f64>,
    /// By shown operator: nanoseconds of the GPU's part.
    pub device_of_operators: Vec<f64>,
    /// Nanoseconds of kernels launched before the recording.
    pub leaked_ns: f64,
    /// Nanoseconds of the windows without a thread: the trace has no thread for the loop.
    pub unexplained_ns: f64,
}

impl Costs {
    /// Adds up the pieces of host time, with waits for other ranks in `waits`, and the GPU
    /// activities. In whole periods there is no typical iteration: each one counts.
    pub(crate) fn new(
        join: &Join<'_>,
        contexts: &Contexts<'_>,
        pieces: &[Piece],
        launches: &Launches,
        waits: &[Interval],
        are_whole_periods: bool,
    ) -> Costs {
        let (trace, windows) = (join.trace, join.windows);
        let mut costs = Costs {
            contexts: vec![Cost::default(); contexts.len()],
            operators: vec![0.0; trace.operators.len()],
            device_of_operators: vec![0.0; trace.operators.len()],
            ..Costs::default()
        };
        let busy = Busy::new(trace, windows);
        costs.by_iteration = ByIteration::new(contexts.len(), windows.len());
        costs.add_host(windows, pieces, &busy.intervals);
        costs.add_waits(pieces, waits);
        costs.add_device(join, launches, &busy.parts);
        for (index, cost) in costs.contexts.iter_mut().enumerate() {
            let of_context = costs.by_iteration.of(index);
            let typical = if are_whole_periods { None } else { typical(of_context) };
            cost.typical_ns = typical.unwrap_or(cost.time_ns);
        }
        for (call, context) in trace.runtime_calls.iter().zip(&launches.contexts) {
            if let Some(cost) = costs.contexts.get_mut(context.0 as usize)
                && is_within(windows, call.start_ns)
            {
                cost.launch_ns += call.duration_ns as f64;
            }
        }
        let total: f64 = windows.iter().map(|(start, end)| end.saturating_sub(*start) as f64).sum();
        let explained: f64 = costs.contexts.iter().map(|cost| cost.time_ns).sum();
        costs.unexplained_ns = (total - explained - costs.leaked_ns).max(0.0);
        costs
    }

    fn add_host(&mut self, windows: &[(i64, i64)], pieces: &[Piece], busy: &[(i64, i64)]) {
        let mut next = 0;
        for piece in pieces {
            while busy.get(next).is_some_and(|&(_, end_ns)| end_ns <= piece.start_ns) {
                next += 1;
            }
            let length = piece.end_ns.saturating_sub(piece.start_ns) as f64;
            let covered: f64 = busy
                .get(next..)
                .unwrap_or_default()
                .iter()
                .take_while(|(start_ns, _)| *start_ns < piece.end_ns)
                .map(|&(start_ns, end_ns)| {
                    let (start, end) = (start_ns.max(piece.start_ns), end_ns.min(piece.end_ns));
                    end.saturating_sub(start) as f64
                })
                .sum();
            let free = (length - covered).max(0.0);
            let share = if length > 0.0 { free / length } else { 0.0 };
            self.by_iteration.add(windows, piece.context, piece.start_ns, free);
            if let Some(cost) = self.contexts.get_mut(piece.context.0 as usize) {
                cost.time_ns += free;
                cost.host_ns += free;
                cost.operators += f64::from(piece.recorded.operators) * share;
                cost.line_events += f64::from(piece.recorded.line_events) * share;
                cost.recorder_ns += (piece.recorded.recorder_ns as f64).min(length) * share;
            }
            if let Some(time_ns) =
                piece.operator.and_then(|operator| self.operators.get_mut(operator as usize))
            {
                *time_ns += free;
            }
        }
    }

    /// Adds waits to the contexts of pieces. Both must be sorted.
    fn add_waits(&mut self, pieces: &[Piece], waits: &[Interval]) {
        for piece in pieces {
            let first = waits.partition_point(|(_, end_ns)| *end_ns <= piece.start_ns);
            let within = waits.get(first..).unwrap_or_default().iter();
            let within = within.take_while(|(start_ns, _)| *start_ns < piece.end_ns);
            let parts = within.map(|(start_ns, end_ns)| {
                piece.end_ns.min(*end_ns).saturating_sub(piece.start_ns.max(*start_ns)) as f64
            });
            if let Some(cost) = self.contexts.get_mut(piece.context.0 as usize) {
                cost.waited_ns = (cost.waited_ns + parts.sum::<f64>()).min(cost.host_ns);
            }
        }
    }

    fn add_device(&mut self, join: &Join<'_>, launches: &Launches, parts: &[f64]) {
        let (trace, windows) = (join.trace, join.windows);
        for (index, (activity, part)) in trace.activities.iter().zip(parts).enumerate() {
            let cost = launches
                .context(index)
                .and_then(|context| self.contexts.get_mut(context.0 as usize));
            let Some(cost) = cost else {
                self.leaked_ns += part;
                continue;
            };
            let launched = launches
                .call(index)
                .and_then(|call| trace.runtime_calls.get(call))
                .is_some_and(|call| is_within(windows, call.start_ns));
            cost.time_ns += part;
            if let Some(context) = launches.context(index) {
                self.by_iteration.add(windows, context, activity.start_ns, *part);
            }
            let shown = launches
                .operator(index)
                .and_then(|operator| join.shown_operator_of(operator as u32))
                .and_then(|shown| self.device_of_operators.get_mut(shown as usize));
            if let Some(time_ns) = shown {
                *time_ns += part;
            }
            if launched {
                cost.kernel_ns += activity.duration_ns as f64;
            }
        }
    }
}

/// Times by context and iteration, if there are few enough iterations.
#[derive(Debug, Default)]
pub(super) struct ByIteration {
    iterations: usize,
    /// One row per context.
    times: Vec<f64>,
}

impl ByIteration {
    /// The maximum number of values. Above it, only sums are stored.
    const MAX_VALUES: usize = 4_000_000;

    fn new(contexts: usize, iterations: usize) -> ByIteration {
        let numbers =
            contexts.checked_mul(iterations).filter(|&all| all <= ByIteration::MAX_VALUES);
        ByIteration { iterations, times: vec![0.0; numbers.unwrap_or(0)] }
    }

    /// Returns the number of iterations, or 0 if there are too many.
    pub(crate) fn iterations(&self) -> usize {
        if self.times.is_empty() { 0 } else { self.iterations }
    }

    fn add(&mut self, windows: &[(i64, i64)], context: ContextId, start_ns: i64, time_ns: f64) {
        let window = windows.partition_point(|&(_, end_ns)| end_ns <= start_ns);
        let index = context.0 as usize * self.iterations + window;
        if let Some(sum) = self.times.get_mut(index).filter(|_| window < self.iterations) {
            *sum += time_ns;
        }
    }

    /// Returns the nanoseconds of a context in each iteration; empty if there are too many.
    pub(crate) fn of(&self, context: usize) -> &[f64] {
        let first = context.saturating_mul(self.iterations);
        let row = self.times.get(first..).and_then(|rest| rest.get(..self.iterations));
        row.unwrap_or_default()
    }
}

/// Returns the cost of a context if each iteration were the typical one: the median (the lower of
/// two) times their number. Another program on the CPU makes one context of one iteration slow;
/// nothing makes one faster. Returns `None` for code that does not run in every iteration (logging
/// at every tenth), which has no typical iteration.
pub(super) fn typical(times: &[f64]) -> Option<f64> {
    if times.iter().any(|time_ns| *time_ns <= 0.0) {
        return None;
    }
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(middle * times.len() as f64)
}

/// Whether a time is in one of the windows, which must be sorted and must not overlap.
pub(super) fn is_within(windows: &[(i64, i64)], time_ns: i64) -> bool {
    window_at(windows, time_ns).is_some()
}

/// Returns the index of the window that contains a time.
pub(super) fn window_at(windows: &[(i64, i64)], time_ns: i64) -> Option<usize> {
    let index = windows.partition_point(|&(_, end_ns)| end_ns <= time_ns);
    windows.get(index).filter(|&&(start_ns, _)| start_ns <= time_ns).map(|_| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typical_ignores_one_slow_iteration() {
        assert_eq!(typical(&[10.0, 12.0, 500.0]), Some(36.0));
        assert_eq!(typical(&[10.0, 500.0]), Some(20.0));
        assert_eq!(typical(&[10.0]), Some(10.0));
    }

    #[test]
    fn code_that_runs_sometimes_has_no_typical_iteration() {
        assert_eq!(typical(&[0.0, 12.0, 500.0]), None);
        assert_eq!(typical(&[]), None);
    }

    #[test]
    fn windows_include_their_start_and_exclude_their_end() {
        let windows = [(0, 10), (20, 30)];
        let within = [-1, 0, 9, 10, 15, 20, 30].map(|time_ns| is_within(&windows, time_ns));
        assert_eq!(within, [false, true, true, false, false, true, false]);
    }
}
