//! Running calls of modules a second time in the backward pass, as `torch.utils.checkpoint` does: what
//! that does to a graph.

use std::collections::HashMap;

use super::segments::Segment;
use ridgeline_graph::graph::{Graph, Resource, ResourceId, Task, TaskId, TaskKind};
use ridgeline_graph::memory::{Block, BlockKind, Moment};
use ridgeline_profile::Phase;

/// Nanoseconds of the host for one call of `torch.utils.checkpoint` in the forward pass, and for what
/// it does before the call runs again: random states are kept and put back, hooks are set. These and
/// the next were fitted on chains of 1 to 64 products of 4 by 4 matrices: torch 2.15 on a Xeon of 2 cores.
const CALL_NS: f64 = 40_000.0;
const AGAIN_NS: f64 = 80_000.0;
/// The same for each operator within: what autograd saves goes through Python.
const CALL_OPERATOR_NS: f64 = 6_000.0;
const AGAIN_OPERATOR_NS: f64 = 12_000.0;
/// The state of a processor's random numbers, which is kept for each call (`torch.get_rng_state`).
const RANDOM_STATE_BYTES: f64 = 5_056.0;

/// Nanoseconds that a checkpoint itself takes of the host, besides running the call again.
pub fn overhead_ns(segment: &Segment) -> f64 {
    let operators = segment.operators as f64;
    CALL_NS + AGAIN_NS + (CALL_OPERATOR_NS + AGAIN_OPERATOR_NS) * operators
}

/// Drops what calls of modules keep, and runs them again before their backward pass. `overhead` is
/// what the host's own time for that is multiplied by.
pub fn run_again(graph: &mut Graph, segments: &[&Segment], overhead: f64) {
    let kernels = Kernels::new(graph);
    for segment in segments {
        run_one_again(graph, &kernels, segment, overhead);
    }
}

fn run_one_again(graph: &mut Graph, kernels: &Kernels, segment: &Segment, overhead: f64) {
    let operators = segment.operators as f64;
    let hooks = |graph: &Graph, like: TaskId, phase: Phase, duration_ns: f64| {
        let like = graph.task(like).copied();
        let new = Task::new(TaskKind::HostGap, duration_ns * overhead, phase);
        like.map_or(new, |like| Task { line: like.line, module: like.module, ..new })
    };
    let keep = hooks(graph, segment.last, Phase::Forward, CALL_NS + CALL_OPERATOR_NS * operators);
    let keep = graph.insert_after(segment.last, keep);
    let again_ns = AGAIN_NS + AGAIN_OPERATOR_NS * operators;
    let restore = hooks(graph, segment.last, Phase::Backward, again_ns);
    graph.insert_before(segment.backward, restore);

    let mut second: HashMap<TaskId, TaskId> = HashMap::new();
    for id in &segment.again {
        let Some(task) = graph.task(*id).copied() else { continue };
        let copy = Task { phase: Phase::Backward, launched_by: None, ..task };
        let launch = graph.insert_before(segment.backward, copy);
        second.insert(*id, launch);
        kernels.launch_again(graph, *id, launch, segment.backward);
    }

    let moved = |moment: Option<Moment>| {
        let moment = moment?;
        Some(Moment { task: *second.get(&moment.task)?, event: moment.event })
    };
    let at_backward = Moment { task: segment.backward, event: 0 };
    for (number, until) in &segment.dropped {
        let Some(block) = graph.memory.blocks.get_mut(*number) else { continue };
        let again = Block { allocated: moved(block.allocated), ..*block };
        block.freed = Some(*until);
        block.kind = BlockKind::Temporaries;
        graph.memory.add(again);
    }
    for number in &segment.passing {
        let Some(block) = graph.memory.blocks.get(*number).copied() else { continue };
        let freed = Some(moved(block.freed).unwrap_or(at_backward));
        let kind = BlockKind::Temporaries;
        graph.memory.add(Block { allocated: moved(block.allocated), freed, kind, ..block });
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

/// Which kernels a task of the host launches, and where a kernel that is launched elsewhere goes.
struct Kernels {
    by_launch: HashMap<TaskId, Vec<(TaskId, f64)>>,
    /// By task of the host: its place in the host's order.
    place: HashMap<TaskId, usize>,
    /// By stream: its kernels in order, with the places of their launches.
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

    /// Adds the kernels that a task launches a second time, before those of the backward pass.
    fn launch_again(&self, graph: &mut Graph, first: TaskId, launch: TaskId, backward: TaskId) {
        let from = self.place.get(&backward).copied().unwrap_or(usize::MAX);
        for (kernel, lag_ns) in self.by_launch.get(&first).into_iter().flatten() {
            let Some(task) = graph.task(*kernel).copied() else { continue };
            let copy = Task { phase: Phase::Backward, launched_by: Some(launch), ..task };
            let of_stream = self.streams.get(&task.resource).map_or(&[][..], Vec::as_slice);
            let next = of_stream.partition_point(|(place, _)| *place < from);
            let again = match of_stream.get(next) {
                Some((_, next)) => graph.insert_before(*next, copy),
                None => graph.push(task.resource, copy),
            };
            graph.wait(launch, again, *lag_ns);
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

    /// Runs the first `count` of 4 layers again.
    #[track_caller]
    fn check(on_gpu: bool, count: usize, peak_bytes: f64, added_ns: f64) {
        let step = step(4, on_gpu);
        let groups = groups(&step.recorded.graph, &step.profile);
        let [group] = groups.as_slice() else { panic!("one line calls modules: {groups:?}") };
        assert_eq!(group.segments.len(), 4);
        let segments: Vec<_> = group.segments.iter().take(count).collect();
        let mut graph = step.recorded.graph.clone();
        run_again(&mut graph, &segments, 0.0);
        let schedule = steady(&graph).unwrap();
        let state = if on_gpu { 0.0 } else { RANDOM_STATE_BYTES * count as f64 };
        assert_eq!(peak(&graph, &schedule), Some(peak_bytes + state));
        assert_eq!(schedule.iteration_ns - step.recorded.schedule.iteration_ns, added_ns);
    }

    #[test]
    fn running_nothing_again_changes_nothing() {
        let all = WEIGHTS + 4.0 * (INNER + OUTPUT);
        check(false, 0, all, 0.0);
        check(true, 0, all, 0.0);
    }

    #[test]
    fn what_a_call_keeps_lives_again_while_its_backward_pass_runs() {
        // The first operator of a layer is all that is needed again; one layer at a time is whole.
        let one_at_a_time = WEIGHTS + INNER + 4.0 * OUTPUT;
        check(false, 4, one_at_a_time, 4.0 * OPERATOR_NS);
        check(true, 4, one_at_a_time, 4.0 * OPERATOR_NS);
    }

    #[test]
    fn what_is_not_run_again_stays() {
        check(false, 2, WEIGHTS + 2.0 * INNER + 4.0 * OUTPUT, 2.0 * OPERATOR_NS);
    }

    #[test]
    fn a_kernel_that_runs_again_comes_before_those_of_the_backward_pass() {
        let step = step(1, true);
        let groups = groups(&step.recorded.graph, &step.profile);
        let mut graph = step.recorded.graph.clone();
        run_again(&mut graph, &groups[0].segments.iter().collect::<Vec<_>>(), 1.0);
        let stream = graph.find(&Resource::Stream(0, 7)).unwrap();
        let phases: Vec<_> =
            graph.on(stream).map(|id| (graph.task(id).unwrap().phase, id.index())).collect();
        let again = phases.iter().position(|(_, id)| *id >= step.recorded.graph.tasks.len());
        // After two kernels of the layer and two of the loss.
        assert_eq!(again, Some(4));
        assert_eq!(phases[4].0, Phase::Backward);
    }
}
