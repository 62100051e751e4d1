//! The dependencies of a graph: the order on each resource, and edges.
//!
//! Clones of a graph share them until one of them changes them, together with the simulator's plan:
//! a what-if that only changes durations does not compute the plan again.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::graph::{Edge, Order, Resource, ResourceId, TaskId};
use super::simulate::Plan;

/// The chain of tasks on a resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub first: Option<TaskId>,
    pub last: Option<TaskId>,
    pub order: Order,
}

/// The tasks before and after a task on its resource.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Neighbours {
    pub before: Option<TaskId>,
    pub next: Option<TaskId>,
}

/// The dependencies of a graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    pub resources: Vec<Resource>,
    ids: HashMap<Resource, ResourceId>,
    /// Dependencies within the iteration, besides the order on each resource.
    pub edges: Vec<Edge>,
    /// Dependencies of the next iteration on this one.
    pub across: Vec<Edge>,
    /// By resource.
    chains: Vec<Chain>,
    /// By task.
    neighbours: Vec<Neighbours>,
    plan: CachedPlan,
}

/// A cached plan. Clones do not copy it, because a clone is made to be changed.
#[derive(Debug, Default)]
struct CachedPlan(OnceLock<Plan>);

impl Clone for CachedPlan {
    fn clone(&self) -> CachedPlan {
        CachedPlan::default()
    }
}

impl Links {
    /// Returns the simulator's plan, and computes it if it is not cached.
    pub(crate) fn plan(&self, compute: impl FnOnce() -> Plan) -> &Plan {
        self.plan.0.get_or_init(compute)
    }

    /// Returns the links for modification, without the cached plan.
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
        let id = ResourceId(self.resources.len() as u32);
        self.resources.push(resource.clone());
        self.chains.push(Chain::default());
        self.ids.insert(resource.clone(), id);
        id
    }

    pub(crate) fn find(&self, resource: &Resource) -> Option<ResourceId> {
        self.ids.get(resource).copied()
    }

    /// Adds the task with the next id.
    pub(crate) fn add_task(&mut self, resource: ResourceId, id: TaskId, neighbours: Neighbours) {
        self.neighbours.push(neighbours);
        match neighbours.before.and_then(|before| self.neighbours.get_mut(before.index())) {
            Some(before) => before.next = Some(id),
            None => {
                if let Some(chain) = self.chain_mut(resource) {
                    chain.first = Some(id);
                }
            }
        }
        match neighbours.next.and_then(|next| self.neighbours.get_mut(next.index())) {
            Some(next) => next.before = Some(id),
            None => {
                if let Some(chain) = self.chain_mut(resource) {
                    chain.last = Some(id);
                }
            }
        }
    }
}
