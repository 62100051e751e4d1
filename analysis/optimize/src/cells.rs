//! Recurrent cells that step through a sequence on a CPU, where a layer could take the whole
//! sequence in one call. The saving depends on type and size, from nine tenths of the time to
//! nothing, and has to be measured.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use ridgeline_graph::calls::{Call, calls, has_kernels};
use ridgeline_graph::graph::Graph;
use ridgeline_profile::Phase;
use ridgeline_recording::manifest::Manifest;

/// The minimum number of steps of a sequence.
const MIN_STEPS: usize = 8;
/// The maximum number of steps measured. Each takes as long as the one before.
const MAX_STEPS: usize = 64;

/// Returns the cells that are stepped: indices into [`Manifest::modules`] with the agent's request
/// for each (docs/whatif.md, "Probes").
pub(super) fn cells(graph: &Graph, manifest: &Manifest) -> Vec<(u32, Value)> {
    if has_kernels(graph) {
        return Vec::new();
    }
    let calls = calls(graph);
    let mut calls_by_cell: BTreeMap<u32, Vec<&Call>> = BTreeMap::new();
    for call in calls.iter().filter(|call| matches!(call.phase, Phase::Forward | Phase::Other)) {
        let Some(module) = call.module else { continue };
        let known = manifest.modules.get(module as usize);
        if known.and_then(|known| gates(&known.type_name)).is_some() {
            calls_by_cell.entry(module).or_default().push(call);
        }
    }
    let requests = calls_by_cell.into_iter().filter_map(|(module, calls)| {
        let type_name = &manifest.modules.get(module as usize)?.type_name;
        Some((module, request(graph, type_name, &calls)?))
    });
    requests.collect()
}

/// Returns the number of stacked weight matrices of PyTorch's own cells.
fn gates(type_name: &str) -> Option<u64> {
    match type_name {
        "LSTMCell" => Some(4),
        "GRUCell" => Some(3),
        "RNNCell" => Some(1),
        _ => None,
    }
}

/// Returns the request for a cell. A step is two matrix multiplications, of the input and of the
/// state, and the activation of their sum (`aten/src/ATen/native/RNN.cpp`).
fn request(graph: &Graph, type_name: &str, calls: &[&Call]) -> Option<Value> {
    let matmuls = || calls.iter().filter(|call| call.name(graph) == "linear");
    let steps = matmuls().count() / 2;
    let mut weights = matmuls().filter_map(|call| {
        let operator = call.operator(graph)?;
        Some((operator.shape(0)?, operator.shape(1)?, operator.tensor(2).is_some()))
    });
    let gates = gates(type_name)?;
    let (input_shape, first, bias) = weights.next()?;
    let [rows, first] = *first else { return None };
    let hidden = rows / gates;
    let other = weights.find(|(_, weight, _)| *weight != [rows, first].as_slice());
    // If there are two sizes, the hidden size is the one that matches the rows.
    let input = match other {
        Some((_, [_, other], _)) if first == hidden => *other,
        _ => first,
    };
    let is_relu = calls.iter().any(|call| call.name(graph).starts_with("relu"));
    let kind = match type_name.trim_end_matches("Cell") {
        "RNN" if is_relu => "RNN_RELU",
        "RNN" => "RNN_TANH",
        other => other,
    };
    (steps >= MIN_STEPS).then(|| {
        json!({
            "type": kind,
            "steps": steps.min(MAX_STEPS),
            "batch": input_shape.first().filter(|_| input_shape.len() > 1).unwrap_or(&1),
            "input": input,
            "hidden": hidden,
            "bias": bias,
            "variants": ["cell", "layer"],
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_graph::graph::{Resource, Task, TaskKind};
    use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
    use ridgeline_recording::manifest::Module;

    /// Steps of a cell with hidden size 16 and input size 8.
    fn stepped(type_name: &str, steps: u32, kind: TaskKind) -> Vec<(u32, Value)> {
        let tensor = |shape: &[u64]| Arg::Tensor(Tensor::new(ElementType::Float32, shape));
        let rows = 16 * gates(type_name).unwrap_or(1);
        let linear = |columns: u64| {
            let inputs = vec![tensor(&[4, columns]), tensor(&[rows, columns]), tensor(&[rows])];
            Operator::new("aten::linear", inputs, Vec::new())
        };
        let mut graph = Graph::default();
        graph.operators = vec![
            linear(16),
            linear(8),
            Operator::new("aten::tanh", vec![tensor(&[4, 16])], vec![]),
        ];
        let host = graph.resource(&Resource::Host);
        for call in 0..3 * steps {
            let mut task = Task::new(kind, 50e3, Phase::Forward);
            (task.operator, task.call, task.module) = (Some(call % 3), Some(call), Some(1));
            graph.push(host, task);
        }
        let module = |name: &str| Module { type_name: name.to_owned(), ..Module::default() };
        let modules = vec![module("Net"), module(type_name)];
        cells(&graph, &Manifest { modules, ..Manifest::default() })
    }

    #[test]
    fn stepped_cells_are_requested_with_their_sizes() {
        for (type_name, kind) in [("LSTMCell", "LSTM"), ("GRUCell", "GRU"), ("RNNCell", "RNN_TANH")]
        {
            let expected = json!({"type": kind, "steps": 64, "batch": 4, "input": 8, "hidden": 16,
                                  "bias": true, "variants": ["cell", "layer"]});
            assert_eq!(stepped(type_name, 100, TaskKind::HostOperator), [(1, expected)]);
        }
    }

    #[test]
    fn short_sequences_gpus_and_other_modules_are_not_requested() {
        assert_eq!(stepped("LSTMCell", 4, TaskKind::HostOperator), []);
        assert_eq!(stepped("LSTMCell", 100, TaskKind::Kernel), []);
        assert_eq!(stepped("MyCell", 100, TaskKind::HostOperator), []);
    }
}
