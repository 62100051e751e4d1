//! Recurrent layers: one matrix multiplication of the input for all steps, then at each step one of
//! the hidden state, which depends on the previous step.

use super::matmul::{Kind, Matmul};
use super::{Kernels, stream};
use crate::operator::{ElementType, Operator, Tensor, elements};

/// The computation of a recurrent operator.
struct Recurrent {
    /// Number of sequences times number of steps.
    positions: f64,
    /// Number of dependent steps.
    steps: f64,
    /// The weight matrices, each `[gates * hidden, width]`.
    matrices: Vec<Tensor>,
    /// Matrix multiplications per weight: two in the backward pass, for the input and the weights.
    matmuls_per_weight: f64,
}

/// Counts two operations per weight at each step of each sequence.
pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let recurrent = read(name, operator)?;
    let weights: f64 = recurrent.matrices.iter().map(Tensor::elements).sum();
    Some(2.0 * recurrent.positions * weights * recurrent.matmuls_per_weight)
}

fn read(name: &str, operator: &Operator) -> Option<Recurrent> {
    let matmuls_per_weight = if name.ends_with("_backward") { 2.0 } else { 1.0 };
    let input = operator.shape(0)?;
    let matrices: Vec<Tensor> = match name {
        "mkldnn_rnn_layer" | "mkldnn_rnn_layer_backward" => {
            vec![operator.tensor(1)?.clone(), operator.tensor(2)?.clone()]
        }
        "_cudnn_rnn"
        | "miopen_rnn"
        | "_cudnn_rnn_backward"
        | "miopen_rnn_backward"
        | "lstm"
        | "gru"
        | "rnn_tanh"
        | "rnn_relu" => {
            let lists = operator.inputs.iter().filter(|arg| arg.number_of(0).is_none());
            let mut tensors = lists.filter(|arg| matches!(arg, crate::operator::Arg::List(_)));
            let list = tensors.find(|arg| arg.tensors().any(|tensor| tensor.shape.len() == 2))?;
            list.tensors().filter(|tensor| tensor.shape.len() == 2).cloned().collect()
        }
        _ => return None,
    };
    let (_, leading) = input.split_last()?;
    Some(Recurrent {
        positions: elements(leading),
        steps: leading.first().copied().unwrap_or(1) as f64,
        matrices,
        matmuls_per_weight,
    })
}

pub(super) fn launch(name: &str, operator: &Operator, kernels: &mut Kernels) {
    let Some(recurrent) = read(name, operator) else { return };
    let element = operator.element().unwrap_or(ElementType::Float32);
    let sequences = recurrent.positions / recurrent.steps.max(1.0);
    for matrix in recurrent.matrices.iter().take(MAX_MATRICES) {
        let [gates, width] = matrix.shape.as_slice() else { continue };
        let (gates, width) = (*gates as f64, *width as f64);
        // The operator does not show which matrix belongs to the hidden state. Each pair has one of
        // each kind, and half of the multiplications wait for the previous step.
        let bytes = (matrix.elements() + recurrent.positions * (gates + width)) * element.bytes();
        kernels.matmul(Matmul {
            kind: Kind::Recurrent { steps: recurrent.steps },
            batch: recurrent.matmuls_per_weight,
            rows: sequences * recurrent.steps,
            columns: gates,
            inner: width,
            element,
            tf32: true,
            bytes: bytes * recurrent.matmuls_per_weight,
            aligned: true,
        });
        kernels.stream(
            stream::Kind::Elementwise,
            3.0 * recurrent.positions * gates * element.bytes() * recurrent.matmuls_per_weight,
        );
    }
}

/// The maximum number of matrices considered. Layers of real models have far fewer.
const MAX_MATRICES: usize = 256;
