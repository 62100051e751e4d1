//! A tree in which each node includes its children, and the remainder is its self cost.

use serde::Serialize;

use super::Place;
use super::parts::Part;

/// The maximum number of nodes in a tree. The cheapest nodes beyond it become self cost of their
/// parents.
const MAX_NODES: usize = 20_000;

/// A breakdown of the iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breakdown {
    /// `module`, `line` or `phase`.
    pub key: &'static str,
    /// The display name.
    pub label: &'static str,
    /// Parents before children.
    pub nodes: Vec<Node>,
    /// The number of nodes left out; their cost is self cost of their parents.
    pub left_out: usize,
}

/// A part of the iteration, including its children.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Node {
    /// `layer1`, `model.py:41`.
    pub name: String,
    /// A detail: a module's type, a function's file, a line's code.
    pub detail: String,
    /// Index of the parent node, or -1.
    pub parent: i64,
    /// Nanoseconds per iteration.
    pub time_ns: u64,
    /// Bytes alive at the peak.
    pub memory_bytes: u64,
    /// Nanoseconds by phase, in the order of [`ridgeline_profile::Phase::ALL`].
    pub phases: [u64; 5],
    /// Executions per iteration. `None` for nodes that are not executed.
    pub calls: Option<f64>,
    /// Whether part of the time is a measured total that was split by an estimated share.
    pub estimated: bool,
    pub place: Option<Place>,
    /// Its memory alive at the peak, as text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub holds: String,
    /// Its utilization of the device, as text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<String>,
    /// How the total time of a line divides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// Builds a tree: each node is added with its self cost.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    /// Adds a node below one that was added before. A node with an invalid parent becomes a root.
    pub(super) fn add(&mut self, mut node: Node) -> i64 {
        let index = self.nodes.len() as i64;
        if !(0..index).contains(&node.parent) {
            node.parent = -1;
        }
        self.nodes.push(node);
        index
    }

    /// Returns the part of the iteration's time by phase and of the peak that no node covers.
    pub(super) fn rest(&self, mut phases: [u64; 5], mut memory_bytes: u64) -> Node {
        for node in &self.nodes {
            memory_bytes = memory_bytes.saturating_sub(node.memory_bytes);
            for (left, time_ns) in phases.iter_mut().zip(node.phases) {
                *left = left.saturating_sub(time_ns);
            }
        }
        Node { memory_bytes, phases, ..Node::default() }
    }

    /// Adds children to their parents, and drops nodes without cost and nodes beyond the limit.
    pub(super) fn finish(mut self, key: &'static str, label: &'static str) -> Breakdown {
        for index in (0..self.nodes.len()).rev() {
            let (before, rest) = self.nodes.split_at_mut(index);
            let Some(node) = rest.first_mut() else { continue };
            node.time_ns = node.phases.iter().fold(0, |sum, time_ns| time_ns.saturating_add(sum));
            let parent = usize::try_from(node.parent).ok().and_then(|at| before.get_mut(at));
            if let Some(parent) = parent {
                parent.memory_bytes = parent.memory_bytes.saturating_add(node.memory_bytes);
                parent.estimated |= node.estimated;
                for (sum, time_ns) in parent.phases.iter_mut().zip(node.phases) {
                    *sum = sum.saturating_add(time_ns);
                }
            }
        }
        let left_out = self.keep(MAX_NODES);
        Breakdown { key, label, nodes: self.nodes, left_out }
    }

    /// Keeps the most expensive nodes and returns the number of dropped ones. A parent never costs
    /// less than its children.
    fn keep(&mut self, limit: usize) -> usize {
        let roots = self.nodes.iter().filter(|node| node.parent == -1);
        let (time_ns, bytes) = roots.fold((0_u64, 0_u64), |(time_ns, bytes), root| {
            (time_ns.saturating_add(root.time_ns), bytes.saturating_add(root.memory_bytes))
        });
        let share = |node: &Node| {
            let time_share = node.time_ns as f64 / time_ns.max(1) as f64;
            time_share.max(node.memory_bytes as f64 / bytes.max(1) as f64)
        };
        let mut order: Vec<(usize, f64)> =
            self.nodes.iter().map(share).enumerate().filter(|(_, share)| *share > 0.0).collect();
        // The sort is stable, so a parent, which comes first, stays before children of equal cost.
        order.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let left_out = order.len().saturating_sub(limit);
        order.truncate(limit);
        let mut new_index: Vec<i64> = vec![-1; self.nodes.len()];
        order.sort_by_key(|(index, _)| *index);
        for (new, (old, _)) in (0..).zip(&order) {
            if let Some(entry) = new_index.get_mut(*old) {
                *entry = new;
            }
        }
        let lookup =
            |index: i64| usize::try_from(index).ok().and_then(|at| new_index.get(at)).copied();
        let nodes = std::mem::take(&mut self.nodes);
        for (index, mut node) in (0_i64..).zip(nodes) {
            if lookup(index).is_some_and(|new| new >= 0) {
                node.parent = lookup(node.parent).unwrap_or(-1);
                self.nodes.push(node);
            }
        }
        left_out
    }
}
