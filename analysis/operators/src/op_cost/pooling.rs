//! Pooling and resampling: every output element reads its window.

use super::{Kernels, largest_elements, stream};
use crate::operator::Operator;

/// Counts one operation per element of the larger side.
pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let known = name.contains("_pool")
        || name.starts_with("upsample_")
        || name.starts_with("_upsample_")
        || name.starts_with("grid_sampler");
    operator.input_tensors().next()?;
    known.then(|| largest_elements(operator))
}

pub(super) fn launch(name: &str, bytes: f64, kernels: &mut Kernels) {
    let backward = name.ends_with("_backward");
    kernels.stream(
        if backward { stream::Kind::PoolingBackward } else { stream::Kind::Pooling },
        bytes,
    );
}
