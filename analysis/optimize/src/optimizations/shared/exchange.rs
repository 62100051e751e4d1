//! Replaces operators by equivalent ones.

use ridgeline_graph::calls::Call;
use ridgeline_graph::graph::Graph;
use ridgeline_operators::operator::Operator;

/// Replaces operators. `change` is called once for each distinct operator with the index of the
/// recorded one in [`Graph::operators`]. It returns the new operator and a factor on its time, or
/// `None` to keep the old one. Returns the changed calls.
pub(crate) fn exchange<'c>(
    graph: &mut Graph,
    calls: &'c [Call],
    mut change: impl FnMut(u32, &Operator) -> Option<(Operator, f64)>,
) -> Vec<&'c Call> {
    let known = graph.operators.len();
    let mut changes: Vec<Option<Option<(u32, f64)>>> = vec![None; known];
    let mut changed = Vec::new();
    for call in calls {
        let Some(slot) = changes.get_mut(call.operator as usize) else { continue };
        let change = match slot {
            Some(result) => *result,
            None => {
                let operator = graph.operators.get(call.operator as usize);
                let recorded = graph.recorded_as(call.operator);
                let replacement = operator.and_then(|operator| change(recorded, operator));
                let result = replacement.map(|(operator, ratio)| {
                    (graph.exchange_operator(call.operator, operator), ratio)
                });
                *slot = Some(result);
                result
            }
        };
        if let Some((operator, ratio)) = change {
            graph.scale(&call.work, ratio);
            call.set_operator(graph, operator);
            changed.push(call);
        }
    }
    changed
}
