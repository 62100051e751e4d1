//! Operators that a program does not have and could, in the place of some that it has: attention in one
//! operator on a processor, products of other sizes on a GPU. Run by themselves on the machine beside
//! those, they tell what would be saved, which no cost model of ours knows as well.

use super::attention::{Attention, attentions};
use super::optimizations::pad_dimensions::padded;
use ridgeline_graph::calls::{Call, calls, has_kernels};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::operator::Operator;

/// A smaller share of what one attention takes is not run by itself.
const LEAST: f64 = 0.02;

/// An operator, and those in whose place it would run.
#[derive(Clone, Debug, PartialEq)]
pub struct StandIn {
    /// What would run.
    pub operator: Operator,
    /// Places in [`Graph::operators`]: those that take most of the time.
    pub of: Vec<u32>,
}

/// The stand-ins that are worth a measurement, each once, the first ones first. `costliest` are operators
/// of the graph; `tf32`, whether FP32 products run on tensor cores.
pub fn stand_ins(graph: &Graph, costliest: &[u32], tf32: bool) -> Vec<StandIn> {
    if has_kernels(graph) {
        return of_sizes(graph, costliest, tf32);
    }
    let calls = calls(graph);
    let mut found: Vec<StandIn> = Vec::new();
    let attentions = attentions(graph, &calls);
    let attentions = attentions.iter().filter(|attention| attention.has_operator);
    for one in attentions.map(|attention| of_attention(graph, attention)) {
        if !found.iter().any(|known| known.operator == one.operator && known.of == one.of) {
            found.push(one);
        }
    }
    found
}

/// Products with sizes that suit tensor cores.
fn of_sizes(graph: &Graph, costliest: &[u32], tf32: bool) -> Vec<StandIn> {
    let found = costliest.iter().filter_map(|index| {
        let operator = padded(graph.operators.get(*index as usize)?, tf32)?;
        Some(StandIn { operator, of: vec![*index] })
    });
    found.collect()
}

/// One attention's, and those of its calls that together take nearly all of its time.
fn of_attention(graph: &Graph, attention: &Attention<'_>) -> StandIn {
    let whole: f64 = attention.calls.iter().map(|call| call.work_ns(graph)).sum();
    let counts = |call: &&&Call| call.work_ns(graph) >= LEAST * whole;
    let of = attention.calls.iter().filter(counts).map(|call| call.operator).collect();
    StandIn { operator: attention.fused.clone(), of }
}
