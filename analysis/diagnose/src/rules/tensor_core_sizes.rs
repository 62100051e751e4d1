//! `tensor-core-sizes`: matrix dimensions that are not a multiple of what tensor cores need: a
//! vocabulary of 50,257, 27 classes in a head, a head dimension of 100 (NVIDIA, "Matrix
//! Multiplication Background User's Guide", section 3).

use crate::evidence::{Evidence, Key, Work};
use crate::finding::{Cost, Finding};
use crate::line_sums::{by_line, highest_first, work_of_line};
use crate::rule::Rule;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::Operator;
use ridgeline_optimize::optimizations::pad_dimensions::{chosen_sizes, multiple};
use ridgeline_profile::Phase;

/// The minimum share of the iteration time.
const MIN_SHARE: f64 = 0.01;
/// The minimum share for convolutions, for which the savings are unknown.
const MIN_CONVOLUTION_SHARE: f64 = 0.05;
/// The maximum number of lines reported.
const MAX_LINES: usize = 5;

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
        let mut found = unaligned_matmuls(evidence).unwrap_or_default();
        found.extend(unaligned_convolutions(evidence));
        found
    }
}

fn unaligned_matmuls(evidence: &Evidence<'_>) -> Option<Vec<Finding>> {
    let tf32 = evidence.options().tf32_matmuls;
    let kernel_time = |_: &Key, done: &Work, operator: &Operator| {
        let (_, wanted) = unaligned_size(operator, tf32)?;
        // The upper limit of the savings; the what-if estimates how much of it can be saved.
        (wanted > 1).then_some(done.kernel_ns)
    };
    let unaligned = by_line(evidence, kernel_time);
    let total_ns: f64 = unaligned.values().sum();
    if evidence.share(total_ns) < MIN_SHARE {
        return None;
    }
    let saved_ns = evidence.what_if("pad-dimensions")?.time_ns;
    let lines = highest_first(unaligned).into_iter().take(MAX_LINES);
    let found = lines.filter_map(|((file, line), time_ns)| {
        let cost_ns = saved_ns * time_ns / total_ns;
        // The message names the size of the forward pass, as in the code.
        let (size, wanted) = work_of_line(evidence, (file, line))
            .filter(|(key, _)| key.2 != Phase::Backward)
            .max_by(|a, b| a.1.kernel_ns.total_cmp(&b.1.kernel_ns))
            .and_then(|(key, _)| unaligned_size(evidence.operator(key)?, tf32))?;
        (evidence.share(cost_ns) >= MIN_SHARE).then(|| Finding {
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

/// A dimension of a matrix multiplication that is not aligned, and the required multiple.
fn unaligned_size(operator: &Operator, tf32: bool) -> Option<(u64, u64)> {
    let multiple = multiple(operator, tf32)?;
    first_unaligned(chosen_sizes(operator), multiple).map(|size| (size, multiple))
}

/// The first unaligned size above the multiple. A single column is a dot product, and an image has
/// three channels: below the multiple, tensor cores do not help.
fn first_unaligned(sizes: Vec<u64>, multiple: u64) -> Option<u64> {
    sizes.into_iter().find(|size| *size > multiple && size % multiple != 0)
}

/// Convolutions with unaligned channels. Libraries pad some of them internally, and no model here
/// knows which: the cost is not reported.
fn unaligned_convolutions(evidence: &Evidence<'_>) -> Vec<Finding> {
    let time = by_line(evidence, |key, done, operator| {
        let is_unaligned = key.2 == Phase::Forward && unaligned_channels(operator).is_some();
        is_unaligned.then_some(done.kernel_ns)
    });
    let lines = highest_first(time).into_iter().take(MAX_LINES);
    let lines = lines.filter(|(_, time_ns)| evidence.share(*time_ns) >= MIN_CONVOLUTION_SHARE);
    let found = lines.filter_map(|((file, line), _)| {
        let unaligned = work_of_line(evidence, (file, line))
            .filter(|(key, _)| key.2 == Phase::Forward)
            .filter_map(|(key, work)| Some((unaligned_channels(evidence.operator(key)?)?, work)))
            .max_by(|a, b| a.1.kernel_ns.total_cmp(&b.1.kernel_ns));
        let ((channels, wanted), _) = unaligned?;
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

/// The output channels of a convolution if they are not aligned, and the required multiple. The
/// input channels come from the layer before, or from the data.
fn unaligned_channels(operator: &Operator) -> Option<(u64, u64)> {
    let is_convolution = work(operator)?.family == Family::Convolution;
    let given = operator.shape(1).filter(|weight| is_convolution && weight.get(1) > Some(&1))?;
    let channels = *operator.outputs.first()?.shape.get(1).filter(|_| given.len() > 2)?;
    // In FP32, libraries also have kernels without tensor cores.
    let multiple = multiple(operator, false)?;
    first_unaligned(vec![channels], multiple).map(|size| (size, multiple))
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
    fn unaligned_vocabulary() {
        let found = head(50_257, ElementType::Float16).measured(&TensorCoreSizes);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 4);
        assert!(found[0].message.contains("50257"), "{}", found[0].message);
        assert!(found[0].why.contains("50264"), "{}", found[0].why);
        let cost = found[0].cost.unwrap();
        assert!(cost.is_predicted && cost.time_ns > 0.05 * 5e6 && cost.time_ns < 5e6, "{cost:?}");
    }

    #[test]
    fn aligned_sizes_and_other_dtypes_are_not_reported() {
        assert!(head(50_304, ElementType::Float16).measured(&TensorCoreSizes).is_empty());
        assert!(head(50_257, ElementType::Float32).measured(&TensorCoreSizes).is_empty());
        assert!(head(50_257, ElementType::Float64).measured(&TensorCoreSizes).is_empty());
    }

    #[test]
    fn batch_rows_and_single_columns_are_not_reported() {
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
    fn sequence_length_is_not_reported() {
        let half = |shapes: &[&[u64]]| of_type(ElementType::Float16, "bmm", shapes);
        let found = |head: u64| {
            let (rows, columns) = ([96, 197, head], [96, head, 197]);
            let scores = half(&[&rows, &columns, &[96, 197, 197]]);
            let case = Case::new(TEXT).on_gpu().call(3, Phase::Forward, &scores, 900.0);
            case.measured(&TensorCoreSizes)
        };
        assert_eq!(found(64), []);
    }

    /// A convolution with this many input and output channels.
    fn convolution(from: u64, to: u64, element: ElementType, work_us: f64) -> Case {
        let shapes: [&[u64]; 3] = [&[32, from, 56, 56], &[to, from, 3, 3], &[32, to, 56, 56]];
        let large = operator("add", &[&[1 << 22], &[1 << 22], &[1 << 22]]);
        Case::new(TEXT)
            .on_gpu()
            .call(3, Phase::Forward, &of_type(element, "conv2d", &shapes), work_us)
            .call(4, Phase::Forward, &large, 500.0)
    }

    #[test]
    fn unaligned_convolution_channels() {
        let half = ElementType::Float16;
        let found = convolution(64, 100, half, 500.0).measured(&TensorCoreSizes);
        assert_eq!((found.len(), found[0].at.line, found[0].cost), (1, 3, None));
        assert!(found[0].message.contains("100") && found[0].why.contains("104"), "{found:?}");
        assert!(convolution(64, 96, half, 500.0).measured(&TensorCoreSizes).is_empty());
        // Channels of the data, an image as output, and depthwise channels.
        assert!(convolution(27, 64, half, 500.0).measured(&TensorCoreSizes).is_empty());
        assert!(convolution(64, 3, half, 500.0).measured(&TensorCoreSizes).is_empty());
        assert!(convolution(1, 100, half, 500.0).measured(&TensorCoreSizes).is_empty());
        // Little time, and another dtype.
        assert!(convolution(64, 100, half, 5.0).measured(&TensorCoreSizes).is_empty());
        let single = convolution(64, 100, ElementType::Float32, 500.0);
        assert!(single.measured(&TensorCoreSizes).is_empty());
    }

    #[test]
    fn small_costs_are_not_reported() {
        let large = operator("add", &[&[1 << 22], &[1 << 22], &[1 << 22]]);
        let example = head(50_257, ElementType::Float16).call(3, Phase::Forward, &large, 900_000.0);
        assert!(example.measured(&TensorCoreSizes).is_empty());
    }
}
