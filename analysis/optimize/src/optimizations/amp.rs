//! Mixed precision: matrix multiplications, convolutions and attention in 16 bits, operators that
//! need the range in FP32, and weights and their updates in FP32 (Micikevicius et al., ICLR 2018,
//! section 3; Daydream 5.1).
//!
//! With Adam, a parameter still takes 16 bytes (weight, gradient, two moments), plus the copy that
//! autocast caches. Activations shrink.

use super::shared::autocast::{Rule, rule};
use super::shared::lines;
use super::shared::lowering::{LoweringChanges, lower};
use super::shared::overhead;
use super::shared::retyped::{is_matmul, takes};
use super::shared::streams::device_wait;
use crate::facts::{Facts, Variant};
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use ridgeline_graph::calls::{Call, calls, has_kernels};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::op_cost::work;
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_profile::Phase;

pub(super) struct MixedPrecision {
    element: ElementType,
}

pub(super) const BFLOAT16: MixedPrecision = MixedPrecision { element: ElementType::BFloat16 };
pub(super) const FLOAT16: MixedPrecision = MixedPrecision { element: ElementType::Float16 };

impl MixedPrecision {
    fn is_float16(&self) -> bool {
        self.element == ElementType::Float16
    }

    fn variant(&self) -> Variant {
        if self.is_float16() { Variant::Float16 } else { Variant::BFloat16 }
    }
}

impl Optimization for MixedPrecision {
    fn name(&self) -> &'static str {
        if self.is_float16() { "amp-fp16" } else { "amp-bf16" }
    }

    fn title(&self) -> &'static str {
        if self.is_float16() { "Mixed precision (fp16)" } else { "Mixed precision (bf16)" }
    }

    fn source(&self) -> &'static str {
        "Micikevicius et al., \"Mixed Precision Training\", ICLR 2018, section 3"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let calls = calls(graph);
        applies(self, graph, facts, &calls)?;
        let LoweringChanges { calls: lowered, casts } =
            lower(graph, facts, &calls, self.element, bound);
        if self.is_float16() {
            unscale(graph, facts, &calls);
        }
        let lowered_calls = lowered.iter().filter_map(|place| calls.get(*place));
        let mut notes = vec![format!("adds {casts} casts")];
        notes.push(if self.is_float16() {
            "float16 overflows above 65,504: the gradient scaler skips steps with larger gradients"
                .to_owned()
        } else {
            "bfloat16 has 8 bits of precision: results change slightly".to_owned()
        });
        Ok(Effect { lines: lines::of_calls(graph, lowered_calls), notes, ..Effect::default() })
    }

    fn edit(&self) -> Option<EditKind> {
        Some(if self.is_float16() { EditKind::AutocastFloat16 } else { EditKind::AutocastBFloat16 })
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !["amp-bf16", "amp-fp16", "tf32", "fp8"].contains(&other.name())
    }
}

/// Checks whether it applies. The error is the reason if not.
fn applies(
    amp: &MixedPrecision,
    graph: &Graph,
    facts: &Facts<'_>,
    calls: &[Call],
) -> Result<(), String> {
    if calls.is_empty() {
        return Err("the recording has no operator shapes".to_owned());
    }
    // One call per distinct operator.
    let mut seen = vec![false; graph.operators.len()];
    let is_first = |call: &&Call| {
        let seen = seen.get_mut(call.operator as usize);
        seen.is_some_and(|seen| !std::mem::replace(seen, true))
    };
    let calls: Vec<&Call> = calls.iter().filter(is_first).collect();
    let matmuls = || {
        let operators = calls.iter().filter_map(|call| call.operator(graph));
        operators.filter(|operator| is_matmul(operator))
    };
    let settings = facts.manifest.map(|manifest| &manifest.settings);
    let casts_to = settings.and_then(|settings| settings.autocast.as_ref()?.first());
    if let Some(name) = casts_to {
        return Err(format!("the program already runs under autocast in {name}"));
    }
    if matmuls().any(|it| takes(it, ElementType::BFloat16) || takes(it, ElementType::Float16)) {
        return Err("matrix multiplications already run in 16 bits".to_owned());
    }
    let on_gpu = has_kernels(graph);
    let has_unknown_work = |call: &&Call| {
        let is_lower = rule(call.name(graph), on_gpu) == Rule::Lower;
        is_lower && call.operator(graph).is_some_and(|operator| work(operator).is_none())
    };
    if calls.iter().any(has_unknown_work) {
        let why =
            "the shapes or settings of an operator that would run in 16 bits were not recorded";
        return Err(why.to_owned());
    }
    if !matmuls().any(|it| takes(it, ElementType::Float32)) {
        return Err("no matrix multiplication runs in FP32".to_owned());
    }
    let capability = facts.device.capability();
    if !on_gpu {
        let mut probed = calls.iter().map(|call| call.operator);
        let ratio = |it: u32| facts.probes.ratio(graph.recorded_as(it), amp.variant());
        return if probed.any(|it| ratio(it).is_some()) {
            Ok(())
        } else {
            let native = settings.and_then(|settings| settings.bf16_native);
            let why = match native {
                Some(false) => "this CPU has no 16-bit instructions",
                _ => "16-bit speed on this CPU is unknown",
            };
            Err(why.to_owned())
        };
    }
    if amp.is_float16() {
        let is_old = capability.is_some_and(|capability| capability < (7, 0));
        if is_old || facts.device.peaks.fp16.is_none() {
            return Err("this GPU has no tensor cores".to_owned());
        }
    } else {
        let is_old = capability.is_some_and(|capability| capability < (8, 0));
        if is_old || facts.device.peaks.bf16.is_none() {
            return Err("this GPU does not support bfloat16".to_owned());
        }
    }
    Ok(())
}

/// Adds the gradient scaler's check of all gradients before the update. The host waits for its
/// result.
fn unscale(graph: &mut Graph, facts: &Facts<'_>, calls: &[Call]) {
    let Some(update) = calls.iter().find(|call| call.phase == Phase::Optimizer) else { return };
    let modules = facts.manifest.iter().flat_map(|manifest| &manifest.modules);
    let elements: u64 =
        modules.flat_map(|module| &module.parameters).map(|parameter| parameter.elements).sum();
    let gradients = Tensor::new(ElementType::Float32, &[elements]);
    let operator = Operator::new(
        "aten::_amp_foreach_non_finite_check_and_unscale_",
        vec![Arg::List(vec![Arg::Tensor(gradients.clone())])],
        vec![gradients],
    );
    let machine_factor = overhead::machine_factor(graph, facts, calls);
    let work_ns = overhead::work_ns(facts, &operator, machine_factor);
    device_wait(graph, update, work_ns);
}

#[cfg(test)]
mod tests {
    use super::super::shared::testing::{Iteration, cpu, gpu, operator};
    use super::*;
    use crate::facts::Probes;
    use ridgeline_graph::graph::TaskKind;

    const ROWS: &[u64] = &[4096, 4096];

    /// Adds a layer, a norm and another layer, with the gradient of the last one.
    fn layers(iteration: Iteration) -> Iteration {
        iteration
            .call(Phase::Forward, operator("linear", &[ROWS, ROWS, ROWS]), 8000.0)
            .call(Phase::Forward, operator("layer_norm", &[ROWS, ROWS]), 150.0)
            .call(Phase::Forward, operator("linear", &[ROWS, ROWS, ROWS]), 8000.0)
            .call(Phase::Backward, operator("mm", &[ROWS, ROWS, ROWS]), 8000.0)
            .call(Phase::Optimizer, operator("add_", &[ROWS, ROWS, ROWS]), 250.0)
    }

    #[test]
    fn matrix_multiplications_are_several_times_as_fast() {
        let iteration = layers(Iteration::on_gpu());
        for amp in [BFLOAT16, FLOAT16] {
            let found = iteration.predict(&gpu("8.0"), &Probes::default(), &amp).unwrap();
            let speedup = found.speedup();
            assert!((2.0..10.0).contains(&speedup.value), "{speedup:?}");
            assert!(speedup.low < speedup.value && speedup.value < speedup.high, "{speedup:?}");
        }
    }

    #[test]
    fn casts_are_added_where_types_change() {
        let graph = layers(Iteration::on_gpu()).changed(&gpu("8.0"), &BFLOAT16);
        let casts = graph.select(|task| {
            let is_cast = graph.operator_of(task).is_some_and(|it| it.name == "aten::_to_copy");
            is_cast && task.kind == TaskKind::Kernel
        });
        // Forward: the batch, the weight, the norm's input and its output. Backward: each of them.
        assert_eq!(casts.len(), 8);
    }

    #[test]
    fn cpu_predictions_follow_the_probes() {
        let iteration = layers(Iteration::on_cpu());
        let why = "16-bit speed on this CPU is unknown";
        assert_eq!(iteration.refusal(&cpu(), &BFLOAT16), why);
        let mut probes = Probes::default();
        for place in 0..4 {
            probes.operators.insert((place, Variant::Same), 100.0);
            probes.operators.insert((place, Variant::BFloat16), 400.0);
        }
        let found = iteration.predict(&cpu(), &probes, &BFLOAT16).unwrap();
        assert!(found.speedup().value < 0.5, "{found:?}");
        // Operators without a probe are not faster.
        let one = |variant: Variant| ((0, variant), 100.0);
        let operators = [Variant::Same, Variant::BFloat16].map(one).into_iter().collect();
        let probes = Probes { operators, ..Probes::default() };
        let found = iteration.predict(&cpu(), &probes, &BFLOAT16).unwrap();
        assert!((0.5..=1.0).contains(&found.speedup().value), "{found:?}");
        assert!(found.time_ns.low < 0.95 * found.time_ns.value, "{found:?}");
    }

    #[test]
    fn reasons_for_not_applying() {
        let iteration = layers(Iteration::on_gpu());
        assert_eq!(iteration.refusal(&gpu("7.0"), &BFLOAT16), "this GPU does not support bfloat16");
        assert_eq!(iteration.refusal(&gpu("6.1"), &FLOAT16), "this GPU has no tensor cores");
        let mut already_lowered = layers(Iteration::on_gpu());
        already_lowered.graph = iteration.changed(&gpu("8.0"), &BFLOAT16);
        let why = "matrix multiplications already run in 16 bits";
        assert_eq!(already_lowered.refusal(&gpu("8.0"), &FLOAT16), why);
    }
}
