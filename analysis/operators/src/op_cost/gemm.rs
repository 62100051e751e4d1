//! Matrix multiplications, single and batched: one tiled kernel.

use super::matmul::{Kind, Matmul};
use super::{Context, Kernels, moved_bytes};
use crate::operator::{ElementType, Operator, Tensor, elements};

/// A matrix multiplication: `[batch, rows, inner] x [batch, inner, columns]`.
pub(super) struct Matrices {
    batch: f64,
    rows: f64,
    columns: f64,
    inner: f64,
}

/// Counts two operations per multiplication.
pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let Matrices { batch, rows, columns, inner } = matrices(name, operator)?;
    Some(2.0 * batch * rows * columns * inner)
}

fn matrices(name: &str, operator: &Operator) -> Option<Matrices> {
    let shape = |index| operator.shape(index);
    match name {
        "mm" | "bmm" | "matmul" | "mv" | "dot" | "vdot" | "inner" => matmul(shape(0)?, shape(1)?),
        "_scaled_mm" | "_int_mm" => matmul(shape(0)?, shape(1)?),
        "addmm" | "addmm_" | "baddbmm" | "baddbmm_" | "addbmm" | "addmv" | "_addmm_activation" => {
            matmul(shape(1)?, shape(2)?)
        }
        "linear" | "mkldnn_linear" | "_linear" => {
            let (input, weight) = (shape(0)?, shape(1)?);
            let (inner, rows) = input.split_last()?;
            let columns = *weight.first()? as f64;
            Some(Matrices { batch: 1.0, rows: elements(rows), columns, inner: *inner as f64 })
        }
        _ => None,
    }
}

/// Returns the sizes of a `torch.matmul`: matrices in the last two dimensions, batch dimensions
/// before, which broadcast.
fn matmul(a: &[u64], b: &[u64]) -> Option<Matrices> {
    let (rows, inner, a_batch) = match a {
        [inner] => (1, *inner, &[][..]),
        [batch @ .., rows, inner] => (*rows, *inner, batch),
        [] => return None,
    };
    let (columns, b_batch) = match b {
        [_] => (1, &[][..]),
        [batch @ .., _, columns] => (*columns, batch),
        [] => return None,
    };
    let batch = elements(a_batch).max(elements(b_batch));
    let (rows, columns, inner) = (rows as f64, columns as f64, inner as f64);
    Some(Matrices { batch, rows, columns, inner })
}

pub(super) fn launch(name: &str, operator: &Operator, context: &Context, kernels: &mut Kernels) {
    let Some(Matrices { batch, rows, columns, inner }) = matrices(name, operator) else { return };
    let element = operator.element().unwrap_or(ElementType::Float32);
    kernels.matmul(Matmul {
        kind: if batch > 1.0 { Kind::Batched } else { Kind::Matrix },
        batch,
        rows,
        columns,
        inner,
        element,
        tf32: context.options.tf32_matmuls,
        bytes: moved_bytes(operator).unwrap_or(0.0),
        aligned: is_aligned(operator, element),
    });
}

/// Whether every row of the matrices starts at a multiple of 16 bytes.
fn is_aligned(operator: &Operator, element: ElementType) -> bool {
    let multiple = (16.0 / element.bytes()) as i64;
    let mut matrices = operator.input_tensors().chain(&operator.outputs);
    matrices.all(|tensor| row_length(tensor).is_none_or(|length| length % multiple == 0))
}

/// Returns the distance between rows in elements. In a transposed matrix, rows are columns in
/// memory. Returns `None` for a tensor that is not a matrix.
fn row_length(tensor: &Tensor) -> Option<i64> {
    let [.., rows, columns] = tensor.shape.as_slice() else { return None };
    if *rows <= 1 || *columns <= 1 {
        return None;
    }
    match tensor.strides.as_deref() {
        Some([.., one, other]) => Some(*one.max(other)),
        _ => i64::try_from(*columns).ok(),
    }
}
