//! What `ridgeline analyze` says of a trace that was recorded elsewhere, as the terminal prints it
//! and as `--json` writes it.
//!
//! The JSON has the keys of `profile --json` (`docs/schema/analysis.schema.json`), null where a trace cannot tell, and
//! `gpu`, `kernels` and what else a trace tells besides.

mod page;
mod summarize;

use serde::{Serialize, Serializer};

use super::bottleneck::BottleneckEntry;
use super::explained::UtilizationEntry;
use ridgeline_attribution::metrics::activity::{LaunchDelay, StreamFacts};
use ridgeline_attribution::metrics::launch_overhead::LaunchOverhead;

pub use page::page;
pub use summarize::summarize;

/// How many characters of a kernel's name are shown: templates go on for thousands.
pub const NAME_CHARACTERS: usize = 200;

/// Everything that is said of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSummary {
    /// The version of the JSON.
    pub schema: u32,
    /// What ran it.
    pub device: DeviceSummary,
    /// The median iteration of the host.
    pub iteration: IterationSummary,
    /// Memory, where memory events tell totals.
    pub memory: MemorySummary,
    /// How much of the time reached a line.
    pub coverage: CoverageSummary,
    /// Lines, where the trace has Python's frames or call stacks; the longest first.
    pub lines: Vec<LineSummary>,
    /// A trace alone knows no modules: always empty.
    pub modules: [(); 0],
    /// What the GPUs did; in JSON all zero where there was none, so that its keys are always there.
    #[serde(serialize_with = "zero_without_gpu")]
    pub gpu: Option<GpuSummary>,
    /// Kernels, copies and fills by name, the longest total first.
    pub kernels: Vec<KernelSummary>,
    /// Copies by kind.
    pub copies: Vec<CopySummary>,
    /// Operators by name: the longest on the GPU first, then the longest on the host.
    pub operators: Vec<OperatorSummary>,
    /// The profiler's own steps.
    pub steps: Vec<StepSummary>,
    /// What the file itself is like.
    pub trace: FileSummary,
    /// The bottleneck of an iteration; null where none can be replayed.
    pub bottleneck: Option<BottleneckEntry>,
    /// What an iteration gets out of its device; null likewise.
    pub utilization: Option<Explained>,
    /// What the GPUs' own counters counted, where the profiler was asked to read them.
    pub counters: Option<CounterSummary>,
    /// What a person should know about how far to trust this.
    pub notes: Vec<String>,
}

/// Hardware counters, over the whole trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CounterSummary {
    /// Kernels, or ranges of them.
    pub ranges: u64,
    /// Floating-point operations outside tensor cores.
    pub flops: Option<f64>,
    /// Instructions of tensor cores.
    pub tensor_instructions: Option<f64>,
}

/// What an iteration gets out of its device.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// As JSON has it.
    #[serde(flatten)]
    pub entry: UtilizationEntry,
    /// As a person reads it.
    #[serde(skip)]
    pub facts: Vec<String>,
}

/// The device that the trace was recorded on.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceSummary {
    /// As its maker calls it, or `unknown`.
    pub name: String,
    /// `cuda`, `rocm` or `cpu`.
    pub kind: &'static str,
    /// Its number; null without a GPU.
    pub index: Option<i64>,
    /// Compute capability, such as `[9, 0]`.
    pub capability: Option<(u32, u32)>,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: Option<u32>,
}

/// The median iteration, in milliseconds of the host. Null where the trace shows no iterations.
#[derive(Clone, Debug, Default, Serialize)]
pub struct IterationSummary {
    /// All of it: the sum of the parts.
    pub time_ms: Option<f64>,
    /// Forward operators.
    pub forward_ms: Option<f64>,
    /// Autograd.
    pub backward_ms: Option<f64>,
    /// Steps of optimizers and zeroing of gradients.
    pub optimizer_ms: Option<f64>,
    /// Waiting for the loader.
    pub data_ms: Option<f64>,
    /// The rest: Python, and waiting for the GPU.
    pub other_ms: Option<f64>,
    /// A trace does not tell its batch size.
    pub samples_per_s: Option<f64>,
    /// A trace does not tell its batch size.
    pub batch_size: Option<u64>,
    /// How many iterations the trace shows.
    pub iterations: usize,
    /// `profiler steps` or `optimizer steps`.
    pub found_by: Option<&'static str>,
}

/// Memory as the allocator counted it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MemorySummary {
    /// The most that was allocated, on the GPU where there is one, while the trace was recorded.
    pub peak_bytes: Option<u64>,
    /// What the device has.
    pub capacity_bytes: Option<u64>,
    /// A trace alone does not tell what the bytes are for: all null.
    pub at_peak: MemoryKinds,
    /// Allocations and frees.
    pub events: usize,
    /// The most on each device.
    pub peaks: Vec<DevicePeak>,
}

/// Bytes by kind, unknown here. The keys are those of `profile --json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MemoryKinds {
    weights: Option<u64>,
    gradients: Option<u64>,
    optimizer_state: Option<u64>,
    activations: Option<u64>,
    batch: Option<u64>,
    temporaries: Option<u64>,
    other: Option<u64>,
}

/// The most that was allocated on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DevicePeak {
    /// As torch numbers them: 0 CPU, 1 CUDA and ROCm.
    pub device_type: Option<i64>,
    /// The device's number; the CPU is -1.
    pub device: Option<i64>,
    /// Bytes.
    pub peak_bytes: u64,
}

/// Shares, 0 to 1.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CoverageSummary {
    /// Of GPU time (operator time without a GPU) that reached a line.
    pub time: Option<f64>,
    /// Unknown here.
    pub memory: Option<f64>,
}

/// What ran from one line, in milliseconds over the whole trace.
#[derive(Clone, Debug, Serialize)]
pub struct LineSummary {
    /// As the trace has it.
    pub file: String,
    /// Counted from 1. Of a frame it is where the function begins.
    pub line: u32,
    /// The same.
    pub end_line: u32,
    /// The function.
    pub scope: String,
    /// Operators whose innermost line this is.
    pub self_ms: f64,
    /// Operators with this line on their stack.
    pub total_ms: f64,
    /// Of `total_ms`, forward.
    pub forward_ms: f64,
    /// Of `total_ms`, backward.
    pub backward_ms: f64,
    /// Of `total_ms`, optimizer.
    pub optimizer_ms: f64,
    /// Of `total_ms`, loading.
    pub data_ms: f64,
    /// How often the function was entered; 0 where that is unknown.
    pub calls: u64,
    /// What was launched on the GPU.
    pub device_ms: f64,
    /// Unknown here: all null.
    pub memory: MemoryKinds,
}

/// GPU activity, in exact nanoseconds of the trace; see
/// [`ActivityFacts`](ridgeline_attribution::metrics::activity::ActivityFacts).
#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuSummary {
    /// From the first start to the last end.
    pub span_ns: u64,
    /// Union of all activities.
    pub busy_ns: u64,
    /// `span - busy`.
    pub idle_ns: u64,
    /// Sum of kernels.
    pub kernel_ns: u64,
    /// Union of kernels that compute.
    pub compute_ns: u64,
    /// Union of kernels that communicate.
    pub communication_ns: u64,
    /// Of that, while no kernel computed.
    pub exposed_communication_ns: u64,
    /// Union of copies and fills.
    pub memory_ns: u64,
    /// Busy without computing.
    pub exposed_ns: u64,
    /// Kernels, copies and fills.
    pub activities: u64,
    /// Kernels.
    pub kernels: u64,
    /// Activities that were launched before the recording began.
    pub leaked: u64,
    /// Sum of these.
    pub leaked_ns: u64,
    /// By device and stream.
    pub streams: Vec<StreamFacts>,
    /// From launch to start.
    pub launch_to_start: Option<LaunchDelay>,
    /// What starting all that took the host.
    pub launch_overhead: Option<LaunchOverhead>,
}

/// All activities of one name.
#[derive(Clone, Debug, Serialize)]
pub struct KernelSummary {
    /// At most [`NAME_CHARACTERS`] of it.
    pub name: String,
    /// How many.
    pub calls: u64,
    /// Sum of their durations.
    pub total_ns: u64,
    /// `kernel`, `memcpy` or `memset`.
    pub kind: &'static str,
    /// Of kernels: mean over their time, 0 to 1; null where the launch or the device is unknown.
    pub occupancy: Option<f64>,
}

/// All copies of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct CopySummary {
    /// `Memcpy HtoD (Pageable -> Device)`.
    pub name: String,
    /// How many.
    pub calls: u64,
    /// Sum of their bytes.
    pub bytes: u64,
    /// Sum of their durations.
    pub total_ns: u64,
    /// Gigabytes (1e9) a second.
    pub gigabytes_per_s: Option<f64>,
}

/// All calls of one operator.
#[derive(Clone, Debug, Serialize)]
pub struct OperatorSummary {
    /// `aten::convolution`.
    pub name: String,
    /// How many.
    pub calls: u64,
    /// On the host, without operators within it.
    pub self_ns: u64,
    /// What it launched on the GPU itself.
    pub device_ns: u64,
}

/// One step of the profiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepSummary {
    /// `ProfilerStep#3`.
    pub name: String,
    /// On the realtime clock, where the trace has a base time.
    pub start_ns: i64,
    /// Nanoseconds.
    pub duration_ns: i64,
}

/// What a trace's file is like.
#[derive(Clone, Debug, Serialize)]
pub struct FileSummary {
    /// What was added to the file's times to reach the realtime clock.
    pub base_time_ns: i64,
    /// Operators of the host.
    pub operators: usize,
    /// Calls of the runtime and the driver.
    pub runtime_calls: usize,
    /// Frames of Python.
    pub python_frames: usize,
    /// This process, of a distributed run.
    pub rank: Option<i64>,
    /// How many processes there are.
    pub world_size: Option<i64>,
    /// Bytes of JSON that were read, where the file ended too early.
    pub truncated_at: Option<u64>,
    /// Events that say too little to be used.
    pub unusable_events: u64,
}

fn zero_without_gpu<S: Serializer>(
    gpu: &Option<GpuSummary>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match gpu {
        Some(gpu) => gpu.serialize(serializer),
        None => GpuSummary::default().serialize(serializer),
    }
}
