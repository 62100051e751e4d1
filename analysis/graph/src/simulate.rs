//! How long an iteration takes: each task starts when all that it waits for is done and its resource
//! is free (Daydream, algorithm 1).
//!
//! Iterations follow one another, and the host of one runs ahead of the GPU of the one before. So the
//! graph is run several times, each time from where the last one left its resources, until one takes
//! as long as the one before.
#![allow(
    clippy::indexing_slicing,
    reason = "hot loops, whose indices are all of tasks and resources of the simulated graph (`Plan`)"
)]

use thiserror::Error;

use super::graph::Graph;

mod by_events;
mod plan;
#[cfg(test)]
mod tests;

pub(super) use plan::Plan;

/// Iterations until one follows the other as in a long run, at most.
const MOST_PASSES: usize = 4;
/// Two iterations are equally long where they differ by less than this share.
const SAME: f64 = 1e-4;

/// Why a graph cannot be run.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SimulationError {
    /// Tasks wait for one another in a circle: the recording's times contradict each other.
    #[error("{waiting} of {all} tasks wait for each other: the recorded times are inconsistent")]
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
    Runner::new(graph).steady()
}

/// Runs a graph once. `busy_until_ns` tells by resource when it is free; where it says nothing, at 0.
///
/// # Errors
/// As [`steady`].
pub fn once(graph: &Graph, busy_until_ns: &[f64]) -> Result<Schedule, SimulationError> {
    let runner = Runner::new(graph);
    let mut state = State::new(graph, busy_until_ns);
    let iteration_ns = runner.run(&mut state)?;
    Ok(state.schedule(iteration_ns))
}

/// Runs a graph again and again whose tasks take now this long, now that.
pub struct Runner<'g> {
    graph: &'g Graph,
    plan: &'g Plan,
    /// By task, in nanoseconds: how long it takes. At first as the graph says.
    pub duration_ns: Vec<f64>,
    /// By task: [`Task::after_ns`](super::graph::Task::after_ns).
    after_ns: Vec<f64>,
}

impl<'g> Runner<'g> {
    /// For a graph as it is.
    pub fn new(graph: &'g Graph) -> Runner<'g> {
        Runner {
            graph,
            plan: graph.plan(),
            duration_ns: graph.tasks.iter().map(|task| task.duration_ns).collect(),
            after_ns: graph.tasks.iter().map(|task| task.after_ns).collect(),
        }
    }

    /// As [`steady`].
    ///
    /// # Errors
    /// As [`steady`].
    pub fn steady(&self) -> Result<Schedule, SimulationError> {
        let mut state = State::new(self.graph, &[]);
        let mut before = self.run(&mut state)?;
        let mut iteration_ns = before;
        for _ in 1..MOST_PASSES {
            let end = self.run(&mut state)?;
            let took = end - before;
            before = end;
            let is_steady = (took - iteration_ns).abs() <= SAME * iteration_ns;
            iteration_ns = took;
            if is_steady {
                break;
            }
        }
        Ok(state.schedule(iteration_ns))
    }

    /// Runs one more iteration, and says when its last task ended.
    fn run(&self, state: &mut State) -> Result<f64, SimulationError> {
        state.begin(self.graph);
        match &self.plan.order {
            Some(order) => self.run_in_order(state, order),
            None => self.run_by_events(state),
        }
    }

    fn run_in_order(&self, state: &mut State, order: &[u32]) -> Result<f64, SimulationError> {
        let tasks = self.duration_ns.len();
        if order.len() < tasks {
            return Err(SimulationError::Cycle { waiting: tasks - order.len(), all: tasks });
        }
        // By resource: when the task before on it ended.
        let mut before_ns = state.free_ns.clone();
        let mut last_ns = 0.0_f64;
        for &task in order {
            let index = task as usize;
            let resource = self.plan.resource[index] as usize;
            let start_ns = state.start_ns[index].max(before_ns[resource] + self.after_ns[index]);
            let end_ns = start_ns + self.duration_ns[index].max(0.0);
            state.start_ns[index] = start_ns;
            state.end_ns[index] = end_ns;
            before_ns[resource] = end_ns;
            state.free_ns[resource] = state.free_ns[resource].max(end_ns);
            last_ns = last_ns.max(end_ns);
            for &(waiter, lag_ns) in self.plan.waiting(task) {
                let earliest_ns = &mut state.start_ns[waiter as usize];
                *earliest_ns = earliest_ns.max(end_ns + lag_ns);
            }
        }
        Ok(last_ns)
    }
}

/// Where the iterations so far leave tasks and resources.
struct State {
    /// By task: when it starts, and until that is settled, when it may at the earliest.
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
        free_ns.resize(graph.plan().by_priority.len(), 0.0);
        State {
            start_ns: vec![0.0; graph.tasks.len()],
            end_ns: vec![0.0; graph.tasks.len()],
            free_ns,
            has_run: false,
        }
    }

    /// Begins an iteration: what the one before leaves for this one to wait for.
    fn begin(&mut self, graph: &Graph) {
        if self.has_run {
            self.start_ns.fill(0.0);
            for edge in graph.across() {
                let end_ns = self.end_ns.get(edge.from.index()).copied().unwrap_or(0.0);
                if let Some(earliest_ns) = self.start_ns.get_mut(edge.to.index()) {
                    *earliest_ns = earliest_ns.max(end_ns + edge.lag_ns);
                }
            }
        }
        self.has_run = true;
    }

    fn schedule(self, iteration_ns: f64) -> Schedule {
        Schedule { iteration_ns, start_ns: self.start_ns, end_ns: self.end_ns }
    }
}
