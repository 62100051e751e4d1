//! The dependencies of a graph, in a form that is fast to simulate.

use crate::graph::{Graph, Order, ResourceId, TaskId};

/// The dependencies of a graph. Every index is that of a task or a resource of the graph.
#[derive(Debug)]
pub(crate) struct Plan {
    /// By task: its resource.
    pub(super) resource: Vec<u32>,
    /// By task: the start of its dependents in `waiting`.
    first: Vec<u32>,
    waiting: Vec<(u32, f64)>,
    /// By task: the number of its dependencies, including the previous task on a chained resource.
    pub(super) count: Vec<u32>,
    /// By resource: whether it runs tasks by priority.
    pub(super) by_priority: Vec<bool>,
    /// The tasks in topological order, shorter than the task list if the dependencies have a cycle.
    /// `None` if a resource runs tasks by priority, because its order is only known during the
    /// simulation.
    ///
    /// One pass in this order computes the schedule without an event queue.
    pub(super) order: Option<Vec<u32>>,
}

impl Plan {
    /// Collects the dependencies of a graph.
    pub(crate) fn new(graph: &Graph) -> Plan {
        let tasks = graph.tasks.len();
        let resource: Vec<u32> = graph.tasks.iter().map(|task| task.resource.0).collect();
        let resources = resource.iter().max().map_or(0, |last| last.saturating_add(1));
        let by_priority: Vec<bool> =
            (0..resources).map(|index| graph.order(ResourceId(index)) == Order::Priority).collect();
        let mut count = vec![0_u32; tasks];
        for ((id, count), resource) in (0_u32..).map(TaskId).zip(&mut count).zip(&resource) {
            let is_chained = !by_priority[*resource as usize];
            *count += u32::from(is_chained && graph.before(id).is_some());
        }
        let mut first = vec![0_u32; tasks + 1];
        let valid_edges =
            || graph.edges().iter().filter(|edge| edge.from.index().max(edge.to.index()) < tasks);
        for edge in valid_edges() {
            first[edge.from.index() + 1] += 1;
            count[edge.to.index()] += 1;
        }
        for index in 0..tasks {
            first[index + 1] += first[index];
        }
        let mut waiting = vec![(0_u32, 0.0); first[tasks] as usize];
        let mut next = first.clone();
        for edge in valid_edges() {
            let slot = &mut next[edge.from.index()];
            waiting[*slot as usize] = (edge.to.0, edge.lag_ns);
            *slot += 1;
        }
        let mut plan = Plan { resource, first, waiting, count, by_priority, order: None };
        if !plan.by_priority.contains(&true) {
            plan.order = Some(plan.topological_order(graph));
        }
        plan
    }

    /// Returns the tasks that wait for a task, and the lags after its end in nanoseconds.
    pub(super) fn waiting(&self, task: u32) -> &[(u32, f64)] {
        let bound = |at: usize| self.first.get(at).map_or(0, |first| *first as usize);
        self.waiting.get(bound(task as usize)..bound(task as usize + 1)).unwrap_or_default()
    }

    fn topological_order(&self, graph: &Graph) -> Vec<u32> {
        let mut count = self.count.clone();
        let mut order = Vec::with_capacity(count.len());
        let no_count = (0_u32..).zip(&count).filter(|(_, count)| **count == 0);
        let mut ready: Vec<u32> = no_count.map(|(task, _)| task).collect();
        // Last in, first out: keeps the tasks of a resource together.
        while let Some(task) = ready.pop() {
            order.push(task);
            let next = graph.next(TaskId(task)).map(|next| next.0);
            let waiting = self.waiting(task).iter().map(|(waiting, _)| *waiting);
            for waiting in waiting.chain(next) {
                let Some(count) = count.get_mut(waiting as usize) else { continue };
                *count -= 1;
                if *count == 0 {
                    ready.push(waiting);
                }
            }
        }
        order
    }
}
