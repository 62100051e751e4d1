//! Iterations and devices for the tests of optimizations.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "for tests alone")]

use crate::facts::{Cluster, Facts, Probes};
use crate::optimization::{Bound, NoPrediction, Optimization, Prediction, predict};
use ridgeline_devices::device_spec::{DeviceKind, DeviceSpec, Rates};
use ridgeline_graph::graph::{Graph, Resource, Task, TaskKind};
use ridgeline_graph::simulate;
use ridgeline_operators::op_cost::Options;
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_profile::{Phase, Profile};

/// Creates a GPU with a compute capability: 160 TFLOPS in 16 bits, 20 in FP32, 1 TB/s.
pub fn gpu(architecture: &str) -> DeviceSpec {
    DeviceSpec {
        kind: DeviceKind::Gpu,
        vendor: "NVIDIA".to_owned(),
        architecture: architecture.to_owned(),
        multiprocessors: 80,
        bandwidth: 1e12,
        peaks: Rates {
            fp32: Some(2e13),
            tf32: Some(8e13),
            fp16: Some(1.6e14),
            bf16: Some(1.6e14),
            fp8: Some(3.2e14),
        },
        ..cpu()
    }
}

/// Creates a CPU with 100 GFLOPS and 10 GB/s.
pub fn cpu() -> DeviceSpec {
    DeviceSpec {
        name: "tested".to_owned(),
        aliases: Vec::new(),
        kind: DeviceKind::Cpu,
        vendor: String::new(),
        architecture: String::new(),
        multiprocessors: 8,
        base_clock_hz: None,
        boost_clock_hz: None,
        memory_bytes: 1 << 34,
        l2_bytes: None,
        bandwidth: 1e10,
        peaks: Rates { fp32: Some(1e11), ..Rates::default() },
        tdp_w: None,
        price: None,
        ceilings: None,
        source: String::new(),
        verified_by: None,
    }
}

/// Creates an FP32 tensor.
pub fn float(shape: &[u64]) -> Tensor {
    Tensor::new(ElementType::Float32, shape)
}

/// Creates an operator on FP32 tensors. The last shape is the output.
pub fn operator(name: &str, shapes: &[&[u64]]) -> Operator {
    let (output, inputs) = shapes.split_last().expect("an output");
    let inputs = inputs.iter().map(|shape| Arg::Tensor(float(shape))).collect();
    Operator::new(&format!("aten::{name}"), inputs, vec![float(output)])
}

/// An iteration that is built call by call.
pub struct Iteration {
    /// The graph of the iteration.
    pub graph: Graph,
    on_gpu: bool,
    calls: u32,
}

impl Iteration {
    /// Creates an iteration on a GPU.
    pub fn on_gpu() -> Iteration {
        Iteration { graph: Graph::default(), on_gpu: true, calls: 0 }
    }

    /// Creates an iteration on the CPU.
    pub fn on_cpu() -> Iteration {
        Iteration { on_gpu: false, ..Iteration::on_gpu() }
    }

    /// Adds a call whose work takes `work_us` microseconds. On a GPU the host takes 10 µs for it, 5
    /// of them to launch.
    pub fn call(mut self, phase: Phase, operator: Operator, work_us: f64) -> Iteration {
        let graph = &mut self.graph;
        let known = graph.operators.iter().position(|known| *known == operator);
        let index = known.unwrap_or_else(|| {
            graph.operators.push(operator);
            graph.operators.len() - 1
        });
        let host = graph.resource(&Resource::Host);
        let number = self.calls;
        let task = |kind: TaskKind, duration_us: f64| {
            let mut task = Task::new(kind, 1e3 * duration_us, phase);
            (task.operator, task.call) = (Some(index as u32), Some(number));
            task
        };
        self.calls += 1;
        if !self.on_gpu {
            graph.push(host, task(TaskKind::HostOperator, work_us));
            return self;
        }
        let stream = graph.resource(&Resource::Stream(0, 7));
        graph.push(host, task(TaskKind::HostOperator, 5.0));
        let launch = graph.push(host, task(TaskKind::Launch, 5.0));
        let mut kernel = task(TaskKind::Kernel, work_us);
        kernel.launched_by = Some(launch);
        let kernel = graph.push(stream, kernel);
        graph.wait(launch, kernel, 0.0);
        self
    }

    /// Adds host time between two calls, in microseconds.
    pub fn gap(mut self, phase: Phase, gap_us: f64) -> Iteration {
        let host = self.graph.resource(&Resource::Host);
        self.graph.push(host, Task::new(TaskKind::HostGap, 1e3 * gap_us, phase));
        self
    }

    /// Predicts the effect of an optimization.
    pub fn predict(
        &self,
        device: &DeviceSpec,
        probes: &Probes,
        one: &dyn Optimization,
    ) -> Result<Prediction, NoPrediction> {
        let profile = Profile::default();
        let facts = facts(&profile, device, probes);
        let now = simulate::steady(&self.graph).expect("a schedule");
        predict(&self.graph, &now, &facts, &[one])
    }

    /// Returns the reason why an optimization does not apply.
    #[track_caller]
    pub fn refusal(&self, device: &DeviceSpec, one: &dyn Optimization) -> String {
        match self.predict(device, &Probes::default(), one) {
            Err(NoPrediction::DoesNotApply(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the graph after an optimization.
    pub fn changed(&self, device: &DeviceSpec, one: &dyn Optimization) -> Graph {
        let (profile, probes) = (Profile::default(), Probes::default());
        let mut graph = self.graph.clone();
        let facts = facts(&profile, device, &probes);
        one.apply(&mut graph, &facts, Bound::Likely).expect("it applies");
        graph
    }
}

/// Returns the inputs of optimizations besides the graph.
pub fn facts<'a>(profile: &'a Profile, device: &'a DeviceSpec, probes: &'a Probes) -> Facts<'a> {
    let (options, cluster) = (Options::default(), Cluster::default());
    Facts { profile, manifest: None, device, options, probes, cluster }
}
