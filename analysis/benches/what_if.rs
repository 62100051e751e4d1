//! Measures the time of each what-if on a graph of 100,000 tasks: changing the graph, and
//! simulating it with the most likely times and with both ends of the range. `cargo bench -p
//! ridgeline-analysis --bench what_if` prints the times; the goal is 50 ms.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a benchmark reads files and the clock"
)]

use std::time::{Duration, Instant};

use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::graph::graph::{Graph, Resource, Task, TaskKind};
use ridgeline_analysis::graph::memory::{Block, BlockKind, Moment};
use ridgeline_analysis::graph::simulate;
use ridgeline_analysis::operators::op_cost::Options;
use ridgeline_analysis::operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_analysis::optimize::facts::{Cluster, Facts, Probes};
use ridgeline_analysis::optimize::optimization::predict;
use ridgeline_analysis::optimize::optimizations::ALL;
use ridgeline_analysis::profile::{FileId, Phase, Profile};

const TASKS: usize = 100_000;
/// Per operator call: a host gap, the host operator, a launch and a kernel.
const TASKS_PER_CALL: usize = 4;
const RUNS: usize = 5;

fn main() {
    let device = DeviceTable::shipped().find("NVIDIA A100-SXM4-40GB").expect("an A100");
    let (profile, probes) = (Profile::default(), Probes::default());
    let (options, cluster) = (Options::default(), Cluster::default());
    let facts =
        Facts { profile: &profile, manifest: None, device, options, probes: &probes, cluster };
    let graph = iteration();
    let start = Instant::now();
    let baseline = simulate::steady(&graph).expect("a schedule");
    println!("{:>9} tasks: simulated in {:.1?}", graph.tasks.len(), start.elapsed());
    for optimization in ALL {
        let mut fastest = Duration::MAX;
        let mut prediction = None;
        for _ in 0..RUNS {
            let start = Instant::now();
            prediction = Some(predict(&graph, &baseline, &facts, &[*optimization]));
            fastest = fastest.min(start.elapsed());
        }
        let result = match prediction {
            Some(Ok(prediction)) => format!("{:.2} times as fast", prediction.speedup().value),
            Some(Err(refusal)) => refusal.to_string(),
            None => String::new(),
        };
        println!("{:>22} {fastest:>8.1?}  {result}", optimization.name());
    }
}

/// Builds the graph of transformer layers: forward, backward and a weight update per layer.
fn iteration() -> Graph {
    const ROWS: &[u64] = &[4096, 1024];
    const SQUARE: &[u64] = &[1024, 1024];
    const SCORES: &[u64] = &[64, 1024, 1024];
    const HEADS: &[u64] = &[64, 1024, 64];
    let forward: [(&str, &[&[u64]]); 8] = [
        ("layer_norm", &[ROWS, ROWS]),
        ("linear", &[ROWS, SQUARE, ROWS]),
        ("bmm", &[HEADS, &[64, 64, 1024], SCORES]),
        ("softmax", &[SCORES, SCORES]),
        ("bmm", &[SCORES, HEADS, HEADS]),
        ("linear", &[ROWS, SQUARE, ROWS]),
        ("gelu", &[ROWS, ROWS]),
        ("add", &[ROWS, ROWS, ROWS]),
    ];
    let backward: [(&str, &[&[u64]]); 4] = [
        ("mm", &[ROWS, SQUARE, ROWS]),
        ("mm", &[&[1024, 4096], ROWS, SQUARE]),
        ("gelu_backward", &[ROWS, ROWS, ROWS]),
        ("native_layer_norm_backward", &[ROWS, ROWS, ROWS]),
    ];
    let update: [(&str, &[&[u64]]); 4] = [
        ("lerp_", &[SQUARE, SQUARE, SQUARE]),
        ("mul_", &[SQUARE, SQUARE]),
        ("addcmul_", &[SQUARE, SQUARE, SQUARE]),
        ("addcdiv_", &[SQUARE, SQUARE, SQUARE]),
    ];
    let layers = TASKS / TASKS_PER_CALL / (forward.len() + backward.len() + update.len());
    let mut graph = Graph::default();
    graph.memory.is_known = true;
    /// Operator name, and input shapes followed by the output shape.
    type Step<'a> = (&'a str, &'a [&'a [u64]]);
    let phases: [(Phase, &[Step]); 3] =
        [(Phase::Forward, &forward), (Phase::Backward, &backward), (Phase::Optimizer, &update)];
    for (phase, steps) in phases {
        for layer in 0..layers as u32 {
            for (name, shapes) in steps {
                call(&mut graph, phase, layer, name, shapes);
            }
        }
    }
    graph
}

fn call(graph: &mut Graph, phase: Phase, layer: u32, name: &str, shapes: &[&[u64]]) {
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
        (task.module, task.line) = (Some(layer), Some((FileId(0), layer % 500)));
        task
    };
    let host = graph.resource(&Resource::Host);
    let stream = graph.resource(&Resource::Stream(0, 7));
    graph.push(host, Task::new(TaskKind::HostGap, 3_000.0, phase));
    let first = graph.push(host, task(TaskKind::HostOperator, 4_000.0));
    let launch = graph.push(host, task(TaskKind::Launch, 4_000.0));
    let mut kernel = task(TaskKind::Kernel, 20_000.0);
    kernel.launched_by = Some(launch);
    let kernel = graph.push(stream, kernel);
    graph.wait(launch, kernel, 0.0);
    graph.memory.add(Block {
        bytes: 4.0 * 4096.0 * 1024.0,
        kind: BlockKind::Activations,
        allocated: Some(Moment { task: first, event: number }),
        freed: None,
        line: None,
        module: Some(layer),
        call: Some(number),
    });
}
