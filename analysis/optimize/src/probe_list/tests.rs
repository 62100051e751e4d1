use super::*;
use ridgeline_graph::graph::{Resource, Task, TaskKind};
use ridgeline_recording::manifest::{Module, Parameter};

fn tensor(shape: &[u64]) -> Arg {
    Arg::Tensor(Tensor::new(ElementType::Float32, shape))
}

/// Creates a graph of host operators from names, input shapes and times.
fn graph(operators: &[(&str, &[u64], f64)]) -> Graph {
    let mut graph = Graph::default();
    let host = graph.resource(&Resource::Host);
    for (index, (name, shape, time_ns)) in operators.iter().enumerate() {
        let inputs = vec![tensor(shape), Arg::Number(2.0), Arg::None];
        graph.operators.push(Operator::new(name, inputs, Vec::new()));
        let mut task = Task::new(TaskKind::HostOperator, *time_ns, Phase::Forward);
        task.operator = u32::try_from(index).ok();
        graph.push(host, task);
    }
    graph
}

fn manifest() -> Manifest {
    let parameter = |elements| Parameter { elements, bytes: 4 * elements, ..Default::default() };
    let module = Module { parameters: vec![parameter(12), parameter(3)], ..Module::default() };
    let optimizer = Optimizer {
        type_name: "Adam".to_owned(),
        modules: vec![(0, 15), (1, 12)],
        ..Optimizer::default()
    };
    Manifest {
        modules: vec![module.clone(), module],
        optimizers: vec![optimizer],
        ..Manifest::default()
    }
}

#[test]
fn operators_are_sorted_by_cost_and_cheap_ones_are_left_out() {
    let of = |names: &[(&str, &[u64], f64)]| {
        let list = probe_list(&graph(names), None, None, 10.0, ProbeKinds::ALL);
        list.operators.iter().map(|(index, _)| *index).collect::<Vec<_>>()
    };
    let image: &[u64] = &[2, 3, 8, 8];
    assert_eq!(of(&[("aten::relu", image, 1.0), ("aten::conv2d", image, 50.0)]), [1, 0]);
    assert_eq!(of(&[("aten::relu", image, 1.0), ("aten::conv2d", image, 5e6)]), [1]);
}

#[test]
fn four_dimensional_inputs_have_a_channels_last_variant() {
    let list = probe_list(
        &graph(&[("aten::relu", &[2, 3, 8, 8], 1.0)]),
        None,
        None,
        10.0,
        ProbeKinds::ALL,
    );
    let variants = [Variant::Same, Variant::BFloat16, Variant::ChannelsLast];
    assert_eq!(list.operators, [(0, variants.to_vec())]);
    let list =
        probe_list(&graph(&[("aten::relu", &[2, 3], 1.0)]), None, None, 10.0, ProbeKinds::ALL);
    assert_eq!(list.operators, [(0, vec![Variant::Same, Variant::BFloat16])]);
}

#[test]
fn bfloat16_is_not_requested_if_the_cpu_emulates_it() {
    let settings = Settings { bf16_native: Some(false), ..Settings::default() };
    let manifest = Manifest { settings, ..Manifest::default() };
    let graph = graph(&[("aten::relu", &[2, 3], 1.0)]);
    assert!(probe_list(&graph, Some(&manifest), None, 10.0, ProbeKinds::ALL).is_empty());
}

#[test]
fn stand_ins_come_last_and_are_read_back() {
    const ROWS: &[u64] = &[8, 64, 16];
    const SCORES: &[u64] = &[8, 64, 64];
    let mut graph = graph(&[
        ("aten::bmm", ROWS, 50.0),
        ("aten::softmax", SCORES, 50.0),
        ("aten::bmm", SCORES, 50.0),
    ]);
    let shapes = [(Some([8, 16, 64]), SCORES), (None, SCORES), (Some([8, 64, 16]), ROWS)];
    for (operator, (other, output)) in graph.operators.iter_mut().zip(shapes) {
        operator.inputs.splice(1..1, other.map(|other| tensor(&other)));
        operator.outputs = vec![Tensor::new(ElementType::Float32, output)];
    }
    for (number, task) in (0..).zip(graph.tasks.iter_mut()) {
        task.call = Some(number);
    }
    let wanted = ProbeKinds { stand_ins: true, ..ProbeKinds::NONE };
    let list = probe_list(&graph, None, None, 10.0, wanted);
    let mut requested: Vec<u32> = list.operators.iter().map(|(operator, _)| *operator).collect();
    requested.sort_unstable();
    assert_eq!(requested, [0, 1, 2]);
    let name = &list.stand_ins[0].name;
    let answer = format!(
        r#"{{"operators": [{{"name": "aten::bmm", "same": 100}}, {{"name": "aten::softmax"}},
                               {{"name": "aten::bmm"}}, {{"name": "{name}", "same": 80}}]}}"#
    );
    let probes = list.read(answer.as_bytes()).probes;
    assert_eq!(probes.stand_in(&list.stand_ins[0]), Some(80.0));
    assert!(probe_list(&graph, None, None, 10.0, ProbeKinds::NONE).is_empty());
}

#[test]
fn gpus_run_other_library_settings_and_sizes() {
    let mut graph = Graph::default();
    let gpu = graph.resource(&Resource::Stream(0, 7));
    let of = |name: &str, given: [&[u64]; 2], made: &[u64]| {
        let made = Tensor::new(ElementType::Float32, made);
        Operator::new(name, given.map(tensor).into(), vec![made])
    };
    graph.operators = vec![
        of("aten::mm", [&[64, 100], &[100, 27]], &[64, 27]),
        of("aten::conv2d", [&[8, 3, 32, 32], &[64, 3, 3, 3]], &[8, 64, 30, 30]),
        of("aten::add", [&[64, 100], &[64, 100]], &[64, 100]),
    ];
    for index in 0..3 {
        let mut task = Task::new(TaskKind::Kernel, 100.0, Phase::Forward);
        task.operator = Some(index);
        graph.push(gpu, task);
    }
    let ways = |list: &ProbeList| -> Vec<Value> {
        let requested = list.request["operators"].as_array().into_iter().flatten();
        requested.map(|one| one["variants"].clone()).collect()
    };
    let mut manifest = Manifest::default();
    manifest.settings.matmul_precision = Some("highest".to_owned());
    let wanted = ProbeKinds { switches: true, stand_ins: true, ..ProbeKinds::NONE };
    let list = probe_list(&graph, Some(&manifest), None, 10.0, wanted);
    assert_eq!(ways(&list), [json!(["same", "tf32"]), json!(["same", "cudnn_benchmark"])]);
    // Matrix multiplications run on tensor cores, which require multiples of four elements.
    manifest.settings.matmul_precision = Some("high".to_owned());
    let list = probe_list(&graph, Some(&manifest), None, 10.0, wanted);
    let same = json!(["same"]);
    assert_eq!(ways(&list), [json!(["same", "cudnn_benchmark"]), same.clone(), same]);
    assert_eq!(list.request["operators"][2]["inputs"][1]["s"], json!([100, 28]));
    assert!(probe_list(&graph, Some(&manifest), None, 10.0, ProbeKinds::NONE).is_empty());
}

#[test]
fn the_request_matches_the_documentation() {
    let graph = graph(&[("aten::relu", &[2, 3], 1.0)]);
    let list = probe_list(&graph, Some(&manifest()), Some(1000), 10.0, ProbeKinds::ALL);
    let operator = &list.request["operators"][0];
    assert_eq!(operator["name"], "aten::relu");
    assert_eq!(operator["inputs"], json!([{"t": "float32", "s": [2, 3]}, 2, null]));
    assert_eq!(operator["variants"], json!(["same", "bfloat16"]));
    let optimizer = &list.request["optimizers"][0];
    assert_eq!(optimizer["type"], "Adam");
    assert_eq!(optimizer["shapes"], json!([[12], [3], [12]]));
    assert_eq!(list.request["working_set_bytes"], 1000);
}

#[test]
fn ratios_of_layers_to_cells_are_read() {
    let requested = r#"{"cells": [{"type": "LSTM"}, {"type": "GRU"}, {"type": "GRU"}]}"#;
    let request = serde_json::from_str(requested).expect("an object");
    let list = ProbeList { cells: vec![3, 5, 7], request, ..ProbeList::default() };
    let answer = r#"{"cells": [{"type": "LSTM", "cell": 100, "layer": 25},
                                   {"type": "RNN_TANH", "cell": 100, "layer": 25},
                                   {"type": "GRU", "cell": 100, "layer": null}]}"#;
    assert_eq!(list.read(answer.as_bytes()).probes.cells, [(3, 0.25)].into());
}

/// Checks the values read from a response for one operator and one optimizer.
#[track_caller]
fn check(answer: &str, same: Option<f64>, ratio: Option<f64>, fused: Option<f64>) {
    let graph = graph(&[("aten::relu", &[2, 3], 1.0)]);
    let list = probe_list(&graph, Some(&manifest()), None, 10.0, ProbeKinds::ALL);
    let probes = list.read(answer.as_bytes()).probes;
    assert_eq!(probes.operators.get(&(0, Variant::Same)).copied(), same);
    assert_eq!(probes.ratio(0, Variant::BFloat16).map(|found| found.value), ratio);
    assert_eq!(probes.optimizers.get(&(0, "fused")).copied(), fused);
}

#[test]
fn invalid_parts_of_a_response_are_ignored() {
    let whole = r#"{"operators": [{"name": "aten::relu", "same": 100.0, "bfloat16": 50}],
                        "optimizers": [{"type": "Adam", "for-loop": 3e6, "fused": 1e6}]}"#;
    check(whole, Some(100.0), Some(0.5), Some(1e6));
    let other = r#"{"operators": [{"name": "aten::tanh", "same": 100.0, "bfloat16": 50}],
                        "optimizers": [{"type": "SGD", "fused": 1e6}]}"#;
    check(other, None, None, None);
    let nulls = r#"{"operators": [{"name": "aten::relu", "same": 100.0, "bfloat16": null}]}"#;
    check(nulls, Some(100.0), None, None);
    let absurd = r#"{"operators": [{"name": "aten::relu", "same": -1, "bfloat16": 1e300}],
                         "optimizers": 7, "notes": {"a": 1}}"#;
    check(absurd, None, None, None);
    check("no json", None, None, None);
    check("[]", None, None, None);
}
