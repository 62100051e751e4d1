//! Gradient accumulation: gradients are exchanged once in several steps, and each GPU accumulates
//! its own in between (`no_sync`; Li et al., VLDB 2020, section 3.2.4).

use crate::distributed::exchange::{self, Plan};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use ridgeline_graph::graph::{Graph, Task, TaskId, TaskKind};
use ridgeline_graph::simulate;
use ridgeline_profile::Phase;
use ridgeline_recording::observed::Replica;

/// Batches per exchange and optimizer step.
const BATCHES: f64 = 4.0;

pub(super) struct Accumulate;

impl Optimization for Accumulate {
    fn name(&self) -> &'static str {
        "accumulate"
    }

    fn title(&self) -> &'static str {
        "Gradients synchronized once per step"
    }

    fn source(&self) -> &'static str {
        "Li et al., VLDB 2020, section 3.2.4 (no_sync)"
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::Accumulate)
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let recorded = exchange::recorded(graph);
        if !recorded.is_empty() {
            return synchronize_once(graph, facts, &recorded);
        }
        let plan = Plan::new(graph, facts)?;
        let topology = plan.topology_at(bound);
        let run = |graph: &Graph| {
            let schedule = simulate::steady(graph).map_err(|error| error.to_string());
            schedule.map(|schedule| schedule.iteration_ns)
        };
        let optimizer_tasks = graph.select(|task| task.phase == Phase::Optimizer);
        let mut with = graph.clone();
        exchange::add(&mut with, &plan, bound, exchange::one_all_reduce(&topology));
        let mut without = graph.clone();
        without.scale(&optimizer_tasks, 0.0);
        let mean_ns = (run(&with)? + (BATCHES - 1.0) * run(&without)?) / BATCHES;
        // One graph represents the mean: a share of the optimizer, and the time that the exchange
        // adds.
        graph.scale(&optimizer_tasks, 1.0 / BATCHES);
        let added_ns = (mean_ns - run(graph)?).max(0.0);
        let place = plan.last_place().unwrap_or_default();
        let task = Task::new(TaskKind::Communication, added_ns, Phase::Backward);
        for last in plan.order.launched_by(place).collect::<Vec<_>>() {
            graph.insert_after(last, task);
        }
        let ready = plan.gradients.iter().map(|(_, one)| one.ready);
        if let Some(last) = ready.max_by_key(|task| plan.order.place(*task)) {
            graph.insert_after(last, Task { kind: TaskKind::Wait, ..task });
        }
        exchange::add_bucket_memory(graph, plan.bytes());
        let mut effect = exchange::effect(facts, &plan);
        effect.notes.push(format!(
            "data parallel; the optimizer steps once per {BATCHES} batches, on their accumulated gradients"
        ));
        Ok(effect)
    }

    fn can_combine(&self) -> bool {
        false
    }
}

/// Removes the exchanges before the last backward pass of a step, in a recording of several GPUs.
fn synchronize_once(
    graph: &mut Graph,
    facts: &Facts<'_>,
    recorded: &[TaskId],
) -> Result<Effect, String> {
    let distributed = facts.manifest.and_then(|manifest| manifest.observed.distributed.as_ref());
    let models = distributed.map(|distributed| distributed.models.as_slice()).unwrap_or_default();
    let Some(passes) = models.iter().find_map(Replica::exchanges_per_step) else {
        return Err(
            "the program does not synchronize accumulated gradients several times per step"
                .to_owned(),
        );
    };
    for id in exchange::before_the_last_pass(recorded, passes) {
        graph.remove(*id);
    }
    let mut effect = Effect::default();
    effect.lines.extend(facts.profile.iteration.loop_line);
    effect.notes.push(format!("gradients are synchronized once in {passes:.0} backward passes"));
    Ok(effect)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::example::{ExampleInputs, KERNEL_NS, step};
    use ridgeline_recording::manifest::Manifest;
    use ridgeline_recording::observed::Distributed;

    #[test]
    fn exchange_and_optimizer_run_once_in_four_steps() {
        let known = ExampleInputs::on("NVIDIA H200");
        // 1e9 bytes at 10 GB/s, fully exposed.
        let facts = known.facts(2, 8, 10e9 / 1.1);
        let mut graph = step(&[1e9]);
        let effect = Accumulate.apply(&mut graph, &facts, Bound::Low).expect("it applies");
        assert_eq!(effect.samples_factor, 2.0);
        let found = simulate::steady(&graph).expect("it runs").iteration_ns;
        let expected = 2.0 * KERNEL_NS + (KERNEL_NS + 100e6) / BATCHES;
        assert!((found / expected - 1.0).abs() < 0.03, "{found} is not {expected}");
    }

    #[test]
    fn recorded_exchanges_remain_after_the_last_backward_pass() {
        let known = ExampleInputs::on("NVIDIA H200");
        let mut manifest = Manifest::default();
        let models = vec![Replica { backwards: 8, exchanges: 8, steps: 2, ..Replica::default() }];
        manifest.observed.distributed =
            Some(Distributed { world_size: 2, models, ..Distributed::default() });
        let facts = Facts { manifest: Some(&manifest), ..known.facts(2, 8, 10e9) };
        let mut graph = step(&[1.0, 1.0, 1.0, 1.0]);
        let link = graph.resource(&exchange::link());
        let mut last = None;
        for _ in 0..4 {
            let task = Task::new(TaskKind::Communication, 50e6, Phase::Backward);
            last = Some(graph.push(link, task));
        }
        Accumulate.apply(&mut graph, &facts, Bound::Likely).expect("it applies");
        let remaining = exchange::recorded(&graph);
        assert_eq!(remaining, last.into_iter().collect::<Vec<_>>());
        let why = Accumulate.apply(&mut graph, &known.facts(2, 8, 10e9), Bound::Likely);
        assert!(why.expect_err("nothing is known about it").contains("accumulated"));
    }
}
