//! A tree of which each node includes its children, and what is left is its own.

use serde::Serialize;

use super::Place;

/// How many nodes a tree has at the most; those that count least are their parents' own.
const MOST_NODES: usize = 20_000;

/// One way to divide the iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breakdown {
    /// `module`, `line` or `phase`.
    pub key: &'static str,
    /// What to call it.
    pub label: &'static str,
    /// Parents before children.
    pub nodes: Vec<Node>,
    /// Nodes that were too many; what they cost is their parents' own.
    pub left_out: usize,
}

/// A part of the iteration, its children included.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Node {
    /// `layer1`, `model.py:41`.
    pub name: String,
    /// More about it: a module's type, a function's file, a line's code.
    pub detail: String,
    /// Index of the node that holds it, or -1.
    pub parent: i64,
    /// Nanoseconds of one iteration.
    pub time_ns: u64,
    /// Bytes alive at the peak.
    pub memory_bytes: u64,
    /// Nanoseconds by phase, in the order of [`ridgeline_profile::Phase::ALL`].
    pub phases: [u64; 5],
    /// How often it ran in one iteration; nothing for what does not run.
    pub calls: Option<f64>,
    /// The time is partly a measured total that was divided by an estimated share.
    pub estimated: bool,
    /// Where it stands.
    pub place: Option<Place>,
    /// What of it is alive at the peak, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub holds: String,
    /// What it gets out of the device, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<String>,
}

/// A tree under construction: each node is added with what is its own.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    /// Adds a node below one that was added before; an index that cannot be makes it a root.
    pub(super) fn add(&mut self, mut node: Node) -> i64 {
        let index = self.nodes.len() as i64;
        if !(0..index).contains(&node.parent) {
            node.parent = -1;
        }
        self.nodes.push(node);
        index
    }

    /// What the nodes leave of the iteration's time by phase and of the peak.
    pub(super) fn rest(&self, mut phases: [u64; 5], mut memory_bytes: u64) -> Node {
        for node in &self.nodes {
            memory_bytes = memory_bytes.saturating_sub(node.memory_bytes);
            for (left, time_ns) in phases.iter_mut().zip(node.phases) {
                *left = left.saturating_sub(time_ns);
            }
        }
        Node { memory_bytes, phases, ..Node::default() }
    }

    /// Adds children to their parents and leaves out what costs nothing or is too much.
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
        let left_out = self.keep(MOST_NODES);
        Breakdown { key, label, nodes: self.nodes, left_out }
    }

    /// Keeps the nodes that count most, of which a parent is never less than its children.
    fn keep(&mut self, most: usize) -> usize {
        let roots = self.nodes.iter().filter(|node| node.parent == -1);
        let (time_ns, bytes) = roots.fold((0_u64, 0_u64), |(time_ns, bytes), root| {
            (time_ns.saturating_add(root.time_ns), bytes.saturating_add(root.memory_bytes))
        });
        let share = |node: &Node| {
            let of_time = node.time_ns as f64 / time_ns.max(1) as f64;
            of_time.max(node.memory_bytes as f64 / bytes.max(1) as f64)
        };
        let mut order: Vec<(usize, f64)> =
            self.nodes.iter().map(share).enumerate().filter(|(_, share)| *share > 0.0).collect();
        // The sort is stable, so of equals the parent, which comes first, is kept first.
        order.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let left_out = order.len().saturating_sub(most);
        order.truncate(most);
        let mut kept: Vec<i64> = vec![-1; self.nodes.len()];
        order.sort_by_key(|(index, _)| *index);
        for (new, (old, _)) in (0..).zip(&order) {
            if let Some(entry) = kept.get_mut(*old) {
                *entry = new;
            }
        }
        let of = |index: i64| usize::try_from(index).ok().and_then(|at| kept.get(at)).copied();
        let nodes = std::mem::take(&mut self.nodes);
        for (index, mut node) in (0_i64..).zip(nodes) {
            if of(index).is_some_and(|new| new >= 0) {
                node.parent = of(node.parent).unwrap_or(-1);
                self.nodes.push(node);
            }
        }
        left_out
    }
}
