//! Adds calls to an iteration.

use ridgeline_graph::calls::Call;
use ridgeline_graph::graph::{Graph, Task, TaskId, TaskKind};

/// An operator that an optimization adds, with its device and host time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddedOperator {
    /// Index into [`Graph::operators`].
    pub operator: u32,
    /// Time of its work in nanoseconds.
    pub work_ns: f64,
    /// Host time in nanoseconds, if a GPU does the work.
    pub host_ns: f64,
}

/// Adds calls with new call numbers.
#[derive(Debug)]
pub(crate) struct Inserter {
    next_number: u32,
}

impl Inserter {
    /// Creates an inserter. Nothing else may add calls to the graph while it is in use.
    pub(crate) fn new(graph: &Graph) -> Inserter {
        let highest = graph.tasks.iter().filter_map(|task| task.call).max();
        Inserter { next_number: highest.map_or(0, |number| number.saturating_add(1)) }
    }

    /// Adds a call before another one. Returns its first host task.
    pub(crate) fn before(
        &mut self,
        graph: &mut Graph,
        at: &Call,
        added: AddedOperator,
    ) -> Option<TaskId> {
        let (first, work) = (*at.host.first()?, at.work.first().copied());
        let (host, kernel) = self.tasks(graph, first, at, added)?;
        let Some((kernel, first_kernel)) = kernel.zip(work) else {
            return Some(graph.insert_before(first, host));
        };
        let launch = graph.insert_before(first, host);
        let kernel = Task { launched_by: Some(launch), ..kernel };
        let kernel = graph.insert_before(first_kernel, kernel);
        graph.wait(launch, kernel, 0.0);
        Some(launch)
    }

    /// Adds a call after another one. Returns its first host task.
    pub(crate) fn after(
        &mut self,
        graph: &mut Graph,
        at: &Call,
        added: AddedOperator,
    ) -> Option<TaskId> {
        let (last, work) = (*at.host.last()?, at.work.last().copied());
        let (host, kernel) = self.tasks(graph, last, at, added)?;
        let Some((kernel, last_kernel)) = kernel.zip(work) else {
            return Some(graph.insert_after(last, host));
        };
        let launch = graph.insert_after(last, host);
        let kernel = Task { launched_by: Some(launch), ..kernel };
        let kernel = graph.insert_after(last_kernel, kernel);
        graph.wait(launch, kernel, 0.0);
        Some(launch)
    }

    /// Creates the host task and, if the work of the neighboring call runs on a GPU, the kernel.
    fn tasks(
        &mut self,
        graph: &Graph,
        like: TaskId,
        at: &Call,
        added: AddedOperator,
    ) -> Option<(Task, Option<Task>)> {
        let first_work = at.work.first().and_then(|id| graph.task(*id));
        let on_gpu = first_work.is_some_and(|task| !task.kind.is_host());
        let task = |kind: TaskKind, duration_ns: f64| {
            let mut task = Task::new(kind, duration_ns.max(0.0), at.phase);
            (task.operator, task.call) = (Some(added.operator), Some(self.next_number));
            (task.module, task.line) = (at.module, at.line);
            task
        };
        graph.task(like)?;
        let tasks = if on_gpu {
            let kernel = task(TaskKind::Kernel, added.work_ns);
            (task(TaskKind::Launch, added.host_ns), Some(kernel))
        } else {
            (task(TaskKind::HostOperator, added.work_ns), None)
        };
        self.next_number = self.next_number.saturating_add(1);
        Some(tasks)
    }
}
