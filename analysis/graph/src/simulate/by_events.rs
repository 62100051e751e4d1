//! Simulates a graph with resources that run tasks by priority, with an event queue: the next task
//! is only known when the resource is free.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::{Runner, SimulationError, State};
use crate::graph::TaskId;

/// An event and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Event {
    at_ns: f64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A resource with [`Order::Priority`](crate::graph::Order::Priority) has finished a task.
    Free(u32),
    /// All dependencies of a task are done.
    Ready(u32),
}

impl Eq for Event {}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        self.at_ns.total_cmp(&other.at_ns).then(self.what.cmp(&other.what))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The ready tasks of a resource that runs tasks by priority: the greatest entry has the highest
/// priority, and among equals arrived first.
#[derive(Clone, Debug, Default)]
struct Queue {
    ready: BinaryHeap<(i32, Reverse<(u64, u32)>)>,
    is_busy: bool,
    arrivals: u64,
}

impl Queue {
    fn push(&mut self, priority: i32, task: u32) {
        self.ready.push((priority, Reverse((self.arrivals, task))));
        self.arrivals += 1;
    }

    /// Returns the next task, if the resource is free.
    fn pop(&mut self) -> Option<u32> {
        if self.is_busy {
            return None;
        }
        let (_, Reverse((_, task))) = self.ready.pop()?;
        self.is_busy = true;
        Some(task)
    }
}

impl Runner<'_> {
    pub(super) fn run_by_events(&self, state: &mut State) -> Result<f64, SimulationError> {
        let Runner { graph, plan, .. } = self;
        let tasks = graph.tasks.len();
        let mut count = plan.count.clone();
        for (id, task) in graph.iter().filter(|(id, _)| graph.before(*id).is_none()) {
            let free_ns = state.free_ns.get(task.resource.0 as usize).copied().unwrap_or(0.0);
            let earliest_ns = &mut state.start_ns[id.index()];
            *earliest_ns = earliest_ns.max(free_ns + self.after_ns[id.index()]);
        }
        let mut events: BinaryHeap<Reverse<Event>> = BinaryHeap::new();
        let mut queues = vec![Queue::default(); plan.by_priority.len()];
        for (index, count) in (0_u32..).zip(&count) {
            if *count == 0 {
                let at_ns = state.start_ns[index as usize];
                events.push(Reverse(Event { at_ns, what: What::Ready(index) }));
            }
        }
        let (mut done, mut last_ns) = (0, 0.0_f64);
        while let Some(Reverse(Event { at_ns, what })) = events.pop() {
            let resource = match what {
                What::Free(resource) => resource as usize,
                What::Ready(index) => plan.resource[index as usize] as usize,
            };
            let has_queue = plan.by_priority.get(resource) == Some(&true);
            let starts = match (what, has_queue) {
                (What::Ready(index), false) => Some(index),
                (What::Ready(index), true) => {
                    queues[resource].push(graph.tasks[index as usize].priority, index);
                    queues[resource].pop()
                }
                (What::Free(_), _) => {
                    queues[resource].is_busy = false;
                    queues[resource].pop()
                }
            };
            let Some(task) = starts else { continue };
            let index = task as usize;
            let end_ns = at_ns + self.duration_ns[index].max(0.0);
            state.start_ns[index] = at_ns;
            state.end_ns[index] = end_ns;
            if let Some(free_ns) = state.free_ns.get_mut(resource) {
                *free_ns = free_ns.max(end_ns);
            }
            last_ns = last_ns.max(end_ns);
            done += 1;
            if has_queue {
                let what = What::Free(resource as u32);
                events.push(Reverse(Event { at_ns: end_ns, what }));
            }
            let next = graph.next(TaskId(task)).filter(|_| !has_queue);
            let next = next.map(|next| (next.0, self.after_ns[next.index()]));
            for (waiting, lag_ns) in plan.waiting(task).iter().copied().chain(next) {
                let waiter = waiting as usize;
                state.start_ns[waiter] = state.start_ns[waiter].max(end_ns + lag_ns);
                count[waiter] -= 1;
                if count[waiter] == 0 {
                    let at_ns = state.start_ns[waiter];
                    events.push(Reverse(Event { at_ns, what: What::Ready(waiting) }));
                }
            }
        }
        if done < tasks {
            return Err(SimulationError::Cycle { waiting: tasks - done, all: tasks });
        }
        Ok(last_ns)
    }
}
