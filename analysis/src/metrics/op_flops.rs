//! How many floating-point operations an operator needs, and how many bytes it has to move at the
//! least, from the shapes and types that the profiler recorded.
//!
//! Matrix products, convolutions and attention count as PyTorch's own counter does
//! (`torch.utils.flop_counter`): a multiplication and an addition are two operations, and a causal
//! mask takes nothing off. Other operators count a small number per element, which is honest about
//! the order of magnitude alone; their time is that of their bytes. Bytes are those of every input
//! once and of the output once, which is what a perfect cache would leave.
//!
//! An operator that is not known here has no numbers rather than guessed ones.

use serde_json::Value;

/// What one call of an operator takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OpWork {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes that have to move at the least; nothing where a type is not known.
    pub bytes: Option<f64>,
}

impl OpWork {
    /// No work at all.
    pub fn zero() -> OpWork {
        OpWork { flops: 0.0, bytes: Some(0.0) }
    }

    /// The work of both.
    pub fn plus(self, other: OpWork) -> OpWork {
        OpWork {
            flops: self.flops + other.flops,
            bytes: self.bytes.zip(other.bytes).map(|(a, b)| a + b),
        }
    }
}

/// The work of a call. `dims`, `types` and `concrete` are the JSON texts of `Input Dims`, `Input
/// type` and `Concrete Inputs`. Nothing for operators that are not known, or whose shapes were not
/// recorded.
pub fn op_work(name: &str, dims: &str, types: &str, concrete: &str) -> Option<OpWork> {
    let name = name.strip_prefix("aten::")?;
    if is_view(name) {
        return Some(OpWork::zero());
    }
    let inputs = Inputs::parse(dims, types, concrete)?;
    let (flops, output) = work_of(name, &inputs)?;
    let bytes =
        inputs.bytes().zip(inputs.first_type_bytes()).map(|(read, size)| read + output * size);
    (flops.is_finite() && flops >= 0.0).then_some(OpWork { flops, bytes })
}

/// Operators that move nothing.
fn is_view(name: &str) -> bool {
    matches!(
        name,
        "as_strided"
            | "as_strided_"
            | "alias"
            | "chunk"
            | "detach"
            | "detach_"
            | "diagonal"
            | "empty"
            | "empty_like"
            | "empty_strided"
            | "expand"
            | "expand_as"
            | "flatten"
            | "lift_fresh"
            | "movedim"
            | "narrow"
            | "numpy_T"
            | "permute"
            | "resolve_conj"
            | "resolve_neg"
            | "resize_"
            | "result_type"
            | "select"
            | "set_"
            | "slice"
            | "split"
            | "split_with_sizes"
            | "squeeze"
            | "squeeze_"
            | "swapaxes"
            | "t"
            | "transpose"
            | "transpose_"
            | "unbind"
            | "unfold"
            | "unflatten"
            | "unsqueeze"
            | "unsqueeze_"
            | "view"
            | "view_as"
            | "_reshape_alias"
            | "_unsafe_view"
    )
}

/// `(operations, elements of the output)`.
fn work_of(name: &str, inputs: &Inputs) -> Option<(f64, f64)> {
    let product = |a: usize, b: usize| matrix_product(inputs.shape(a)?, inputs.shape(b)?);
    match name {
        "mm" | "bmm" | "matmul" | "mv" | "dot" | "vdot" | "inner" => product(0, 1),
        "addmm" | "addmm_" | "baddbmm" | "baddbmm_" | "addbmm" | "addmv" | "_addmm_activation" => {
            product(1, 2)
        }
        "linear" | "mkldnn_linear" => {
            let (input, weight) = (inputs.shape(0)?, inputs.shape(1)?);
            let rows = elements(input.split_last()?.1);
            let (out, inner) = (weight.first()?, weight.get(1)?);
            Some((2.0 * rows * out * inner, rows * out))
        }
        "conv1d" | "conv2d" | "conv3d" => {
            convolution(inputs, Layout { stride: 3, padding: 4, dilation: 5 })
        }
        "convolution" | "_convolution" | "convolution_overrideable" => {
            if inputs.text(6) == "True" {
                let (input, weight) = (inputs.shape(0)?, inputs.shape(1)?);
                transposed_convolution(input, weight, None)
            } else {
                convolution(inputs, Layout { stride: 3, padding: 4, dilation: 5 })
            }
        }
        "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d" => {
            transposed_convolution(inputs.shape(0)?, inputs.shape(1)?, None)
        }
        "cudnn_convolution" => convolution(inputs, Layout { stride: 3, padding: 2, dilation: 4 }),
        "mkldnn_convolution" => convolution(inputs, Layout { stride: 4, padding: 3, dilation: 5 }),
        "convolution_backward" => convolution_backward(inputs),
        "scaled_dot_product_attention"
        | "_scaled_dot_product_flash_attention"
        | "_scaled_dot_product_flash_attention_for_cpu"
        | "_scaled_dot_product_efficient_attention"
        | "_scaled_dot_product_cudnn_attention"
        | "_scaled_dot_product_attention_math"
        | "_scaled_dot_product_attention_math_for_mps" => attention(inputs, 0, 1.0, 1.0),
        "_scaled_dot_product_flash_attention_backward"
        | "_scaled_dot_product_flash_attention_for_cpu_backward"
        | "_scaled_dot_product_efficient_attention_backward"
        | "_scaled_dot_product_cudnn_attention_backward" => attention(inputs, 1, 3.0, 2.0),
        "mkldnn_rnn_layer" => recurrent(inputs, 1.0),
        "mkldnn_rnn_layer_backward" => recurrent(inputs, 2.0),
        "_cudnn_rnn" | "miopen_rnn" => recurrent_with_list(inputs, 1.0),
        "_cudnn_rnn_backward" | "miopen_rnn_backward" => recurrent_with_list(inputs, 2.0),
        "embedding" => {
            let (weight, indices) = (inputs.shape(0)?, inputs.shape(1)?);
            Some((0.0, elements(indices) * weight.last()?))
        }
        "cat" | "stack" | "concat" => {
            Some((0.0, inputs.lists.first()?.iter().map(|shape| elements(shape)).sum()))
        }
        _ => per_element(name, inputs),
    }
}

/// Operators that do a little with each element: `(operations, elements of the output)`.
fn per_element(name: &str, inputs: &Inputs) -> Option<(f64, f64)> {
    let in_place = name.strip_suffix('_').filter(|name| !name.is_empty()).unwrap_or(name);
    let first = elements(inputs.shape(0)?);
    let broadcast = inputs.broadcast();
    let (operations, output) = match in_place {
        "copy" | "clone" | "contiguous" | "to" | "_to_copy" | "fill" | "zero" | "masked_fill"
        | "where" | "index_select" | "gather" => (0.0, broadcast),
        "add"
        | "sub"
        | "rsub"
        | "mul"
        | "div"
        | "neg"
        | "abs"
        | "relu"
        | "threshold"
        | "clamp"
        | "clamp_min"
        | "clamp_max"
        | "maximum"
        | "minimum"
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
        | "threshold_backward"
        | "bitwise_and"
        | "bitwise_or"
        | "logical_and"
        | "logical_or"
        | "logical_not"
        | "leaky_relu"
        | "leaky_relu_backward"
        | "hardtanh"
        | "hardtanh_backward"
        | "square" => (1.0, broadcast),
        "lerp" | "addcmul" | "addcdiv" | "pow" => (3.0, broadcast),
        "exp" | "log" | "sin" | "cos" | "tanh" | "sigmoid" | "erf" | "log1p" | "tanh_backward"
        | "sigmoid_backward" | "silu" | "silu_backward" | "mish" | "softplus" | "elu" => {
            (4.0, broadcast)
        }
        "gelu" | "gelu_backward" => (8.0, broadcast),
        "dropout" | "native_dropout" | "native_dropout_backward" | "bernoulli" => (2.0, first),
        "softmax"
        | "_softmax"
        | "log_softmax"
        | "_log_softmax"
        | "_softmax_backward_data"
        | "_log_softmax_backward_data" => (5.0, first),
        "layer_norm"
        | "native_layer_norm"
        | "batch_norm"
        | "native_batch_norm"
        | "cudnn_batch_norm"
        | "miopen_batch_norm"
        | "_batch_norm_impl_index"
        | "group_norm"
        | "native_group_norm"
        | "instance_norm"
        | "rms_norm" => (8.0, first),
        "native_layer_norm_backward"
        | "native_batch_norm_backward"
        | "cudnn_batch_norm_backward"
        | "miopen_batch_norm_backward"
        | "native_group_norm_backward" => (12.0, first),
        // Reductions: the output is small beside the input.
        "sum" | "mean" | "amax" | "amin" | "max" | "min" | "argmax" | "argmin" | "norm"
        | "linalg_vector_norm" | "var" | "std" | "all" | "any" => (1.0, 0.0),
        "nll_loss" | "nll_loss_forward" | "mse_loss" | "l1_loss" => (2.0, 0.0),
        _ => return None,
    };
    let counted = if output == 0.0 { first } else { output };
    Some((operations * counted, output))
}

/// The product of two tensors as `torch.matmul` takes them: matrices in the last two dimensions,
/// batches before, which broadcast.
fn matrix_product(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    let (rows, inner, a_batch) = match a {
        [inner] => (1.0, *inner, &[][..]),
        [batch @ .., rows, inner] => (*rows, *inner, batch),
        [] => return None,
    };
    let (columns, b_batch) = match b {
        [_] => (1.0, &[][..]),
        [batch @ .., _, columns] => (*columns, batch),
        [] => return None,
    };
    let batch = broadcast_elements(a_batch, b_batch);
    Some((2.0 * batch * rows * inner * columns, batch * rows * columns))
}

/// Where a convolution's settings stand among its inputs.
struct Layout {
    stride: usize,
    padding: usize,
    dilation: usize,
}

fn convolution(inputs: &Inputs, layout: Layout) -> Option<(f64, f64)> {
    let (input, weight) = (inputs.shape(0)?, inputs.shape(1)?);
    let spatial = weight.len().checked_sub(2)?;
    // An input without a batch has one dimension less.
    let (batch, sizes) = match input.len().checked_sub(spatial)? {
        2 => (*input.first()?, input.get(2..)?),
        1 => (1.0, input.get(1..)?),
        _ => return None,
    };
    let mut positions = 1.0;
    for (index, size) in sizes.iter().enumerate() {
        let kernel = *weight.get(index + 2)?;
        let stride = inputs.number_of(layout.stride, index)?.max(1.0);
        let dilation = inputs.number_of(layout.dilation, index)?.max(1.0);
        let extent = dilation * (kernel - 1.0) + 1.0;
        positions *= match inputs.text(layout.padding) {
            "same" => *size,
            "valid" => ((size - extent) / stride).floor() + 1.0,
            _ => {
                let padding = inputs.number_of(layout.padding, index)?;
                ((size + 2.0 * padding - extent) / stride).floor() + 1.0
            }
        };
    }
    // The weight's second dimension is the input's channels over the groups already.
    let output = batch * weight.first()? * positions;
    Some((2.0 * output * elements(weight.get(1..)?), output))
}

/// Each input element goes to as many outputs as the kernel of its channel has.
fn transposed_convolution(
    input: &[f64],
    weight: &[f64],
    output: Option<f64>,
) -> Option<(f64, f64)> {
    let per_element = elements(weight.get(1..)?);
    Some((2.0 * elements(input) * per_element, output.unwrap_or(0.0)))
}

/// The gradient of the input and that of the weight each take what the forward pass took.
fn convolution_backward(inputs: &Inputs) -> Option<(f64, f64)> {
    let (gradient, input, weight) = (inputs.shape(0)?, inputs.shape(1)?, inputs.shape(2)?);
    let once = if inputs.text(7) == "True" {
        2.0 * elements(input) * elements(weight.get(1..)?)
    } else {
        2.0 * elements(gradient) * elements(weight.get(1..)?)
    };
    let mask = inputs.text(10);
    let mut wanted = mask.trim_matches(['[', ']']).split(',').map(|flag| flag.trim() != "False");
    let of_input = wanted.next().unwrap_or(true);
    let of_weight = wanted.next().unwrap_or(true);
    let times = f64::from(u8::from(of_input)) + f64::from(u8::from(of_weight));
    let output = if of_input { elements(input) } else { 0.0 }
        + if of_weight { elements(weight) } else { 0.0 };
    Some((once * times, output))
}

/// Attention over `[batch…, length, width]`; its products with the scores and with the values are
/// done so many times.
fn attention(inputs: &Inputs, first: usize, scores: f64, values: f64) -> Option<(f64, f64)> {
    let (query, key, value) =
        (inputs.shape(first)?, inputs.shape(first + 1)?, inputs.shape(first + 2)?);
    let [batch @ .., queries, width] = query else { return None };
    let [.., keys, _] = key else { return None };
    let value_width = value.last()?;
    let pairs = elements(batch) * queries * keys;
    let flops = 2.0 * pairs * (scores * width + values * value_width);
    Some((flops, elements(batch) * queries * value_width))
}

/// One layer of an LSTM, GRU or RNN: at each step of each sequence, the products with the weights
/// of the input and of the hidden state.
fn recurrent(inputs: &Inputs, times: f64) -> Option<(f64, f64)> {
    let steps = elements(inputs.shape(0)?.split_last()?.1);
    let (of_input, of_hidden) = (inputs.shape(1)?, inputs.shape(2)?);
    let width = of_hidden.last()?;
    let weights = elements(of_input) + elements(of_hidden);
    Some((2.0 * steps * weights * times, steps * width))
}

/// The same for all layers at once, with the weights and biases in a list.
fn recurrent_with_list(inputs: &Inputs, times: f64) -> Option<(f64, f64)> {
    let steps = elements(inputs.shape(0)?.split_last()?.1);
    let matrices = inputs.lists.first()?.iter().filter(|shape| shape.len() == 2);
    let weights: f64 = matrices.map(|shape| elements(shape)).sum();
    Some((2.0 * steps * weights * times, 0.0))
}

fn elements(shape: &[f64]) -> f64 {
    shape.iter().product()
}

fn broadcast_elements(a: &[f64], b: &[f64]) -> f64 {
    let (mut a, mut b) = (a.iter().rev(), b.iter().rev());
    let mut product = 1.0;
    loop {
        product *= match (a.next(), b.next()) {
            (None, None) => return product,
            (Some(size), None) | (None, Some(size)) => *size,
            (Some(a), Some(b)) => {
                if *a == 1.0 {
                    *b
                } else {
                    *a
                }
            }
        };
    }
}

/// An operator's inputs, as the profiler wrote them.
struct Inputs {
    /// By input: its shape; empty for what is no tensor, and for tensors without dimensions.
    shapes: Vec<Vec<f64>>,
    /// The shapes of inputs that are lists of tensors.
    lists: Vec<Vec<Vec<f64>>>,
    types: Vec<String>,
    concrete: Vec<String>,
}

impl Inputs {
    fn parse(dims: &str, types: &str, concrete: &str) -> Option<Inputs> {
        let dims: Vec<Value> = serde_json::from_str(dims).ok()?;
        let mut shapes = Vec::with_capacity(dims.len());
        let mut lists = Vec::new();
        for input in &dims {
            let input = input.as_array()?;
            if input.iter().any(Value::is_array) {
                lists.push(input.iter().filter_map(shape).collect());
                shapes.push(Vec::new());
            } else {
                shapes.push(input.iter().map(size).collect::<Option<_>>()?);
            }
        }
        let strings = |text: &str| serde_json::from_str::<Vec<String>>(text).unwrap_or_default();
        Some(Inputs { shapes, lists, types: strings(types), concrete: strings(concrete) })
    }

    /// The shape of an input that is a tensor.
    fn shape(&self, index: usize) -> Option<&[f64]> {
        self.shapes.get(index).map(Vec::as_slice)
    }

    /// An input that is no tensor, as Python writes it.
    fn text(&self, index: usize) -> &str {
        self.concrete.get(index).map_or("", String::as_str)
    }

    /// A number of a list such as `[2, 2]`; a list of one holds for every dimension.
    fn number_of(&self, input: usize, dimension: usize) -> Option<f64> {
        let list: Vec<f64> = serde_json::from_str(self.text(input)).ok()?;
        list.get(dimension).or(list.first().filter(|_| list.len() == 1)).copied()
    }

    /// Elements of the shape to which all tensors broadcast: that of the largest.
    fn broadcast(&self) -> f64 {
        self.shapes.iter().map(|shape| elements(shape)).fold(0.0, f64::max)
    }

    /// Bytes of all tensors, where all their types are known.
    fn bytes(&self) -> Option<f64> {
        let mut sum = 0.0;
        for (shape, type_name) in self.shapes.iter().zip(&self.types) {
            sum += match type_name.as_str() {
                "Scalar" | "ScalarList" | "" | "None" => 0.0,
                type_name => elements(shape) * type_bytes(type_name)?,
            };
        }
        (self.types.len() >= self.shapes.len()).then_some(sum)
    }

    fn first_type_bytes(&self) -> Option<f64> {
        self.types.iter().find_map(|type_name| type_bytes(type_name))
    }
}

fn shape(value: &Value) -> Option<Vec<f64>> {
    value.as_array()?.iter().map(size).collect()
}

fn size(value: &Value) -> Option<f64> {
    value.as_f64().filter(|size| *size >= 0.0)
}

/// Bytes of an element, by the C++ name that the profiler writes.
pub fn type_bytes(name: &str) -> Option<f64> {
    Some(match name {
        "c10::complex<double>" => 16.0,
        "double" | "long" | "long int" | "long long" | "c10::complex<float>" => 8.0,
        "float" | "int" | "c10::complex<c10::Half>" => 4.0,
        "c10::Half" | "c10::BFloat16" | "short" | "short int" => 2.0,
        "bool" | "char" | "signed char" | "unsigned char" | "c10::Float8_e4m3fn"
        | "c10::Float8_e5m2" => 1.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(name: &str, dims: &str, types: &str, concrete: &str, flops: f64, bytes: Option<f64>) {
        let work = op_work(name, dims, types, concrete).expect("known");
        assert_eq!((work.flops, work.bytes), (flops, bytes));
    }

    #[test]
    fn matrix_products() {
        let types = r#"["float","float"]"#;
        let bytes = Some(4.0 * (6.0 + 12.0 + 8.0));
        check("aten::mm", "[[2,3],[3,4]]", types, "[]", 48.0, bytes);
        check("aten::bmm", "[[5,2,3],[5,3,4]]", types, "[]", 240.0, bytes.map(|b| b * 5.0));
        check("aten::matmul", "[[5,2,3],[3,4]]", types, "[]", 240.0, Some(4.0 * 82.0));
        check("aten::mv", "[[2,3],[3]]", types, "[]", 12.0, Some(4.0 * 11.0));
    }

    #[test]
    fn products_with_something_added() {
        let types = r#"["c10::Half","c10::Half","c10::Half","Scalar","Scalar"]"#;
        let bytes = Some(2.0 * (4.0 + 6.0 + 12.0 + 8.0));
        check("aten::addmm", "[[4],[2,3],[3,4],[],[]]", types, "[]", 48.0, bytes);
        let types = r#"["float","float","float"]"#;
        let bytes = Some(4.0 * (30.0 + 12.0 + 4.0 + 40.0));
        check("aten::linear", "[[5,2,3],[4,3],[4]]", types, "[]", 240.0, bytes);
    }

    #[test]
    fn convolutions() {
        let dims = "[[4,3,16,16],[8,3,3,3],[8],[],[],[],[]]";
        let concrete = r#"["","","","[1, 1]","[0, 0]","[1, 1]","1"]"#;
        check("aten::conv2d", dims, "[]", concrete, 2.0 * 4.0 * 8.0 * 196.0 * 27.0, None);
        let strided = r#"["","","","[2, 2]","[1, 1]","[1, 1]","1"]"#;
        check("aten::conv2d", dims, "[]", strided, 2.0 * 4.0 * 8.0 * 64.0 * 27.0, None);
        let same = r#"["","","","[1, 1]","same","[1, 1]","1"]"#;
        check("aten::conv2d", dims, "[]", same, 2.0 * 4.0 * 8.0 * 256.0 * 27.0, None);
    }

    #[test]
    fn groups_see_their_channels_alone() {
        let dims = "[[1,8,5,5],[8,1,3,3],[],[],[],[],[],[],[]]";
        let concrete = r#"["","","","[1, 1]","[1, 1]","[1, 1]","False","[0, 0]","8"]"#;
        check("aten::convolution", dims, "[]", concrete, 2.0 * 8.0 * 25.0 * 9.0, None);
    }

    #[test]
    fn transposed_convolutions() {
        let dims = "[[2,16,4,4],[16,8,4,4],[],[],[],[],[],[],[]]";
        let concrete = r#"["","","","[2, 2]","[1, 1]","[1, 1]","True","[0, 0]","1"]"#;
        let flops = 2.0 * (2.0 * 16.0 * 16.0) * (8.0 * 16.0);
        check("aten::convolution", dims, "[]", concrete, flops, None);
        check("aten::conv_transpose2d", "[[2,16,4,4],[16,8,4,4]]", "[]", "[]", flops, None);
    }

    #[test]
    fn the_gradients_of_a_convolution_that_are_wanted() {
        let dims = "[[4,8,14,14],[4,3,16,16],[8,3,3,3],[],[],[],[],[],[],[],[]]";
        let concrete = |mask: &str| {
            format!(r#"["","","","[8]","[1, 1]","[0, 0]","[1, 1]","False","[0, 0]","1","{mask}"]"#)
        };
        let once = 2.0 * 4.0 * 8.0 * 196.0 * 27.0;
        let name = "aten::convolution_backward";
        check(name, dims, "[]", &concrete("[False, True, True]"), once, None);
        check(name, dims, "[]", &concrete("[True, True, True]"), 2.0 * once, None);
    }

    #[test]
    fn attention_counts_as_pytorch_counts_it() {
        let dims = "[[2,4,16,8],[2,4,32,8],[2,4,32,8]]";
        let once = 2.0 * 8.0 * 16.0 * 32.0 * 8.0;
        let types = r#"["float","float","float"]"#;
        let bytes = Some(4.0 * (1024.0 + 2048.0 + 2048.0 + 1024.0));
        check("aten::scaled_dot_product_attention", dims, types, "[]", 2.0 * once, bytes);
        let dims = "[[2,4,16,8],[2,4,16,8],[2,4,32,8],[2,4,32,8]]";
        let name = "aten::_scaled_dot_product_flash_attention_backward";
        check(name, dims, "[]", "[]", 5.0 * once, None);
    }

    #[test]
    fn recurrent_layers() {
        let flops = 2.0 * (5.0 * 3.0) * (16.0 * 8.0 + 16.0 * 4.0);
        let dims = "[[5,3,8],[16,8],[16,4],[16],[16],[3,4],[3,4]]";
        check("aten::mkldnn_rnn_layer", dims, "[]", "[]", flops, None);
        let dims = "[[5,3,8],[[16,8],[16,4],[16],[16]],[],[]]";
        check("aten::_cudnn_rnn", dims, "[]", "[]", flops, None);
        check("aten::_cudnn_rnn_backward", dims, "[]", "[]", 2.0 * flops, None);
    }

    #[test]
    fn elements_move_once() {
        let types = r#"["float","float","Scalar"]"#;
        check("aten::add", "[[8,4],[4],[]]", types, "[]", 32.0, Some(4.0 * (32.0 + 4.0 + 32.0)));
        check("aten::relu", "[[8,4]]", r#"["c10::BFloat16"]"#, "[]", 32.0, Some(128.0));
        check("aten::sum", "[[8,4]]", r#"["double"]"#, "[]", 32.0, Some(256.0));
        check("aten::view", "[[8,4]]", r#"["float"]"#, "[]", 0.0, Some(0.0));
    }

    #[test]
    fn what_is_not_known_has_no_numbers() {
        assert_eq!(op_work("mylib::thing", "[[1]]", "[]", "[]"), None);
        assert_eq!(op_work("aten::fft_fft", "[[1]]", "[]", "[]"), None);
        assert_eq!(op_work("aten::mm", "", "", ""), None);
        assert_eq!(op_work("aten::mm", "[[2,3]]", "[]", "[]"), None);
        assert_eq!(op_work("aten::mm", "[[-2,3],[3,4]]", "[]", "[]"), None);
    }

    proptest! {
        #[test]
        fn no_input_is_too_strange(
            name in prop::sample::select(vec![
                "aten::mm", "aten::linear", "aten::conv2d", "aten::convolution",
                "aten::convolution_backward", "aten::scaled_dot_product_attention", "aten::cat",
                "aten::add_", "aten::embedding",
            ]),
            dims in "[\\[\\]0-9,\\-. ]{0,40}",
            concrete in r#"(\["?[\[\]0-9, ]{0,9}"?(,"?[\[\]0-9, ]{0,9}"?){0,10}\])|.{0,20}"#,
        ) {
            let work = op_work(name, &dims, "[]", &concrete);
            prop_assert!(work.is_none_or(|work| work.flops >= 0.0));
        }
    }
}
