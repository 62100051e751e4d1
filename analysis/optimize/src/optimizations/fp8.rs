//! Linear layers in FP8: inputs, weights and gradients are scaled and cast to 8 bits before each
//! matrix multiplication (NVIDIA Transformer Engine, "Using FP8"). Operators in between stay as
//! they are.

use super::shared::exchange::exchange;
use super::shared::insert::{AddedOperator, Inserter};
use super::shared::lines;
use super::shared::overhead;
use super::shared::retyped::cast;
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use ridgeline_graph::calls::{calls, has_kernels};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::operator::{ElementType, Operator};
use ridgeline_operators::retyped::each_tensor;

/// Dimensions have to be multiples of this (Transformer Engine, "FP8 inputs").
const MULTIPLE: u64 = 16;

pub(super) struct Fp8;

impl Optimization for Fp8 {
    fn name(&self) -> &'static str {
        "fp8"
    }

    fn title(&self) -> &'static str {
        "FP8 linear layers (Transformer Engine)"
    }

    fn source(&self) -> &'static str {
        "NVIDIA Transformer Engine, \"Using FP8 with Transformer Engine\""
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let is_old = facts.device.capability().is_some_and(|capability| capability < (8, 9));
        if !has_kernels(graph) || is_old || facts.device.peaks.fp8.is_none() {
            return Err("this device does not support FP8".to_owned());
        }
        let calls = calls(graph);
        if calls.is_empty() {
            return Err("the recording has no operator shapes".to_owned());
        }
        let machine_factor = overhead::machine_factor(graph, facts, &calls);
        let host_ns = overhead::launch_ns(graph);
        let before = graph.operators.clone();
        let changed = exchange(graph, &calls, |_, operator| {
            let converted = is_layer(operator).then(|| in_fp8(operator))?;
            let ratio = bound.of(facts.modelled_ratio(operator, &converted));
            Some((converted, ratio))
        });
        if changed.is_empty() {
            return Err(format!("no linear layer has dimensions that are multiples of {MULTIPLE}"));
        }
        // The inputs of each matrix multiplication are cast by separate kernels.
        let mut inserter = Inserter::new(graph);
        for call in &changed {
            let inputs = before.get(call.operator as usize).into_iter().flat_map(matrices);
            let casts: Vec<Operator> = inputs
                .filter_map(|input| Some(cast(&input.shape, input.element?, ElementType::Float8)))
                .collect();
            for operator in casts {
                let work_ns = overhead::work_ns(facts, &operator, machine_factor);
                graph.operators.push(operator);
                let operator = graph.operators.len() as u32 - 1;
                inserter.before(graph, call, AddedOperator { operator, work_ns, host_ns });
            }
        }
        let notes = vec![
            "FP8 has 3 bits of precision: monitor the loss".to_owned(),
            "layers must be Transformer Engine layers".to_owned(),
        ];
        Ok(Effect { lines: lines::of_calls(graph, changed), notes, ..Effect::default() })
    }

    fn why_no_edit(&self) -> &'static str {
        "no automatic edit: it needs another package (convert_to_float8_training of torchao, or Transformer Engine), \
        a compiled model, and a GPU of compute capability 8.9 or higher"
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !["amp-bf16", "amp-fp16", "tf32", "fp8", "pad-dimensions"].contains(&other.name())
    }
}

/// Returns the two operands of a matrix multiplication, without a bias.
fn matrices(operator: &Operator) -> impl Iterator<Item = &ridgeline_operators::operator::Tensor> {
    let first = usize::from(operator.base_name() == Some("addmm"));
    [operator.tensor(first), operator.tensor(first + 1)].into_iter().flatten()
}

/// Whether a matrix multiplication belongs to a linear layer with dimensions that FP8 supports.
fn is_layer(operator: &Operator) -> bool {
    let is_linear = matches!(operator.base_name(), Some("linear" | "addmm" | "mm"));
    let is_floating = |element: Option<ElementType>| {
        matches!(element, Some(ElementType::Float32 | ElementType::Float16 | ElementType::BFloat16))
    };
    is_linear
        && matrices(operator).count() == 2
        && matrices(operator).all(|matrix| {
            let last = matrix.shape.last().copied().unwrap_or(0);
            let rows = matrix.elements() / (last.max(1) as f64);
            let fits = last > 0 && last % MULTIPLE == 0 && rows % MULTIPLE as f64 == 0.0;
            fits && is_floating(matrix.element)
        })
}

fn in_fp8(operator: &Operator) -> Operator {
    let outputs = operator.outputs.clone();
    let converted = each_tensor(operator, &|tensor| tensor.element = Some(ElementType::Float8));
    Operator { outputs, ..converted }
}

#[cfg(test)]
mod tests {
    use super::super::shared::testing::{Iteration, gpu, operator};
    use super::*;
    use crate::facts::Probes;
    use ridgeline_profile::Phase;

    fn layer(width: u64) -> Iteration {
        let layer = operator("linear", &[&[8192, width], &[4096, width], &[8192, 4096]]);
        Iteration::on_gpu().call(Phase::Forward, layer, 10_000.0)
    }

    #[test]
    fn matrix_multiplications_are_faster_and_casts_are_added() {
        let found = layer(4096).predict(&gpu("9.0"), &Probes::default(), &Fp8).unwrap();
        assert!(found.time_ns.value < 0.3 * found.before_ns, "{found:?}");
        let graph = layer(4096).changed(&gpu("9.0"), &Fp8);
        assert_eq!(graph.select(|task| !task.kind.is_host()).len(), 3);
    }

    #[test]
    fn reasons_for_not_applying() {
        assert_eq!(layer(4096).refusal(&gpu("8.0"), &Fp8), "this device does not support FP8");
        let why = "no linear layer has dimensions that are multiples of 16";
        assert_eq!(layer(4100).refusal(&gpu("9.0"), &Fp8), why);
    }
}
