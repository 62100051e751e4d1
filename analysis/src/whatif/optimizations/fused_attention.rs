//! Attention in one kernel, so that the scores of all pairs are never in memory (Dao et al.,
//! "FlashAttention", NeurIPS 2022, section 3; `scaled_dot_product_attention`).

use std::collections::HashMap;

use super::shared::lines;
use crate::predict::op_cost::{self, Family, work};
use crate::predict::operator::{Arg, ElementType, Operator, Tensor};
use crate::whatif::calls::{Call, calls, has_kernels};
use crate::whatif::facts::Facts;
use crate::whatif::graph::Graph;
use crate::whatif::memory::BlockKind;
use crate::whatif::optimization::{Bound, Optimization, Touched};

/// Calls on either side of a softmax that are looked at.
const REACH: usize = 12;
/// By which factor the ratio of one kernel to many may be off: fused attention was not among what the
/// cost model was fitted on.
const SPREAD: f64 = 1.4;
/// Blocks are given out in multiples of this.
const GRAIN: f64 = 512.0;

pub(super) struct FusedAttention;

impl Optimization for FusedAttention {
    fn name(&self) -> &'static str {
        "fused-attention"
    }

    fn title(&self) -> &'static str {
        "Attention in one kernel"
    }

    fn source(&self) -> &'static str {
        "Dao et al., \"FlashAttention\", NeurIPS 2022, section 3"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Touched, String> {
        let calls = calls(graph);
        if calls.is_empty() {
            return Err("the recording has no shapes of operators".to_owned());
        }
        let found = attentions(graph, &calls);
        if found.is_empty() {
            let is_fused = calls.iter().any(|it| it.name(graph).contains("scaled_dot_product"));
            let why = if is_fused {
                "attention runs in one kernel already"
            } else {
                "the model has no attention that is written out"
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
            attention.fuse(graph, &modelled, fused_ns, bound);
        }
        free_scores(graph, &found);
        let notes = vec!["masks and dropout have to be ones that the kernel knows".to_owned()];
        Ok(Touched { lines, notes, ..Touched::default() })
    }
}

/// One attention's forward or backward pass, written out.
struct Attention<'c> {
    /// From the first product to the last one.
    calls: Vec<&'c Call>,
    /// Numbers of the pairs of queries and keys.
    scores: f64,
    fused: Operator,
}

/// The operators around each softmax that take or give tensors as large as the scores.
fn attentions<'c>(graph: &Graph, calls: &'c [Call]) -> Vec<Attention<'c>> {
    let mut found = Vec::new();
    let on_cpu = !has_kernels(graph);
    let family = |operator: &Operator| work(operator).map(|work| work.family);
    let families: Vec<Option<Family>> = graph.operators.iter().map(family).collect();
    let family = |call: &Call| families.get(call.operator as usize).copied().flatten();
    for (place, call) in calls.iter().enumerate() {
        let Some(operator) = call.operator(graph) else { continue };
        if family(call) != Some(Family::Softmax) {
            continue;
        }
        let Some(scores) = operator.tensor(0).filter(|tensor| tensor.shape.len() >= 3) else {
            continue;
        };
        let size = scores.elements();
        let touches = |call: &&Call| {
            let operator = call.operator(graph);
            operator.is_some_and(|it| {
                let mut tensors = it.input_tensors().chain(&it.outputs);
                tensors.any(|tensor| tensor.elements() == size)
                    || family(call).is_none_or(|family| family == Family::View)
            })
        };
        let (before, after) = calls.split_at(place);
        let mut around: Vec<&Call> = before.iter().rev().take(REACH).take_while(touches).collect();
        around.reverse();
        around.extend(after.iter().take(REACH).take_while(touches));
        let is_product = |call: &&Call| family(call) == Some(Family::Gemm);
        let first = around.iter().position(is_product);
        let last = around.iter().rposition(is_product);
        let (Some(first), Some(last)) = (first, last) else { continue };
        let around = around.get(first..=last).unwrap_or_default().to_vec();
        let backward = call.name(graph).ends_with("_backward_data");
        let products = around.iter().copied().filter(is_product).count();
        let fused = around
            .first()
            .and_then(|first| fused(first.operator(graph)?, scores, backward, on_cpu));
        if let Some(fused) = fused.filter(|_| products >= if backward { 3 } else { 2 }) {
            found.push(Attention { calls: around, scores: size, fused });
        }
    }
    found
}

/// The one kernel, by the first product: queries by keys, or backward the output's gradient by values.
fn fused(product: &Operator, scores: &Tensor, backward: bool, on_cpu: bool) -> Option<Operator> {
    let place = usize::from(matches!(product.base_name(), Some("baddbmm")));
    let left = product.tensor(place)?;
    let width = *left.shape.last()?;
    let [batch @ .., queries, keys] = scores.shape.as_slice() else { return None };
    let tensor = |rows: u64| {
        let mut shape = vec![1, batch.iter().product(), rows, width];
        shape.retain(|size| *size > 0);
        Tensor { element: left.element.or(Some(ElementType::Float32)), shape, strides: None }
    };
    let (query, key) = (tensor(*queries), tensor(*keys));
    let arg = |tensor: &Tensor| Arg::Tensor(tensor.clone());
    let name = match (on_cpu, backward) {
        (true, false) => "aten::_scaled_dot_product_flash_attention_for_cpu",
        (true, true) => "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        (false, false) => "aten::_scaled_dot_product_efficient_attention",
        (false, true) => "aten::_scaled_dot_product_efficient_attention_backward",
    };
    let inputs = vec![arg(&query), arg(&key), arg(&key)];
    Some(if backward {
        let inputs = std::iter::once(arg(&query)).chain(inputs).collect();
        Operator::new(name, inputs, vec![query, key.clone(), key])
    } else {
        Operator::new(name, inputs, vec![query])
    })
}

impl Attention<'_> {
    /// `modelled` is by operator what each takes by the model, and `fused_ns` what the one kernel does.
    fn fuse(&self, graph: &mut Graph, modelled: &[f64], fused_ns: f64, bound: Bound) {
        let of_calls = self.calls.iter().filter_map(|call| modelled.get(call.operator as usize));
        let modelled: f64 = of_calls.sum();
        let now_ns: f64 = self.calls.iter().map(|call| call.work_ns(graph)).sum();
        let ratio = bound.within_factor(fused_ns / modelled.max(1e-9), SPREAD);
        let Some((first, others)) = self.calls.split_first() else { return };
        first.set_work_ns(graph, now_ns * ratio);
        if graph.operators.last() != Some(&self.fused) {
            graph.operators.push(self.fused.clone());
        }
        first.set_operator(graph, graph.operators.len() as u32 - 1);
        others.iter().for_each(|call| call.remove(graph));
    }
}

/// Frees the scores, and what is made of them: blocks of those calls that are as large.
fn free_scores(graph: &mut Graph, attentions: &[Attention<'_>]) {
    let scores: HashMap<u32, f64> = attentions
        .iter()
        .flat_map(|one| one.calls.iter().map(|call| (call.number, one.scores)))
        .collect();
    let holds = |bytes: f64, scores: f64| {
        let mut widths = [1.0, 2.0, 4.0].into_iter().map(|width| width * scores);
        widths.any(|size| (0.0..GRAIN).contains(&(bytes - size)))
    };
    graph.change_blocks(|block| {
        let kept = matches!(block.kind, BlockKind::Activations | BlockKind::Temporaries);
        let size = block.call.and_then(|call| scores.get(&call));
        if kept && size.is_some_and(|size| holds(block.bytes, *size)) {
            block.bytes = 0.0;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::shared::retyped::retyped;
    use super::super::shared::testing::{self, Iteration, cpu, gpu};
    use super::*;
    use crate::profile::Phase;
    use crate::whatif::facts::Probes;

    const ROWS: &[u64] = &[96, 1024, 64];
    const SCORES: &[u64] = &[96, 1024, 1024];

    fn operator(name: &str, shapes: &[&[u64]]) -> Operator {
        let operator = testing::operator(name, shapes);
        retyped(&operator, ElementType::Float32, ElementType::Float16)
    }

    fn written_out() -> Iteration {
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
    fn five_kernels_become_one_that_moves_less() {
        let device = gpu("8.0");
        let found = written_out().predict(&device, &Probes::default(), &FusedAttention).unwrap();
        assert!(found.time_ns.value < 0.8 * found.before_ns, "{found:?}");
        let graph = written_out().changed(&device, &FusedAttention);
        assert_eq!(graph.select(|task| !task.kind.is_host()).len(), 3);
        let again = Iteration::on_gpu();
        assert!(again.refusal(&device, &FusedAttention).contains("no shapes"));
    }

    #[test]
    fn a_softmax_alone_is_no_attention() {
        let softmax = operator("softmax", &[SCORES, SCORES]);
        let iteration = Iteration::on_cpu().call(Phase::Forward, softmax, 10.0);
        let why = "the model has no attention that is written out";
        assert_eq!(iteration.refusal(&cpu(), &FusedAttention), why);
    }
}
