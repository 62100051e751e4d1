//! Which operators a compiler makes one kernel of, by their order and their shapes.
//!
//! Operators that work on each element by itself, norms and reductions that follow one another on
//! the same elements become one kernel: what flows from one to the next stays in registers
//! (Ansel et al., ASPLOS 2024, section 4.3). Operator lists do not say which tensor is which, so that
//! what follows on a tensor of the same size is taken to follow on it.

use ridgeline_operators::op_cost::{self, Family};
use ridgeline_operators::operator::{Operator, Tensor};

use super::once::Once;

/// What becomes of an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fusion {
    /// It runs by itself: a product, a sort.
    Apart,
    /// It is the first of a kernel, and pays for reading and writing.
    Opens,
    /// It joins the kernel before it. This share of its bytes still has to be read: what does not
    /// come from that kernel.
    Joins(f64),
    /// A weight is cast for the product that follows.
    CastsWeight,
}

/// By operator, in the order in which they run.
pub fn fusions(operators: &[&Operator]) -> Vec<Fusion> {
    // Elements of what the open kernel gives; nothing is open after a product.
    let mut open: Option<f64> = None;
    let mut found = Vec::with_capacity(operators.len());
    let mut once = Once::new();
    for operator in operators.iter().copied() {
        let (family, elements) = once.of(operator, |operator| (family(operator), given(operator)));
        if family == Family::View {
            found.push(Fusion::Apart);
            continue;
        }
        if !is_fusible(family) {
            open = None;
            found.push(Fusion::Apart);
            continue;
        }
        let flows = |open: f64| operator.input_tensors().any(|input| input.elements() == open);
        match open {
            Some(size) if flows(size) && elements <= size => {
                found.push(Fusion::Joins(read_besides(operator, size)));
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

/// Elements that an operator gives.
fn given(operator: &Operator) -> f64 {
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

/// Weights have no batch; even the largest layers have fewer elements than this.
fn is_small(operator: &Operator) -> bool {
    const MOST_ELEMENTS: f64 = 3e7;
    operator.outputs.first().is_some_and(|output| output.elements() < MOST_ELEMENTS)
}

/// The share of its bytes that an operator reads from elsewhere than the kernel which it joins.
fn read_besides(operator: &Operator, flowing: f64) -> f64 {
    let bytes = |tensor: &Tensor| tensor.bytes().unwrap_or(4.0 * tensor.elements());
    let all: f64 = operator.input_tensors().chain(&operator.outputs).map(bytes).sum();
    let mut flowed = false;
    let besides: f64 = operator
        .input_tensors()
        .filter(|input| {
            let is_flowing = !flowed && input.elements() == flowing;
            flowed |= is_flowing;
            !is_flowing
        })
        .map(bytes)
        .sum();
    if all > 0.0 { (besides / all).clamp(0.0, 1.0) } else { 0.0 }
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
    fn what_follows_a_convolution_is_one_kernel_that_reads_what_comes_from_elsewhere() {
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
    fn the_cast_of_a_weight_leaves_the_kernel_open() {
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
    fn a_mean_joins_and_what_it_is_spread_over_is_read_again() {
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
