//! The iterations of a trace recorded elsewhere, and the phases of the host's time.

use super::operator_time::{OperatorPlace, annotated_phase, is_optimizer_step};
use ridgeline_base::intervals::union_ns;
use ridgeline_profile::{Phase, PhaseTimes};
use ridgeline_recording::trace::{Annotation, Trace};

/// The iterations of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// How they were detected: `profiler steps` or `optimizer steps`.
    pub found_by: &'static str,
    /// Start and end of each, in nanoseconds.
    pub windows: Vec<(i64, i64)>,
}

/// Finds the iterations: `ProfilerStep#` annotations if there are any, else from one optimizer step
/// to the next, where several optimizers in turn (a GAN) make one iteration. Returns `None` if
/// there is neither, as in inference without a profiler schedule.
pub fn steps(trace: &Trace) -> Option<Steps> {
    let by_profiler: Vec<(i64, i64)> = profiler_steps(trace).map(window).collect();
    if !by_profiler.is_empty() {
        return Some(Steps { found_by: "profiler steps", windows: by_profiler });
    }
    let mut ends: Vec<(i64, _)> = trace
        .annotations
        .iter()
        .filter(|annotation| is_optimizer_step(trace, annotation))
        .map(|annotation| (annotation.end_ns(), annotation.name))
        .collect();
    ends.sort_unstable();
    let names: Vec<_> = ends.iter().map(|(_, name)| *name).collect();
    let period = period(&names)?;
    let boundaries: Vec<i64> = ends.iter().map(|(end, _)| *end).step_by(period).collect();
    let windows: Vec<(i64, i64)> =
        boundaries.iter().zip(boundaries.iter().skip(1)).map(|(from, to)| (*from, *to)).collect();
    (!windows.is_empty()).then_some(Steps { found_by: "optimizer steps", windows })
}

/// Returns the profiler's steps, in the order of the trace.
pub fn profiler_steps(trace: &Trace) -> impl Iterator<Item = &Annotation> {
    let is_step =
        |annotation: &&Annotation| trace.text(annotation.name).starts_with("ProfilerStep#");
    trace.annotations.iter().filter(is_step)
}

/// Returns the median iteration and its phases on the host, in nanoseconds. If phases overlap,
/// loading takes precedence over the optimizer, then backward, then forward; the rest (Python
/// between operators, waiting for the GPU) is `other`. The sum is the iteration.
pub fn median_step(
    trace: &Trace,
    steps: &Steps,
    places: &[OperatorPlace],
    phases: &[Phase],
) -> Option<PhaseTimes> {
    let mut windows = steps.windows.clone();
    windows.sort_by_key(|(start, end)| end.saturating_sub(*start));
    let window = *windows.get(windows.len().saturating_sub(1) / 2)?;
    let annotated = trace.annotations.iter().filter_map(|annotation| {
        let phase = annotated_phase(trace.text(annotation.name))?;
        Some((phase, clip(self::window(annotation), window)?))
    });
    let outermost = trace.operators.iter().zip(places).zip(phases).enumerate().filter_map(
        |(index, ((operator, place), phase))| {
            let interval = (operator.start_ns, operator.end_ns());
            (place.outermost == index).then_some((*phase, clip(interval, window)?))
        },
    );
    let intervals: Vec<(Phase, (i64, i64))> = annotated.chain(outermost).collect();

    let order = [Phase::Data, Phase::Optimizer, Phase::Backward, Phase::Forward];
    let mut times = PhaseTimes::default();
    let mut covered = 0u64;
    let mut chosen: Vec<(i64, i64)> = Vec::new();
    for phase in order {
        chosen
            .extend(intervals.iter().filter(|(of, _)| *of == phase).map(|(_, interval)| interval));
        let now_covered = union_ns(chosen.clone());
        *times.get_mut(phase) = now_covered.saturating_sub(covered) as f64;
        covered = now_covered;
    }
    let total = window.1.abs_diff(window.0);
    times.other = total.saturating_sub(covered) as f64;
    Some(times)
}

fn window(annotation: &Annotation) -> (i64, i64) {
    (annotation.start_ns, annotation.end_ns())
}

fn clip((start, end): (i64, i64), (from, to): (i64, i64)) -> Option<(i64, i64)> {
    let (start, end) = (start.max(from), end.min(to));
    (start < end).then_some((start, end))
}

/// Returns the number of elements after which a sequence repeats; `None` if it is too short to
/// repeat once.
fn period<T: PartialEq>(sequence: &[T]) -> Option<usize> {
    // Programs step a few optimizers in turn; searching further would take quadratic time.
    const MAX_PERIOD: usize = 16;
    (1..=MAX_PERIOD.min(sequence.len().saturating_sub(1)))
        .find(|period| sequence.iter().zip(sequence.iter().skip(*period)).all(|(a, b)| a == b))
}
