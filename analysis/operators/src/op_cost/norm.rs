//! Norms: one pass over the input for its statistics and one that applies them. The second pass
//! misses the cache unless a row or the whole input is small.

use super::{Kernels, stream};
use crate::operator::{Operator, Tensor};

/// Counts eight operations per element forward, twelve backward.
pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let per_element = match kind(name)? {
        stream::Kind::BatchNormBackward | stream::Kind::LayerNormBackward => 12.0,
        _ => 8.0,
    };
    Some(per_element * operator.input_tensors().next().map(Tensor::elements)?)
}

fn kind(name: &str) -> Option<stream::Kind> {
    Some(match name {
        "batch_norm"
        | "native_batch_norm"
        | "cudnn_batch_norm"
        | "miopen_batch_norm"
        | "_batch_norm_impl_index"
        | "_native_batch_norm_legit"
        | "_batch_norm_with_update"
        | "_native_batch_norm_legit_functional"
        | "instance_norm"
        | "_native_batch_norm_legit_no_training"
        | "_batch_norm_no_update" => stream::Kind::BatchNorm,
        "native_batch_norm_backward"
        | "cudnn_batch_norm_backward"
        | "batch_norm_backward"
        | "miopen_batch_norm_backward" => stream::Kind::BatchNormBackward,
        "layer_norm" | "native_layer_norm" | "rms_norm" | "_fused_rms_norm" | "group_norm"
        | "native_group_norm" => stream::Kind::LayerNorm,
        "native_layer_norm_backward"
        | "_fused_rms_norm_backward"
        | "native_group_norm_backward" => stream::Kind::LayerNormBackward,
        _ => return None,
    })
}

pub(super) fn launch(name: &str, operator: &Operator, kernels: &mut Kernels) {
    let Some(kind) = kind(name) else { return };
    let tensor_bytes = |tensor: &Tensor| tensor.bytes().unwrap_or(4.0 * tensor.elements());
    let input_bytes = operator.input_tensors().next().map_or(0.0, tensor_bytes);
    let output_bytes = operator.outputs.first().map_or(input_bytes, tensor_bytes);
    let passes = match kind {
        // Running statistics need no pass over the input.
        stream::Kind::BatchNorm if !uses_batch_statistics(name, operator) => 1.0,
        // One pass for the sums, one to apply them. A layer norm's row stays on the chip between
        // the two.
        stream::Kind::BatchNorm => 2.0,
        stream::Kind::BatchNormBackward => 4.0,
        stream::Kind::LayerNormBackward => 3.0,
        _ => 1.0,
    };
    let channels_last = operator.input_tensors().any(Tensor::is_channels_last);
    let kind = match kind {
        stream::Kind::BatchNorm if channels_last => stream::Kind::BatchNormChannelsLast,
        stream::Kind::BatchNormBackward if channels_last => {
            stream::Kind::BatchNormChannelsLastBackward
        }
        kind => kind,
    };
    kernels.stream(kind, passes * input_bytes + output_bytes);
}

/// Whether a batch norm computes its statistics from the batch.
fn uses_batch_statistics(name: &str, operator: &Operator) -> bool {
    match name {
        "_native_batch_norm_legit_no_training" | "_batch_norm_no_update" => false,
        _ => operator.input(5).flag().unwrap_or(true),
    }
}
