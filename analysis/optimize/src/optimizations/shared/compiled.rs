//! The operators of a forward pass under `torch.compile`: convolutions in channels_last if the
//! compiler chooses it, and elementwise operators fused into few kernels.

use ridgeline_operators::op_cost::{self, Family};
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::operator::Operator;
use ridgeline_profile::Phase;

use super::fusion::{Fusion, fusions};
use super::layout;
use super::parts::{ConvolutionKind, ConvolutionTime, Machine, Part};

/// Returns the parts of a whole forward pass.
pub fn step(list: &OpList, machine: &Machine<'_>) -> Vec<Part> {
    let forward = list.ops.iter().filter(|op| op.phase == Phase::Forward);
    let operators: Vec<&Operator> = forward.filter_map(|op| list.operator(op)).collect();
    parts(&operators, machine).into_iter().flatten().collect()
}

/// Returns the parts of each operator, in order of execution. Empty for an operator without a cost.
pub fn parts(operators: &[&Operator], machine: &Machine<'_>) -> Vec<Vec<Part>> {
    let channels_last = layout::compiler_takes_channels_last(operators);
    let roles = fusions(operators);
    operators
        .iter()
        .zip(roles)
        .map(|(operator, role)| of(operator, role, channels_last, machine))
        .collect()
}

/// Returns the parts of one operator. `channels_last` is whether the compiler converts this model's
/// convolutions.
pub fn of(
    operator: &Operator,
    role: Fusion,
    channels_last: bool,
    machine: &Machine<'_>,
) -> Vec<Part> {
    if let Some(kind) = ConvolutionKind::of(operator) {
        return convolution(operator, kind, channels_last, machine);
    }
    let family = op_cost::work(operator).map_or(Family::Unknown, |work| work.family);
    let ns = machine.ns(operator);
    match role {
        _ if ns <= 0.0 => Vec::new(),
        Fusion::CastsWeight => vec![Part::same("cast_of_weight", ns)],
        Fusion::Opens => vec![Part::same(opening(family, operator), ns)],
        Fusion::Joins(extra_reads) => vec![
            Part::same(joining(family, operator), ns * (1.0 - extra_reads)),
            Part::same("read_besides", ns * extra_reads),
        ],
        Fusion::Apart => vec![Part::same(unfused_factor_name(family), ns)],
    }
}

fn convolution(
    operator: &Operator,
    kind: ConvolutionKind,
    channels_last: bool,
    machine: &Machine<'_>,
) -> Vec<Part> {
    let time = ConvolutionTime::of(operator, machine);
    let bias = Part::same("bias_of_convolution", time.bias_ns);
    let matmul_ns = time.matmul_ns();
    if time.is_channels_last {
        let name = if kind.is_depthwise() { "depthwise" } else { "already_channels_last" };
        return vec![Part::same(name, time.whole_ns - time.bias_ns), bias];
    }
    if kind.is_depthwise() {
        // Depthwise convolutions do not transpose: they use another kernel.
        let before_ns = time.whole_ns - time.bias_ns;
        let after_ns = if channels_last { time.channels_last_ns } else { before_ns };
        let name = if channels_last { depthwise_channels_last(kind) } else { "depthwise" };
        return vec![Part { kind: name, before_ns, after_ns }, bias];
    }
    let (name, turning) = match (channels_last, kind) {
        (true, ConvolutionKind::Pointwise) => ("pointwise.turned", "turning.saved"),
        (true, ConvolutionKind::Window) => ("window.turned", "turning.saved"),
        (true, ConvolutionKind::Stem) => ("stem.turned", "turning.saved_stem"),
        (true, _) => ("grouped.turned", "turning.saved_grouped"),
        (false, ConvolutionKind::Pointwise) => ("pointwise", "turning"),
        (false, ConvolutionKind::Stem) => ("stem", "turning"),
        (false, ConvolutionKind::Window) => ("window", "turning"),
        (false, _) => ("grouped", "turning"),
    };
    vec![Part::same(name, matmul_ns), Part::same(turning, time.turning_ns), bias]
}

fn depthwise_channels_last(kind: ConvolutionKind) -> &'static str {
    match kind {
        ConvolutionKind::Depthwise3 => "depthwise3.turned",
        ConvolutionKind::Depthwise5 => "depthwise5.turned",
        ConvolutionKind::Depthwise7 => "depthwise7.turned",
        _ => "depthwise_large.turned",
    }
}

fn opening(family: Family, operator: &Operator) -> &'static str {
    match family {
        Family::Norm if is_batch_norm(operator) => "opens.batch_norm",
        Family::Norm => "opens.norm",
        Family::Softmax => "opens.softmax",
        Family::Reduction => "opens.reduction",
        Family::Copy => "opens.copy",
        _ => "opens.elementwise",
    }
}

fn joining(family: Family, operator: &Operator) -> &'static str {
    match family {
        Family::Norm if is_batch_norm(operator) => "joins.batch_norm",
        Family::Norm => "joins.norm",
        Family::Softmax => "joins.softmax",
        Family::Reduction => "joins.reduction",
        Family::Copy => "joins.copy",
        _ => "joins.elementwise",
    }
}

fn unfused_factor_name(family: Family) -> &'static str {
    match family {
        Family::Gemm => "product",
        Family::Attention => "attention",
        Family::Pooling => "pooling",
        Family::Indexing | Family::Embedding => "indexing",
        _ => "other",
    }
}

fn is_batch_norm(operator: &Operator) -> bool {
    operator.base_name().is_some_and(|name| name.contains("batch_norm"))
}
