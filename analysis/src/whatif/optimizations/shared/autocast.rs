//! In which type `torch.autocast` runs each operator (`aten/src/ATen/autocast_mode.h` of PyTorch 2.15:
//! its lists of operators for a lower precision, for FP32, and those that promote), and which tensors
//! are of the lower type because of it.

use std::collections::HashMap;

use crate::predict::operator::{ElementType, Operator, Tensor};
use crate::profile::Phase;

/// What autocast does with an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It runs in the lower type, and its tensors are cast to that.
    Lower,
    /// It runs in FP32, and its tensors are cast to that.
    Full,
    /// The same, but the operator casts within its own kernel.
    FullWithin,
    /// It runs in the widest type of its tensors.
    Widest,
}

/// The rule for an operator, by its name without namespace and overload.
pub fn rule(name: &str, on_gpu: bool) -> Rule {
    let forward = name
        .trim_end_matches("_backward_data")
        .trim_end_matches("_backward")
        .trim_start_matches("_fused_")
        .trim_start_matches("native_")
        .trim_start_matches('_');
    match forward {
        "convolution"
        | "conv1d"
        | "conv2d"
        | "conv3d"
        | "conv_tbc"
        | "conv_transpose1d"
        | "conv_transpose2d"
        | "conv_transpose3d"
        | "cudnn_convolution"
        | "mkldnn_convolution"
        | "convolution_overrideable"
        | "prelu"
        | "addmm"
        | "addmv"
        | "addr"
        | "matmul"
        | "einsum"
        | "mm"
        | "mv"
        | "linalg_vecdot"
        | "linear"
        | "addbmm"
        | "baddbmm"
        | "bmm"
        | "chain_matmul"
        | "linalg_multi_dot"
        | "addmm_activation"
        | "lstm_cell"
        | "gru_cell"
        | "rnn_tanh_cell"
        | "rnn_relu_cell"
        | "cudnn_rnn"
        | "miopen_rnn"
        | "mkldnn_rnn_layer" => Rule::Lower,
        name if name.contains("scaled_dot_product") => Rule::Lower,
        // On a processor autocast's list for FP32 holds losses and few others.
        "softmax" | "log_softmax" | "layer_norm" | "group_norm" | "rms_norm" | "exp" | "sum"
        | "linalg_vector_norm" | "cumsum" | "pow" | "rsqrt" | "reciprocal" | "log" | "softplus"
            if !on_gpu =>
        {
            Rule::Widest
        }
        "softmax" | "log_softmax" | "cumsum" | "cumprod" | "prod" | "sum"
        | "linalg_vector_norm" | "linalg_matrix_norm" | "norm" => Rule::FullWithin,
        "acos" | "asin" | "cosh" | "erfinv" | "exp" | "expm1" | "log" | "log10" | "log2"
        | "log1p" | "reciprocal" | "rsqrt" | "sinh" | "tan" | "pow" | "softplus" | "layer_norm"
        | "rms_norm" | "group_norm" | "cosine_similarity" | "dist" | "cdist" | "renorm"
        | "logsumexp" => Rule::Full,
        name if name.starts_with("upsample_") => Rule::Full,
        // Losses, whose gradients run in the type that they did.
        name if name.contains("_loss") || name.contains("binary_cross_entropy") => Rule::Full,
        name if name.contains("kl_div") => Rule::Full,
        _ => Rule::Widest,
    }
}

/// The weights that an operator takes: autocast casts each once an iteration, and keeps that.
pub fn weights(operator: &Operator) -> impl Iterator<Item = &Tensor> {
    let places: &[usize] = match operator.base_name().unwrap_or_default() {
        "linear" | "conv1d" | "conv2d" | "conv3d" | "conv_transpose1d" | "conv_transpose2d"
        | "conv_transpose3d" | "convolution" | "_convolution" | "cudnn_convolution"
        | "mkldnn_convolution" => &[1, 2],
        "addmm" => &[0, 2],
        _ => &[],
    };
    places.iter().filter_map(|index| operator.tensor(*index))
}

/// A tensor that was made: its type, and the call that made it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Made {
    /// Whether it is of the lower type.
    pub is_lower: bool,
    /// The call's number.
    pub call: Option<u32>,
}

/// Which tensors are of the lower type. A recording does not say which tensor an operator takes, but
/// its shape does for most: of tensors of one shape an operator takes those that were made last.
#[derive(Debug, Default)]
pub struct Types {
    /// By shape, the last one and the one before.
    made: HashMap<Vec<u64>, (Made, Made)>,
}

impl Types {
    /// The tensor of a shape that was made last; `earlier` asks for the one before.
    pub fn last(&self, shape: &[u64], earlier: bool) -> Made {
        let found = self.made.get(shape).copied().unwrap_or_default();
        if earlier { found.1 } else { found.0 }
    }

    /// The FP32 tensors that an operator takes and the lower type may reach, each with what is known
    /// of it. Its weights and single numbers are none of them.
    pub fn of_inputs<'a>(&self, operator: &'a Operator, phase: Phase) -> Vec<(&'a Tensor, Made)> {
        let weights: Vec<&Tensor> = match phase {
            Phase::Forward | Phase::Other => weights(operator).collect(),
            _ => Vec::new(),
        };
        let mut seen: Vec<&[u64]> = Vec::new();
        let mut found = Vec::new();
        for tensor in operator.input_tensors() {
            let is_weight = weights.iter().any(|weight| std::ptr::eq(*weight, tensor));
            let is_full = tensor.element == Some(ElementType::Float32);
            if is_weight || !is_full || tensor.elements() <= 1.0 {
                continue;
            }
            let earlier = seen.contains(&tensor.shape.as_slice());
            found.push((tensor, self.last(&tensor.shape, earlier)));
            seen.push(&tensor.shape);
        }
        found
    }

    /// Notes what an operator makes.
    pub fn make(&mut self, operator: &Operator, is_lower: bool, call: u32) {
        let made = Made { is_lower, call: Some(call) };
        for tensor in operator.outputs.iter().filter(|tensor| tensor.elements() > 1.0) {
            let entry = self.made.entry(tensor.shape.clone()).or_default();
            *entry = (made, entry.0);
        }
    }

    /// Notes that the last tensor of a shape is of another type now.
    pub fn cast(&mut self, shape: &[u64], is_lower: bool) {
        if let Some((last, _)) = self.made.get_mut(shape) {
            last.is_lower = is_lower;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::operator::Arg;

    #[track_caller]
    fn check(name: &str, on_gpu: Rule, on_cpu: Rule) {
        assert_eq!((rule(name, true), rule(name, false)), (on_gpu, on_cpu), "{name}");
    }

    #[test]
    fn the_lists_of_autocast() {
        check("linear", Rule::Lower, Rule::Lower);
        check("convolution_backward", Rule::Lower, Rule::Lower);
        check("_scaled_dot_product_efficient_attention_backward", Rule::Lower, Rule::Lower);
        check("native_layer_norm_backward", Rule::Full, Rule::Widest);
        check("_log_softmax_backward_data", Rule::FullWithin, Rule::Widest);
        check("nll_loss_forward", Rule::Full, Rule::Full);
        check("cross_entropy_loss", Rule::Full, Rule::Full);
        check("native_batch_norm", Rule::Widest, Rule::Widest);
        check("gelu", Rule::Widest, Rule::Widest);
        check("add_", Rule::Widest, Rule::Widest);
    }

    #[test]
    fn the_last_two_tensors_of_a_shape_are_what_a_sum_takes() {
        let tensor = || Tensor::new(ElementType::Float32, &[4, 8]);
        let made = |name: &str| Operator::new(name, Vec::new(), vec![tensor()]);
        let mut types = Types::default();
        types.make(&made("aten::layer_norm"), false, 1);
        types.make(&made("aten::linear"), true, 2);
        let inputs = vec![Arg::Tensor(tensor()), Arg::Tensor(tensor())];
        let sum = Operator::new("aten::add", inputs, vec![tensor()]);
        let found = types.of_inputs(&sum, Phase::Forward);
        let types: Vec<_> = found.iter().map(|(_, made)| (made.is_lower, made.call)).collect();
        assert_eq!(types, [(true, Some(2)), (false, Some(1))]);
    }
}
