//! What an iteration saves when the host does not wait for a GPU.

use std::collections::HashSet;

use super::evidence::Evidence;
use super::reading::nodes_of_line;
use crate::source::batch_site::module::last_name;
use crate::source::rewrite::syntax::callee;
use crate::whatif::graph::{Graph, Resource, TaskId, TaskKind};

/// Replays an iteration without some of its waits.
pub(crate) struct Waits<'e, 'a> {
    evidence: &'e Evidence<'a>,
    /// The recording's own wait, which no other iteration has.
    own: Option<TaskId>,
    /// Nanoseconds that the iteration would be shorter by without that.
    own_ns: f64,
}

impl<'e, 'a> Waits<'e, 'a> {
    /// Replays the iteration once, without the recording's own wait.
    pub fn new(evidence: &'e Evidence<'a>) -> Waits<'e, 'a> {
        let own = own_wait(evidence);
        let own_ns = own.map_or(0.0, |own| evidence.saved(|graph| go_on(graph, &[own])));
        Waits { evidence, own, own_ns }
    }

    /// Nanoseconds by which an iteration is shorter where the host does not wait there.
    pub fn saved_ns(&self, waits: &[TaskId]) -> f64 {
        let waits: Vec<TaskId> = waits.iter().copied().chain(self.own).collect();
        (self.evidence.saved(|graph| go_on(graph, &waits)) - self.own_ns).max(0.0)
    }
}

/// Lets the host not wait.
fn go_on(graph: &mut Graph, waits: &[TaskId]) {
    for wait in waits {
        graph.remove(*wait);
    }
    let waits: HashSet<TaskId> = waits.iter().copied().collect();
    graph.retain_edges(|edge| !waits.contains(&edge.to));
}

/// The last wait of a recording of ours, where it is not the program's: the agent lets the GPU come to
/// an end before it ends the iteration.
fn own_wait(evidence: &Evidence<'_>) -> Option<TaskId> {
    let graph = evidence.graph();
    evidence.manifest()?;
    let tasks: Vec<TaskId> = graph.on(graph.find(&Resource::Host)?).collect();
    let is_wait = |id: &&TaskId| graph.task(**id).is_some_and(|task| task.kind == TaskKind::Wait);
    let last = tasks.iter().rev().find(is_wait).copied()?;
    let task = graph.task(last).filter(|task| task.operator.is_none())?;
    let is_explicit = task.line.is_some_and(|(file, line)| {
        let today = evidence.today(file, line);
        today.is_some_and(|(module, line)| synchronizes(evidence, module, line))
    });
    (!is_explicit).then_some(last)
}

/// Whether a line of the text calls `torch.cuda.synchronize()` or the like.
fn synchronizes(evidence: &Evidence<'_>, module: usize, line: u32) -> bool {
    let text = evidence.program.module(module);
    let nodes = nodes_of_line(text, line).into_iter();
    let mut calls = nodes.filter(|node| node.kind() == "call").map(|call| callee(text, call));
    calls.any(|name| last_name(&name) == "synchronize")
}
