//! The update of all parameters in few kernels. `foreach=True` runs each step of the update on
//! lists, `fused=True` makes one pass over parameters, gradients and states (Apex FusedAdam;
//! Daydream 5.1 replaces the update's kernels by one that moves their bytes once).

use super::shared::lines;
use super::shared::overhead;
use super::shared::update::{Algorithm, Mode, Update, update};
use crate::facts::{Facts, PROBE_UNCERTAINTY};
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use crate::rewrite::optimizers::takes_foreach;
use ridgeline_graph::calls::{calls, has_kernels};
use ridgeline_graph::graph::Graph;
use ridgeline_graph::memory::{Block, BlockKind, Moment};
use ridgeline_operators::op_cost::{self, OpCost};
use ridgeline_operators::operator::{Arg, Operator, Tensor};
use ridgeline_operators::range::Range;
use ridgeline_profile::Phase;

pub(super) struct FusedOptimizer {
    mode: Mode,
}

pub(super) const FUSED: FusedOptimizer = FusedOptimizer { mode: Mode::Fused };
pub(super) const FOREACH: FusedOptimizer = FusedOptimizer { mode: Mode::Foreach };

/// Python time of a list update per parameter and state tensor, as a share of a small operator's
/// call: it sorts parameters and states into lists. Measured with PyTorch 2.15 on a Xeon, with 4 to
/// 200 parameters of 64 elements: 0.45 for Adam, 0.25 for SGD with momentum. On a CPU a probe
/// measures the whole update instead.
const LISTING_SHARE: f64 = 0.35;
/// Python time of an update besides its parameters, in small operators' calls. Measured alike: 13
/// for Adam, 8 for SGD.
const STEP_CALLS: f64 = 10.0;

impl Optimization for FusedOptimizer {
    fn name(&self) -> &'static str {
        if self.mode == Mode::Fused { "fused-optimizer" } else { "foreach-optimizer" }
    }

    fn title(&self) -> &'static str {
        if self.mode == Mode::Fused { "Fused optimizer" } else { "Foreach optimizer" }
    }

    fn source(&self) -> &'static str {
        "NVIDIA Apex, FusedAdam; Daydream (Zhu et al., USENIX ATC 2020), section 5.1"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let calls = calls(graph);
        let found = update(graph, facts, &calls).ok_or("the recording has no optimizer")?;
        if found.mode == self.mode || found.mode == Mode::Fused {
            return Err(format!("the optimizer already runs as {}", found.mode.name()));
        }
        let name = found.name.clone().unwrap_or_else(|| "this optimizer".to_owned());
        let names = facts.optimizer_names();
        let unable = names.iter().find(|name| !takes_foreach(name));
        if let Some(unable) = unable.filter(|_| self.mode == Mode::Foreach) {
            return Err(format!("{unable} has no known foreach implementation"));
        }
        let lines = lines::of_calls(graph, found.calls.iter().copied());
        let algorithm = match (self.mode, found.algorithm) {
            (Mode::Fused, None) => return Err(format!("PyTorch has no fused {name}")),
            (_, algorithm) => algorithm,
        };
        if self.mode == Mode::Fused && is_complex(graph) {
            return Err("PyTorch's fused optimizers do not support complex parameters".to_owned());
        }
        if found.parameters.is_empty() {
            return Err("the recording has no parameter sizes".to_owned());
        }
        if let Some(ratio) = probed(facts, found.mode, self.mode).filter(|_| !has_kernels(graph)) {
            let ratio = bound.of(ratio);
            for call in &found.calls {
                graph.scale(&call.host, ratio);
            }
            graph.scale(&found.gaps, ratio);
        } else {
            let machine_factor = overhead::machine_factor(graph, facts, &calls);
            let steps = match algorithm.filter(|_| self.mode == Mode::Fused) {
                Some(algorithm) => vec![algorithm.fused(&found.parameters)],
                None => lists(graph, &found),
            };
            let call_ns = overhead::small_call_ns(graph, &calls);
            let states = algorithm.map_or(1, Algorithm::states) as f64;
            let listed = (1.0 + states) * found.parameters.len() as f64;
            let listing = bound.within_factor((STEP_CALLS + LISTING_SHARE * listed) * call_ns, 2.0);
            replace(graph, facts, &found, steps, machine_factor, call_ns, listing);
        }
        self.temporaries(graph, &found);
        let notes = vec!["same results up to rounding".to_owned()];
        Ok(Effect { lines, notes, ..Effect::default() })
    }

    fn edit(&self) -> Option<EditKind> {
        let fused = self.mode == Mode::Fused;
        Some(if fused { EditKind::FusedOptimizer } else { EditKind::ForeachOptimizer })
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !["fused-optimizer", "foreach-optimizer"].contains(&other.name())
    }
}

impl FusedOptimizer {
    /// Updates the temporary memory. List updates store the denominators of all parameters at once;
    /// a fused one stores none.
    fn temporaries(&self, graph: &mut Graph, update: &Update<'_>) {
        let numbers: std::collections::HashSet<u32> =
            update.calls.iter().map(|call| call.number).collect();
        if self.mode == Mode::Fused {
            graph.change_blocks(|block| {
                let is_in_update = block.call.is_some_and(|call| numbers.contains(&call));
                if is_in_update && block.kind == BlockKind::Temporaries {
                    block.bytes = 0.0;
                }
            });
            return;
        }
        let ends = (update.calls.first(), update.calls.last());
        let (Some(first), Some(last)) = (ends.0, ends.1) else { return };
        let (Some(first), Some(last)) = (first.host.first(), last.host.last()) else { return };
        if update.algorithm == Some(Algorithm::Adam) {
            graph.memory.add(Block {
                bytes: update.parameters.iter().filter_map(Tensor::bytes).sum(),
                kind: BlockKind::Temporaries,
                allocated: Some(Moment { task: *first, event: u32::MAX }),
                freed: Some(Moment { task: *last, event: u32::MAX }),
                line: None,
                module: None,
                call: None,
            });
        }
    }
}

/// Whether the parameters are complex. An optimizer views them as pairs of real numbers; a fused
/// one rejects them ("`fused=True` requires all the params to be floating point Tensors").
fn is_complex(graph: &Graph) -> bool {
    let optimizer_tasks = graph.tasks.iter().filter(|task| task.phase == Phase::Optimizer);
    let mut operators = optimizer_tasks.filter_map(|task| graph.operator_of(task));
    operators.any(|operator| operator.base_name() == Some("view_as_real"))
}

/// Returns the ratio of the update's times, if both implementations were measured on this machine.
fn probed(facts: &Facts<'_>, now: Mode, then: Mode) -> Option<Range> {
    let optimizers = facts.manifest.map_or(0, |manifest| manifest.optimizers.len() as u32);
    let sum = |mode: Mode| -> Option<f64> {
        (0..optimizers).map(|at| facts.probes.optimizers.get(&(at, mode.name()))).sum()
    };
    let ratio = sum(then)? / sum(now)?;
    let is_ratio = ratio.is_finite() && ratio > 0.0;
    is_ratio.then(|| Range::within_factor(ratio, PROBE_UNCERTAINTY))
}

/// Returns each step of a for-loop update as one operator on lists.
fn lists(graph: &Graph, update: &Update<'_>) -> Vec<Operator> {
    let mut steps: Vec<(String, Vec<Vec<Arg>>)> = Vec::new();
    // By operator: its index in the steps.
    let mut places: Vec<Option<usize>> = vec![None; graph.operators.len()];
    for call in &update.calls {
        let Some(operator) = call.operator(graph) else { continue };
        let tensors = || operator.inputs.iter().filter(|input| matches!(input, Arg::Tensor(_)));
        let Some(place) = places.get_mut(call.operator as usize) else { continue };
        let at = *place.get_or_insert_with(|| {
            let name = format!("aten::_foreach_{}", call.name(graph));
            let count = tensors().count();
            let known =
                steps.iter().position(|(known, lists)| *known == name && lists.len() == count);
            known.unwrap_or_else(|| {
                steps.push((name, vec![Vec::new(); count]));
                steps.len() - 1
            })
        });
        if let Some((_, lists)) = steps.get_mut(at) {
            lists.iter_mut().zip(tensors()).for_each(|(list, tensor)| list.push(tensor.clone()));
        }
    }
    let step = |(name, lists): (String, Vec<Vec<Arg>>)| {
        let inputs: Vec<Arg> = lists.into_iter().map(Arg::List).collect();
        let outputs = inputs.first().map(|list| list.tensors().cloned().collect());
        Operator::new(&name, inputs, outputs.unwrap_or_default())
    };
    steps.into_iter().map(step).collect()
}

/// Replaces an update by one call for each of the steps. The remaining calls are removed.
fn replace(
    graph: &mut Graph,
    facts: &Facts<'_>,
    update: &Update<'_>,
    steps: Vec<Operator>,
    machine_factor: f64,
    call_ns: f64,
    listing_ns: f64,
) {
    let on_gpu = has_kernels(graph);
    let before_ns: f64 = update.calls.iter().map(|call| call.work_ns(graph)).sum();
    let cost = |step: &Operator| op_cost::cost(step, facts.device, &facts.options);
    let costs: Vec<OpCost> = steps.iter().map(cost).collect();
    let after_ns: f64 = costs.iter().map(|cost| cost.time_ns.value * machine_factor).sum();
    // The work takes at most as long as before.
    let most_ns = after_ns.min(before_ns);
    // On a CPU, the machine may be slower than the model: the update moves its bytes as fast as now.
    let least_ns = if on_gpu { 0.0 } else { same_speed_ns(graph, &cost, update, &costs) };
    let limit = most_ns.max(least_ns.min(before_ns)) / after_ns.max(1e-9);
    let launch_ns = overhead::launch_ns(graph);
    let mut steps = steps.into_iter().zip(costs);
    for call in &update.calls {
        let Some((step, cost)) = steps.next() else {
            call.remove(graph);
            continue;
        };
        call.set_work_ns(graph, cost.time_ns.value * machine_factor * limit);
        if on_gpu {
            let launches = cost.launches.max(1.0);
            let host_ns = call.host_ns(graph).max(1.0);
            let target_ns = call_ns + (launches - 1.0) * launch_ns;
            graph.scale(&call.host, target_ns / host_ns);
        }
        graph.operators.push(step);
        call.set_operator(graph, graph.operators.len() as u32 - 1);
    }
    let gaps_ns: f64 =
        update.gaps.iter().filter_map(|id| graph.task(*id)).map(|t| t.duration_ns).sum();
    if gaps_ns > listing_ns && update.mode == Mode::ForLoop {
        graph.scale(&update.gaps, listing_ns / gaps_ns);
    }
}

/// Returns the time of an update that moves its bytes as fast as the measured one moves its own, in nanoseconds.
fn same_speed_ns(
    graph: &Graph,
    cost: &impl Fn(&Operator) -> OpCost,
    update: &Update<'_>,
    costs: &[OpCost],
) -> f64 {
    let measured = update.calls.iter().filter_map(|call| {
        let moving_ns = (call.work_ns(graph) - overhead::SMALL_CALL_NS).max(0.0);
        Some((cost(call.operator(graph)?).bytes, moving_ns))
    });
    let (bytes, moving_ns) = measured.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let after: f64 = costs.iter().map(|cost| cost.bytes).sum();
    if bytes > 0.0 { moving_ns * after / bytes } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::shared::testing::{Iteration, cpu, gpu, operator};
    use super::*;
    use crate::facts::Probes;
    use ridgeline_profile::Phase;

    /// Creates a for-loop Adam update of parameters with two million elements each.
    fn for_loop(parameters: usize) -> Iteration {
        let size: &[u64] = &[2000, 1000];
        let mut iteration = Iteration::on_gpu();
        for _ in 0..parameters {
            for name in ["lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_"] {
                let step = operator(name, &[size, size, size]);
                iteration = iteration.call(Phase::Optimizer, step, 30.0);
            }
        }
        iteration
    }

    #[test]
    fn a_fused_update_moves_its_bytes_once() {
        let found = for_loop(48).predict(&gpu("8.0"), &Probes::default(), &FUSED).unwrap();
        // 28 bytes per parameter element instead of 84.
        let ratio = found.time_ns.value / found.before_ns;
        assert!((0.2..0.6).contains(&ratio), "{ratio}");
    }

    /// Whatever the machine, the fused update does not move bytes faster than the measured one.
    #[test]
    fn a_slow_cpu_stays_slow() {
        let size: &[u64] = &[2000, 1000];
        let mut iteration = Iteration::on_cpu();
        for name in ["lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_"] {
            let step = operator(name, &[size, size, size]);
            iteration = iteration.call(Phase::Optimizer, step, 1e6);
        }
        let found = iteration.predict(&cpu(), &Probes::default(), &FUSED).unwrap();
        let ratio = found.time_ns.value / found.before_ns;
        assert!((0.25..0.6).contains(&ratio), "{ratio}");
    }

    #[test]
    fn foreach_is_between_for_loop_and_fused() {
        let time = |one: &FusedOptimizer| {
            for_loop(48).predict(&gpu("8.0"), &Probes::default(), one).unwrap().time_ns.value
        };
        assert!(time(&FUSED) < time(&FOREACH));
        assert!(time(&FOREACH) <= 48.0 * 7.0 * 30e3);
        let graph = for_loop(48).changed(&gpu("8.0"), &FOREACH);
        assert_eq!(graph.select(|task| !task.kind.is_host()).len(), 7);
    }

    #[test]
    fn reasons_for_not_applying() {
        let step = operator("_fused_adam_", &[&[1000], &[1000], &[1000]]);
        let fused = Iteration::on_gpu().call(Phase::Optimizer, step, 10.0);
        let why = "the optimizer already runs as fused";
        assert_eq!(fused.refusal(&gpu("8.0"), &FUSED), why);
        assert_eq!(fused.refusal(&gpu("8.0"), &FOREACH), why);
        let product = operator("mm", &[&[8, 8], &[8, 8], &[8, 8]]);
        let none = Iteration::on_cpu().call(Phase::Forward, product, 10.0);
        assert_eq!(none.refusal(&cpu(), &FUSED), "the recording has no optimizer");
    }
}
