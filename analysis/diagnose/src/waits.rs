//! What an iteration saves when the host does not wait for a GPU.

use std::collections::HashSet;

use super::evidence::Evidence;
use ridgeline_graph::graph::{Graph, TaskId};

/// Nanoseconds by which an iteration is shorter where the host does not wait there.
pub(crate) fn saved_without(evidence: &Evidence<'_>, waits: &[TaskId]) -> f64 {
    evidence.saved(|graph| go_on(graph, waits)).max(0.0)
}

/// Lets the host not wait.
fn go_on(graph: &mut Graph, waits: &[TaskId]) {
    for wait in waits {
        graph.remove(*wait);
    }
    let waits: HashSet<TaskId> = waits.iter().copied().collect();
    graph.retain_edges(|edge| !waits.contains(&edge.to));
}
