//! In which type `torch.autocast` runs each operator (`aten/src/ATen/autocast_mode.h` of PyTorch 2.15:
//! its lists of operators for a lower precision, for FP32, and those that promote), and which tensors
//! are of the lower type because of it.

use std::collections::HashMap;

use ridgeline_operators::operator::{ElementType, Operator, Tensor};
use ridgeline_profile::Phase;

/// What autocast does with an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
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

/// A tensor that was made: its type, and the call that made it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Made {
    /// Whether it is of the lower type.
    pub is_lower: bool,
    /// The call's number.
    pub call: Option<u32>,
}

/// A shape, by its number in [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Shape(u32);

/// An FP32 tensor that an operator takes and the lower type may reach. Its weights and single numbers
/// are none of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input {
    /// Its shape.
    pub shape: Shape,
    /// Its elements.
    pub elements: f64,
    /// Whether the operator takes another one of that shape, which was made later.
    is_earlier: bool,
}

/// The tensors of an operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tensors {
    /// The weights of FP32 that it takes.
    pub weights: Vec<Shape>,
    in_forward: Vec<Input>,
    in_backward: Vec<Input>,
    outputs: Vec<Shape>,
}

impl Tensors {
    /// What it takes besides its weights, which are none in the backward pass.
    pub(crate) fn inputs(&self, phase: Phase) -> &[Input] {
        match phase {
            Phase::Forward | Phase::Other => &self.in_forward,
            _ => &self.in_backward,
        }
    }
}

/// Which tensors are of the lower type. A recording does not say which tensor an operator takes, but
/// its shape does for most: of tensors of one shape an operator takes those that were made last.
#[derive(Debug, Default)]
pub(crate) struct Types {
    shapes: Vec<Vec<u64>>,
    numbers: HashMap<Vec<u64>, Shape>,
    /// By shape, the last one and the one before; nothing where none was made.
    made: Vec<Option<(Made, Made)>>,
}

impl Types {
    /// The tensors of an operator.
    pub(crate) fn tensors(&mut self, operator: &Operator) -> Tensors {
        let is_full = |tensor: &&Tensor| tensor.element == Some(ElementType::Float32);
        let own: Vec<&Tensor> = weights(operator).collect();
        let outputs = operator.outputs.iter().filter(|tensor| tensor.elements() > 1.0);
        Tensors {
            weights: own.iter().copied().filter(is_full).map(|it| self.number(&it.shape)).collect(),
            in_forward: self.inputs(operator, &own),
            in_backward: self.inputs(operator, &[]),
            outputs: outputs.map(|tensor| self.number(&tensor.shape)).collect(),
        }
    }

    fn inputs(&mut self, operator: &Operator, but: &[&Tensor]) -> Vec<Input> {
        let mut found: Vec<Input> = Vec::new();
        for tensor in operator.input_tensors() {
            let is_weight = but.iter().any(|weight| std::ptr::eq(*weight, tensor));
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
        self.made.push(None);
        number
    }

    /// The sizes of a shape.
    pub(crate) fn sizes(&self, shape: Shape) -> &[u64] {
        self.shapes.get(shape.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// What is known of a tensor that an operator takes.
    pub(crate) fn of(&self, input: &Input) -> Made {
        let found = self.made.get(input.shape.0 as usize).copied().flatten().unwrap_or_default();
        if input.is_earlier { found.1 } else { found.0 }
    }

    /// Notes what an operator makes.
    pub(crate) fn make(&mut self, tensors: &Tensors, is_lower: bool, call: u32) {
        let made = Made { is_lower, call: Some(call) };
        for shape in &tensors.outputs {
            if let Some(entry) = self.made.get_mut(shape.0 as usize) {
                *entry = Some((made, entry.unwrap_or_default().0));
            }
        }
    }

    /// Notes that the last tensor of a shape is of another type now.
    pub(crate) fn cast(&mut self, shape: Shape, is_lower: bool) {
        if let Some(Some((last, _))) = self.made.get_mut(shape.0 as usize) {
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
    fn what_no_operator_made_is_cast_for_each_that_takes_it() {
        let tensor = Tensor::new(ElementType::Float32, &[4, 8]);
        let product = Operator::new("aten::mm", vec![Arg::Tensor(tensor)], Vec::new());
        let mut types = Types::default();
        let tensors = types.tensors(&product);
        let input = tensors.inputs(Phase::Forward).first().expect("an input");
        types.cast(input.shape, true);
        assert!(!types.of(input).is_lower);
    }

    #[test]
    fn the_last_two_tensors_of_a_shape_are_what_a_sum_takes() {
        let tensor = || Tensor::new(ElementType::Float32, &[4, 8]);
        let made = |name: &str| Operator::new(name, Vec::new(), vec![tensor()]);
        let mut types = Types::default();
        for (name, is_lower, call) in [("aten::layer_norm", false, 1), ("aten::linear", true, 2)] {
            let tensors = types.tensors(&made(name));
            types.make(&tensors, is_lower, call);
        }
        let inputs = vec![Arg::Tensor(tensor()), Arg::Tensor(tensor())];
        let sum = Operator::new("aten::add", inputs, vec![tensor()]);
        let sum = types.tensors(&sum);
        let found = sum.inputs(Phase::Forward).iter().map(|input| types.of(input));
        let found: Vec<_> = found.map(|made| (made.is_lower, made.call)).collect();
        assert_eq!(found, [(true, Some(2)), (false, Some(1))]);
    }
}
