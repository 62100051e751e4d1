//! `zero_grad(set_to_none=True)`: gradients are dropped instead of zero-filled, and the backward
//! pass writes them instead of adding to zeros (PyTorch performance tuning guide; the default since
//! 2.0).

use std::collections::HashMap;

use super::shared::lines;
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use ridgeline_graph::calls::{Call, calls};
use ridgeline_graph::graph::{Graph, Task};
use ridgeline_operators::operator::{Operator, Tensor};
use ridgeline_profile::Phase;

pub(super) struct ZeroGradToNone;

impl Optimization for ZeroGradToNone {
    fn name(&self) -> &'static str {
        "zero-grad-none"
    }

    fn title(&self) -> &'static str {
        "Set gradients to None instead of zero"
    }

    fn source(&self) -> &'static str {
        "PyTorch performance tuning guide, \"Use parameter.grad = None\""
    }

    fn apply(&self, graph: &mut Graph, _: &Facts<'_>, _: Bound) -> Result<Effect, String> {
        let fills = graph.select(|task| task.phase == Phase::Optimizer && is_fill(graph, task));
        if fills.is_empty() {
            return Err("no gradient is zero-filled".to_owned());
        }
        let calls = calls(graph);
        let (filled, rest): (Vec<&Call>, Vec<&Call>) =
            calls.iter().partition(|call| call.host.iter().any(|id| fills.contains(id)));
        let lines = lines::of_calls(graph, filled.iter().copied());
        // Each of these gradients was added to zeros.
        let mut shapes: HashMap<Vec<u64>, usize> = HashMap::new();
        for tensor in filled.iter().filter_map(|call| call.operator(graph)).flat_map(first_tensors)
        {
            *shapes.entry(tensor.shape.clone()).or_default() += 1;
        }
        let sums: Vec<&Call> = rest.into_iter().filter(|call| is_sum(graph, call)).collect();
        for call in sums {
            let shape = call.operator(graph).and_then(|it| it.shape(0)).map(<[u64]>::to_vec);
            let remaining =
                shape.and_then(|shape| shapes.get_mut(&shape)).filter(|remaining| **remaining > 0);
            if let Some(remaining) = remaining {
                *remaining -= 1;
                call.remove(graph);
            }
        }
        for id in fills {
            graph.remove(id);
        }
        let notes = vec!["gradients are None until the backward pass computes them".to_owned()];
        Ok(Effect { lines, notes, ..Effect::default() })
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::ZeroGradToNone)
    }
}

/// Returns the tensors that an operator changes in place.
fn first_tensors(operator: &Operator) -> impl Iterator<Item = &Tensor> {
    operator.input(0).tensors()
}

/// Whether a backward call adds a tensor in place to another one of the same shape, as autograd
/// does with an existing gradient.
fn is_sum(graph: &Graph, call: &Call) -> bool {
    let operator = call.operator(graph);
    call.phase == Phase::Backward
        && call.name(graph) == "add_"
        && operator.is_some_and(|it| it.shape(0).is_some() && it.shape(0) == it.shape(1))
}

fn is_fill(graph: &Graph, task: &Task) -> bool {
    graph.operator_of(task).is_some_and(|operator| {
        matches!(operator.base_name(), Some("zero_" | "_foreach_zero_" | "fill_"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::shared::testing::{Iteration, cpu, operator};
    use super::*;
    use crate::facts::Probes;

    const WEIGHT: &[u64] = &[64, 64];

    #[test]
    fn zero_fills_and_additions_to_zeros_are_removed() {
        let sum = |shape: &[u64]| operator("add_", &[shape, shape, shape]);
        let iteration = Iteration::on_cpu()
            .call(Phase::Optimizer, operator("zero_", &[WEIGHT, WEIGHT]), 10.0)
            .call(Phase::Forward, sum(WEIGHT), 5.0)
            .call(Phase::Backward, sum(WEIGHT), 20.0)
            .call(Phase::Backward, sum(WEIGHT), 20.0)
            .call(Phase::Backward, sum(&[8]), 20.0);
        let found = iteration.predict(&cpu(), &Probes::default(), &ZeroGradToNone).unwrap();
        assert!((found.time_ns.value - 45e3).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn programs_without_zero_fills_are_rejected() {
        let none = Iteration::on_cpu().refusal(&cpu(), &ZeroGradToNone);
        assert_eq!(none, "no gradient is zero-filled");
    }
}
