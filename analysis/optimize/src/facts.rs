//! What optimizations know besides the graph: the device, the program's settings, and measured
//! times of single operators.

use std::collections::HashMap;

use ridgeline_devices::device_spec::{DeviceKind, DeviceSpec};
use ridgeline_operators::op_cost::{self, Options};
use ridgeline_operators::operator::Operator;
use ridgeline_operators::range::Range;
use ridgeline_profile::Profile;
use ridgeline_recording::manifest::Manifest;

/// Everything besides the graph. What is not known is `None` or empty; an optimization that needs it
/// says so.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What the iteration costs, with its lines and modules.
    pub profile: &'a Profile,
    /// Of a recording of ours: optimizers, loaders, settings.
    pub manifest: Option<&'a Manifest>,
    /// What ran it, or a processor.
    pub device: &'a DeviceSpec,
    /// How it was used.
    pub options: Options,
    /// Single operators as this machine runs them otherwise.
    pub probes: &'a Probes,
    /// The machines that data-parallel training is asked for.
    pub cluster: Cluster,
}

/// GPUs that train one model together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// How many.
    pub gpus: u32,
    /// How many of them share a machine.
    pub gpus_per_machine: u32,
    /// Between GPUs of one machine, in bytes per second and direction; nothing where it is not told.
    pub link: Option<f64>,
    /// Between machines, in bytes per second and direction; nothing where it is not told.
    pub network: Option<f64>,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster { gpus: 4, gpus_per_machine: 8, link: None, network: None }
    }
}

/// Another way in which an operator can be run, which a probe measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// As it was recorded.
    Same,
    /// With its floating-point tensors in bfloat16.
    BFloat16,
    /// With its floating-point tensors in float16.
    Float16,
    /// With its 4-dimensional tensors in channels-last order.
    ChannelsLast,
    /// A product with its factors rounded to TF32.
    Tf32,
    /// A convolution with `cudnn.benchmark` set the other way.
    CudnnBenchmark,
}

impl Variant {
    /// As it is written in a probe's file.
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

/// Operators that were run by themselves, as recorded and otherwise, on the machine that the recording
/// is of. Their ratio carries over: what a machine does badly it does in both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probes {
    /// Nanoseconds of a call, by the operator's place in [`Graph::operators`].
    pub operators: HashMap<(u32, Variant), f64>,
    /// Nanoseconds of one step of an optimizer over the program's parameters, by how it is run:
    /// `for-loop`, `foreach`, `fused`. The key's first part is the optimizer's place in the manifest.
    pub optimizers: HashMap<(u32, &'static str), f64>,
    /// What a layer takes in one call of what stepping its cell takes, by the cell's place in
    /// [`Manifest::modules`].
    pub cells: HashMap<u32, f64>,
    /// Nanoseconds of a call of operators that the program does not have, and could.
    pub stand_ins: Vec<(Operator, f64)>,
}

/// The factor by which a ratio of probes may be off from that within an iteration: of 19 what-ifs by
/// probes on two cores (`docs/accuracy.md`, "What-ifs on a processor") four of five iterations were off
/// by less than 7%, in which half of the time and more is of other things.
pub const PROBES_OFF: f64 = 1.15;

impl Probes {
    /// What an operator's time is multiplied by, where both ways were measured.
    pub fn ratio(&self, operator: u32, variant: Variant) -> Option<Range> {
        let same = self.operators.get(&(operator, Variant::Same))?;
        let then = self.operators.get(&(operator, variant))?;
        let ratio = Some(then / same).filter(|ratio| ratio.is_finite() && *ratio > 0.0)?;
        Some(Range::within_factor(ratio, PROBES_OFF))
    }

    /// What an operator's time is multiplied by where another one runs in its place, if both ran.
    pub fn ratio_to(&self, operator: u32, other: &Operator) -> Option<Range> {
        let ratio = self.stand_in(other)? / self.same(operator)?;
        let ratio = Some(ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0)?;
        Some(Range::within_factor(ratio, PROBES_OFF))
    }

    /// Nanoseconds of a call of an operator that the program has, as it has it.
    pub fn same(&self, operator: u32) -> Option<f64> {
        self.operators.get(&(operator, Variant::Same)).copied()
    }

    /// Nanoseconds of a call of an operator that the program does not have.
    pub fn stand_in(&self, operator: &Operator) -> Option<f64> {
        let known = self.stand_ins.iter().find(|(known, _)| known == operator);
        known.map(|(_, time_ns)| *time_ns)
    }
}

impl Facts<'_> {
    /// Whether a GPU ran it.
    pub fn is_gpu(&self) -> bool {
        self.device.kind == DeviceKind::Gpu
    }

    /// What the time of an operator is multiplied by when it is run otherwise: `changed` is the same
    /// operator with other types or shapes. By the cost model, so that what it gets wrong about both
    /// cancels.
    pub fn modelled_ratio(&self, operator: &Operator, changed: &Operator) -> Range {
        let now = op_cost::cost(operator, self.device, &self.options).time_ns;
        let then = op_cost::cost(changed, self.device, &self.options).time_ns;
        if now.value <= 0.0 || !then.value.is_finite() {
            return Range::exact(1.0);
        }
        let value = then.value / now.value;
        // A ratio errs less than either of the two, since they err alike.
        let spread = (then.high / then.value.max(1e-9)).powf(0.5);
        Range::within_factor(value, if spread.is_finite() { spread } else { 2.0 })
    }

    /// The program's optimizers are not told by a trace of another profiler; then nothing.
    pub fn optimizer_names(&self) -> Vec<&str> {
        let optimizers = self.manifest.map(|manifest| manifest.optimizers.as_slice());
        optimizers.unwrap_or_default().iter().map(|one| one.type_name.as_str()).collect()
    }
}
