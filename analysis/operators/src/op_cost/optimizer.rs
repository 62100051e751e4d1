//! Multi-tensor updates: `torch._foreach_*` and the fused optimizers.

use super::{Kernels, stream};
use crate::operator::{Operator, Tensor};

/// Tensors per kernel: `multi_tensor_apply` packs the addresses into a kernel's 4 KB of arguments
/// (`aten/src/ATen/native/cuda/MultiTensorApply.cuh`). More lists leave room for fewer tensors.
/// This is the number for three lists.
const TENSORS_PER_LAUNCH: f64 = 48.0;

pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let per_element = if name.starts_with("_fused_adam") {
        // Two moments, their bias corrections, a square root and a division.
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
    // In-place operators write their inputs and list no outputs. A copy does not read what it
    // overwrites.
    let in_place = name.ends_with('_') && name != "_foreach_copy_";
    let written = if operator.outputs.is_empty() && in_place {
        operator.input(0).tensors().filter_map(Tensor::bytes).sum()
    } else {
        0.0
    };
    let each = (bytes + written) / launches;
    for _ in 0..(launches as usize).min(MAX_LAUNCHES) {
        kernels
            .stream(stream::Kind::Optimizer, each * (launches / launches.min(MAX_LAUNCHES as f64)));
    }
}

/// The maximum number of separate launches. Lists in real models are far shorter.
const MAX_LAUNCHES: usize = 256;
