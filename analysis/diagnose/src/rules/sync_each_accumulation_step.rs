//! `sync-each-accumulation-step`: gradients that are synchronized after every backward pass
//! although several are accumulated (PyTorch, "DistributedDataParallel.no_sync").

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, SourceLine};
use crate::rule::Rule;
use crate::source_queries::{loops_around, place};
use ridgeline_optimize::distributed::exchange;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::rewrite::forward::backwards;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::{mentions, within, written};
use ridgeline_profile::FileId;
use ridgeline_python::semantics::module::{Branch, last_name};
use ridgeline_python::syntax::kind::{Field, TypedNode as _};
use ridgeline_recording::observed::Replica;

pub(super) struct SyncEachAccumulationStep;

impl Rule for SyncEachAccumulationStep {
    fn name(&self) -> &'static str {
        "sync-each-accumulation-step"
    }

    fn title(&self) -> &'static str {
        "Gradients synchronized on every accumulation step"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        finding_of_recording(evidence).into_iter().collect()
    }

    fn unmeasured(&self, program: &Program<'_>) -> Vec<Finding> {
        let Some((module, line)) = accumulates_without_no_sync(program) else { return Vec::new() };
        vec![finding(place(program, module, line), None, None)]
    }
}

fn finding_of_recording(evidence: &Evidence<'_>) -> Option<Finding> {
    let manifest = evidence.manifest()?;
    let distributed = manifest.observed.distributed.as_ref()?;
    if distributed.world_size < 2 {
        return None;
    }
    let each = distributed.models.iter().find_map(Replica::exchanges_per_step)?;
    let written = only_backward(evidence.program).and_then(|(module, line)| {
        let (file, line) = evidence.recorded_line(module, line)?;
        Some(evidence.place(file, line))
    });
    let loop_place = || {
        let at = manifest.training_loop?;
        Some(evidence.place(FileId(at.file), at.line))
    };
    let saved_ns =
        if evidence.on_gpu() { saved_ns(evidence, each) } else { cpu_cost_ns(evidence, each) };
    let cost = saved_ns.map(|saved_ns| Cost::time(saved_ns).predicted());
    Some(finding(written.or_else(loop_place)?, Some(each), cost))
}

fn finding(at: SourceLine, each: Option<f64>, cost: Option<Cost>) -> Finding {
    let times = each.map_or("after every backward pass".to_owned(), |each| {
        format!("{each:.0} times per optimizer step")
    });
    Finding {
        rule: "sync-each-accumulation-step",
        at,
        message: format!("Gradients are synchronized between ranks {times}"),
        why: "Only the accumulated gradients are needed for the optimizer step. Run all backward \
            passes except the last under `with model.no_sync():` to synchronize them once."
            .to_owned(),
        cost,
        fix: Some(EditKind::Accumulate),
        ..Finding::default()
    }
}

/// The time that synchronization between CPUs costs before the last backward pass of a step, in
/// nanoseconds: the corresponding part of the exposed time, of copying gradients, and of half of
/// the rest, which shares its cores with the computation. Taken from the rank that waits least: the
/// others wait for it.
fn cpu_cost_ns(evidence: &Evidence<'_>, each: f64) -> Option<f64> {
    let profile = evidence.profile();
    let own = profile.exchange.as_deref()?;
    let ranks = profile.ranks.iter().flat_map(|ranks| &ranks.ranks);
    let all = ranks.filter_map(|rank| rank.exchange_ns).chain([(own.total_ns, own.exposed_ns)]);
    let least = all.min_by(|one, other| one.1.total_cmp(&other.1));
    let (total_ns, exposed_ns) = least.filter(|(total_ns, _)| *total_ns > 0.0)?;
    let concurrent_ns = (total_ns - exposed_ns - own.copying_ns).max(0.0);
    Some((exposed_ns + own.copying_ns + 0.5 * concurrent_ns) * (1.0 - 1.0 / each))
}

/// The time that the synchronizations before the last one of a step cost, in nanoseconds: by
/// simulating the iteration without them. Returns `None` if the recording has none.
fn saved_ns(evidence: &Evidence<'_>, each: f64) -> Option<f64> {
    let recorded = exchange::recorded(evidence.graph());
    let removable = exchange::before_the_last_pass(&recorded, each);
    if removable.is_empty() || !evidence.is_replayed() {
        return None;
    }
    Some(evidence.saved(|graph| removable.iter().for_each(|id| graph.remove(*id))))
}

/// The line of the program's only `backward()`.
fn only_backward(program: &Program<'_>) -> Option<(usize, u32)> {
    let found = backwards(program).ok()?;
    let [one] = &found[..] else { return None };
    let module = one.scope.0;
    Some((module, program.module(module).line(one.call.start_byte())))
}

/// The line of `backward()` in a program that wraps its model in `DistributedDataParallel`,
/// definitely steps its optimizer only in one of several iterations, and never mentions a way to
/// skip synchronization.
fn accumulates_without_no_sync(program: &Program<'_>) -> Option<(usize, u32)> {
    let is_wrapped = program.calls().any(|(module, call)| {
        last_name(&program.called(module, call)) == "DistributedDataParallel"
    });
    let skipping = ["no_sync", "require_backward_grad_sync", "register_comm_hook", "accumulate"];
    let mentioned =
        |word: &str| program.modules().iter().any(|text| mentions(text.index.text(), word));
    if !is_wrapped || skipping.iter().any(|word| mentioned(word)) {
        return None;
    }
    let found = backwards(program).ok()?;
    let [backward] = &found[..] else { return None };
    let (module, function) = backward.scope;
    let text = program.module(module);
    let around = loops_around(backward.call).into_iter().next()?;
    let backward_call = text.calls.iter().find(|call| call.span == backward.call.byte_range())?;
    let steps: Vec<&[Branch]> = text
        .calls
        .iter()
        .filter(|call| {
            let owner = call.callee.rsplit_once('.').map(|(owner, _)| owner.to_lowercase());
            let is_optimizer =
                owner.is_some_and(|owner| owner.contains("optim") || owner.contains("scaler"));
            is_optimizer
                && call.name() == "step"
                && call.function == function
                && around.byte_range().contains(&call.span.start)
        })
        .map(|call| call.branches.as_slice())
        .collect();
    let counts =
        |branch: &&Branch| branch.holds && counts_to_several(program, module, &branch.condition);
    let is_conditional = |branches: &&[Branch]| {
        let own = branches.iter().filter(|branch| !backward_call.branches.contains(branch));
        own.filter(counts).count() > 0
    };
    let is_accumulation =
        backward_call.branches.is_empty() && !steps.is_empty() && steps.iter().all(is_conditional);
    is_accumulation.then(|| (module, text.line(backward.call.start_byte())))
}

/// Whether a condition is `… % N == 0` for a number above one, given as a literal or a constant.
fn counts_to_several(
    program: &Program<'_>,
    module: usize,
    condition: &std::ops::Range<usize>,
) -> bool {
    let text = program.module(module);
    let Some(condition) = text.node(condition) else { return false };
    within(condition).into_iter().any(|node| {
        let operator = node.field(Field::Operator).map(|one| one.kind());
        let right = node.field(Field::Right).filter(|_| operator == Some("%"));
        let Some(right) = right else { return false };
        let name = written(text, right);
        if let Ok(number) = name.parse::<u32>() {
            return number > 1;
        }
        let values: Vec<&str> = text
            .assignments
            .iter()
            .filter(|one| one.target == name)
            .map(|one| text.text(&one.value))
            .collect();
        let is_several = |value: &&str| value.parse::<u32>().is_ok_and(|number| number > 1);
        !values.is_empty() && values.iter().all(is_several)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::harness::{Case, lines_in};
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_profile::Phase;
    use ridgeline_profile::exchange::Exchange;
    use ridgeline_recording::observed::{Distributed, Replica};

    const PROGRAM: &str = "\
from torch.nn.parallel import DistributedDataParallel as DDP
model = DDP(net)
STEPS = 4
for number, (x, y) in enumerate(loader):  # loop
    loss = criterion(model(x), y)
    loss.backward()  # backward
    if (number + 1) % STEPS == 0:
        optimizer.step()
        optimizer.zero_grad()
";

    #[track_caller]
    fn check(old: &str, new: &str, expected: &[u32]) {
        let text = PROGRAM.replace(old, new);
        assert_eq!(lines_in(&SyncEachAccumulationStep, &text), expected, "{text}");
    }

    #[test]
    fn accumulation_that_synchronizes_each_time() {
        check("", "", &[6]);
        check("% STEPS", "% 8", &[6]);
    }

    #[test]
    fn no_sync_or_uncertain_accumulation_is_not_reported() {
        check("    loss.backward()", "    with model.no_sync():\n        loss.backward()", &[]);
        check("STEPS = 4", "STEPS = 1", &[]);
        check("STEPS = 4", "STEPS = args.steps", &[]);
        check("DDP(net)", "net", &[]);
        check(
            "    if (number + 1) % STEPS == 0:\n        optimizer.step()",
            "    optimizer.step()",
            &[],
        );
    }

    /// Two backward passes for each step, each followed by an all-reduce of 10 ms.
    fn recorded(exchanges: u32) -> Case {
        let mut case = Case::new(PROGRAM).on_gpu();
        for _ in 0..2 {
            let at = case.line("backward");
            case.launch(TaskKind::Kernel, "k", 5e6, Some(at));
            let (_, exchange) =
                case.launch(TaskKind::Communication, "ncclAllReduce", 10e6, Some(at));
            case.graph.task_mut(exchange).expect("the task").phase = Phase::Backward;
        }
        case.host(TaskKind::HostGap, 1e6, Phase::Optimizer, None);
        let models = vec![Replica { module: 0, backwards: 8, exchanges, steps: 4 }];
        let distributed = Distributed { world_size: 2, models, ..Distributed::default() };
        case.manifest.observed.distributed = Some(distributed);
        case
    }

    #[test]
    fn cost_is_the_simulated_saving() {
        let cost = recorded(8).finds(&SyncEachAccumulationStep, "backward").cost.expect("a cost");
        assert!((cost.time_ns - 10e6).abs() < 0.1e6 && cost.is_predicted, "{cost:?}");
        assert_eq!(recorded(4).measured(&SyncEachAccumulationStep), []);
    }

    #[test]
    fn cost_on_cpus_is_waiting_and_core_time() {
        let mut case = recorded(8);
        case.profile.device.kind = "cpu".to_owned();
        // 8 ms of waiting, 2 ms of copying, and half of the remaining 2 ms: one of two passes is
        // saved.
        let (total_ns, exposed_ns, copying_ns) = (12e6, 8e6, 2e6);
        let exchange = Exchange { total_ns, exposed_ns, copying_ns, lines: Vec::new() };
        case.profile.exchange = Some(Arc::new(exchange));
        let cost = case.finds(&SyncEachAccumulationStep, "backward").cost.expect("a cost");
        assert!((cost.time_ns - 5.5e6).abs() < 1.0 && cost.is_predicted, "{cost:?}");
    }

    #[test]
    fn single_rank_is_not_reported() {
        let mut alone = recorded(8);
        alone.manifest.observed.distributed.as_mut().expect("ranks").world_size = 1;
        assert_eq!(alone.measured(&SyncEachAccumulationStep), []);
    }
}
