//! Recurrent layers: the input's products for all steps at once, then at each step those of the
//! hidden state, which wait for the step before.

use super::product::{Kind, Product};
use super::{Kernels, stream};
use crate::operator::{ElementType, Operator, Tensor, elements};

/// What a recurrent operator computes.
struct Recurrent {
    /// Sequences times steps.
    positions: f64,
    /// Steps that wait for each other.
    steps: f64,
    /// `[gates * hidden, width]` of each matrix.
    matrices: Vec<Tensor>,
    /// The backward pass takes the products twice, for the input and for the weights.
    times: f64,
}

/// Two operations for each weight at each step of each sequence.
pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let recurrent = read(name, operator)?;
    let weights: f64 = recurrent.matrices.iter().map(Tensor::elements).sum();
    Some(2.0 * recurrent.positions * weights * recurrent.times)
}

fn read(name: &str, operator: &Operator) -> Option<Recurrent> {
    let times = if name.ends_with("_backward") { 2.0 } else { 1.0 };
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
        times,
    })
}

pub(super) fn launch(name: &str, operator: &Operator, kernels: &mut Kernels) {
    let Some(recurrent) = read(name, operator) else { return };
    let element = operator.element().unwrap_or(ElementType::Float32);
    let sequences = recurrent.positions / recurrent.steps.max(1.0);
    for matrix in recurrent.matrices.iter().take(MOST_MATRICES) {
        let [gates, width] = matrix.shape.as_slice() else { continue };
        let (gates, width) = (*gates as f64, *width as f64);
        // Nothing says which matrix is the hidden state's: each pair has one of either kind, so
        // that half of the products wait for the step before.
        let bytes = (matrix.elements() + recurrent.positions * (gates + width)) * element.bytes();
        kernels.product(Product {
            kind: Kind::Recurrent { steps: recurrent.steps },
            batch: recurrent.times,
            rows: sequences * recurrent.steps,
            columns: gates,
            inner: width,
            element,
            tf32: true,
            bytes: bytes * recurrent.times,
            aligned: true,
        });
        kernels.stream(
            stream::Kind::Elementwise,
            3.0 * recurrent.positions * gates * element.bytes() * recurrent.times,
        );
    }
}

/// So many matrices are told apart; layers of real models are far fewer.
const MOST_MATRICES: usize = 256;
