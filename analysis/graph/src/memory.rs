//! Memory blocks with the tasks that allocate and free them, and their peak.

use super::graph::{Graph, TaskId};
use super::simulate::Schedule;
use ridgeline_profile::FileId;

/// What a block is used for, as in [`MemoryByKind`](ridgeline_profile::MemoryByKind).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Parameters and buffers.
    Weights,
    /// `.grad` of parameters.
    Gradients,
    /// Optimizer state.
    OptimizerState,
    /// Outputs of the forward pass that the backward pass needs.
    Activations,
    /// The batch from the data loader.
    Batch,
    /// Memory that lives within one operator or between two.
    Temporaries,
    /// None of the above.
    Other,
}

/// A moment during a host task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The host task.
    pub task: TaskId,
    /// The number of the memory event, in the order of the recording.
    pub event: u32,
}

/// A memory block that is allocated and freed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Size in bytes; 0 if a what-if removed the block.
    pub bytes: f64,
    pub kind: BlockKind,
    /// When it was allocated; `None` if that was before the iteration.
    pub allocated: Option<Moment>,
    /// When it was freed; `None` if it outlives the iteration.
    pub freed: Option<Moment>,
    /// The line that the memory is attributed to.
    pub line: Option<(FileId, u32)>,
    /// The module instance: index into [`Profile::modules`](ridgeline_profile::Profile::modules).
    pub module: Option<u32>,
    /// The call that allocated it, as in [`Task::call`](super::graph::Task::call).
    pub call: Option<u32>,
}

/// All blocks of an iteration.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Every block that is alive at some time.
    pub blocks: Vec<Block>,
    /// Recorded peak bytes that no block explains: workspaces, rounding, the allocator.
    pub unexplained: f64,
    /// Whether the recording contains memory events.
    pub is_known: bool,
}

impl Memory {
    /// Adds a block.
    pub fn add(&mut self, block: Block) {
        self.blocks.push(block);
    }
}

/// Returns the peak bytes of a scheduled iteration, or `None` if the recording contains no memory
/// events.
pub fn peak(graph: &Graph, schedule: &Schedule) -> Option<f64> {
    graph.memory.is_known.then(|| Changes::new(graph, schedule).peak(&graph.memory, |it| it.bytes))
}

/// Allocations and frees in order. The host's order is the same however long its tasks take.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The index of a block, and whether it is allocated (true) or freed.
    changes: Vec<(u32, bool)>,
}

impl Changes {
    /// Sorts the allocations and frees of a scheduled iteration.
    pub fn new(graph: &Graph, schedule: &Schedule) -> Changes {
        let at = |moment: Moment, default: f64| {
            let start_ns = schedule.start_ns.get(moment.task.index());
            (start_ns.copied().unwrap_or(default), moment.event)
        };
        let blocks = || (0_u32..).zip(&graph.memory.blocks);
        let mut changes: Vec<((f64, u32), f64, u32, bool)> =
            Vec::with_capacity(2 * graph.memory.blocks.len());
        // Allocations and frees are each nearly sorted, which the sort algorithm exploits.
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
        Changes {
            changes: changes
                .into_iter()
                .map(|(.., number, is_allocated)| (number, is_allocated))
                .collect(),
        }
    }

    /// Returns by block whether it is alive at the peak.
    pub fn alive_at_peak(&self, memory: &Memory) -> Vec<bool> {
        let (mut now, mut highest, mut until) = (0.0, 0.0, 0);
        for (position, (number, is_allocated)) in self.changes.iter().enumerate() {
            let bytes = memory.blocks.get(*number as usize).map_or(0.0, |block| block.bytes);
            now += if *is_allocated { bytes } else { -bytes };
            if now > highest {
                (highest, until) = (now, position + 1);
            }
        }
        let mut alive: Vec<bool> =
            memory.blocks.iter().map(|block| block.allocated.is_none()).collect();
        for (number, is_allocated) in self.changes.iter().take(until) {
            if let Some(one) = alive.get_mut(*number as usize) {
                *one = *is_allocated;
            }
        }
        alive
    }

    /// Returns the peak bytes, with the size of each block given by `bytes`.
    pub fn peak(&self, memory: &Memory, bytes: impl Fn(&Block) -> f64) -> f64 {
        let before = memory.blocks.iter().filter(|block| block.allocated.is_none());
        let mut now: f64 = before.map(&bytes).sum();
        let mut highest = now;
        for (number, is_allocated) in &self.changes {
            let Some(block) = memory.blocks.get(*number as usize) else { continue };
            now += if *is_allocated { bytes(block) } else { -bytes(block) };
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

    /// A task and one of its memory events.
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
    fn overlapping_blocks_add_up() {
        check(&[(100.0, None, None), (10.0, Some((0, 0)), Some((1, 0)))], 110.0);
        check(&[(10.0, Some((0, 0)), Some((1, 0))), (20.0, Some((2, 0)), None)], 20.0);
        check(&[(10.0, Some((0, 0)), Some((1, 7))), (20.0, Some((1, 3)), None)], 30.0);
        check(&[(10.0, Some((0, 0)), Some((1, 2))), (20.0, Some((1, 3)), None)], 20.0);
    }

    #[test]
    fn without_memory_events_the_peak_is_unknown() {
        let graph = Graph::default();
        assert_eq!(peak(&graph, &Schedule::default()), None);
    }
}
