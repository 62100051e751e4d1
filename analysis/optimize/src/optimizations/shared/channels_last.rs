//! The operators of a training step with images and weights in channels_last.

use ridgeline_operators::op_cost::{self, Family};
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::operator::{Operator, Tensor};
use ridgeline_operators::step_cost::counts;
use ridgeline_profile::Phase;

use super::layout;
use super::parts::{ConvolutionKind, ConvolutionTime, Machine, Part};

/// Returns the parts of a whole step.
pub fn step(list: &OpList, machine: &Machine<'_>) -> Vec<Part> {
    let counts = counts(list, &[Phase::Forward, Phase::Backward, Phase::Optimizer]);
    let operators = counts
        .into_iter()
        .filter_map(|(signature, count)| Some((list.signatures.get(signature as usize)?, count)));
    operators
        .flat_map(|(operator, count)| {
            parts(operator, machine).into_iter().map(move |part| part.times(count))
        })
        .collect()
}

/// Returns the parts of one operator. Empty if it has no cost.
pub fn parts(operator: &Operator, machine: &Machine<'_>) -> Vec<Part> {
    if let Some(kind) = ConvolutionKind::of(operator) {
        return convolution(operator, kind, machine);
    }
    let family = op_cost::work(operator).map_or(Family::Unknown, |work| work.family);
    let before_ns = machine.ns(operator);
    if before_ns <= 0.0 {
        return Vec::new();
    }
    let backward = operator.base_name().is_some_and(|name| name.contains("backward"));
    let mut tensors = operator.input_tensors().chain(&operator.outputs);
    if tensors.any(Tensor::is_channels_last) {
        return vec![Part { kind: "already_channels_last", before_ns, after_ns: before_ns }];
    }
    let is_image = operator.input_tensors().any(|tensor| tensor.shape.len() == 4);
    if !is_image {
        return vec![Part { kind: "no_image", before_ns, after_ns: before_ns }];
    }
    let kind = match (family, backward) {
        (Family::Norm, false) => "norm",
        (Family::Norm, true) => "norm.backward",
        (Family::Pooling, false) => "pooling",
        (Family::Pooling, true) => "pooling.backward",
        (Family::Reduction, _) => "reduction",
        (Family::Copy, _) if is_transpose(operator) => "copy.turns",
        (Family::Copy, _) => "copy",
        (Family::Elementwise, _) => "elementwise",
        (Family::Gemm, _) => "product",
        _ => "other",
    };
    let after_ns = match family {
        Family::Norm | Family::Pooling => machine.ns(&layout::channels_last(operator)),
        _ => before_ns,
    };
    vec![Part { kind, before_ns, after_ns }]
}

/// Whether a copy transposes a tensor, which channels_last may avoid: models that normalize the
/// channels of each position transpose around their norms.
fn is_transpose(operator: &Operator) -> bool {
    operator.input_tensors().any(|tensor| tensor.strides.is_some())
}

fn convolution(operator: &Operator, kind: ConvolutionKind, machine: &Machine<'_>) -> Vec<Part> {
    let time = ConvolutionTime::of(operator, machine);
    if time.is_channels_last {
        return vec![Part::same("already_channels_last", time.whole_ns)];
    }
    let backward = operator.base_name() == Some("convolution_backward");
    let by_pass = |forward, other| if backward { other } else { forward };
    let name = match kind {
        ConvolutionKind::Pointwise => by_pass("pointwise", "pointwise.backward"),
        ConvolutionKind::Window => by_pass("window", "window.backward"),
        ConvolutionKind::Stem => by_pass("stem", "stem.backward"),
        ConvolutionKind::Groups8 => by_pass("groups8", "groups8.backward"),
        ConvolutionKind::Groups32 => by_pass("groups32", "groups32.backward"),
        ConvolutionKind::WideGroups => by_pass("wide_groups", "wide_groups.backward"),
        ConvolutionKind::Depthwise3 => by_pass("depthwise3", "depthwise3.backward"),
        ConvolutionKind::Depthwise5 => by_pass("depthwise5", "depthwise5.backward"),
        ConvolutionKind::Depthwise7 => by_pass("depthwise7", "depthwise7.backward"),
        ConvolutionKind::DepthwiseLarge => by_pass("depthwise_large", "depthwise_large.backward"),
    };
    if kind.is_depthwise() {
        // Depthwise convolutions do not transpose: they use another kernel.
        let before_ns = time.whole_ns - time.bias_ns;
        return vec![
            Part { kind: name, before_ns, after_ns: time.channels_last_ns },
            Part::same("bias", time.bias_ns),
        ];
    }
    let transpose = by_pass("turning", "turning.backward");
    vec![
        Part { kind: name, before_ns: time.matmul_ns().max(0.0), after_ns: time.channels_last_ns },
        Part::same(transpose, time.turning_ns),
        Part::same("bias", time.bias_ns),
    ]
}
