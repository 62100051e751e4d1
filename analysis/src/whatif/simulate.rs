//! How long an iteration takes: each task starts when all that it waits for is done and its resource
//! is free (Daydream, algorithm 1).
//!
//! Iterations follow one another, and the host of one runs ahead of the GPU of the one before. So the
//! graph is run several times, each time from where the last one left its resources, until one takes
//! as long as the one before.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use thiserror::Error;

use super::graph::{Graph, Order, ResourceId};

mod order;
#[cfg(test)]
mod tests;

/// Iterations until one follows the other as in a long run, at most.
const MOST_PASSES: usize = 4;
/// Two iterations are equally long where they differ by less than this share.
const SAME: f64 = 1e-4;

/// Why a graph cannot be run.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SimulationError {
    /// Tasks wait for one another in a circle: the recording's times contradict each other.
    #[error(
        "{waiting} of {all} tasks wait for one another: the times of the recording contradict each other"
    )]
    Cycle {
        /// Tasks that could not start.
        waiting: usize,
        /// All of them.
        all: usize,
    },
}

/// When each task ran, in nanoseconds from the start of its iteration.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// Nanoseconds from one iteration to the next in a long run.
    pub iteration_ns: f64,
    /// By task, of the last iteration that was run; counted from when the first one began.
    pub start_ns: Vec<f64>,
    /// By task.
    pub end_ns: Vec<f64>,
}

/// Runs a graph until its iterations are equally long.
///
/// # Errors
/// Where tasks wait for one another in a circle.
pub fn steady(graph: &Graph) -> Result<Schedule, SimulationError> {
    Runner::new(graph).steady(graph)
}

/// Runs one graph again and again whose tasks change how long they take, and nothing else.
pub struct Runner(Plan);

impl Runner {
    /// Looks at who waits for whom.
    pub fn new(graph: &Graph) -> Runner {
        Runner(Plan::new(graph))
    }

    /// As [`steady`].
    ///
    /// # Errors
    /// As [`steady`].
    pub fn steady(&self, graph: &Graph) -> Result<Schedule, SimulationError> {
        let Runner(plan) = self;
        let mut state = State::new(graph, &[]);
        let mut before = plan.run(graph, &mut state)?;
        let mut iteration_ns = before;
        for _ in 1..MOST_PASSES {
            let end = plan.run(graph, &mut state)?;
            let took = end - before;
            before = end;
            let is_steady = (took - iteration_ns).abs() <= SAME * iteration_ns;
            iteration_ns = took;
            if is_steady {
                break;
            }
        }
        Ok(Schedule { iteration_ns, start_ns: state.start_ns, end_ns: state.end_ns })
    }
}

/// Runs a graph once. `busy_until_ns` tells by resource when it is free; where it says nothing, at 0.
///
/// # Errors
/// As [`steady`].
pub fn once(graph: &Graph, busy_until_ns: &[f64]) -> Result<Schedule, SimulationError> {
    let mut state = State::new(graph, busy_until_ns);
    let iteration_ns = Plan::new(graph).run(graph, &mut state)?;
    Ok(Schedule { iteration_ns, start_ns: state.start_ns, end_ns: state.end_ns })
}

/// Who waits for whom, in a form that is quick to follow. Every index in it is of a task or a
/// resource of the graph.
struct Plan {
    /// By task: where in `waiting` those that wait for it begin.
    first: Vec<u32>,
    waiting: Vec<(u32, f64)>,
    /// By task: how many it waits for, the one before on a chained resource included.
    count: Vec<u32>,
    /// By resource.
    by_priority: Vec<bool>,
    /// Each task after what it waits for, where no resource goes by priority.
    order: Option<Vec<u32>>,
}

struct State {
    start_ns: Vec<f64>,
    end_ns: Vec<f64>,
    /// By resource: when the last task on it ended.
    free_ns: Vec<f64>,
    /// Whether an iteration was run before.
    has_run: bool,
}

impl State {
    fn new(graph: &Graph, busy_until_ns: &[f64]) -> State {
        let mut free_ns = busy_until_ns.to_vec();
        free_ns.resize(graph.resources().len(), 0.0);
        State {
            start_ns: vec![0.0; graph.tasks.len()],
            end_ns: vec![0.0; graph.tasks.len()],
            free_ns,
            has_run: false,
        }
    }
}

/// Something to look at, at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Event {
    at_ns: f64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A resource that goes by priority has ended a task.
    Free(u32),
    /// A task has all that it waits for.
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

/// Tasks that are ready on a resource that goes by priority: the most urgent one is the greatest, of
/// equals the one that came first.
#[derive(Clone, Debug, Default)]
struct Queue {
    ready: BinaryHeap<(i32, Reverse<(u64, u32)>)>,
    is_busy: bool,
    came: u64,
}

impl Queue {
    fn push(&mut self, priority: i32, task: u32) {
        self.ready.push((priority, Reverse((self.came, task))));
        self.came += 1;
    }

    /// The next task, where the resource can take one.
    fn pop(&mut self) -> Option<u32> {
        if self.is_busy {
            return None;
        }
        let (_, Reverse((_, task))) = self.ready.pop()?;
        self.is_busy = true;
        Some(task)
    }
}

impl Plan {
    fn new(graph: &Graph) -> Plan {
        let tasks = graph.tasks.len();
        let by_priority: Vec<bool> = (0_u32..)
            .zip(graph.resources())
            .map(|(index, _)| graph.order(ResourceId(index)) == Order::Priority)
            .collect();
        let mut count = vec![0_u32; tasks];
        for (count, task) in count.iter_mut().zip(&graph.tasks) {
            let is_chained = by_priority.get(task.resource.0 as usize) != Some(&true);
            *count += u32::from(task.before.is_some() && is_chained);
        }
        let mut first = vec![0_u32; tasks + 1];
        let usable =
            || graph.edges.iter().filter(|edge| edge.from.index().max(edge.to.index()) < tasks);
        for edge in usable() {
            first[edge.from.index() + 1] += 1;
            count[edge.to.index()] += 1;
        }
        for index in 0..tasks {
            first[index + 1] += first[index];
        }
        let mut waiting = vec![(0_u32, 0.0); first[tasks] as usize];
        let mut next = first.clone();
        for edge in usable() {
            let slot = &mut next[edge.from.index()];
            waiting[*slot as usize] = (edge.to.0, edge.lag_ns);
            *slot += 1;
        }
        let mut plan = Plan { first, waiting, count, by_priority, order: None };
        plan.order = order::order(&plan, graph);
        plan
    }

    /// Who waits for a task, and from when on after its end.
    fn waiting(&self, index: u32) -> &[(u32, f64)] {
        let bound = |at: usize| self.first.get(at).map_or(0, |first| *first as usize);
        self.waiting.get(bound(index as usize)..bound(index as usize + 1)).unwrap_or_default()
    }

    /// When each task may begin at the earliest, as far as the iteration before and the resources
    /// say.
    fn earliest_ns(graph: &Graph, state: &State) -> Vec<f64> {
        let mut earliest_ns = vec![0.0_f64; graph.tasks.len()];
        if state.has_run {
            // What the iteration before leaves for this one to wait for.
            for edge in &graph.across {
                let end_ns = state.end_ns.get(edge.from.index()).copied().unwrap_or(0.0);
                if let Some(earliest) = earliest_ns.get_mut(edge.to.index()) {
                    *earliest = earliest.max(end_ns + edge.lag_ns);
                }
            }
        }
        for (earliest, task) in earliest_ns.iter_mut().zip(&graph.tasks) {
            if task.before.is_none() {
                let free_ns = state.free_ns.get(task.resource.0 as usize).copied().unwrap_or(0.0);
                *earliest = earliest.max(free_ns + task.after_ns);
            }
        }
        earliest_ns
    }

    /// Runs one more iteration, and says when its last task ended.
    fn run(&self, graph: &Graph, state: &mut State) -> Result<f64, SimulationError> {
        match &self.order {
            Some(order) => self.run_in_order(graph, state, order),
            None => self.run_by_events(graph, state),
        }
    }

    fn run_in_order(
        &self,
        graph: &Graph,
        state: &mut State,
        order: &[u32],
    ) -> Result<f64, SimulationError> {
        let tasks = graph.tasks.len();
        if order.len() < tasks {
            return Err(SimulationError::Cycle { waiting: tasks - order.len(), all: tasks });
        }
        let mut earliest_ns = Plan::earliest_ns(graph, state);
        let mut last_ns = 0.0_f64;
        for index in order.iter().map(|index| *index as usize) {
            let task = &graph.tasks[index];
            let start_ns = earliest_ns[index];
            let end_ns = start_ns + task.duration_ns.max(0.0);
            state.start_ns[index] = start_ns;
            state.end_ns[index] = end_ns;
            if let Some(free_ns) = state.free_ns.get_mut(task.resource.0 as usize) {
                *free_ns = free_ns.max(end_ns);
            }
            last_ns = last_ns.max(end_ns);
            if let Some(next) = task.next.map(|next| next.index()) {
                earliest_ns[next] = earliest_ns[next].max(end_ns + graph.tasks[next].after_ns);
            }
            for (waiter, lag_ns) in self.waiting(index as u32) {
                let waiter = *waiter as usize;
                earliest_ns[waiter] = earliest_ns[waiter].max(end_ns + lag_ns);
            }
        }
        state.has_run = true;
        Ok(last_ns)
    }

    fn run_by_events(&self, graph: &Graph, state: &mut State) -> Result<f64, SimulationError> {
        let tasks = graph.tasks.len();
        let mut count = self.count.clone();
        let mut earliest_ns = Plan::earliest_ns(graph, state);
        let mut events: BinaryHeap<Reverse<Event>> = BinaryHeap::new();
        let mut queues = vec![Queue::default(); self.by_priority.len()];
        for (index, count) in (0_u32..).zip(&count) {
            if *count == 0 {
                let at_ns = earliest_ns[index as usize];
                events.push(Reverse(Event { at_ns, what: What::Ready(index) }));
            }
        }
        let (mut done, mut last_ns) = (0, 0.0_f64);
        while let Some(Reverse(Event { at_ns, what })) = events.pop() {
            let resource = match what {
                What::Free(resource) => resource as usize,
                What::Ready(index) => graph.tasks[index as usize].resource.0 as usize,
            };
            let has_queue = self.by_priority.get(resource) == Some(&true);
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
            let Some(index) = starts.map(|index| index as usize) else { continue };
            let task = &graph.tasks[index];
            let end_ns = at_ns + task.duration_ns.max(0.0);
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
            let next = task.next.filter(|_| !has_queue);
            let next = next.map(|next| (next.0, graph.tasks[next.index()].after_ns));
            for (waiting, lag_ns) in self.waiting(index as u32).iter().copied().chain(next) {
                let waiter = waiting as usize;
                earliest_ns[waiter] = earliest_ns[waiter].max(end_ns + lag_ns);
                count[waiter] -= 1;
                if count[waiter] == 0 {
                    let at_ns = earliest_ns[waiter];
                    events.push(Reverse(Event { at_ns, what: What::Ready(waiting) }));
                }
            }
        }
        state.has_run = true;
        if done < tasks {
            return Err(SimulationError::Cycle { waiting: tasks - done, all: tasks });
        }
        Ok(last_ns)
    }
}
