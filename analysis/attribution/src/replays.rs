//! CUDA graphs: a replay launches all of its kernels with one call, and each belongs to the code
//! that was captured.
//!
//! The recording has the operators and launches of a capture if it was recorded. CUDA numbers the
//! nodes of a graph in the order in which the capture created them, and the profiler writes this
//! number for each activity of a replay. So the kernels of a replay in node order are the launches
//! of the capture in order of time, and the same holds for copies and fills. If their counts
//! differ, they are attributed to the line that replays.

use super::costs::window_at;
use super::join::Join;
use ridgeline_recording::manifest::CudaGraphs;
use ridgeline_recording::trace::{Activity, ActivityKind, RuntimeCall, Trace};

/// The activities of replays in the profiled iterations, and their captures.
#[derive(Debug, Default)]
pub(super) struct Replays {
    /// By activity: the captured call that created its node.
    captured: Vec<Option<usize>>,
    /// Start, end and number of replays in the profiled iterations of each capture.
    captures: Vec<(i64, i64, u32)>,
    /// Number of activities of replays, except those of `torch.compile`, and number of these whose
    /// captured call is unknown.
    pub activities: usize,
    pub without_call: usize,
}

impl Replays {
    /// `calls` are the runtime calls that started the activities.
    pub(crate) fn new(join: &Join<'_>, graphs: &CudaGraphs, calls: &[Option<usize>]) -> Replays {
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
            ..Replays::default()
        };
        let captured: Vec<[Vec<usize>; 3]> =
            graphs.captures.iter().map(|window| captured_calls(trace, *window)).collect();
        for launched in by_call.chunk_by(|a, b| a.0 == b.0) {
            let Some(call) = launched.first().and_then(|(call, _)| trace.runtime_calls.get(*call))
            else {
                continue;
            };
            let Some(capture) = graphs.replay_at(call.start_ns) else { continue };
            replays.activities += launched.len();
            replays.without_call += launched.len();
            let Some(capture) = capture else { continue };
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

    /// Matches the activities of one kind in a replay with the calls that created their nodes.
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
        let node = |activity: &Activity| trace.details(activity).graph_node;
        if of_kind.iter().all(|(_, activity)| node(activity).is_some()) {
            of_kind.sort_by_key(|(_, activity)| node(activity));
        } else if of_kind.windows(2).all(|pair| match pair {
            [(_, a), (_, b)] => trace.details(a).stream == trace.details(b).stream,
            _ => true,
        }) {
            // Older profilers do not write node numbers: on one stream, nodes run in order.
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

    /// Returns the captured call that created the node of an activity.
    pub(crate) fn captured_call(&self, activity: usize) -> Option<usize> {
        self.captured.get(activity).copied().flatten()
    }

    /// Returns the number of replays of the capture at a time; `None` outside of captures.
    pub(crate) fn of_captured(&self, time_ns: i64) -> Option<u32> {
        let capture =
            self.captures.iter().find(|(start, end, _)| (*start..*end).contains(&time_ns));
        capture.map(|(.., count)| *count).filter(|count| *count > 0)
    }
}

const KINDS: [ActivityKind; 3] = [ActivityKind::Kernel, ActivityKind::Memcpy, ActivityKind::Memset];

fn is_graph_launch(trace: &Trace, call: &RuntimeCall) -> bool {
    // `cudaGraphLaunch`, `cudaGraphLaunch_ptsz`, `cuGraphLaunch`, `hipGraphLaunch`.
    trace.text(call.name).contains("GraphLaunch")
}

/// Returns the calls that created the nodes of a capture, in order of time, for each of [`KINDS`].
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
    // A driver call within a runtime call creates no additional node.
    let mut last: Option<&RuntimeCall> = None;
    for (_, index) in calls {
        let Some(call) = trace.runtime_calls.get(index) else { continue };
        let Some(kind) = kind_of_node(trace.text(call.name)) else { continue };
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

/// Returns the kind of node that a call creates within a capture.
fn kind_of_node(name: &str) -> Option<ActivityKind> {
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

#[cfg(test)]
mod tests {
    use crate::attribute;
    use crate::fixture::{TraceBuilder, recording};
    use ridgeline_profile::Profile;
    use ridgeline_recording::line_log::{LINE, PUSH, STARTED};
    use ridgeline_recording::manifest::CudaGraphs;

    /// The line clock runs in the capture, from -1000 to -500, and in the iteration.
    const LINES: &[(i64, u8, u32, u32)] = &[
        (-1000, STARTED, 0, 0),
        (-990, PUSH, 0, 21),
        (-800, LINE, 0, 22),
        (-700, LINE, 0, 23),
        (-10, STARTED, 0, 0),
        (-9, PUSH, 0, 30),
        (50, LINE, 0, 31),
    ];

    /// Two kernels are captured on lines 21 and 22, and `replayed` are those of a replay.
    fn profile(replayed: &[(u64, i64, i64)]) -> Profile {
        let mut trace = TraceBuilder::new();
        trace.op("aten::mm", -900, 50);
        trace.op("aten::relu", -790, 50);
        trace.op("CUDAGraph.replay", 60, 20);
        trace.captured_launch(-890);
        trace.captured_launch(-780);
        trace.replay(70, replayed);
        let mut recording = recording(trace, LINES, 800);
        let manifest = recording.manifest.as_mut().expect("a manifest");
        manifest.cuda_graphs =
            CudaGraphs { captures: vec![(-1000, -500)], replays: vec![(60, 80, Some(0))] };
        attribute(&recording).expect("a profile")
    }

    fn kernel_ns(profile: &Profile, line: u32) -> f64 {
        let mut lines = profile.lines.iter().flatten();
        let cost = lines.find(|cost| cost.line == line);
        cost.and_then(|cost| cost.device_time).map_or(0.0, |device| device.kernel_ns)
    }

    #[test]
    fn kernels_of_a_replay_belong_to_the_captured_lines() {
        // The second node runs first: the nodes are independent.
        let profile = profile(&[(8, 100, 200), (7, 300, 100)]);
        assert_eq!([21, 22, 31].map(|line| kernel_ns(&profile, line)), [100.0, 200.0, 0.0]);
        assert_eq!(profile.coverage.time, 1.0);
        assert_eq!(profile.notes, [""; 0]);
        let operators: Vec<(&str, f64)> = profile
            .lines
            .iter()
            .flatten()
            .flat_map(|cost| &cost.operators)
            .filter(|operator| !operator.kernels.is_empty())
            .map(|operator| (operator.name.as_str(), operator.calls))
            .collect();
        assert_eq!(operators, [("aten::mm", 1.0), ("aten::relu", 1.0)]);
    }

    #[test]
    fn mismatched_replays_stay_on_the_replaying_line() {
        let profile = profile(&[(7, 100, 200), (8, 300, 100), (9, 400, 50)]);
        assert_eq!([21, 22, 31].map(|line| kernel_ns(&profile, line)), [0.0, 0.0, 350.0]);
        assert_eq!(profile.notes.len(), 1);
        assert!(profile.notes[0].starts_with("3 of 3 kernels"), "{:?}", profile.notes);
    }
}
