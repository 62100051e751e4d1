//! Which operators a compiler makes one kernel of, by their order and their shapes.
//!
//! Operators that work on each element by itself, norms and reductions that follow one another on
//! the same elements become one kernel: what flows from one to the next stays in registers
//! (Ansel et al., ASPLOS 2024, section 4.3). Operator lists do not say which tensor is which, so that
//! what follows on a tensor of the same size is taken to follow on it.

use crate::predict::op_cost::{self, Family};
use crate::predict::operator::{Operator, Tensor};

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
    for operator in operators {
        let family = op_cost::work(operator).map_or(Family::Unknown, |work| work.family);
        let elements = operator.outputs.first().map_or_else(
            || operator.input_tensors().map(Tensor::elements).fold(0.0, f64::max),
            Tensor::elements,
        );
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
