//! One iteration as it ran, kept as far as predicting it elsewhere needs: which operators ran, what
//! the GPU did for them, and when the host asked for it.
//!
//! `attribution::recorded_step` makes it from a recording.

use super::operator::Operator;
use super::product_kernel::ProductType;
use ridgeline_devices::occupancy::Launch;
use ridgeline_profile::Device;

/// One iteration of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedStep {
    /// What ran it.
    pub device: Device,
    /// Nanoseconds of one iteration without a profiler.
    pub time_ns: f64,
    /// Every unprofiled iteration, in nanoseconds.
    pub timed_ns: Vec<f64>,
    /// Nanoseconds of it that were spent on waiting for the data loader.
    pub data_ns: f64,
    /// Samples of an iteration.
    pub batch_size: Option<u64>,
    /// Samples of an epoch.
    pub samples_per_epoch: Option<u64>,
    /// Bytes of device memory at the peak.
    pub peak_bytes: Option<u64>,
    /// Joules of an iteration, where they were measured.
    pub joules: Option<f64>,
    /// The different operators.
    pub operators: Vec<CountedOperator>,
    /// What the GPU did, in the order of the launches. Empty where no GPU did anything.
    pub activities: Vec<GpuWork>,
    /// What the host did for it, in order of time. Empty where it is not known.
    pub host: Vec<HostEvent>,
    /// Nanoseconds from the last event of the host to the end of the iteration.
    pub host_after_ns: f64,
    /// What a person should know about how far to trust it.
    pub notes: Vec<String>,
}

/// Calls of one operator with the same shapes and types.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CountedOperator {
    /// With its shapes and types.
    pub operator: Operator,
    /// In one iteration.
    pub calls: f64,
}

/// A kernel, copy or fill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuWork {
    /// What kind of work it is, which says how it scales.
    pub kind: WorkKind,
    /// Its equal part, in nanoseconds, of the instants at which it ran: the parts of all add up to
    /// the time at which the GPU was busy.
    pub part_ns: f64,
    /// How long it ran, in nanoseconds.
    pub time_ns: f64,
    /// How it was launched.
    pub launch: Launch,
    /// Bytes of a copy or fill.
    pub bytes: Option<u64>,
    /// Index into [`RecordedStep::operators`] of the operator that launched it.
    pub operator: Option<u32>,
}

/// What kind of work a GPU did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// A kernel that computes.
    Kernel,
    /// A kernel of a matrix product, a convolution or attention, by its name.
    Product(ProductType),
    /// A kernel that talks to other GPUs.
    Communication,
    /// A copy between host and device.
    HostCopy,
    /// A copy or fill within the device.
    DeviceCopy,
}

/// What the host did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostEvent {
    /// Nanoseconds of the host since the event before, or since the iteration began.
    pub before_ns: f64,
    /// Nanoseconds of the call itself.
    pub call_ns: f64,
    /// What the call was.
    pub kind: HostEventKind,
}

/// What the host asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEventKind {
    /// It launched a work of the GPU: index into [`RecordedStep::activities`].
    Launch(u32),
    /// It waited until the GPU had done everything.
    Wait,
}

impl RecordedStep {
    /// Nanoseconds at which the GPU was busy, as recorded.
    pub fn busy_ns(&self) -> f64 {
        self.activities.iter().map(|work| work.part_ns).sum()
    }

    /// Whether a GPU ran it, so that its kernels can be scaled.
    pub fn ran_on_gpu(&self) -> bool {
        !self.activities.is_empty()
    }
}
