//! Calls of modules whose activations can be dropped and made again: what a checkpoint around each
//! would keep, drop and run a second time (Echo, Zheng et al., ISCA 2020, section 4).
//!
//! `torch.utils.checkpoint` with `use_reentrant=False` drops whatever autograd saves within the call,
//! keeps its inputs and its output, and runs the call again when its backward pass first asks for
//! something that was dropped, but no further than to the last tensor that is needed.

use std::collections::{BTreeMap, HashMap, HashSet};

use ridgeline_graph::graph::{Graph, TaskId};
use ridgeline_graph::host_order::HostOrder;
use ridgeline_graph::memory::{Block, BlockKind, Moment};
use ridgeline_operators::operator::{Operator, Tensor};
use ridgeline_profile::{FileId, Phase, Profile};

/// One call of a module.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The module instance: index into [`Profile::modules`].
    pub module: u32,
    /// The host's tasks that run a second time, in order.
    pub again: Vec<TaskId>,
    /// The last task of the call.
    pub last: TaskId,
    /// The first task of its backward pass, before which the call runs again.
    pub backward: TaskId,
    /// What the backward pass begins with in the order of the recording.
    pub backward_event: u32,
    /// Blocks that are dropped after they were used, and when.
    pub dropped: Vec<(usize, Moment)>,
    /// Blocks that come and go while the call runs again, besides those that were dropped.
    pub passing: Vec<usize>,
    /// The most that running it again holds beyond what was alive before, in bytes.
    pub most_bytes: f64,
    /// Nanoseconds of running it again: of a GPU's kernels, where there is a GPU.
    pub again_ns: f64,
    /// Operators that run again.
    pub operators: usize,
}

/// Calls that one line makes, of modules of one type: what a checkpoint on that line drops.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The line that calls the modules.
    pub line: (FileId, u32),
    /// Whether the line itself calls them, and not a container of a library that it calls.
    pub is_direct: bool,
    /// Their calls in one iteration, by module.
    pub segments: Vec<Segment>,
}

/// All that could be dropped, by the line that calls it.
pub fn groups(graph: &Graph, profile: &Profile) -> Vec<Group> {
    let finder = Finder::new(graph, profile);
    // A line's own calls first, then those of what it calls, by type.
    type Key<'a> = ((FileId, u32), bool, &'a str);
    let mut by_line: BTreeMap<Key<'_>, Vec<Segment>> = BTreeMap::new();
    let lines = calling_lines(profile);
    for (module, calls) in finder.calls() {
        let Some(cost) = profile.modules.get(module as usize) else { continue };
        // A checkpoint around the whole model makes everything again at once.
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
    one_a_line(&mut groups);
    groups
}

/// Of what a line calls in one another, `attention(norm(x))`, a checkpoint takes one: the largest.
fn one_a_line(groups: &mut [Group]) {
    let bytes =
        |group: &Group| group.segments.iter().map(|segment| segment.most_bytes).sum::<f64>();
    let mut largest: BTreeMap<(FileId, u32), f64> = BTreeMap::new();
    for group in groups.iter().filter(|group| group.is_direct) {
        let most = largest.entry(group.line).or_default();
        *most = most.max(bytes(group));
    }
    for group in groups {
        group.is_direct &= largest.get(&group.line) == Some(&bytes(group));
    }
}

/// Whether a module is another one or within it.
pub fn is_within(profile: &Profile, module: u32, outer: u32) -> bool {
    around(profile, module).any(|one| one == outer)
}

/// A module and those that hold it, innermost first.
fn around(profile: &Profile, module: u32) -> impl Iterator<Item = u32> + '_ {
    // Parents have smaller numbers, so that this ends.
    std::iter::successors(Some(module), |&one| {
        let parent = profile.modules.get(one as usize)?.parent?.0;
        (parent < one).then_some(parent)
    })
}

/// By module: the line that calls it, and whether that line does so itself.
fn calling_lines(profile: &Profile) -> HashMap<u32, ((FileId, u32), bool)> {
    let mut lines: BTreeMap<u32, (FileId, u32)> = BTreeMap::new();
    for (file, costs) in (0_u32..).zip(&profile.lines) {
        for cost in costs {
            for module in &cost.modules {
                lines.entry(module.0).or_insert((FileId(file), cost.line));
            }
        }
    }
    // A line keeps a few of the modules that it calls: their like in other blocks are called there too.
    let kin = |module: u32| {
        let cost = profile.modules.get(module as usize)?;
        let parent = profile.modules.get(cost.parent?.0 as usize)?;
        let name = cost.path.rsplit('.').next().filter(|name| name.parse::<u32>().is_err());
        Some((parent.type_name.as_str(), cost.type_name.as_str(), name))
    };
    let of_kin: HashMap<_, _> =
        lines.iter().filter_map(|(module, line)| Some((kin(*module)?, *line))).collect();
    for module in 0..profile.modules.len() as u32 {
        if let Some(line) = kin(module).and_then(|kin| of_kin.get(&kin)) {
            lines.entry(module).or_insert(*line);
        }
    }
    let is_direct = |module: u32, line: (FileId, u32)| {
        !around(profile, module).skip(1).any(|outer| lines.get(&outer) == Some(&line))
    };
    lines.iter().map(|(&module, &line)| (module, (line, is_direct(module, line)))).collect()
}

/// A call as places in the host's order: its first and its last task.
type Call = (usize, usize);

struct Finder<'a> {
    graph: &'a Graph,
    profile: &'a Profile,
    order: HostOrder,
    /// By task of the host: nanoseconds of the kernels that it launches.
    kernels_ns: Vec<f64>,
    /// By module: places of the tasks of its backward pass.
    backward: HashMap<u32, Vec<usize>>,
    /// Blocks by the place of the task that allocates them.
    blocks: Vec<(usize, usize)>,
    /// By size, in [`GRAIN`]s: the place where an operator of the forward pass takes such a tensor last.
    taken: HashMap<u64, usize>,
}

/// Blocks of a GPU are given out in multiples of this.
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
            for module in module.into_iter().flat_map(|module| around(profile, module)) {
                backward.entry(module).or_default().push(index);
            }
        }
        let blocks = graph.memory.blocks.iter().enumerate();
        let mut blocks: Vec<(usize, usize)> = blocks
            .filter_map(|(number, block)| Some((order.of(block.allocated)?, number)))
            .collect();
        blocks.sort_unstable();
        let mut taken = HashMap::new();
        for (place, task) in order.iter(graph).filter(|(_, task)| task.phase == Phase::Forward) {
            let inputs = graph.operator_of(task).into_iter().flat_map(Operator::input_tensors);
            taken.extend(inputs.filter_map(Tensor::bytes).map(|bytes| (grains(bytes), place)));
        }
        Finder { graph, profile, order, kernels_ns, backward, blocks, taken }
    }

    /// The calls of each module in the forward pass.
    fn calls(&self) -> BTreeMap<u32, Vec<Call>> {
        let mut calls: BTreeMap<u32, Vec<Call>> = BTreeMap::new();
        // How many tasks so far were surely of some module, or of another phase: where a module's own
        // are not all of those since its last one, something else ran between two calls.
        let mut known = 0_usize;
        let mut seen: HashMap<u32, usize> = HashMap::new();
        for (index, task) in self.order.iter(self.graph) {
            let is_forward = task.phase == Phase::Forward;
            if task.module.is_none() && (is_forward || task.phase == Phase::Other) {
                continue;
            }
            known += 1;
            let Some(module) = task.module.filter(|_| is_forward) else { continue };
            for module in around(self.profile, module) {
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

    /// The calls that can be made again; none where it cannot be told which backward pass is whose.
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

    fn made_in(&self, (first, last): Call) -> impl Iterator<Item = (usize, usize, &'a Block)> + '_ {
        let from = self.blocks.partition_point(|(place, _)| *place < first);
        let blocks = self.blocks.get(from..).unwrap_or_default();
        let blocks = blocks.iter().take_while(move |(place, _)| *place <= last);
        blocks.filter_map(|&(place, number)| {
            Some((place, number, self.graph.memory.blocks.get(number)?))
        })
    }

    fn keeps_something(&self, call: Call) -> bool {
        self.made_in(call).any(|(_, _, block)| block.kind == BlockKind::Activations)
    }

    fn segment(&self, module: u32, call: Call, backward: usize) -> Option<Segment> {
        let output = self.output(call);
        let freed = |block: &Block| self.order.of(block.freed);
        let mut kept: Vec<(usize, usize)> = Vec::new();
        for (place, number, block) in self.made_in(call) {
            let is_saved = block.kind == BlockKind::Activations
                && freed(block).is_some_and(|freed| freed >= backward);
            if is_saved && self.is_freed_in_backward(block) {
                kept.push((place, number));
            }
        }
        // The output stays for those who use it. Where the call saved it itself, it is made again.
        let dropped: Vec<(usize, Moment)> = kept
            .iter()
            .filter_map(|&(place, number)| {
                let is_output = output == Some(number);
                let used_until = || self.order.used_until(self.graph, place, call.1);
                let after = if is_output { backward } else { used_until() };
                Some((number, self.order.beginning(after)?))
            })
            .collect();
        let needed = kept.iter().map(|(place, _)| *place).max()?;
        let in_again = |place: usize| (call.0..=needed).contains(&place);
        let is_kept: HashSet<usize> = kept.iter().map(|(_, number)| *number).collect();
        let passing: Vec<usize> = self
            .made_in((call.0, needed))
            .filter(|(_, number, block)| {
                !is_kept.contains(number) && freed(block).is_some_and(|freed| freed < backward)
            })
            .map(|(_, number, _)| number)
            .collect();
        let again: Vec<TaskId> = self.order.tasks.get(call.0..=needed)?.to_vec();
        let of = |ns: &dyn Fn(&TaskId) -> f64| again.iter().map(ns).sum::<f64>();
        let host_ns = of(&|id| self.graph.task(*id).map_or(0.0, |task| task.duration_ns));
        let gpu_ns = of(&|id| self.kernels_ns.get(id.index()).copied().unwrap_or(0.0));
        let mut operators: Vec<u32> =
            again.iter().filter_map(|id| self.graph.task(*id)?.call).collect();
        operators.dedup();
        let mut segment = Segment {
            module,
            last: *self.order.tasks.get(call.1)?,
            backward: *self.order.tasks.get(backward)?,
            backward_event: self.order.event_at(backward),
            dropped,
            passing,
            most_bytes: 0.0,
            again_ns: if gpu_ns > 0.0 { gpu_ns } else { host_ns },
            operators: operators.len(),
            again,
        };
        segment.most_bytes = self.most_bytes(&segment, in_again);
        Some(segment)
    }

    /// What a call gives: of what outlives it and its last operator made, the largest that is as large as
    /// what others take after it. What a library keeps for its own backward pass, as oneDNN does for its
    /// recurrent layers, may be larger, and nobody takes it.
    fn output(&self, call: Call) -> Option<usize> {
        let outlives = |block: &Block| self.order.of(block.freed).is_none_or(|it| it > call.1);
        let alive: Vec<_> = self.made_in(call).filter(|(_, _, block)| outlives(block)).collect();
        let (_, _, last) = alive.last()?;
        let of_last = alive.iter().filter(|(_, _, block)| block.call == last.call);
        let is_taken = |block: &Block| {
            self.taken.get(&grains(block.bytes)).is_some_and(|place| *place > call.1)
        };
        let largest = of_last.max_by(|(_, _, a), (_, _, b)| {
            is_taken(a).cmp(&is_taken(b)).then(a.bytes.total_cmp(&b.bytes))
        });
        largest.map(|(_, number, _)| *number)
    }

    fn is_freed_in_backward(&self, block: &Block) -> bool {
        let task = block.freed.and_then(|moment| self.graph.task(moment.task));
        task.is_some_and(|task| task.phase == Phase::Backward)
    }

    /// The most that is alive while a call runs again.
    fn most_bytes(&self, segment: &Segment, in_again: impl Fn(usize) -> bool) -> f64 {
        let mut changes: Vec<(u32, f64)> = Vec::new();
        let made = segment.dropped.iter().map(|(number, _)| *number);
        for (number, passes) in
            made.map(|number| (number, false)).chain(segment.passing.iter().map(|it| (*it, true)))
        {
            let Some(block) = self.graph.memory.blocks.get(number) else { continue };
            changes.extend(block.allocated.map(|moment| (moment.event, block.bytes)));
            let is_freed = passes && self.order.of(block.freed).is_some_and(&in_again);
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
    fn a_line_s_calls_are_found_with_what_each_keeps_inside() {
        let step = step(3, true);
        let groups = groups(&step.recorded.graph, &step.profile);
        let [group] = groups.as_slice() else { panic!("one line calls modules: {groups:?}") };
        assert_eq!((group.line, group.is_direct), (LINE, true));
        let told: Vec<_> = group.segments.iter().map(|one| (one.module, one.most_bytes)).collect();
        assert_eq!(told, [(1, INNER), (2, INNER), (3, INNER)]);
        // What the layers give stays, and is not made again.
        assert!(group.segments.iter().all(|one| one.dropped.len() == 1 && one.operators == 1));
    }

    #[test]
    fn what_a_library_keeps_for_itself_is_not_what_a_call_gives() {
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
        // Nobody is known to take either: the larger one stays until the backward pass.
        let (task, backward) = until(graph);
        assert_eq!(task, backward);
        let next = operator("relu", &[&[OUTPUT as u64 / 4]], &[OUTPUT as u64 / 4]);
        graph.operators = vec![next; 3];
        let (task, backward) = until(graph);
        assert!(task < backward, "{task:?}, {backward:?}");
    }

    #[test]
    fn a_checkpoint_takes_one_of_the_calls_of_a_line() {
        let step = step(1, true);
        let mut both = groups(&step.recorded.graph, &step.profile);
        let mut small = both[0].clone();
        small.segments[0].most_bytes = 0.5 * INNER;
        both.push(small);
        one_a_line(&mut both);
        assert_eq!(both.iter().map(|one| one.is_direct).collect::<Vec<_>>(), [true, false]);
    }
}
