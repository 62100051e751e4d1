//! Layer fusion: elementwise operators on the output of a matrix multiplication run before it is
//! written, and matrix multiplications of one input are merged (MetaFlow, Jia et al., MLSys 2019,
//! section 2; Daydream 5.2).

use super::shared::lines;
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use ridgeline_graph::calls::{Call, calls};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::op_cost::{self, Family, work};
use ridgeline_operators::operator::{Arg, Operator, Tensor};
use ridgeline_profile::Phase;

pub(super) struct LayerFusion;

impl Optimization for LayerFusion {
    fn name(&self) -> &'static str {
        "layer-fusion"
    }

    fn title(&self) -> &'static str {
        "Layer fusion"
    }

    fn source(&self) -> &'static str {
        "MetaFlow (Jia et al., \"Optimizing DNN Computation with Relaxed Graph Substitutions\", MLSys 2019)"
    }

    fn is_research(&self) -> bool {
        true
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let is_step = |call: &Call| call.phase == Phase::Forward && !call.work.is_empty();
        let calls: Vec<Call> = calls(graph).iter().filter(|call| is_step(call)).cloned().collect();
        if calls.is_empty() {
            return Err("the recording has no operator shapes".to_owned());
        }
        let merged = siblings(graph, &calls);
        let epilogues = epilogues(graph, &calls);
        if merged.is_empty() && epilogues.is_empty() {
            return Err("no adjacent layers can be fused".to_owned());
        }
        let matmuls = merged.iter().flat_map(|matmuls| matmuls.iter());
        let lines = lines::of_calls(graph, epilogues.iter().copied().chain(matmuls));
        for matmuls in merged {
            merge(graph, facts, matmuls, bound);
        }
        for call in epilogues {
            call.remove(graph);
        }
        Ok(Effect { lines, ..Effect::default() })
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !["batch-norm", "layer-fusion", "compile"].contains(&other.name())
    }
}

fn family(graph: &Graph, call: &Call) -> Option<Family> {
    Some(work(call.operator(graph)?)?.family)
}

/// Returns the elementwise calls directly after a matrix multiplication or convolution that work on
/// its output.
fn epilogues<'c>(graph: &Graph, calls: &'c [Call]) -> Vec<&'c Call> {
    let mut found = Vec::new();
    // Output elements of the matrix multiplication, while only elementwise operators follow.
    let mut open: Option<f64> = None;
    for call in calls {
        let Some(operator) = call.operator(graph) else { continue };
        let given = operator.outputs.first().map(Tensor::elements);
        match family(graph, call) {
            Some(Family::Gemm | Family::Convolution) => open = given,
            Some(Family::Elementwise) if open.is_some() && given == open => found.push(call),
            _ => open = None,
        }
    }
    found
}

/// Returns runs of consecutive linear layers of equal size. With nothing in between, they share one
/// input, like the queries, keys and values of attention.
fn siblings<'c>(graph: &Graph, calls: &'c [Call]) -> Vec<&'c [Call]> {
    let is_linear = |call: &Call| matches!(call.name(graph), "linear" | "addmm");
    let runs = calls.chunk_by(|a, b| a.operator == b.operator);
    runs.filter(|run| run.len() > 1 && run.first().is_some_and(is_linear)).collect()
}

/// Merges matrix multiplications into one with the rows of all weights.
fn merge(graph: &mut Graph, facts: &Facts<'_>, matmuls: &[Call], bound: Bound) {
    let Some((first, others)) = matmuls.split_first() else { return };
    let Some(single) = first.operator(graph) else { return };
    let times = matmuls.len() as u64;
    let merged = widened(single, times);
    let cost = |operator: &Operator| op_cost::cost(operator, facts.device, &facts.options).time_ns;
    let ratio = cost(&merged).value / (times as f64 * cost(single).value).max(1e-9);
    let now_ns: f64 = matmuls.iter().map(|call| call.work_ns(graph)).sum();
    // Merging adds no work: it takes at most as long.
    let ratio = bound.within_factor(ratio.min(1.0), 1.1).min(1.0);
    first.set_work_ns(graph, now_ns * ratio);
    graph.operators.push(merged);
    first.set_operator(graph, graph.operators.len() as u32 - 1);
    others.iter().for_each(|call| call.remove(graph));
}

fn widened(operator: &Operator, times: u64) -> Operator {
    let mut wide = operator.clone();
    let is_linear = operator.base_name() == Some("linear");
    let (weight, dimension) = if is_linear { (1, 0) } else { (2, 1) };
    if let Some(Arg::Tensor(tensor)) = wide.inputs.get_mut(weight)
        && let Some(size) = tensor.shape.get_mut(dimension)
    {
        *size = size.saturating_mul(times);
    }
    for output in &mut wide.outputs {
        if let Some(size) = output.shape.last_mut() {
            *size = size.saturating_mul(times);
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::super::shared::testing::{Iteration, cpu, gpu, operator};
    use super::*;
    use crate::facts::Probes;

    const ROWS: &[u64] = &[64, 256];

    fn linear() -> Operator {
        operator("linear", &[ROWS, &[256, 256], ROWS])
    }

    #[test]
    fn an_activation_is_fused_into_the_matrix_multiplication() {
        let iteration = Iteration::on_cpu()
            .call(Phase::Forward, linear(), 100.0)
            .call(Phase::Forward, operator("gelu", &[ROWS, ROWS]), 40.0)
            .call(Phase::Forward, operator("softmax", &[ROWS, ROWS]), 10.0)
            .call(Phase::Forward, operator("gelu", &[ROWS, ROWS]), 40.0);
        let found = iteration.predict(&cpu(), &Probes::default(), &LayerFusion).unwrap();
        assert!((found.time_ns.value - 150e3).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn merged_matrix_multiplications_use_the_device_better() {
        let mut iteration = Iteration::on_gpu();
        for _ in 0..3 {
            iteration = iteration.call(Phase::Forward, linear(), 100.0);
        }
        let found = iteration.predict(&gpu("8.0"), &Probes::default(), &LayerFusion).unwrap();
        assert!(found.time_ns.value < 200e3, "{found:?}");
    }

    #[test]
    fn a_single_layer_is_not_fused() {
        let iteration = Iteration::on_cpu().call(Phase::Forward, linear(), 100.0);
        let why = "no adjacent layers can be fused";
        assert_eq!(iteration.refusal(&cpu(), &LayerFusion), why);
    }
}
