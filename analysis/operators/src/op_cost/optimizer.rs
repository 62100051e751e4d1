//! Updates of many tensors by one operator: `torch._foreach_*` and the fused optimizers.

use super::{Kernels, stream};
use crate::operator::{Operator, Tensor};

/// Tensors by kernel: `multi_tensor_apply` packs the addresses into a kernel's 4 KB of arguments
/// (`aten/src/ATen/native/cuda/MultiTensorApply.cuh`), so that more lists leave room for fewer
/// tensors; this is its number for three lists.
const TENSORS_PER_LAUNCH: f64 = 48.0;

pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let per_element = if name.starts_with("_fused_adam") {
        // Two moments, their corrections, a root and a quotient.
        12.0
    } else if name.starts_with("_fused_sgd") || name.starts_with("_fused_adagrad") {
        4.0
    } else if name.starts_with("_foreach_") || name.starts_with("_amp_") {
        1.0
    } else {
        return None;
    };
    Some(per_element * first_list_elements(operator))
}

fn first_list_elements(operator: &Operator) -> f64 {
    operator.input(0).tensors().map(Tensor::elements).sum()
}

pub(super) fn launch(name: &str, operator: &Operator, bytes: f64, kernels: &mut Kernels) {
    let tensors = operator.input(0).tensors().count() as f64;
    let launches = (tensors / TENSORS_PER_LAUNCH).ceil().max(1.0);
    // In-place operators write what they read; what they give is not listed. A copy reads nothing of
    // what it writes.
    let in_place = name.ends_with('_') && name != "_foreach_copy_";
    let written = if operator.outputs.is_empty() && in_place {
        operator.input(0).tensors().filter_map(Tensor::bytes).sum()
    } else {
        0.0
    };
    let each = (bytes + written) / launches;
    for _ in 0..(launches as usize).min(MOST_LAUNCHES) {
        kernels.stream(
            stream::Kind::Optimizer,
            each * (launches / launches.min(MOST_LAUNCHES as f64)),
        );
    }
}

/// So many launches are told apart; the lists of real models are far shorter.
const MOST_LAUNCHES: usize = 256;
