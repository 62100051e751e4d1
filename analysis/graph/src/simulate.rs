//! Simulates an iteration: each task starts when its dependencies are done and its resource is free
//! (Daydream, algorithm 1).
//!
//! Iterations overlap: the host of one iteration runs ahead of the GPU of the previous one. So the
//! graph is run several times, each time starting from the state of the resources after the last
//! run, until two consecutive iterations take equally long.
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

/// The maximum number of simulated iterations until a steady state.
const MAX_ITERATIONS: usize = 4;
/// The maximum relative difference of two iterations that count as equally long.
const STEADY_TOLERANCE: f64 = 1e-4;

/// The reason why a graph cannot be simulated.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SimulationError {
    /// The dependencies have a cycle: the recorded times contradict each other.
    #[error("{waiting} of {all} tasks wait for each other: the recorded times are inconsistent")]
    Cycle {
        /// Number of tasks that could not start.
        waiting: usize,
        /// Number of all tasks.
        all: usize,
    },
}

/// Start and end of each task, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// Nanoseconds per iteration in a long run.
    pub iteration_ns: f64,
    /// Start by task in the last simulated iteration, since the start of the first one.
    pub start_ns: Vec<f64>,
    /// End by task, likewise.
    pub end_ns: Vec<f64>,
}

/// Simulates a graph until its iterations take equally long.
///
/// # Errors
/// If the dependencies have a cycle.
pub fn steady(graph: &Graph) -> Result<Schedule, SimulationError> {
    Runner::new(graph).steady()
}

/// Simulates one iteration. `busy_until_ns` has the time by resource when it becomes free, 0 if
/// missing.
///
/// # Errors
/// If the dependencies have a cycle.
pub fn once(graph: &Graph, busy_until_ns: &[f64]) -> Result<Schedule, SimulationError> {
    let runner = Runner::new(graph);
    let mut state = State::new(graph, busy_until_ns);
    let iteration_ns = runner.run(&mut state)?;
    Ok(state.schedule(iteration_ns))
}

/// Simulates a graph repeatedly with varying task durations.
pub struct Runner<'g> {
    graph: &'g Graph,
    plan: &'g Plan,
    /// Duration by task in nanoseconds, initially those of the graph.
    pub duration_ns: Vec<f64>,
    /// By task: [`Task::after_ns`](super::graph::Task::after_ns).
    after_ns: Vec<f64>,
}

impl<'g> Runner<'g> {
    /// Creates a runner with the durations of a graph.
    pub fn new(graph: &'g Graph) -> Runner<'g> {
        Runner {
            graph,
            plan: graph.plan(),
            duration_ns: graph.tasks.iter().map(|task| task.duration_ns).collect(),
            after_ns: graph.tasks.iter().map(|task| task.after_ns).collect(),
        }
    }

    /// See [`steady`].
    ///
    /// # Errors
    /// If the dependencies have a cycle.
    pub fn steady(&self) -> Result<Schedule, SimulationError> {
        let mut state = State::new(self.graph, &[]);
        let mut before = self.run(&mut state)?;
        let mut iteration_ns = before;
        for _ in 1..MAX_ITERATIONS {
            let end = self.run(&mut state)?;
            let duration_ns = end - before;
            before = end;
            let is_steady = (duration_ns - iteration_ns).abs() <= STEADY_TOLERANCE * iteration_ns;
            iteration_ns = duration_ns;
            if is_steady {
                break;
            }
        }
        Ok(state.schedule(iteration_ns))
    }

    /// Simulates one more iteration and returns the end of its last task.
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
        // By resource: the end of the previous task.
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

/// The state after the iterations simulated so far.
struct State {
    /// By task: its start, or while that is unknown, its earliest possible start.
    start_ns: Vec<f64>,
    end_ns: Vec<f64>,
    /// By resource: the end of its last task.
    free_ns: Vec<f64>,
    /// Whether an iteration was simulated before.
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

    /// Starts an iteration with the dependencies on the previous one.
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
