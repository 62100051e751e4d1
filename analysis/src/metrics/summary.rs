//! What `ridgeline analyze` says of a trace that was recorded elsewhere, as the terminal prints it
//! and as `--json` writes it.
//!
//! The JSON has the keys of `profile --json` (`docs/schema/analysis.schema.json`), null where a trace cannot tell, and
//! `gpu`, `kernels` and what else a trace tells besides.

use std::collections::HashMap;

use serde::{Serialize, Serializer};

use super::activity::{ActivityFacts, LaunchDelay, NameTotal, StreamFacts, activity_facts};
use super::host_lines::{HostLine, host_lines};
use super::launch_overhead::{LaunchOverhead, launch_overhead};
use super::occupancy::occupancy_of;
use super::operator_time::{operator_phases, operator_places, operator_totals};
use super::step_time::{median_step, profiler_steps, steps};
use crate::present::explained::{
    BoundEntry, UtilizationEntry, bound_entry, facts, utilization_entry,
};
use crate::profile::{PhaseTimes, Profile};
use crate::recording::StringId;
use crate::recording::correlation::{operator_of_runtime_calls, runtime_call_of_activities};
use crate::recording::trace::{ActivityKind, Trace};

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
    /// What bounds an iteration; null where none can be replayed.
    pub bound: Option<BoundEntry>,
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

/// GPU activity, in exact nanoseconds of the trace; see [`ActivityFacts`].
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

/// Summarizes a trace.
pub fn summarize(trace: &Trace) -> TraceSummary {
    let calls = runtime_call_of_activities(trace);
    let operator_of_call = operator_of_runtime_calls(trace);
    let operator_of_activity: Vec<Option<usize>> =
        calls.iter().map(|call| *operator_of_call.get((*call)?)?).collect();
    let facts = activity_facts(trace, &calls);
    let places = operator_places(&trace.operators);
    let phases = operator_phases(trace, &places);
    let found_steps = steps(trace);
    let median = found_steps.as_ref().and_then(|s| median_step(trace, s, &places, &phases));
    let lines = host_lines(trace, &places, &phases, &operator_of_activity);
    let memory = memory(trace);
    TraceSummary {
        schema: 1,
        device: device(trace),
        iteration: iteration(
            median,
            found_steps.as_ref().map(|steps| steps.found_by),
            found_steps.as_ref().map_or(0, |steps| steps.windows.len()),
        ),
        coverage: CoverageSummary { time: lines.coverage, memory: None },
        lines: lines.lines.into_iter().map(line).collect(),
        modules: [],
        kernels: facts.as_ref().map_or_else(Vec::new, |facts| kernels(trace, facts)),
        copies: facts.as_ref().map_or_else(Vec::new, |facts| copies(trace, facts)),
        operators: operator_totals(trace, &places, &operator_of_activity)
            .into_iter()
            .map(|total| OperatorSummary {
                name: shown_name(trace, total.name),
                calls: total.calls,
                self_ns: total.self_ns,
                device_ns: total.device_ns,
            })
            .collect(),
        steps: profiler_steps(trace)
            .map(|step| StepSummary {
                name: shown_name(trace, step.name),
                start_ns: step.start_ns,
                duration_ns: step.duration_ns,
            })
            .collect(),
        trace: file(trace),
        notes: notes(trace, facts.as_ref(), &memory),
        gpu: facts.map(|facts| GpuSummary {
            launch_overhead: launch_overhead(trace, &calls),
            ..gpu(facts)
        }),
        memory,
        bound: None,
        utilization: None,
        counters: trace.counters.map(|counters| CounterSummary {
            ranges: counters.ranges,
            flops: counters.flops,
            tensor_instructions: counters.tensor_instructions,
        }),
    }
}

impl TraceSummary {
    /// Adds what only the replay of an iteration tells: `profile` is what attribution makes of the
    /// same trace.
    pub fn explain(&mut self, profile: &Profile) {
        self.bound = profile.bound.as_ref().map(|bound| bound_entry(bound, profile));
        self.utilization = profile.metrics.as_ref().map(|metrics| Explained {
            entry: utilization_entry(&metrics.whole, metrics.iteration_ns, profile),
            facts: facts(&metrics.whole, metrics.iteration_ns, profile, metrics.on_gpu),
        });
    }
}

fn device(trace: &Trace) -> DeviceSummary {
    let index = trace.activities.iter().find_map(|activity| activity.device);
    let used_gpu = !trace.activities.is_empty();
    let properties = index.and_then(|index| trace.device(index));
    let calls_hip =
        || trace.runtime_calls.iter().any(|call| trace.text(call.name).starts_with("hip"));
    let kind = match properties {
        _ if !used_gpu => "cpu",
        Some(properties) if properties.is_amd() => "rocm",
        _ if calls_hip() => "rocm",
        _ => "cuda",
    };
    DeviceSummary {
        name: match properties.map(|properties| properties.name.as_str()) {
            None | Some("") => "unknown".to_owned(),
            Some(name) => name.to_owned(),
        },
        kind,
        index,
        capability: properties.and_then(|properties| properties.capability),
        multiprocessors: properties.and_then(|properties| properties.multiprocessors),
    }
}

fn iteration(
    median: Option<PhaseTimes>,
    found_by: Option<&'static str>,
    iterations: usize,
) -> IterationSummary {
    let Some(times) = median else { return IterationSummary::default() };
    IterationSummary {
        time_ms: Some(milliseconds(times.total())),
        forward_ms: Some(milliseconds(times.forward)),
        backward_ms: Some(milliseconds(times.backward)),
        optimizer_ms: Some(milliseconds(times.optimizer)),
        data_ms: Some(milliseconds(times.data)),
        other_ms: Some(milliseconds(times.other)),
        samples_per_s: None,
        batch_size: None,
        iterations,
        found_by,
    }
}

fn memory(trace: &Trace) -> MemorySummary {
    let mut peaks: Vec<DevicePeak> = Vec::new();
    for event in &trace.memory {
        let Some(total) = event.total_allocated.and_then(|total| u64::try_from(total).ok()) else {
            continue;
        };
        let (device_type, device) = (event.device_type, event.device);
        let known = peaks.iter().position(|p| (p.device_type, p.device) == (device_type, device));
        if let Some(peak) = known.and_then(|place| peaks.get_mut(place)) {
            peak.peak_bytes = peak.peak_bytes.max(total);
        } else if peaks.len() < MOST_DEVICES {
            peaks.push(DevicePeak { device_type, device, peak_bytes: total });
        }
    }
    const CPU: Option<i64> = Some(0);
    let on_gpu = peaks.iter().filter(|peak| peak.device_type != CPU);
    let largest = on_gpu.max_by_key(|peak| peak.peak_bytes);
    // The allocator of the host counts only what it gave out while the trace was recorded.
    let shown = largest.or_else(|| peaks.first().filter(|_| trace.activities.is_empty()));
    MemorySummary {
        peak_bytes: shown.map(|peak| peak.peak_bytes),
        capacity_bytes: shown
            .filter(|peak| peak.device_type != CPU)
            .and_then(|peak| trace.device(peak.device?)?.memory_bytes),
        at_peak: MemoryKinds::default(),
        events: trace.memory.len(),
        peaks,
    }
}

/// No machine has more; a trace that names more makes them up.
const MOST_DEVICES: usize = 1024;

fn line(line: HostLine) -> LineSummary {
    LineSummary {
        file: line.file,
        line: line.line,
        end_line: line.line,
        scope: line.scope,
        self_ms: milliseconds(line.self_ns),
        total_ms: milliseconds(line.total.total()),
        forward_ms: milliseconds(line.total.forward),
        backward_ms: milliseconds(line.total.backward),
        optimizer_ms: milliseconds(line.total.optimizer),
        data_ms: milliseconds(line.total.data),
        calls: line.calls,
        device_ms: milliseconds(line.device_ns),
        memory: MemoryKinds::default(),
    }
}

fn gpu(facts: ActivityFacts) -> GpuSummary {
    GpuSummary {
        span_ns: facts.span_ns,
        busy_ns: facts.busy_ns,
        idle_ns: facts.idle_ns,
        kernel_ns: facts.kernel_ns,
        compute_ns: facts.compute_ns,
        communication_ns: facts.communication_ns,
        exposed_communication_ns: facts.exposed_communication_ns,
        memory_ns: facts.memory_ns,
        exposed_ns: facts.exposed_ns,
        activities: facts.activities,
        kernels: facts.kernels,
        leaked: facts.unlinked,
        leaked_ns: facts.unlinked_ns,
        streams: facts.streams,
        launch_to_start: facts.launch_delay,
        launch_overhead: None,
    }
}

fn kernels(trace: &Trace, facts: &ActivityFacts) -> Vec<KernelSummary> {
    let occupancies = mean_occupancies(trace);
    facts
        .names
        .iter()
        .map(|total: &NameTotal| KernelSummary {
            name: shown_name(trace, total.name),
            calls: total.calls,
            total_ns: total.total_ns,
            kind: match total.kind {
                ActivityKind::Kernel => "kernel",
                ActivityKind::Memcpy => "memcpy",
                ActivityKind::Memset => "memset",
            },
            occupancy: occupancies.get(&total.name).map(|mean| mean.occupied_ns / mean.total_ns),
        })
        .collect()
}

#[derive(Clone, Copy, Debug, Default)]
struct MeanOccupancy {
    occupied_ns: f64,
    total_ns: f64,
}

fn mean_occupancies(trace: &Trace) -> HashMap<StringId, MeanOccupancy> {
    let mut means = HashMap::new();
    for activity in &trace.activities {
        if let Some(found) = occupancy_of(trace, activity) {
            // At least one nanosecond, so that a kernel without a duration has an occupancy too.
            let time = activity.duration_ns.max(1) as f64;
            let mean: &mut MeanOccupancy = means.entry(activity.name).or_default();
            mean.occupied_ns += found.achieved * time;
            mean.total_ns += time;
        }
    }
    means
}

fn copies(trace: &Trace, facts: &ActivityFacts) -> Vec<CopySummary> {
    facts
        .copies
        .iter()
        .map(|copy| CopySummary {
            name: shown_name(trace, copy.name),
            calls: copy.calls,
            bytes: copy.bytes,
            total_ns: copy.total_ns,
            gigabytes_per_s: copy.gigabytes_per_second(),
        })
        .collect()
}

fn file(trace: &Trace) -> FileSummary {
    FileSummary {
        base_time_ns: trace.base_time_ns,
        operators: trace.operators.len(),
        runtime_calls: trace.runtime_calls.len(),
        python_frames: trace.python_frames.len(),
        rank: trace.distributed.as_ref().and_then(|distributed| distributed.rank),
        world_size: trace.distributed.as_ref().and_then(|distributed| distributed.world_size),
        truncated_at: trace.truncated_at,
        unusable_events: trace.unusable_events,
    }
}

fn notes(trace: &Trace, facts: Option<&ActivityFacts>, memory: &MemorySummary) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(bytes) = trace.truncated_at {
        notes.push(format!(
            "the file ends too early, after {bytes} bytes of JSON: what came before is counted, the \
             rest is missing"
        ));
    }
    if trace.unusable_events > 0 {
        notes.push(format!(
            "{} events say too little to be used (no time, or no name)",
            trace.unusable_events
        ));
    }
    if let Some(facts) = facts.filter(|facts| facts.unlinked > 0) {
        notes.push(format!(
            "{} of {} GPU activities have no launch in the trace: they were launched before the \
             recording began, and belong to no operator",
            facts.unlinked, facts.activities
        ));
    }
    if !trace.python_frames.is_empty() {
        notes.push(
            "lines are those where functions begin, because that is what the profiler's frames name"
                .to_owned(),
        );
    }
    if memory.events > 0 && memory.peaks.is_empty() {
        notes.push(
            "memory events of this age tell no totals, so that the peak is unknown".to_owned(),
        );
    }
    notes
}

fn shown_name(trace: &Trace, name: StringId) -> String {
    trace.text(name).chars().take(NAME_CHARACTERS).collect()
}

fn milliseconds(nanoseconds: f64) -> f64 {
    nanoseconds / 1e6
}
