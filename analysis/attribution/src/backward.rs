//! Finds the forward operator of each autograd node.
//!
//! Autograd numbers the nodes of a thread as forward operators create them, and an operator records
//! the number that the next node will get. So several forward operators have a node's number (one
//! that creates no node, and a composite operator around the one that does), and the *latest* one
//! created it. `AccumulateGrad` has no number: autograd runs it right after the node that computed
//! its gradient (true for 214 of 214). Phase annotations are not used, because frameworks run
//! forward passes within `optimizer.step(closure)`.

use std::collections::HashMap;

use ridgeline_recording::trace::{Operator, ThreadId, Trace};

/// The prefix of the engine's range around a node.
pub(super) const ENGINE_PREFIX: &str = "autograd::engine::evaluate_function: ";

/// The maximum number of threads considered per sequence number. A training loop has a handful.
const THREADS_PER_NUMBER: usize = 64;

/// A node that autograd ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Its outermost operator.
    pub operator: u32,
    /// The forward operator that created it.
    pub forward: Option<u32>,
    /// Whether it accumulates into a parameter's `.grad`.
    pub accumulates: bool,
}

/// All nodes of a trace.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// The nodes, in the order of their operators.
    pub nodes: Vec<Node>,
    /// By operator: the innermost node that it ran within.
    pub of_operator: Vec<Option<u32>>,
    /// By operator: whether it created a node that ran.
    pub made_a_node: Vec<bool>,
    /// The trace's thread by autograd's number of a forward thread, from 1.
    pub forward_threads: HashMap<u64, ThreadId>,
}

impl Nodes {
    /// Returns the node that an operator ran within.
    pub(crate) fn of(&self, operator: u32) -> Option<Node> {
        let index = (*self.of_operator.get(operator as usize)?)?;
        self.nodes.get(index as usize).copied()
    }
}

/// Finds the nodes and their forward operators. `parents` is [`super::correlate::parents`] of the
/// trace; `main` is preferred if two threads could have run the forward pass.
pub(super) fn nodes(trace: &Trace, parents: &[Option<u32>], main: Option<ThreadId>) -> Nodes {
    let mut found = find_nodes(trace, parents);
    let numbered = Numbered::new(trace, &found);
    found.forward_threads = forward_threads(trace, &found.nodes, &numbered, main);
    link(trace, parents, &mut found, &numbered);
    found.made_a_node = vec![false; trace.operators.len()];
    for node in &found.nodes {
        if let Some(made) =
            node.forward.and_then(|forward| found.made_a_node.get_mut(forward as usize))
        {
            // `AccumulateGrad` has no number of its own, so it comes with the operator of the node
            // before it, which did create that one.
            *made |= !node.accumulates;
        }
    }
    found
}

fn find_nodes(trace: &Trace, parents: &[Option<u32>]) -> Nodes {
    let mut nodes = Nodes { of_operator: Vec::with_capacity(parents.len()), ..Nodes::default() };
    // Names repeat, so each is classified once.
    let mut kinds: HashMap<_, (bool, bool)> = HashMap::new();
    for (index, (operator, parent)) in trace.operators.iter().zip(parents).enumerate() {
        let (engine, accumulates) = *kinds.entry(operator.name).or_insert_with(|| {
            let name = trace.text(operator.name);
            (name.starts_with(ENGINE_PREFIX), name.ends_with("AccumulateGrad"))
        });
        let outer = parent.and_then(|parent| nodes.of_operator.get(parent as usize)?.as_ref());
        let outer = outer.copied();
        let is_node = engine || accumulates || is_backward(operator);
        // `MmBackward0` within `evaluate_function: MmBackward0` is the same node.
        let same_node = !engine
            && outer.is_some_and(|outer| {
                nodes.nodes.get(outer as usize).map(|node| node.operator) == *parent
            });
        nodes.of_operator.push(if is_node && !same_node {
            nodes.nodes.push(Node { operator: index as u32, forward: None, accumulates });
            Some(nodes.nodes.len() as u32 - 1)
        } else {
            outer
        });
    }
    nodes
}

fn is_backward(operator: &Operator) -> bool {
    operator.sequence.get().is_some()
        && operator.forward_thread.get().is_some_and(|thread| thread > 0)
}

/// Forward operators by thread, number and start.
struct Numbered {
    sorted: Vec<(ThreadId, u64, i64, u32)>,
    threads: HashMap<u64, Vec<ThreadId>>,
}

impl Numbered {
    fn new(trace: &Trace, nodes: &Nodes) -> Numbered {
        let mut sorted = Vec::new();
        let mut threads: HashMap<u64, Vec<ThreadId>> = HashMap::new();
        for (index, operator) in trace.operators.iter().enumerate() {
            let Some(number) = operator.sequence.get() else { continue };
            let is_the_node =
                nodes.of(index as u32).is_some_and(|node| node.operator == index as u32);
            if is_the_node || is_backward(operator) {
                continue;
            }
            sorted.push((operator.thread, number, operator.start_ns, index as u32));
            let known = threads.entry(number).or_default();
            if known.last() != Some(&operator.thread) && known.len() < THREADS_PER_NUMBER {
                known.push(operator.thread);
            }
        }
        sorted.sort_unstable();
        Numbered { sorted, threads }
    }

    /// Returns the latest operator on a thread with a sequence number that began before a time.
    fn latest(&self, thread: ThreadId, number: u64, before_ns: i64) -> Option<u32> {
        let index = self.sorted.partition_point(|&(a_thread, a_number, start_ns, _)| {
            (a_thread, a_number, start_ns) < (thread, number, before_ns)
        });
        let (a_thread, a_number, _, operator) = *self.sorted.get(index.checked_sub(1)?)?;
        ((a_thread, a_number) == (thread, number)).then_some(operator)
    }
}

/// Maps autograd's thread numbers to threads. The trace does not contain this mapping, so each
/// number is mapped to the thread that explains most of its nodes.
fn forward_threads(
    trace: &Trace,
    nodes: &[Node],
    numbered: &Numbered,
    main: Option<ThreadId>,
) -> HashMap<u64, ThreadId> {
    let mut votes: HashMap<(u64, ThreadId), u64> = HashMap::new();
    for node in nodes {
        let Some(operator) = trace.operators.get(node.operator as usize) else { continue };
        let (Some(number), Some(forward)) =
            (operator.sequence.get(), operator.forward_thread.get())
        else {
            continue;
        };
        for &thread in numbered.threads.get(&number).into_iter().flatten() {
            if numbered.latest(thread, number, operator.start_ns).is_some() {
                *votes.entry((forward, thread)).or_default() += 1;
            }
        }
    }
    let mut best: HashMap<u64, (u64, bool, std::cmp::Reverse<ThreadId>)> = HashMap::new();
    for ((forward, thread), count) in votes {
        let candidate = (count, Some(thread) == main, std::cmp::Reverse(thread));
        let so_far = best.entry(forward).or_insert(candidate);
        *so_far = (*so_far).max(candidate);
    }
    best.into_iter().map(|(forward, (_, _, thread))| (forward, thread.0)).collect()
}

fn link(trace: &Trace, parents: &[Option<u32>], found: &mut Nodes, numbered: &Numbered) {
    // The previous node among those within the same operator: a backward pass within a node of
    // another backward pass has its own order.
    let mut before: HashMap<(ThreadId, Option<u32>), Option<u32>> = HashMap::new();
    for node in &mut found.nodes {
        let Some(operator) = trace.operators.get(node.operator as usize) else { continue };
        let around = parents.get(node.operator as usize).copied().flatten();
        let before = before.entry((operator.thread, around)).or_default();
        if let Some(number) = operator.sequence.get() {
            *before = operator
                .forward_thread
                .get()
                .and_then(|forward| found.forward_threads.get(&forward))
                .and_then(|&thread| numbered.latest(thread, number, operator.start_ns));
        }
        node.forward = *before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate;
    use crate::fixture::TraceBuilder;

    /// Checks the name of the forward operator of the node with this name.
    #[track_caller]
    fn check(builder: TraceBuilder, node: &str, expected: Option<&str>) {
        let trace = builder.trace();
        let parents = correlate::parents(&trace.operators);
        let nodes = nodes(&trace, &parents, Some(ThreadId(0)));
        let name = |index: u32| trace.text(trace.operators[index as usize].name);
        let node = nodes
            .nodes
            .iter()
            .rfind(|candidate| name(candidate.operator).ends_with(node))
            .expect("the node");
        assert_eq!(node.forward.map(name), expected);
    }

    #[test]
    fn the_latest_operator_with_the_number_created_the_node() {
        let mut trace = TraceBuilder::new();
        trace.op("aten::add_", 0, 5).sequence(28);
        trace.op("aten::batch_norm", 10, 50).sequence(28);
        trace.op("aten::native_batch_norm", 20, 30).sequence(28);
        trace.op("aten::relu", 70, 5).sequence(29);
        trace.node("NativeBatchNormBackward0", 100, 50).sequence(28).forward_thread(1);
        check(trace, "NativeBatchNormBackward0", Some("aten::native_batch_norm"));
    }

    #[test]
    fn reused_numbers_belong_to_later_nodes() {
        let mut trace = TraceBuilder::new();
        trace.op("aten::mm", 0, 5).sequence(1);
        trace.node("MmBackward0", 10, 5).sequence(1).forward_thread(1);
        trace.op("aten::relu", 20, 5).sequence(1);
        check(trace, "MmBackward0", Some("aten::mm"));
    }

    #[test]
    fn accumulation_belongs_to_the_previous_node() {
        let mut trace = TraceBuilder::new();
        trace.op("aten::mm", 0, 5).sequence(1);
        trace.op("aten::relu", 6, 5).sequence(2);
        trace.node("ReluBackward0", 20, 5).sequence(2).forward_thread(1);
        trace.node("MmBackward0", 30, 5).sequence(1).forward_thread(1);
        trace.node("torch::autograd::AccumulateGrad", 40, 5);
        check(trace, "AccumulateGrad", Some("aten::mm"));
    }

    #[test]
    fn an_operator_on_a_parameter_created_a_node() {
        let mut builder = TraceBuilder::new();
        builder.op("aten::mm", 0, 5).sequence(1);
        builder.op("aten::relu", 6, 5).sequence(2);
        builder.op("aten::clone", 12, 5);
        builder.node("ReluBackward0", 20, 5).sequence(2).forward_thread(1);
        builder.node("MmBackward0", 30, 5).sequence(1).forward_thread(1);
        builder.node("torch::autograd::AccumulateGrad", 40, 5);
        let trace = builder.trace();
        let found = nodes(&trace, &correlate::parents(&trace.operators), Some(ThreadId(0)));
        assert_eq!(found.made_a_node, [true, true, false, false, false, false]);
    }

    #[test]
    fn a_node_without_a_recorded_operator_has_none() {
        let mut trace = TraceBuilder::new();
        trace.op("aten::mm", 0, 5).sequence(1);
        trace.node("MmBackward0", 10, 5).sequence(1).forward_thread(1);
        trace.node("AddBackward0", 20, 5).sequence(77).forward_thread(1);
        trace.node("torch::autograd::AccumulateGrad", 40, 5);
        check(trace, "AccumulateGrad", None);
    }

    #[test]
    fn sequence_numbers_are_per_thread() {
        let mut trace = TraceBuilder::new();
        trace.op("aten::mm", 0, 5).sequence(1);
        trace.op("aten::add", 6, 5).sequence(2);
        trace.op("aten::sin", 0, 5).sequence(2).thread(1);
        trace.node("MmBackward0", 20, 5).sequence(1).forward_thread(1).thread(2);
        trace.node("AddBackward0", 30, 5).sequence(2).forward_thread(1).thread(2);
        check(trace, "AddBackward0", Some("aten::add"));
    }

    #[test]
    fn a_node_can_be_the_forward_operator_of_another() {
        let mut trace = TraceBuilder::new();
        trace.op("aten::pow", 0, 5).sequence(1);
        trace.node("PowBackward0", 10, 20).sequence(1).forward_thread(1);
        trace.op("aten::mul", 15, 5).sequence(2);
        trace.node("MulBackward0", 50, 5).sequence(2).forward_thread(1);
        check(trace, "MulBackward0", Some("aten::mul"));
    }
}
