//! Operators that a program does not have and could, in the place of some that it has. Run by
//! themselves on the machine beside those, they tell what a processor would save, which no cost model
//! of ours knows as well.

use super::attention::{Attention, attentions};
use super::calls::{Call, calls, has_kernels};
use super::graph::Graph;
use crate::predict::op_cost::{Family, work};
use crate::predict::operator::{Arg, Operator};
use crate::profile::Phase;

/// Calls before a batch norm that are looked at.
const REACH: usize = 8;
/// A smaller share of what one attention takes is not run by itself.
const LEAST: f64 = 0.02;

/// An operator, and those in whose place it would run.
#[derive(Clone, Debug, PartialEq)]
pub struct StandIn {
    /// What would run.
    pub operator: Operator,
    /// Places in [`Graph::operators`]: those that take most of the time.
    pub of: Vec<u32>,
}

/// The stand-ins that are worth a measurement, each once. None on a GPU: its kernels tell.
pub fn stand_ins(graph: &Graph) -> Vec<StandIn> {
    if has_kernels(graph) {
        return Vec::new();
    }
    let calls = calls(graph);
    let biases = before_batch_norm(graph, &calls).filter_map(|call| {
        let operator = without_bias(call.operator(graph)?)?;
        Some(StandIn { operator, of: vec![call.operator] })
    });
    let mut found: Vec<StandIn> = Vec::new();
    let attentions = attentions(graph, &calls);
    let attentions = attentions.iter().filter(|attention| attention.has_operator);
    let attentions = attentions.map(|attention| of_attention(graph, attention));
    for one in attentions.chain(biases) {
        if !found.iter().any(|known| known.operator == one.operator && known.of == one.of) {
            found.push(one);
        }
    }
    found
}

/// One attention's, and those of its calls that together take nearly all of its time.
fn of_attention(graph: &Graph, attention: &Attention<'_>) -> StandIn {
    let whole: f64 = attention.calls.iter().map(|call| call.work_ns(graph)).sum();
    let counts = |call: &&&Call| call.work_ns(graph) >= LEAST * whole;
    let of = attention.calls.iter().filter(counts).map(|call| call.operator).collect();
    StandIn { operator: attention.fused.clone(), of }
}

/// The same linear layer without its bias; nothing where it is none or has none. (A convolution's bias
/// is part of its kernel on a processor, and costs nothing in the forward pass.)
pub fn without_bias(operator: &Operator) -> Option<Operator> {
    let mut inputs = operator.inputs.clone();
    let is_tensor = |arg: Option<&Arg>| matches!(arg, Some(Arg::Tensor(_)));
    match operator.base_name()? {
        "linear" if is_tensor(inputs.get(2)) => {
            inputs.truncate(2);
            Some(Operator::new("aten::linear", inputs, operator.outputs.clone()))
        }
        "addmm" if is_tensor(inputs.get(2)) => {
            let factors = inputs.drain(1..3).collect();
            Some(Operator::new("aten::mm", factors, operator.outputs.clone()))
        }
        _ => None,
    }
}

/// Calls whose results batch norm takes: the last one before it that gave a tensor of that size. Between
/// the two it counts its batches.
fn before_batch_norm<'c>(graph: &'c Graph, calls: &'c [Call]) -> impl Iterator<Item = &'c Call> {
    let norms = calls.iter().enumerate().filter_map(|(place, call)| {
        let is_norm = call.name(graph).contains("batch_norm") && call.phase == Phase::Forward;
        Some((place, call.operator(graph).filter(|_| is_norm)?.tensor(0)?.elements()))
    });
    norms.filter_map(|(place, size)| {
        let before = calls.get(..place)?.iter().rev().take(REACH);
        let gave = |call: &&Call| {
            let operator = call.operator(graph);
            let is_view = operator.and_then(work).is_some_and(|it| it.family == Family::View);
            operator.is_some_and(|it| it.outputs.iter().any(|one| one.elements() == size))
                && !is_view
        };
        before.into_iter().find(gave)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::operator::{ElementType, Tensor};
    use crate::whatif::graph::{Resource, Task, TaskKind};

    fn tensor(shape: &[u64]) -> Arg {
        Arg::Tensor(Tensor::new(ElementType::Float32, shape))
    }

    fn graph(operators: Vec<Operator>) -> Graph {
        let mut graph = Graph::default();
        let host = graph.resource(&Resource::Host);
        for (index, operator) in (0_u32..).zip(operators) {
            graph.operators.push(operator);
            let mut task = Task::new(TaskKind::HostOperator, 100.0, Phase::Forward);
            (task.operator, task.call) = (Some(index), Some(index));
            graph.push(host, task);
        }
        graph
    }

    #[test]
    fn a_linear_layer_in_front_of_batch_norm_is_asked_for_without_its_bias() {
        let inputs = vec![tensor(&[64, 8]), tensor(&[4, 8]), tensor(&[4])];
        let output = Tensor::new(ElementType::Float32, &[64, 4]);
        let linear = Operator::new("aten::linear", inputs, vec![output.clone()]);
        let count = Operator::new("aten::add_", vec![tensor(&[]), Arg::Number(1.0)], Vec::new());
        let norm = Operator::new("aten::batch_norm", vec![tensor(&[64, 4])], vec![output]);
        let found = stand_ins(&graph(vec![linear.clone(), count, norm.clone(), linear.clone()]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].of, [0]);
        assert_eq!(found[0].operator.inputs, [tensor(&[64, 8]), tensor(&[4, 8])]);
        assert_eq!(without_bias(&found[0].operator), None);
        assert_eq!(stand_ins(&graph(vec![norm, linear])), []);
    }

    #[test]
    fn addmm_without_its_bias_is_mm() {
        let inputs = vec![tensor(&[4]), tensor(&[64, 8]), tensor(&[8, 4]), Arg::Number(1.0)];
        let found = without_bias(&Operator::new("aten::addmm", inputs, Vec::new())).unwrap();
        assert_eq!(found.name, "aten::mm");
        assert_eq!(found.inputs, [tensor(&[64, 8]), tensor(&[8, 4])]);
    }
}
