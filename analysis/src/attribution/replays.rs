//! CUDA graphs: a replay starts all of its kernels with one call, and each belongs to the code that
//! was captured.
//!
//! The recording has the operators and the launches of a capture where that was seen. CUDA numbers
//! the nodes of a graph in the order in which the capture made them, and the profiler writes the
//! number beside each activity of a replay. So the kernels of a replay in the order of their nodes
//! are the launches of the capture in the order of time, and the same holds for copies and fills.
//! Where their counts differ, they stay with the line that replays.

use super::costs::window_at;
use super::join::Join;
use crate::recording::manifest::CudaGraphs;
use crate::recording::trace::{Activity, ActivityKind, RuntimeCall, Trace};

const GRAPH_LAUNCHES: [&str; 2] = ["GraphLaunch", "hipGraphLaunch"];

/// What the replays of the profiled iterations started, and what was captured for it.
#[derive(Debug, Default)]
pub(super) struct Replays {
    /// By activity: the call of the capture that made its node.
    captured: Vec<Option<usize>>,
    /// From when to when a capture lasted, and its replays in the profiled iterations.
    captures: Vec<(i64, i64, u32)>,
    /// Activities of replays, and those whose captured call is unknown.
    pub activities: usize,
    pub without_call: usize,
}

impl Replays {
    /// `calls` are the runtime calls that started the activities.
    pub fn new(join: &Join<'_>, graphs: &CudaGraphs, calls: &[Option<usize>]) -> Replays {
        let trace = join.trace;
        let mut by_call: Vec<(usize, usize)> = calls
            .iter()
            .enumerate()
            .filter_map(|(activity, call)| Some(((*call)?, activity)))
            .filter(|(call, _)| {
                trace.runtime_calls.get(*call).is_some_and(|call| is_graph_launch(trace, call))
            })
            .collect();
        by_call.sort_unstable();
        let mut replays = Replays {
            captured: vec![None; trace.activities.len()],
            captures: graphs.captures.iter().map(|(start, end)| (*start, *end, 0)).collect(),
            activities: by_call.len(),
            without_call: by_call.len(),
        };
        let captured: Vec<[Vec<usize>; 3]> =
            graphs.captures.iter().map(|window| captured_calls(trace, *window)).collect();
        for launched in by_call.chunk_by(|a, b| a.0 == b.0) {
            let Some(call) = launched.first().and_then(|(call, _)| trace.runtime_calls.get(*call))
            else {
                continue;
            };
            let Some(capture) = graphs.captured_for(call.start_ns) else { continue };
            if window_at(join.windows, call.start_ns).is_some()
                && let Some((.., count)) = replays.captures.get_mut(capture)
            {
                *count += 1;
            }
            let Some(made) = captured.get(capture) else { continue };
            for (kind, made) in KINDS.into_iter().zip(made) {
                replays.pair(trace, launched, kind, made);
            }
        }
        replays
    }

    /// Gives the activities of one kind that a replay started the calls that made their nodes.
    fn pair(
        &mut self,
        trace: &Trace,
        launched: &[(usize, usize)],
        kind: ActivityKind,
        made: &[usize],
    ) {
        let mut of_kind: Vec<(usize, &Activity)> = launched
            .iter()
            .filter_map(|(_, index)| Some((*index, trace.activities.get(*index)?)))
            .filter(|(_, activity)| activity.kind == kind)
            .collect();
        if of_kind.len() != made.len() {
            return;
        }
        if of_kind.iter().all(|(_, activity)| activity.graph_node.is_some()) {
            of_kind.sort_by_key(|(_, activity)| activity.graph_node);
        } else if of_kind.windows(2).all(|pair| match pair {
            [(_, a), (_, b)] => a.stream == b.stream,
            _ => true,
        }) {
            // Older profilers do not write it: on one stream nodes run in their order.
            of_kind.sort_by_key(|(_, activity)| activity.start_ns);
        } else {
            return;
        }
        for ((activity, _), call) in of_kind.into_iter().zip(made) {
            if let Some(entry) = self.captured.get_mut(activity) {
                *entry = Some(*call);
                self.without_call = self.without_call.saturating_sub(1);
            }
        }
    }

    /// The call of a capture that made the node which an activity ran.
    pub fn captured_call(&self, activity: usize) -> Option<usize> {
        self.captured.get(activity).copied().flatten()
    }

    /// How often what a capture had at this time was replayed; nothing outside of captures.
    pub fn of_captured(&self, time_ns: i64) -> Option<u32> {
        let capture = self.captures.iter().find(|(start, end, _)| (*start..*end).contains(&time_ns));
        capture.map(|(.., count)| *count).filter(|count| *count > 0)
    }
}

const KINDS: [ActivityKind; 3] =
    [ActivityKind::Kernel, ActivityKind::Memcpy, ActivityKind::Memset];

fn is_graph_launch(trace: &Trace, call: &RuntimeCall) -> bool {
    let name = trace.text(call.name);
    GRAPH_LAUNCHES.iter().any(|launch| name.contains(launch))
}

/// The calls that made the nodes of a capture, in order of time, for each of [`KINDS`].
fn captured_calls(trace: &Trace, (start_ns, end_ns): (i64, i64)) -> [Vec<usize>; 3] {
    let mut calls: Vec<(i64, usize)> = trace
        .runtime_calls
        .iter()
        .enumerate()
        .filter(|(_, call)| (start_ns..end_ns).contains(&call.start_ns))
        .map(|(index, call)| (call.start_ns, index))
        .collect();
    calls.sort_unstable();
    let mut made: [Vec<usize>; 3] = Default::default();
    // A call of the driver from within one of the runtime makes no node of its own.
    let mut last: Option<&RuntimeCall> = None;
    for (_, index) in calls {
        let Some(call) = trace.runtime_calls.get(index) else { continue };
        let Some(kind) = kind_made(trace.text(call.name)) else { continue };
        let is_within = last.is_some_and(|outer| {
            outer.thread == call.thread && call.start_ns < outer.end_ns() && call.name != outer.name
        });
        if is_within {
            continue;
        }
        last = Some(call);
        let place = KINDS.iter().position(|of| *of == kind);
        if let Some(of_kind) = place.and_then(|place| made.get_mut(place)) {
            of_kind.push(index);
        }
    }
    made
}

/// Which kind of node a call makes within a capture.
fn kind_made(name: &str) -> Option<ActivityKind> {
    if name.contains("Launch") && name.contains("Kernel") {
        Some(ActivityKind::Kernel)
    } else if name.contains("Memcpy") {
        Some(ActivityKind::Memcpy)
    } else if name.contains("Memset") {
        Some(ActivityKind::Memset)
    } else {
        None
    }
}
