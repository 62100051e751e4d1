//! The operator calls of an iteration, with the host tasks and the work of each.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::graph::{Graph, Resource, Task, TaskId, TaskKind};
use ridgeline_operators::operator::Operator;
use ridgeline_profile::{FileId, Phase};

/// One call of a known operator.
#[derive(Clone, Debug)]
pub struct Call {
    /// The call's number, as in [`Task::call`].
    pub number: u32,
    /// Index into [`Graph::operators`].
    pub operator: u32,
    pub phase: Phase,
    /// The module instance: index into [`Profile::modules`](ridgeline_profile::Profile::modules).
    pub module: Option<u32>,
    /// The line that the cost is attributed to.
    pub line: Option<(FileId, u32)>,
    /// The host's tasks, in order. Waits are not included.
    pub host: Tasks,
    /// The tasks that do the work: kernels, or on a CPU the host's tasks. Empty for a view on a
    /// GPU.
    pub work: Tasks,
}

/// A call's tasks, as a slice of a list that all calls share.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    all: Arc<[TaskId]>,
    range: Range<usize>,
}

impl Deref for Tasks {
    type Target = [TaskId];

    fn deref(&self) -> &[TaskId] {
        self.all.get(self.range.clone()).unwrap_or_default()
    }
}

impl Call {
    /// Returns the duration of the work, in nanoseconds.
    pub fn work_ns(&self, graph: &Graph) -> f64 {
        total_ns(graph, &self.work)
    }

    /// Returns the host time, in nanoseconds.
    pub fn host_ns(&self, graph: &Graph) -> f64 {
        total_ns(graph, &self.host)
    }

    /// Returns the called operator.
    pub fn operator<'a>(&self, graph: &'a Graph) -> Option<&'a Operator> {
        graph.operators.get(self.operator as usize)
    }

    /// Returns the operator's name without namespace and overload; empty for operators that are not
    /// PyTorch's.
    pub fn name<'a>(&self, graph: &'a Graph) -> &'a str {
        self.operator(graph).and_then(Operator::base_name).unwrap_or_default()
    }

    /// Removes all tasks of the call.
    pub fn remove(&self, graph: &mut Graph) {
        for id in self.work.iter().chain(self.host.iter()) {
            graph.remove(*id);
        }
    }

    /// Scales the work so that its total duration is `wanted_ns`.
    pub fn set_work_ns(&self, graph: &mut Graph, wanted_ns: f64) {
        let now_ns = self.work_ns(graph);
        if now_ns > 0.0 {
            graph.scale(&self.work, wanted_ns / now_ns);
        } else if let Some(task) = self.work.first().and_then(|id| graph.task_mut(*id)) {
            task.duration_ns = wanted_ns.max(0.0);
        }
    }

    /// Sets the operator of all tasks, for optimizations that are applied after this one.
    pub fn set_operator(&self, graph: &mut Graph, operator: u32) {
        for id in self.host.iter().chain(self.work.iter()) {
            if let Some(task) = graph.task_mut(*id) {
                task.operator = Some(operator);
            }
        }
    }
}

fn total_ns(graph: &Graph, tasks: &[TaskId]) -> f64 {
    tasks.iter().filter_map(|id| graph.task(*id)).map(|task| task.duration_ns).sum()
}

/// Whether a GPU runs the operators' work.
pub fn has_kernels(graph: &Graph) -> bool {
    graph.tasks.iter().any(|task| task.kind == TaskKind::Kernel)
}

/// Returns the calls of an iteration in the host's order, without removed tasks.
pub fn calls(graph: &Graph) -> Arc<[Call]> {
    graph.tasks.calls(|| collect_calls(graph).into())
}

fn collect_calls(graph: &Graph) -> Vec<Call> {
    let Some(host) = graph.find(&Resource::Host) else { return Vec::new() };
    let on_gpu = has_kernels(graph);
    let mut calls: Vec<Call> = Vec::new();
    // By call number: the index in `calls` plus 1, or 0.
    let mut indices: Vec<u32> = Vec::new();
    let (mut host_tasks, mut work_tasks) = (Vec::new(), Vec::new());
    for id in graph.on(host) {
        let Some(task) = graph.task(id).filter(|task| !task.is_removed) else { continue };
        let (Some(number), Some(operator)) = (task.call, task.operator) else { continue };
        if task.kind == TaskKind::Wait {
            continue;
        }
        if indices.len() <= number as usize {
            indices.resize(number as usize + 1, 0);
        }
        let Some(index) = indices.get_mut(number as usize) else { continue };
        if *index == 0 {
            calls.push(call(number, operator, task));
            *index = calls.len() as u32;
        }
        host_tasks.push((*index - 1, id));
        if !on_gpu && task.kind == TaskKind::HostOperator {
            work_tasks.push((*index - 1, id));
        }
    }
    for (id, task) in graph.iter().filter(|_| on_gpu) {
        let does_work = matches!(task.kind, TaskKind::Kernel | TaskKind::DeviceCopy);
        if does_work && !task.is_removed {
            let index = task.call.and_then(|number| indices.get(number as usize)).copied();
            work_tasks.extend(index.unwrap_or(0).checked_sub(1).map(|index| (index, id)));
        }
    }
    let count = calls.len();
    for ((call, host), work) in calls
        .iter_mut()
        .zip(tasks_by_call(&host_tasks, count))
        .zip(tasks_by_call(&work_tasks, count))
    {
        (call.host, call.work) = (host, work);
    }
    calls
}

/// Groups tasks by the index of their call, in order. `calls` is the number of calls.
fn tasks_by_call(tasks: &[(u32, TaskId)], calls: usize) -> impl Iterator<Item = Tasks> {
    // By call: the start of its tasks, and once they are copied, their end.
    let mut bounds = vec![0_usize; calls + 1];
    for (index, _) in tasks {
        if let Some(count) = bounds.get_mut(*index as usize + 1) {
            *count += 1;
        }
    }
    let mut sum = 0;
    for bound in &mut bounds {
        sum += *bound;
        *bound = sum;
    }
    let mut all = vec![TaskId(0); tasks.len()];
    for (index, id) in tasks {
        let Some(bound) = bounds.get_mut(*index as usize) else { continue };
        if let Some(entry) = all.get_mut(*bound) {
            *entry = *id;
        }
        *bound += 1;
    }
    let all: Arc<[TaskId]> = all.into();
    let mut start = 0;
    bounds.into_iter().take(calls).map(move |end| {
        let range = start..end;
        start = end;
        Tasks { all: Arc::clone(&all), range }
    })
}

fn call(number: u32, operator: u32, task: &Task) -> Call {
    Call {
        number,
        operator,
        phase: task.phase,
        module: task.module,
        line: task.line,
        host: Tasks::default(),
        work: Tasks::default(),
    }
}
