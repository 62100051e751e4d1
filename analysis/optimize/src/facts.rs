//! The inputs of optimizations besides the graph: the device, the program's settings, and measured
//! times of single operators.

use std::collections::HashMap;

use ridgeline_devices::device_spec::{DeviceKind, DeviceSpec};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::machine_costs::MachineCosts;
use ridgeline_operators::op_cost::{self, Options};
use ridgeline_operators::operator::{ElementType, Operator};
use ridgeline_operators::range::Range;
use ridgeline_profile::Profile;
use ridgeline_recording::manifest::Manifest;

/// The inputs besides the graph. Unknown values are `None` or empty. An optimization that needs
/// them fails with a reason.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Costs of the iteration, with its lines and modules.
    pub profile: &'a Profile,
    /// The manifest, if Ridgeline made the recording: optimizers, loaders, settings.
    pub manifest: Option<&'a Manifest>,
    /// The GPU or CPU that ran the iteration.
    pub device: &'a DeviceSpec,
    /// Precision settings of the program.
    pub options: Options,
    /// Measured times of operator variants on this machine.
    pub probes: &'a Probes,
    /// The machines for data-parallel training.
    pub cluster: Cluster,
}

/// GPUs that train one model together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// Number of GPUs.
    pub gpus: u32,
    /// Number of GPUs per machine.
    pub gpus_per_machine: u32,
    /// Bandwidth between GPUs of one machine, in bytes per second and direction. `None` if unknown.
    pub link: Option<f64>,
    /// Bandwidth between machines, in bytes per second and direction. `None` if unknown.
    pub network: Option<f64>,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster { gpus: 4, gpus_per_machine: 8, link: None, network: None }
    }
}

/// A way to run an operator that a probe measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// As recorded.
    Same,
    /// With its floating-point tensors in bfloat16.
    BFloat16,
    /// With its floating-point tensors in float16.
    Float16,
    /// With its 4-dimensional tensors in channels_last.
    ChannelsLast,
    /// A matrix multiplication with its operands rounded to TF32.
    Tf32,
    /// A convolution with the opposite `cudnn.benchmark` setting.
    CudnnBenchmark,
}

impl Variant {
    /// Returns the name in a probe's file.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Same => "same",
            Variant::BFloat16 => "bfloat16",
            Variant::Float16 => "float16",
            Variant::ChannelsLast => "channels_last",
            Variant::Tf32 => "tf32",
            Variant::CudnnBenchmark => "cudnn_benchmark",
        }
    }
}

/// Times of single operators on the machine of the recording, as recorded and in other variants.
/// Only ratios are used: what slows a machine down affects both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probes {
    /// Time of a call in nanoseconds, by index into the graph's operators and variant.
    pub operators: HashMap<(u32, Variant), f64>,
    /// Time of one optimizer step over the program's parameters, in nanoseconds, by implementation:
    /// `for-loop`, `foreach`, `fused`. The first part of the key is an index into the manifest's
    /// optimizers.
    pub optimizers: HashMap<(u32, &'static str), f64>,
    /// Time of one call of a recurrent layer relative to stepping its cell, by the cell's index
    /// into [`Manifest::modules`].
    pub cells: HashMap<u32, f64>,
    /// Time of a call, in nanoseconds, of operators that the program does not have but could use.
    pub stand_ins: Vec<(Operator, f64)>,
}

/// The uncertainty factor of a ratio of probes within an iteration. In 19 what-ifs by probes on two
/// cores (`docs/accuracy.md`, "What-ifs on a CPU"), four of five iterations were off by less
/// than 7%, and half or more of their time was spent elsewhere.
pub const PROBE_UNCERTAINTY: f64 = 1.15;

impl Probes {
    /// Returns the ratio of a variant's time to the recorded variant's, if both were measured.
    pub fn ratio(&self, operator: u32, variant: Variant) -> Option<Range> {
        let same = self.operators.get(&(operator, Variant::Same))?;
        let changed = self.operators.get(&(operator, variant))?;
        let ratio = Some(changed / same).filter(|ratio| ratio.is_finite() && *ratio > 0.0)?;
        Some(Range::within_factor(ratio, PROBE_UNCERTAINTY))
    }

    /// Returns the times of a graph's operators in 16-bit types.
    pub fn machine_costs(&self, graph: &Graph) -> MachineCosts {
        let mut costs = MachineCosts::default();
        for (index, operator) in (0_u32..).zip(graph.operators.iter()) {
            let Some(same_ns) = self.same(index) else { continue };
            for (variant, element) in [
                (Variant::BFloat16, ElementType::BFloat16),
                (Variant::Float16, ElementType::Float16),
            ] {
                if let Some(changed_ns) = self.operators.get(&(index, variant)) {
                    costs.add(operator, element, same_ns, *changed_ns);
                }
            }
        }
        costs
    }

    /// Returns the ratio of another operator's time to this one's, if both were measured.
    pub fn ratio_to(&self, operator: u32, other: &Operator) -> Option<Range> {
        let ratio = self.stand_in(other)? / self.same(operator)?;
        let ratio = Some(ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0)?;
        Some(Range::within_factor(ratio, PROBE_UNCERTAINTY))
    }

    /// Returns the time of a call of an operator as recorded, in nanoseconds.
    pub fn same(&self, operator: u32) -> Option<f64> {
        self.operators.get(&(operator, Variant::Same)).copied()
    }

    /// Returns the time of a call of an operator that the program does not have, in nanoseconds.
    pub fn stand_in(&self, operator: &Operator) -> Option<f64> {
        let known = self.stand_ins.iter().find(|(known, _)| known == operator);
        known.map(|(_, time_ns)| *time_ns)
    }
}

impl Facts<'_> {
    /// Whether a GPU ran the iteration.
    pub fn is_gpu(&self) -> bool {
        self.device.kind == DeviceKind::Gpu
    }

    /// Returns the modeled ratio of an operator's time after a change of types or shapes. Errors of
    /// the cost model that affect both cancel.
    pub fn modelled_ratio(&self, operator: &Operator, changed: &Operator) -> Range {
        let recorded_time = op_cost::cost(operator, self.device, &self.options).time_ns;
        let changed_time = op_cost::cost(changed, self.device, &self.options).time_ns;
        if recorded_time.value <= 0.0 || !changed_time.value.is_finite() {
            return Range::exact(1.0);
        }
        let value = changed_time.value / recorded_time.value;
        // A ratio has a smaller error than either time, since their errors are correlated.
        let spread = (changed_time.high / changed_time.value.max(1e-9)).powf(0.5);
        Range::within_factor(value, if spread.is_finite() { spread } else { 2.0 })
    }

    /// Returns the class names of the program's optimizers. Empty for a trace of another profiler.
    pub fn optimizer_names(&self) -> Vec<&str> {
        let optimizers = self.manifest.map(|manifest| manifest.optimizers.as_slice());
        optimizers.unwrap_or_default().iter().map(|one| one.type_name.as_str()).collect()
    }
}
