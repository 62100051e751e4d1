//! Elementwise operators: one kernel that reads its inputs and writes its output, vectorized where
//! all are contiguous (PyTorch's `vectorized_elementwise_kernel`).

use super::{Kernels, copy, largest_elements, stream};
use crate::operator::{Operator, Tensor};

/// Counts operations per element, right only in order of magnitude: these operators are
/// memory-bound.
pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let per_element = operations_per_element(in_place_base(name))?;
    operator.input_tensors().next()?;
    Some(per_element * output_elements(operator))
}

pub(super) fn launch(name: &str, operator: &Operator, bytes: f64, kernels: &mut Kernels) {
    let kind = match in_place_base(name) {
        "bernoulli" | "native_dropout" | "dropout" | "normal" | "uniform" | "rand" | "randn"
        | "rand_like" | "randn_like" | "random" | "exponential" => stream::Kind::Random,
        _ if reads_across_rows(operator) => stream::Kind::Transpose,
        _ if is_broadcast(operator) => stream::Kind::Broadcast,
        _ => stream::Kind::Elementwise,
    };
    kernels.stream(kind, bytes);
}

/// Returns `add` for `add_`. A name that is only `_` stays.
pub(super) fn in_place_base(name: &str) -> &str {
    name.strip_suffix('_').filter(|name| !name.is_empty()).unwrap_or(name)
}

fn output_elements(operator: &Operator) -> f64 {
    operator.outputs.first().map_or_else(|| largest_elements(operator), Tensor::elements)
}

/// Whether an input is smaller than the output. Its elements are then read by index, not as
/// vectors.
fn is_broadcast(operator: &Operator) -> bool {
    let output = output_elements(operator);
    let mut inputs = operator.input_tensors().map(Tensor::elements);
    inputs.any(|elements| elements > 1.0 && elements < output)
}

/// Whether all inputs are as large as the output and one has another memory layout, like the
/// relative position bias of a T5.
fn reads_across_rows(operator: &Operator) -> bool {
    let output = output_elements(operator);
    let mut tensors = operator.input_tensors().map(Tensor::elements);
    tensors.all(|elements| elements <= 1.0 || elements >= output) && copy::changes_layout(operator)
}

fn operations_per_element(name: &str) -> Option<f64> {
    Some(match name {
        "add"
        | "sub"
        | "rsub"
        | "mul"
        | "div"
        | "neg"
        | "abs"
        | "relu"
        | "relu6"
        | "threshold"
        | "clamp"
        | "clamp_min"
        | "clamp_max"
        | "maximum"
        | "minimum"
        | "fmax"
        | "fmin"
        | "eq"
        | "ne"
        | "lt"
        | "le"
        | "gt"
        | "ge"
        | "sqrt"
        | "rsqrt"
        | "reciprocal"
        | "sign"
        | "floor"
        | "ceil"
        | "round"
        | "trunc"
        | "frac"
        | "remainder"
        | "fmod"
        | "floor_divide"
        | "threshold_backward"
        | "bitwise_and"
        | "bitwise_or"
        | "bitwise_xor"
        | "bitwise_not"
        | "logical_and"
        | "logical_or"
        | "logical_not"
        | "logical_xor"
        | "leaky_relu"
        | "leaky_relu_backward"
        | "hardtanh"
        | "hardtanh_backward"
        | "square"
        | "isnan"
        | "isinf"
        | "isfinite"
        | "real"
        | "imag"
        | "conj"
        | "conj_physical"
        | "_conj"
        | "heaviside"
        | "__and__"
        | "__or__"
        | "__xor__"
        | "__lshift__"
        | "__rshift__"
        | "copysign" => 1.0,
        "lerp"
        | "addcmul"
        | "addcdiv"
        | "pow"
        | "hardswish"
        | "hardswish_backward"
        | "hardsigmoid"
        | "hardsigmoid_backward"
        | "prelu"
        | "_prelu_kernel"
        | "_prelu_kernel_backward"
        | "dist" => 3.0,
        "exp"
        | "expm1"
        | "exp2"
        | "log"
        | "log2"
        | "log10"
        | "sin"
        | "cos"
        | "tan"
        | "asin"
        | "acos"
        | "atan"
        | "atan2"
        | "sinh"
        | "cosh"
        | "tanh"
        | "sigmoid"
        | "erf"
        | "erfc"
        | "erfinv"
        | "log1p"
        | "log_sigmoid_forward"
        | "log_sigmoid_backward"
        | "tanh_backward"
        | "sigmoid_backward"
        | "silu"
        | "silu_backward"
        | "mish"
        | "mish_backward"
        | "softplus"
        | "softplus_backward"
        | "elu"
        | "elu_backward"
        | "celu"
        | "selu"
        | "logit"
        | "xlogy"
        | "logaddexp"
        | "glu"
        | "glu_backward"
        | "digamma"
        | "lgamma"
        | "polar"
        | "angle" => 4.0,
        "gelu" | "gelu_backward" => 8.0,
        // A recurrent cell, after its matrix multiplications.
        "_thnn_fused_lstm_cell"
        | "_thnn_fused_lstm_cell_backward_impl"
        | "_thnn_fused_gru_cell"
        | "_thnn_fused_gru_cell_backward" => 24.0,
        "dropout"
        | "native_dropout"
        | "native_dropout_backward"
        | "bernoulli"
        | "normal"
        | "uniform"
        | "rand"
        | "randn"
        | "rand_like"
        | "randn_like"
        | "random"
        | "exponential" => 2.0,
        _ => return None,
    })
}
