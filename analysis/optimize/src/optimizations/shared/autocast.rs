//! The type in which `torch.autocast` runs each operator (`aten/src/ATen/autocast_mode.h` of
//! PyTorch 2.15: its lists of operators for lower precision, for FP32, and for promotion), and the
//! tensors that get the lower type.

use std::collections::HashMap;

use ridgeline_operators::operator::{ElementType, Operator, Tensor};
use ridgeline_profile::Phase;

/// How autocast treats an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Runs in the lower type; its tensors are cast to it.
    Lower,
    /// Runs in FP32; its tensors are cast to it.
    Full,
    /// Runs in FP32; the operator casts within its own kernel.
    FullWithin,
    /// Runs in the widest type of its tensors.
    Widest,
}

/// Returns the rule for an operator, by its name without namespace and overload.
pub(crate) fn rule(name: &str, on_gpu: bool) -> Rule {
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
        // On a CPU, autocast's FP32 list has only losses and a few others.
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
        // Losses. Their gradients run in the same type.
        name if name.contains("_loss") || name.contains("binary_cross_entropy") => Rule::Full,
        name if name.contains("kl_div") => Rule::Full,
        _ => Rule::Widest,
    }
}

/// Returns an operator's weights. Autocast casts each weight once per iteration and caches it.
pub(crate) fn weights(operator: &Operator) -> impl Iterator<Item = &Tensor> {
    let places: &[usize] = match operator.base_name().unwrap_or_default() {
        "linear" | "conv1d" | "conv2d" | "conv3d" | "conv_transpose1d" | "conv_transpose2d"
        | "conv_transpose3d" | "convolution" | "_convolution" | "cudnn_convolution"
        | "mkldnn_convolution" => &[1, 2],
        "addmm" => &[0, 2],
        _ => &[],
    };
    places.iter().filter_map(|index| operator.tensor(*index))
}

/// An output tensor: its type, and the call that produced it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutputTensor {
    /// Whether it has the lower type.
    pub is_lower: bool,
    /// Number of the call.
    pub call: Option<u32>,
}

/// A shape, as an index into [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Shape(u32);

/// An FP32 input that may get the lower type. Weights and scalars are excluded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input {
    /// Shape of the tensor.
    pub shape: Shape,
    /// Number of elements.
    pub elements: f64,
    /// Whether the operator also takes a more recent tensor of this shape.
    is_earlier: bool,
}

/// The tensors of an operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tensors {
    /// The FP32 weights that it takes.
    pub weights: Vec<Shape>,
    in_forward: Vec<Input>,
    in_backward: Vec<Input>,
    outputs: Vec<Shape>,
}

impl Tensors {
    /// Returns its inputs without weights. In the backward pass, weights count as inputs.
    pub(crate) fn inputs(&self, phase: Phase) -> &[Input] {
        match phase {
            Phase::Forward | Phase::Other => &self.in_forward,
            _ => &self.in_backward,
        }
    }
}

/// Tracks which tensors have the lower type. A recording does not show which tensor an operator
/// takes, but shapes identify most: of several tensors with one shape, an operator takes the most
/// recent ones.
#[derive(Debug, Default)]
pub(crate) struct Types {
    shapes: Vec<Vec<u64>>,
    numbers: HashMap<Vec<u64>, Shape>,
    /// By shape, the last two tensors. `None` if there is none.
    produced: Vec<Option<(OutputTensor, OutputTensor)>>,
}

impl Types {
    /// Returns the tensors of an operator.
    pub(crate) fn tensors(&mut self, operator: &Operator) -> Tensors {
        let is_full = |tensor: &&Tensor| tensor.element == Some(ElementType::Float32);
        let weights: Vec<&Tensor> = weights(operator).collect();
        let outputs = operator.outputs.iter().filter(|tensor| tensor.elements() > 1.0);
        Tensors {
            weights: weights
                .iter()
                .copied()
                .filter(is_full)
                .map(|it| self.number(&it.shape))
                .collect(),
            in_forward: self.inputs(operator, &weights),
            in_backward: self.inputs(operator, &[]),
            outputs: outputs.map(|tensor| self.number(&tensor.shape)).collect(),
        }
    }

    fn inputs(&mut self, operator: &Operator, weights: &[&Tensor]) -> Vec<Input> {
        let mut found: Vec<Input> = Vec::new();
        for tensor in operator.input_tensors() {
            let is_weight = weights.iter().any(|weight| std::ptr::eq(*weight, tensor));
            let is_full = tensor.element == Some(ElementType::Float32);
            let elements = tensor.elements();
            if is_weight || !is_full || elements <= 1.0 {
                continue;
            }
            let shape = self.number(&tensor.shape);
            let is_earlier = found.iter().any(|input| input.shape == shape);
            found.push(Input { shape, elements, is_earlier });
        }
        found
    }

    fn number(&mut self, shape: &[u64]) -> Shape {
        if let Some(known) = self.numbers.get(shape) {
            return *known;
        }
        let number = Shape(self.shapes.len() as u32);
        self.shapes.push(shape.to_vec());
        self.numbers.insert(shape.to_vec(), number);
        self.produced.push(None);
        number
    }

    /// Returns the sizes of a shape.
    pub(crate) fn sizes(&self, shape: Shape) -> &[u64] {
        self.shapes.get(shape.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// Returns the tensor that an operator takes as an input.
    pub(crate) fn of(&self, input: &Input) -> OutputTensor {
        let found =
            self.produced.get(input.shape.0 as usize).copied().flatten().unwrap_or_default();
        if input.is_earlier { found.1 } else { found.0 }
    }

    /// Records the outputs of an operator.
    pub(crate) fn record_outputs(&mut self, tensors: &Tensors, is_lower: bool, call: u32) {
        let produced = OutputTensor { is_lower, call: Some(call) };
        for shape in &tensors.outputs {
            if let Some(entry) = self.produced.get_mut(shape.0 as usize) {
                *entry = Some((produced, entry.unwrap_or_default().0));
            }
        }
    }

    /// Records a cast of the last tensor of a shape.
    pub(crate) fn cast(&mut self, shape: Shape, is_lower: bool) {
        if let Some(Some((last, _))) = self.produced.get_mut(shape.0 as usize) {
            last.is_lower = is_lower;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_operators::operator::Arg;

    #[track_caller]
    fn check(name: &str, on_gpu: Rule, on_cpu: Rule) {
        assert_eq!((rule(name, true), rule(name, false)), (on_gpu, on_cpu), "{name}");
    }

    #[test]
    fn rules_match_the_lists_of_autocast() {
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
    fn tensors_without_a_producer_are_cast_for_each_use() {
        let tensor = Tensor::new(ElementType::Float32, &[4, 8]);
        let matmul = Operator::new("aten::mm", vec![Arg::Tensor(tensor)], Vec::new());
        let mut types = Types::default();
        let tensors = types.tensors(&matmul);
        let input = tensors.inputs(Phase::Forward).first().expect("an input");
        types.cast(input.shape, true);
        assert!(!types.of(input).is_lower);
    }

    #[test]
    fn an_addition_takes_the_last_two_tensors_of_a_shape() {
        let tensor = || Tensor::new(ElementType::Float32, &[4, 8]);
        let produced = |name: &str| Operator::new(name, Vec::new(), vec![tensor()]);
        let mut types = Types::default();
        for (name, is_lower, call) in [("aten::layer_norm", false, 1), ("aten::linear", true, 2)] {
            let tensors = types.tensors(&produced(name));
            types.record_outputs(&tensors, is_lower, call);
        }
        let inputs = vec![Arg::Tensor(tensor()), Arg::Tensor(tensor())];
        let sum = Operator::new("aten::add", inputs, vec![tensor()]);
        let sum = types.tensors(&sum);
        let found = sum.inputs(Phase::Forward).iter().map(|input| types.of(input));
        let found: Vec<_> = found.map(|produced| (produced.is_lower, produced.call)).collect();
        assert_eq!(found, [(true, Some(2)), (false, Some(1))]);
    }
}
