//! Activations between their last use in the forward pass and their first in the backward pass: the gap
//! in which Gist (Jain et al., ISCA 2018, section 3) stores them small and vDNN (Rhu et al., MICRO 2016,
//! section III) keeps them elsewhere.

use std::collections::HashMap;

use ridgeline_graph::graph::{Graph, TaskId, TaskKind};
use ridgeline_graph::host_order::HostOrder;
use ridgeline_graph::memory::BlockKind;
use ridgeline_operators::operator::{ElementType, Operator};
use ridgeline_profile::Phase;

/// Smaller ones, as a share of all, are not worth a kernel.
const LEAST_SHARE: f64 = 1e-3;
/// A call that launches something takes so long where the recording has none, in nanoseconds.
const LAUNCH_NS: f64 = 5_000.0;

/// An activation that waits for the backward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Stash {
    /// Index into [`Memory::blocks`](ridgeline_graph::memory::Memory::blocks).
    pub block: usize,
    /// Its bytes.
    pub bytes: f64,
    /// The type of its elements, where it is that of what its operator takes.
    pub element: Option<ElementType>,
    /// Place in the host's order of the last task of the forward pass that uses it.
    pub used: usize,
    /// Place of the first task of the backward pass that needs it.
    pub needed: usize,
    /// The operator that made it: index into [`Graph::operators`].
    pub made_by: Option<u32>,
    /// The operator after that one, which uses it.
    pub used_by: Option<u32>,
    /// The module whose operator gave it: of one that works in place, that one.
    pub module: Option<u32>,
}

/// The large activations of an iteration, in the order in which they are made.
pub fn stashes(graph: &Graph, order: &HostOrder) -> Vec<Stash> {
    let blocks = || {
        let blocks = graph.memory.blocks.iter().enumerate();
        blocks.filter(|(_, block)| block.kind == BlockKind::Activations)
    };
    let all: f64 = blocks().map(|(_, block)| block.bytes).sum();
    let mut found: Vec<Stash> = blocks()
        .filter(|(_, block)| block.bytes >= LEAST_SHARE * all)
        .filter_map(|(number, _)| stash(graph, order, number))
        .collect();
    found.sort_by_key(|stash| (stash.used, stash.block));
    found
}

fn stash(graph: &Graph, order: &HostOrder, number: usize) -> Option<Stash> {
    let block = graph.memory.blocks.get(number)?;
    let made = order.of(block.allocated)?;
    let freed = order.of(block.freed)?;
    let phase = |place: usize| order.at(graph, place).map(|task| task.phase);
    if phase(made) != Some(Phase::Forward) || phase(freed) != Some(Phase::Backward) {
        return None;
    }
    let mut maker = made;
    let mut user = next_call(graph, order, made)?;
    // What works in place gives what the operator before it made.
    while let Some(operator) = operator_at(graph, order, user)
        && operator.base_name().is_some_and(|name| name.ends_with('_'))
    {
        maker = user;
        user = next_call(graph, order, user)?;
    }
    let used = last_of_call(graph, order, user);
    let task = |place: usize| order.at(graph, place);
    let needed = first_needed(graph, order, freed, task(user)?.module);
    (used < needed).then_some(Stash {
        block: number,
        bytes: block.bytes,
        element: operator_at(graph, order, made).and_then(Operator::element),
        used,
        needed,
        made_by: task(maker)?.operator,
        used_by: task(user)?.operator,
        module: task(maker)?.module,
    })
}

fn operator_at<'a>(graph: &'a Graph, order: &HostOrder, place: usize) -> Option<&'a Operator> {
    graph.operator_of(order.at(graph, place)?)
}

/// The place at which the next operator of the forward pass begins.
fn next_call(graph: &Graph, order: &HostOrder, from: usize) -> Option<usize> {
    let call = order.at(graph, from)?.call;
    let mut next = from + 1;
    loop {
        let task = order.at(graph, next)?;
        if task.call.is_some() && task.call != call {
            return (task.phase == Phase::Forward).then_some(next);
        }
        next += 1;
    }
}

fn last_of_call(graph: &Graph, order: &HostOrder, from: usize) -> usize {
    let call = order.at(graph, from).and_then(|task| task.call);
    let is_same = |place: &usize| order.at(graph, *place).is_some_and(|task| task.call == call);
    (from..order.tasks.len()).take_while(is_same).last().unwrap_or(from)
}

/// Backward from where it is freed: the tasks of the module that frees it and of the one that used it.
fn first_needed(graph: &Graph, order: &HostOrder, freed: usize, user: Option<u32>) -> usize {
    let freeing = order.at(graph, freed).and_then(|task| task.module);
    let is_near = |place: &usize| {
        order.at(graph, *place).is_some_and(|task| {
            let is_of_them = task.module == freeing || task.module == user || task.module.is_none();
            task.phase == Phase::Backward && is_of_them
        })
    };
    (0..=freed).rev().take_while(is_near).last().unwrap_or(freed)
}

/// Nanoseconds of a call that launches a kernel, on average.
pub fn launch_ns(graph: &Graph) -> f64 {
    let launches = graph.select(|task| task.kind == TaskKind::Launch);
    let sum: f64 =
        launches.iter().filter_map(|id| graph.task(*id)).map(|task| task.duration_ns).sum();
    if launches.is_empty() { LAUNCH_NS } else { sum / launches.len() as f64 }
}

/// By task of the host: the first and the last kernel that it launches.
#[derive(Clone, Debug, Default)]
pub struct Kernels {
    first: HashMap<TaskId, TaskId>,
    last: HashMap<TaskId, TaskId>,
}

impl Kernels {
    /// Of a graph.
    pub fn new(graph: &Graph) -> Kernels {
        let mut kernels = Kernels::default();
        for (id, task) in graph.iter().filter(|(_, task)| task.kind == TaskKind::Kernel) {
            if let Some(launch) = task.launched_by {
                kernels.first.entry(launch).or_insert(id);
                kernels.last.insert(launch, id);
            }
        }
        kernels
    }

    /// The last kernel that was launched at a place of the host's order or before.
    pub fn until(&self, order: &HostOrder, place: usize) -> Option<TaskId> {
        let tasks = order.tasks.get(..=place)?;
        tasks.iter().rev().find_map(|id| self.last.get(id).copied())
    }

    /// The first kernel that is launched at a place or after.
    pub fn from(&self, order: &HostOrder, place: usize) -> Option<TaskId> {
        let tasks = order.tasks.get(place..)?;
        tasks.iter().find_map(|id| self.first.get(id).copied())
    }
}
