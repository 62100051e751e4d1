//! Embedding lookups, and accumulating gradients into the table.

use super::{Kernels, moved_bytes, stream};
use crate::operator::{Operator, Tensor};

pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    operator.input_tensors().next()?;
    match name {
        "embedding" | "embedding_bag" | "_embedding_bag" | "_embedding_bag_forward_only" => {
            Some(0.0)
        }
        // One addition per element of the gradient.
        "embedding_dense_backward"
        | "_embedding_bag_backward"
        | "_embedding_bag_dense_backward" => operator.input_tensors().next().map(Tensor::elements),
        _ => None,
    }
}

/// Returns the bytes moved. Only the indexed rows are read, which are as many bytes as the output.
pub(super) fn bytes(name: &str, operator: &Operator) -> Option<f64> {
    if name.ends_with("_backward") {
        return moved_bytes(operator);
    }
    let indices = operator.tensor(1)?.bytes()?;
    let output = operator.outputs.first()?.bytes()?;
    Some(indices + 2.0 * output)
}

pub(super) fn launch(name: &str, operator: &Operator, bytes: f64, kernels: &mut Kernels) {
    if !name.ends_with("_backward") {
        kernels.stream(stream::Kind::Gather, bytes);
        return;
    }
    // The gradient of the whole table is zeroed, then rows are added to it.
    let table = operator.outputs.first().and_then(Tensor::bytes).unwrap_or(0.0);
    kernels.stream(stream::Kind::Copy, table);
    kernels.stream(stream::Kind::Scatter, (bytes - table).max(0.0));
}
