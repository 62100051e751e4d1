//! Gradient accumulation: gradients are exchanged once in several steps, and each GPU accumulates
//! its own in between (`no_sync`; Li et al., VLDB 2020, section 3.2.4).

use crate::distributed::exchange::{self, Plan};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use ridgeline_graph::graph::{Graph, Task, TaskKind};
use ridgeline_graph::simulate;
use ridgeline_profile::Phase;

/// Batches per exchange and optimizer step.
const BATCHES: f64 = 4.0;

pub(super) struct Accumulate;

impl Optimization for Accumulate {
    fn name(&self) -> &'static str {
        "accumulate"
    }

    fn title(&self) -> &'static str {
        "Data parallel with gradient accumulation (4 batches)"
    }

    fn source(&self) -> &'static str {
        "Li et al., VLDB 2020, section 3.2.4 (no_sync)"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
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
            "the optimizer steps once per {BATCHES} batches, on their accumulated gradients"
        ));
        Ok(effect)
    }

    fn can_combine(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::example::{ExampleInputs, KERNEL_NS, step};

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
}
