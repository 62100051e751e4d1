//! Summarizes a trace.

use std::collections::HashMap;

use super::{
    CopySummary, CounterSummary, CoverageSummary, DevicePeak, DeviceSummary, Explained,
    FileSummary, GpuSummary, IterationSummary, KernelSummary, LineSummary, MemoryKinds,
    MemorySummary, NAME_CHARACTERS, OperatorSummary, StepSummary, TraceSummary,
};
use crate::bottleneck::entry;
use crate::explained::{facts, utilization_entry};
use ridgeline_attribution::metrics::activity::{ActivityFacts, NameTotal, activity_facts};
use ridgeline_attribution::metrics::host_lines::{HostLine, host_lines};
use ridgeline_attribution::metrics::launch_overhead::launch_overhead;
use ridgeline_attribution::metrics::operator_time::{
    operator_phases, operator_places, operator_totals,
};
use ridgeline_attribution::metrics::step_time::phases_of_step;
use ridgeline_attribution::metrics::trace_steps::{TraceSteps, profiler_steps};
use ridgeline_base::units::duration;
use ridgeline_profile::{Phase, PhaseTimes, Profile};
use ridgeline_recording::StringId;
use ridgeline_recording::correlation::{operator_of_runtime_calls, runtime_call_of_activities};
use ridgeline_recording::occupancy::occupancy_of;
use ridgeline_recording::trace::{ActivityKind, Trace};

/// Returns the summary of a trace.
pub fn summarize(trace: &Trace) -> TraceSummary {
    let calls = runtime_call_of_activities(trace);
    let operator_of_call = operator_of_runtime_calls(trace);
    let operator_of_activity: Vec<Option<usize>> =
        calls.iter().map(|call| *operator_of_call.get((*call)?)?).collect();
    let facts = activity_facts(trace, &calls);
    let places = operator_places(&trace.operators);
    let phases = operator_phases(trace, &places);
    let steps = TraceSteps::new(trace);
    let median = steps.as_ref().and_then(TraceSteps::median);
    let times = median.map(|median| phases_of_step(trace, median, &places, &phases));
    let uneven = steps.as_ref().zip(times);
    let uneven = uneven.and_then(|(steps, times)| {
        let whole = phases_of_step(trace, steps.whole()?, &places, &phases);
        note_on_uneven_steps(steps, &times, &whole)
    });
    let lines = host_lines(trace, &places, &phases, &operator_of_activity);
    let memory = memory(trace);
    TraceSummary {
        schema: 1,
        device: device(trace),
        iteration: steps.map_or_else(IterationSummary::default, |steps| IterationSummary {
            host_ms: median.map(|median| milliseconds(median.host_ns() as f64)),
            ..iteration(&steps, times.unwrap_or_default())
        }),
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
        notes: notes(trace, facts.as_ref(), &memory).into_iter().chain(uneven).collect(),
        gpu: facts.map(|facts| GpuSummary {
            launch_overhead: launch_overhead(trace, &calls),
            ..gpu(facts)
        }),
        memory,
        bottleneck: None,
        utilization: None,
        counters: trace.counters.map(|counters| CounterSummary {
            ranges: counters.ranges,
            flops: counters.flops,
            tensor_instructions: counters.tensor_instructions,
        }),
    }
}

impl TraceSummary {
    /// Adds the results of replaying an iteration. `profile` is the attribution of the same trace.
    pub fn explain(&mut self, profile: &Profile) {
        self.bottleneck = profile.bottleneck.as_ref().map(|found| entry(found, profile));
        self.utilization = profile.metrics.as_ref().map(|metrics| Explained {
            entry: utilization_entry(&metrics.whole, metrics.iteration_ns, profile),
            facts: facts(&metrics.whole, metrics.iteration_ns, profile, metrics.on_gpu),
        });
    }
}

fn device(trace: &Trace) -> DeviceSummary {
    let properties = trace.used_properties();
    DeviceSummary {
        name: match properties.map(|properties| properties.name.as_str()) {
            None | Some("") => "unknown".to_owned(),
            Some(name) => name.to_owned(),
        },
        kind: trace.device_kind(),
        index: trace.used_device(),
        capability: properties.and_then(|properties| properties.capability),
        multiprocessors: properties.and_then(|properties| properties.multiprocessors),
    }
}

fn iteration(steps: &TraceSteps, times: PhaseTimes) -> IterationSummary {
    let shown = |time_ns: Option<&u64>| time_ns.map(|time_ns| milliseconds(*time_ns as f64));
    IterationSummary {
        time_ms: Some(milliseconds(times.total())),
        forward_ms: Some(milliseconds(times.forward)),
        backward_ms: Some(milliseconds(times.backward)),
        optimizer_ms: Some(milliseconds(times.optimizer)),
        data_ms: Some(milliseconds(times.data)),
        other_ms: Some(milliseconds(times.other)),
        shortest_ms: shown(steps.times_ns.iter().min()),
        longest_ms: shown(steps.times_ns.iter().max()),
        iterations: steps.windows.len(),
        found_by: Some(steps.found_by),
        ..IterationSummary::default()
    }
}

/// Returns a note if the mean iteration is much longer than the median one: then the median hides
/// what makes the others slow. `whole` has the phases of all iterations together.
fn note_on_uneven_steps(
    steps: &TraceSteps,
    median: &PhaseTimes,
    whole: &PhaseTimes,
) -> Option<String> {
    const MIN_RATIO: f64 = 1.25;
    let mean_ns = steps.mean_ns();
    if mean_ns < MIN_RATIO * median.total() {
        return None;
    }
    let mean_of = |phase: Phase| whole.get(phase) / steps.windows.len().max(1) as f64;
    let excess = |phase: Phase| mean_of(phase) - median.get(phase);
    let phase = Phase::ALL.into_iter().max_by(|a, b| excess(*a).total_cmp(&excess(*b)))?;
    Some(format!(
        "steps take {} on average, more than the median of {}: the largest difference is in {} ({} \
        on average, {} in the median step); the bottleneck is that of the median step",
        duration(mean_ns),
        duration(median.total()),
        phase.name(),
        duration(mean_of(phase)),
        duration(median.get(phase)),
    ))
}

fn memory(trace: &Trace) -> MemorySummary {
    let mut peaks: Vec<DevicePeak> = Vec::new();
    for event in &trace.memory {
        let Some(total) = event.total_allocated.get().and_then(|total| u64::try_from(total).ok())
        else {
            continue;
        };
        let device_type = event.device_type.map(i64::from);
        let device = event.device.map(i64::from);
        let known = peaks.iter().position(|p| (p.device_type, p.device) == (device_type, device));
        if let Some(peak) = known.and_then(|place| peaks.get_mut(place)) {
            peak.peak_bytes = peak.peak_bytes.max(total);
        } else if peaks.len() < MAX_DEVICES {
            peaks.push(DevicePeak { device_type, device, peak_bytes: total });
        }
    }
    const CPU: Option<i64> = Some(0);
    let on_gpu = peaks.iter().filter(|peak| peak.device_type != CPU);
    let largest = on_gpu.max_by_key(|peak| peak.peak_bytes);
    // The host allocator only counts what it allocated while the trace was recorded.
    let shown = largest.or_else(|| peaks.first().filter(|_| trace.device_kind() == "cpu"));
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

/// The maximum number of devices. No machine has more, so a trace with more is invalid.
const MAX_DEVICES: usize = 1024;

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
            // At least one nanosecond, to include kernels without a duration.
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
    if let Some(why) = trace.missing_activities() {
        notes.push(format!("the trace has no GPU activities, so the bottleneck is unknown: {why}"));
    } else if let Some(note) = trace.truncation_note() {
        notes.push(format!("{note} and the bottleneck is unknown"));
    }
    if trace.unusable_events > 0 {
        notes.push(format!(
            "{} events are incomplete (no time or no name) and are ignored",
            trace.unusable_events
        ));
    }
    if trace.negative_durations > 0 {
        notes.push(format!(
            "{} events have a negative duration because the profiler's clocks disagree: they count \
            as 0",
            trace.negative_durations
        ));
    }
    if let Some(facts) = facts.filter(|facts| facts.unlinked > 0) {
        notes.push(format!(
            "{} of {} GPU activities have no launch in the trace: they were launched before the \
            recording and belong to no operator",
            facts.unlinked, facts.activities
        ));
    }
    if !trace.python_frames.is_empty() {
        notes.push(
            "lines are function definitions, because the profiler's frames name only those"
                .to_owned(),
        );
    }
    if memory.events > 0 && memory.peaks.is_empty() {
        notes.push(
            "this trace's memory events have no totals, so peak memory is unknown".to_owned(),
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
