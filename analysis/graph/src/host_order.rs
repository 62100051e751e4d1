//! The order in which the host does things, which is the order in which memory is given out and taken
//! back.

use super::graph::{Graph, Resource, Task, TaskId};
use super::memory::Moment;

/// The host's tasks by their place in its order.
#[derive(Clone, Debug, Default)]
pub struct HostOrder {
    /// The tasks in order.
    pub tasks: Vec<TaskId>,
    /// By task: its place; the largest number for one that is not the host's.
    place: Vec<usize>,
    /// What happens to memory, in order: its number in the recording, and the place of its task.
    events: Vec<(u32, usize)>,
}

impl HostOrder {
    /// Of a graph.
    pub fn new(graph: &Graph) -> HostOrder {
        let host = graph.find(&Resource::Host);
        let tasks: Vec<TaskId> = host.into_iter().flat_map(|host| graph.on(host)).collect();
        let mut order =
            HostOrder { place: vec![usize::MAX; graph.tasks.len()], tasks, events: Vec::new() };
        for (index, id) in order.tasks.iter().enumerate() {
            if let Some(place) = order.place.get_mut(id.index()) {
                *place = index;
            }
        }
        for block in &graph.memory.blocks {
            for moment in [block.allocated, block.freed].into_iter().flatten() {
                if let Some(place) = order.of(Some(moment)) {
                    order.events.push((moment.event, place));
                }
            }
        }
        order.events.sort_unstable();
        order
    }

    /// The tasks with their places.
    pub fn iter<'a>(&'a self, graph: &'a Graph) -> impl Iterator<Item = (usize, &'a Task)> {
        let tasks = self.tasks.iter().enumerate();
        tasks.filter_map(|(place, id)| Some((place, graph.task(*id)?)))
    }

    /// The task at a place.
    pub fn at<'a>(&self, graph: &'a Graph, place: usize) -> Option<&'a Task> {
        graph.task(*self.tasks.get(place)?)
    }

    /// The place of a moment's task.
    pub fn of(&self, moment: Option<Moment>) -> Option<usize> {
        self.of_task(moment?.task)
    }

    /// The place of a task of the host.
    pub fn of_task(&self, task: TaskId) -> Option<usize> {
        self.place.get(task.index()).copied().filter(|place| *place != usize::MAX)
    }

    /// The number of the first thing that happens to memory at or after a place.
    pub fn event_at(&self, place: usize) -> u32 {
        let next = self.events.partition_point(|(_, at)| *at < place);
        self.events.get(next).map_or(u32::MAX, |(event, _)| *event)
    }

    /// The beginning of the task at a place, before all that happens in it.
    pub fn beginning(&self, place: usize) -> Option<Moment> {
        let task = *self.tasks.get(place)?;
        Some(Moment { task, event: self.event_at(place).saturating_sub(1) })
    }

    /// Where Python lets go of what the operator at a place made: where the operator after the next
    /// one begins (`x = f(x)`), or behind `last`.
    pub fn used_until(&self, graph: &Graph, place: usize, last: usize) -> usize {
        let call_at = |place: usize| self.at(graph, place)?.call;
        let mut current = call_at(place);
        let mut seen = 0;
        for next in place + 1..=last {
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
