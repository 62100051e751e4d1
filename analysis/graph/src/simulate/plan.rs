//! Who waits for whom, in a form that is quick to follow.

use crate::graph::{Graph, Order, ResourceId, TaskId};

/// Who waits for whom. Every index in it is of a task or a resource of the graph.
#[derive(Debug)]
pub(crate) struct Plan {
    /// By task: what runs it.
    pub(super) resource: Vec<u32>,
    /// By task: where in `waiting` those that wait for it begin.
    first: Vec<u32>,
    waiting: Vec<(u32, f64)>,
    /// By task: how many it waits for, the one before on a chained resource included.
    pub(super) count: Vec<u32>,
    /// By resource that has tasks.
    pub(super) by_priority: Vec<bool>,
    /// Tasks in an order in which each comes after all that it waits for; shorter than the tasks where
    /// some wait for one another in a circle. Nothing where a resource goes by priority, since what it
    /// takes next is only known then.
    ///
    /// One pass in this order says when each task runs, without a queue of events.
    pub(super) order: Option<Vec<u32>>,
}

impl Plan {
    /// Looks at who waits for whom.
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
        let usable =
            || graph.edges().iter().filter(|edge| edge.from.index().max(edge.to.index()) < tasks);
        for edge in usable() {
            first[edge.from.index() + 1] += 1;
            count[edge.to.index()] += 1;
        }
        for index in 0..tasks {
            first[index + 1] += first[index];
        }
        let mut waiting = vec![(0_u32, 0.0); first[tasks] as usize];
        let mut next = first.clone();
        for edge in usable() {
            let slot = &mut next[edge.from.index()];
            waiting[*slot as usize] = (edge.to.0, edge.lag_ns);
            *slot += 1;
        }
        let mut plan = Plan { resource, first, waiting, count, by_priority, order: None };
        if !plan.by_priority.contains(&true) {
            plan.order = Some(plan.in_order(graph));
        }
        plan
    }

    /// Who waits for a task, and from when on after its end.
    pub(super) fn waiting(&self, task: u32) -> &[(u32, f64)] {
        let bound = |at: usize| self.first.get(at).map_or(0, |first| *first as usize);
        self.waiting.get(bound(task as usize)..bound(task as usize + 1)).unwrap_or_default()
    }

    fn in_order(&self, graph: &Graph) -> Vec<u32> {
        let mut count = self.count.clone();
        let mut order = Vec::with_capacity(count.len());
        let no_count = (0_u32..).zip(&count).filter(|(_, count)| **count == 0);
        let mut ready: Vec<u32> = no_count.map(|(task, _)| task).collect();
        // What is ready last runs first, so that a resource's tasks stay together.
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
