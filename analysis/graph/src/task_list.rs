//! The tasks of a graph, with the operator calls that they belong to.
//!
//! A dozen what-ifs inspect the calls of the same recording. Clones of its graph share the calls
//! until one of them changes a task, so the calls are collected once.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use super::calls::Call;
use super::graph::Task;

/// The tasks, by id.
#[derive(Clone, Debug, Default)]
pub struct TaskList {
    tasks: Vec<Task>,
    /// The cached calls of the current tasks; `None` if they are not cached.
    calls: Option<Arc<OnceLock<Arc<[Call]>>>>,
}

impl TaskList {
    /// Caches the calls from now on, for this graph and its clones, until a task is changed.
    pub fn keep_calls(&mut self) {
        self.calls.get_or_insert_default();
    }

    /// Returns the calls, and computes them with `compute` if they are not cached.
    pub(super) fn calls(&self, compute: impl FnOnce() -> Arc<[Call]>) -> Arc<[Call]> {
        match &self.calls {
            Some(cached) => Arc::clone(cached.get_or_init(compute)),
            None => compute(),
        }
    }
}

impl Deref for TaskList {
    type Target = Vec<Task>;

    fn deref(&self) -> &Vec<Task> {
        &self.tasks
    }
}

impl DerefMut for TaskList {
    fn deref_mut(&mut self) -> &mut Vec<Task> {
        self.calls = None;
        &mut self.tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::calls;
    use crate::graph::{Graph, Resource, TaskKind};
    use ridgeline_profile::Phase;

    #[test]
    fn copies_share_calls_until_one_changes_a_task() {
        let mut graph = Graph::default();
        let host = graph.resource(&Resource::Host);
        let mut task = Task::new(TaskKind::HostOperator, 10.0, Phase::Forward);
        (task.call, task.operator) = (Some(0), Some(0));
        let id = graph.push(host, task);
        assert!(!Arc::ptr_eq(&calls(&graph), &calls(&graph)));
        graph.tasks.keep_calls();
        let mut copy = graph.clone();
        assert!(Arc::ptr_eq(&calls(&graph), &calls(&copy)));
        copy.remove(id);
        assert_eq!((calls(&graph).len(), calls(&copy).len()), (1, 0));
    }
}
