//! Copies, casts and fills: one kernel that reads and writes, or only writes.

use super::elementwise::in_place_base;
use super::{Kernels, stream};
use crate::operator::{Operator, Tensor};

pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let known = matches!(
        in_place_base(name),
        "copy"
            | "clone"
            | "contiguous"
            | "to"
            | "_to_copy"
            | "fill"
            | "zero"
            | "zeros"
            | "ones"
            | "zeros_like"
            | "ones_like"
            | "full"
            | "full_like"
            | "new_zeros"
            | "new_ones"
            | "new_full"
            | "arange"
            | "linspace"
            | "eye"
            | "scalar_tensor"
            | "masked_fill"
            | "where"
            | "cat"
            | "stack"
            | "concat"
            | "repeat"
            | "repeat_interleave"
            | "roll"
            | "flip"
            | "constant_pad_nd"
            | "slice_backward"
            | "select_backward"
            | "unfold_backward"
            | "slice_scatter"
            | "select_scatter"
            | "as_strided_scatter"
            | "tril"
            | "triu"
            | "convert_element_type"
            | "lift"
            | "pixel_shuffle"
            | "pixel_unshuffle"
            | "im2col"
            | "col2im"
            | "reflection_pad2d"
            | "reflection_pad1d"
            | "replication_pad2d"
            | "_pin_memory"
            | "resize_as"
            | "block_diag"
            | "tril_indices"
            | "triu_indices"
            | "diag_embed"
            | "diagonal_backward"
            | "view_copy"
            | "expand_copy"
            | "permute_copy"
            | "channel_shuffle"
            | "native_channel_shuffle"
            | "meshgrid"
    );
    let has_shapes = operator.input_tensors().next().is_some() || !operator.outputs.is_empty();
    (known && has_shapes).then_some(0.0)
}

pub(super) fn launch(operator: &Operator, bytes: f64, kernels: &mut Kernels) {
    let kind = if changes_layout(operator) { stream::Kind::Transpose } else { stream::Kind::Copy };
    kernels.stream(kind, bytes);
}

/// Whether adjacent elements of the output are not adjacent in an input of the same size. A
/// dimension of stride 0 is broadcast: its one element stays in the cache.
pub(super) fn changes_layout(operator: &Operator) -> bool {
    let last_stride = |tensor: &Tensor| {
        let strides = tensor.strides.as_ref()?;
        let innermost = tensor.shape.iter().zip(strides).rev().find(|(size, _)| **size > 1)?;
        Some(*innermost.1)
    };
    let Some(output) = operator.outputs.first() else { return false };
    let output_stride = last_stride(output).unwrap_or(1);
    let mut strides = operator
        .input_tensors()
        .filter(|tensor| tensor.elements() > 1.0)
        .map(|tensor| last_stride(tensor).unwrap_or(1));
    strides.any(|stride| stride != 0 && stride != output_stride)
}
