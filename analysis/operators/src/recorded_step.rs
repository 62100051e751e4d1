//! One recorded iteration with the data needed to predict it elsewhere: its operators, its GPU
//! work, and the host's launches over time.
//!
//! `attribution::recorded_step` builds it from a recording.

use super::matmul_kernel::MatmulType;
use super::operator::Operator;
use ridgeline_devices::occupancy::Launch;
use ridgeline_profile::Device;

/// One iteration of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedStep {
    /// The device that ran it.
    pub device: Device,
    /// Time of one iteration without the profiler, in nanoseconds.
    pub time_ns: f64,
    /// Time of every unprofiled iteration, in nanoseconds.
    pub timed_ns: Vec<f64>,
    /// Time spent waiting for the data loader, in nanoseconds.
    pub data_ns: f64,
    /// Samples per iteration.
    pub batch_size: Option<u64>,
    /// Samples per epoch.
    pub samples_per_epoch: Option<u64>,
    /// Peak device memory in bytes.
    pub peak_bytes: Option<u64>,
    /// Bytes of gradients that data-parallel training on several GPUs would exchange. 0 if the iteration accumulates
    /// none, or if it is distributed already.
    pub gradient_bytes: f64,
    /// Energy of an iteration in joules, if measured.
    pub joules: Option<f64>,
    /// The distinct operators.
    pub operators: Vec<CountedOperator>,
    /// GPU work in launch order. Empty if there was none.
    pub activities: Vec<GpuWork>,
    /// Host events in order of time. Empty if unknown.
    pub host: Vec<HostEvent>,
    /// Time from the last host event to the end of the iteration, in nanoseconds.
    pub host_after_ns: f64,
    /// Notes for the user about the reliability of the recording.
    pub notes: Vec<String>,
}

/// Calls of one operator with the same shapes and types.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CountedOperator {
    /// The operator with its shapes and types.
    pub operator: Operator,
    /// Number of calls per iteration.
    pub calls: f64,
}

/// A kernel, copy or memset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuWork {
    /// Kind of work, which determines how it scales.
    pub kind: WorkKind,
    /// Its share of the GPU's busy time, in nanoseconds. Concurrent work shares time equally, so
    /// the shares of all work add up to the time at which the GPU was busy.
    pub part_ns: f64,
    /// Duration in nanoseconds.
    pub time_ns: f64,
    /// Launch configuration.
    pub launch: Launch,
    /// Bytes of a copy or memset.
    pub bytes: Option<u64>,
    /// Index into [`RecordedStep::operators`] of the operator that launched it.
    pub operator: Option<u32>,
}

/// Kind of GPU work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// A kernel that computes.
    Kernel,
    /// A kernel of a matrix multiplication, convolution or attention, recognized by its name.
    Matmul(MatmulType),
    /// A kernel that communicates with other GPUs.
    Communication,
    /// A copy between host and device.
    HostCopy,
    /// A copy or memset within the device.
    DeviceCopy,
}

/// An event on the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostEvent {
    /// Host time since the previous event or the start of the iteration, in nanoseconds.
    pub before_ns: f64,
    /// Time of the call itself, in nanoseconds.
    pub call_ns: f64,
    /// Kind of the call.
    pub kind: HostEventKind,
}

/// Kind of a host event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEventKind {
    /// A launch of GPU work: index into [`RecordedStep::activities`].
    Launch(u32),
    /// A wait until the GPU is idle.
    Wait,
}

impl RecordedStep {
    /// Returns the recorded GPU busy time, in nanoseconds.
    pub fn busy_ns(&self) -> f64 {
        self.activities.iter().map(|work| work.part_ns).sum()
    }

    /// Whether it ran on a GPU and has kernels that can be scaled.
    pub fn ran_on_gpu(&self) -> bool {
        !self.activities.is_empty()
    }
}
