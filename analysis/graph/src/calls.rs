//! The calls of operators in an iteration: what the host does for each and what does its work.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::graph::{Graph, Resource, Task, TaskId, TaskKind};
use ridgeline_operators::operator::Operator;
use ridgeline_profile::{FileId, Phase};

/// One call of an operator that is known.
#[derive(Clone, Debug)]
pub struct Call {
    /// As in [`Task::call`].
    pub number: u32,
    /// Index into [`Graph::operators`].
    pub operator: u32,
    /// The part of the iteration.
    pub phase: Phase,
    /// The module instance.
    pub module: Option<u32>,
    /// The line that it is the cost of.
    pub line: Option<(FileId, u32)>,
    /// The host's tasks, in order. What the host waits for is not among them.
    pub host: Tasks,
    /// What does its work: kernels, or on a CPU the host's tasks again. Nothing for a view on a GPU.
    pub work: Tasks,
}

/// A call's tasks, as a piece of a list that all calls share.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    all: Arc<[TaskId]>,
    own: Range<usize>,
}

impl Deref for Tasks {
    type Target = [TaskId];

    fn deref(&self) -> &[TaskId] {
        self.all.get(self.own.clone()).unwrap_or_default()
    }
}

impl Call {
    /// Nanoseconds of its work.
    pub fn work_ns(&self, graph: &Graph) -> f64 {
        time_of(graph, &self.work)
    }

    /// Nanoseconds that the host spends on it.
    pub fn host_ns(&self, graph: &Graph) -> f64 {
        time_of(graph, &self.host)
    }

    /// The operator that it calls.
    pub fn operator<'a>(&self, graph: &'a Graph) -> Option<&'a Operator> {
        graph.operators.get(self.operator as usize)
    }

    /// The operator's name without namespace and overload; empty where it is not PyTorch's own.
    pub fn name<'a>(&self, graph: &'a Graph) -> &'a str {
        self.operator(graph).and_then(Operator::base_name).unwrap_or_default()
    }

    /// Removes it with all that it does.
    pub fn remove(&self, graph: &mut Graph) {
        for id in self.work.iter().chain(self.host.iter()) {
            graph.remove(*id);
        }
    }

    /// Lets all of its work take that long together, in the proportions that it has.
    pub fn set_work_ns(&self, graph: &mut Graph, wanted_ns: f64) {
        let now_ns = self.work_ns(graph);
        if now_ns > 0.0 {
            graph.scale(&self.work, wanted_ns / now_ns);
        } else if let Some(task) = self.work.first().and_then(|id| graph.task_mut(*id)) {
            task.duration_ns = wanted_ns.max(0.0);
        }
    }

    /// Lets it call another operator, so that what comes after this optimization knows.
    pub fn set_operator(&self, graph: &mut Graph, operator: u32) {
        for id in self.host.iter().chain(self.work.iter()) {
            if let Some(task) = graph.task_mut(*id) {
                task.operator = Some(operator);
            }
        }
    }
}

fn time_of(graph: &Graph, tasks: &[TaskId]) -> f64 {
    tasks.iter().filter_map(|id| graph.task(*id)).map(|task| task.duration_ns).sum()
}

/// Whether a GPU does the work of a graph's operators, rather than the host.
pub fn has_kernels(graph: &Graph) -> bool {
    graph.tasks.iter().any(|task| task.kind == TaskKind::Kernel)
}

/// The calls of an iteration in the order in which the host makes them, those that were removed left
/// out.
pub fn calls(graph: &Graph) -> Arc<[Call]> {
    graph.tasks.calls(|| put_together(graph).into())
}

fn put_together(graph: &Graph) -> Vec<Call> {
    let Some(host) = graph.find(&Resource::Host) else { return Vec::new() };
    let on_gpu = has_kernels(graph);
    let mut calls: Vec<Call> = Vec::new();
    // By number of a call: its place in the list, from 1.
    let mut places: Vec<u32> = Vec::new();
    let (mut of_host, mut of_work) = (Vec::new(), Vec::new());
    for id in graph.on(host) {
        let Some(task) = graph.task(id).filter(|task| !task.is_removed) else { continue };
        let (Some(number), Some(operator)) = (task.call, task.operator) else { continue };
        if task.kind == TaskKind::Wait {
            continue;
        }
        if places.len() <= number as usize {
            places.resize(number as usize + 1, 0);
        }
        let Some(place) = places.get_mut(number as usize) else { continue };
        if *place == 0 {
            calls.push(call(number, operator, task));
            *place = calls.len() as u32;
        }
        of_host.push((*place - 1, id));
        if !on_gpu && task.kind == TaskKind::HostOperator {
            of_work.push((*place - 1, id));
        }
    }
    for (id, task) in graph.iter().filter(|_| on_gpu) {
        let does_work = matches!(task.kind, TaskKind::Kernel | TaskKind::DeviceCopy);
        if does_work && !task.is_removed {
            let place = task.call.and_then(|number| places.get(number as usize)).copied();
            of_work.extend(place.unwrap_or(0).checked_sub(1).map(|place| (place, id)));
        }
    }
    let each = calls.len();
    for ((call, host), work) in
        calls.iter_mut().zip(pieces(&of_host, each)).zip(pieces(&of_work, each))
    {
        (call.host, call.work) = (host, work);
    }
    calls
}

/// Tasks by the place of their call, of so many calls; those of one stay in order.
fn pieces(tasks: &[(u32, TaskId)], calls: usize) -> impl Iterator<Item = Tasks> {
    // By call: where its tasks begin, and after they were put there, where they end.
    let mut bounds = vec![0_usize; calls + 1];
    for (place, _) in tasks {
        if let Some(count) = bounds.get_mut(*place as usize + 1) {
            *count += 1;
        }
    }
    let mut sum = 0;
    for bound in &mut bounds {
        sum += *bound;
        *bound = sum;
    }
    let mut all = vec![TaskId(0); tasks.len()];
    for (place, id) in tasks {
        let Some(bound) = bounds.get_mut(*place as usize) else { continue };
        if let Some(entry) = all.get_mut(*bound) {
            *entry = *id;
        }
        *bound += 1;
    }
    let all: Arc<[TaskId]> = all.into();
    let mut start = 0;
    bounds.into_iter().take(calls).map(move |end| {
        let own = start..end;
        start = end;
        Tasks { all: Arc::clone(&all), own }
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
