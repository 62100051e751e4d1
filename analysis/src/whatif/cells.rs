//! Recurrent cells that a processor steps through a sequence, where a layer could take all of it in one
//! call: what that brings differs by kind and size, from a tenth of the time to none of it, and only a
//! measurement tells.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::calls::{calls, has_kernels};
use super::graph::Graph;
use crate::predict::operator::Operator;
use crate::profile::Phase;

/// Fewer steps are no sequence.
const FEWEST: usize = 8;
/// More steps tell no more: each takes as long as the one before.
const MOST_STEPS: usize = 64;

/// The cells that are stepped: places in [`Graph::operators`], with what the agent is asked for each
/// (docs/whatif.md, "Probes").
pub(super) fn cells(graph: &Graph) -> Vec<(u32, Value)> {
    if has_kernels(graph) {
        return Vec::new();
    }
    let mut steps: BTreeMap<u32, usize> = BTreeMap::new();
    for call in calls(graph).iter() {
        let is_forward = matches!(call.phase, Phase::Forward | Phase::Other);
        if is_forward && call.operator(graph).is_some_and(|it| kind(it).is_some()) {
            *steps.entry(call.operator).or_default() += 1;
        }
    }
    let stepped = steps.into_iter().filter(|(_, steps)| *steps >= FEWEST);
    let asked = stepped.filter_map(|(index, steps)| {
        let operator = graph.operators.get(index as usize)?;
        let [batch, input] = operator.shape(0)? else { return None };
        let [_, hidden] = operator.shape(3)? else { return None };
        Some((
            index,
            json!({
                "type": kind(operator)?,
                "steps": steps.min(MOST_STEPS),
                "batch": batch,
                "input": input,
                "hidden": hidden,
                "bias": operator.tensor(4).is_some(),
                "variants": ["cell", "layer"],
            }),
        ))
    });
    asked.collect()
}

/// The kind of a cell, as the agent names it.
fn kind(operator: &Operator) -> Option<&'static str> {
    match operator.base_name()? {
        "lstm_cell" => Some("LSTM"),
        "gru_cell" => Some("GRU"),
        "rnn_tanh_cell" => Some("RNN_TANH"),
        "rnn_relu_cell" => Some("RNN_RELU"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::operator::{Arg, ElementType, Tensor};
    use crate::whatif::graph::{Resource, Task, TaskKind};

    fn stepped(steps: u32, kind: TaskKind) -> Graph {
        let tensor = |shape: &[u64]| Arg::Tensor(Tensor::new(ElementType::Float32, shape));
        let state = || tensor(&[4, 16]);
        let inputs = vec![
            tensor(&[4, 8]),
            Arg::List(vec![state(), state()]),
            tensor(&[64, 8]),
            tensor(&[64, 16]),
            Arg::None,
            Arg::None,
        ];
        let mut graph = Graph::default();
        graph.operators = vec![Operator::new("aten::lstm_cell", inputs, Vec::new())];
        let host = graph.resource(&Resource::Host);
        for call in 0..steps {
            let mut task = Task::new(kind, 50e3, Phase::Forward);
            (task.operator, task.call) = (Some(0), Some(call));
            graph.push(host, task);
        }
        graph
    }

    #[test]
    fn a_cell_that_is_stepped_is_asked_for_with_its_sizes() {
        let asked = cells(&stepped(100, TaskKind::HostOperator));
        let expected = json!({"type": "LSTM", "steps": 64, "batch": 4, "input": 8, "hidden": 16,
                              "bias": false, "variants": ["cell", "layer"]});
        assert_eq!(asked, [(0, expected)]);
    }

    #[test]
    fn a_few_steps_and_a_gpu_s_are_not() {
        assert_eq!(cells(&stepped(4, TaskKind::HostOperator)), []);
        assert_eq!(cells(&stepped(100, TaskKind::Kernel)), []);
    }
}
