//! The GPU at each instant of the iterations, by context.
//!
//! An instant at which kernels run belongs to them, in equal parts if several run concurrently. An
//! instant at which none runs belongs to the host's context. So the parts add up to the iteration,
//! whatever waits for what.

use super::contexts::{ContextId, Contexts};
use super::join::Join;
use super::replays::Replays;
use crate::metrics::activity::activity_facts;
use ridgeline_devices::device_spec::Ceilings;
use ridgeline_devices::device_table;
use ridgeline_profile::{Device, GpuActivity};
use ridgeline_recording::correlation;
use ridgeline_recording::manifest::Manifest;
use ridgeline_recording::trace::{ActivityKind, Trace};

/// The launches of GPU activities.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// By activity: the runtime call; `None` if it was launched before the recording began.
    calls: Vec<Option<usize>>,
    /// By runtime call: the innermost operator around it.
    operators: Vec<Option<usize>>,
    /// By runtime call: its context.
    pub contexts: Vec<ContextId>,
    /// Activities launched by CUDA graphs.
    pub replays: Replays,
}

impl Launches {
    pub(crate) fn new(
        join: &Join<'_>,
        contexts: &mut Contexts<'_>,
        manifest: Option<&Manifest>,
    ) -> Launches {
        let trace = join.trace;
        if trace.activities.is_empty() && trace.runtime_calls.is_empty() {
            return Launches::default();
        }
        let operators = correlation::operator_of_runtime_calls(trace);
        let of_calls = trace
            .runtime_calls
            .iter()
            .zip(&operators)
            .map(|(call, operator)| {
                let operator = operator.map(|operator| operator as u32);
                contexts.of_moment(operator, join.places.at(call.thread, call.start_ns))
            })
            .collect();
        let calls = correlation::runtime_call_of_activities(trace);
        let replays = manifest
            .map(|manifest| Replays::new(join, &manifest.cuda_graphs, &calls))
            .unwrap_or_default();
        Launches { calls, operators, contexts: of_calls, replays }
    }

    /// Returns the runtime call that launched an activity.
    pub(crate) fn call(&self, activity: usize) -> Option<usize> {
        self.calls.get(activity).copied().flatten()
    }

    /// Returns the runtime call that launched an activity; for an activity of a CUDA graph, the
    /// captured call that created its node.
    fn written_call(&self, activity: usize) -> Option<usize> {
        self.replays.captured_call(activity).or_else(|| self.call(activity))
    }

    /// Returns the innermost operator around that call.
    pub(crate) fn operator(&self, activity: usize) -> Option<usize> {
        self.operators.get(self.written_call(activity)?).copied().flatten()
    }

    /// Returns the context of an activity.
    pub(crate) fn context(&self, activity: usize) -> Option<ContextId> {
        self.contexts.get(self.written_call(activity)?).copied()
    }
}

/// The intervals in which any GPU activity ran, and each activity's part of them.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// The intervals, sorted and without overlaps.
    pub intervals: Vec<(i64, i64)>,
    /// By activity: its equal part of the instants at which it ran, within the windows, in
    /// nanoseconds. The sum equals that of the intervals.
    pub parts: Vec<f64>,
}

impl Busy {
    /// `windows` must be sorted and must not overlap.
    pub(crate) fn new(trace: &Trace, windows: &[(i64, i64)]) -> Busy {
        let mut changes: Vec<(i64, bool, usize)> = Vec::new();
        for (index, activity) in trace.activities.iter().enumerate() {
            let (start_ns, end_ns) = (activity.start_ns, activity.end_ns());
            let first = windows.partition_point(|&(_, window_end)| window_end <= start_ns);
            for &(window_start, window_end) in windows.get(first..).unwrap_or_default() {
                if window_start >= end_ns {
                    break;
                }
                let (start_ns, end_ns) = (start_ns.max(window_start), end_ns.min(window_end));
                if start_ns < end_ns {
                    changes.push((start_ns, true, index));
                    changes.push((end_ns, false, index));
                }
            }
        }
        // Ends come before starts, so consecutive activities do not overlap.
        changes.sort_unstable();
        let mut busy = Busy { intervals: Vec::new(), parts: vec![0.0; trace.activities.len()] };
        // The integral over time of one over the number of running activities. An activity gets its
        // growth while the activity runs.
        let mut integral = 0.0;
        let mut running = 0_u32;
        let mut now = i64::MIN;
        for (time_ns, starts, index) in changes {
            if running > 0 && time_ns > now {
                integral += time_ns.saturating_sub(now) as f64 / f64::from(running);
                match busy.intervals.last_mut().filter(|(_, end_ns)| *end_ns == now) {
                    Some((_, end_ns)) => *end_ns = time_ns,
                    None => busy.intervals.push((now, time_ns)),
                }
            }
            now = time_ns;
            let part = busy.parts.get_mut(index);
            if starts {
                running += 1;
                if let Some(part) = part {
                    *part -= integral;
                }
            } else {
                running = running.saturating_sub(1);
                if let Some(part) = part {
                    *part += integral;
                }
            }
        }
        busy
    }
}

/// Returns the activity of the GPUs over the whole trace; `None` if there was none.
pub(super) fn activity(trace: &Trace, launches: &Launches) -> Option<GpuActivity> {
    let facts = activity_facts(trace, &launches.calls)?;
    let leaked = trace
        .activities
        .iter()
        .zip(&launches.calls)
        .filter(|(activity, call)| activity.kind == ActivityKind::Kernel && call.is_none());
    Some(GpuActivity {
        span_ns: facts.span_ns,
        busy_ns: facts.busy_ns,
        idle_ns: facts.idle_ns,
        kernel_ns: facts.kernel_ns,
        leaked_ns: leaked.fold(0, |sum, (activity, _)| {
            sum.saturating_add(activity.duration_ns.max(0).unsigned_abs())
        }),
    })
}

/// Returns the device that ran the iterations, from the manifest, else from the trace. `ceilings`
/// has its measured rates.
pub(super) fn facts(
    manifest: Option<&Manifest>,
    trace: &Trace,
    ceilings: Option<&Ceilings>,
) -> Device {
    let recorded = manifest.map(|manifest| manifest.device.clone()).unwrap_or_default();
    let in_trace = trace.used_properties();
    let kind = recorded.kind.unwrap_or_else(|| trace.device_kind().to_owned());
    let name = recorded
        .name
        .or_else(|| in_trace.map(|device| device.name.clone()))
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".to_owned());
    let is_cpu = kind == "cpu";
    let roof = if is_cpu { None } else { device_table::roof(&name) };
    Device {
        roof,
        measured_roof: ceilings.filter(|_| !is_cpu).and_then(|ceilings| ceilings.roof(roof)),
        name,
        kind,
        capability: recorded.capability.or_else(|| in_trace?.capability),
        multiprocessors: recorded.multiprocessors.or_else(|| in_trace?.multiprocessors),
        is_simulated: recorded.simulated,
    }
}
