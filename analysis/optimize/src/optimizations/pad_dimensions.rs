//! Matrix dimensions padded for tensor cores: rows that start at multiples of 16 bytes (NVIDIA,
//! "Matrix Multiplication Background User's Guide", section 3; the deep learning performance guide
//! on vocabularies and channels).

use super::shared::exchange::exchange;
use super::shared::lines;
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use ridgeline_graph::calls::{calls, has_kernels};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::{Arg, ElementType, Operator};
use ridgeline_operators::retyped::each_tensor;

pub(super) struct PadDimensions;

impl Optimization for PadDimensions {
    fn name(&self) -> &'static str {
        "pad-dimensions"
    }

    fn title(&self) -> &'static str {
        "Dimensions padded for tensor cores"
    }

    fn source(&self) -> &'static str {
        "NVIDIA, \"Matrix Multiplication Background User's Guide\", section 3"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let is_old = facts.device.capability().is_none_or(|capability| capability < (7, 0));
        if !has_kernels(graph) || is_old {
            return Err("this device has no tensor cores that need alignment".to_owned());
        }
        let calls = calls(graph);
        if calls.is_empty() {
            return Err("the recording has no operator shapes".to_owned());
        }
        let changed = exchange(graph, &calls, |index, operator| {
            let padded_operator = padded(operator, facts.options.tf32_matmuls)?;
            let probed = facts.probes.ratio_to(index, &padded_operator);
            let ratio = probed.unwrap_or_else(|| facts.modelled_ratio(operator, &padded_operator));
            let ratio = bound.of(ratio);
            // Padding that costs more than it saves is skipped.
            (ratio < 1.0).then_some((padded_operator, ratio))
        });
        if changed.is_empty() {
            return Err("all matrix multiplications on tensor cores are already aligned".to_owned());
        }
        let notes = vec!["ignore padded rows and columns in the results".to_owned()];
        Ok(Effect { lines: lines::of_calls(graph, changed), notes, ..Effect::default() })
    }

    fn why_no_edit(&self) -> &'static str {
        "no automatic edit: it changes the shapes of parameters and outputs, which checkpoints, generated data and \
        sampled tokens may depend on"
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !["fp8", "pad-dimensions"].contains(&other.name())
    }
}

/// Returns the matrix multiplication with the dimensions chosen by the program padded to multiples
/// of 16 bytes. Returns `None` if no dimension changes or if it does not run on tensor cores.
pub(crate) fn padded(operator: &Operator, tf32: bool) -> Option<Operator> {
    let multiple = multiple(operator, tf32)?;
    let chosen = chosen_sizes(operator);
    let padded_operator = each_tensor(operator, &|tensor| {
        let last = tensor.shape.len().saturating_sub(2);
        let sizes = tensor.shape.iter_mut().skip(last).filter(|size| chosen.contains(size));
        sizes.for_each(|size| *size = size.checked_next_multiple_of(multiple).unwrap_or(*size));
        tensor.strides =
            tensor.strides.take().map(|strides| contiguous_strides(&tensor.shape, &strides));
    });
    (padded_operator.inputs != operator.inputs).then_some(padded_operator)
}

/// Returns contiguous strides in the dimension order of `strides`.
fn contiguous_strides(shape: &[u64], strides: &[i64]) -> Vec<i64> {
    let mut order: Vec<usize> = (0..strides.len().min(shape.len())).collect();
    order.sort_by_key(|at| (strides.get(*at).copied(), std::cmp::Reverse(*at)));
    let mut contiguous_strides = strides.to_vec();
    let mut next: i64 = 1;
    for at in order {
        let (Some(stride), Some(size)) = (contiguous_strides.get_mut(at), shape.get(at)) else {
            continue;
        };
        // Broadcast dimensions stay broadcast.
        if *stride != 0 {
            *stride = next;
            next = next.saturating_mul(i64::try_from(*size).unwrap_or(i64::MAX));
        }
    }
    contiguous_strides
}

/// Returns the number of elements in 16 bytes, which tensor cores read at a time. Returns `None`
/// for an operator that does not run on them.
pub fn multiple(operator: &Operator, tf32: bool) -> Option<u64> {
    match operator.element()? {
        ElementType::Float16 | ElementType::BFloat16 => Some(8),
        ElementType::Float8 => Some(16),
        ElementType::Float32 if tf32 => Some(4),
        _ => None,
    }
}

/// Returns the dimensions of a matrix multiplication that the program chose: those of a weight. The
/// number of rows comes from the batch. If both operands are batched, as in attention, the length
/// comes from the data and occurs twice in the scores; the program chose the other dimension.
pub fn chosen_sizes(operator: &Operator) -> Vec<u64> {
    if work(operator).is_none_or(|work| work.family != Family::Gemm) {
        return Vec::new();
    }
    let matrices = operator.inputs.iter().filter_map(|input| match input {
        Arg::Tensor(tensor) if tensor.shape.len() >= 2 => Some(tensor.shape.as_slice()),
        _ => None,
    });
    let mut matrices: Vec<&[u64]> = matrices.collect();
    // The addend comes first.
    if matrices.len() > 2 && operator.base_name().is_some_and(|name| name.contains("add")) {
        matrices.remove(0);
    }
    match matrices[..] {
        [[_, .., rows, inner], [_, .., _, columns], ..]
            if matrices.iter().take(2).all(|shape| shape.len() > 2) =>
        {
            match (rows == columns, rows == inner) {
                (true, false) => vec![*inner],
                (false, true) => vec![*columns],
                _ => Vec::new(),
            }
        }
        [_, [.., one, other], ..] => vec![*other, *one],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared::testing::{Iteration, gpu, operator};
    use super::*;
    use crate::facts::{Probes, Variant};
    use ridgeline_operators::retyped::retyped;
    use ridgeline_profile::Phase;

    fn head(size: u64, element: ElementType) -> Operator {
        let head = operator("linear", &[&[4096, 768], &[size, 768], &[4096, size]]);
        retyped(&head, ElementType::Float32, element)
    }

    fn vocabulary(size: u64, element: ElementType) -> Iteration {
        Iteration::on_gpu().call(Phase::Forward, head(size, element), 5000.0)
    }

    #[test]
    fn odd_vocabulary_sizes_are_padded() {
        let device = gpu("8.0");
        let odd = vocabulary(50_257, ElementType::Float16);
        let found = odd.predict(&device, &Probes::default(), &PadDimensions).unwrap();
        assert!(found.time_ns.value < 0.9 * found.before_ns, "{found:?}");
        let why = "all matrix multiplications on tensor cores are already aligned";
        let even = vocabulary(50_304, ElementType::Float16);
        assert_eq!(even.refusal(&device, &PadDimensions), why);
        let full = vocabulary(50_257, ElementType::Float32);
        assert_eq!(full.refusal(&device, &PadDimensions), why);
    }

    #[test]
    fn probes_take_precedence_over_the_model() {
        let odd = vocabulary(50_257, ElementType::Float16);
        let mut probes = Probes::default();
        probes.operators.insert((0, Variant::Same), 100.0);
        let even = padded(&head(50_257, ElementType::Float16), false).expect("it was odd");
        assert_eq!(even, head(50_264, ElementType::Float16));
        probes.stand_ins.push((even, 70.0));
        let found = odd.predict(&gpu("8.0"), &probes, &PadDimensions).unwrap();
        let ratio = found.time_ns.value / found.before_ns;
        assert!((0.69..0.72).contains(&ratio), "{ratio}");
    }

    #[test]
    fn padded_tensors_keep_their_dimension_order() {
        // Rows, columns, transposed, and a broadcast row.
        assert_eq!(contiguous_strides(&[8, 104], &[100, 1]), [104, 1]);
        assert_eq!(contiguous_strides(&[104, 8], &[1, 100]), [1, 104]);
        assert_eq!(contiguous_strides(&[4, 104, 8], &[800, 1, 100]), [832, 1, 104]);
        assert_eq!(contiguous_strides(&[8, 104], &[0, 1]), [0, 1]);
    }

    #[test]
    fn sequence_lengths_come_from_the_data_and_head_sizes_are_chosen() {
        let of = |name: &str, shapes: &[&[u64]]| chosen_sizes(&operator(name, shapes));
        let (rows, scores): (&[u64], &[u64]) = (&[96, 197, 100], &[96, 197, 197]);
        assert_eq!(of("bmm", &[rows, &[96, 100, 197], scores]), [100]);
        assert_eq!(of("bmm", &[scores, rows, rows]), [100]);
        assert_eq!(of("baddbmm", &[scores, rows, &[96, 100, 197], scores]), [100]);
        assert_eq!(of("bmm", &[&[96, 50, 100], &[96, 100, 197], &[96, 50, 197]]), [0; 0]);
        assert_eq!(of("matmul", &[rows, &[100, 27], &[96, 197, 27]]), [27, 100]);
        assert_eq!(of("addmm", &[&[27], &[96, 100], &[100, 27], &[96, 27]]), [27, 100]);
    }
}
