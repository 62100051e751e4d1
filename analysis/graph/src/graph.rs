//! An iteration as a dependency graph of tasks, as in Daydream (Zhu et al., USENIX ATC 2020,
//! section 4.2).
//!
//! A task runs on a resource (the host's thread, a GPU stream, a link), after the previous task
//! there and after the tasks that edges name. `attribution::step_graph` builds the graph from a
//! recording, [`simulate`](super::simulate) computes how long an iteration takes, and the
//! [`primitives`](super::primitives) change it.

use std::collections::HashMap;
use std::sync::Arc;

use super::links::{Links, Neighbours};
use super::memory::Memory;
use super::simulate::Plan;
use super::task_list::TaskList;
use ridgeline_operators::operator::Operator;
use ridgeline_profile::{FileId, Phase};

/// The maximum nanoseconds of a launch, or of one part of a launching operator, that still count as
/// dispatch. Longer ones load kernel code, search for an algorithm, compute on the host or were
/// preempted.
pub const LONG_DISPATCH_NS: f64 = 1_000_000.0;

/// Index into [`Graph::tasks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// Index into [`Graph::resources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u32);

impl TaskId {
    /// Returns the id as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Something that runs tasks, one at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// The thread of the training loop, and autograd's thread while the former waits for it.
    Host,
    /// Another host thread, by the trace's number.
    OtherThread(u32),
    /// A GPU stream, by device number and stream number.
    Stream(i64, i64),
    /// A resource that an optimization added: `network`, `all-reduce stream`.
    Added(String),
}

/// The order in which a resource runs its tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order of the chain.
    #[default]
    Chained,
    /// The ready task with the highest [`Task::priority`]; among equals, the one that was ready
    /// first.
    Priority,
}

/// The kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskKind {
    /// Host time within an operator.
    HostOperator,
    /// Host time between operators: Python, the framework.
    HostGap,
    /// The host call that launches GPU work.
    Launch,
    /// A host call that waits for the GPU. The duration excludes the wait.
    Wait,
    /// The host waiting for other ranks in a collective that runs on the host (gloo, MPI).
    RankWait,
    /// A compute kernel.
    Kernel,
    /// A copy between host and GPU.
    HostCopy,
    /// A copy or fill within a GPU.
    DeviceCopy,
    /// Communication between GPUs.
    Communication,
    /// GPU work that ran during the iteration but was launched before it.
    EarlierWork,
}

impl TaskKind {
    /// Whether the task runs on the host.
    pub fn is_host(self) -> bool {
        matches!(
            self,
            TaskKind::HostOperator
                | TaskKind::HostGap
                | TaskKind::Launch
                | TaskKind::Wait
                | TaskKind::RankWait
        )
    }
}

/// A unit of work on a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    pub kind: TaskKind,
    /// The resource that runs it.
    pub resource: ResourceId,
    /// Duration in nanoseconds; 0 if the task was removed.
    pub duration_ns: f64,
    /// Minimum delay from the end of the previous task on the resource to the start of this one, in
    /// nanoseconds.
    pub after_ns: f64,
    /// The operator that the task is part of: index into [`Graph::operators`].
    pub operator: Option<u32>,
    /// The number of the operator call: tasks of one call share it.
    pub call: Option<u32>,
    /// For a [`TaskKind::HostGap`]: whether the host was in an operator whose shapes were not
    /// recorded.
    pub is_in_operator: bool,
    /// The kernel's name, or that of an operator without shapes: index into [`Graph::names`].
    pub name: Option<u32>,
    /// Bytes of a copy, a fill or a message.
    pub bytes: Option<u64>,
    pub phase: Phase,
    /// The module instance: index into [`Profile::modules`](ridgeline_profile::Profile::modules).
    pub module: Option<u32>,
    /// The line that the cost is attributed to.
    pub line: Option<(FileId, u32)>,
    /// Priority on a resource with [`Order::Priority`]: higher runs first.
    pub priority: i32,
    /// The launch of this task.
    pub launched_by: Option<TaskId>,
    /// Whether a what-if removed the task. It stays in the graph, so tasks that waited for it still
    /// wait for its dependencies.
    pub is_removed: bool,
}

impl Task {
    /// Creates a task. [`Graph::push`] and [`Graph::insert_after`] set its resource.
    pub fn new(kind: TaskKind, duration_ns: f64, phase: Phase) -> Task {
        Task {
            kind,
            resource: ResourceId(0),
            duration_ns,
            after_ns: 0.0,
            operator: None,
            call: None,
            is_in_operator: false,
            name: None,
            bytes: None,
            phase,
            module: None,
            line: None,
            priority: 0,
            launched_by: None,
            is_removed: false,
        }
    }
}

/// A dependency between two tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// The task that is waited for.
    pub from: TaskId,
    /// The task that waits.
    pub to: TaskId,
    /// Nanoseconds from the end of `from` to the start of `to`. Negative if `to` may start earlier:
    /// a kernel can start before its launch call returns.
    pub lag_ns: f64,
}

/// The gradient of a parameter in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gradient {
    /// Size in bytes.
    pub bytes: f64,
    /// The host task in which autograd accumulates the gradient into `.grad`.
    pub ready: TaskId,
    /// The module instance: index into [`Profile::modules`](ridgeline_profile::Profile::modules).
    pub module: Option<u32>,
}

/// One iteration.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// All tasks. Removed tasks stay in the list.
    pub tasks: TaskList,
    /// The distinct operators.
    pub operators: Vec<Operator>,
    /// Names of kernels, and of long operators without shapes.
    pub names: Vec<String>,
    /// Memory blocks and their lifetimes.
    pub memory: Memory,
    /// Whether the data loader uses worker processes; `None` if there was no data loader.
    pub loader_has_workers: Option<bool>,
    /// Parameter gradients in the order of the backward pass; empty if their shapes were not
    /// recorded.
    pub gradients: Vec<Gradient>,
    /// Names of the optimizations applied so far.
    pub applied: Vec<&'static str>,
    /// Operators that replaced recorded ones, with other types or orders: from index in `operators`
    /// to the index of the recorded operator.
    pub exchanged: HashMap<u32, u32>,
    /// Shared by clones until one of them changes it.
    links: Arc<Links>,
}

impl Graph {
    /// Returns the id of a resource, and adds the resource if it is new.
    pub fn resource(&mut self, resource: &Resource) -> ResourceId {
        self.find(resource).unwrap_or_else(|| self.links_mut().add_resource(resource))
    }

    /// Returns the id of a resource, if the graph has it.
    pub fn find(&self, resource: &Resource) -> Option<ResourceId> {
        self.links.find(resource)
    }

    /// Returns all resources, by id.
    pub fn resources(&self) -> &[Resource] {
        &self.links.resources
    }

    /// Returns the order in which a resource runs its tasks.
    pub fn order(&self, resource: ResourceId) -> Order {
        self.links.chain(resource).map(|chain| chain.order).unwrap_or_default()
    }

    /// Sets the order in which a resource runs its tasks.
    pub fn set_order(&mut self, resource: ResourceId, order: Order) {
        if let Some(chain) = self.links_mut().chain_mut(resource) {
            chain.order = order;
        }
    }

    /// Returns the dependencies within the iteration, besides the order on each resource.
    pub fn edges(&self) -> &[Edge] {
        &self.links.edges
    }

    /// Returns the dependencies of the next iteration's tasks on tasks of this iteration.
    pub fn across(&self) -> &[Edge] {
        &self.links.across
    }

    /// Returns the dependencies in the simulator's form.
    pub(super) fn plan(&self) -> &Plan {
        self.links.plan(|| Plan::new(self))
    }

    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(id.index())
    }

    pub fn task_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.get_mut(id.index())
    }

    /// Iterates over the tasks with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        (0_u32..).map(TaskId).zip(self.tasks.iter())
    }

    /// Iterates over the tasks of a resource in order.
    pub fn on(&self, resource: ResourceId) -> impl Iterator<Item = TaskId> + '_ {
        std::iter::successors(self.first(resource), |id| self.next(*id))
    }

    /// Returns the first task of a resource.
    pub fn first(&self, resource: ResourceId) -> Option<TaskId> {
        self.links.chain(resource)?.first
    }

    /// Returns the last task of a resource.
    pub fn last(&self, resource: ResourceId) -> Option<TaskId> {
        self.links.chain(resource)?.last
    }

    /// Returns the previous task on the same resource.
    pub fn before(&self, id: TaskId) -> Option<TaskId> {
        self.links.neighbours(id).before
    }

    /// Returns the next task on the same resource.
    pub fn next(&self, id: TaskId) -> Option<TaskId> {
        self.links.neighbours(id).next
    }

    /// Adds a task at the end of a resource.
    pub fn push(&mut self, resource: ResourceId, task: Task) -> TaskId {
        let before = self.last(resource);
        self.link(resource, before, None, task)
    }

    /// Adds a task right after another one, on its resource.
    pub fn insert_after(&mut self, id: TaskId, task: Task) -> TaskId {
        let resource = self.task(id).map_or(ResourceId(0), |task| task.resource);
        let next = self.next(id);
        self.link(resource, Some(id), next, task)
    }

    /// Adds a task right before another one, on its resource.
    pub fn insert_before(&mut self, id: TaskId, task: Task) -> TaskId {
        let resource = self.task(id).map_or(ResourceId(0), |task| task.resource);
        let before = self.before(id);
        self.link(resource, before, Some(id), task)
    }

    /// Adds a dependency of `to` on `from`.
    pub fn wait(&mut self, from: TaskId, to: TaskId, lag_ns: f64) {
        self.links_mut().edges.push(Edge { from, to, lag_ns });
    }

    /// Adds a dependency of `to` in the next iteration on `from` in this one.
    pub fn wait_across(&mut self, from: TaskId, to: TaskId, lag_ns: f64) {
        self.links_mut().across.push(Edge { from, to, lag_ns });
    }

    /// Keeps only the edges for which `keep` returns true.
    pub fn retain_edges(&mut self, keep: impl FnMut(&Edge) -> bool) {
        self.links_mut().edges.retain(keep);
    }

    /// Sets the lag of the edge to `to` that was added last.
    pub fn set_last_lag(&mut self, to: TaskId, lag_ns: f64) {
        if let Some(edge) = self.links_mut().edges.iter_mut().rev().find(|edge| edge.to == to) {
            edge.lag_ns = lag_ns;
        }
    }

    /// Sets the lag of every edge. The callback can read the tasks.
    pub fn change_lags(&mut self, mut lag_ns: impl FnMut(&[Task], &Edge) -> f64) {
        for edge in &mut Arc::make_mut(&mut self.links).changed().edges {
            edge.lag_ns = lag_ns(&self.tasks, edge);
        }
    }

    /// Returns the id of a kernel name, and adds the name if it is new.
    pub fn name(&mut self, name: &str) -> u32 {
        let found = self.names.iter().position(|known| known == name);
        found.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        }) as u32
    }

    fn link(
        &mut self,
        resource: ResourceId,
        before: Option<TaskId>,
        next: Option<TaskId>,
        task: Task,
    ) -> TaskId {
        let id = TaskId(self.tasks.len() as u32);
        self.tasks.push(Task { resource, ..task });
        self.links_mut().add_task(resource, id, Neighbours { before, next });
        id
    }

    fn links_mut(&mut self) -> &mut Links {
        Arc::make_mut(&mut self.links).changed()
    }
}
