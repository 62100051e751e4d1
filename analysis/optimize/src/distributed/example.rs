//! A simple step for tests: forward passes of layers, their backward passes in reverse order with
//! one gradient each, and one optimizer kernel.

use crate::facts::{Cluster, Facts, Probes};
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_graph::graph::{Gradient, Graph, Resource, Task, TaskId, TaskKind};
use ridgeline_operators::op_cost::Options;
use ridgeline_profile::{Phase, Profile};

/// Time of a kernel in nanoseconds. Launches take almost no time.
pub(crate) const KERNEL_NS: f64 = 10e6;
const CALL_NS: f64 = 1e3;

/// Creates the step with layers of the given gradient sizes in bytes, first layer first. Layer `i`
/// is module `i`.
pub(crate) fn step(layers: &[f64]) -> Graph {
    let mut graph = Graph::default();
    for index in 0..layers.len() {
        kernel(&mut graph, Phase::Forward, Some(index as u32));
    }
    for (index, bytes) in layers.iter().enumerate().rev() {
        let ready = kernel(&mut graph, Phase::Backward, Some(index as u32));
        let module = Some(index as u32);
        graph.gradients.push(Gradient { bytes: *bytes, ready, module });
    }
    kernel(&mut graph, Phase::Optimizer, None);
    graph
}

/// Adds a launch and its kernel. Returns the launch.
fn kernel(graph: &mut Graph, phase: Phase, module: Option<u32>) -> TaskId {
    let host = graph.resource(&Resource::Host);
    let stream = graph.resource(&Resource::Stream(0, 7));
    let call = graph.push(host, Task { module, ..Task::new(TaskKind::Launch, CALL_NS, phase) });
    let kernel =
        Task { module, launched_by: Some(call), ..Task::new(TaskKind::Kernel, KERNEL_NS, phase) };
    let kernel = graph.push(stream, kernel);
    graph.wait(call, kernel, 0.0);
    call
}

/// The inputs of optimizations for the step.
pub(crate) struct ExampleInputs {
    profile: Profile,
    probes: Probes,
    device: &'static DeviceSpec,
}

impl ExampleInputs {
    /// Creates the inputs for a GPU of the shipped table.
    pub(crate) fn on(device: &str) -> ExampleInputs {
        let device = DeviceTable::shipped().find(device).expect("a device of the table");
        ExampleInputs { profile: Profile::default(), probes: Probes::default(), device }
    }

    /// Returns the facts for a cluster. `bandwidth` applies to the link and the network.
    pub(crate) fn facts(&self, gpus: u32, gpus_per_machine: u32, bandwidth: f64) -> Facts<'_> {
        let rate = Some(bandwidth);
        Facts {
            profile: &self.profile,
            manifest: None,
            device: self.device,
            options: Options::default(),
            probes: &self.probes,
            cluster: Cluster { gpus, gpus_per_machine, link: rate, network: rate },
        }
    }
}
