//! GPU activity, in exact nanoseconds of the trace.

use std::collections::HashMap;

use serde::Serialize;

use super::communication::Communication;
use ridgeline_base::intervals::union_ns;
use ridgeline_recording::StringId;
use ridgeline_recording::trace::{Activity, ActivityKind, Trace};

/// Statistics of all GPU activities (kernels, copies and fills) of a trace. Durations are in
/// nanoseconds; a union counts a moment once, however many activities overlap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActivityFacts {
    /// Number of kernels, copies and fills.
    pub activities: u64,
    /// Number of kernels, including communication.
    pub kernels: u64,
    /// From the first start to the last end.
    pub span_ns: u64,
    /// Union of all activities.
    pub busy_ns: u64,
    /// `span - busy`.
    pub idle_ns: u64,
    /// Sum of kernel durations.
    pub kernel_ns: u64,
    /// Union of compute kernels.
    pub compute_ns: u64,
    /// Union of kernels that communicate with other GPUs.
    pub communication_ns: u64,
    /// The part of `communication_ns` without a concurrent compute kernel.
    pub exposed_communication_ns: u64,
    /// Union of copies and fills.
    pub memory_ns: u64,
    /// Busy time without computing: `busy - compute`.
    pub exposed_ns: u64,
    /// Number of activities without a runtime call in the trace: they were launched before the
    /// recording began.
    pub unlinked: u64,
    /// Sum of their durations.
    pub unlinked_ns: u64,
    /// Statistics by stream, sorted by device, then stream.
    pub streams: Vec<StreamFacts>,
    /// Totals by name, longest first; equal ones in the order of their first occurrence.
    pub names: Vec<NameTotal>,
    /// Copies by name, in the order of their first occurrence.
    pub copies: Vec<NameTotal>,
    /// Delays from the start of the launch call to the start on the GPU.
    pub launch_delay: Option<LaunchDelay>,
}

/// One stream's activities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StreamFacts {
    /// Device number.
    pub device: Option<i64>,
    /// Stream number.
    pub stream: Option<i64>,
    /// Number of activities.
    pub activities: u64,
    /// Union of the activities.
    pub busy_ns: u64,
}

/// All activities of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameTotal {
    /// The kernel's name, or the kind of copy.
    pub name: StringId,
    /// The kind of the first one.
    pub kind: ActivityKind,
    /// Number of activities.
    pub calls: u64,
    /// Sum of the bytes copied or filled, as far as the trace contains them.
    pub bytes: u64,
    /// Sum of the durations.
    pub total_ns: u64,
}

impl NameTotal {
    /// Returns gigabytes (1e9 bytes) per second.
    pub fn gigabytes_per_second(&self) -> Option<f64> {
        // Bytes per nanosecond equal gigabytes per second.
        (self.total_ns > 0).then(|| self.bytes as f64 / self.total_ns as f64)
    }
}

/// Quantiles of the delay from launch to start, in nanoseconds, by launch call: the value at index
/// `n * quantile`, rounded down, of `n` sorted values. It can be negative, since the clocks of host
/// and GPU differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LaunchDelay {
    /// The 5% quantile.
    pub p05_ns: i64,
    /// The median.
    pub p50_ns: i64,
    /// The 95% quantile.
    pub p95_ns: i64,
}

/// Computes the statistics of a trace; `None` if there was no GPU activity. `calls` has the runtime
/// call of each activity, see [`ridgeline_recording::correlation`].
pub fn activity_facts(trace: &Trace, calls: &[Option<usize>]) -> Option<ActivityFacts> {
    let activities = &trace.activities;
    let first_start_ns = activities.iter().map(|activity| activity.start_ns).min()?;
    let last_end_ns = activities.iter().map(Activity::end_ns).max()?;
    let kernels = || activities.iter().filter(|activity| activity.kind == ActivityKind::Kernel);
    let communicating = communicating(trace);
    let union_where = |wanted: &dyn Fn(&Activity, bool) -> bool| {
        let chosen = activities.iter().zip(&communicating);
        let chosen = chosen.filter(|(activity, communicating)| wanted(activity, **communicating));
        union_ns(chosen.map(|(activity, _)| (activity.start_ns, activity.end_ns())).collect())
    };
    let is_kernel = |activity: &Activity| activity.kind == ActivityKind::Kernel;

    let span_ns = last_end_ns.abs_diff(first_start_ns);
    let busy_ns = union_where(&|_, _| true);
    let compute_ns = union_where(&|activity, communicating| is_kernel(activity) && !communicating);
    let intervals = |communicates: bool| -> Vec<(i64, i64)> {
        let all = activities.iter().zip(&communicating);
        let chosen = all.filter(|(activity, of)| is_kernel(activity) && **of == communicates);
        chosen.map(|(activity, _)| (activity.start_ns, activity.end_ns())).collect()
    };
    let communication = Communication::of(intervals(true), intervals(false));
    let copies = activities.iter().filter(|activity| activity.kind == ActivityKind::Memcpy);
    let mut names = totals(trace, activities.iter());
    names.sort_by_key(|total| std::cmp::Reverse(total.total_ns));
    let unlinked = || activities.iter().zip(calls).filter(|(_, call)| call.is_none());
    Some(ActivityFacts {
        activities: activities.len() as u64,
        kernels: kernels().count() as u64,
        span_ns,
        busy_ns,
        idle_ns: span_ns.saturating_sub(busy_ns),
        kernel_ns: sum_ns(kernels()),
        compute_ns,
        communication_ns: communication.total_ns,
        exposed_communication_ns: communication.exposed_ns,
        memory_ns: union_where(&|activity, _| !is_kernel(activity)),
        exposed_ns: busy_ns.saturating_sub(compute_ns),
        unlinked: unlinked().count() as u64,
        unlinked_ns: sum_ns(unlinked().map(|(activity, _)| activity)),
        streams: streams(trace),
        names,
        copies: totals(trace, copies),
        launch_delay: launch_delay(trace, calls),
    })
}

/// Returns whether each activity is a communication kernel. Each name is inspected once, because
/// template names are long.
pub fn communicating(trace: &Trace) -> Vec<bool> {
    let mut known: HashMap<StringId, bool> = HashMap::new();
    let mut communicates =
        |name: StringId| *known.entry(name).or_insert_with(|| is_communication(trace.text(name)));
    let activities = trace.activities.iter();
    activities.map(|one| one.kind == ActivityKind::Kernel && communicates(one.name)).collect()
}

/// Whether a kernel is a collective: those of NCCL and RCCL, of PyTorch's symmetric memory
/// (`multimem_all_reduce_kernel`, `one_shot_all_reduce_kernel`), of vLLM and TensorRT-LLM
/// (`cross_device_reduce_1stage`, `allreduce_fusion_kernel`, `moeAllToAllKernel`), and DeepEP's
/// exchange of tokens between experts (`deep_ep::internode::dispatch`).
pub fn is_communication(kernel: &str) -> bool {
    const MARKS: [&[u8]; 12] = [
        b"nccl",
        b"rccl",
        b"all_reduce",
        b"allreduce",
        b"all_gather",
        b"reduce_scatter",
        b"cross_device_reduce",
        b"nvshmem",
        b"all_to_all",
        b"alltoall",
        b"deep_ep::",
        b"::ep::",
    ];
    let name = kernel.as_bytes();
    MARKS.iter().any(|mark| name.windows(mark.len()).any(|part| part.eq_ignore_ascii_case(mark)))
}

fn sum_ns<'a>(activities: impl Iterator<Item = &'a Activity>) -> u64 {
    activities.map(|activity| activity.duration_ns.unsigned_abs()).fold(0, u64::saturating_add)
}

fn streams(trace: &Trace) -> Vec<StreamFacts> {
    type Intervals = Vec<(i64, i64)>;
    let mut by_stream: HashMap<(Option<i64>, Option<i64>), Intervals> = HashMap::new();
    for activity in &trace.activities {
        let details = trace.details(activity);
        by_stream
            .entry((details.device, details.stream))
            .or_default()
            .push((activity.start_ns, activity.end_ns()));
    }
    let mut streams: Vec<StreamFacts> = by_stream
        .into_iter()
        .map(|((device, stream), intervals)| StreamFacts {
            device,
            stream,
            activities: intervals.len() as u64,
            busy_ns: union_ns(intervals),
        })
        .collect();
    streams.sort_by_key(|facts| (facts.device, facts.stream));
    streams
}

/// Returns totals by name, in the order of the names' first occurrence.
fn totals<'a>(trace: &Trace, activities: impl Iterator<Item = &'a Activity>) -> Vec<NameTotal> {
    let mut index: HashMap<StringId, usize> = HashMap::new();
    let mut totals: Vec<NameTotal> = Vec::new();
    for activity in activities {
        let &Activity { name, kind, duration_ns, .. } = activity;
        let place = *index.entry(name).or_insert(totals.len());
        if place == totals.len() {
            totals.push(NameTotal { name, kind, calls: 0, bytes: 0, total_ns: 0 });
        }
        if let Some(total) = totals.get_mut(place) {
            total.calls += 1;
            total.bytes = total.bytes.saturating_add(trace.details(activity).bytes.unwrap_or(0));
            total.total_ns = total.total_ns.saturating_add(duration_ns.unsigned_abs());
        }
    }
    totals
}

fn launch_delay(trace: &Trace, calls: &[Option<usize>]) -> Option<LaunchDelay> {
    // The other kernels of a graph wait for its first one.
    let mut first_start_ns: HashMap<usize, i64> = HashMap::new();
    for (activity, call) in trace.activities.iter().zip(calls) {
        if let Some(call) = call {
            let first_ns = first_start_ns.entry(*call).or_insert(i64::MAX);
            *first_ns = activity.start_ns.min(*first_ns);
        }
    }
    let mut delays: Vec<i64> = first_start_ns
        .into_iter()
        .filter_map(|(call, first_ns)| {
            first_ns.checked_sub(trace.runtime_calls.get(call)?.start_ns)
        })
        .collect();
    delays.sort_unstable();
    let at = |percent: usize| delays.get(delays.len().checked_mul(percent)? / 100).copied();
    Some(LaunchDelay { p05_ns: at(5)?, p50_ns: at(50)?, p95_ns: at(95)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TraceBuilder;

    #[test]
    fn kernels_of_a_graph_do_not_add_to_the_launch_delay() {
        let mut trace = TraceBuilder::new();
        trace.replay(100, &[(1, 110, 50), (2, 160, 50), (3, 210, 50)]);
        let found = launch_delay(&trace.trace(), &[Some(0); 3]);
        assert_eq!(found, Some(LaunchDelay { p05_ns: 10, p50_ns: 10, p95_ns: 10 }));
    }

    #[test]
    fn collective_kernels_are_known_by_name() {
        for name in [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)",
            "multimem_all_reduce_kernel<4>",
            "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(…)",
            "void dpsk::ep::internode::dispatch<false, 8, true, 8>(…)",
        ] {
            assert!(is_communication(name), "{name}");
        }
        for name in
            ["volta_sgemm_64x64_nt", "void at::native::reduce_kernel<512, 1>", "dispatch", ""]
        {
            assert!(!is_communication(name), "{name}");
        }
    }
}
