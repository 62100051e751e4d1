//! Attention in one kernel, without storing the scores of all pairs in memory (Dao et al.,
//! "FlashAttention", NeurIPS 2022, section 3; `scaled_dot_product_attention`).

use std::collections::HashMap;

use super::shared::lines;
use crate::attention::{Attention, attentions};
use crate::facts::{Facts, PROBE_UNCERTAINTY, Probes};
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use ridgeline_graph::calls::calls;
use ridgeline_graph::graph::Graph;
use ridgeline_graph::memory::BlockKind;
use ridgeline_operators::op_cost;
use ridgeline_operators::operator::Operator;

/// Uncertainty factor of the modeled ratio of one kernel to many. Fused attention was not in the
/// data to which the cost model was fitted.
const MODEL_UNCERTAINTY: f64 = 1.4;
/// The minimum share of the unfused time that has to be measured by probes.
const MIN_PROBED_SHARE: f64 = 0.8;
/// Allocation granularity in bytes.
const GRAIN: f64 = 512.0;

pub(super) struct FusedAttention;

impl Optimization for FusedAttention {
    fn name(&self) -> &'static str {
        "fused-attention"
    }

    fn title(&self) -> &'static str {
        "Fused attention (scaled_dot_product_attention)"
    }

    fn source(&self) -> &'static str {
        "Dao et al., \"FlashAttention\", NeurIPS 2022, section 3"
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::FusedAttention)
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let calls = calls(graph);
        if calls.is_empty() {
            return Err("the recording has no operator shapes".to_owned());
        }
        let mut found = attentions(graph, &calls);
        let is_written_out = !found.is_empty();
        found.retain(|attention| attention.has_operator);
        if found.is_empty() {
            let is_fused = calls.iter().any(|it| it.name(graph).contains("scaled_dot_product"));
            let why = if is_written_out {
                "attention with dropout is not fused on CPU"
            } else if is_fused {
                "attention already calls `scaled_dot_product_attention`"
            } else {
                "the model has no unfused attention"
            };
            return Err(why.to_owned());
        }
        let lines = lines::of_calls(graph, found.iter().flat_map(|it| it.calls.iter().copied()));
        let cost = |it: &Operator| op_cost::cost(it, facts.device, &facts.options).time_ns.value;
        let modelled: Vec<f64> = graph.operators.iter().map(cost).collect();
        // Most layers are alike.
        let mut last: Option<(&Operator, f64)> = None;
        for attention in &found {
            let fused_ns = match last {
                Some((operator, fused_ns)) if *operator == attention.fused => fused_ns,
                _ => cost(&attention.fused),
            };
            last = Some((&attention.fused, fused_ns));
            let (ratio, spread) = match probed_ratio(attention, graph, facts.probes) {
                Some(ratio) => (ratio, PROBE_UNCERTAINTY),
                None => (modelled_ratio(attention, &modelled, fused_ns), MODEL_UNCERTAINTY),
            };
            fuse(attention, graph, bound.within_factor(ratio, spread));
        }
        free_scores(graph, &found);
        let notes = vec!["requires masks and dropout that the kernel supports".to_owned()];
        Ok(Effect { lines, notes, ..Effect::default() })
    }
}

/// Returns the modeled ratio of the fused operator's time to the unfused ones'.
fn modelled_ratio(attention: &Attention<'_>, modelled: &[f64], fused_ns: f64) -> f64 {
    let calls = attention.calls.iter();
    let now: f64 = calls.filter_map(|call| modelled.get(call.operator as usize)).sum();
    fused_ns / now.max(1e-9)
}

/// Returns the ratio from probes on this machine, or `None` if most of the unfused time was not
/// measured.
///
/// Within an iteration, scores in newly allocated memory slow down the unfused calls, and the fused
/// operator has no scores. So it is scaled by the slowdown of the least affected call, at least 1:
/// in isolation, an operator finds all its inputs in the caches.
fn probed_ratio(attention: &Attention<'_>, graph: &Graph, probes: &Probes) -> Option<f64> {
    let fused_ns = probes.stand_in(&attention.fused)?;
    let (mut probed_ns, mut total_ns) = (0.0, 0.0);
    let mut min_slowdown = f64::INFINITY;
    for call in &attention.calls {
        let work_ns = call.work_ns(graph);
        total_ns += work_ns;
        if let Some(same) = probes.same(call.operator) {
            probed_ns += work_ns;
            min_slowdown = min_slowdown.min(work_ns / same);
        }
    }
    let is_known = probed_ns >= MIN_PROBED_SHARE * total_ns;
    Some(fused_ns * min_slowdown.max(1.0) / total_ns).filter(|ratio| is_known && ratio.is_finite())
}

fn fuse(attention: &Attention<'_>, graph: &mut Graph, ratio: f64) {
    let now_ns: f64 = attention.calls.iter().map(|call| call.work_ns(graph)).sum();
    let Some((first, others)) = attention.calls.split_first() else { return };
    first.set_work_ns(graph, now_ns * ratio);
    if graph.operators.last() != Some(&attention.fused) {
        graph.operators.push(attention.fused.clone());
    }
    first.set_operator(graph, graph.operators.len() as u32 - 1);
    others.iter().for_each(|call| call.remove(graph));
}

/// Removes the memory of the scores and of tensors derived from them: blocks of those calls with
/// the same size.
fn free_scores(graph: &mut Graph, attentions: &[Attention<'_>]) {
    let scores: HashMap<u32, f64> = attentions
        .iter()
        .flat_map(|one| one.calls.iter().map(|call| (call.number, one.scores)))
        .collect();
    let matches_size = |bytes: f64, scores: f64| {
        let mut widths = [1.0, 2.0, 4.0].into_iter().map(|width| width * scores);
        widths.any(|size| (0.0..GRAIN).contains(&(bytes - size)))
    };
    graph.change_blocks(|block| {
        let is_stored = matches!(block.kind, BlockKind::Activations | BlockKind::Temporaries);
        let size = block.call.and_then(|call| scores.get(&call));
        if is_stored && size.is_some_and(|size| matches_size(block.bytes, *size)) {
            block.bytes = 0.0;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::shared::testing::{self, Iteration, cpu, gpu};
    use super::*;
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_operators::operator::ElementType;
    use ridgeline_operators::retyped::retyped;
    use ridgeline_profile::{FileId, Phase};

    const ROWS: &[u64] = &[96, 1024, 64];
    const SCORES: &[u64] = &[96, 1024, 1024];

    fn operator(name: &str, shapes: &[&[u64]]) -> Operator {
        let operator = testing::operator(name, shapes);
        retyped(&operator, ElementType::Float32, ElementType::Float16)
    }

    fn unfused() -> Iteration {
        let one = |name: &str| operator(name, &[SCORES, SCORES]);
        Iteration::on_gpu()
            .call(Phase::Forward, operator("linear", &[ROWS, &[64, 64], ROWS]), 50.0)
            .call(Phase::Forward, operator("bmm", &[ROWS, &[96, 64, 1024], SCORES]), 1000.0)
            .call(Phase::Forward, one("mul"), 800.0)
            .call(Phase::Forward, one("softmax"), 800.0)
            .call(Phase::Forward, operator("bmm", &[SCORES, ROWS, ROWS]), 1000.0)
            .call(Phase::Forward, operator("linear", &[ROWS, &[64, 64], ROWS]), 50.0)
    }

    #[test]
    fn unfused_attention_becomes_one_faster_kernel() {
        let device = gpu("8.0");
        let found = unfused().predict(&device, &Probes::default(), &FusedAttention).unwrap();
        assert!(found.time_ns.value < 0.8 * found.before_ns, "{found:?}");
        let graph = unfused().changed(&device, &FusedAttention);
        assert_eq!(graph.select(|task| !task.kind.is_host()).len(), 3);
        let empty = Iteration::on_gpu();
        assert!(empty.refusal(&device, &FusedAttention).contains("no operator shapes"));
    }

    #[test]
    fn views_and_copies_of_einsum_are_skipped() {
        let one = |name: &str| operator(name, &[SCORES, SCORES]);
        let mut iteration = Iteration::on_gpu()
            .call(Phase::Forward, operator("bmm", &[ROWS, &[96, 64, 1024], SCORES]), 1000.0)
            .call(Phase::Forward, one("mul"), 800.0)
            .call(Phase::Forward, one("softmax"), 800.0);
        for _ in 0..12 {
            iteration = iteration.call(Phase::Forward, operator("view", &[ROWS, ROWS]), 0.0);
        }
        let graph = iteration
            .call(Phase::Forward, operator("clone", &[ROWS, ROWS]), 50.0)
            .call(Phase::Forward, operator("bmm", &[SCORES, ROWS, ROWS]), 1000.0)
            .call(Phase::Forward, operator("linear", &[ROWS, &[64, 64], ROWS]), 50.0)
            .changed(&gpu("8.0"), &FusedAttention);
        let left = graph.select(|task| task.kind == TaskKind::Kernel);
        assert_eq!(left.len(), 2, "the fused operator, and the layer after it");
    }

    #[test]
    fn a_layer_in_between_prevents_fusion() {
        let one = |name: &str| operator(name, &[SCORES, SCORES]);
        let iteration = Iteration::on_gpu()
            .call(Phase::Forward, operator("bmm", &[ROWS, &[96, 64, 1024], SCORES]), 1000.0)
            .call(Phase::Forward, one("softmax"), 800.0)
            .call(Phase::Forward, operator("linear", &[ROWS, &[64, 64], ROWS]), 50.0)
            .call(Phase::Forward, operator("bmm", &[SCORES, ROWS, ROWS]), 1000.0);
        let why = "the model has no unfused attention";
        assert_eq!(iteration.refusal(&gpu("8.0"), &FusedAttention), why);
    }

    /// With dropout on a CPU, the fused operator runs separate ones, whose backward passes are recorded.
    #[test]
    fn the_backward_pass_of_the_fused_operator_is_not_written_out() {
        let one = |name: &str| operator(name, &[SCORES, SCORES]);
        let backward = |iteration: Iteration| {
            iteration
                .call(Phase::Backward, operator("bmm", &[SCORES, ROWS, ROWS]), 1000.0)
                .call(Phase::Backward, operator("bmm", &[ROWS, &[96, 64, 1024], SCORES]), 1000.0)
                .call(Phase::Backward, one("_softmax_backward_data"), 800.0)
                .call(Phase::Backward, operator("bmm", &[SCORES, ROWS, ROWS]), 1000.0)
        };
        let attention = operator("scaled_dot_product_attention", &[ROWS, ROWS, ROWS, ROWS]);
        let mut fused = backward(Iteration::on_cpu().call(Phase::Forward, attention, 3000.0));
        fused.graph.tasks.iter_mut().for_each(|task| task.line = Some((FileId(0), 34)));
        let why = "attention already calls `scaled_dot_product_attention`";
        assert_eq!(fused.refusal(&cpu(), &FusedAttention), why);
        let graph = backward(Iteration::on_cpu()).changed(&cpu(), &FusedAttention);
        assert_eq!(graph.operators.iter().filter(|it| it.name.contains("flash")).count(), 1);
    }

    #[test]
    fn a_single_softmax_is_not_attention() {
        let softmax = operator("softmax", &[SCORES, SCORES]);
        let iteration = Iteration::on_cpu().call(Phase::Forward, softmax, 10.0);
        let why = "the model has no unfused attention";
        assert_eq!(iteration.refusal(&cpu(), &FusedAttention), why);
    }
}
