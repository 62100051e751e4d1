//! The order of the host's tasks, which is also the order of allocations and frees.

use super::graph::{Graph, Resource, Task, TaskId};
use super::memory::Moment;

/// The host's tasks and their positions.
#[derive(Clone, Debug, Default)]
pub struct HostOrder {
    /// The host's tasks in order.
    pub tasks: Vec<TaskId>,
    /// By task: its position; `usize::MAX` for tasks of other resources.
    position: Vec<usize>,
    /// Allocations and frees in order: the event number in the recording, and the position of the
    /// task.
    events: Vec<(u32, usize)>,
}

impl HostOrder {
    /// Collects the order of a graph's host tasks.
    pub fn new(graph: &Graph) -> HostOrder {
        let host = graph.find(&Resource::Host);
        let tasks: Vec<TaskId> = host.into_iter().flat_map(|host| graph.on(host)).collect();
        let mut order =
            HostOrder { position: vec![usize::MAX; graph.tasks.len()], tasks, events: Vec::new() };
        for (index, id) in order.tasks.iter().enumerate() {
            if let Some(position) = order.position.get_mut(id.index()) {
                *position = index;
            }
        }
        for block in &graph.memory.blocks {
            for moment in [block.allocated, block.freed].into_iter().flatten() {
                if let Some(position) = order.of(Some(moment)) {
                    order.events.push((moment.event, position));
                }
            }
        }
        order.events.sort_unstable();
        order
    }

    /// Iterates over the tasks with their positions.
    pub fn iter<'a>(&'a self, graph: &'a Graph) -> impl Iterator<Item = (usize, &'a Task)> {
        let tasks = self.tasks.iter().enumerate();
        tasks.filter_map(|(position, id)| Some((position, graph.task(*id)?)))
    }

    /// Returns the task at a position.
    pub fn at<'a>(&self, graph: &'a Graph, position: usize) -> Option<&'a Task> {
        graph.task(*self.tasks.get(position)?)
    }

    /// Returns the position of a moment's task.
    pub fn of(&self, moment: Option<Moment>) -> Option<usize> {
        self.of_task(moment?.task)
    }

    /// Returns the position of a host task.
    pub fn of_task(&self, task: TaskId) -> Option<usize> {
        self.position.get(task.index()).copied().filter(|position| *position != usize::MAX)
    }

    /// Returns the number of the first memory event at or after a position.
    pub fn event_at(&self, position: usize) -> u32 {
        let next = self.events.partition_point(|(_, at)| *at < position);
        self.events.get(next).map_or(u32::MAX, |(event, _)| *event)
    }

    /// Returns the start of the task at a position, before all of its memory events.
    pub fn beginning(&self, position: usize) -> Option<Moment> {
        let task = *self.tasks.get(position)?;
        Some(Moment { task, event: self.event_at(position).saturating_sub(1) })
    }

    /// Returns the position at which Python releases the output of the operator at a position: the
    /// start of the operator after the next one (`x = f(x)`), or the position after `last`.
    pub fn used_until(&self, graph: &Graph, position: usize, last: usize) -> usize {
        let call_at = |position: usize| self.at(graph, position)?.call;
        let mut current = call_at(position);
        let mut seen = 0;
        for next in position + 1..=last {
            let call = call_at(next);
            if call.is_some() && call != current {
                current = call;
                seen += 1;
                if seen == 2 {
                    return next;
                }
            }
        }
        last + 1
    }
}
