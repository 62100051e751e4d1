//! Synchronization between the host and a GPU.

use ridgeline_graph::calls::Call;
use ridgeline_graph::graph::{Graph, Task, TaskId, TaskKind};

/// Adds a kernel before a call, and a host wait for it. On a CPU the host does the work itself.
pub(crate) fn device_wait(graph: &mut Graph, at: &Call, work_ns: f64) {
    let Some(first) = at.host.first().copied() else { return };
    let kernel = at.work.first().copied().filter(|id| is_on_device(graph, *id));
    let Some(kernel) = kernel else {
        graph.insert_before(first, Task::new(TaskKind::HostOperator, work_ns, at.phase));
        return;
    };
    let launch = graph.insert_before(first, Task::new(TaskKind::Launch, 0.0, at.phase));
    let mut task = Task::new(TaskKind::Kernel, work_ns, at.phase);
    task.launched_by = Some(launch);
    let task = graph.insert_before(kernel, task);
    graph.wait(launch, task, 0.0);
    let wait = graph.insert_before(first, Task::new(TaskKind::Wait, 0.0, at.phase));
    graph.wait(task, wait, 0.0);
}

/// Whether a task runs on a GPU rather than on the host.
pub(crate) fn is_on_device(graph: &Graph, id: TaskId) -> bool {
    graph.task(id).is_some_and(|task| !task.kind.is_host())
}
