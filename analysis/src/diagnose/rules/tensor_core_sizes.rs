//! `tensor-core-sizes`: matrices whose sizes are off the multiples that tensor cores want: a vocabulary
//! of 50,257, 27 classes of a head, heads of 100 numbers (NVIDIA, "Matrix Multiplication Background User's
//! Guide", section 3).

use crate::diagnose::evidence::{Evidence, Key, Work};
use crate::diagnose::finding::{Cost, Finding};
use crate::diagnose::rule::Rule;
use crate::diagnose::tally::{by_line, highest_first, of_line};
use crate::predict::op_cost::{Family, work};
use crate::predict::operator::{Arg, ElementType, Operator};
use crate::profile::Phase;

/// A smaller share of the iteration is not worth other sizes.
const LEAST: f64 = 0.01;
/// Lines that are told.
const MOST: usize = 5;

pub(super) struct TensorCoreSizes;

impl Rule for TensorCoreSizes {
    fn name(&self) -> &'static str {
        "tensor-core-sizes"
    }

    fn title(&self) -> &'static str {
        "Sizes off the multiples that tensor cores want"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        find(evidence).unwrap_or_default()
    }
}

fn find(evidence: &Evidence<'_>) -> Option<Vec<Finding>> {
    if !evidence.on_gpu() {
        return None;
    }
    let tf32 = evidence.options().tf32_products;
    let of_call = |_: &Key, done: &Work, operator: &Operator| {
        let (_, wanted) = odd_size(operator, tf32)?;
        // What may be won at most is the whole of it; how much of it, the what-if says.
        (wanted > 1).then_some(done.kernel_ns)
    };
    let odd = by_line(evidence, of_call);
    let total_ns: f64 = odd.values().sum();
    if evidence.share(total_ns) < LEAST {
        return None;
    }
    let saved_ns = evidence.what_if("pad-dimensions")?.time_ns;
    let lines = highest_first(odd).into_iter().take(MOST);
    let found = lines.filter_map(|((file, line), time_ns)| {
        let cost_ns = saved_ns * time_ns / total_ns;
        // Named by its forward pass, which is as it is written.
        let (size, wanted) = of_line(evidence, (file, line))
            .filter(|(key, _)| key.2 != Phase::Backward)
            .max_by(|a, b| a.1.kernel_ns.total_cmp(&b.1.kernel_ns))
            .and_then(|(key, _)| odd_size(evidence.operator(key)?, tf32))?;
        (evidence.share(cost_ns) >= LEAST).then(|| Finding {
            rule: "tensor-core-sizes",
            at: evidence.place(file, line),
            message: format!("A matrix has a size of {size}, which is no multiple of {wanted}"),
            why: format!(
                "Tensor cores read rows in pieces of 16 bytes. With a size of {} (or the next multiple of \
                 64) this product runs at full speed; keep what is added out of the results.",
                size.next_multiple_of(wanted)
            ),
            cost: Some(Cost::time(cost_ns).predicted()),
            ..Finding::default()
        })
    });
    Some(found.collect())
}

/// A size of a weight, or the width of a batch of matrices, that is off the multiple, and the
/// multiple. The number of rows comes from the batch, and is left alone.
fn odd_size(operator: &Operator, tf32: bool) -> Option<(u64, u64)> {
    let multiple = match operator.element()? {
        ElementType::Float16 | ElementType::BFloat16 => 8,
        ElementType::Float8 => 16,
        ElementType::Float32 if tf32 => 4,
        _ => return None,
    };
    if work(operator)?.family != Family::Gemm {
        return None;
    }
    let matrices = operator.inputs.iter().filter_map(|input| match input {
        Arg::Tensor(tensor) if tensor.shape.len() >= 2 => Some(tensor.shape.as_slice()),
        _ => None,
    });
    let mut sizes = matrices.skip(1).flat_map(|shape| shape.iter().rev().take(2));
    // A column alone is a dot product, which no tensor core helps.
    sizes.find(|size| **size > multiple && **size % multiple != 0).map(|size| (*size, multiple))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::harness::{Case, of_type, operator};

    const TEXT: &str = "import torch\n\ny = body(x)\nlogits = head(y)\n";

    fn head(words: u64, element: ElementType) -> Case {
        let head = of_type(element, "linear", &[&[4096, 768], &[words, 768], &[4096, words]]);
        let body = of_type(element, "linear", &[&[4096, 768], &[768, 768], &[4096, 768]]);
        Case::new(TEXT).on_gpu().call(3, Phase::Forward, &body, 500.0).call(
            4,
            Phase::Forward,
            &head,
            5000.0,
        )
    }

    #[test]
    fn a_vocabulary_of_an_odd_size() {
        let found = head(50_257, ElementType::Float16).measured(&TensorCoreSizes);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 4);
        assert!(found[0].message.contains("50257"), "{}", found[0].message);
        assert!(found[0].why.contains("50264"), "{}", found[0].why);
        let cost = found[0].cost.unwrap();
        assert!(cost.is_predicted && cost.time_ns > 0.05 * 5e6 && cost.time_ns < 5e6, "{cost:?}");
    }

    #[test]
    fn sizes_that_suit_and_types_that_do_not_care() {
        assert!(head(50_304, ElementType::Float16).measured(&TensorCoreSizes).is_empty());
        assert!(head(50_257, ElementType::Float32).measured(&TensorCoreSizes).is_empty());
        assert!(head(50_257, ElementType::Float64).measured(&TensorCoreSizes).is_empty());
    }

    #[test]
    fn rows_of_the_batch_and_single_columns_are_left_alone() {
        let odd_rows =
            of_type(ElementType::Float16, "linear", &[&[4099, 768], &[768, 768], &[4099, 768]]);
        let one = of_type(ElementType::Float16, "linear", &[&[4096, 768], &[1, 768], &[4096, 1]]);
        let example = Case::new(TEXT).on_gpu().call(3, Phase::Forward, &odd_rows, 900.0).call(
            4,
            Phase::Forward,
            &one,
            900.0,
        );
        assert!(example.measured(&TensorCoreSizes).is_empty());
    }

    #[test]
    fn what_takes_little_is_not_told() {
        let large = operator("add", &[&[1 << 22], &[1 << 22], &[1 << 22]]);
        let example = head(50_257, ElementType::Float16).call(3, Phase::Forward, &large, 900_000.0);
        assert!(example.measured(&TensorCoreSizes).is_empty());
    }
}
