//! The critical path of an iteration: a chain of tasks, each of which started when the previous one
//! allowed it to.
//!
//! Iterations follow one another, so the path is a cycle. The code walks backward through the task
//! that determined each start, into earlier iterations, until it reaches a task for the second
//! time. The tasks in between are what a long run waits for repeatedly, and they take as long as
//! the iterations they span. Tasks that only the end of a run waits for, such as its last kernel,
//! are not on the path.

use super::graph::{Graph, TaskId};
use super::simulate::Schedule;

/// A segment of the critical path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// The task that was running or about to start.
    pub task: TaskId,
    /// Duration in nanoseconds.
    pub time_ns: f64,
    /// Whether the segment is a delay before the task: its dependencies were done but it started
    /// later, like a kernel some time after its launch.
    pub is_delay: bool,
}

/// Returns the critical path of one iteration, last segment first. The durations add up to the
/// iteration time. Empty if there is no path.
pub fn critical_path(graph: &Graph, schedule: &Schedule) -> Vec<Segment> {
    let ends = (0_u32..).zip(&schedule.end_ns);
    let Some((last, end_ns)) = ends.max_by(|a, b| a.1.total_cmp(b.1)) else { return Vec::new() };
    let waits = Waits::new(graph, schedule);
    let mut path: Vec<Segment> = Vec::new();
    // By task: the length of the path when the walk reached it.
    let mut length_at: Vec<Option<usize>> = vec![None; graph.tasks.len()];
    let (mut at, mut shift_ns, mut now_ns) = (TaskId(last), 0.0, *end_ns);
    loop {
        let Some(length_at) = length_at.get_mut(at.index()) else { return Vec::new() };
        if let Some(before) = length_at.replace(path.len()) {
            path.drain(..before);
            return scaled(path, schedule.iteration_ns);
        }
        let start_ns = schedule.start_ns.get(at.index()).copied().unwrap_or(0.0) - shift_ns;
        let mut cover = |until_ns: f64, is_delay: bool| {
            if until_ns < now_ns {
                path.push(Segment { task: at, time_ns: now_ns - until_ns, is_delay });
                now_ns = until_ns;
            }
        };
        cover(start_ns, false);
        let Some((task, end_ns, is_before)) = waits.determining_task(graph, schedule, at) else {
            return Vec::new();
        };
        if is_before {
            shift_ns += schedule.iteration_ns;
        }
        cover(end_ns - shift_ns, true);
        at = task;
    }
}

/// Scales the durations so that they add up to one iteration: the cycle may span several, and the
/// schedule's iterations may not have settled completely.
fn scaled(mut path: Vec<Segment>, iteration_ns: f64) -> Vec<Segment> {
    let sum: f64 = path.iter().map(|segment| segment.time_ns).sum();
    if sum.is_nan() || sum <= 0.0 {
        return Vec::new();
    }
    for segment in &mut path {
        segment.time_ns *= iteration_ns / sum;
    }
    path
}

/// The dependencies of each task.
struct Waits {
    /// By task: the start of its dependencies in `from`.
    first: Vec<u32>,
    /// The dependency, its lag in nanoseconds, and whether it belongs to the previous iteration.
    from: Vec<(TaskId, f64, bool)>,
    /// By resource: the task that ends last.
    last: Vec<Option<TaskId>>,
}

impl Waits {
    fn new(graph: &Graph, schedule: &Schedule) -> Waits {
        let tasks = graph.tasks.len();
        let within = graph.edges().iter().map(|edge| (edge, false));
        let all = || {
            within
                .clone()
                .chain(graph.across().iter().map(|edge| (edge, true)))
                .filter(|(edge, _)| edge.from.index() < tasks && edge.to.index() < tasks)
        };
        let mut first = vec![0_u32; tasks + 1];
        for (edge, _) in all() {
            if let Some(count) = first.get_mut(edge.to.index() + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for count in &mut first {
            sum += *count;
            *count = sum;
        }
        let mut from = vec![(TaskId(0), 0.0, false); sum as usize];
        let mut next = first.clone();
        for (edge, is_before) in all() {
            let Some(place) = next.get_mut(edge.to.index()) else { continue };
            if let Some(entry) = from.get_mut(*place as usize) {
                *entry = (edge.from, edge.lag_ns, is_before);
            }
            *place += 1;
        }
        let mut last: Vec<Option<TaskId>> = vec![None; graph.resources().len()];
        for (id, task) in graph.iter() {
            let Some(entry) = last.get_mut(task.resource.0 as usize) else { continue };
            let end = |id: TaskId| schedule.end_ns.get(id.index()).copied().unwrap_or(0.0);
            if entry.is_none_or(|before| end(before) <= end(id)) {
                *entry = Some(id);
            }
        }
        Waits { first, from, last }
    }

    /// Returns the task that determined when a task started, the end of that task, and whether it
    /// belongs to the previous iteration (the returned end is still that of the current one).
    fn determining_task(
        &self,
        graph: &Graph,
        schedule: &Schedule,
        at: TaskId,
    ) -> Option<(TaskId, f64, bool)> {
        let task = graph.task(at)?;
        let end_ns = |id: TaskId| schedule.end_ns.get(id.index()).copied().unwrap_or(0.0);
        let bound = |at: usize| self.first.get(at).map_or(0, |first| *first as usize);
        let dependencies =
            self.from.get(bound(at.index())..bound(at.index() + 1)).unwrap_or_default();
        let on_resource = match graph.before(at) {
            Some(before) => Some((before, task.after_ns, false)),
            None => {
                let last = self.last.get(task.resource.0 as usize).copied().flatten();
                last.map(|last| (last, task.after_ns, true))
            }
        };
        // `max_by` returns the last maximum: prefer the task on the same resource.
        let candidates = dependencies.iter().copied().chain(on_resource);
        let ready_ns = |(id, lag_ns, is_before): &(TaskId, f64, bool)| {
            let before_ns = if *is_before { schedule.iteration_ns } else { 0.0 };
            end_ns(*id) + lag_ns - before_ns
        };
        let determining_task = candidates.max_by(|a, b| ready_ns(a).total_cmp(&ready_ns(b)))?;
        Some((determining_task.0, end_ns(determining_task.0), determining_task.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Resource, Task, TaskKind};
    use crate::simulate::steady;
    use ridgeline_profile::Phase;

    struct GraphBuilder {
        graph: Graph,
    }

    impl GraphBuilder {
        fn new() -> GraphBuilder {
            GraphBuilder { graph: Graph::default() }
        }

        fn host(&mut self, kind: TaskKind, time_ns: f64) -> TaskId {
            let host = self.graph.resource(&Resource::Host);
            self.graph.push(host, Task::new(kind, time_ns, Phase::Forward))
        }

        fn kernel(&mut self, launch: TaskId, lag_ns: f64, time_ns: f64) -> TaskId {
            let stream = self.graph.resource(&Resource::Stream(0, 7));
            let kernel =
                self.graph.push(stream, Task::new(TaskKind::Kernel, time_ns, Phase::Forward));
            self.graph.wait(launch, kernel, lag_ns);
            kernel
        }

        /// Returns the path in order of time: the task, the duration, and whether it is a delay.
        fn path(&self) -> Vec<(u32, f64, bool)> {
            let schedule = steady(&self.graph).expect("it runs");
            let mut path = critical_path(&self.graph, &schedule);
            path.reverse();
            // The path is a cycle: rotate it to start at its first task.
            let first = path.iter().map(|segment| segment.task).min();
            let at = path.iter().position(|segment| Some(segment.task) == first);
            path.rotate_left(at.unwrap_or(0));
            let sum: f64 = path.iter().map(|segment| segment.time_ns).sum();
            assert!((sum - schedule.iteration_ns).abs() < 1e-6, "{sum} {}", schedule.iteration_ns);
            path.iter().map(|it| (it.task.0, it.time_ns.round(), it.is_delay)).collect()
        }
    }

    #[test]
    fn a_slow_host_is_the_critical_path() {
        let mut builder = GraphBuilder::new();
        builder.host(TaskKind::HostGap, 90.0);
        let launch = builder.host(TaskKind::Launch, 10.0);
        let kernel = builder.kernel(launch, 5.0, 20.0);
        builder.host(TaskKind::HostGap, 100.0);
        assert_eq!(kernel, TaskId(2));
        assert_eq!(builder.path(), [(0, 90.0, false), (1, 10.0, false), (3, 100.0, false)]);
    }

    #[test]
    fn a_slow_gpu_is_the_critical_path_across_iterations() {
        let mut builder = GraphBuilder::new();
        for _ in 0..2 {
            let launch = builder.host(TaskKind::Launch, 10.0);
            builder.kernel(launch, 5.0, 200.0);
        }
        let path = builder.path();
        assert!(path.iter().all(|(task, ..)| [1, 3].contains(task)), "{path:?}");
    }

    #[test]
    fn a_wait_connects_host_and_gpu() {
        let mut builder = GraphBuilder::new();
        builder.host(TaskKind::HostGap, 100.0);
        let launch = builder.host(TaskKind::Launch, 10.0);
        let kernel = builder.kernel(launch, 5.0, 200.0);
        let wait = builder.host(TaskKind::Wait, 3.0);
        builder.graph.wait(kernel, wait, 0.0);
        assert_eq!(
            builder.path(),
            [
                (0, 100.0, false),
                (1, 10.0, false),
                (2, 5.0, true),
                (2, 200.0, false),
                (3, 3.0, false)
            ]
        );
    }

    #[test]
    fn a_kernel_that_begins_before_its_launch_returns() {
        let mut builder = GraphBuilder::new();
        let launch = builder.host(TaskKind::Launch, 10.0);
        let kernel = builder.kernel(launch, -4.0, 50.0);
        let wait = builder.host(TaskKind::Wait, 1.0);
        builder.graph.wait(kernel, wait, 0.0);
        assert_eq!(builder.path(), [(0, 6.0, false), (1, 50.0, false), (2, 1.0, false)]);
    }

    #[test]
    fn an_empty_graph_has_no_critical_path() {
        assert_eq!(critical_path(&Graph::default(), &Schedule::default()), []);
    }
}
