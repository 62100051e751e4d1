//! Module calls whose activations can be recomputed: what a checkpoint around each would keep, drop
//! and run a second time (Echo, Zheng et al., ISCA 2020, section 4).
//!
//! `torch.utils.checkpoint` with `use_reentrant=False` drops everything that autograd saves within
//! the call, and keeps its inputs and its output. It runs the call again when the backward pass
//! first needs a dropped tensor, but only up to the last tensor that is needed.

use std::collections::{BTreeMap, HashMap, HashSet};

use ridgeline_graph::graph::{Graph, TaskId};
use ridgeline_graph::host_order::HostOrder;
use ridgeline_graph::memory::{Block, BlockKind, Moment};
use ridgeline_operators::operator::{Operator, Tensor};
use ridgeline_profile::{FileId, Phase, Profile};

/// One module call.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The module instance: index into [`Profile::modules`].
    pub module: u32,
    /// The host tasks that run a second time, in order.
    pub recomputed: Vec<TaskId>,
    /// The last task of the call.
    pub last: TaskId,
    /// The first task of its backward pass, before which the call is recomputed.
    pub backward: TaskId,
    /// The first event of its backward pass in the order of the recording.
    pub backward_event: u32,
    /// Blocks that are dropped, with the moment after their last use.
    pub dropped: Vec<(usize, Moment)>,
    /// Other blocks that are allocated and freed during the recomputation.
    pub passing: Vec<usize>,
    /// Peak memory of the recomputation beyond what was alive before, in bytes.
    pub recompute_peak_bytes: f64,
    /// Time of the recomputation in nanoseconds: of kernels if there is a GPU.
    pub recompute_ns: f64,
    /// Number of operators that run again.
    pub operators: usize,
}

/// The calls of one line to modules of one type: what a checkpoint on that line drops.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The line that calls the modules.
    pub line: (FileId, u32),
    /// Whether the line itself calls them, and not a library container that it calls.
    pub is_direct: bool,
    /// The calls in one iteration, by module.
    pub segments: Vec<Segment>,
}

/// Returns all calls that could be recomputed, by the line that makes them.
pub fn groups(graph: &Graph, profile: &Profile) -> Vec<Group> {
    let finder = Finder::new(graph, profile);
    // Direct calls of a line first, then indirect ones, by type.
    type Key<'a> = ((FileId, u32), bool, &'a str);
    let mut by_line: BTreeMap<Key<'_>, Vec<Segment>> = BTreeMap::new();
    let lines = calling_lines(profile);
    for (module, calls) in finder.calls() {
        let Some(cost) = profile.modules.get(module as usize) else { continue };
        // A checkpoint around the whole model would recompute everything at once.
        let Some((line, is_direct)) = lines.get(&module).filter(|_| cost.parent.is_some()) else {
            continue;
        };
        let segments = finder.segments(module, &calls);
        let key = (*line, !is_direct, cost.type_name.as_str());
        by_line.entry(key).or_default().extend(segments);
    }
    let mut groups: Vec<Group> = by_line
        .into_iter()
        .filter(|(_, segments)| !segments.is_empty())
        .map(|((line, is_indirect, _), segments)| Group { line, is_direct: !is_indirect, segments })
        .collect();
    keep_largest_per_line(&mut groups);
    groups
}

/// Keeps one direct group per line. Of nested calls such as `attention(norm(x))`, a checkpoint
/// takes the largest.
fn keep_largest_per_line(groups: &mut [Group]) {
    let bytes = |group: &Group| {
        group.segments.iter().map(|segment| segment.recompute_peak_bytes).sum::<f64>()
    };
    let mut largest: BTreeMap<(FileId, u32), f64> = BTreeMap::new();
    for group in groups.iter().filter(|group| group.is_direct) {
        let most = largest.entry(group.line).or_default();
        *most = most.max(bytes(group));
    }
    for group in groups {
        group.is_direct &= largest.get(&group.line) == Some(&bytes(group));
    }
}

/// Whether a module is `outer` or nested in it.
pub fn is_within(profile: &Profile, module: u32, outer: u32) -> bool {
    with_parents(profile, module).any(|one| one == outer)
}

/// Returns a module and its parents, innermost first.
fn with_parents(profile: &Profile, module: u32) -> impl Iterator<Item = u32> + '_ {
    // Parents have smaller indices, so this terminates.
    std::iter::successors(Some(module), |&one| {
        let parent = profile.modules.get(one as usize)?.parent?.0;
        (parent < one).then_some(parent)
    })
}

/// Returns for each module the line that calls it, and whether the call is direct.
fn calling_lines(profile: &Profile) -> HashMap<u32, ((FileId, u32), bool)> {
    let mut lines: BTreeMap<u32, (FileId, u32)> = BTreeMap::new();
    for (file, costs) in (0_u32..).zip(&profile.lines) {
        for cost in costs {
            for module in &cost.modules {
                lines.entry(module.0).or_insert((FileId(file), cost.line));
            }
        }
    }
    // A line lists only some of the modules that it calls. Modules of the same kind in other blocks
    // are called there too.
    let kind_of = |module: u32| {
        let cost = profile.modules.get(module as usize)?;
        let parent = profile.modules.get(cost.parent?.0 as usize)?;
        let name = cost.path.rsplit('.').next().filter(|name| name.parse::<u32>().is_err());
        Some((parent.type_name.as_str(), cost.type_name.as_str(), name))
    };
    let line_by_kind: HashMap<_, _> =
        lines.iter().filter_map(|(module, line)| Some((kind_of(*module)?, *line))).collect();
    for module in 0..profile.modules.len() as u32 {
        if let Some(line) = kind_of(module).and_then(|kind_of| line_by_kind.get(&kind_of)) {
            lines.entry(module).or_insert(*line);
        }
    }
    let is_direct = |module: u32, line: (FileId, u32)| {
        !with_parents(profile, module).skip(1).any(|outer| lines.get(&outer) == Some(&line))
    };
    lines.iter().map(|(&module, &line)| (module, (line, is_direct(module, line)))).collect()
}

/// A call as positions in the host's order: its first and its last task.
type Call = (usize, usize);

struct Finder<'a> {
    graph: &'a Graph,
    profile: &'a Profile,
    order: HostOrder,
    /// By host task: time of the kernels that it launches, in nanoseconds.
    kernels_ns: Vec<f64>,
    /// By module: positions of the tasks of its backward pass.
    backward: HashMap<u32, Vec<usize>>,
    /// Blocks by the position of the task that allocates them.
    blocks: Vec<(usize, usize)>,
    /// By size, in [`GRAIN`]s: the last position where a forward operator takes such a tensor.
    last_input_by_size: HashMap<u64, usize>,
}

/// Allocation granularity of a GPU in bytes.
const GRAIN: f64 = 512.0;

fn grains(bytes: f64) -> u64 {
    (bytes / GRAIN).ceil() as u64
}

impl<'a> Finder<'a> {
    fn new(graph: &'a Graph, profile: &'a Profile) -> Finder<'a> {
        let order = HostOrder::new(graph);
        let mut kernels_ns = vec![0.0; graph.tasks.len()];
        for task in graph.tasks.iter().filter(|task| !task.is_removed) {
            if let Some(sum) = task.launched_by.and_then(|id| kernels_ns.get_mut(id.index())) {
                *sum += task.duration_ns;
            }
        }
        let mut backward: HashMap<u32, Vec<usize>> = HashMap::new();
        for (index, task) in order.iter(graph) {
            let module = task.module.filter(|_| task.phase == Phase::Backward);
            for module in module.into_iter().flat_map(|module| with_parents(profile, module)) {
                backward.entry(module).or_default().push(index);
            }
        }
        let blocks = graph.memory.blocks.iter().enumerate();
        let mut blocks: Vec<(usize, usize)> = blocks
            .filter_map(|(number, block)| Some((order.of(block.allocated)?, number)))
            .collect();
        blocks.sort_unstable();
        let mut last_input_by_size = HashMap::new();
        for (place, task) in order.iter(graph).filter(|(_, task)| task.phase == Phase::Forward) {
            let inputs = graph.operator_of(task).into_iter().flat_map(Operator::input_tensors);
            last_input_by_size
                .extend(inputs.filter_map(Tensor::bytes).map(|bytes| (grains(bytes), place)));
        }
        Finder { graph, profile, order, kernels_ns, backward, blocks, last_input_by_size }
    }

    /// Finds the calls of each module in the forward pass.
    fn calls(&self) -> BTreeMap<u32, Vec<Call>> {
        let mut calls: BTreeMap<u32, Vec<Call>> = BTreeMap::new();
        // The number of tasks so far that certainly belong to a module, or to another phase. If
        // this has grown by more than the module's own tasks since its last one, something else ran
        // in between and a new call starts.
        let mut known = 0_usize;
        let mut seen: HashMap<u32, usize> = HashMap::new();
        for (index, task) in self.order.iter(self.graph) {
            let is_forward = task.phase == Phase::Forward;
            if task.module.is_none() && (is_forward || task.phase == Phase::Other) {
                continue;
            }
            known += 1;
            let Some(module) = task.module.filter(|_| is_forward) else { continue };
            for module in with_parents(self.profile, module) {
                let calls = calls.entry(module).or_default();
                match calls.last_mut().filter(|_| seen.get(&module) == Some(&(known - 1))) {
                    Some(call) => call.1 = index,
                    None => calls.push((index, index)),
                }
                seen.insert(module, known);
            }
        }
        calls
    }

    /// Returns the calls that can be recomputed. Empty if calls and backward passes cannot be
    /// matched.
    fn segments(&self, module: u32, calls: &[Call]) -> Vec<Segment> {
        let mut segments = Vec::new();
        let places = self.backward.get(&module).map_or(&[][..], Vec::as_slice);
        for (number, call) in calls.iter().enumerate() {
            let next_call = calls.get(number + 1).map_or(usize::MAX, |next| next.0);
            let next = places.partition_point(|place| *place <= call.1);
            match places.get(next).filter(|place| **place < next_call) {
                Some(backward) => segments.extend(self.segment(module, *call, *backward)),
                None if self.keeps_something(*call) => return Vec::new(),
                None => {}
            }
        }
        segments
    }

    fn blocks_of(
        &self,
        (first, last): Call,
    ) -> impl Iterator<Item = (usize, usize, &'a Block)> + '_ {
        let from = self.blocks.partition_point(|(place, _)| *place < first);
        let blocks = self.blocks.get(from..).unwrap_or_default();
        let blocks = blocks.iter().take_while(move |(place, _)| *place <= last);
        blocks.filter_map(|&(place, number)| {
            Some((place, number, self.graph.memory.blocks.get(number)?))
        })
    }

    fn keeps_something(&self, call: Call) -> bool {
        self.blocks_of(call).any(|(_, _, block)| block.kind == BlockKind::Activations)
    }

    fn segment(&self, module: u32, call: Call, backward: usize) -> Option<Segment> {
        let output = self.output(call);
        let freed = |block: &Block| self.order.of(block.freed);
        let mut saved: Vec<(usize, usize)> = Vec::new();
        for (place, number, block) in self.blocks_of(call) {
            let is_saved = block.kind == BlockKind::Activations
                && freed(block).is_some_and(|freed| freed >= backward);
            if is_saved && self.is_freed_in_backward(block) {
                saved.push((place, number));
            }
        }
        // The output stays for its users. If the call saved it itself, it is recomputed.
        let dropped: Vec<(usize, Moment)> = saved
            .iter()
            .filter_map(|&(place, number)| {
                let is_output = output == Some(number);
                let used_until = || self.order.used_until(self.graph, place, call.1);
                let after = if is_output { backward } else { used_until() };
                Some((number, self.order.beginning(after)?))
            })
            .collect();
        let needed = saved.iter().map(|(place, _)| *place).max()?;
        let is_recomputed = |place: usize| (call.0..=needed).contains(&place);
        let is_saved_block: HashSet<usize> = saved.iter().map(|(_, number)| *number).collect();
        let passing: Vec<usize> = self
            .blocks_of((call.0, needed))
            .filter(|(_, number, block)| {
                !is_saved_block.contains(number)
                    && freed(block).is_some_and(|freed| freed < backward)
            })
            .map(|(_, number, _)| number)
            .collect();
        let recomputed: Vec<TaskId> = self.order.tasks.get(call.0..=needed)?.to_vec();
        let of = |ns: &dyn Fn(&TaskId) -> f64| recomputed.iter().map(ns).sum::<f64>();
        let host_ns = of(&|id| self.graph.task(*id).map_or(0.0, |task| task.duration_ns));
        let gpu_ns = of(&|id| self.kernels_ns.get(id.index()).copied().unwrap_or(0.0));
        let mut operators: Vec<u32> =
            recomputed.iter().filter_map(|id| self.graph.task(*id)?.call).collect();
        operators.dedup();
        let mut segment = Segment {
            module,
            last: *self.order.tasks.get(call.1)?,
            backward: *self.order.tasks.get(backward)?,
            backward_event: self.order.event_at(backward),
            dropped,
            passing,
            recompute_peak_bytes: 0.0,
            recompute_ns: if gpu_ns > 0.0 { gpu_ns } else { host_ns },
            operators: operators.len(),
            recomputed,
        };
        segment.recompute_peak_bytes = self.recompute_peak_bytes(&segment, is_recomputed);
        Some(segment)
    }

    /// Finds the output of a call. Of the blocks that outlive it and that its last operator
    /// allocated, it is the largest with the size of a later input. Blocks that a library keeps for
    /// its own backward pass may be larger, as for oneDNN's recurrent layers, but are never an
    /// input.
    fn output(&self, call: Call) -> Option<usize> {
        let outlives = |block: &Block| self.order.of(block.freed).is_none_or(|it| it > call.1);
        let alive: Vec<_> = self.blocks_of(call).filter(|(_, _, block)| outlives(block)).collect();
        let (_, _, last) = alive.last()?;
        let by_last_operator = alive.iter().filter(|(_, _, block)| block.call == last.call);
        let is_taken = |block: &Block| {
            self.last_input_by_size.get(&grains(block.bytes)).is_some_and(|place| *place > call.1)
        };
        let largest = by_last_operator.max_by(|(_, _, a), (_, _, b)| {
            is_taken(a).cmp(&is_taken(b)).then(a.bytes.total_cmp(&b.bytes))
        });
        largest.map(|(_, number, _)| *number)
    }

    fn is_freed_in_backward(&self, block: &Block) -> bool {
        let task = block.freed.and_then(|moment| self.graph.task(moment.task));
        task.is_some_and(|task| task.phase == Phase::Backward)
    }

    /// Returns the peak memory while a call is recomputed, in bytes.
    fn recompute_peak_bytes(
        &self,
        segment: &Segment,
        is_recomputed: impl Fn(usize) -> bool,
    ) -> f64 {
        let mut changes: Vec<(u32, f64)> = Vec::new();
        let made = segment.dropped.iter().map(|(number, _)| *number);
        for (number, passes) in
            made.map(|number| (number, false)).chain(segment.passing.iter().map(|it| (*it, true)))
        {
            let Some(block) = self.graph.memory.blocks.get(number) else { continue };
            changes.extend(block.allocated.map(|moment| (moment.event, block.bytes)));
            let is_freed = passes && self.order.of(block.freed).is_some_and(&is_recomputed);
            changes.extend(block.freed.filter(|_| is_freed).map(|it| (it.event, -block.bytes)));
        }
        changes.sort_by_key(|(event, _)| *event);
        let (mut now, mut most) = (0.0, 0.0_f64);
        for (_, bytes) in changes {
            now += bytes;
            most = most.max(now);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{INNER, LINE, OUTPUT, operator, step};

    #[test]
    fn calls_of_a_line_are_found_with_their_internal_memory() {
        let step = step(3, true);
        let groups = groups(&step.recorded.graph, &step.profile);
        let [group] = groups.as_slice() else { panic!("one line calls modules: {groups:?}") };
        assert_eq!((group.line, group.is_direct), (LINE, true));
        let found: Vec<_> =
            group.segments.iter().map(|one| (one.module, one.recompute_peak_bytes)).collect();
        assert_eq!(found, [(1, INNER), (2, INNER), (3, INNER)]);
        // The outputs stay and are not recomputed.
        assert!(group.segments.iter().all(|one| one.dropped.len() == 1 && one.operators == 1));
    }

    #[test]
    fn internal_blocks_of_a_library_are_not_the_output() {
        let mut step = step(2, false);
        let graph = &mut step.recorded.graph;
        let find = |bytes: f64| graph.memory.blocks.iter().find(|block| block.bytes == bytes);
        let (inner, given) = (*find(INNER).unwrap(), *find(OUTPUT).unwrap());
        let workspace = Block { bytes: OUTPUT + 1e6, freed: inner.freed, ..given };
        graph.memory.add(workspace);
        let number = graph.memory.blocks.len() - 1;
        let until = |graph: &Graph| {
            let first = groups(graph, &step.profile)[0].segments[0].clone();
            let (_, until) = *first.dropped.iter().find(|(one, _)| *one == number).unwrap();
            (until.task, first.backward)
        };
        // No later operator takes either one: the larger one stays until the backward pass.
        let (task, backward) = until(graph);
        assert_eq!(task, backward);
        let next = operator("relu", &[&[OUTPUT as u64 / 4]], &[OUTPUT as u64 / 4]);
        graph.operators = vec![next; 3];
        let (task, backward) = until(graph);
        assert!(task < backward, "{task:?}, {backward:?}");
    }

    #[test]
    fn a_checkpoint_takes_the_largest_call_of_a_line() {
        let step = step(1, true);
        let mut both = groups(&step.recorded.graph, &step.profile);
        let mut small = both[0].clone();
        small.segments[0].recompute_peak_bytes = 0.5 * INNER;
        both.push(small);
        keep_largest_per_line(&mut both);
        assert_eq!(both.iter().map(|one| one.is_direct).collect::<Vec<_>>(), [true, false]);
    }
}
