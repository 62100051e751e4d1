//! Measures the time of all rules on an iteration of 100,000 operators, on a GPU and on a CPU:
//! transformer layers with unfused attention, and an optimizer without foreach or fused kernels.
//! `cargo bench -p ridgeline-analysis --bench diagnose` prints the times; the goal is 100 ms.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a benchmark reads files and the clock"
)]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::diagnose;
use ridgeline_analysis::graph::graph::{Graph, Resource, Task, TaskKind};
use ridgeline_analysis::graph::recorded::Recorded;
use ridgeline_analysis::graph::simulate;
use ridgeline_analysis::operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::optimize::study::RecordedRun;
use ridgeline_analysis::profile::{Device, FileFacts, FileId, IterationCost, Phase, Profile};
use ridgeline_analysis::python::fingerprint;
use ridgeline_analysis::python::semantics::Entry;
use ridgeline_analysis::recording::manifest::{Manifest, Optimizer, Settings};

const OPERATORS: u32 = 100_000;
const RUNS: usize = 5;
/// The number of functions in the program. Each one is a layer.
const FUNCTIONS: u32 = 200;
const LINES_PER_FUNCTION: u32 = 8;
/// The line of the first function's first statement.
const FIRST_STATEMENT_LINE: u32 = 4;

fn main() {
    let text: Arc<str> = program().into();
    let project = HashMap::from([("train.py".to_owned(), Arc::clone(&text))]);
    let entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
    for on_gpu in [true, false] {
        let recorded_run = recorded_run(&text, on_gpu);
        let mut fastest = Duration::MAX;
        let mut findings = Vec::new();
        let probes = Probes::default();
        for _ in 0..RUNS {
            let start = Instant::now();
            findings = diagnose::diagnose(&recorded_run, &probes, &project, &entry);
            fastest = fastest.min(start.elapsed());
        }
        let device = if on_gpu { "a GPU" } else { "a CPU" };
        let mut rules: Vec<&str> = findings.iter().map(|finding| finding.rule).collect();
        rules.sort_unstable();
        rules.dedup();
        println!(
            "{OPERATORS} operators on {device}, {} tasks: {fastest:.1?}, {} findings of {rules:?}",
            recorded_run.recorded.graph.tasks.len(),
            findings.len()
        );
    }
}

fn program() -> String {
    let mut text = "import torch\nfrom torch.nn import functional as F\n".to_owned();
    for number in 0..FUNCTIONS {
        let _ = write!(
            text,
            "def layer{number}(q, k, v, w):\n    x = q * w\n    scores = q @ k\n    weights = F.softmax(scores, \
             dim=-1)\n    y = weights @ v\n    y = F.gelu(y)\n    return y + x\n\n"
        );
    }
    text.push_str("for x in loader:\n");
    for number in 0..FUNCTIONS {
        let _ = writeln!(text, "    x = layer{number}(x, x, x, x)");
    }
    text.push_str("    x.sum().backward()\n    optimizer.step()\n");
    text
}

fn recorded_run(text: &str, on_gpu: bool) -> RecordedRun {
    let mut graph = iteration(on_gpu);
    graph.tasks.keep_calls();
    let schedule = simulate::steady(&graph).expect("a schedule");
    let time_ns = schedule.iteration_ns;
    let device = DeviceTable::shipped().find("NVIDIA A100-SXM4-40GB").expect("an A100").clone();
    let kind = if on_gpu { "cuda" } else { "cpu" }.to_owned();
    let profile = Profile {
        device: Device { name: device.name.clone(), kind, ..Device::default() },
        iteration: IterationCost { time_ns, ..IterationCost::default() },
        files: vec![FileFacts { path: "train.py".to_owned(), fingerprint: fingerprint(text) }],
        ..Profile::default()
    };
    let settings = Settings {
        matmul_precision: Some("highest".to_owned()),
        cudnn_benchmark: Some(false),
        ..Settings::default()
    };
    let adam = Optimizer { type_name: "Adam".to_owned(), ..Optimizer::default() };
    let manifest = Manifest {
        settings,
        optimizers: vec![adam],
        torch: "2.15.0".to_owned(),
        ..Manifest::default()
    };
    let recorded = Recorded {
        graph,
        schedule,
        replay_error: 0.0,
        measured_ns: time_ns,
        host_factor: 1.0,
        notes: Vec::new(),
    };
    RecordedRun {
        recorded,
        profile: Arc::new(profile),
        manifest: Some(manifest),
        device: Ok(device),
    }
}

/// Operator name, line offset within the function, and input shapes followed by the output shape.
type Step<'a> = (&'a str, u32, &'a [&'a [u64]]);

fn iteration(on_gpu: bool) -> Graph {
    const SQUARE: &[u64] = &[1024, 1024];
    const SCORES: &[u64] = &[64, 1024, 1024];
    const HEADS: &[u64] = &[64, 1024, 64];
    let forward: [Step<'_>; 6] = [
        ("mul", 0, &[HEADS, HEADS, HEADS]),
        ("bmm", 1, &[HEADS, &[64, 64, 1024], SCORES]),
        ("softmax", 2, &[SCORES, SCORES]),
        ("bmm", 3, &[SCORES, HEADS, HEADS]),
        ("gelu", 4, &[HEADS, HEADS]),
        ("add", 5, &[HEADS, HEADS, HEADS]),
    ];
    let update: [Step<'_>; 4] = [
        ("lerp_", 0, &[SQUARE, SQUARE, SQUARE]),
        ("mul_", 0, &[SQUARE, SQUARE]),
        ("addcmul_", 0, &[SQUARE, SQUARE, SQUARE]),
        ("addcdiv_", 0, &[SQUARE, SQUARE, SQUARE]),
    ];
    let mut graph = Graph::default();
    let layers = OPERATORS / (forward.len() + update.len()) as u32;
    let step_line = FIRST_STATEMENT_LINE + FUNCTIONS * (LINES_PER_FUNCTION + 1) + 1;
    for layer in 0..layers {
        for step in &forward {
            let line = FIRST_STATEMENT_LINE + LINES_PER_FUNCTION * (layer % FUNCTIONS) + step.1;
            call(&mut graph, Phase::Forward, line, step, on_gpu);
        }
    }
    for _ in 0..layers {
        for step in &update {
            call(&mut graph, Phase::Optimizer, step_line, step, on_gpu);
        }
    }
    graph
}

fn call(graph: &mut Graph, phase: Phase, line: u32, step: &Step<'_>, on_gpu: bool) {
    let (name, _, shapes) = *step;
    let tensor = |shape: &&[u64]| Tensor::new(ElementType::Float32, shape);
    let (output, inputs) = shapes.split_last().expect("an output");
    let inputs = inputs.iter().map(|shape| Arg::Tensor(tensor(shape))).collect();
    let operator = Operator::new(&format!("aten::{name}"), inputs, vec![tensor(output)]);
    let existing = graph.operators.iter().position(|existing| *existing == operator);
    let index = existing.unwrap_or_else(|| {
        graph.operators.push(operator);
        graph.operators.len() - 1
    });
    let number = graph.tasks.len() as u32;
    let task = |kind: TaskKind, duration_ns: f64| {
        let mut task = Task::new(kind, duration_ns, phase);
        (task.operator, task.call) = (Some(index as u32), Some(number));
        task.line = Some((FileId(0), line));
        task
    };
    let host = graph.resource(&Resource::Host);
    graph.push(host, Task::new(TaskKind::HostGap, 3_000.0, phase));
    if !on_gpu {
        graph.push(host, task(TaskKind::HostOperator, 20_000.0));
        return;
    }
    let stream = graph.resource(&Resource::Stream(0, 7));
    let launch = graph.push(host, task(TaskKind::Launch, 4_000.0));
    let mut kernel = task(TaskKind::Kernel, 20_000.0);
    kernel.launched_by = Some(launch);
    let kernel = graph.push(stream, kernel);
    graph.wait(launch, kernel, 0.0);
}
