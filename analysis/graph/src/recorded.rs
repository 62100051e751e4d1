//! A recorded iteration as a graph whose simulated time equals the measured time.

use thiserror::Error;

use super::graph::{Graph, Resource, ResourceId, TaskId};
use super::simulate::{self, Runner, Schedule, SimulationError};

/// The maximum replay error of a trusted graph. Above it, predictions would be guesses.
pub const TRUSTED_REPLAY: f64 = 0.05;

/// The maximum host factor. A host that is slower than the recorded one by more does other work.
const MAX_HOST_FACTOR: u32 = 4;
/// The minimum host factor with a GPU, in [`PARTS`]: no profiler slows the host down by more.
const MIN_HOST_PARTS: u32 = PARTS / 4;
/// The resolution of the host factor: it is a multiple of `1 / PARTS`.
const PARTS: u32 = 1024;

/// The reason why a recording has no graph.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NoGraph {
    /// No iteration was recorded completely.
    #[error("the recording has no complete iteration")]
    NoIteration,
    /// The iteration has more events than can be simulated.
    #[error("the iteration has more than {most} events, too many to simulate")]
    TooLarge {
        /// The maximum number of events.
        most: usize,
    },
    /// The graph cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

/// A recorded iteration, the baseline of what-ifs.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The tasks, with the times of an iteration without the profiler.
    pub graph: Graph,
    /// The schedule in a steady state.
    pub schedule: Schedule,
    /// Relative error of replaying the recorded iteration before calibration: 0.01 is 1% too long.
    pub replay_error: f64,
    /// Measured nanoseconds per iteration: without the profiler, if such iterations were recorded.
    pub measured_ns: f64,
    /// The factor from recorded host times to those without the profiler; greater than 0.
    pub host_factor: f64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The measured time of an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Nanoseconds per iteration.
    pub time_ns: f64,
    /// Whether it was measured without the profiler.
    pub is_unprofiled: bool,
}

/// Calibrates a graph to the measured time of an iteration. Scales the host, which the profiler
/// slowed down, and if that is not enough, all tasks. GPU tasks keep their recorded durations if
/// the measured iteration is the profiled one, because then both are from the same run.
///
/// # Errors
/// If the graph cannot be simulated.
pub fn calibrated(
    mut graph: Graph,
    measured: Measurement,
    replay_error: f64,
) -> Result<Recorded, NoGraph> {
    let measured_ns = measured.time_ns;
    let can_scale_all = measured.is_unprofiled || graph.tasks.iter().all(|it| it.kind.is_host());
    let mut schedule = simulate::steady(&graph)?;
    let mut host_factor = 1.0;
    let is_close = |schedule: &Schedule| (schedule.iteration_ns / measured_ns - 1.0).abs() < 1e-3;
    if measured_ns > 0.0 && !is_close(&schedule) {
        host_factor = fitting_host_factor(&graph, schedule.iteration_ns, measured_ns)?;
        let host_tasks = graph.tasks.iter_mut().filter(|task| task.kind.is_host());
        host_tasks.for_each(|task| task.duration_ns *= host_factor);
        schedule = simulate::steady(&graph)?;
        let remaining = measured_ns / schedule.iteration_ns;
        if can_scale_all && !is_close(&schedule) && remaining.is_finite() && remaining > 0.0 {
            for task in graph.tasks.iter_mut() {
                task.duration_ns *= remaining;
                task.after_ns *= remaining;
            }
            host_factor *= remaining;
            schedule = simulate::steady(&graph)?;
        }
    }
    if !can_scale_all && !is_close(&schedule) && schedule.iteration_ns < measured_ns {
        (graph, schedule) = separated(graph, schedule, measured_ns)?;
    }
    graph.tasks.keep_calls();
    Ok(Recorded { graph, schedule, replay_error, measured_ns, host_factor, notes: Vec::new() })
}

/// Separates consecutive iterations if that explains the measured time better: first the GPU's work
/// of the next iteration waits for all of this one's, then the host as well. Otherwise the streams
/// and the host of consecutive iterations overlap as far as the dependencies allow, which they may
/// not have done, for instance at the end of a trace that is one iteration.
fn separated(
    mut graph: Graph,
    mut schedule: Schedule,
    measured_ns: f64,
) -> Result<(Graph, Schedule), NoGraph> {
    let distance = |schedule: &Schedule| (schedule.iteration_ns - measured_ns).abs();
    for with_host in [false, true] {
        let mut other = graph.clone();
        separate_iterations(&mut other, with_host);
        let found = simulate::steady(&other)?;
        if distance(&found) < distance(&schedule) {
            (graph, schedule) = (other, found);
        }
    }
    Ok((graph, schedule))
}

/// Lets the GPU's work of the next iteration, or all of the next iteration, wait for the GPU's work
/// of this one.
fn separate_iterations(graph: &mut Graph, with_host: bool) {
    let resources: Vec<(ResourceId, bool)> = (0_u32..)
        .map(ResourceId)
        .zip(graph.resources())
        .map(|(id, resource)| (id, matches!(resource, Resource::Stream(..))))
        .collect();
    let streams = resources.iter().filter(|(_, is_stream)| *is_stream);
    let last: Vec<TaskId> = streams.filter_map(|(id, _)| graph.last(*id)).collect();
    let waiting = resources.iter().filter(|(_, is_stream)| *is_stream || with_host);
    let first: Vec<TaskId> = waiting.filter_map(|(id, _)| graph.first(*id)).collect();
    for to in first {
        for from in &last {
            graph.wait_across(*from, to, 0.0);
        }
    }
}

/// Returns the highest host factor with which an iteration takes no longer than measured.
/// `recorded_ns` is the simulated time with recorded durations.
///
/// If the GPU is the bottleneck, every host factor up to some maximum fits; the result is at most 1
/// then, because profiling does not make a host faster. With a GPU the factor is at least
/// [`MIN_HOST_PARTS`]: if the iteration still takes too long, the profiler slowed down the GPU's
/// work, too.
fn fitting_host_factor(
    graph: &Graph,
    recorded_ns: f64,
    measured_ns: f64,
) -> Result<f64, SimulationError> {
    let is_host_only = graph.tasks.iter().all(|task| task.kind.is_host());
    if recorded_ns <= measured_ns && !is_host_only {
        return Ok(1.0);
    }
    let mut runner = Runner::new(graph);
    let mut iteration_with = |parts: u32| -> Result<(u32, f64), SimulationError> {
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
        (recorded, iteration_with(MAX_HOST_FACTOR * PARTS)?)
    } else {
        (iteration_with(if is_host_only { 0 } else { MIN_HOST_PARTS })?, recorded)
    };
    let mut bisect = false;
    // No iterations if the GPU by itself takes longer than measured, or the slowest allowed host
    // takes less.
    while low.0 + 1 < high.0 && low.1 <= measured_ns && measured_ns < high.1 {
        // Interpolate linearly between the bounds, or bisect if the previous interpolation was
        // poor.
        let width = high.0 - low.0;
        let interpolated = (measured_ns - low.1) / (high.1 - low.1) * f64::from(width);
        let guess = if bisect { width / 2 } else { (interpolated as u32).clamp(1, width - 1) };
        let middle = iteration_with(low.0 + guess)?;
        if middle.1 <= measured_ns {
            low = middle;
        } else {
            high = middle;
        }
        bisect = 2 * (high.0 - low.0) > width;
    }
    let is_slower_still = high.1 <= measured_ns;
    Ok(f64::from(if is_slower_still { high.0 - 1 } else { low.0 }) / f64::from(PARTS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Task, TaskKind};
    use ridgeline_profile::Phase;

    /// A host that works for `host_ns`, launches a kernel and waits for it, three times.
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
    fn host_factor_fits_the_measured_time() {
        let part = 1.0 / 1024.0;
        check(&graph(100.0, None), 150.0, 0.5);
        check(&graph(100.0, None), 149.9, 0.5 - part);
        check(&graph(100.0, None), 600.0, 2.0);
        check(&graph(100.0, Some(100.0)), 450.0, 0.5);
        check(&graph(100.0, Some(100.0)), 375.4, 0.25 + part);
    }

    #[test]
    fn host_factor_is_limited() {
        // The GPU by itself takes longer, ...
        check(&graph(100.0, Some(100.0)), 290.0, 0.25);
        // ... or nearly as long: a host that takes almost no time is not plausible.
        check(&graph(100.0, Some(100.0)), 301.0, 0.25);
        // A host that waits for a GPU is no slower without the profiler.
        check(&graph(100.0, Some(100.0)), 900.0, 1.0);
        // Four times the host time is not enough.
        check(&graph(100.0, None), 1e6, 4.0 - 1.0 / 1024.0);
    }

    #[test]
    fn all_tasks_are_scaled_if_the_host_is_not_enough() {
        let measured = Measurement { time_ns: 290.0, is_unprofiled: true };
        let found = calibrated(graph(100.0, Some(100.0)), measured, 0.0).unwrap();
        assert!(
            (found.schedule.iteration_ns - 290.0).abs() < 1e-6,
            "{}",
            found.schedule.iteration_ns
        );
        assert_eq!(found.measured_ns, 290.0);
        let host = found.graph.tasks.iter().find(|task| task.kind.is_host()).unwrap();
        assert!((host.duration_ns / found.host_factor - 100.0).abs() < 1e-9, "{host:?}");
    }

    #[test]
    fn recorded_gpu_times_are_kept_if_the_iteration_was_profiled() {
        for time_ns in [200.0, 290.0, 1000.0] {
            let measured = Measurement { time_ns, is_unprofiled: false };
            let found = calibrated(graph(100.0, Some(100.0)), measured, 0.0).unwrap();
            let kernel = found.graph.tasks.iter().find(|task| !task.kind.is_host()).unwrap();
            assert_eq!(kernel.duration_ns, 100.0, "{time_ns}");
        }
    }

    #[test]
    fn iterations_that_did_not_overlap_are_separated() {
        // The host launches kernels on two streams. Without a wait, the second stream of one
        // iteration overlaps with the first stream of the next one.
        let mut graph = Graph::default();
        let host = graph.resource(&Resource::Host);
        let task = |kind, time_ns| Task::new(kind, time_ns, Phase::Forward);
        let launch = graph.push(host, task(TaskKind::Launch, 10.0));
        let streams = [1, 2].map(|stream| graph.resource(&Resource::Stream(0, stream)));
        let kernels = streams.map(|stream| graph.push(stream, task(TaskKind::Kernel, 100.0)));
        graph.wait(launch, kernels[0], 0.0);
        graph.wait(kernels[0], kernels[1], 0.0);
        for (time_ns, expected_ns) in [(100.0, 100.0), (200.0, 200.0), (210.0, 210.0)] {
            let measured = Measurement { time_ns, is_unprofiled: false };
            let found = calibrated(graph.clone(), measured, 0.0).unwrap();
            assert_eq!(found.schedule.iteration_ns, expected_ns);
        }
    }
}
