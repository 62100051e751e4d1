//! Tasks in an order in which each comes after all that it waits for. Where every resource takes its
//! tasks as they are chained, one pass in this order says when each runs, without a queue of events.

use super::Plan;
use crate::whatif::graph::Graph;

/// The order; nothing where a resource goes by priority, since what it takes next is only known then.
/// It is shorter than the tasks where some wait for one another in a circle.
pub(super) fn order(plan: &Plan, graph: &Graph) -> Option<Vec<u32>> {
    if plan.by_priority.contains(&true) {
        return None;
    }
    let mut count = plan.count.clone();
    let mut order = Vec::with_capacity(graph.tasks.len());
    let mut ready: Vec<u32> =
        (0_u32..).zip(&count).filter(|(_, count)| **count == 0).map(|(index, _)| index).collect();
    // What is ready last runs first, so that a resource's tasks stay together.
    while let Some(index) = ready.pop() {
        order.push(index);
        let next = graph.tasks.get(index as usize).and_then(|task| task.next);
        let waiting = plan.waiting(index).iter().map(|(waiting, _)| *waiting);
        for waiting in waiting.chain(next.map(|next| next.0)) {
            let Some(count) = count.get_mut(waiting as usize) else { continue };
            *count -= 1;
            if *count == 0 {
                ready.push(waiting);
            }
        }
    }
    Some(order)
}
