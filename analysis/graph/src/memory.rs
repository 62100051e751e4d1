//! What is alive when, and how high it gets: blocks with the tasks that allocate and free them.

use super::graph::{Graph, TaskId};
use super::simulate::Schedule;
use ridgeline_profile::FileId;

/// What a block is part of, as in [`MemoryByKind`](ridgeline_profile::MemoryByKind).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Parameters and buffers.
    Weights,
    /// `.grad` of parameters.
    Gradients,
    /// What the optimizer keeps.
    OptimizerState,
    /// What the forward pass made and the backward pass needs.
    Activations,
    /// What the loader gave.
    Batch,
    /// What lives within one operator or between two.
    Temporaries,
    /// None of these.
    Other,
}

/// A moment of the host: while a task ran, and the place among the moments of that task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// A task of the host.
    pub task: TaskId,
    /// In the order of the recording.
    pub event: u32,
}

/// A stretch of memory that is given out and taken back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Its size; 0 for one that a what-if does without.
    pub bytes: f64,
    /// What it is part of.
    pub kind: BlockKind,
    /// When it was given out; nothing where it was alive before the iteration.
    pub allocated: Option<Moment>,
    /// When it was taken back; nothing where it outlives the iteration.
    pub freed: Option<Moment>,
    /// The line that it is the cost of.
    pub line: Option<(FileId, u32)>,
    /// The module instance: index into [`Profile::modules`](ridgeline_profile::Profile::modules).
    pub module: Option<u32>,
    /// The call that made it, as in [`Task::call`](super::graph::Task::call).
    pub call: Option<u32>,
}

/// All blocks of an iteration.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Every block that is alive at some time.
    pub blocks: Vec<Block>,
    /// Bytes beyond the blocks at the peak, as recorded: workspaces, rounding, the allocator.
    pub unexplained: f64,
    /// Whether the recording tells of memory at all.
    pub is_known: bool,
}

impl Memory {
    /// Adds a block.
    pub fn add(&mut self, block: Block) {
        self.blocks.push(block);
    }
}

/// Bytes at the peak of an iteration that ran so; nothing where the recording does not tell of
/// memory.
pub fn peak(graph: &Graph, schedule: &Schedule) -> Option<f64> {
    graph.memory.is_known.then(|| Changes::new(graph, schedule).peak(&graph.memory, |it| it.bytes))
}

/// Blocks as they come and go. The host goes through them in one order, however long its tasks take.
#[derive(Clone, Debug)]
pub struct Changes {
    /// A block of the graph, and whether it is given out.
    changes: Vec<(u32, bool)>,
}

impl Changes {
    /// Of an iteration that ran so.
    pub fn new(graph: &Graph, schedule: &Schedule) -> Changes {
        let at = |moment: Moment, otherwise: f64| {
            let start_ns = schedule.start_ns.get(moment.task.index());
            (start_ns.copied().unwrap_or(otherwise), moment.event)
        };
        let blocks = || (0_u32..).zip(&graph.memory.blocks);
        let mut changes: Vec<((f64, u32), f64, u32, bool)> =
            Vec::with_capacity(2 * graph.memory.blocks.len());
        // Each of the two is about in order, which sorting makes use of.
        changes.extend(blocks().filter_map(|(number, block)| {
            Some((at(block.allocated?, f64::NEG_INFINITY), block.bytes, number, true))
        }));
        changes.extend(blocks().filter_map(|(number, block)| {
            Some((at(block.freed?, f64::INFINITY), -block.bytes, number, false))
        }));
        changes.sort_by(|((one_ns, one), one_bytes, ..), ((other_ns, other), other_bytes, ..)| {
            let by_time = one_ns.total_cmp(other_ns).then(one.cmp(other));
            by_time.then(other_bytes.total_cmp(one_bytes))
        });
        Changes { changes: changes.into_iter().map(|(.., number, made)| (number, made)).collect() }
    }

    /// By block: whether it is alive at the peak.
    pub fn alive_at_peak(&self, memory: &Memory) -> Vec<bool> {
        let (mut now, mut highest, mut until) = (0.0, 0.0, 0);
        for (place, (number, is_made)) in self.changes.iter().enumerate() {
            let bytes = memory.blocks.get(*number as usize).map_or(0.0, |block| block.bytes);
            now += if *is_made { bytes } else { -bytes };
            if now > highest {
                (highest, until) = (now, place + 1);
            }
        }
        let mut alive: Vec<bool> =
            memory.blocks.iter().map(|block| block.allocated.is_none()).collect();
        for (number, is_made) in self.changes.iter().take(until) {
            if let Some(one) = alive.get_mut(*number as usize) {
                *one = *is_made;
            }
        }
        alive
    }

    /// Bytes at the peak of blocks that are so large.
    pub fn peak(&self, memory: &Memory, bytes: impl Fn(&Block) -> f64) -> f64 {
        let before = memory.blocks.iter().filter(|block| block.allocated.is_none());
        let mut now: f64 = before.map(&bytes).sum();
        let mut highest = now;
        for (number, is_made) in &self.changes {
            let Some(block) = memory.blocks.get(*number as usize) else { continue };
            now += if *is_made { bytes(block) } else { -bytes(block) };
            highest = highest.max(now);
        }
        (highest + memory.unexplained).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Resource, Task, TaskKind};
    use crate::simulate::once;
    use ridgeline_profile::Phase;

    /// A task and an event of it.
    type When = Option<(u32, u32)>;

    /// Blocks as `(bytes, allocated, freed)`.
    #[track_caller]
    fn check(blocks: &[(f64, When, When)], expected: f64) {
        let mut graph = Graph::default();
        let host = graph.resource(&Resource::Host);
        for _ in 0..3 {
            graph.push(host, Task::new(TaskKind::HostOperator, 10.0, Phase::Forward));
        }
        let moment = |(task, event): (u32, u32)| Moment { task: TaskId(task), event };
        graph.memory.is_known = true;
        for (bytes, allocated, freed) in blocks {
            graph.memory.add(Block {
                bytes: *bytes,
                kind: BlockKind::Other,
                allocated: allocated.map(moment),
                freed: freed.map(moment),
                line: None,
                module: None,
                call: None,
            });
        }
        let schedule = once(&graph, &[]).unwrap();
        assert_eq!(peak(&graph, &schedule), Some(expected));
    }

    #[test]
    fn blocks_add_up_while_they_live() {
        check(&[(100.0, None, None), (10.0, Some((0, 0)), Some((1, 0)))], 110.0);
        check(&[(10.0, Some((0, 0)), Some((1, 0))), (20.0, Some((2, 0)), None)], 20.0);
        check(&[(10.0, Some((0, 0)), Some((1, 7))), (20.0, Some((1, 3)), None)], 30.0);
        check(&[(10.0, Some((0, 0)), Some((1, 2))), (20.0, Some((1, 3)), None)], 20.0);
    }

    #[test]
    fn without_blocks_nothing_is_known() {
        let graph = Graph::default();
        assert_eq!(peak(&graph, &Schedule::default()), None);
    }
}
