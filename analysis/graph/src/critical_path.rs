//! What an iteration waits for: the chain of tasks, each of which began when the one before let it.
//!
//! Iterations follow one another, so the chain is a circle: it is walked back through what decided when
//! each task began, into the iterations before, until it comes to a task for the second time. What lies
//! between is what a long run waits for again and again, and it takes as long as the iterations do. What
//! only the end of a run waits for, such as its last kernel, is no part of it.

use super::graph::{Graph, TaskId};
use super::simulate::Schedule;

/// A piece of the chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// The task that ran or was about to.
    pub task: TaskId,
    /// Nanoseconds.
    pub time_ns: f64,
    /// The task had not begun: what it waited for was done, and it came later all the same, as a
    /// kernel comes after its launch.
    pub is_delay: bool,
}

/// The chain of one iteration, from its end to its beginning; its times add up to the iteration's.
/// Empty where there is none.
pub fn critical_path(graph: &Graph, schedule: &Schedule) -> Vec<Stretch> {
    let ends = (0_u32..).zip(&schedule.end_ns);
    let Some((last, end_ns)) = ends.max_by(|a, b| a.1.total_cmp(b.1)) else { return Vec::new() };
    let waits = Waits::new(graph, schedule);
    let mut path: Vec<Stretch> = Vec::new();
    // By task: how long the path was when it came there.
    let mut come: Vec<Option<usize>> = vec![None; graph.tasks.len()];
    let (mut at, mut shift_ns, mut now_ns) = (TaskId(last), 0.0, *end_ns);
    loop {
        let Some(come) = come.get_mut(at.index()) else { return Vec::new() };
        if let Some(before) = come.replace(path.len()) {
            path.drain(..before);
            return scaled(path, schedule.iteration_ns);
        }
        let start_ns = schedule.start_ns.get(at.index()).copied().unwrap_or(0.0) - shift_ns;
        let mut cover = |until_ns: f64, is_delay: bool| {
            if until_ns < now_ns {
                path.push(Stretch { task: at, time_ns: now_ns - until_ns, is_delay });
                now_ns = until_ns;
            }
        };
        cover(start_ns, false);
        let Some((task, end_ns, is_before)) = waits.decided(graph, schedule, at) else {
            return Vec::new();
        };
        if is_before {
            shift_ns += schedule.iteration_ns;
        }
        cover(end_ns - shift_ns, true);
        at = task;
    }
}

/// The same with times that add up to one iteration: the circle may lead through several, and the
/// schedule's iterations differ by what they have not settled to.
fn scaled(mut path: Vec<Stretch>, iteration_ns: f64) -> Vec<Stretch> {
    let sum: f64 = path.iter().map(|stretch| stretch.time_ns).sum();
    if sum.is_nan() || sum <= 0.0 {
        return Vec::new();
    }
    for stretch in &mut path {
        stretch.time_ns *= iteration_ns / sum;
    }
    path
}

/// Who waits for whom, seen from those who wait.
struct Waits {
    /// By task: where its own begin in `from`.
    first: Vec<u32>,
    /// The task that is waited for, the lag, and whether it is one of the iteration before.
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

    /// What let a task begin: the task, when that ended, and whether it is one of the iteration before
    /// (then its end is still that of this one).
    fn decided(
        &self,
        graph: &Graph,
        schedule: &Schedule,
        at: TaskId,
    ) -> Option<(TaskId, f64, bool)> {
        let task = graph.task(at)?;
        let end_ns = |id: TaskId| schedule.end_ns.get(id.index()).copied().unwrap_or(0.0);
        let bound = |at: usize| self.first.get(at).map_or(0, |first| *first as usize);
        let named = self.from.get(bound(at.index())..bound(at.index() + 1)).unwrap_or_default();
        let on_resource = match graph.before(at) {
            Some(before) => Some((before, task.after_ns, false)),
            None => {
                let last = self.last.get(task.resource.0 as usize).copied().flatten();
                last.map(|last| (last, task.after_ns, true))
            }
        };
        // Of equals the one on its own resource, which comes last.
        let candidates = named.iter().copied().chain(on_resource);
        let ready_ns = |(id, lag_ns, is_before): &(TaskId, f64, bool)| {
            let before_ns = if *is_before { schedule.iteration_ns } else { 0.0 };
            end_ns(*id) + lag_ns - before_ns
        };
        let decided = candidates.max_by(|a, b| ready_ns(a).total_cmp(&ready_ns(b)))?;
        Some((decided.0, end_ns(decided.0), decided.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Resource, Task, TaskKind};
    use crate::simulate::steady;
    use ridgeline_profile::Phase;

    struct Made {
        graph: Graph,
    }

    impl Made {
        fn new() -> Made {
            Made { graph: Graph::default() }
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

        /// What the chain has, in the order of time: of each stretch its task, its length, and whether
        /// it is a delay.
        fn path(&self) -> Vec<(u32, f64, bool)> {
            let schedule = steady(&self.graph).expect("it runs");
            let mut path = critical_path(&self.graph, &schedule);
            path.reverse();
            // It is a circle, which is told from its first task.
            let first = path.iter().map(|stretch| stretch.task).min();
            let at = path.iter().position(|stretch| Some(stretch.task) == first);
            path.rotate_left(at.unwrap_or(0));
            let sum: f64 = path.iter().map(|stretch| stretch.time_ns).sum();
            assert!((sum - schedule.iteration_ns).abs() < 1e-6, "{sum} {}", schedule.iteration_ns);
            path.iter().map(|it| (it.task.0, it.time_ns.round(), it.is_delay)).collect()
        }
    }

    #[test]
    fn a_slow_host_is_the_chain() {
        let mut made = Made::new();
        made.host(TaskKind::HostGap, 90.0);
        let launch = made.host(TaskKind::Launch, 10.0);
        let kernel = made.kernel(launch, 5.0, 20.0);
        made.host(TaskKind::HostGap, 100.0);
        assert_eq!(kernel, TaskId(2));
        assert_eq!(made.path(), [(0, 90.0, false), (1, 10.0, false), (3, 100.0, false)]);
    }

    #[test]
    fn a_slow_gpu_is_the_chain_over_iterations() {
        let mut made = Made::new();
        for _ in 0..2 {
            let launch = made.host(TaskKind::Launch, 10.0);
            made.kernel(launch, 5.0, 200.0);
        }
        let path = made.path();
        assert!(path.iter().all(|(task, ..)| [1, 3].contains(task)), "{path:?}");
    }

    #[test]
    fn waiting_joins_host_and_gpu() {
        let mut made = Made::new();
        made.host(TaskKind::HostGap, 100.0);
        let launch = made.host(TaskKind::Launch, 10.0);
        let kernel = made.kernel(launch, 5.0, 200.0);
        let wait = made.host(TaskKind::Wait, 3.0);
        made.graph.wait(kernel, wait, 0.0);
        assert_eq!(
            made.path(),
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
        let mut made = Made::new();
        let launch = made.host(TaskKind::Launch, 10.0);
        let kernel = made.kernel(launch, -4.0, 50.0);
        let wait = made.host(TaskKind::Wait, 1.0);
        made.graph.wait(kernel, wait, 0.0);
        assert_eq!(made.path(), [(0, 6.0, false), (1, 50.0, false), (2, 1.0, false)]);
    }

    #[test]
    fn nothing_has_no_chain() {
        assert_eq!(critical_path(&Graph::default(), &Schedule::default()), []);
    }
}
