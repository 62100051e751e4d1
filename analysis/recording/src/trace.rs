//! A profiler's trace: operators, launches, GPU activities and memory events, compactly.
//!
//! It holds what Kineto writes of any year, on CUDA and ROCm, and nothing about the machine or its
//! user: the trace's `metadata` block (the recorder's environment) is never kept. Times are integer
//! nanoseconds of the realtime clock where the trace has a base time (torch 2.4 on), else of the
//! clock that the trace was recorded with. Every `start + duration` fits an `i64`; the reader sees
//! to that.

use super::optional::{OptionalI64, OptionalU64};
use super::strings::{StringId, Strings};
use ridgeline_devices::occupancy::Launch;

/// Everything that one trace says. [`super::chrome_trace`] reads it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The names, shapes and call stacks that ids stand for.
    pub strings: Strings,
    /// The host's threads, in the order in which they first occur.
    pub threads: Vec<Thread>,
    /// CPU operators, sorted by thread, then start, then the longest first: on a thread an
    /// operator comes before those that ran within it.
    pub operators: Vec<Operator>,
    /// `ProfilerStep#3`, `Optimizer.step#SGD.step`, `nccl:all_reduce`: in the order of operators.
    pub annotations: Vec<Annotation>,
    /// Calls of the runtime's or the driver's interface, in the order of operators.
    pub runtime_calls: Vec<RuntimeCall>,
    /// Kernels, copies and fills on GPUs, in the order of the file.
    pub activities: Vec<Activity>,
    /// What [`Activity::details`] stands for: each once, because launches repeat.
    pub details: Vec<ActivityDetails>,
    /// Allocations and frees, in order of time.
    pub memory: Vec<MemoryEvent>,
    /// Python's own frames (`with_stack=True`), in the order of operators. Empty where
    /// [`super::chrome_trace::Options::python_frames`] says so.
    pub python_frames: Vec<PythonFrame>,
    /// Instants without a duration, such as `Iteration Start: PyTorch Profiler`.
    pub instants: Vec<Instant>,
    /// What the GPUs' own counters counted, where the profiler was asked to read them.
    pub counters: Option<HardwareCounters>,
    /// The GPUs of the machine, used or not.
    pub devices: Vec<DeviceProperties>,
    /// This process's place in a distributed run.
    pub distributed: Option<Distributed>,
    /// Names that the trace gives to processes, by number, such as `(4242, "python3")`.
    pub process_names: Vec<(i64, StringId)>,
    /// What was added to each time of the file to reach the realtime clock; 0 where the file's times
    /// are kept as they are.
    pub base_time_ns: i64,
    /// The bytes of JSON (after inflating) that were read, where the file ended too early.
    pub truncated_at: Option<u64>,
    /// Events that say too little to be used, such as a kernel without a time.
    pub unusable_events: u64,
    /// Events whose duration was negative, because the profiler's clocks crossed: it counts as 0.
    pub negative_durations: u64,
}

impl Trace {
    /// The string of an id of this trace.
    pub fn text(&self, id: StringId) -> &str {
        self.strings.get(id)
    }

    /// The string of an id of this trace, empty where there is none.
    pub fn text_or_empty(&self, id: Option<StringId>) -> &str {
        id.map_or("", |id| self.strings.get(id))
    }

    /// Where an activity ran and how it was launched.
    pub fn details(&self, activity: &Activity) -> ActivityDetails {
        self.details.get(activity.details.0 as usize).copied().unwrap_or_default()
    }

    /// The operating system's number of a thread, as the manifest has it.
    pub fn thread_number(&self, thread: ThreadId) -> Option<i64> {
        self.text(self.threads.get(thread.index())?.thread).parse().ok()
    }

    /// The properties of a GPU.
    pub fn device(&self, number: i64) -> Option<&DeviceProperties> {
        self.devices.iter().find(|device| device.number == number)
    }
}

/// Index into [`Trace::threads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u32);

impl ThreadId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A thread of a process, both as the trace writes them: mostly a number, sometimes a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// `pid`.
    pub process: StringId,
    /// `tid`.
    pub thread: StringId,
}

/// A call of an operator, of an autograd node, or of the engine around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operator {
    /// `aten::mm`, `MmBackward0`, `autograd::engine::evaluate_function: MmBackward0`.
    pub name: StringId,
    /// Where it ran.
    pub thread: ThreadId,
    /// Nanoseconds.
    pub start_ns: i64,
    /// Nanoseconds, not negative.
    pub duration_ns: i64,
    /// Autograd's number, which a forward operator and its backward node share.
    pub sequence: OptionalU64,
    /// Of a backward node: the thread of its forward operator, counted by autograd from 1. Zero and
    /// nothing mean a forward operator.
    pub forward_thread: OptionalU64,
    /// The JSON text of `Input Dims`: `[[32, 3, 7, 7], [], [[8], [8]]]`.
    pub input_dims: Option<StringId>,
    /// The JSON text of `Input type`: `["float", "Scalar", "TensorList"]`.
    pub input_types: Option<StringId>,
    /// The JSON text of `Concrete Inputs`: `["", "1", "[2, 2]"]`.
    pub concrete_inputs: Option<StringId>,
    /// Python's stack, innermost first, `file.py(12): function` joined by `;` (2021 to 2022).
    pub call_stack: Option<StringId>,
}

impl Operator {
    /// When it ended, in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// A range that the program, the optimizer or the loader named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// `ProfilerStep#3`.
    pub name: StringId,
    /// Where it ran.
    pub thread: ThreadId,
    /// Nanoseconds.
    pub start_ns: i64,
    /// Nanoseconds, not negative.
    pub duration_ns: i64,
}

impl Annotation {
    /// When it ended, in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// A call of CUDA's or HIP's runtime or driver interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeCall {
    /// `cudaLaunchKernel`.
    pub name: StringId,
    /// Where it ran.
    pub thread: ThreadId,
    /// Nanoseconds.
    pub start_ns: i64,
    /// Nanoseconds, not negative.
    pub duration_ns: i64,
    /// The number that it shares with what it started on the GPU.
    pub correlation: OptionalU64,
}

impl RuntimeCall {
    /// When it ended, in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// What kind of work a GPU did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActivityKind {
    /// A kernel, communication kernels included.
    Kernel,
    /// A copy.
    Memcpy,
    /// A fill.
    Memset,
}

/// A kernel, copy or fill on a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activity {
    /// The kernel's name as the profiler gives it, or `Memcpy HtoD (Pageable -> Device)`.
    pub name: StringId,
    /// Kernel, copy or fill.
    pub kind: ActivityKind,
    /// Nanoseconds.
    pub start_ns: i64,
    /// Nanoseconds, not negative.
    pub duration_ns: i64,
    /// The number that it shares with the runtime call that started it.
    pub correlation: OptionalU64,
    /// See [`Trace::details`].
    pub details: DetailsId,
}

impl Activity {
    /// When it ended, in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// Index into [`Trace::details`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DetailsId(pub u32);

/// Where an activity ran, and how it was launched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ActivityDetails {
    /// The GPU's number.
    pub device: Option<i64>,
    /// The stream's number.
    pub stream: Option<i64>,
    /// Bytes that were copied or filled.
    pub bytes: Option<u64>,
    /// Of what a CUDA graph ran: the number of its node, which grows in the order in which the nodes of
    /// a graph were made. Older profilers do not write it.
    pub graph_node: Option<u64>,
    /// How a kernel was launched.
    pub launch: Launch,
}

/// An allocation (positive bytes) or a free (negative bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEvent {
    /// Nanoseconds.
    pub time_ns: i64,
    /// Where it ran.
    pub thread: ThreadId,
    /// Signed: a free is negative.
    pub bytes: i64,
    /// Traces of 2021 have none.
    pub address: OptionalU64,
    /// As torch numbers them: 0 CPU, 1 CUDA and ROCm.
    pub device_type: Option<i8>,
    /// The device's number; the CPU is -1.
    pub device: Option<i16>,
    /// Bytes that the allocator had given out after this event. Traces of 2021 have none.
    pub total_allocated: OptionalI64,
}

/// A frame of Python, recorded with `with_stack=True` since 2022.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonFrame {
    /// `train.py(31): main`, `<built-in method mm of type object at 0x7f…>`, `nn.Module: Linear_0`.
    pub name: StringId,
    /// Where it ran.
    pub thread: ThreadId,
    /// Nanoseconds.
    pub start_ns: i64,
    /// Nanoseconds, not negative.
    pub duration_ns: i64,
}

impl PythonFrame {
    /// When it ended, in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// What NVIDIA's counters counted, as torch's profiler has it from CUPTI's range profiler
/// (`_ExperimentalConfig(profiler_metrics=["kineto__cuda_core_flops", "kineto__tensor_core_insts"])`).
/// It runs each kernel several times and records no kernels beside, so there are no times to it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HardwareCounters {
    /// Kernels, or ranges of them.
    pub ranges: u64,
    /// Floating-point operations outside tensor cores, of threads whose predicate was on; nothing where
    /// they were not asked for.
    pub flops: Option<f64>,
    /// Instructions of tensor cores; nothing likewise.
    pub tensor_instructions: Option<f64>,
}

/// Something that happened at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    /// `Record Window End`.
    pub name: StringId,
    /// Nanoseconds.
    pub time_ns: i64,
}

/// What the trace says about one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceProperties {
    /// Its number.
    pub number: i64,
    /// `NVIDIA H100 80GB HBM3`, `AMD Instinct MI300X`.
    pub name: String,
    /// Compute capability, such as `(9, 0)`; on ROCm the architecture's number.
    pub capability: Option<(u32, u32)>,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: Option<u32>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Threads that execute in lockstep: 32, on most of AMD's 64.
    pub warp_size: Option<u32>,
    /// Threads that a multiprocessor can hold.
    pub max_threads_per_multiprocessor: Option<u32>,
}

impl DeviceProperties {
    /// Whether it is one of AMD's, whose traces come from ROCm.
    pub fn is_amd(&self) -> bool {
        self.name.starts_with("AMD")
    }
}

/// A process's place in a distributed run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distributed {
    /// `nccl`.
    pub backend: Option<String>,
    /// This process.
    pub rank: Option<i64>,
    /// How many processes there are.
    pub world_size: Option<i64>,
}

/// Something that took its time on a thread.
pub trait Interval {
    /// Where it ran.
    fn thread(&self) -> ThreadId;
    /// When it began, in nanoseconds.
    fn start_ns(&self) -> i64;
    /// When it ended, in nanoseconds.
    fn end_ns(&self) -> i64;
}

macro_rules! interval {
    ($($type:ty),*) => {
        $(impl Interval for $type {
            fn thread(&self) -> ThreadId {
                self.thread
            }
            fn start_ns(&self) -> i64 {
                self.start_ns
            }
            fn end_ns(&self) -> i64 {
                <$type>::end_ns(self)
            }
        })*
    };
}

interval!(Operator, Annotation, RuntimeCall, PythonFrame);
