//! Activations between their last use in the forward pass and their first use in the backward pass.
//! In this gap Gist (Jain et al., ISCA 2018, section 3) compresses them and vDNN (Rhu et al., MICRO
//! 2016, section III) offloads them.

use std::collections::HashMap;

use ridgeline_graph::graph::{Graph, TaskId, TaskKind};
use ridgeline_graph::host_order::HostOrder;
use ridgeline_graph::memory::BlockKind;
use ridgeline_operators::operator::{ElementType, Operator};
use ridgeline_profile::Phase;

/// The minimum share of all activation memory that is worth a kernel.
const MIN_SHARE: f64 = 1e-3;
/// Launch time in nanoseconds if the recording has no launches.
const DEFAULT_LAUNCH_NS: f64 = 5_000.0;

/// An activation that is stored for the backward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Stash {
    /// Index into [`Memory::blocks`](ridgeline_graph::memory::Memory::blocks).
    pub block: usize,
    /// Size in bytes.
    pub bytes: f64,
    /// Element type: that of the inputs of the operator that allocates it.
    pub element: Option<ElementType>,
    /// Position in the host's order of the last forward task that uses it.
    pub used: usize,
    /// Position of the first backward task that needs it.
    pub needed: usize,
    /// The operator that produced it: index into [`Graph::operators`].
    pub made_by: Option<u32>,
    /// The operator after it, which uses the activation.
    pub used_by: Option<u32>,
    /// The module of the operator that produced it, or of the last one that changed it in place.
    pub module: Option<u32>,
}

/// Returns the large activations of an iteration, in the order of their last use.
pub fn stashes(graph: &Graph, order: &HostOrder) -> Vec<Stash> {
    let blocks = || {
        let blocks = graph.memory.blocks.iter().enumerate();
        blocks.filter(|(_, block)| block.kind == BlockKind::Activations)
    };
    let all: f64 = blocks().map(|(_, block)| block.bytes).sum();
    let mut found: Vec<Stash> = blocks()
        .filter(|(_, block)| block.bytes >= MIN_SHARE * all)
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
    // In-place operators return the tensor of the previous operator.
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

/// Returns the position where the next operator of the forward pass starts.
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

/// Searches backward from where the activation is freed, over the tasks of the freeing module and
/// of the module that used it.
fn first_needed(
    graph: &Graph,
    order: &HostOrder,
    freed: usize,
    using_module: Option<u32>,
) -> usize {
    let freeing = order.at(graph, freed).and_then(|task| task.module);
    let is_near = |place: &usize| {
        order.at(graph, *place).is_some_and(|task| {
            let is_related =
                task.module == freeing || task.module == using_module || task.module.is_none();
            task.phase == Phase::Backward && is_related
        })
    };
    (0..=freed).rev().take_while(is_near).last().unwrap_or(freed)
}

/// Returns the average time of a kernel launch, in nanoseconds.
pub fn launch_ns(graph: &Graph) -> f64 {
    let launches = graph.select(|task| task.kind == TaskKind::Launch);
    let sum: f64 =
        launches.iter().filter_map(|id| graph.task(*id)).map(|task| task.duration_ns).sum();
    if launches.is_empty() { DEFAULT_LAUNCH_NS } else { sum / launches.len() as f64 }
}

/// By host task: the first and the last kernel that it launches.
#[derive(Clone, Debug, Default)]
pub struct Kernels {
    first: HashMap<TaskId, TaskId>,
    last: HashMap<TaskId, TaskId>,
}

impl Kernels {
    /// Collects the kernels of a graph.
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

    /// Returns the last kernel launched at or before a position in the host's order.
    pub fn until(&self, order: &HostOrder, place: usize) -> Option<TaskId> {
        let tasks = order.tasks.get(..=place)?;
        tasks.iter().rev().find_map(|id| self.last.get(id).copied())
    }

    /// Returns the first kernel launched at or after a position.
    pub fn from(&self, order: &HostOrder, place: usize) -> Option<TaskId> {
        let tasks = order.tasks.get(place..)?;
        tasks.iter().find_map(|id| self.first.get(id).copied())
    }
}
