//! A synthetic training step: layers that each store something large internally and return
//! something small.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "for tests alone"
)]

use super::facts::{Cluster, Facts, Probes};
use super::optimization::{Bound, Optimization, Prediction, predict};
use ridgeline_devices::device_spec::{DeviceKind, DeviceSpec};
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_graph::graph::{Graph, Resource, Task, TaskId, TaskKind};
use ridgeline_graph::memory::{Block, BlockKind, Moment};
use ridgeline_graph::recorded::Recorded;
use ridgeline_graph::simulate;
use ridgeline_operators::op_cost::Options;
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_profile::{FileFacts, FileId, LineCost, ModuleCost, ModuleId, Phase, Profile};
use ridgeline_recording::manifest::Manifest;

/// Size of the weights in bytes.
pub const WEIGHTS: f64 = 50.0;
/// Size of a layer's internal activation in bytes.
pub const INNER: f64 = 100.0;
/// Size of a layer's output in bytes.
pub const OUTPUT: f64 = 10.0;
/// Time of each operator in nanoseconds. On a GPU this is the kernel's time, and the launch takes a
/// tenth of it.
pub const OPERATOR_NS: f64 = 1e9;
/// The line that calls the layers.
pub const LINE: (FileId, u32) = (FileId(0), 10);

/// A step to try a what-if on.
pub struct Step {
    /// The recorded iteration.
    pub recorded: Recorded,
    /// Its lines and modules.
    pub profile: Profile,
    /// An empty manifest.
    pub manifest: Manifest,
}

impl Step {
    /// Returns the step's facts, on a device of the table.
    pub fn facts<'a>(&'a self, device: &'a DeviceSpec, probes: &'a Probes) -> Facts<'a> {
        Facts {
            profile: &self.profile,
            manifest: Some(&self.manifest),
            device,
            options: Options::default(),
            probes,
            cluster: Cluster::default(),
        }
    }
}

/// Returns a GPU of the table.
pub fn gpu() -> &'static DeviceSpec {
    DeviceTable::shipped().find("NVIDIA H200").expect("a GPU of the table")
}

/// Returns a CPU.
pub fn cpu() -> DeviceSpec {
    DeviceSpec { kind: DeviceKind::Cpu, ..gpu().clone() }
}

/// Predicts the effect of optimizations that are applied in turn, on a GPU of the table.
pub fn predicted(step: &Step, chosen: &[&dyn Optimization]) -> Result<Prediction, String> {
    let probes = Probes::default();
    let recorded = &step.recorded;
    predict(&recorded.graph, &recorded.schedule, &step.facts(gpu(), &probes), chosen)
        .map_err(|error| error.to_string())
}

/// Returns the reason why an optimization does not apply.
pub fn refusal(step: &Step, device: &DeviceSpec, optimization: &dyn Optimization) -> String {
    let probes = Probes::default();
    let mut graph = step.recorded.graph.clone();
    let facts = step.facts(device, &probes);
    optimization.apply(&mut graph, &facts, Bound::Likely).expect_err("it should refuse")
}

/// Creates an operator on FP32 tensors with the given input and output shapes.
pub fn operator(name: &str, inputs: &[&[u64]], output: &[u64]) -> Operator {
    let tensor = |shape: &[u64]| Tensor::new(ElementType::Float32, shape);
    let inputs = inputs.iter().map(|shape| Arg::Tensor(tensor(shape))).collect();
    Operator::new(name, inputs, vec![tensor(output)])
}

struct Builder {
    graph: Graph,
    on_gpu: bool,
    events: u32,
}

impl Builder {
    fn operator(&mut self, phase: Phase, module: Option<u32>) -> TaskId {
        let host = self.graph.resource(&Resource::Host);
        let call = Some(self.graph.tasks.len() as u32);
        let described = |kind, duration_ns| {
            let task = Task::new(kind, duration_ns, phase);
            Task { module, call, operator: module, line: module.map(|_| LINE), ..task }
        };
        if !self.on_gpu {
            return self.graph.push(host, described(TaskKind::HostOperator, OPERATOR_NS));
        }
        let stream = self.graph.resource(&Resource::Stream(0, 7));
        let launch = self.graph.push(host, described(TaskKind::Launch, 0.1 * OPERATOR_NS));
        let kernel = Task { launched_by: Some(launch), ..described(TaskKind::Kernel, OPERATOR_NS) };
        let kernel = self.graph.push(stream, kernel);
        self.graph.wait(launch, kernel, 0.0);
        launch
    }

    fn event(&mut self, task: TaskId) -> Option<Moment> {
        self.events += 1;
        Some(Moment { task, event: self.events })
    }

    fn block(&mut self, bytes: f64, kind: BlockKind, by: Option<TaskId>) -> usize {
        let allocated = by.and_then(|by| self.event(by));
        let made_by = by.and_then(|by| self.graph.task(by).copied());
        self.graph.memory.add(Block {
            bytes,
            kind,
            allocated,
            freed: None,
            line: made_by.and_then(|task| task.line),
            module: made_by.and_then(|task| task.module),
            call: made_by.and_then(|task| task.call),
        });
        self.graph.memory.blocks.len() - 1
    }

    fn free(&mut self, block: usize, by: TaskId) {
        self.graph.memory.blocks[block].freed = self.event(by);
    }
}

/// Creates a step with layers and a loss. The first operator of each layer allocates its internal
/// activation, the second one its output. The backward pass of a layer frees its internal
/// activation and the previous layer's output.
pub fn step(layers: u32, on_gpu: bool) -> Step {
    let mut builder = Builder { graph: Graph::default(), on_gpu, events: 0 };
    builder.graph.memory.is_known = true;
    builder.block(WEIGHTS, BlockKind::Weights, None);
    let mut activations = Vec::new();
    for module in 1..=layers {
        let inner_operator = builder.operator(Phase::Forward, Some(module));
        let inner = builder.block(INNER, BlockKind::Activations, Some(inner_operator));
        let output_operator = builder.operator(Phase::Forward, Some(module));
        let output = builder.block(OUTPUT, BlockKind::Activations, Some(output_operator));
        activations.push((module, inner, output));
    }
    builder.operator(Phase::Forward, Some(0));
    let mut after = builder.operator(Phase::Backward, Some(0));
    for (module, inner, output) in activations.into_iter().rev() {
        builder.free(output, after);
        builder.operator(Phase::Backward, Some(module));
        after = builder.operator(Phase::Backward, Some(module));
        builder.free(inner, after);
    }
    builder.operator(Phase::Optimizer, None);
    let schedule = simulate::steady(&builder.graph).expect("no circle");
    let measured_ns = schedule.iteration_ns;
    let recorded = Recorded {
        graph: builder.graph,
        schedule,
        replay_error: 0.0,
        measured_ns,
        host_factor: 1.0,
        notes: Vec::new(),
    };
    Step { recorded, profile: profile(layers), manifest: Manifest::default() }
}

fn profile(layers: u32) -> Profile {
    let module = |index: u32| ModuleCost {
        path: index.checked_sub(1).map(|layer| format!("layers.{layer}")).unwrap_or_default(),
        type_name: if index == 0 { "Net" } else { "Layer" }.to_owned(),
        parent: (index > 0).then_some(ModuleId(0)),
        ..ModuleCost::default()
    };
    let modules: Vec<ModuleCost> = (0..=layers).map(module).collect();
    let called = (1..=layers).map(ModuleId).collect();
    let line = LineCost { line: LINE.1, modules: called, ..LineCost::default() };
    Profile {
        modules,
        files: vec![FileFacts { path: "train.py".to_owned(), ..FileFacts::default() }],
        lines: vec![vec![line]],
        ..Profile::default()
    }
}

#[cfg(test)]
mod tests {
    use ridgeline_graph::memory::{Changes, peak};

    use super::*;

    #[test]
    fn blocks_alive_at_the_peak_add_up_to_the_peak() {
        for layers in [1, 4] {
            let step = step(layers, true);
            let (graph, schedule) = (&step.recorded.graph, &step.recorded.schedule);
            let alive = Changes::new(graph, schedule).alive_at_peak(&graph.memory);
            let blocks = graph.memory.blocks.iter().zip(&alive);
            let sum: f64 = blocks.filter(|(_, alive)| **alive).map(|(block, _)| block.bytes).sum();
            assert_eq!(Some(sum), peak(graph, schedule));
        }
    }
}
