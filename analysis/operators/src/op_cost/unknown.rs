//! Unknown operators: their cost is estimated from their bytes.

use super::{Family, Kernels, Work, stream};
use crate::operator::{Operator, Tensor};

pub(super) fn work(operator: &Operator) -> Work {
    Work { family: Family::Unknown, flops: 0.0, bytes: Some(bytes(operator)) }
}

/// Adds up the bytes of every tensor. Unknown types count as four bytes per element.
pub(super) fn bytes(operator: &Operator) -> f64 {
    let bytes = |tensor: &Tensor| tensor.bytes().unwrap_or_else(|| 4.0 * tensor.elements());
    operator.input_tensors().chain(&operator.outputs).map(bytes).sum()
}

pub(super) fn launch(work: &Work, kernels: &mut Kernels) {
    kernels.stream(stream::Kind::Unknown, work.bytes.unwrap_or(0.0));
}
