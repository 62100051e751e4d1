//! Operators exchanged for others that do the same.

use ridgeline_graph::calls::Call;
use ridgeline_graph::graph::Graph;
use ridgeline_operators::operator::Operator;

/// Exchanges operators. `change` is asked once for each different one, by the place of the recorded
/// one in [`Graph::operators`]: what it becomes and what its time is multiplied by, or nothing where it
/// stays. The calls that changed are returned.
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
            Some(asked) => *asked,
            None => {
                let operator = graph.operators.get(call.operator as usize);
                let recorded = graph.recorded_as(call.operator);
                let then = operator.and_then(|operator| change(recorded, operator));
                let asked = then.map(|(operator, ratio)| {
                    (graph.exchange_operator(call.operator, operator), ratio)
                });
                *slot = Some(asked);
                asked
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
