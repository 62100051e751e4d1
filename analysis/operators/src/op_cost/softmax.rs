//! Softmax and log-softmax. A row that fits a warp or a block is read once (`softmax_warp_forward`,
//! `cunn_SoftMaxForwardSmem`), a longer one twice.

use super::{Kernels, stream};
use crate::operator::{Operator, Tensor};

/// Counts five operations per element: maximum, subtraction, exponential, sum, division.
pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let known = matches!(
        name,
        "softmax"
            | "_softmax"
            | "log_softmax"
            | "_log_softmax"
            | "_softmax_backward_data"
            | "_log_softmax_backward_data"
            | "_safe_softmax"
            | "_masked_softmax"
    );
    known.then_some(5.0 * operator.input_tensors().next().map(Tensor::elements)?)
}

pub(super) fn launch(name: &str, bytes: f64, kernels: &mut Kernels) {
    let backward = name.ends_with("_backward_data");
    kernels.stream(
        if backward { stream::Kind::SoftmaxBackward } else { stream::Kind::Softmax },
        bytes,
    );
}
