//! Channels last: the same operators with the channels of an image's tensors next to each other.

use crate::predict::operator::{Arg, Operator, Tensor};

use super::parts::ConvolutionKind;

/// The operator with its tensors of four dimensions in channels-last order.
pub fn channels_last(operator: &Operator) -> Operator {
    let mut turned = operator.clone();
    let named = turned.named.iter_mut().map(|(_, arg)| arg);
    for arg in turned.inputs.iter_mut().chain(named) {
        match arg {
            Arg::Tensor(tensor) => turn(tensor),
            Arg::List(list) => list.iter_mut().for_each(|arg| {
                if let Arg::Tensor(tensor) = arg {
                    turn(tensor);
                }
            }),
            _ => {}
        }
    }
    turned.outputs.iter_mut().for_each(turn);
    turned
}

fn turn(tensor: &mut Tensor) {
    let [_, channels, height, width] = *tensor.shape.as_slice() else { return };
    let (Ok(c), Ok(h), Ok(w)) =
        (i64::try_from(channels), i64::try_from(height), i64::try_from(width))
    else {
        return;
    };
    let row = c.saturating_mul(w);
    tensor.strides = Some(vec![row.saturating_mul(h), 1, row, c]);
}

/// Whether the compiler of PyTorch runs a model for inference with channels last: where that is less
/// work by its own table of what it gains and loses for each sort of convolution
/// (`torch/_inductor/graph.py`, `decide_layout_opt`).
pub fn compiler_takes_channels_last(operators: &[&Operator]) -> bool {
    const GROUPED: f64 = 1.358;
    const DEFAULT: f64 = 0.823;
    const FEWER_OUT: f64 = 0.725;
    const SMALL: f64 = 0.783;
    /// More operators than this to each convolution: it does not pay.
    const MOST_OPERATORS: usize = 300;
    let mut convolutions = 0;
    let (mut flops, mut weighted) = (0.0, 0.0);
    for operator in operators {
        if ConvolutionKind::of(operator).is_none() {
            continue;
        }
        convolutions += 1;
        let Some([out, of_group, window @ ..]) = operator.shape(1) else { continue };
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
        let work = crate::predict::op_cost::work(operator).map_or(0.0, |work| work.flops);
        flops += work;
        weighted += work * factor;
    }
    convolutions > 0 && operators.len() < MOST_OPERATORS * convolutions && weighted <= flops
}
