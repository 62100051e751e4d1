//! Batch norms split in two and fused with adjacent layers: the statistics with the convolution
//! before, the normalization with the activation and the convolution after (Jung et al.,
//! "Restructuring Batch Normalization", MLSys 2019, section 3; Daydream 5.2).
//!
//! As in Daydream: activations after a batch norm are removed, and a batch norm takes half as long
//! because it reads and writes its input half as often.

use super::shared::lines;
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use ridgeline_graph::calls::{Call, calls};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::operator::Operator;
use ridgeline_operators::range::Range;

/// Remaining share of a batch norm's time: Daydream's assumption, which its measurements confirmed
/// within 13% of the iteration. The ends of the range are one pass more and one pass less of five.
const REMAINING_SHARE: Range = Range { low: 0.4, value: 0.5, high: 0.7 };

pub(super) struct BatchNorm;

impl Optimization for BatchNorm {
    fn name(&self) -> &'static str {
        "batch-norm"
    }

    fn title(&self) -> &'static str {
        "Batch norm fused with adjacent layers"
    }

    fn source(&self) -> &'static str {
        "Jung et al., \"Restructuring Batch Normalization to Accelerate CNN Training\", MLSys 2019"
    }

    fn is_research(&self) -> bool {
        true
    }

    fn apply(&self, graph: &mut Graph, _: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let calls: Vec<Call> =
            calls(graph).iter().filter(|call| !call.work.is_empty()).cloned().collect();
        if calls.is_empty() {
            return Err("the recording has no operator shapes".to_owned());
        }
        let trains = |call: &&Call| call.operator(graph).is_some_and(trains);
        let norms: Vec<&Call> = calls.iter().filter(trains).collect();
        if norms.is_empty() {
            return Err("the model has no trainable batch norm".to_owned());
        }
        // The activation follows its norm in the forward pass, and precedes it in the backward
        // pass.
        let pairs = calls.windows(2).filter_map(|pair| {
            let [first, second] = pair else { return None };
            let forward = trains(&first) && is_activation(second.name(graph));
            let backward = trains(&second) && is_activation_backward(first.name(graph));
            if forward { Some(second) } else { backward.then_some(first) }
        });
        let activations: Vec<&Call> = pairs.collect();
        let lines = lines::of_calls(graph, norms.iter().copied());
        for call in norms {
            graph.scale(&call.work, bound.of(REMAINING_SHARE));
        }
        for call in activations {
            call.remove(graph);
        }
        let notes = vec!["requires custom kernels".to_owned()];
        Ok(Effect { lines, notes, ..Effect::default() })
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !["batch-norm", "layer-fusion", "compile"].contains(&other.name())
    }
}

/// Whether an operator is a batch norm that computes its statistics from the batch, or the gradient
/// of one.
fn trains(operator: &Operator) -> bool {
    let name = operator.base_name().unwrap_or_default();
    let fixed = name.ends_with("no_training") || name.ends_with("no_update");
    let is_forward = !name.ends_with("_backward");
    name.contains("batch_norm")
        && !fixed
        && !(is_forward && operator.input(5).flag() == Some(false))
}

fn is_activation(name: &str) -> bool {
    let name = name.trim_end_matches('_');
    matches!(name, "relu" | "relu6" | "clamp_min" | "hardtanh" | "leaky_relu" | "silu")
}

fn is_activation_backward(name: &str) -> bool {
    matches!(
        name,
        "threshold_backward" | "hardtanh_backward" | "leaky_relu_backward" | "silu_backward"
    )
}

#[cfg(test)]
mod tests {
    use super::super::shared::testing::{Iteration, cpu, gpu, operator};
    use super::*;
    use crate::facts::Probes;
    use ridgeline_profile::Phase;

    const SIZE: &[u64] = &[32, 64, 56, 56];

    #[track_caller]
    fn check(iteration: Iteration, expected_us: f64) {
        let iteration = iteration
            .call(Phase::Forward, operator("batch_norm", &[SIZE, SIZE]), 100.0)
            .call(Phase::Forward, operator("relu", &[SIZE, SIZE]), 40.0)
            .call(Phase::Forward, operator("mul", &[SIZE, SIZE]), 30.0)
            .call(Phase::Backward, operator("threshold_backward", &[SIZE, SIZE]), 60.0)
            .call(Phase::Backward, operator("native_batch_norm_backward", &[SIZE, SIZE]), 200.0);
        let found = iteration.predict(&gpu("8.0"), &Probes::default(), &BatchNorm).unwrap();
        assert!((found.time_ns.value - 1e3 * expected_us).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn norms_take_half_the_time_and_activations_none() {
        check(Iteration::on_gpu(), 50.0 + 30.0 + 100.0);
        check(Iteration::on_cpu(), 50.0 + 30.0 + 100.0);
    }

    #[test]
    fn models_without_norms_have_nothing_to_fuse() {
        let sum = Iteration::on_cpu().call(Phase::Forward, operator("add", &[SIZE, SIZE]), 10.0);
        assert_eq!(sum.refusal(&cpu(), &BatchNorm), "the model has no trainable batch norm");
    }
}
