//! A recording's iteration as a graph that takes as long as the iteration took.

use thiserror::Error;

use super::graph::Graph;
use super::simulate::{self, Runner, Schedule, SimulationError};

/// A replay that is further from the recording makes every prediction a guess.
pub const TRUSTED_REPLAY: f64 = 0.05;

/// A host that is slower than the recorded one by more has something else to do.
const MOST_HOST: u32 = 4;
/// A profiler makes no host slower by more: beside a GPU the host keeps at least this part of its
/// recorded time, in [`PARTS`].
const LEAST_HOST: u32 = PARTS / 4;
/// The host's factor is known to such a part.
const PARTS: u32 = 1024;

/// Why a recording has no graph.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NoGraph {
    /// No iteration was recorded whole.
    #[error("the recording has no complete iteration")]
    NoIteration,
    /// More than can be replayed.
    #[error("the iteration has more than {most} events, too many to simulate")]
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
    /// What the host's recorded times were multiplied by for an iteration without a profiler; above 0.
    pub host_factor: f64,
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
    let mut schedule = simulate::steady(&graph)?;
    let mut host_factor = 1.0;
    let is_close = |schedule: &Schedule| (schedule.iteration_ns / measured_ns - 1.0).abs() < 1e-3;
    if measured_ns > 0.0 && !is_close(&schedule) {
        host_factor = fitting_host_factor(&graph, schedule.iteration_ns, measured_ns)?;
        let hosts = graph.tasks.iter_mut().filter(|task| task.kind.is_host());
        hosts.for_each(|task| task.duration_ns *= host_factor);
        schedule = simulate::steady(&graph)?;
        let left = measured_ns / schedule.iteration_ns;
        if !is_close(&schedule) && left.is_finite() && left > 0.0 {
            for task in graph.tasks.iter_mut() {
                task.duration_ns *= left;
                task.after_ns *= left;
            }
            host_factor *= left;
            schedule = simulate::steady(&graph)?;
        }
    }
    graph.tasks.keep_calls();
    Ok(Recorded { graph, schedule, replay_error, measured_ns, host_factor, notes: Vec::new() })
}

/// The highest factor on the host's times with which an iteration takes no longer than measured;
/// `recorded_ns` is what it takes as recorded.
///
/// Where a GPU bounds it, every host up to some factor fits; the profiled one was no faster than it is
/// without a profiler. Beside a GPU it is at least [`LEAST_HOST`]: where the iteration takes too long even
/// then, the GPU's work was slower under the profiler, too.
fn fitting_host_factor(
    graph: &Graph,
    recorded_ns: f64,
    measured_ns: f64,
) -> Result<f64, SimulationError> {
    let is_host_alone = graph.tasks.iter().all(|task| task.kind.is_host());
    if recorded_ns <= measured_ns && !is_host_alone {
        return Ok(1.0);
    }
    let mut runner = Runner::new(graph);
    let mut takes = |parts: u32| -> Result<(u32, f64), SimulationError> {
        let factor = f64::from(parts) / f64::from(PARTS);
        for (duration_ns, task) in runner.duration_ns.iter_mut().zip(graph.tasks.iter()) {
            if task.kind.is_host() {
                *duration_ns = task.duration_ns * factor;
            }
        }
        Ok((parts, runner.steady()?.iteration_ns))
    };
    let recorded = (PARTS, recorded_ns);
    let (mut low, mut high) = if recorded_ns <= measured_ns {
        (recorded, takes(MOST_HOST * PARTS)?)
    } else {
        (takes(if is_host_alone { 0 } else { LEAST_HOST })?, recorded)
    };
    let mut halve = false;
    // Never, where the GPU alone takes longer, or the slowest host less.
    while low.0 + 1 < high.0 && low.1 <= measured_ns && measured_ns < high.1 {
        // Where the time is as if it grew evenly between the two; in the middle, where that was a poor
        // guess.
        let wide = high.0 - low.0;
        let even = (measured_ns - low.1) / (high.1 - low.1) * f64::from(wide);
        let guess = if halve { wide / 2 } else { (even as u32).clamp(1, wide - 1) };
        let middle = takes(low.0 + guess)?;
        if middle.1 <= measured_ns {
            low = middle;
        } else {
            high = middle;
        }
        halve = 2 * (high.0 - low.0) > wide;
    }
    let is_slower_still = high.1 <= measured_ns;
    Ok(f64::from(if is_slower_still { high.0 - 1 } else { low.0 }) / f64::from(PARTS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Resource, Task, TaskKind};
    use ridgeline_profile::Phase;

    /// A host that works for so long, launches a kernel and waits for it, several times.
    fn graph(host_ns: f64, kernel_ns: Option<f64>) -> Graph {
        let mut graph = Graph::default();
        for _ in 0..3 {
            let host = graph.resource(&Resource::Host);
            let task = |kind, time_ns| Task::new(kind, time_ns, Phase::Forward);
            let launch = graph.push(host, task(TaskKind::HostOperator, host_ns));
            let Some(kernel_ns) = kernel_ns else { continue };
            let stream = graph.resource(&Resource::Stream(0, 7));
            let kernel = graph.push(stream, task(TaskKind::Kernel, kernel_ns));
            graph.wait(launch, kernel, 0.0);
            let wait = graph.push(host, task(TaskKind::Wait, 0.0));
            graph.wait(kernel, wait, 0.0);
        }
        graph
    }

    #[track_caller]
    fn check(graph: &Graph, measured_ns: f64, expected: f64) {
        let recorded_ns = simulate::steady(graph).unwrap().iteration_ns;
        assert_eq!(fitting_host_factor(graph, recorded_ns, measured_ns).unwrap(), expected);
    }

    #[test]
    fn the_highest_factor_that_fits() {
        let part = 1.0 / 1024.0;
        check(&graph(100.0, None), 150.0, 0.5);
        check(&graph(100.0, None), 149.9, 0.5 - part);
        check(&graph(100.0, None), 600.0, 2.0);
        check(&graph(100.0, Some(100.0)), 450.0, 0.5);
        check(&graph(100.0, Some(100.0)), 375.4, 0.25 + part);
    }

    #[test]
    fn no_host_explains_it() {
        // The GPU alone takes longer, ...
        check(&graph(100.0, Some(100.0)), 290.0, 0.25);
        // ... or nearly as long: a host that took next to nothing is not what was recorded.
        check(&graph(100.0, Some(100.0)), 301.0, 0.25);
        // A host that waits for a GPU is no slower without a profiler.
        check(&graph(100.0, Some(100.0)), 900.0, 1.0);
        // Four times the host is not enough.
        check(&graph(100.0, None), 1e6, 4.0 - 1.0 / 1024.0);
    }

    #[test]
    fn what_the_host_leaves_everything_makes_up_for() {
        let found = calibrated(graph(100.0, Some(100.0)), 290.0, 0.0).unwrap();
        assert!(
            (found.schedule.iteration_ns - 290.0).abs() < 1e-6,
            "{}",
            found.schedule.iteration_ns
        );
        assert_eq!(found.measured_ns, 290.0);
        let host = found.graph.tasks.iter().find(|task| task.kind.is_host()).unwrap();
        assert!((host.duration_ns / found.host_factor - 100.0).abs() < 1e-9, "{host:?}");
    }
}
