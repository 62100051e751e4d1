//! Who waits for whom in a graph: the order on each resource, and edges.
//!
//! Copies of a graph share it until one of them changes it, and with it what the simulator has worked
//! out of it: a what-if that only changes how long tasks take is run without looking at it again.

use std::sync::OnceLock;

use super::graph::{Edge, Order, Resource, ResourceId, TaskId};
use super::simulate::Plan;

/// The tasks of a resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub first: Option<TaskId>,
    pub last: Option<TaskId>,
    pub order: Order,
}

/// Those beside a task on its resource.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Neighbours {
    pub before: Option<TaskId>,
    pub next: Option<TaskId>,
}

/// Who waits for whom.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    pub resources: Vec<Resource>,
    /// Within the iteration, besides the order on each resource.
    pub edges: Vec<Edge>,
    /// Of the next iteration for this one.
    pub across: Vec<Edge>,
    /// By resource.
    chains: Vec<Chain>,
    /// By task.
    neighbours: Vec<Neighbours>,
    plan: Kept,
}

/// A plan, which no copy takes along: copies are made to be changed.
#[derive(Debug, Default)]
struct Kept(OnceLock<Plan>);

impl Clone for Kept {
    fn clone(&self) -> Kept {
        Kept::default()
    }
}

impl Links {
    /// What the simulator follows, made where it is not known.
    pub(crate) fn plan(&self, make: impl FnOnce() -> Plan) -> &Plan {
        self.plan.0.get_or_init(make)
    }

    /// Itself, to change.
    pub(crate) fn changed(&mut self) -> &mut Links {
        self.plan.0.take();
        self
    }

    pub(crate) fn chain(&self, resource: ResourceId) -> Option<&Chain> {
        self.chains.get(resource.0 as usize)
    }

    pub(crate) fn chain_mut(&mut self, resource: ResourceId) -> Option<&mut Chain> {
        self.chains.get_mut(resource.0 as usize)
    }

    pub(crate) fn neighbours(&self, id: TaskId) -> Neighbours {
        self.neighbours.get(id.index()).copied().unwrap_or_default()
    }

    pub(crate) fn add_resource(&mut self, resource: &Resource) -> ResourceId {
        self.resources.push(resource.clone());
        self.chains.push(Chain::default());
        ResourceId(self.resources.len() as u32 - 1)
    }

    /// Adds the task whose number comes next.
    pub(crate) fn add_task(&mut self, resource: ResourceId, id: TaskId, beside: Neighbours) {
        self.neighbours.push(beside);
        match beside.before.and_then(|before| self.neighbours.get_mut(before.index())) {
            Some(before) => before.next = Some(id),
            None => {
                if let Some(chain) = self.chain_mut(resource) {
                    chain.first = Some(id);
                }
            }
        }
        match beside.next.and_then(|next| self.neighbours.get_mut(next.index())) {
            Some(next) => next.before = Some(id),
            None => {
                if let Some(chain) = self.chain_mut(resource) {
                    chain.last = Some(id);
                }
            }
        }
    }
}
