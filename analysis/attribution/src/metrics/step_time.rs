//! The phases of an iteration of a trace recorded elsewhere.

use super::operator_time::{OperatorPlace, annotated_phase};
use super::trace_steps::TraceStep;
use ridgeline_base::intervals::union_ns;
use ridgeline_profile::{Phase, PhaseTimes};
use ridgeline_recording::trace::{Annotation, Trace};

/// Returns the phases of an iteration on the host, in nanoseconds. If phases overlap,
/// loading takes precedence over the optimizer, then backward, then forward; the rest (Python
/// between operators, waiting for the GPU) is `other`. The sum is the iteration.
pub fn phases_of_step(
    trace: &Trace,
    step: TraceStep,
    places: &[OperatorPlace],
    phases: &[Phase],
) -> PhaseTimes {
    let window = step.window;
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
    times.other = step.time_ns.saturating_sub(covered) as f64;
    times
}

fn window(annotation: &Annotation) -> (i64, i64) {
    (annotation.start_ns, annotation.end_ns())
}

fn clip((start, end): (i64, i64), (from, to): (i64, i64)) -> Option<(i64, i64)> {
    let (start, end) = (start.max(from), end.min(to));
    (start < end).then_some((start, end))
}
