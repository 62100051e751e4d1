//! Gather, scatter, sort and search.

use super::{Kernels, moved_bytes, stream};
use crate::operator::{Operator, Tensor};

pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    kind(name)?;
    operator.input_tensors().next()?;
    Some(0.0)
}

fn kind(name: &str) -> Option<stream::Kind> {
    Some(match name {
        "index" | "index_select" | "gather" | "take" | "take_along_dim" | "_unsafe_index"
        | "masked_select" | "nonzero" | "searchsorted" | "bucketize" => stream::Kind::Gather,
        "index_put"
        | "index_put_"
        | "_index_put_impl_"
        | "_unsafe_index_put"
        | "index_add"
        | "index_add_"
        | "index_copy"
        | "index_copy_"
        | "index_fill"
        | "index_fill_"
        | "scatter"
        | "scatter_"
        | "scatter_add"
        | "scatter_add_"
        | "scatter_reduce"
        | "scatter_reduce_"
        | "index_select_backward"
        | "gather_backward"
        | "masked_scatter"
        | "masked_scatter_"
        | "_unsafe_masked_index"
        | "_unsafe_masked_index_put_accumulate"
        | "one_hot" => stream::Kind::Scatter,
        "sort" | "argsort" | "topk" | "kthvalue" | "unique" | "_unique2" | "unique_dim"
        | "unique_consecutive" | "multinomial" | "randperm" => stream::Kind::Sort,
        _ => return None,
    })
}

/// Returns the bytes moved. A gather reads as many elements as it writes, not the whole source.
pub(super) fn bytes(name: &str, operator: &Operator) -> Option<f64> {
    if kind(name) != Some(stream::Kind::Gather) || operator.outputs.is_empty() {
        return moved_bytes(operator);
    }
    let outputs: f64 = operator.outputs.iter().map(Tensor::bytes).sum::<Option<f64>>()?;
    let indices = operator.input_tensors().skip(1).map(Tensor::bytes).sum::<Option<f64>>()?;
    Some(2.0 * outputs + indices)
}

pub(super) fn launch(name: &str, bytes: f64, kernels: &mut Kernels) {
    let Some(kind) = kind(name) else { return };
    kernels.stream(kind, bytes);
}
