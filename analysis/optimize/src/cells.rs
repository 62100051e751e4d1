//! Recurrent cells that a processor steps through a sequence, where a layer could take all of it in one
//! call: what that brings differs by kind and size, from nine tenths of the time to none of it, and only a
//! measurement tells.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use ridgeline_graph::calls::{Call, calls, has_kernels};
use ridgeline_graph::graph::Graph;
use ridgeline_profile::Phase;
use ridgeline_recording::manifest::Manifest;

/// Fewer steps are no sequence.
const FEWEST: usize = 8;
/// More steps tell no more: each takes as long as the one before.
const MOST_STEPS: usize = 64;

/// The cells that are stepped: places in [`Manifest::modules`], with what the agent is asked for each
/// (docs/whatif.md, "Probes").
pub(super) fn cells(graph: &Graph, manifest: &Manifest) -> Vec<(u32, Value)> {
    if has_kernels(graph) {
        return Vec::new();
    }
    let calls = calls(graph);
    let mut of_cells: BTreeMap<u32, Vec<&Call>> = BTreeMap::new();
    for call in calls.iter().filter(|call| matches!(call.phase, Phase::Forward | Phase::Other)) {
        let Some(module) = call.module else { continue };
        let known = manifest.modules.get(module as usize);
        if known.and_then(|known| gates(&known.type_name)).is_some() {
            of_cells.entry(module).or_default().push(call);
        }
    }
    let asked = of_cells.into_iter().filter_map(|(module, calls)| {
        let type_name = &manifest.modules.get(module as usize)?.type_name;
        Some((module, asked(graph, type_name, &calls)?))
    });
    asked.collect()
}

/// How many matrices of a cell's weights are one on the other, for each of PyTorch's own.
fn gates(type_name: &str) -> Option<u64> {
    match type_name {
        "LSTMCell" => Some(4),
        "GRUCell" => Some(3),
        "RNNCell" => Some(1),
        _ => None,
    }
}

/// A step is two products, of the input and of the state, and what goes over their sum
/// (`aten/src/ATen/native/RNN.cpp`).
fn asked(graph: &Graph, type_name: &str, calls: &[&Call]) -> Option<Value> {
    let products = || calls.iter().filter(|call| call.name(graph) == "linear");
    let steps = products().count() / 2;
    let mut weights = products().filter_map(|call| {
        let operator = call.operator(graph)?;
        Some((operator.shape(0)?, operator.shape(1)?, operator.tensor(2).is_some()))
    });
    let gates = gates(type_name)?;
    let (given, first, bias) = weights.next()?;
    let [rows, first] = *first else { return None };
    let hidden = rows / gates;
    let other = weights.find(|(_, weight, _)| *weight != [rows, first].as_slice());
    // Of two sizes the state's is that of the rows.
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
    (steps >= FEWEST).then(|| {
        json!({
            "type": kind,
            "steps": steps.min(MOST_STEPS),
            "batch": given.first().filter(|_| given.len() > 1).unwrap_or(&1),
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

    /// Steps of a cell with 16 numbers of state that is given 8.
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
    fn a_cell_that_is_stepped_is_asked_for_with_its_sizes() {
        for (type_name, kind) in [("LSTMCell", "LSTM"), ("GRUCell", "GRU"), ("RNNCell", "RNN_TANH")]
        {
            let expected = json!({"type": kind, "steps": 64, "batch": 4, "input": 8, "hidden": 16,
                                  "bias": true, "variants": ["cell", "layer"]});
            assert_eq!(stepped(type_name, 100, TaskKind::HostOperator), [(1, expected)]);
        }
    }

    #[test]
    fn a_few_steps_a_gpu_s_and_other_modules_are_not() {
        assert_eq!(stepped("LSTMCell", 4, TaskKind::HostOperator), []);
        assert_eq!(stepped("LSTMCell", 100, TaskKind::Kernel), []);
        assert_eq!(stepped("MyCell", 100, TaskKind::HostOperator), []);
    }
}
