//! Whether data-parallel training pays over a given network: what each layer sends, how much of it the
//! backward pass hides, how it scales, and the least bandwidth at which it is worth it (the network
//! question of TBD, Zhu et al., IISWC 2018, section 4.5).

use std::collections::BTreeMap;

use serde::Serialize;

use super::distributed::all_reduce::{Topology, time_ns};
use super::distributed::exchange::{self, Plan, Sent};
use super::facts::Facts;
use super::optimization::Bound;
use ridgeline_graph::graph::{Graph, TaskKind};
use ridgeline_graph::recorded::Recorded;
use ridgeline_graph::simulate::{self, Schedule};

/// The numbers of GPUs for which scaling is told.
const COUNTS: [u32; 5] = [2, 4, 8, 16, 64];
/// Data-parallel training pays where each GPU does at least this share of what it does alone.
const PAYS: f64 = 0.9;
/// Bandwidths that are looked at, in bytes per second: 1 MB/s to 10 TB/s.
const BANDWIDTHS: (f64, f64) = (1e6, 1e13);
/// Halvings of that range, which leave less than 1% in doubt.
const HALVINGS: u32 = 12;

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NetworkReport {
    /// GPUs that were asked for.
    pub gpus: u32,
    /// Those of them that share a machine.
    pub gpus_per_machine: u32,
    /// The bandwidth that it was answered for, in bytes per second and direction: between machines
    /// where there are several, otherwise within one.
    pub bandwidth: f64,
    /// Bytes of gradients in a step.
    pub bytes: f64,
    /// Nanoseconds of a step on one GPU.
    pub alone_ns: f64,
    /// Nanoseconds of a step on all of them.
    pub step_ns: f64,
    /// Nanoseconds that the exchange takes.
    pub exchange_ns: f64,
    /// Those of them while the GPU computes.
    pub hidden_ns: f64,
    /// Those while it waits.
    pub exposed_ns: f64,
    /// By module, the most bytes first.
    pub layers: Vec<Layer>,
    /// For 2, 4, 8, 16 and 64 GPUs.
    pub scaling: Vec<Scaling>,
    /// The least bandwidth at which each GPU does 90% of what it does alone, in bytes per second; null
    /// where no bandwidth is enough.
    pub bandwidth_for_90_percent: Option<f64>,
    /// The least bandwidth at which all of them do more than one alone; null likewise.
    pub bandwidth_to_gain: Option<f64>,
    /// What was assumed.
    pub notes: Vec<String>,
}

/// What one module sends.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Layer {
    /// `layer1.0.conv1`; null for gradients whose module is not known.
    pub module: Option<String>,
    /// Bytes of its gradients.
    pub bytes: f64,
    /// Nanoseconds of the exchange, its share of the bucket that it goes in.
    pub exchange_ns: f64,
    /// Those of them while the GPU computes.
    pub hidden_ns: f64,
    /// Those while it waits.
    pub exposed_ns: f64,
}

/// How it does on so many GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Scaling {
    /// How many.
    pub gpus: u32,
    /// Nanoseconds of a step.
    pub step_ns: f64,
    /// Samples per second over those of one GPU.
    pub speedup: f64,
    /// The same over the number of GPUs: 1 is perfect.
    pub efficiency: f64,
}

/// Answers for a recorded iteration.
///
/// # Errors
/// As [`Plan::new`], and where the graph cannot be run.
pub fn report(recorded: &Recorded, facts: &Facts<'_>) -> Result<NetworkReport, String> {
    let alone_ns = recorded.schedule.iteration_ns;
    let asked = Distributed::new(recorded, facts, facts.cluster.gpus)?;
    let schedule = asked.run(asked.plan.topology)?;
    let mut found = NetworkReport {
        gpus: facts.cluster.gpus,
        gpus_per_machine: facts.cluster.gpus_per_machine,
        bandwidth: asked.plan.topology.slowest(),
        bytes: asked.plan.bytes(),
        alone_ns,
        step_ns: schedule.iteration_ns,
        notes: asked.plan.notes.clone(),
        ..NetworkReport::default()
    };
    found.layers = asked.layers(&schedule, facts);
    for layer in &found.layers {
        found.exchange_ns += layer.exchange_ns;
        found.hidden_ns += layer.hidden_ns;
        found.exposed_ns += layer.exposed_ns;
    }
    for gpus in COUNTS {
        let these = Distributed::new(recorded, facts, gpus)?;
        let step_ns = these.run(these.plan.topology)?.iteration_ns;
        let efficiency = if step_ns > 0.0 { alone_ns / step_ns } else { 1.0 };
        let speedup = efficiency * f64::from(gpus);
        found.scaling.push(Scaling { gpus, step_ns, speedup, efficiency });
    }
    let at_most = |limit_ns: f64| asked.least_bandwidth(limit_ns);
    found.bandwidth_for_90_percent = at_most(alone_ns / PAYS)?;
    found.bandwidth_to_gain = at_most(alone_ns * f64::from(facts.cluster.gpus))?;
    Ok(found)
}

/// A graph with the exchange in it.
struct Distributed {
    plan: Plan,
    graph: Graph,
    sent: Vec<Sent>,
}

impl Distributed {
    fn new(recorded: &Recorded, facts: &Facts<'_>, gpus: u32) -> Result<Distributed, String> {
        let mut facts = *facts;
        facts.cluster.gpus = gpus;
        let plan = Plan::new(&recorded.graph, &facts)?;
        let mut graph = recorded.graph.clone();
        let stages = exchange::one_all_reduce(&plan.topology);
        let sent = exchange::add(&mut graph, &plan, Bound::Likely, stages);
        Ok(Distributed { plan, graph, sent })
    }

    /// Runs it over another topology of as many GPUs.
    fn run(&self, topology: Topology) -> Result<Schedule, String> {
        if topology == self.plan.topology {
            return simulate::steady(&self.graph).map_err(|error| error.to_string());
        }
        let mut graph = self.graph.clone();
        for one in &self.sent {
            if let Some(task) = graph.task_mut(one.task) {
                task.duration_ns = time_ns(one.bucket.bytes, &topology);
            }
        }
        simulate::steady(&graph).map_err(|error| error.to_string())
    }

    /// The least bandwidth at which a step takes no longer.
    fn least_bandwidth(&self, limit_ns: f64) -> Result<Option<f64>, String> {
        let fits = |bandwidth: f64| {
            let schedule = self.run(self.plan.topology.with_bandwidth(bandwidth))?;
            Ok::<bool, String>(schedule.iteration_ns <= limit_ns)
        };
        let (mut low, mut high) = BANDWIDTHS;
        if !fits(high)? {
            return Ok(None);
        }
        if fits(low)? {
            return Ok(Some(low));
        }
        for _ in 0..HALVINGS {
            let middle = (low * high).sqrt();
            if fits(middle)? {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(Some(high))
    }

    /// What each module's gradients cost: its share of each bucket.
    fn layers(&self, schedule: &Schedule, facts: &Facts<'_>) -> Vec<Layer> {
        let busy = busy(&self.graph, schedule);
        let mut by_module: BTreeMap<Option<u32>, Layer> = BTreeMap::new();
        for one in &self.sent {
            let at = |times: &[f64]| times.get(one.task.index()).copied().unwrap_or(0.0);
            let (start_ns, end_ns) = (at(&schedule.start_ns), at(&schedule.end_ns));
            let hidden_ns = covered(&busy, start_ns, end_ns);
            for index in &one.bucket.gradients {
                let Some(gradient) = self.graph.gradients.get(*index) else { continue };
                let share = gradient.bytes / one.bucket.bytes.max(1.0);
                let layer = by_module.entry(gradient.module).or_default();
                layer.bytes += gradient.bytes;
                layer.exchange_ns += share * (end_ns - start_ns);
                layer.hidden_ns += share * hidden_ns;
                layer.exposed_ns += share * (end_ns - start_ns - hidden_ns);
            }
        }
        let mut layers: Vec<Layer> = by_module
            .into_iter()
            .map(|(module, layer)| {
                let known = module.and_then(|module| facts.profile.modules.get(module as usize));
                Layer { module: known.map(|module| module.path.clone()), ..layer }
            })
            .collect();
        layers.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
        layers
    }
}

/// When the GPU computes: stretches in order, apart from each other.
fn busy(graph: &Graph, schedule: &Schedule) -> Vec<(f64, f64)> {
    let mut stretches: Vec<(f64, f64)> = graph
        .iter()
        .filter(|(_, task)| !task.kind.is_host() && task.kind != TaskKind::Communication)
        .filter_map(|(id, _)| {
            let start_ns = *schedule.start_ns.get(id.index())?;
            Some((start_ns, *schedule.end_ns.get(id.index())?))
        })
        .collect();
    stretches.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut joined: Vec<(f64, f64)> = Vec::with_capacity(stretches.len());
    for (start_ns, end_ns) in stretches {
        match joined.last_mut().filter(|(_, last_ns)| start_ns <= *last_ns) {
            Some((_, last_ns)) => *last_ns = last_ns.max(end_ns),
            None => joined.push((start_ns, end_ns)),
        }
    }
    joined
}

/// How much of a time is within stretches.
fn covered(stretches: &[(f64, f64)], start_ns: f64, end_ns: f64) -> f64 {
    let first = stretches.partition_point(|(_, to_ns)| *to_ns <= start_ns);
    let within = stretches.get(first..).unwrap_or_default().iter();
    let within = within.take_while(|(from_ns, _)| *from_ns < end_ns);
    within.map(|(from_ns, to_ns)| to_ns.min(end_ns) - from_ns.max(start_ns)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::example::{KERNEL_NS, Known, step};

    fn recorded(layers: &[f64]) -> Recorded {
        let graph = step(layers);
        let schedule = simulate::steady(&graph).expect("it runs");
        let measured_ns = schedule.iteration_ns;
        Recorded {
            graph,
            schedule,
            replay_error: 0.0,
            measured_ns,
            host_factor: 1.0,
            notes: Vec::new(),
        }
    }

    #[track_caller]
    fn about(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 0.05, "{found} is not {expected}");
    }

    #[test]
    fn what_is_hidden_and_what_is_exposed_adds_up() {
        let known = Known::on("NVIDIA H200");
        // The last layer's 50 MB go beside the first layer's backward kernel, the first layer's
        // after it: 5 ms each.
        let report = report(&recorded(&[50e6, 50e6]), &known.facts(2, 8, 10e9)).expect("it runs");
        let [first, last] = report.layers.as_slice() else { panic!("two layers") };
        about(first.exchange_ns + last.exchange_ns, 10e6);
        about(report.exposed_ns, 5e6);
        about(report.hidden_ns, 5e6);
        about(report.bytes, 100e6);
        about(report.alone_ns, 5.0 * KERNEL_NS);
    }

    #[test]
    fn the_least_bandwidth_is_where_it_begins_to_pay() {
        let known = Known::on("NVIDIA H200");
        let recorded = recorded(&[1e9]);
        let report = report(&recorded, &known.facts(2, 8, 10e9)).expect("it runs");
        // Two GPUs do more than one where the exchange takes less than a step: 30 ms for 1 GB.
        about(report.bandwidth_to_gain.expect("a bandwidth"), 1e9 / 0.03);
        let enough = report.bandwidth_for_90_percent.expect("a bandwidth");
        let at = |bandwidth: f64| {
            let facts = known.facts(2, 8, bandwidth);
            super::report(&recorded, &facts).expect("it runs").scaling[0].efficiency
        };
        assert!(at(enough * 1.02) >= PAYS && at(enough / 1.02) < PAYS);
    }

    #[test]
    fn efficiency_falls_with_gpus_and_small_gradients_cost_little() {
        let known = Known::on("NVIDIA H200");
        let of = |bytes: f64| {
            report(&recorded(&[bytes, bytes]), &known.facts(4, 8, 10e9)).expect("it runs").scaling
        };
        let large = of(500e6);
        assert!(large.windows(2).all(|two| two[1].efficiency <= two[0].efficiency));
        assert!(of(1e3).iter().all(|one| one.efficiency > 0.95));
        assert!(large.iter().all(|one| one.efficiency < 0.6));
    }
}
