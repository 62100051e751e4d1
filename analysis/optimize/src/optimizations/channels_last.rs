//! Images and weights of convolutions in channels_last, which tensor cores and oneDNN use without
//! transposing first (PyTorch, "Channels Last Memory Format").

use super::shared::channels_last::parts;
use super::shared::exchange::exchange;
use super::shared::parts::{ConvolutionKind, Machine};
use super::shared::{factors, layout, lines};
use crate::facts::{Facts, Variant};
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use ridgeline_graph::calls::{Call, calls};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::operator::Tensor;
use ridgeline_operators::range::Range;

pub(super) struct ChannelsLast;

impl Optimization for ChannelsLast {
    fn name(&self) -> &'static str {
        "channels-last"
    }

    fn title(&self) -> &'static str {
        "Use channels_last memory format"
    }

    fn source(&self) -> &'static str {
        "PyTorch, \"Channels Last Memory Format\""
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let calls = calls(graph);
        let convolutions = || {
            let operators = calls.iter().filter_map(|call| call.operator(graph));
            operators.filter(|it| ConvolutionKind::of(it).is_some())
        };
        if calls.is_empty() {
            return Err("the recording has no operator shapes".to_owned());
        }
        let takes_images = |shape: Option<&[u64]>| shape.is_some_and(|shape| shape.len() == 4);
        if !convolutions().any(|it| takes_images(it.shape(0))) {
            let is_of_images = |call: &Call| {
                let shape = call.operator(graph).and_then(|operator| operator.shape(0));
                call.name(graph).contains("conv") && shape.is_none_or(|shape| shape.len() == 4)
            };
            let why = if calls.iter().any(is_of_images) {
                "the recording has no convolution settings"
            } else {
                "the model has no 2D convolution"
            };
            return Err(why.to_owned());
        }
        if convolutions().flat_map(|it| it.input_tensors()).any(Tensor::is_channels_last) {
            return Err("convolutions already use channels_last".to_owned());
        }
        let is_probed = |call: &Call| {
            let recorded = graph.recorded_as(call.operator);
            facts.probes.ratio(recorded, Variant::ChannelsLast).is_some()
        };
        if !facts.is_gpu() && !calls.iter().any(is_probed) {
            return Err("channels_last speed on this CPU is unknown".to_owned());
        }
        let machine = Machine { device: facts.device, options: facts.options };
        let factors = factors::channels_last();
        let changed = exchange(graph, &calls, |index, operator| {
            let probed = facts.probes.ratio(index, Variant::ChannelsLast);
            let fitted = || {
                let ratio = factors.operator_ratio(&parts(operator, &machine))?;
                Some(Range::within_factor(ratio, factors.range))
            };
            let is_image = operator.input_tensors().any(|tensor| tensor.shape.len() == 4);
            let known = ConvolutionKind::of(operator).is_some() || probed.is_some();
            // On a CPU, the cost model does not cover memory formats, and a probe is required.
            let ratio = probed.or_else(|| facts.is_gpu().then(fitted).flatten());
            let ratio = ratio.map_or(1.0, |ratio| bound.of(ratio));
            (is_image && (known || facts.is_gpu()))
                .then(|| (layout::channels_last(operator), ratio))
        });
        let notes = vec![
            "code that reshapes tensors manually (`view`, `permute`) may then copy".to_owned(),
        ];
        let convolution_calls = changed.into_iter().filter(|call| {
            graph
                .operators
                .get(call.operator as usize)
                .is_some_and(|operator| ConvolutionKind::of(operator).is_some())
        });
        Ok(Effect { lines: lines::of_calls(graph, convolution_calls), notes, ..Effect::default() })
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::ChannelsLast)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared::testing::{Iteration, cpu, gpu, operator};
    use super::*;
    use crate::facts::Probes;
    use ridgeline_profile::Phase;

    fn convolution() -> Iteration {
        let shapes: [&[u64]; 3] = [&[32, 64, 56, 56], &[64, 64, 3, 3], &[32, 64, 56, 56]];
        Iteration::on_cpu().call(Phase::Forward, operator("conv2d", &shapes), 1000.0)
    }

    #[test]
    fn cpu_predictions_follow_the_probes() {
        let mut probes = Probes::default();
        probes.operators.insert((0, Variant::Same), 100.0);
        probes.operators.insert((0, Variant::ChannelsLast), 70.0);
        let found = convolution().predict(&cpu(), &probes, &ChannelsLast).unwrap();
        assert!((found.time_ns.value - 700e3).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn reasons_for_not_applying() {
        let why = "channels_last speed on this CPU is unknown";
        assert_eq!(convolution().refusal(&cpu(), &ChannelsLast), why);
        let matmul = operator("mm", &[&[64, 64], &[64, 64], &[64, 64]]);
        let matmul = Iteration::on_gpu().call(Phase::Forward, matmul, 10.0);
        let why = "the model has no 2D convolution";
        assert_eq!(matmul.refusal(&gpu("8.0"), &ChannelsLast), why);
    }
}
