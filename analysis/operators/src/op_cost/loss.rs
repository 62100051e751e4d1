//! Losses: they read predictions and targets and return a scalar or a gradient.

use super::{Kernels, largest_elements, stream};
use crate::operator::Operator;

/// Counts two operations per prediction.
pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let known = name.contains("nll_loss")
        || name.contains("mse_loss")
        || name.contains("l1_loss")
        || name.contains("huber_loss")
        || name.contains("binary_cross_entropy")
        || name.contains("cross_entropy_loss")
        || name.contains("kl_div")
        || name.contains("ctc_loss")
        || name.contains("soft_margin_loss")
        || name.contains("margin_loss");
    operator.input_tensors().next()?;
    known.then(|| 2.0 * largest_elements(operator))
}

pub(super) fn launch(bytes: f64, kernels: &mut Kernels) {
    kernels.stream(stream::Kind::Reduction, bytes);
}
