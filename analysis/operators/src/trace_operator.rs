//! Operators from profiler traces: shapes, C++ type names and Python values as text.
//!
//! The profiler records inputs but not outputs. Outputs are inferred here for operators whose
//! output shapes follow from the inputs.

use serde_json::Value;

use super::operator::{Arg, ElementType, Operator, Tensor, elements};

/// Implements [`Operator::from_trace`].
pub(super) fn read(name: &str, dims: &str, types: &str, concrete: &str) -> Option<Operator> {
    let dims: Vec<Value> = serde_json::from_str(dims).ok()?;
    let strings = |text: &str| serde_json::from_str::<Vec<String>>(text).unwrap_or_default();
    let (types, concrete) = (strings(types), strings(concrete));
    let mut inputs = Vec::with_capacity(dims.len());
    for (index, shape) in dims.iter().enumerate() {
        let type_name = types.get(index).map(String::as_str);
        let text = concrete.get(index).map_or("", String::as_str);
        inputs.push(input(shape, type_name, text)?);
    }
    let mut operator = Operator::new(name, inputs, Vec::new());
    operator.outputs = outputs(&operator);
    Some(operator)
}

/// Parses one input. Without types, an input with a shape is a tensor. With types, one without a
/// text is too. Returns `None` for long lists of tensors, whose shapes the profiler leaves out.
fn input(dims: &Value, type_name: Option<&str>, text: &str) -> Option<Arg> {
    let list = dims.as_array()?;
    if list.iter().any(Value::is_array) {
        let tensor = |shape: &Value| {
            let shape = shape.as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?;
            Some(Arg::Tensor(Tensor { element: None, shape, strides: None }))
        };
        return Some(Arg::List(list.iter().filter_map(tensor).collect()));
    }
    if type_name == Some("TensorList") {
        return None;
    }
    let shape: Vec<u64> = list.iter().map(Value::as_u64).collect::<Option<_>>()?;
    let is_tensor = match type_name {
        Some("Scalar" | "ScalarList" | "" | "None") => false,
        Some(_) => text.is_empty() || !shape.is_empty(),
        None => !shape.is_empty(),
    };
    if is_tensor {
        let element = type_name.and_then(ElementType::from_name);
        return Some(Arg::Tensor(Tensor { element, shape, strides: None }));
    }
    Some(python_value(text))
}

/// Parses a Python value: `[1, 1]`, `True`, `2.5`, `same`.
fn python_value(text: &str) -> Arg {
    let text = text.trim();
    if let Some(list) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        if list.trim().is_empty() {
            return Arg::List(Vec::new());
        }
        return Arg::List(list.split(',').map(python_scalar).collect());
    }
    python_scalar(text)
}

fn python_scalar(text: &str) -> Arg {
    match text.trim() {
        "" | "None" => Arg::None,
        "True" | "true" => Arg::Bool(true),
        "False" | "false" => Arg::Bool(false),
        text => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Arg::Number(number),
            _ => Arg::Text(text.to_owned()),
        },
    }
}

/// Infers the outputs. Returns an empty list for operators whose outputs do not follow from their
/// inputs' shapes.
fn outputs(operator: &Operator) -> Vec<Tensor> {
    let Some(name) = operator.base_name() else { return Vec::new() };
    let shape = output_shape(name, operator);
    let element = operator.element();
    match shape {
        Some(shapes) => {
            let tensor = |shape| Tensor { element, shape, strides: None };
            shapes.into_iter().map(tensor).collect()
        }
        None => Vec::new(),
    }
}

fn output_shape(name: &str, operator: &Operator) -> Option<Vec<Vec<u64>>> {
    let shape = |index: usize| operator.shape(index);
    let one = |shape: Vec<u64>| Some(vec![shape]);
    match name {
        "mm" | "bmm" | "matmul" | "mv" | "dot" | "vdot" | "inner" => {
            one(matmul_shape(shape(0)?, shape(1)?)?)
        }
        "addmm" | "addmm_" | "baddbmm" | "baddbmm_" | "addmv" | "_addmm_activation" => {
            one(matmul_shape(shape(1)?, shape(2)?)?)
        }
        "addbmm" => one(matmul_shape(shape(1)?, shape(2)?)?.split_off(1)),
        "linear" | "mkldnn_linear" => {
            let mut result = shape(0)?.to_vec();
            *result.last_mut()? = *shape(1)?.first()?;
            one(result)
        }
        "conv1d" | "conv2d" | "conv3d" => one(convolved(operator, 3, 4, 5)?),
        "convolution" | "_convolution" | "convolution_overrideable" => {
            if operator.input(6).flag() == Some(true) {
                one(transposed(operator)?)
            } else {
                one(convolved(operator, 3, 4, 5)?)
            }
        }
        "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d" => one(transposed(operator)?),
        "cudnn_convolution" => one(convolved(operator, 3, 2, 4)?),
        "mkldnn_convolution" => one(convolved(operator, 4, 3, 5)?),
        "convolution_backward" => {
            let wanted = |index| operator.input(10).flag_of(index) != Some(false);
            let mut shapes = Vec::new();
            if wanted(0) {
                shapes.push(shape(1)?.to_vec());
            }
            if wanted(1) {
                shapes.push(shape(2)?.to_vec());
            }
            Some(shapes)
        }
        "embedding" => {
            let mut result = shape(1)?.to_vec();
            result.push(*shape(0)?.last()?);
            one(result)
        }
        "cat" | "stack" | "concat" => {
            let total: f64 = operator.input(0).tensors().map(Tensor::elements).sum();
            one(vec![total as u64])
        }
        "sum" | "mean" | "amax" | "amin" | "max" | "min" | "argmax" | "argmin" | "norm"
        | "linalg_vector_norm" | "var" | "std" | "all" | "any" | "nll_loss"
        | "nll_loss_forward" | "mse_loss" | "l1_loss" | "cross_entropy_loss" => {
            shape(0)?;
            Some(Vec::new())
        }
        _ if name.contains("scaled_dot_product") && !name.ends_with("_backward") => {
            let mut result = shape(0)?.to_vec();
            *result.last_mut()? = *shape(2)?.last()?;
            one(result)
        }
        _ if name.contains("scaled_dot_product") => {
            Some(vec![shape(1)?.to_vec(), shape(2)?.to_vec(), shape(3)?.to_vec()])
        }
        _ if name.contains("rnn") => None,
        // The remaining operators are elementwise, with broadcast shapes.
        _ => {
            let largest =
                operator.input_tensors().max_by(|a, b| a.elements().total_cmp(&b.elements()));
            one(largest?.shape.clone())
        }
    }
}

/// Returns the output shape of a `torch.matmul`: matrices in the last two dimensions, batch
/// dimensions before, which broadcast.
fn matmul_shape(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let (rows, a_batch) = match a {
        [_] => (None, &[][..]),
        [batch @ .., rows, _] => (Some(*rows), batch),
        [] => return None,
    };
    let (columns, b_batch) = match b {
        [_] => (None, &[][..]),
        [batch @ .., _, columns] => (Some(*columns), batch),
        [] => return None,
    };
    let batch = if elements(a_batch) >= elements(b_batch) { a_batch } else { b_batch };
    let mut shape = batch.to_vec();
    shape.extend(rows);
    shape.extend(columns);
    Some(shape)
}

/// Returns the output shape of a convolution. `stride`, `padding` and `dilation` are argument
/// positions.
fn convolved(
    operator: &Operator,
    stride: usize,
    padding: usize,
    dilation: usize,
) -> Option<Vec<u64>> {
    let (input, weight) = (operator.shape(0)?, operator.shape(1)?);
    let spatial = weight.len().checked_sub(2)?;
    // An input without a batch dimension has one dimension less.
    let leading = input.len().checked_sub(spatial)?;
    let mut shape = match leading {
        2 => vec![*input.first()?],
        1 => Vec::new(),
        _ => return None,
    };
    shape.push(*weight.first()?);
    for (index, size) in input.get(leading..)?.iter().enumerate() {
        let size = *size as f64;
        let kernel = *weight.get(index + 2)? as f64;
        let stride = operator.input(stride).number_of(index)?.max(1.0);
        let dilation = operator.input(dilation).number_of(index)?.max(1.0);
        let extent = dilation * (kernel - 1.0) + 1.0;
        let positions = match operator.input(padding) {
            Arg::Text(text) if text == "same" => size,
            Arg::Text(text) if text == "valid" => ((size - extent) / stride).floor() + 1.0,
            padding => {
                let padding = padding.number_of(index)?;
                ((size + 2.0 * padding - extent) / stride).floor() + 1.0
            }
        };
        shape.push(positions.max(0.0) as u64);
    }
    Some(shape)
}

/// Returns the output shape of a transposed convolution. Each input element contributes to as many
/// outputs as the kernel has elements. Their overlap is not fully recorded, so one output is
/// counted per stride.
fn transposed(operator: &Operator) -> Option<Vec<u64>> {
    let (input, weight) = (operator.shape(0)?, operator.shape(1)?);
    let spatial = weight.len().checked_sub(2)?;
    let leading = input.len().checked_sub(spatial)?;
    let groups = operator.input(8).number().unwrap_or(1.0).max(1.0);
    let mut shape = input.get(..leading.checked_sub(1)?)?.to_vec();
    shape.push((*weight.get(1)? as f64 * groups) as u64);
    for (index, size) in input.get(leading..)?.iter().enumerate() {
        let stride = operator.input(3).number_of(index).unwrap_or(1.0).max(1.0);
        shape.push((*size as f64 * stride) as u64);
    }
    Some(shape)
}
