//! What the host spent in operators, by operator and by part of the training step, for a trace that
//! has no line log beside it.

use std::collections::HashMap;

use ridgeline_profile::Phase;
use ridgeline_recording::StringId;
use ridgeline_recording::trace::{Annotation, Operator, ThreadId, Trace};

/// The position of one of [`Trace::operators`] among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorPlace {
    /// Index of the outermost operator that it ran within; its own index if it is the outermost.
    pub outermost: usize,
    /// Self time in nanoseconds, without operators within it.
    pub self_ns: u64,
}

/// Returns the position of each operator among those of its thread. Takes linear time.
pub fn operator_places(operators: &[Operator]) -> Vec<OperatorPlace> {
    let mut places: Vec<OperatorPlace> = Vec::with_capacity(operators.len());
    let mut running: Vec<(usize, &Operator)> = Vec::new();
    for (index, operator) in operators.iter().enumerate() {
        while running.last().is_some_and(|(_, outer)| {
            outer.thread != operator.thread || outer.end_ns() <= operator.start_ns
        }) {
            running.pop();
        }
        let duration_ns = operator.duration_ns.unsigned_abs();
        if let Some((outer, _)) = running.last()
            && let Some(outer) = places.get_mut(*outer)
        {
            outer.self_ns = outer.self_ns.saturating_sub(duration_ns);
        }
        let outermost = running.first().map_or(index, |(outermost, _)| *outermost);
        places.push(OperatorPlace { outermost, self_ns: duration_ns });
        running.push((index, operator));
    }
    places
}

/// All calls of one operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorTotal {
    /// Name such as `aten::convolution`.
    pub name: StringId,
    /// Number of calls.
    pub calls: u64,
    /// Total self time on the host in nanoseconds.
    pub self_ns: u64,
    /// Total nanoseconds of the GPU activities that they launched directly.
    pub device_ns: u64,
}

/// Returns totals by name, sorted by GPU time, then host time.
///
/// `operator_of_activity` has the innermost operator that launched each activity.
pub fn operator_totals(
    trace: &Trace,
    places: &[OperatorPlace],
    operator_of_activity: &[Option<usize>],
) -> Vec<OperatorTotal> {
    let mut by_name: HashMap<StringId, OperatorTotal> = HashMap::new();
    for (operator, place) in trace.operators.iter().zip(places) {
        let name = operator.name;
        let empty = OperatorTotal { name, calls: 0, self_ns: 0, device_ns: 0 };
        let total = by_name.entry(name).or_insert(empty);
        total.calls += 1;
        total.self_ns = total.self_ns.saturating_add(place.self_ns);
    }
    for (activity, operator) in trace.activities.iter().zip(operator_of_activity) {
        let operator = operator.and_then(|index| trace.operators.get(index));
        if let Some(total) = operator.and_then(|operator| by_name.get_mut(&operator.name)) {
            total.device_ns = total.device_ns.saturating_add(activity.duration_ns.unsigned_abs());
        }
    }
    let mut totals: Vec<OperatorTotal> = by_name.into_values().collect();
    totals.sort_by_key(|total| std::cmp::Reverse((total.device_ns, total.self_ns, total.name)));
    totals
}

/// Returns the phase of each operator, as far as the trace shows it: loading and optimizing by
/// PyTorch's annotations, backward by autograd's engine, and forward by a sequence number on the
/// outermost operator or within it.
pub fn operator_phases(trace: &Trace, places: &[OperatorPlace]) -> Vec<Phase> {
    let operators = &trace.operators;
    let mut of_outermost = vec![Phase::Other; operators.len()];
    for (operator, place) in operators.iter().zip(places) {
        if let Some(phase) = of_outermost.get_mut(place.outermost) {
            if is_backward(trace, operator) {
                *phase = Phase::Backward;
            } else if operator.sequence.get().is_some() && *phase == Phase::Other {
                *phase = Phase::Forward;
            }
        }
    }
    let mut named: Vec<(ThreadId, i64, i64, Phase)> = trace
        .annotations
        .iter()
        .filter_map(|annotation| {
            let phase = annotated_phase(trace.text(annotation.name))?;
            Some((annotation.thread, annotation.start_ns, annotation.end_ns(), phase))
        })
        .collect();
    named.sort_by_key(|(thread, start, ..)| (*thread, *start));
    places
        .iter()
        .map(|place| {
            let Some(operator) = operators.get(place.outermost) else { return Phase::Other };
            let moment = (operator.thread, operator.start_ns);
            let before = named.partition_point(|(thread, start, ..)| (*thread, *start) <= moment);
            match before.checked_sub(1).and_then(|last| named.get(last)) {
                Some((thread, _, end, phase))
                    if *thread == operator.thread && operator.start_ns < *end =>
                {
                    *phase
                }
                _ => of_outermost.get(place.outermost).copied().unwrap_or(Phase::Other),
            }
        })
        .collect()
}

/// Returns the phase of one of PyTorch's annotations.
pub fn annotated_phase(name: &str) -> Option<Phase> {
    if name.starts_with("enumerate(DataLoader)#") {
        Some(Phase::Data)
    } else if name.starts_with("Optimizer.step#") || name.starts_with("Optimizer.zero_grad#") {
        Some(Phase::Optimizer)
    } else {
        None
    }
}

/// Whether an annotation is an optimizer step.
pub fn is_optimizer_step(trace: &Trace, annotation: &Annotation) -> bool {
    trace.text(annotation.name).starts_with("Optimizer.step#")
}

fn is_backward(trace: &Trace, operator: &Operator) -> bool {
    operator.forward_thread.get().is_some_and(|thread| thread > 0)
        || trace.text(operator.name).starts_with("autograd::engine::evaluate_function")
}
