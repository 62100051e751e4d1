//! FP32 matrix multiplications and convolutions on tensor cores: their inputs are rounded to 10
//! bits of precision, and sums stay in FP32 (NVIDIA, "TF32";
//! `torch.set_float32_matmul_precision("high")`).

use super::shared::exchange::exchange;
use super::shared::lines;
use super::shared::retyped::{is_matmul, takes};
use crate::facts::{Facts, Variant};
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use ridgeline_graph::calls::{calls, has_kernels};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::matmul_kernel::{MatmulType, matmul_type};
use ridgeline_operators::op_cost::{self, Family, Options, work};
use ridgeline_operators::operator::{ElementType, Operator};
use ridgeline_operators::range::Range;

pub(super) struct Tf32;

impl Optimization for Tf32 {
    fn name(&self) -> &'static str {
        "tf32"
    }

    fn title(&self) -> &'static str {
        "TF32 matrix multiplications"
    }

    fn source(&self) -> &'static str {
        "NVIDIA, \"TensorFloat-32 in the A100 GPU\"; PyTorch, set_float32_matmul_precision"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let is_old = facts.device.capability().is_some_and(|capability| capability < (8, 0));
        if !has_kernels(graph) || is_old || facts.device.peaks.tf32.is_none() {
            return Err("only GPUs with compute capability 8.0 or higher support TF32".to_owned());
        }
        let calls = calls(graph);
        if calls.is_empty() {
            return Err("the recording has no operator shapes".to_owned());
        }
        let done = operators_in_tf32(graph);
        let precision = facts.manifest.and_then(|it| it.settings.matmul_precision.as_deref());
        if precision.is_some_and(|precision| precision != "highest") {
            return Err("matrix multiplications may already use TF32".to_owned());
        }
        let changed = exchange(graph, &calls, |index, operator| {
            let is_product = is_matmul(operator) && !may_use_tf32_by_default(facts, operator);
            let applies = is_product && takes(operator, ElementType::Float32);
            let is_done = done.get(index as usize) == Some(&true);
            let ratio = || {
                let probed = facts.probes.ratio(index, Variant::Tf32);
                bound.of(probed.unwrap_or_else(|| modelled_ratio(facts, operator)))
            };
            (applies && !is_done).then(|| (operator.clone(), ratio()))
        });
        if changed.is_empty() {
            return Err("no FP32 matrix multiplication runs without tensor cores".to_owned());
        }
        let lines = lines::of_calls(graph, changed);
        let notes = vec![
            "matrix multiplications keep 10 bits of precision: results change slightly".to_owned(),
        ];
        Ok(Effect { lines, notes, ..Effect::default() })
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::Tf32)
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !["amp-bf16", "amp-fp16", "tf32", "fp8"].contains(&other.name())
    }
}

/// Whether an operator is a convolution that already may run in TF32, the default since PyTorch
/// 1.7.
fn may_use_tf32_by_default(facts: &Facts<'_>, operator: &Operator) -> bool {
    let is_convolution = work(operator).is_some_and(|work| work.family == Family::Convolution);
    is_convolution && facts.options.tf32_convolutions
}

/// Returns for each operator whether its kernels already use TF32.
fn operators_in_tf32(graph: &Graph) -> Vec<bool> {
    let is_tf32 = |name: &String| matmul_type(name) == Some(MatmulType::Tf32);
    let names: Vec<bool> = graph.names.iter().map(is_tf32).collect();
    let mut found = vec![false; graph.operators.len()];
    for task in graph.tasks.iter().filter(|task| !task.kind.is_host()) {
        let in_tf32 = task.name.and_then(|name| names.get(name as usize)) == Some(&true);
        if let Some(slot) = task.operator.and_then(|operator| found.get_mut(operator as usize)) {
            *slot |= in_tf32;
        }
    }
    found
}

fn modelled_ratio(facts: &Facts<'_>, operator: &Operator) -> Range {
    let cost = |tf32: bool| {
        let options = Options { tf32_matmuls: tf32, tf32_convolutions: tf32 };
        op_cost::cost(operator, facts.device, &options).time_ns
    };
    let (now, then) = (cost(false), cost(true));
    let spread = (then.high / then.value.max(1e-9)).sqrt();
    Range::within_factor((then.value / now.value.max(1e-9)).min(1.0), spread)
}

#[cfg(test)]
mod tests {
    use super::super::shared::testing::{Iteration, cpu, gpu, operator};
    use super::*;
    use crate::facts::Probes;
    use ridgeline_profile::Phase;

    fn matmul() -> Iteration {
        let matmul = operator("mm", &[&[4096, 4096], &[4096, 4096], &[4096, 4096]]);
        Iteration::on_gpu().call(Phase::Forward, matmul, 8000.0)
    }

    #[test]
    fn times_follow_the_ratio_of_the_rates() {
        let found = matmul().predict(&gpu("8.0"), &Probes::default(), &Tf32).unwrap();
        let ratio = found.time_ns.value / found.before_ns;
        assert!((0.15..0.4).contains(&ratio), "{ratio}");
    }

    #[test]
    fn probes_take_precedence_over_the_model() {
        let times = [((0, Variant::Same), 100.0), ((0, Variant::Tf32), 60.0)];
        let probes = Probes { operators: times.into(), ..Probes::default() };
        let found = matmul().predict(&gpu("8.0"), &probes, &Tf32).unwrap();
        let ratio = found.time_ns.value / found.before_ns;
        assert!((0.59..0.62).contains(&ratio), "{ratio}");
    }

    #[test]
    fn tf32_requires_a_gpu_that_supports_it() {
        let why = "only GPUs with compute capability 8.0 or higher support TF32";
        assert_eq!(matmul().refusal(&gpu("7.0"), &Tf32), why);
        assert_eq!(matmul().refusal(&cpu(), &Tf32), why);
    }

    #[test]
    fn models_without_matrix_multiplications_are_rejected() {
        let sum = operator("add", &[&[1000], &[1000], &[1000]]);
        let iteration = Iteration::on_gpu().call(Phase::Forward, sum, 10.0);
        let why = "no FP32 matrix multiplication runs without tensor cores";
        assert_eq!(iteration.refusal(&gpu("8.0"), &Tf32), why);
    }
}
