//! The optimizer step of an iteration: its implementation, parameters and algorithm.

use crate::facts::Facts;
use ridgeline_graph::calls::Call;
use ridgeline_graph::graph::{Graph, TaskId, TaskKind};
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_profile::Phase;

/// The implementation of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One parameter at a time.
    ForLoop,
    /// One operator on lists of parameters for each step of the update.
    Foreach,
    /// One kernel for the whole update of lists of parameters.
    Fused,
}

impl Mode {
    /// Returns the name in probes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::ForLoop => "for-loop",
            Mode::Foreach => "foreach",
            Mode::Fused => "fused",
        }
    }
}

/// An algorithm for which PyTorch has a fused kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// Adam and AdamW: two moments.
    Adam,
    /// SGD without momentum.
    Sgd,
    /// SGD with momentum: one buffer.
    SgdMomentum,
    /// Adagrad: one sum.
    Adagrad,
}

impl Algorithm {
    /// Returns the number of state tensors per parameter.
    pub(crate) fn states(self) -> usize {
        match self {
            Algorithm::Adam => 2,
            Algorithm::SgdMomentum | Algorithm::Adagrad => 1,
            Algorithm::Sgd => 0,
        }
    }

    fn fused_name(self) -> &'static str {
        match self {
            Algorithm::Adam => "aten::_fused_adam_",
            Algorithm::Sgd | Algorithm::SgdMomentum => "aten::_fused_sgd_",
            Algorithm::Adagrad => "aten::_fused_adagrad_",
        }
    }

    /// Returns the whole update as one operator: it reads parameters, gradients and states, and
    /// writes all but the gradients.
    pub(crate) fn fused(self, parameters: &[Tensor]) -> Operator {
        let list = || Arg::List(parameters.iter().cloned().map(Arg::Tensor).collect());
        let inputs = (0..2 + self.states()).map(|_| list()).collect();
        let written = (0..1 + self.states()).flat_map(|_| parameters.iter().cloned()).collect();
        Operator::new(self.fused_name(), inputs, written)
    }
}

/// The optimizer step of an iteration.
#[derive(Clone, Debug)]
pub(crate) struct Update<'c> {
    /// Implementation.
    pub mode: Mode,
    /// Algorithm. `None` if PyTorch has no fused kernel for it, or if it is unknown.
    pub algorithm: Option<Algorithm>,
    /// Display name, if recorded.
    pub name: Option<String>,
    /// Its calls, without those that zero gradients.
    pub calls: Vec<&'c Call>,
    /// The parameters, if recorded.
    pub parameters: Vec<Tensor>,
    /// Gaps between the calls on the host.
    pub gaps: Vec<TaskId>,
}

/// Finds the optimizer step of an iteration. Returns `None` if there is none.
pub(crate) fn update<'c>(
    graph: &Graph,
    facts: &Facts<'_>,
    calls: &'c [Call],
) -> Option<Update<'c>> {
    let is_step = |operator: &Operator| {
        let name = operator.base_name().unwrap_or_default();
        !matches!(name, "zero_" | "_foreach_zero_" | "fill_" | "zeros_like")
            && !name.starts_with("_amp_")
    };
    let steps: Vec<bool> = graph.operators.iter().map(is_step).collect();
    let updates = |call: &&Call| {
        call.phase == Phase::Optimizer && steps.get(call.operator as usize) == Some(&true)
    };
    let calls: Vec<&Call> = calls.iter().filter(updates).collect();
    if calls.is_empty() {
        return None;
    }
    let mut operators: Vec<u32> = calls.iter().map(|call| call.operator).collect();
    operators.sort_unstable();
    operators.dedup();
    let step_operators = operators.iter().filter_map(|it| graph.operators.get(*it as usize));
    let operator_names: Vec<&str> = step_operators.filter_map(Operator::base_name).collect();
    let any = |prefix: &str| operator_names.iter().any(|name| name.starts_with(prefix));
    let mode = match (any("_fused_"), any("_foreach_")) {
        (true, _) => Mode::Fused,
        (false, true) => Mode::Foreach,
        (false, false) => Mode::ForLoop,
    };
    let names = facts.optimizer_names();
    let name = (!names.is_empty()).then(|| names.join(" and "));
    let by_operators = algorithm_of(&operator_names);
    let algorithm = match names.as_slice() {
        [] => by_operators,
        names => by_names(names).map(|algorithm| match (algorithm, by_operators) {
            (Algorithm::Sgd, Some(found @ Algorithm::SgdMomentum)) => found,
            (Algorithm::Sgd, _) if has_momentum(facts) => Algorithm::SgdMomentum,
            _ => algorithm,
        }),
    };
    let gap = |task: &ridgeline_graph::graph::Task| {
        task.phase == Phase::Optimizer && task.kind == TaskKind::HostGap
    };
    let parameters = parameters(graph, facts, &calls);
    Some(Update { mode, algorithm, name, calls, parameters, gaps: graph.select(gap) })
}

fn has_momentum(facts: &Facts<'_>) -> bool {
    let mut optimizers = facts.manifest.iter().flat_map(|manifest| &manifest.optimizers);
    optimizers.any(|optimizer| {
        let momentum = optimizer.options.get("momentum").and_then(serde_json::Value::as_f64);
        momentum.is_some_and(|momentum| momentum != 0.0)
    })
}

/// Returns the common algorithm of the optimizers with these names.
fn by_names(names: &[&str]) -> Option<Algorithm> {
    let of = |name: &str| match name {
        "Adam" | "AdamW" => Some(Algorithm::Adam),
        "SGD" => Some(Algorithm::Sgd),
        "Adagrad" => Some(Algorithm::Adagrad),
        _ => None,
    };
    let first = of(names.first()?)?;
    names.iter().all(|name| of(name) == Some(first)).then_some(first)
}

/// Recognizes an algorithm by its operators. Adam divides by the root of a mean (`lerp`, `addcmul`,
/// `addcdiv`), Adagrad by the root of a sum; SGD adds.
fn algorithm_of(called: &[&str]) -> Option<Algorithm> {
    let has = |step: &str| called.iter().any(|name| step_of(name) == step);
    if has("adam") || has("adamw") || (has("addcdiv") && (has("lerp") || has("mul"))) {
        Some(Algorithm::Adam)
    } else if has("adagrad") || has("addcdiv") {
        Some(Algorithm::Adagrad)
    } else if has("sgd") || (has("mul") && has("add")) {
        Some(Algorithm::SgdMomentum)
    } else {
        has("add").then_some(Algorithm::Sgd)
    }
}

/// Returns `addcmul` for `_foreach_addcmul_` and `adam` for `_fused_adam_`.
fn step_of(name: &str) -> &str {
    let name = name.trim_start_matches("_foreach_").trim_start_matches("_fused_");
    name.trim_end_matches('_')
}

/// Returns the manifest's parameters. Without a manifest, returns the tensors of the operator that
/// processes the fewest elements, since each step of an update processes all parameters at least
/// once.
fn parameters(graph: &Graph, facts: &Facts<'_>, calls: &[&Call]) -> Vec<Tensor> {
    let modules = facts.manifest.iter().flat_map(|manifest| &manifest.modules);
    let known: Vec<Tensor> = modules
        .flat_map(|module| &module.parameters)
        .map(|parameter| Tensor::new(ElementType::Float32, &[parameter.elements]))
        .collect();
    if !known.is_empty() {
        return known;
    }
    // By name: elements that its calls process.
    let mut by_name: Vec<(&str, f64)> = Vec::new();
    for call in calls {
        let Some(operator) = call.operator(graph) else { continue };
        let elements: f64 = large(operator).map(Tensor::elements).sum();
        if elements <= 0.0 {
            continue;
        }
        let name = call.name(graph);
        match by_name.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += elements,
            None => by_name.push((name, elements)),
        }
    }
    let least = by_name.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let Some((least, _)) = least else { return Vec::new() };
    let calls_of_least = calls.iter().filter(|call| call.name(graph) == least);
    let tensors = calls_of_least.filter_map(|call| call.operator(graph)).flat_map(large);
    tensors
        .map(|tensor| Tensor {
            element: tensor.element.or(Some(ElementType::Float32)),
            ..tensor.clone()
        })
        .collect()
}

/// Returns the tensors that a step processes, without scalars.
fn large(step: &Operator) -> impl Iterator<Item = &Tensor> {
    step.input(0).tensors().filter(|tensor| tensor.elements() > 1.0)
}
