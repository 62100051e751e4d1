//! `tensor-core-sizes`: matrices whose sizes are off the multiples that tensor cores want: a vocabulary
//! of 50,257, 27 classes of a head, heads of 100 numbers (NVIDIA, "Matrix Multiplication Background User's
//! Guide", section 3).

use crate::evidence::{Evidence, Key, Work};
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use crate::tally::{by_line, highest_first, of_line};
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::Operator;
use ridgeline_optimize::optimizations::pad_dimensions::{chosen_sizes, multiple};
use ridgeline_profile::Phase;

/// A smaller share of the iteration is not worth other sizes.
const LEAST: f64 = 0.01;
/// The same of convolutions, of which is not known what other sizes would save.
const LEAST_OF_CONVOLUTIONS: f64 = 0.05;
/// Lines that are told.
const MOST: usize = 5;

pub(super) struct TensorCoreSizes;

impl Rule for TensorCoreSizes {
    fn name(&self) -> &'static str {
        "tensor-core-sizes"
    }

    fn title(&self) -> &'static str {
        "Dimensions not aligned for tensor cores"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        if !evidence.on_gpu() {
            return Vec::new();
        }
        let mut found = of_products(evidence).unwrap_or_default();
        found.extend(of_convolutions(evidence));
        found
    }
}

fn of_products(evidence: &Evidence<'_>) -> Option<Vec<Finding>> {
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
            message: format!("A matrix dimension of {size} is not a multiple of {wanted}"),
            why: format!(
                "Tensor cores need 16-byte aligned rows. With a size of {} (or the next multiple \
                of 64) this GEMM runs at full speed; ignore the padding in the results.",
                size.next_multiple_of(wanted)
            ),
            cost: Some(Cost::time(cost_ns).predicted()),
            ..Finding::default()
        })
    });
    Some(found.collect())
}

/// A size of a product that is off the multiple, and the multiple.
fn odd_size(operator: &Operator, tf32: bool) -> Option<(u64, u64)> {
    let multiple = multiple(operator, tf32)?;
    first_odd(chosen_sizes(operator), multiple).map(|size| (size, multiple))
}

/// A column alone is a dot product, and a picture has its three colours: no tensor core helps with fewer
/// than the multiple.
fn first_odd(sizes: Vec<u64>, multiple: u64) -> Option<u64> {
    sizes.into_iter().find(|size| *size > multiple && size % multiple != 0)
}

/// Convolutions with channels off the multiple. Libraries fill some of them up by themselves, and no model
/// here knows for which: what it costs is not told.
fn of_convolutions(evidence: &Evidence<'_>) -> Vec<Finding> {
    let time = by_line(evidence, |key, done, operator| {
        let is_odd = key.2 == Phase::Forward && odd_channels(operator).is_some();
        is_odd.then_some(done.kernel_ns)
    });
    let lines = highest_first(time).into_iter().take(MOST);
    let lines = lines.filter(|(_, time_ns)| evidence.share(*time_ns) >= LEAST_OF_CONVOLUTIONS);
    let found = lines.filter_map(|((file, line), _)| {
        let odd = of_line(evidence, (file, line))
            .filter(|(key, _)| key.2 == Phase::Forward)
            .filter_map(|(key, work)| Some((odd_channels(evidence.operator(key)?)?, work)))
            .max_by(|a, b| a.1.kernel_ns.total_cmp(&b.1.kernel_ns));
        let ((channels, wanted), _) = odd?;
        Some(Finding {
            rule: "tensor-core-sizes",
            at: evidence.place(file, line),
            message: format!("{channels} convolution channels are not a multiple of {wanted}"),
            why: format!(
                "Tensor cores need 16-byte aligned channels. With {} channels cuDNN can use its \
                fastest kernels without padding.",
                channels.next_multiple_of(wanted)
            ),
            ..Finding::default()
        })
    });
    found.collect()
}

/// The channels that a convolution gives, where they are off the multiple, and the multiple. Those that it
/// is given come from the layer before, or from the data.
fn odd_channels(operator: &Operator) -> Option<(u64, u64)> {
    let is_one = work(operator)?.family == Family::Convolution;
    let given = operator.shape(1).filter(|weight| is_one && weight.get(1) > Some(&1))?;
    let channels = *operator.outputs.first()?.shape.get(1).filter(|_| given.len() > 2)?;
    // In single precision libraries have kernels outside of tensor cores to choose from.
    let multiple = multiple(operator, false)?;
    first_odd(vec![channels], multiple).map(|size| (size, multiple))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, of_type, operator};
    use ridgeline_operators::operator::ElementType;

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
    fn the_length_of_a_sequence_is_no_choice() {
        let half = |shapes: &[&[u64]]| of_type(ElementType::Float16, "bmm", shapes);
        let found = |head: u64| {
            let (rows, columns) = ([96, 197, head], [96, head, 197]);
            let scores = half(&[&rows, &columns, &[96, 197, 197]]);
            let case = Case::new(TEXT).on_gpu().call(3, Phase::Forward, &scores, 900.0);
            case.measured(&TensorCoreSizes)
        };
        assert_eq!(found(64), []);
    }

    /// A convolution with so many channels in and out.
    fn convolution(from: u64, to: u64, element: ElementType, work_us: f64) -> Case {
        let shapes: [&[u64]; 3] = [&[32, from, 56, 56], &[to, from, 3, 3], &[32, to, 56, 56]];
        let large = operator("add", &[&[1 << 22], &[1 << 22], &[1 << 22]]);
        Case::new(TEXT)
            .on_gpu()
            .call(3, Phase::Forward, &of_type(element, "conv2d", &shapes), work_us)
            .call(4, Phase::Forward, &large, 500.0)
    }

    #[test]
    fn channels_of_a_convolution() {
        let half = ElementType::Float16;
        let found = convolution(64, 100, half, 500.0).measured(&TensorCoreSizes);
        assert_eq!((found.len(), found[0].at.line, found[0].cost), (1, 3, None));
        assert!(found[0].message.contains("100") && found[0].why.contains("104"), "{found:?}");
        assert!(convolution(64, 96, half, 500.0).measured(&TensorCoreSizes).is_empty());
        // What the data has, a picture out, and each channel by itself.
        assert!(convolution(27, 64, half, 500.0).measured(&TensorCoreSizes).is_empty());
        assert!(convolution(64, 3, half, 500.0).measured(&TensorCoreSizes).is_empty());
        assert!(convolution(1, 100, half, 500.0).measured(&TensorCoreSizes).is_empty());
        // Little time, and another type.
        assert!(convolution(64, 100, half, 5.0).measured(&TensorCoreSizes).is_empty());
        let single = convolution(64, 100, ElementType::Float32, 500.0);
        assert!(single.measured(&TensorCoreSizes).is_empty());
    }

    #[test]
    fn what_takes_little_is_not_told() {
        let large = operator("add", &[&[1 << 22], &[1 << 22], &[1 << 22]]);
        let example = head(50_257, ElementType::Float16).call(3, Phase::Forward, &large, 900_000.0);
        assert!(example.measured(&TensorCoreSizes).is_empty());
    }
}
