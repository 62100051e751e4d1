//! Operations that a what-if applies to a graph: Daydream's primitives (section 4.3) - select,
//! scale, insert, remove, reschedule - and changes of memory.

use crate::graph::{Graph, Order, ResourceId, Task, TaskId};
use crate::memory::Block;
use ridgeline_operators::operator::Operator;

impl Graph {
    /// Returns the tasks for which `wanted` returns true, without removed ones.
    pub fn select(&self, wanted: impl Fn(&Task) -> bool) -> Vec<TaskId> {
        self.iter().filter(|(_, task)| !task.is_removed && wanted(task)).map(|(id, _)| id).collect()
    }

    /// Returns the operator that a task is part of, if it is known.
    pub fn operator_of(&self, task: &Task) -> Option<&Operator> {
        self.operators.get(task.operator? as usize)
    }

    /// Adds an operator that replaces another one, and returns its index.
    pub fn exchange_operator(&mut self, old: u32, new: Operator) -> u32 {
        self.operators.push(new);
        let index = self.operators.len() as u32 - 1;
        self.exchanged.insert(index, self.recorded_as(old));
        index
    }

    /// Returns the index of the recorded operator that an operator replaced, for which there are
    /// probes; the operator's own index if it was recorded.
    pub fn recorded_as(&self, operator: u32) -> u32 {
        self.exchanged.get(&operator).copied().unwrap_or(operator)
    }

    /// Returns the kernel's name; empty if there is none.
    pub fn name_of(&self, task: &Task) -> &str {
        task.name.and_then(|name| self.names.get(name as usize)).map_or("", String::as_str)
    }

    /// Multiplies the durations of tasks by a factor.
    pub fn scale(&mut self, tasks: &[TaskId], factor: f64) {
        for id in tasks {
            if let Some(task) = self.task_mut(*id) {
                task.duration_ns *= factor.max(0.0);
            }
        }
    }

    /// Removes a task: it takes no time, and tasks that waited for it wait for its dependencies.
    /// Removing a kernel also removes its launch call.
    pub fn remove(&mut self, id: TaskId) {
        let Some(task) = self.task_mut(id) else { return };
        task.duration_ns = 0.0;
        task.after_ns = 0.0;
        task.is_removed = true;
        let launch = task.launched_by;
        if let Some(launch) = launch.and_then(|launch| self.task_mut(launch)) {
            launch.duration_ns = 0.0;
            launch.is_removed = true;
        }
    }

    /// Lets a resource run its tasks by priority instead of in chain order.
    pub fn reschedule(&mut self, resource: ResourceId, priority: impl Fn(&Task) -> i32) {
        self.set_order(resource, Order::Priority);
        let tasks: Vec<TaskId> = self.on(resource).collect();
        for id in tasks {
            if let Some(task) = self.task_mut(id) {
                task.priority = priority(task);
            }
        }
    }

    /// Changes blocks of memory in place.
    pub fn change_blocks(&mut self, change: impl FnMut(&mut Block)) {
        self.memory.blocks.iter_mut().for_each(change);
    }

    /// Returns the total nanoseconds of the tasks for which `wanted` returns true.
    pub fn time_of(&self, wanted: impl Fn(&Task) -> bool) -> f64 {
        let wanted = |task: &&Task| !task.is_removed && wanted(task);
        self.tasks.iter().filter(wanted).map(|task| task.duration_ns).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Resource, TaskKind};
    use crate::simulate::once;
    use ridgeline_profile::Phase;

    /// A host that launches one kernel: 10 ns before the launch, 5 ns in the call, 30 ns in the
    /// kernel.
    fn launch() -> (Graph, TaskId, TaskId, TaskId) {
        let mut graph = Graph::default();
        let host = graph.resource(&Resource::Host);
        let stream = graph.resource(&Resource::Stream(0, 7));
        let before = graph.push(host, Task::new(TaskKind::HostOperator, 10.0, Phase::Forward));
        let call = graph.push(host, Task::new(TaskKind::Launch, 5.0, Phase::Forward));
        let mut kernel = Task::new(TaskKind::Kernel, 30.0, Phase::Forward);
        kernel.launched_by = Some(call);
        let kernel = graph.push(stream, kernel);
        graph.wait(call, kernel, 0.0);
        (graph, before, call, kernel)
    }

    #[track_caller]
    fn check_iteration_ns(graph: &Graph, expected_ns: f64) {
        assert_eq!(once(graph, &[]).unwrap().iteration_ns, expected_ns);
    }

    #[test]
    fn scale_multiplies_selected_tasks() {
        let (mut graph, ..) = launch();
        let kernels = graph.select(|task| task.kind == TaskKind::Kernel);
        graph.scale(&kernels, 0.5);
        check_iteration_ns(&graph, 30.0);
    }

    #[test]
    fn removing_a_kernel_removes_its_launch() {
        let (mut graph, _, call, kernel) = launch();
        graph.remove(kernel);
        check_iteration_ns(&graph, 10.0);
        assert!(graph.task(call).unwrap().is_removed);
        assert!(graph.select(|task| task.kind != TaskKind::HostOperator).is_empty());
    }
}
