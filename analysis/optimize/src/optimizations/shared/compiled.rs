//! The operators of a forward pass under `torch.compile`: convolutions with channels last where the
//! compiler chooses that, and what works on each element fused into few kernels.

use ridgeline_operators::op_cost::{self, Family};
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::operator::Operator;
use ridgeline_profile::Phase;

use super::fusion::{Fusion, fusions};
use super::layout;
use super::parts::{ConvolutionKind, ConvolutionTime, Machine, Part};

/// The parts of a whole forward pass.
pub fn step(list: &OpList, machine: &Machine<'_>) -> Vec<Part> {
    let forward = list.ops.iter().filter(|op| op.phase == Phase::Forward);
    let operators: Vec<&Operator> = forward.filter_map(|op| list.operator(op)).collect();
    parts(&operators, machine).into_iter().flatten().collect()
}

/// The parts of each operator, in the order in which they run. An operator without a cost has none.
pub fn parts(operators: &[&Operator], machine: &Machine<'_>) -> Vec<Vec<Part>> {
    let turned = layout::compiler_takes_channels_last(operators);
    let roles = fusions(operators);
    operators
        .iter()
        .zip(roles)
        .map(|(operator, role)| of(operator, role, turned, machine))
        .collect()
}

/// The parts of one operator. `turned` is whether the compiler turns this model's convolutions around.
pub fn of(operator: &Operator, role: Fusion, turned: bool, machine: &Machine<'_>) -> Vec<Part> {
    if let Some(kind) = ConvolutionKind::of(operator) {
        return convolution(operator, kind, turned, machine);
    }
    let family = op_cost::work(operator).map_or(Family::Unknown, |work| work.family);
    let ns = machine.ns(operator);
    match role {
        _ if ns <= 0.0 => Vec::new(),
        Fusion::CastsWeight => vec![Part::same("cast_of_weight", ns)],
        Fusion::Opens => vec![Part::same(opening(family, operator), ns)],
        Fusion::Joins(besides) => vec![
            Part::same(joining(family, operator), ns * (1.0 - besides)),
            Part::same("read_besides", ns * besides),
        ],
        Fusion::Apart => vec![Part::same(apart(family), ns)],
    }
}

fn convolution(
    operator: &Operator,
    kind: ConvolutionKind,
    turned: bool,
    machine: &Machine<'_>,
) -> Vec<Part> {
    let time = ConvolutionTime::of(operator, machine);
    let bias = Part::same("bias_of_convolution", time.bias_ns);
    let product = time.product_ns();
    if time.is_channels_last {
        let name = if kind.is_depthwise() { "depthwise" } else { "already_channels_last" };
        return vec![Part::same(name, time.whole_ns - time.bias_ns), bias];
    }
    if kind.is_depthwise() {
        // The turning of a depthwise convolution is another kernel altogether.
        let before_ns = time.whole_ns - time.bias_ns;
        let after_ns = if turned { time.channels_last_ns } else { before_ns };
        let name = if turned { turned_depthwise(kind) } else { "depthwise" };
        return vec![Part { kind: name, before_ns, after_ns }, bias];
    }
    let (name, turning) = match (turned, kind) {
        (true, ConvolutionKind::Pointwise) => ("pointwise.turned", "turning.saved"),
        (true, ConvolutionKind::Window) => ("window.turned", "turning.saved"),
        (true, ConvolutionKind::Stem) => ("stem.turned", "turning.saved_stem"),
        (true, _) => ("grouped.turned", "turning.saved_grouped"),
        (false, ConvolutionKind::Pointwise) => ("pointwise", "turning"),
        (false, ConvolutionKind::Stem) => ("stem", "turning"),
        (false, ConvolutionKind::Window) => ("window", "turning"),
        (false, _) => ("grouped", "turning"),
    };
    vec![Part::same(name, product), Part::same(turning, time.turning_ns), bias]
}

fn turned_depthwise(kind: ConvolutionKind) -> &'static str {
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

fn apart(family: Family) -> &'static str {
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
