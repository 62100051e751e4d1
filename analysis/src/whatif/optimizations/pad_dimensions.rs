//! Sizes of matrices padded to multiples of what tensor cores want: rows that begin at multiples of 16
//! bytes (NVIDIA, "Matrix Multiplication Background User's Guide", section 3; the deep learning
//! performance guide on vocabularies and channels).

use super::shared::exchange::exchange;
use super::shared::lines;
use super::shared::retyped::each_tensor;
use crate::predict::op_cost::{Family, work};
use crate::predict::operator::{ElementType, Operator};
use crate::whatif::calls::{calls, has_kernels};
use crate::whatif::facts::Facts;
use crate::whatif::graph::Graph;
use crate::whatif::optimization::{Bound, Optimization, Touched};

pub(super) struct PadDimensions;

impl Optimization for PadDimensions {
    fn name(&self) -> &'static str {
        "pad-dimensions"
    }

    fn title(&self) -> &'static str {
        "Sizes padded for tensor cores"
    }

    fn source(&self) -> &'static str {
        "NVIDIA, \"Matrix Multiplication Background User's Guide\", section 3"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Touched, String> {
        let is_old = facts.device.capability().is_none_or(|capability| capability < (7, 0));
        if !has_kernels(graph) || is_old {
            return Err("this device has no tensor cores that ask for it".to_owned());
        }
        let calls = calls(graph);
        if calls.is_empty() {
            return Err("the recording has no shapes of operators".to_owned());
        }
        let changed = exchange(graph, &calls, |_, operator| {
            let then = padded(operator, facts)?;
            let ratio = bound.of(facts.modelled_ratio(operator, &then));
            // Padding that costs more than it brings is left out.
            (ratio < 1.0).then_some((then, ratio))
        });
        if changed.is_empty() {
            return Err("every product on tensor cores has sizes that suit them".to_owned());
        }
        let notes = vec!["padded rows and columns have to be kept out of the results".to_owned()];
        Ok(Touched { lines: lines::of_calls(graph, changed), notes, ..Touched::default() })
    }

    fn goes_with(&self, other: &dyn Optimization) -> bool {
        !["fp8", "pad-dimensions"].contains(&other.name())
    }
}

/// The product with each size up to the next multiple of 16 bytes; nothing where none changes, or it
/// does not run on tensor cores.
fn padded(operator: &Operator, facts: &Facts<'_>) -> Option<Operator> {
    let element = operator.element()?;
    let on_tensor_cores = match element {
        ElementType::Float16 | ElementType::BFloat16 | ElementType::Float8 => true,
        ElementType::Float32 => facts.options.tf32_products,
        _ => false,
    };
    let is_product = work(operator).is_some_and(|work| work.family == Family::Gemm);
    if !on_tensor_cores || !is_product {
        return None;
    }
    let multiple = (16.0 / element.bytes()) as u64;
    let then = each_tensor(operator, &|tensor| {
        let last = tensor.shape.len().saturating_sub(2);
        tensor.shape.iter_mut().skip(last).for_each(|size| {
            *size = size.checked_next_multiple_of(multiple).unwrap_or(*size);
        });
    });
    (then != *operator).then_some(then)
}

#[cfg(test)]
mod tests {
    use super::super::shared::retyped::retyped;
    use super::super::shared::testing::{Iteration, gpu, operator};
    use super::*;
    use crate::profile::Phase;
    use crate::whatif::facts::Probes;

    fn vocabulary(words: u64, element: ElementType) -> Iteration {
        let head = operator("linear", &[&[4096, 768], &[words, 768], &[4096, words]]);
        let head = retyped(&head, ElementType::Float32, element);
        Iteration::on_gpu().call(Phase::Forward, head, 5000.0)
    }

    #[test]
    fn a_vocabulary_of_an_odd_size() {
        let device = gpu("8.0");
        let odd = vocabulary(50_257, ElementType::Float16);
        let found = odd.predict(&device, &Probes::default(), &PadDimensions).unwrap();
        assert!(found.time_ns.value < 0.9 * found.before_ns, "{found:?}");
        let why = "every product on tensor cores has sizes that suit them";
        let even = vocabulary(50_304, ElementType::Float16);
        assert_eq!(even.refusal(&device, &PadDimensions), why);
        let full = vocabulary(50_257, ElementType::Float32);
        assert_eq!(full.refusal(&device, &PadDimensions), why);
    }
}
