//! Determines which operators a compiler fuses into one kernel, from their order and shapes.
//!
//! Consecutive elementwise operators, norms and reductions on the same elements become one kernel,
//! and intermediate results stay in registers (Ansel et al., ASPLOS 2024, section 4.3). Operator
//! lists do not identify tensors, so an operator on a tensor of the same size is assumed to consume
//! the previous result.

use ridgeline_operators::op_cost::{self, Family};
use ridgeline_operators::operator::{Operator, Tensor};

use super::once::Once;

/// The role of an operator in fusion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fusion {
    /// Runs separately: a matrix multiplication, a sort.
    Apart,
    /// Is the first of a kernel, and pays for reading and writing.
    Opens,
    /// Joins the previous operator's kernel. This share of its bytes still has to be read, because
    /// it does not come from that kernel.
    Joins(f64),
    /// Casts a weight for the matrix multiplication that follows.
    CastsWeight,
}

/// Returns the role of each operator, in order of execution.
pub fn fusions(operators: &[&Operator]) -> Vec<Fusion> {
    // Output elements of the open kernel. None is open after a matrix multiplication.
    let mut open: Option<f64> = None;
    let mut found = Vec::with_capacity(operators.len());
    let mut once = Once::new();
    for operator in operators.iter().copied() {
        let (family, elements) =
            once.of(operator, |operator| (family(operator), output_elements(operator)));
        if family == Family::View {
            found.push(Fusion::Apart);
            continue;
        }
        if !is_fusible(family) {
            open = None;
            found.push(Fusion::Apart);
            continue;
        }
        let consumes = |open: f64| operator.input_tensors().any(|input| input.elements() == open);
        match open {
            Some(size) if consumes(size) && elements <= size => {
                found.push(Fusion::Joins(extra_read_share(operator, size)));
                open = Some(elements);
            }
            _ if is_cast(operator)
                && elements < open.unwrap_or(f64::INFINITY)
                && is_small(operator) =>
            {
                found.push(Fusion::CastsWeight);
            }
            _ => {
                found.push(Fusion::Opens);
                open = Some(elements);
            }
        }
    }
    found
}

fn family(operator: &Operator) -> Family {
    op_cost::work(operator).map_or(Family::Unknown, |work| work.family)
}

/// Returns the number of output elements.
fn output_elements(operator: &Operator) -> f64 {
    operator.outputs.first().map_or_else(
        || operator.input_tensors().map(Tensor::elements).fold(0.0, f64::max),
        Tensor::elements,
    )
}

fn is_fusible(family: Family) -> bool {
    matches!(
        family,
        Family::Elementwise | Family::Norm | Family::Softmax | Family::Reduction | Family::Copy
    )
}

fn is_cast(operator: &Operator) -> bool {
    operator.base_name() == Some("_to_copy")
}

/// Whether the output is small enough to be a weight. Even in the largest layers, weights have
/// fewer elements than this.
fn is_small(operator: &Operator) -> bool {
    const MAX_ELEMENTS: f64 = 3e7;
    operator.outputs.first().is_some_and(|output| output.elements() < MAX_ELEMENTS)
}

/// Returns the share of an operator's bytes that it reads from elsewhere than the kernel that it
/// joins.
fn extra_read_share(operator: &Operator, flowing_elements: f64) -> f64 {
    let bytes = |tensor: &Tensor| tensor.bytes().unwrap_or(4.0 * tensor.elements());
    let all: f64 = operator.input_tensors().chain(&operator.outputs).map(bytes).sum();
    let mut flowed = false;
    let extra: f64 = operator
        .input_tensors()
        .filter(|input| {
            let is_flowing = !flowed && input.elements() == flowing_elements;
            flowed |= is_flowing;
            !is_flowing
        })
        .map(bytes)
        .sum();
    if all > 0.0 { (extra / all).clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_operators::operator::{Arg, ElementType};

    fn tensor(shape: &[u64]) -> Tensor {
        Tensor::new(ElementType::Float16, shape)
    }

    fn operator(name: &str, inputs: &[&[u64]], output: &[u64]) -> Operator {
        let inputs = inputs.iter().map(|shape| Arg::Tensor(tensor(shape))).collect();
        Operator::new(name, inputs, vec![tensor(output)])
    }

    const MAP: &[u64] = &[8, 16, 4, 4];
    const WEIGHT: &[u64] = &[16, 16, 3, 3];

    fn check(operators: &[Operator], expected: &[Fusion]) {
        let operators: Vec<&Operator> = operators.iter().collect();
        assert_eq!(fusions(&operators), expected);
    }

    #[test]
    fn operators_after_a_convolution_become_one_kernel() {
        check(
            &[
                operator("aten::convolution", &[MAP, WEIGHT], MAP),
                operator("aten::relu", &[MAP], MAP),
                operator("aten::add.Tensor", &[MAP, MAP], MAP),
                operator("aten::convolution", &[MAP, WEIGHT], MAP),
                operator("aten::relu", &[MAP], MAP),
            ],
            &[Fusion::Apart, Fusion::Opens, Fusion::Joins(1.0 / 3.0), Fusion::Apart, Fusion::Opens],
        );
    }

    #[test]
    fn weight_casts_keep_the_kernel_open() {
        let small: &[u64] = &[16, 16];
        check(
            &[
                operator("aten::relu", &[MAP], MAP),
                operator("aten::_to_copy", &[small], small),
                operator("aten::mul.Scalar", &[MAP], MAP),
            ],
            &[Fusion::Opens, Fusion::CastsWeight, Fusion::Joins(0.0)],
        );
    }

    #[test]
    fn a_mean_joins_and_broadcasting_it_opens_a_kernel() {
        let pooled: &[u64] = &[8, 16, 1, 1];
        check(
            &[
                operator("aten::relu", &[MAP], MAP),
                operator("aten::mean.dim", &[MAP], pooled),
                operator("aten::sigmoid", &[pooled], pooled),
                operator("aten::mul.Tensor", &[MAP, pooled], MAP),
            ],
            &[Fusion::Opens, Fusion::Joins(0.0), Fusion::Joins(0.0), Fusion::Opens],
        );
    }
}
