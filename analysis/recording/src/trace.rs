//! A profiler trace in compact form: operators, launches, GPU activities and memory events.
//!
//! It represents Kineto traces of any year, on CUDA and ROCm, without information about the machine
//! or its user: the `metadata` of the trace (the environment of the recording process) is not
//! stored. Times are integer nanoseconds of the realtime clock if the trace has a base time (since
//! torch 2.4), else of the clock that the trace was recorded with. The reader ensures that every
//! `start + duration` fits in an `i64`.

use super::optional::{OptionalI64, OptionalU64};
use super::strings::{StringId, Strings};
use ridgeline_devices::occupancy::Launch;

/// The contents of one trace. [`super::chrome_trace`] reads it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Names, shapes and call stacks, by id.
    pub strings: Strings,
    /// Host threads, in the order of their first occurrence.
    pub threads: Vec<Thread>,
    /// CPU operators, sorted by thread, then start, then longest first: on a thread, an operator
    /// comes before the operators that it called.
    pub operators: Vec<Operator>,
    /// Annotations such as `ProfilerStep#3`, `Optimizer.step#SGD.step`, `nccl:all_reduce`, sorted
    /// like operators.
    pub annotations: Vec<Annotation>,
    /// Calls of the runtime or driver API, sorted like operators.
    pub runtime_calls: Vec<RuntimeCall>,
    /// Kernels, copies and fills on GPUs, in the order of the file.
    pub activities: Vec<Activity>,
    /// Distinct details, which [`Activity::details`] refers to, because launches repeat.
    pub details: Vec<ActivityDetails>,
    /// Allocations and frees, in order of time.
    pub memory: Vec<MemoryEvent>,
    /// Python frames (`with_stack=True`), sorted like operators. Empty if
    /// [`super::chrome_trace::Options::python_frames`] is false.
    pub python_frames: Vec<PythonFrame>,
    /// Instant events, such as `Iteration Start: PyTorch Profiler`.
    pub instants: Vec<Instant>,
    /// Values of the GPUs' hardware counters, if the profiler was asked to read them.
    pub counters: Option<HardwareCounters>,
    /// The GPUs of the machine, used or not.
    pub devices: Vec<DeviceProperties>,
    /// This process's rank in a distributed run.
    pub distributed: Option<Distributed>,
    /// Names of processes by number, such as `(4242, "python3")`.
    pub process_names: Vec<(i64, StringId)>,
    /// The offset that was added to each time of the file to get the realtime clock, in
    /// nanoseconds; 0 if times were not changed.
    pub base_time_ns: i64,
    /// The number of JSON bytes (after decompression) in the file, if it was truncated.
    pub truncated_at: Option<u64>,
    /// Number of events with required members missing, such as a kernel without a time.
    pub unusable_events: u64,
    /// Number of events with a negative duration, which happens when the profiler's clocks cross.
    /// They count as 0.
    pub negative_durations: u64,
}

impl Trace {
    /// Returns the string of an id of this trace.
    pub fn text(&self, id: StringId) -> &str {
        self.strings.get(id)
    }

    /// Returns the string of an id of this trace; empty for `None`.
    pub fn text_or_empty(&self, id: Option<StringId>) -> &str {
        id.map_or("", |id| self.strings.get(id))
    }

    /// Returns the device, stream and launch parameters of an activity.
    pub fn details(&self, activity: &Activity) -> ActivityDetails {
        self.details.get(activity.details.0 as usize).copied().unwrap_or_default()
    }

    /// Returns the operating system's thread id, as in the manifest.
    pub fn thread_number(&self, thread: ThreadId) -> Option<i64> {
        self.text(self.threads.get(thread.index())?.thread).parse().ok()
    }

    /// Returns the properties of a GPU. Activities of ROCm may have the number of the HSA agent,
    /// which counts CPUs, so a number without an entry has the properties that all GPUs share.
    pub fn device(&self, number: i64) -> Option<&DeviceProperties> {
        let exact = self.devices.iter().find(|device| device.number == number);
        exact.or_else(|| self.common_device())
    }

    /// Returns the properties of the first GPU if all GPUs are the same model.
    pub fn common_device(&self) -> Option<&DeviceProperties> {
        let first = self.devices.first()?;
        let is_same = |device: &DeviceProperties| {
            (&device.name, device.capability, device.multiprocessors)
                == (&first.name, first.capability, first.multiprocessors)
        };
        self.devices.iter().all(is_same).then_some(first)
    }
}

/// Index into [`Trace::threads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u32);

impl ThreadId {
    /// Returns the id as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A thread of a process, as written in the trace: usually numbers, sometimes words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// `pid`.
    pub process: StringId,
    /// `tid`.
    pub thread: StringId,
}

/// A call of an operator, of an autograd node, or of the autograd engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Name: `aten::mm`, `MmBackward0`, `autograd::engine::evaluate_function: MmBackward0`.
    pub name: StringId,
    /// The thread that ran it.
    pub thread: ThreadId,
    /// Start in nanoseconds.
    pub start_ns: i64,
    /// Duration in nanoseconds, not negative.
    pub duration_ns: i64,
    /// Autograd's sequence number, shared by a forward operator and its backward node.
    pub sequence: OptionalU64,
    /// For a backward node: autograd's number of the forward operator's thread, counted from 1.
    /// Zero or `None` for forward operators.
    pub forward_thread: OptionalU64,
    /// The JSON of `Input Dims`: `[[32, 3, 7, 7], [], [[8], [8]]]`.
    pub input_dims: Option<StringId>,
    /// The JSON of `Input type`: `["float", "Scalar", "TensorList"]`.
    pub input_types: Option<StringId>,
    /// The JSON of `Concrete Inputs`: `["", "1", "[2, 2]"]`.
    pub concrete_inputs: Option<StringId>,
    /// Python stack, innermost frame first, `file.py(12): function` joined by `;` (traces of 2021
    /// to 2022).
    pub call_stack: Option<StringId>,
}

impl Operator {
    /// Returns the end in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// A named range of the program, the optimizer or the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Name such as `ProfilerStep#3`.
    pub name: StringId,
    /// The thread that ran it.
    pub thread: ThreadId,
    /// Start in nanoseconds.
    pub start_ns: i64,
    /// Duration in nanoseconds, not negative.
    pub duration_ns: i64,
}

impl Annotation {
    /// Returns the end in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// A call of the CUDA or HIP runtime or driver API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeCall {
    /// Name such as `cudaLaunchKernel`.
    pub name: StringId,
    /// The thread that ran it.
    pub thread: ThreadId,
    /// Start in nanoseconds.
    pub start_ns: i64,
    /// Duration in nanoseconds, not negative.
    pub duration_ns: i64,
    /// Correlation id, shared with the GPU activity that it started.
    pub correlation: OptionalU64,
}

impl RuntimeCall {
    /// Returns the end in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// The kind of GPU work.
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
    /// The kernel's name from the profiler, or `Memcpy HtoD (Pageable -> Device)`.
    pub name: StringId,
    /// Kernel, copy or fill.
    pub kind: ActivityKind,
    /// Start in nanoseconds.
    pub start_ns: i64,
    /// Duration in nanoseconds, not negative.
    pub duration_ns: i64,
    /// Correlation id, shared with the runtime call that started it.
    pub correlation: OptionalU64,
    /// See [`Trace::details`].
    pub details: DetailsId,
}

impl Activity {
    /// Returns the end in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// Index into [`Trace::details`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DetailsId(pub u32);

/// Device, stream and launch parameters of an activity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ActivityDetails {
    /// The GPU's number.
    pub device: Option<i64>,
    /// The stream's number.
    pub stream: Option<i64>,
    /// Number of bytes copied or filled.
    pub bytes: Option<u64>,
    /// For activities of a CUDA graph: the node's number. Numbers increase in the order in which a
    /// graph's nodes were created. Older profilers do not write it.
    pub graph_node: Option<u64>,
    /// Launch parameters of a kernel.
    pub launch: Launch,
}

/// An allocation (positive bytes) or a free (negative bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEvent {
    /// Time in nanoseconds.
    pub time_ns: i64,
    /// The thread that ran it.
    pub thread: ThreadId,
    /// Size in bytes, negative for a free.
    pub bytes: i64,
    /// Address. Traces of 2021 have none.
    pub address: OptionalU64,
    /// PyTorch's device type: 0 CPU, 1 CUDA and ROCm.
    pub device_type: Option<i8>,
    /// The device's number; the CPU is -1.
    pub device: Option<i16>,
    /// Total bytes allocated after this event. Traces of 2021 have none.
    pub total_allocated: OptionalI64,
}

/// A Python frame, recorded with `with_stack=True` since 2022.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonFrame {
    /// Name: `train.py(31): main`, `<built-in method mm of type object at 0x7f…>`, `nn.Module:
    /// Linear_0`.
    pub name: StringId,
    /// The thread that ran it.
    pub thread: ThreadId,
    /// Start in nanoseconds.
    pub start_ns: i64,
    /// Duration in nanoseconds, not negative.
    pub duration_ns: i64,
}

impl PythonFrame {
    /// Returns the end in nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// Values of NVIDIA's hardware counters, which PyTorch's profiler reads with CUPTI's range profiler
/// (`_ExperimentalConfig(profiler_metrics=["kineto__cuda_core_flops",
/// "kineto__tensor_core_insts"])`). CUPTI replays each kernel several times and the profiler
/// records no kernel events then, so there are no times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HardwareCounters {
    /// Number of kernels, or of ranges of kernels.
    pub ranges: u64,
    /// Floating-point operations outside of tensor cores, of threads whose predicate was on; `None`
    /// if not requested.
    pub flops: Option<f64>,
    /// Tensor core instructions; `None` if not requested.
    pub tensor_instructions: Option<f64>,
}

/// An event without a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    /// Name such as `Record Window End`.
    pub name: StringId,
    /// Time in nanoseconds.
    pub time_ns: i64,
}

/// The properties of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceProperties {
    /// Device number.
    pub number: i64,
    /// Name: `NVIDIA H100 80GB HBM3`, `AMD Instinct MI300X`.
    pub name: String,
    /// Compute capability, such as `(9, 0)`; on ROCm the architecture's number.
    pub capability: Option<(u32, u32)>,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: Option<u32>,
    /// Memory size in bytes.
    pub memory_bytes: Option<u64>,
    /// Warp size: 32, or 64 on most AMD GPUs.
    pub warp_size: Option<u32>,
    /// Maximum number of resident threads per multiprocessor.
    pub max_threads_per_multiprocessor: Option<u32>,
}

impl DeviceProperties {
    /// Whether it is an AMD GPU, whose traces come from ROCm. Some of its drivers report no name.
    pub fn is_amd(&self) -> bool {
        self.name.starts_with("AMD") || self.warp_size == Some(64)
    }
}

/// A process's rank in a distributed run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distributed {
    /// Backend such as `nccl`.
    pub backend: Option<String>,
    /// The rank of this process.
    pub rank: Option<i64>,
    /// The number of processes.
    pub world_size: Option<i64>,
}

/// Something with a duration on a thread.
pub trait Interval {
    /// Returns the thread that ran it.
    fn thread(&self) -> ThreadId;
    /// Returns the start in nanoseconds.
    fn start_ns(&self) -> i64;
    /// Returns the end in nanoseconds.
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
