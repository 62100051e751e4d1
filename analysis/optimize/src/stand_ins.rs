//! Replacement operators that a program could use: fused attention on a CPU, matrix multiplications
//! of other sizes on a GPU. Measuring them and the recorded operators on the same machine shows the
//! saving, which the cost model does not know as well.

use super::attention::{Attention, attentions};
use super::optimizations::pad_dimensions::padded;
use ridgeline_graph::calls::{Call, calls, has_kernels};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::operator::Operator;

/// The minimum share of an attention's time for an operator to be measured.
const MIN_SHARE: f64 = 0.02;

/// An operator, and the operators that it would replace.
#[derive(Clone, Debug, PartialEq)]
pub struct StandIn {
    /// The replacement.
    pub operator: Operator,
    /// Indices into [`Graph::operators`] of the replaced operators that take most of the time.
    pub of: Vec<u32>,
}

/// Returns the replacements worth measuring, without duplicates, most important first. `costliest`
/// are operators of the graph. `tf32` is whether FP32 matrix multiplications run on tensor cores.
pub fn stand_ins(graph: &Graph, costliest: &[u32], tf32: bool) -> Vec<StandIn> {
    if has_kernels(graph) {
        return padded_matmuls(graph, costliest, tf32);
    }
    let calls = calls(graph);
    let mut found: Vec<StandIn> = Vec::new();
    let attentions = attentions(graph, &calls);
    let attentions = attentions.iter().filter(|attention| attention.has_operator);
    for one in attentions.map(|attention| fused_attention(graph, attention)) {
        if !found.iter().any(|known| known.operator == one.operator && known.of == one.of) {
            found.push(one);
        }
    }
    found
}

/// Returns matrix multiplications padded to sizes that suit tensor cores.
fn padded_matmuls(graph: &Graph, costliest: &[u32], tf32: bool) -> Vec<StandIn> {
    let found = costliest.iter().filter_map(|index| {
        let operator = padded(graph.operators.get(*index as usize)?, tf32)?;
        Some(StandIn { operator, of: vec![*index] })
    });
    found.collect()
}

/// Returns the fused operator of one attention, and those of its calls that take nearly all of its
/// time.
fn fused_attention(graph: &Graph, attention: &Attention<'_>) -> StandIn {
    let total_ns: f64 = attention.calls.iter().map(|call| call.work_ns(graph)).sum();
    let counts = |call: &&&Call| call.work_ns(graph) >= MIN_SHARE * total_ns;
    let of = attention.calls.iter().filter(counts).map(|call| call.operator).collect();
    StandIn { operator: attention.fused.clone(), of }
}
