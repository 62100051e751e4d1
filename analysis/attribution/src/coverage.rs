//! The share of the recorded time that was attributed to the user's lines.

use super::Sums;
use super::contexts::{ContextId, Contexts};
use super::join::Join;
use super::kernels::launched_within;
use super::lines::Lines;

/// Returns the share, 0 to 1, of kernel time (on a GPU) or operator time (on a CPU) that has a
/// line; 0 if nothing ran.
pub(super) fn time(
    join: &Join<'_>,
    contexts: &Contexts<'_>,
    shown_contexts: &[Option<ContextId>],
    sums: &Sums,
    lines: &Lines,
) -> f64 {
    let stacks = &join.places.log.stacks;
    let has_line: Vec<bool> = contexts
        .iter()
        .map(|(_, context)| lines.innermost(stacks, context.line).is_some())
        .collect();
    let has_line_of = |context: Option<ContextId>| {
        context.and_then(|context| has_line.get(context.0 as usize)).copied().unwrap_or(false)
    };
    let (mut with_line, mut all) = (0.0, 0.0);
    let mut add = |time_ns: f64, context: Option<ContextId>| {
        all += time_ns;
        if has_line_of(context) {
            with_line += time_ns;
        }
    };
    if join.trace.activities.is_empty() {
        for (context, time_ns) in shown_contexts.iter().zip(&sums.costs.operators) {
            add(*time_ns, *context);
        }
    } else {
        for (index, activity) in launched_within(join, &sums.launches) {
            add(activity.duration_ns as f64, sums.launches.context(index));
        }
    }
    if all > 0.0 { with_line / all } else { 0.0 }
}
