//! The results of `ridgeline analyze` for a trace recorded elsewhere, as printed in the terminal
//! and as written by `--json`.
//!
//! The JSON has the keys of `profile --json` (`docs/schema/analysis.schema.json`), null if a trace
//! does not have the information, plus `gpu`, `kernels` and other data that only a trace has.

mod page;
mod summarize;

use serde::{Serialize, Serializer};

use super::bottleneck::BottleneckEntry;
use super::explained::UtilizationEntry;
use ridgeline_attribution::metrics::activity::{LaunchDelay, StreamFacts};
use ridgeline_attribution::metrics::launch_overhead::LaunchOverhead;

pub use page::page;
pub use summarize::summarize;

/// Maximum length of a kernel name, in characters: template arguments can be thousands long.
pub const NAME_CHARACTERS: usize = 200;

/// The summary of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSummary {
    /// The version of the JSON.
    pub schema: u32,
    /// The device of the run.
    pub device: DeviceSummary,
    /// The median iteration.
    pub iteration: IterationSummary,
    /// Memory, if the memory events have totals.
    pub memory: MemorySummary,
    /// The share of time attributed to lines.
    pub coverage: CoverageSummary,
    /// Lines, if the trace has Python frames or call stacks; longest first.
    pub lines: Vec<LineSummary>,
    /// Always empty: a trace has no modules.
    pub modules: [(); 0],
    /// GPU activity; in JSON all zero without a GPU, so that the keys always exist.
    #[serde(serialize_with = "zero_without_gpu")]
    pub gpu: Option<GpuSummary>,
    /// Kernels, copies and fills by name, longest total first.
    pub kernels: Vec<KernelSummary>,
    /// Copies by kind.
    pub copies: Vec<CopySummary>,
    /// Operators by name: longest GPU time first, then longest host time.
    pub operators: Vec<OperatorSummary>,
    /// The profiler's steps.
    pub steps: Vec<StepSummary>,
    /// Facts about the file.
    pub trace: FileSummary,
    /// The bottleneck of an iteration; null if none can be replayed.
    pub bottleneck: Option<BottleneckEntry>,
    /// The device utilization of an iteration; null if none can be replayed.
    pub utilization: Option<Explained>,
    /// Hardware counters, if the profiler was configured to read them.
    pub counters: Option<CounterSummary>,
    /// Notes on the accuracy of the results.
    pub notes: Vec<String>,
}

/// Hardware counters, over the whole trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CounterSummary {
    /// The number of kernels, or of ranges of kernels.
    pub ranges: u64,
    /// Floating-point operations outside tensor cores.
    pub flops: Option<f64>,
    /// Tensor core instructions.
    pub tensor_instructions: Option<f64>,
}

/// The device utilization of an iteration.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// The JSON entry.
    #[serde(flatten)]
    pub entry: UtilizationEntry,
    /// The text for the terminal.
    #[serde(skip)]
    pub facts: Vec<String>,
}

/// The device that the trace was recorded on.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceSummary {
    /// The product name, or `unknown`.
    pub name: String,
    /// `cuda`, `rocm`, `cpu`, or `unknown` for another accelerator.
    pub kind: &'static str,
    /// The device index; null without a GPU.
    pub index: Option<i64>,
    /// Compute capability, such as `[9, 0]`.
    pub capability: Option<(u32, u32)>,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: Option<u32>,
}

/// The median iteration, in milliseconds: the time of the host, or of the GPU if the host runs ahead
/// of it. Null if the trace shows no iterations.
#[derive(Clone, Debug, Default, Serialize)]
pub struct IterationSummary {
    /// The whole iteration: the sum of the parts.
    pub time_ms: Option<f64>,
    /// Forward operators.
    pub forward_ms: Option<f64>,
    /// Autograd.
    pub backward_ms: Option<f64>,
    /// Optimizer steps and zeroing of gradients.
    pub optimizer_ms: Option<f64>,
    /// Waiting for the DataLoader.
    pub data_ms: Option<f64>,
    /// The rest: Python, and waiting for the GPU.
    pub other_ms: Option<f64>,
    /// The host's part: less than `time_ms` if the host runs ahead of the GPU.
    pub host_ms: Option<f64>,
    /// The shortest iteration.
    pub shortest_ms: Option<f64>,
    /// The longest iteration.
    pub longest_ms: Option<f64>,
    /// Always null: a trace does not record the batch size.
    pub samples_per_s: Option<f64>,
    /// Always null: a trace does not record the batch size.
    pub batch_size: Option<u64>,
    /// The number of iterations in the trace.
    pub iterations: usize,
    /// `profiler steps` or `optimizer steps`.
    pub found_by: Option<&'static str>,
}

/// Memory as counted by the allocator.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MemorySummary {
    /// The peak of allocated bytes while the trace was recorded, on the GPU if there is one.
    pub peak_bytes: Option<u64>,
    /// The device's memory in bytes.
    pub capacity_bytes: Option<u64>,
    /// All null: a trace does not record what the memory is used for.
    pub at_peak: MemoryKinds,
    /// The number of allocations and frees.
    pub events: usize,
    /// The peak of each device.
    pub peaks: Vec<DevicePeak>,
}

/// Bytes by kind, which are unknown here. The keys are those of `profile --json`.
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

/// The peak of allocated memory on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DevicePeak {
    /// torch's number of the device type: 0 is the CPU, 1 is CUDA or ROCm.
    pub device_type: Option<i64>,
    /// The device index; -1 for the CPU.
    pub device: Option<i64>,
    /// Peak in bytes.
    pub peak_bytes: u64,
}

/// Shares, 0 to 1.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CoverageSummary {
    /// The share of GPU time (operator time without a GPU) attributed to a line.
    pub time: Option<f64>,
    /// Always null.
    pub memory: Option<f64>,
}

/// The cost of one line, in milliseconds over the whole trace.
#[derive(Clone, Debug, Serialize)]
pub struct LineSummary {
    /// The path in the trace.
    pub file: String,
    /// Counted from 1. For Python frames, the line at which the function begins.
    pub line: u32,
    /// The same as `line`.
    pub end_line: u32,
    /// The function.
    pub scope: String,
    /// Time of operators whose innermost line is this one.
    pub self_ms: f64,
    /// Time of operators with this line on their stack.
    pub total_ms: f64,
    /// The forward part of `total_ms`.
    pub forward_ms: f64,
    /// The backward part of `total_ms`.
    pub backward_ms: f64,
    /// The optimizer part of `total_ms`.
    pub optimizer_ms: f64,
    /// The data loading part of `total_ms`.
    pub data_ms: f64,
    /// The number of calls of the function; 0 if unknown.
    pub calls: u64,
    /// Time of the GPU activities launched from the line.
    pub device_ms: f64,
    /// Always null.
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
    /// Union of compute kernels.
    pub compute_ns: u64,
    /// Union of communication kernels.
    pub communication_ns: u64,
    /// The part of it during which no kernel computed.
    pub exposed_communication_ns: u64,
    /// Union of copies and fills.
    pub memory_ns: u64,
    /// Time busy without computing.
    pub exposed_ns: u64,
    /// The number of kernels, copies and fills.
    pub activities: u64,
    /// The number of kernels.
    pub kernels: u64,
    /// The number of activities launched before the recording began.
    pub leaked: u64,
    /// Sum of their durations.
    pub leaked_ns: u64,
    /// By device and stream.
    pub streams: Vec<StreamFacts>,
    /// The delay from launch to start.
    pub launch_to_start: Option<LaunchDelay>,
    /// The host time of the launches.
    pub launch_overhead: Option<LaunchOverhead>,
}

/// All activities of one name.
#[derive(Clone, Debug, Serialize)]
pub struct KernelSummary {
    /// The name, at most [`NAME_CHARACTERS`] long.
    pub name: String,
    /// The number of calls.
    pub calls: u64,
    /// Sum of their durations.
    pub total_ns: u64,
    /// `kernel`, `memcpy` or `memset`.
    pub kind: &'static str,
    /// For kernels, the mean occupancy weighted by time, 0 to 1; null if the launch or the device
    /// is unknown.
    pub occupancy: Option<f64>,
}

/// All copies of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct CopySummary {
    /// `Memcpy HtoD (Pageable -> Device)`.
    pub name: String,
    /// The number of calls.
    pub calls: u64,
    /// Sum of their bytes.
    pub bytes: u64,
    /// Sum of their durations.
    pub total_ns: u64,
    /// Throughput in gigabytes (1e9 bytes) per second.
    pub gigabytes_per_s: Option<f64>,
}

/// All calls of one operator.
#[derive(Clone, Debug, Serialize)]
pub struct OperatorSummary {
    /// `aten::convolution`.
    pub name: String,
    /// The number of calls.
    pub calls: u64,
    /// Host time without nested operators.
    pub self_ns: u64,
    /// Time of the GPU activities that it launched itself.
    pub device_ns: u64,
}

/// One step of the profiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepSummary {
    /// `ProfilerStep#3`.
    pub name: String,
    /// On the realtime clock if the trace has a base time.
    pub start_ns: i64,
    /// Duration in nanoseconds.
    pub duration_ns: i64,
}

/// Facts about the file of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct FileSummary {
    /// The offset added to the times in the file to get the realtime clock.
    pub base_time_ns: i64,
    /// The number of host operators.
    pub operators: usize,
    /// The number of runtime and driver calls.
    pub runtime_calls: usize,
    /// The number of Python frames.
    pub python_frames: usize,
    /// The rank of this process in a distributed run.
    pub rank: Option<i64>,
    /// The number of processes.
    pub world_size: Option<i64>,
    /// The number of bytes of JSON that were read, if the file is truncated.
    pub truncated_at: Option<u64>,
    /// The number of events with too little information to be used.
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
