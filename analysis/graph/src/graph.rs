//! An iteration as tasks and what each waits for: the graph of Daydream (Zhu et al., USENIX ATC
//! 2020, section 4.2).
//!
//! A task runs on a resource (the host's thread, a stream of a GPU, a link), after the one before it
//! there and after those that an edge names. `attribution::step_graph` makes the graph of a
//! recording; [`simulate`](super::simulate) says how long an iteration takes, and the
//! [`primitives`](ridgeline_optimize::primitives) change it.

use std::collections::HashMap;
use std::sync::Arc;

use super::links::{Links, Neighbours};
use super::memory::Memory;
use super::simulate::Plan;
use super::task_list::TaskList;
use ridgeline_operators::operator::Operator;
use ridgeline_profile::{FileId, Phase};

/// A launch that takes longer, or a longer piece of an operator that launches, is no dispatch: it loads a kernel's
/// code, searches for an algorithm, computes on the host or was preempted, in nanoseconds.
pub const LONG_DISPATCH_NS: f64 = 1_000_000.0;

/// Index into [`Graph::tasks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// Index into [`Graph::resources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u32);

impl TaskId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What runs tasks, one at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// The thread of the training loop, and autograd's while that one waits for it.
    Host,
    /// Another thread of the host, by the trace's number.
    OtherThread(u32),
    /// A stream of a GPU: the device's number and the stream's.
    Stream(i64, i64),
    /// What an optimization adds: `network`, `all-reduce stream`.
    Added(String),
}

/// In which order a resource takes its tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order in which they are chained.
    #[default]
    Chained,
    /// Of those that are ready the one with the highest [`Task::priority`]; of equals the one that was
    /// ready first.
    Priority,
}

/// What a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskKind {
    /// The host within an operator.
    HostOperator,
    /// The host between operators: Python, the framework.
    HostGap,
    /// The call that launches a task of a GPU.
    Launch,
    /// A call that returns when a GPU has done something; its duration is what it takes then.
    Wait,
    /// The host until other ranks have done their part of an exchange that the host makes (gloo, MPI).
    RankWait,
    /// A kernel that computes.
    Kernel,
    /// A copy between host and GPU.
    HostCopy,
    /// A copy or fill within a GPU.
    DeviceCopy,
    /// Talk between GPUs.
    Communication,
}

impl TaskKind {
    /// Whether the host does it.
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

/// Something that takes its time on a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// What it is.
    pub kind: TaskKind,
    /// Where it runs.
    pub resource: ResourceId,
    /// How long, in nanoseconds. 0 for one that was removed.
    pub duration_ns: f64,
    /// The least time, in nanoseconds, from the end of the one before on its resource to its start.
    pub after_ns: f64,
    /// The operator that it is part of: index into [`Graph::operators`].
    pub operator: Option<u32>,
    /// The call of that operator: tasks of one call share the number.
    pub call: Option<u32>,
    /// Of a [`TaskKind::HostGap`]: the host was within an operator all the same, of which the
    /// recording tells no shapes.
    pub is_in_operator: bool,
    /// The kernel's name: index into [`Graph::names`].
    pub name: Option<u32>,
    /// Bytes of a copy, a fill or a message.
    pub bytes: Option<u64>,
    /// The part of the iteration.
    pub phase: Phase,
    /// The module instance: index into [`Profile::modules`](ridgeline_profile::Profile::modules).
    pub module: Option<u32>,
    /// The line that it is the cost of.
    pub line: Option<(FileId, u32)>,
    /// The higher, the sooner, where its resource goes by priority.
    pub priority: i32,
    /// The one that launches it.
    pub launched_by: Option<TaskId>,
    /// Whether a what-if removed it. It keeps its place, so that what waited for it waits for what
    /// it waited for.
    pub is_removed: bool,
}

impl Task {
    /// A task of a kind that takes so many nanoseconds, of a resource that
    /// [`Graph::push`] or [`Graph::insert_after`] settles.
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

/// A task that waits for another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// What is waited for.
    pub from: TaskId,
    /// Who waits.
    pub to: TaskId,
    /// Nanoseconds from the end of the one to the start of the other. Negative where the other may
    /// begin before: a kernel starts before the call that launches it returns.
    pub lag_ns: f64,
}

/// The gradient of a parameter, as the backward pass of a graph makes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gradient {
    /// Its size.
    pub bytes: f64,
    /// The task of the host in which autograd adds it to the parameter's `.grad`.
    pub ready: TaskId,
    /// The module instance: index into [`Profile::modules`](ridgeline_profile::Profile::modules).
    pub module: Option<u32>,
}

/// One iteration.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Everything that takes time. Only grows: a removed task stays.
    pub tasks: TaskList,
    /// The different operators.
    pub operators: Vec<Operator>,
    /// The names of kernels.
    pub names: Vec<String>,
    /// What is alive when.
    pub memory: Memory,
    /// Whether processes of their own load the data; nothing where no loader was seen.
    pub loader_has_workers: Option<bool>,
    /// Gradients of parameters in the order in which the backward pass has them; empty where the
    /// recording does not tell their shapes.
    pub gradients: Vec<Gradient>,
    /// The optimizations that changed it so far, by name.
    pub applied: Vec<&'static str>,
    /// Operators that took the place of recorded ones, in other types or orders: by place in
    /// `operators`, the recorded one's.
    pub exchanged: HashMap<u32, u32>,
    /// Shared with copies that change nothing of it.
    links: Arc<Links>,
}

impl Graph {
    /// The resource, added where it is new.
    pub fn resource(&mut self, resource: &Resource) -> ResourceId {
        self.find(resource).unwrap_or_else(|| self.links_mut().add_resource(resource))
    }

    /// The resource, where it is there.
    pub fn find(&self, resource: &Resource) -> Option<ResourceId> {
        let index = self.resources().iter().position(|known| known == resource)?;
        Some(ResourceId(index as u32))
    }

    /// All resources, by id.
    pub fn resources(&self) -> &[Resource] {
        &self.links.resources
    }

    /// How a resource orders its tasks.
    pub fn order(&self, resource: ResourceId) -> Order {
        self.links.chain(resource).map(|chain| chain.order).unwrap_or_default()
    }

    /// Lets a resource order its tasks otherwise.
    pub fn set_order(&mut self, resource: ResourceId, order: Order) {
        if let Some(chain) = self.links_mut().chain_mut(resource) {
            chain.order = order;
        }
    }

    /// What waits for what within the iteration, besides the order on each resource.
    pub fn edges(&self) -> &[Edge] {
        &self.links.edges
    }

    /// What of the next iteration waits for what of this one.
    pub fn across(&self) -> &[Edge] {
        &self.links.across
    }

    /// Who waits for whom, as the simulator follows it.
    pub(super) fn plan(&self) -> &Plan {
        self.links.plan(|| Plan::new(self))
    }

    /// A task.
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(id.index())
    }

    /// A task, to change.
    pub fn task_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.get_mut(id.index())
    }

    /// The tasks with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        (0_u32..).map(TaskId).zip(self.tasks.iter())
    }

    /// The tasks of a resource in their order.
    pub fn on(&self, resource: ResourceId) -> impl Iterator<Item = TaskId> + '_ {
        std::iter::successors(self.first(resource), |id| self.next(*id))
    }

    /// The first task of a resource.
    pub fn first(&self, resource: ResourceId) -> Option<TaskId> {
        self.links.chain(resource)?.first
    }

    /// The last task of a resource.
    pub fn last(&self, resource: ResourceId) -> Option<TaskId> {
        self.links.chain(resource)?.last
    }

    /// The one before on the same resource.
    pub fn before(&self, id: TaskId) -> Option<TaskId> {
        self.links.neighbours(id).before
    }

    /// The next one on the same resource.
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

    /// Lets a task wait for another one.
    pub fn wait(&mut self, from: TaskId, to: TaskId, lag_ns: f64) {
        self.links_mut().edges.push(Edge { from, to, lag_ns });
    }

    /// Lets a task of the next iteration wait for one of this.
    pub fn wait_across(&mut self, from: TaskId, to: TaskId, lag_ns: f64) {
        self.links_mut().across.push(Edge { from, to, lag_ns });
    }

    /// Lets tasks wait only as asked.
    pub fn retain_edges(&mut self, keep: impl FnMut(&Edge) -> bool) {
        self.links_mut().edges.retain(keep);
    }

    /// Changes the lag of what a task waits for, of several the one that was told last.
    pub fn set_last_lag(&mut self, to: TaskId, lag_ns: f64) {
        if let Some(edge) = self.links_mut().edges.iter_mut().rev().find(|edge| edge.to == to) {
            edge.lag_ns = lag_ns;
        }
    }

    /// Changes the lag of every edge; the tasks are there to be looked at.
    pub fn change_lags(&mut self, mut lag_ns: impl FnMut(&[Task], &Edge) -> f64) {
        for edge in &mut Arc::make_mut(&mut self.links).changed().edges {
            edge.lag_ns = lag_ns(&self.tasks, edge);
        }
    }

    /// The id of a kernel's name, added where it is new.
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
