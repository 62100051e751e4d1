//! A recording's iteration as a graph that takes as long as the iteration took.

use thiserror::Error;

use super::graph::{Graph, TaskId};
use super::simulate::{Runner, Schedule, SimulationError};

/// A host that is slower than the recorded one by more has something else to do.
const MOST_HOST: f64 = 4.0;
/// Until the host's factor is known to a thousandth.
const HALVINGS: u32 = 12;

/// Why a recording has no graph.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NoGraph {
    /// No iteration was recorded whole.
    #[error("the recording holds no whole iteration")]
    NoIteration,
    /// More than can be replayed.
    #[error("the iteration has more than {most} events, which is more than is replayed")]
    TooLarge {
        /// The most.
        most: usize,
    },
    /// It cannot be replayed.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

/// An iteration that what-ifs start from.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What runs, with the times of an iteration without a profiler.
    pub graph: Graph,
    /// How it runs, again and again.
    pub schedule: Schedule,
    /// How far replaying was from the recorded iteration before anything was changed: 0.01 is 1% too
    /// long.
    pub replay_error: f64,
    /// Nanoseconds of an iteration without a profiler, as measured.
    pub measured_ns: f64,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// Lets a graph take what its iteration took without a profiler: the profiler slowed down the host,
/// and where that alone does not explain it, the GPU.
///
/// # Errors
/// Where the graph cannot be run.
pub fn calibrated(
    mut graph: Graph,
    measured_ns: f64,
    replay_error: f64,
) -> Result<Recorded, NoGraph> {
    let recorded: Vec<f64> = graph.tasks.iter().map(|task| task.duration_ns).collect();
    let hosts: Vec<TaskId> = graph.select(|task| task.kind.is_host());
    let set_host = |graph: &mut Graph, factor: f64| {
        for id in &hosts {
            if let (Some(task), Some(duration_ns)) = (graph.task_mut(*id), recorded.get(id.index()))
            {
                task.duration_ns = duration_ns * factor;
            }
        }
    };
    let runner = Runner::new(&graph);
    let mut schedule = runner.steady(&graph)?;
    let is_close = |schedule: &Schedule| (schedule.iteration_ns / measured_ns - 1.0).abs() < 1e-3;
    if measured_ns > 0.0 && !is_close(&schedule) {
        let (mut low, mut high) = (0.0, MOST_HOST);
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            set_host(&mut graph, middle);
            if runner.steady(&graph)?.iteration_ns <= measured_ns {
                low = middle;
            } else {
                high = middle;
            }
        }
        // Where the GPU bounds it, every host up to some factor fits; the profiled one was no faster
        // than it is without a profiler.
        let is_host_alone = hosts.len() == graph.tasks.len();
        set_host(&mut graph, if is_host_alone { low } else { low.min(1.0) });
        schedule = runner.steady(&graph)?;
        let left = measured_ns / schedule.iteration_ns;
        if !is_close(&schedule) && left.is_finite() && left > 0.0 {
            for task in &mut graph.tasks {
                task.duration_ns *= left;
                task.after_ns *= left;
            }
            schedule = runner.steady(&graph)?;
        }
    }
    Ok(Recorded { graph, schedule, replay_error, measured_ns, notes: Vec::new() })
}
