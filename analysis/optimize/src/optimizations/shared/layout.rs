//! channels_last: operators whose image tensors have contiguous channels.

use ridgeline_operators::operator::{Arg, Operator, Tensor};

use super::once::Once;
use super::parts::ConvolutionKind;

/// Returns the operator with its four-dimensional tensors in channels_last.
pub fn channels_last(operator: &Operator) -> Operator {
    let mut converted = operator.clone();
    let named = converted.named.iter_mut().map(|(_, arg)| arg);
    for arg in converted.inputs.iter_mut().chain(named) {
        match arg {
            Arg::Tensor(tensor) => convert(tensor),
            Arg::List(list) => list.iter_mut().for_each(|arg| {
                if let Arg::Tensor(tensor) = arg {
                    convert(tensor);
                }
            }),
            _ => {}
        }
    }
    converted.outputs.iter_mut().for_each(convert);
    converted
}

fn convert(tensor: &mut Tensor) {
    let [_, channels, height, width] = *tensor.shape.as_slice() else { return };
    let (Ok(c), Ok(h), Ok(w)) =
        (i64::try_from(channels), i64::try_from(height), i64::try_from(width))
    else {
        return;
    };
    let row = c.saturating_mul(w);
    tensor.strides = Some(vec![row.saturating_mul(h), 1, row, c]);
}

/// Whether PyTorch's compiler runs a model for inference in channels_last: if that is less work by
/// its own table of gains and losses per kind of convolution (`torch/_inductor/graph.py`,
/// `decide_layout_opt`).
pub fn compiler_takes_channels_last(operators: &[&Operator]) -> bool {
    const GROUPED: f64 = 1.358;
    const DEFAULT: f64 = 0.823;
    const FEWER_OUT: f64 = 0.725;
    const SMALL: f64 = 0.783;
    /// The maximum number of operators per convolution at which it pays off.
    const MAX_OPERATORS_PER_CONVOLUTION: usize = 300;
    // FLOPs of a convolution, and weighted FLOPs in channels_last.
    let flops_and_weighted = |operator: &Operator| -> Option<(f64, f64)> {
        ConvolutionKind::of(operator)?;
        let Some([out, of_group, window @ ..]) = operator.shape(1) else { return Some((0.0, 0.0)) };
        let grouped = operator.input(8).number().is_some_and(|groups| groups > 1.0);
        let factor = if grouped && *of_group > 1 {
            GROUPED
        } else if *out <= 64 && *of_group <= 64 {
            SMALL
        } else if out * 2 <= *of_group && window.iter().any(|side| *side > 1) {
            FEWER_OUT
        } else {
            DEFAULT
        };
        let flops = ridgeline_operators::op_cost::work(operator).map_or(0.0, |work| work.flops);
        Some((flops, flops * factor))
    };
    let mut once = Once::new();
    let mut convolutions = 0;
    let (mut flops, mut weighted) = (0.0, 0.0);
    for operator in operators.iter().copied() {
        if let Some((now, then)) = once.of(operator, flops_and_weighted) {
            convolutions += 1;
            flops += now;
            weighted += then;
        }
    }
    convolutions > 0
        && operators.len() < MAX_OPERATORS_PER_CONVOLUTION * convolutions
        && weighted <= flops
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_operators::operator::ElementType;

    fn convolution(channels: u64, groups: u64) -> Operator {
        let tensor = |shape: &[u64]| Tensor::new(ElementType::Float16, shape);
        let pair = |value: f64| Arg::List(vec![Arg::Number(value); 2]);
        let map = tensor(&[8, channels, 14, 14]);
        let inputs = vec![
            Arg::Tensor(map.clone()),
            Arg::Tensor(tensor(&[channels, channels / groups, 3, 3])),
            Arg::None,
            pair(1.0),
            pair(1.0),
            pair(1.0),
            Arg::Bool(false),
            pair(0.0),
            Arg::Number(groups as f64),
        ];
        Operator::new("aten::convolution", inputs, vec![map])
    }

    #[test]
    fn channels_become_contiguous() {
        let converted = channels_last(&convolution(128, 1));
        let input = converted.tensor(0).expect("a tensor");
        assert!(input.is_channels_last());
        assert_eq!(input.strides, Some(vec![128 * 14 * 14, 1, 128 * 14, 128]));
        assert!(converted.outputs[0].is_channels_last());
    }

    #[test]
    fn the_compiler_converts_plain_but_not_grouped_convolutions() {
        assert!(compiler_takes_channels_last(&[&convolution(128, 1)]));
        assert!(!compiler_takes_channels_last(&[&convolution(128, 8)]));
        assert!(!compiler_takes_channels_last(&[]));
    }

    #[test]
    fn absurd_shapes_do_not_panic() {
        let tensor = Tensor::new(ElementType::Float16, &[u64::MAX; 4]);
        let huge = Tensor::new(ElementType::Float16, &[1 << 40; 4]);
        let inputs = vec![Arg::Tensor(tensor), Arg::List(vec![Arg::Tensor(huge)])];
        channels_last(&Operator::new("aten::convolution", inputs, Vec::new()));
    }
}
