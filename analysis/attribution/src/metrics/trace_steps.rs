//! The iterations of a trace recorded elsewhere: their windows on the host, and how long each one
//! takes. All commands use this definition, so they all show the same iteration time.

use super::activity::communicating;
use super::operator_time::is_optimizer_step;
use ridgeline_base::statistics::median_index;
use ridgeline_recording::correlation::runtime_call_of_activities;
use ridgeline_recording::trace::{ActivityKind, Annotation, Trace};

/// The minimum nanoseconds from a launch to the start of its kernel if the kernel was queued behind
/// others. On an idle GPU it is some microseconds.
const MIN_QUEUED_NS: i64 = 100_000;
/// The longest gap between consecutive steps, as a fraction of a step. A longer one is a step that
/// the profiler skipped.
const MAX_GAP: f64 = 0.05;

/// A host that takes less than this share of the iteration runs ahead of the GPU.
const HOST_AHEAD: f64 = 0.98;
/// The largest relative difference between the times of similar iterations.
const MAX_DIFFERENCE: f64 = 0.05;

/// The iterations of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceSteps {
    /// How they were detected: `profiler steps` or `optimizer steps`.
    pub found_by: &'static str,
    /// Start and end of each on the host, in nanoseconds, sorted and without overlaps.
    pub windows: Vec<(i64, i64)>,
    /// Nanoseconds of each. A host that runs ahead of the GPU reaches the end of its window before
    /// the iteration is done, so these are the times of the slower side.
    pub times_ns: Vec<u64>,
}

/// An iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceStep {
    /// Start and end on the host, in nanoseconds.
    pub window: (i64, i64),
    /// Nanoseconds of the iteration, at least those of the window.
    pub time_ns: u64,
}

impl TraceStep {
    /// Returns the nanoseconds of the window.
    pub fn host_ns(&self) -> u64 {
        self.window.1.abs_diff(self.window.0)
    }
}

impl TraceSteps {
    /// Finds the iterations: `ProfilerStep#` annotations if there are any, else from one optimizer
    /// step to the next, where several optimizers in turn (a GAN) make one iteration. Returns `None`
    /// if there is neither, as in inference without a profiler schedule.
    pub fn new(trace: &Trace) -> Option<TraceSteps> {
        let by_profiler = in_order(profiler_steps(trace).map(window).collect());
        let (found_by, windows) = if by_profiler.is_empty() {
            ("optimizer steps", in_order(optimizer_steps(trace)))
        } else {
            ("profiler steps", by_profiler)
        };
        let windows = without_empty_ends(trace, windows);
        if windows.is_empty() {
            return None;
        }
        let gpu_ns = gpu_times(trace, &windows);
        let times = windows.iter().zip(gpu_ns);
        let times_ns = times.map(|((start, end), gpu_ns)| end.abs_diff(*start).max(gpu_ns));
        Some(TraceSteps { found_by, times_ns: times_ns.collect(), windows })
    }

    /// Returns the index of the iteration that represents the others: that of median time, or of an
    /// even number, the lower one. If its host runs ahead of the GPU, a similar iteration whose host
    /// does not is preferred, because its window shows the whole iteration.
    pub fn median_index(&self) -> Option<usize> {
        let median = median_index(&self.times_ns)?;
        let median_ns = *self.times_ns.get(median)?;
        let steps = self.windows.iter().zip(&self.times_ns).enumerate();
        let in_step = steps.filter(|(_, ((start, end), time_ns))| {
            end.abs_diff(*start) as f64 >= HOST_AHEAD * **time_ns as f64
        });
        let nearest = in_step.min_by_key(|(_, (_, time_ns))| time_ns.abs_diff(median_ns));
        let is_similar =
            |time_ns: u64| time_ns.abs_diff(median_ns) as f64 <= MAX_DIFFERENCE * median_ns as f64;
        let similar = nearest.filter(|(_, (_, time_ns))| is_similar(**time_ns));
        Some(similar.map_or(median, |(index, _)| index))
    }

    /// Returns the mean nanoseconds of an iteration.
    pub fn mean_ns(&self) -> f64 {
        let sum: f64 = self.times_ns.iter().map(|time_ns| *time_ns as f64).sum();
        sum / self.times_ns.len().max(1) as f64
    }

    /// Returns all iterations together as one.
    pub fn whole(&self) -> Option<TraceStep> {
        let window = (self.windows.first()?.0, self.windows.last()?.1);
        let time_ns = self.times_ns.iter().copied().fold(0, u64::saturating_add);
        Some(TraceStep { window, time_ns })
    }

    /// Returns the iteration that represents the others, see [`TraceSteps::median_index`].
    pub fn median(&self) -> Option<TraceStep> {
        let index = self.median_index()?;
        Some(TraceStep { window: *self.windows.get(index)?, time_ns: *self.times_ns.get(index)? })
    }
}

/// Returns the profiler's steps, in the order of the trace.
pub fn profiler_steps(trace: &Trace) -> impl Iterator<Item = &Annotation> {
    let is_step =
        |annotation: &&Annotation| trace.text(annotation.name).starts_with("ProfilerStep");
    trace.annotations.iter().filter(is_step)
}

fn optimizer_steps(trace: &Trace) -> Vec<(i64, i64)> {
    let mut ends: Vec<(i64, _)> = trace
        .annotations
        .iter()
        .filter(|annotation| is_optimizer_step(trace, annotation))
        .map(|annotation| (annotation.end_ns(), annotation.name))
        .collect();
    ends.sort_unstable();
    let names: Vec<_> = ends.iter().map(|(_, name)| *name).collect();
    let Some(period) = period(&names) else { return Vec::new() };
    let boundaries: Vec<i64> = ends.iter().map(|(end, _)| *end).step_by(period).collect();
    boundaries.iter().zip(boundaries.iter().skip(1)).map(|(from, to)| (*from, *to)).collect()
}

fn window(annotation: &Annotation) -> (i64, i64) {
    (annotation.start_ns, annotation.end_ns())
}

/// Sorts windows and removes overlaps and empty ones.
pub(crate) fn in_order(mut windows: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    windows.sort_unstable();
    let mut end_before = i64::MIN;
    windows.retain_mut(|(start, end)| {
        *start = (*start).max(end_before);
        let holds_time = *start < *end;
        if holds_time {
            end_before = *end;
        }
        holds_time
    });
    windows
}

/// Removes the windows at both ends in which the host did nothing: `prof.step()` after the last
/// iteration opens one. If no window has host work, as in a trace of the GPU only, all remain.
fn without_empty_ends(trace: &Trace, mut windows: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    let mut has_work = vec![false; windows.len()];
    let operators = trace.operators.iter().map(|operator| operator.start_ns);
    for start_ns in operators.chain(trace.runtime_calls.iter().map(|call| call.start_ns)) {
        if let Some(entry) = window_at(&windows, start_ns).and_then(|at| has_work.get_mut(at)) {
            *entry = true;
        }
    }
    let first = has_work.iter().position(|has_work| *has_work);
    let last = has_work.iter().rposition(|has_work| *has_work);
    if let Some((first, last)) = first.zip(last) {
        windows.truncate(last + 1);
        windows.drain(..first);
    }
    windows
}

/// Returns the index of the window that contains a time.
fn window_at(windows: &[(i64, i64)], time_ns: i64) -> Option<usize> {
    let at = windows.partition_point(|(_, end)| *end <= time_ns);
    windows.get(at).filter(|(start, _)| *start <= time_ns).map(|_| at)
}

/// The GPU work that was launched in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Launched {
    /// Nanoseconds in which it ran, without those in which work of earlier windows still ran.
    busy_ns: u64,
    /// Start of the first compute kernel, and its nanoseconds in the queue.
    first: Option<(i64, i64)>,
}

/// Returns the nanoseconds that the GPU needs for each window: from its first kernel to that of the
/// next one if the latter had to wait for the GPU, else the time in which it was busy.
fn gpu_times(trace: &Trace, windows: &[(i64, i64)]) -> Vec<u64> {
    let launched = launched(trace, windows);
    let mut times = Vec::with_capacity(windows.len());
    for (index, own) in launched.iter().enumerate() {
        let next = launched.get(index + 1).filter(|_| is_adjacent(windows, index));
        let period = own.first.zip(next.and_then(|next| next.first));
        let period = period.filter(|(_, (_, queued_ns))| *queued_ns >= MIN_QUEUED_NS);
        let period_ns =
            period.and_then(|((from, _), (to, _))| u64::try_from(to.saturating_sub(from)).ok());
        times.push(period_ns.unwrap_or(own.busy_ns));
    }
    times
}

fn is_adjacent(windows: &[(i64, i64)], index: usize) -> bool {
    let (Some((start, end)), Some((next, _))) = (windows.get(index), windows.get(index + 1)) else {
        return false;
    };
    next.abs_diff(*end) as f64 <= MAX_GAP * end.abs_diff(*start) as f64
}

fn launched(trace: &Trace, windows: &[(i64, i64)]) -> Vec<Launched> {
    let mut launched = vec![Launched::default(); windows.len()];
    let calls = runtime_call_of_activities(trace);
    let communicates = communicating(trace);
    let mut work: Vec<(i64, usize, usize)> = Vec::new();
    for (index, (activity, call)) in trace.activities.iter().zip(&calls).enumerate() {
        let Some(call) = call.and_then(|call| trace.runtime_calls.get(call)) else { continue };
        let Some(at) = window_at(windows, call.start_ns) else { continue };
        work.push((activity.start_ns, index, at));
        let computes =
            activity.kind == ActivityKind::Kernel && communicates.get(index) == Some(&false);
        if let Some(own) = launched.get_mut(at).filter(|_| computes)
            && own.first.is_none_or(|(start_ns, _)| activity.start_ns < start_ns)
        {
            let queued_ns = activity.start_ns.saturating_sub(call.end_ns());
            own.first = Some((activity.start_ns, queued_ns));
        }
    }
    work.sort_unstable();
    let mut covered_ns = i64::MIN;
    for (start_ns, index, at) in work {
        let Some(activity) = trace.activities.get(index) else { continue };
        let from_ns = start_ns.max(covered_ns);
        if let Some(own) = launched.get_mut(at).filter(|_| activity.end_ns() > from_ns) {
            own.busy_ns = own.busy_ns.saturating_add(activity.end_ns().abs_diff(from_ns));
            covered_ns = activity.end_ns();
        }
    }
    launched
}

/// Returns the number of elements after which a sequence repeats; `None` if it is too short to
/// repeat once.
fn period<T: PartialEq>(sequence: &[T]) -> Option<usize> {
    // Programs step a few optimizers in turn; searching further would take quadratic time.
    const MAX_PERIOD: usize = 16;
    (1..=MAX_PERIOD.min(sequence.len().saturating_sub(1)))
        .find(|period| sequence.iter().zip(sequence.iter().skip(*period)).all(|(a, b)| a == b))
}

#[cfg(test)]
mod tests;
