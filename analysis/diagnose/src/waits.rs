//! The time that an iteration saves if the host does not wait for a GPU.

use std::collections::HashSet;

use super::evidence::Evidence;
use ridgeline_graph::graph::{Graph, TaskId};

/// The time per iteration that removing these waits saves, in nanoseconds.
pub(crate) fn saved_without(evidence: &Evidence<'_>, waits: &[TaskId]) -> f64 {
    evidence.saved(|graph| remove_waits(graph, waits)).max(0.0)
}

/// Removes waits from the graph, with the edges that lead to them.
fn remove_waits(graph: &mut Graph, waits: &[TaskId]) {
    for wait in waits {
        graph.remove(*wait);
    }
    let waits: HashSet<TaskId> = waits.iter().copied().collect();
    graph.retain_edges(|edge| !waits.contains(&edge.to));
}
