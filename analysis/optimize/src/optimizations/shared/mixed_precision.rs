//! A training step in FP32 compared with the same step in FP16 mixed precision.

use ridgeline_operators::op_cost::{self, Family};
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::operator::Operator;
use ridgeline_operators::step_cost::counts;
use ridgeline_profile::Phase;

use super::parts::{Machine, Part};

/// Returns the parts of both steps. `samples` is the factor on the samples of the step `after`; the
/// result refers to the samples of `before`.
pub fn parts(before: &OpList, after: &OpList, samples: f64, machine: &Machine<'_>) -> Vec<Part> {
    let before_parts =
        steps(before, machine).map(|(kind, ns)| Part { kind, before_ns: ns, after_ns: 0.0 });
    let after_parts = steps(after, machine).map(|(kind, ns)| Part {
        kind,
        before_ns: 0.0,
        after_ns: ns / samples,
    });
    before_parts.chain(after_parts).collect()
}

fn steps(list: &OpList, machine: &Machine<'_>) -> impl Iterator<Item = (&'static str, f64)> {
    let has_tf32 = machine.device.capability() >= Some((8, 0));
    let phases = [Phase::Forward, Phase::Backward, Phase::Optimizer];
    counts(list, &phases).into_iter().filter_map(move |(signature, count)| {
        let operator = list.signatures.get(signature as usize)?;
        Some((kind(operator, has_tf32), count * machine.ns(operator)))
    })
}

/// Returns the kind of an operator. Matrix multiplications before the change run in FP32, or in
/// TF32 if the GPU supports it, and the error of the cost model differs.
pub fn kind(operator: &Operator, has_tf32: bool) -> &'static str {
    let family = op_cost::work(operator).map_or(Family::Unknown, |work| work.family);
    match (family, has_tf32) {
        (Family::Gemm, false) => "product.from_fp32",
        (Family::Gemm, true) => "product.from_tf32",
        (Family::Convolution, false) => "convolution.from_fp32",
        (Family::Convolution, true) => "convolution.from_tf32",
        (Family::Embedding | Family::Indexing, _) => "lookup",
        (Family::Norm | Family::Softmax | Family::Pooling, _) => "norm",
        _ => "elementwise",
    }
}
