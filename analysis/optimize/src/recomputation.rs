//! Activation recomputation: changes a graph to run module calls again in the backward pass, as
//! `torch.utils.checkpoint` does.

use std::collections::HashMap;

use super::segments::Segment;
use ridgeline_graph::graph::{Graph, Resource, ResourceId, Task, TaskId, TaskKind};
use ridgeline_graph::memory::{Block, BlockKind, Moment};
use ridgeline_profile::Phase;

/// Host time of `torch.utils.checkpoint` in nanoseconds: for a call in the forward pass, and for
/// the setup before its recomputation, which saves and restores random states and sets hooks. These
/// and the next two were fitted on chains of 1 to 64 matrix multiplications of 4 by 4: torch 2.15
/// on a Xeon with 2 cores.
const CALL_NS: f64 = 40_000.0;
const RECOMPUTE_NS: f64 = 80_000.0;
/// The same per operator in the call: saved tensors go through Python.
const CALL_OPERATOR_NS: f64 = 6_000.0;
const RECOMPUTE_OPERATOR_NS: f64 = 12_000.0;
/// Size of the CPU random state that is saved for each call (`torch.get_rng_state`), in bytes.
const RANDOM_STATE_BYTES: f64 = 5_056.0;

/// Returns the host overhead of a checkpoint besides the recomputation, in nanoseconds.
pub fn overhead_ns(segment: &Segment) -> f64 {
    let operators = segment.operators as f64;
    CALL_NS + RECOMPUTE_NS + (CALL_OPERATOR_NS + RECOMPUTE_OPERATOR_NS) * operators
}

/// Drops the activations of module calls and recomputes them before their backward pass. `overhead`
/// is a factor on the host overhead.
pub fn recompute_segments(graph: &mut Graph, segments: &[&Segment], overhead: f64) {
    let kernels = Kernels::new(graph);
    for segment in segments {
        recompute_one(graph, &kernels, segment, overhead);
    }
}

fn recompute_one(graph: &mut Graph, kernels: &Kernels, segment: &Segment, overhead: f64) {
    let operators = segment.operators as f64;
    let hooks = |graph: &Graph, like: TaskId, phase: Phase, duration_ns: f64| {
        let like = graph.task(like).copied();
        let new = Task::new(TaskKind::HostGap, duration_ns * overhead, phase);
        like.map_or(new, |like| Task { line: like.line, module: like.module, ..new })
    };
    let keep = hooks(graph, segment.last, Phase::Forward, CALL_NS + CALL_OPERATOR_NS * operators);
    let keep = graph.insert_after(segment.last, keep);
    let recompute_ns = RECOMPUTE_NS + RECOMPUTE_OPERATOR_NS * operators;
    let restore = hooks(graph, segment.last, Phase::Backward, recompute_ns);
    graph.insert_before(segment.backward, restore);

    let mut copies: HashMap<TaskId, TaskId> = HashMap::new();
    for id in &segment.recomputed {
        let Some(task) = graph.task(*id).copied() else { continue };
        let copy = Task { phase: Phase::Backward, launched_by: None, ..task };
        let launch = graph.insert_before(segment.backward, copy);
        copies.insert(*id, launch);
        kernels.launch_again(graph, *id, launch, segment.backward);
    }

    let moment_of_copy = |moment: Option<Moment>| {
        let moment = moment?;
        Some(Moment { task: *copies.get(&moment.task)?, event: moment.event })
    };
    let at_backward = Moment { task: segment.backward, event: 0 };
    for (number, until) in &segment.dropped {
        let Some(block) = graph.memory.blocks.get_mut(*number) else { continue };
        let copy = Block { allocated: moment_of_copy(block.allocated), ..*block };
        block.freed = Some(*until);
        block.kind = BlockKind::Temporaries;
        graph.memory.add(copy);
    }
    for number in &segment.passing {
        let Some(block) = graph.memory.blocks.get(*number).copied() else { continue };
        let freed = Some(moment_of_copy(block.freed).unwrap_or(at_backward));
        let kind = BlockKind::Temporaries;
        graph.memory.add(Block {
            allocated: moment_of_copy(block.allocated),
            freed,
            kind,
            ..block
        });
    }
    let is_on_host = graph.resources().iter().all(|one| !matches!(one, Resource::Stream(..)));
    if is_on_host {
        let like = segment.dropped.first().and_then(|(number, _)| graph.memory.blocks.get(*number));
        let state = like.map(|like| Block {
            bytes: RANDOM_STATE_BYTES,
            kind: BlockKind::Other,
            allocated: Some(Moment { task: keep, event: 0 }),
            freed: Some(at_backward),
            ..*like
        });
        state.into_iter().for_each(|state| graph.memory.add(state));
    }
}

/// Maps host tasks to the kernels that they launch, and finds the position for a kernel that is
/// launched again.
struct Kernels {
    by_launch: HashMap<TaskId, Vec<(TaskId, f64)>>,
    /// By host task: its position in the host's order.
    place: HashMap<TaskId, usize>,
    /// By stream: its kernels in order, with the positions of their launches.
    streams: HashMap<ResourceId, Vec<(usize, TaskId)>>,
}

impl Kernels {
    fn new(graph: &Graph) -> Kernels {
        let host = graph.find(&Resource::Host);
        let host = host.into_iter().flat_map(|host| graph.on(host));
        let place: HashMap<TaskId, usize> =
            host.enumerate().map(|(place, id)| (id, place)).collect();
        let mut by_launch: HashMap<TaskId, Vec<(TaskId, f64)>> = HashMap::new();
        for edge in graph.edges() {
            let launch = graph.task(edge.to).and_then(|task| task.launched_by);
            if launch == Some(edge.from) {
                by_launch.entry(edge.from).or_default().push((edge.to, edge.lag_ns));
            }
        }
        let mut streams: HashMap<ResourceId, Vec<(usize, TaskId)>> = HashMap::new();
        for resource in (0_u32..).zip(graph.resources()).map(|(index, _)| ResourceId(index)) {
            let launched = graph.on(resource).filter_map(|id| {
                let launch = graph.task(id)?.launched_by?;
                Some((*place.get(&launch)?, id))
            });
            streams.insert(resource, launched.collect());
        }
        Kernels { by_launch, place, streams }
    }

    /// Adds the kernels of a task a second time, before those of the backward pass.
    fn launch_again(&self, graph: &mut Graph, first: TaskId, launch: TaskId, backward: TaskId) {
        let from = self.place.get(&backward).copied().unwrap_or(usize::MAX);
        for (kernel, lag_ns) in self.by_launch.get(&first).into_iter().flatten() {
            let Some(task) = graph.task(*kernel).copied() else { continue };
            let copy = Task { phase: Phase::Backward, launched_by: Some(launch), ..task };
            let launches = self.streams.get(&task.resource).map_or(&[][..], Vec::as_slice);
            let next = launches.partition_point(|(place, _)| *place < from);
            let kernel = match launches.get(next) {
                Some((_, next)) => graph.insert_before(*next, copy),
                None => graph.push(task.resource, copy),
            };
            graph.wait(launch, kernel, *lag_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{INNER, OPERATOR_NS, OUTPUT, WEIGHTS, step};
    use crate::segments::groups;
    use ridgeline_graph::memory::peak;
    use ridgeline_graph::simulate::steady;

    /// Recomputes the first `count` of 4 layers.
    #[track_caller]
    fn check(on_gpu: bool, count: usize, peak_bytes: f64, added_ns: f64) {
        let step = step(4, on_gpu);
        let groups = groups(&step.recorded.graph, &step.profile);
        let [group] = groups.as_slice() else { panic!("one line calls modules: {groups:?}") };
        assert_eq!(group.segments.len(), 4);
        let segments: Vec<_> = group.segments.iter().take(count).collect();
        let mut graph = step.recorded.graph.clone();
        recompute_segments(&mut graph, &segments, 0.0);
        let schedule = steady(&graph).unwrap();
        let state = if on_gpu { 0.0 } else { RANDOM_STATE_BYTES * count as f64 };
        assert_eq!(peak(&graph, &schedule), Some(peak_bytes + state));
        assert_eq!(schedule.iteration_ns - step.recorded.schedule.iteration_ns, added_ns);
    }

    #[test]
    fn recomputing_nothing_changes_nothing() {
        let all = WEIGHTS + 4.0 * (INNER + OUTPUT);
        check(false, 0, all, 0.0);
        check(true, 0, all, 0.0);
    }

    #[test]
    fn recomputed_activations_are_alive_during_their_backward_pass() {
        // Only the first operator of a layer has to run again. One layer's activations are complete
        // at a time.
        let one_at_a_time = WEIGHTS + INNER + 4.0 * OUTPUT;
        check(false, 4, one_at_a_time, 4.0 * OPERATOR_NS);
        check(true, 4, one_at_a_time, 4.0 * OPERATOR_NS);
    }

    #[test]
    fn activations_that_are_not_recomputed_stay() {
        check(false, 2, WEIGHTS + 2.0 * INNER + 4.0 * OUTPUT, 2.0 * OPERATOR_NS);
    }

    #[test]
    fn recomputed_kernels_run_before_the_backward_kernels() {
        let step = step(1, true);
        let groups = groups(&step.recorded.graph, &step.profile);
        let mut graph = step.recorded.graph.clone();
        recompute_segments(&mut graph, &groups[0].segments.iter().collect::<Vec<_>>(), 1.0);
        let stream = graph.find(&Resource::Stream(0, 7)).unwrap();
        let phases: Vec<_> =
            graph.on(stream).map(|id| (graph.task(id).unwrap().phase, id.index())).collect();
        let recomputed = phases.iter().position(|(_, id)| *id >= step.recorded.graph.tasks.len());
        // After two kernels of the layer and two of the loss.
        assert_eq!(recomputed, Some(4));
        assert_eq!(phases[4].0, Phase::Backward);
    }
}
