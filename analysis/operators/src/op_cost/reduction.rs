//! Sums, means, minima and maxima: one kernel that reads the input. The output is small in
//! comparison.

use crate::operator::{Operator, Tensor};

/// Counts one operation per input element.
pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let known = matches!(
        name,
        "sum"
            | "mean"
            | "nansum"
            | "amax"
            | "amin"
            | "aminmax"
            | "max"
            | "min"
            | "argmax"
            | "argmin"
            | "norm"
            | "linalg_vector_norm"
            | "var"
            | "var_mean"
            | "std"
            | "std_mean"
            | "all"
            | "any"
            | "prod"
            | "cumsum"
            | "cumprod"
            | "logsumexp"
            | "count_nonzero"
            | "sum_to_size"
            | "mode"
            | "median"
            | "logcumsumexp"
            | "cummax"
            | "cummin"
            | "linalg_norm"
            | "equal"
            | "bincount"
            | "histc"
            | "cosine_similarity"
    );
    known.then_some(operator.input_tensors().next().map(Tensor::elements)?)
}
