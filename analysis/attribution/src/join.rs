//! A trace joined with its line log: parents, places and autograd nodes of operators.

use super::backward::{self, Nodes};
use super::correlate::{self, Place, Places};
use ridgeline_recording::line_log::LineLog;
use ridgeline_recording::trace::{ThreadId, Trace};

/// A trace with the context of each of its operators.
pub(super) struct Join<'a> {
    pub trace: &'a Trace,
    pub places: Places<'a>,
    /// By operator: the operator that called it.
    pub parents: Vec<Option<u32>>,
    /// By operator: the place of its thread when it began.
    pub operator_places: Vec<Place>,
    pub nodes: Nodes,
    /// By operator: the operator that is shown instead of it, or itself.
    pub shown: Vec<u32>,
    /// The profiled iterations, sorted and without overlaps.
    pub windows: &'a [(i64, i64)],
    /// The thread of the training loop.
    pub main: Option<ThreadId>,
}

impl<'a> Join<'a> {
    pub(crate) fn new(trace: &'a Trace, log: &'a LineLog, windows: &'a [(i64, i64)]) -> Join<'a> {
        let places = Places::new(trace, log);
        let parents = correlate::parents(&trace.operators);
        let operator_places = correlate::places(&trace.operators, &places);
        let nodes = backward::nodes(trace, &parents, places.main);
        let main = places.main.or_else(|| busiest_thread(trace, &nodes));
        let shown = shown_operators(&parents, &operator_places, &nodes);
        Join { trace, places, parents, operator_places, nodes, shown, windows, main }
    }

    /// Returns the place of an operator's thread when it began.
    pub(crate) fn place_of(&self, operator: u32) -> Place {
        self.operator_places.get(operator as usize).copied().unwrap_or_default()
    }

    /// Returns the operator that is shown for an operator.
    pub(crate) fn shown_operator_of(&self, operator: u32) -> Option<u32> {
        self.shown.get(operator as usize).copied()
    }

    /// Returns the operator that called an operator.
    pub(crate) fn parent_of(&self, operator: u32) -> Option<u32> {
        self.parents.get(operator as usize).copied().flatten()
    }

    /// Whether an operator runs within an autograd node.
    pub(crate) fn in_node(&self, operator: u32) -> bool {
        self.nodes.of(operator).is_some()
    }
}

/// Returns the shown operator of each operator: the outermost one called from the same place of the
/// user's program, which is the one that the user wrote (`aten::linear`, not the `aten::addmm`
/// within). For autograd's work it is the node.
fn shown_operators(parents: &[Option<u32>], places: &[Place], nodes: &Nodes) -> Vec<u32> {
    let mut shown: Vec<u32> = Vec::with_capacity(parents.len());
    for (index, parent) in (0_u32..).zip(parents) {
        let same_place = |parent: u32| {
            let of_node = |operator: u32| nodes.of_operator.get(operator as usize);
            places.get(parent as usize).map(|place| place.stack)
                == places.get(index as usize).map(|place| place.stack)
                && of_node(parent) == of_node(index)
        };
        let outer = parent
            .filter(|&parent| same_place(parent))
            .and_then(|parent| shown.get(parent as usize).copied());
        shown.push(outer.unwrap_or(index));
    }
    shown
}

/// Returns the thread with most operators outside of autograd, which runs the loop if there is no
/// line log.
fn busiest_thread(trace: &Trace, nodes: &Nodes) -> Option<ThreadId> {
    let mut counts = vec![0_u64; trace.threads.len()];
    for (operator, node) in trace.operators.iter().zip(&nodes.of_operator) {
        if let Some(count) = counts.get_mut(operator.thread.index())
            && node.is_none()
        {
            *count += 1;
        }
    }
    let (index, _) = counts
        .iter()
        .enumerate()
        .max_by_key(|&(index, count)| (count, std::cmp::Reverse(index)))?;
    Some(ThreadId(index as u32))
}
