//! Reports whether data-parallel training pays off over a given network: what each layer sends, how
//! much of it overlaps with the backward pass, how it scales, and the minimum bandwidth (the
//! network question of TBD, Zhu et al., IISWC 2018, section 4.5).

use std::collections::BTreeMap;

use serde::Serialize;

use super::distributed::all_reduce::{Topology, time_ns};
use super::distributed::exchange::{self, BucketExchange, Plan};
use super::facts::Facts;
use super::optimization::Bound;
use ridgeline_graph::graph::{Graph, TaskKind};
use ridgeline_graph::recorded::Recorded;
use ridgeline_graph::simulate::{self, Schedule};

/// The GPU counts for which scaling is reported.
const COUNTS: [u32; 5] = [2, 4, 8, 16, 64];
/// The minimum efficiency per GPU at which data-parallel training pays off.
const MIN_EFFICIENCY: f64 = 0.9;
/// The range of bandwidths searched, in bytes per second: 1 MB/s to 10 TB/s.
const BANDWIDTHS: (f64, f64) = (1e6, 1e13);
/// The number of bisection steps, which leave an error below 1%.
const BISECTION_STEPS: u32 = 12;

/// The report on data-parallel training.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NetworkReport {
    /// Requested number of GPUs.
    pub gpus: u32,
    /// GPUs per machine.
    pub gpus_per_machine: u32,
    /// The bandwidth assumed, in bytes per second and direction: between machines if there are
    /// several, otherwise within one.
    pub bandwidth: f64,
    /// Gradients per step, in bytes.
    pub bytes: f64,
    /// Step time on one GPU, in nanoseconds.
    pub alone_ns: f64,
    /// Step time on all GPUs, in nanoseconds.
    pub step_ns: f64,
    /// Time of the gradient exchange, in nanoseconds.
    pub exchange_ns: f64,
    /// Part of the exchange that overlaps with computation, in nanoseconds.
    pub hidden_ns: f64,
    /// Part of the exchange during which the GPU waits, in nanoseconds.
    pub exposed_ns: f64,
    /// Exchange by module, most bytes first.
    pub layers: Vec<Layer>,
    /// Scaling to 2, 4, 8, 16 and 64 GPUs.
    pub scaling: Vec<Scaling>,
    /// Minimum bandwidth at which each GPU reaches 90% of its single-GPU throughput, in bytes per
    /// second. Null if no bandwidth is enough.
    pub bandwidth_for_90_percent: Option<f64>,
    /// Minimum bandwidth at which all GPUs together beat one, in bytes per second. Null if no
    /// bandwidth is enough.
    pub bandwidth_to_gain: Option<f64>,
    /// Assumptions.
    pub notes: Vec<String>,
}

/// The gradient exchange of one module.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Layer {
    /// Module path, such as `layer1.0.conv1`. Null for gradients whose module is unknown.
    pub module: Option<String>,
    /// Size of its gradients in bytes.
    pub bytes: f64,
    /// Time of the exchange in nanoseconds: its share of its bucket's.
    pub exchange_ns: f64,
    /// Part of the exchange that overlaps with computation, in nanoseconds.
    pub hidden_ns: f64,
    /// Part of the exchange during which the GPU waits, in nanoseconds.
    pub exposed_ns: f64,
}

/// Scaling to a number of GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Scaling {
    /// Number of GPUs.
    pub gpus: u32,
    /// Step time in nanoseconds.
    pub step_ns: f64,
    /// Samples per second relative to one GPU.
    pub speedup: f64,
    /// Speedup divided by the number of GPUs; 1 is perfect.
    pub efficiency: f64,
}

/// Creates the report for a recorded iteration.
///
/// # Errors
/// Fails like [`Plan::new`], or if the graph cannot be simulated.
pub fn report(recorded: &Recorded, facts: &Facts<'_>) -> Result<NetworkReport, String> {
    let alone_ns = recorded.schedule.iteration_ns;
    let requested = Distributed::new(recorded, facts, facts.cluster.gpus)?;
    let schedule = requested.run(requested.plan.topology)?;
    let mut found = NetworkReport {
        gpus: facts.cluster.gpus,
        gpus_per_machine: facts.cluster.gpus_per_machine,
        bandwidth: requested.plan.topology.slowest(),
        bytes: requested.plan.bytes(),
        alone_ns,
        step_ns: schedule.iteration_ns,
        notes: requested.plan.notes.clone(),
        ..NetworkReport::default()
    };
    found.layers = requested.layers(&schedule, facts);
    for layer in &found.layers {
        found.exchange_ns += layer.exchange_ns;
        found.hidden_ns += layer.hidden_ns;
        found.exposed_ns += layer.exposed_ns;
    }
    for gpus in COUNTS {
        let distributed = Distributed::new(recorded, facts, gpus)?;
        let step_ns = distributed.run(distributed.plan.topology)?.iteration_ns;
        let efficiency = if step_ns > 0.0 { alone_ns / step_ns } else { 1.0 };
        let speedup = efficiency * f64::from(gpus);
        found.scaling.push(Scaling { gpus, step_ns, speedup, efficiency });
    }
    let bandwidth_for = |limit_ns: f64| requested.min_bandwidth(limit_ns);
    found.bandwidth_for_90_percent = bandwidth_for(alone_ns / MIN_EFFICIENCY)?;
    found.bandwidth_to_gain = bandwidth_for(alone_ns * f64::from(facts.cluster.gpus))?;
    Ok(found)
}

/// A graph with the gradient exchange.
struct Distributed {
    plan: Plan,
    graph: Graph,
    sent: Vec<BucketExchange>,
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

    /// Simulates it with another topology of the same number of GPUs.
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

    /// Returns the minimum bandwidth at which a step takes at most `limit_ns`.
    fn min_bandwidth(&self, limit_ns: f64) -> Result<Option<f64>, String> {
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
        for _ in 0..BISECTION_STEPS {
            let middle = (low * high).sqrt();
            if fits(middle)? {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(Some(high))
    }

    /// Computes the exchange of each module: its share of each bucket.
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

/// Returns the disjoint intervals in which the GPU computes, in order.
fn busy(graph: &Graph, schedule: &Schedule) -> Vec<(f64, f64)> {
    let mut intervals: Vec<(f64, f64)> = graph
        .iter()
        .filter(|(_, task)| !task.kind.is_host() && task.kind != TaskKind::Communication)
        .filter_map(|(id, _)| {
            let start_ns = *schedule.start_ns.get(id.index())?;
            Some((start_ns, *schedule.end_ns.get(id.index())?))
        })
        .collect();
    intervals.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut merged: Vec<(f64, f64)> = Vec::with_capacity(intervals.len());
    for (start_ns, end_ns) in intervals {
        match merged.last_mut().filter(|(_, last_ns)| start_ns <= *last_ns) {
            Some((_, last_ns)) => *last_ns = last_ns.max(end_ns),
            None => merged.push((start_ns, end_ns)),
        }
    }
    merged
}

/// Returns how much of a time span the intervals cover.
fn covered(intervals: &[(f64, f64)], start_ns: f64, end_ns: f64) -> f64 {
    let first = intervals.partition_point(|(_, to_ns)| *to_ns <= start_ns);
    let within = intervals.get(first..).unwrap_or_default().iter();
    let within = within.take_while(|(from_ns, _)| *from_ns < end_ns);
    within.map(|(from_ns, to_ns)| to_ns.min(end_ns) - from_ns.max(start_ns)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::example::{ExampleInputs, KERNEL_NS, step};

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
    fn hidden_and_exposed_time_add_up() {
        let known = ExampleInputs::on("NVIDIA H200");
        // The last layer's 50 MB overlap with the first layer's backward kernel, the first layer's
        // follow it: 5 ms each.
        let report = report(&recorded(&[50e6, 50e6]), &known.facts(2, 8, 10e9)).expect("it runs");
        let [first, last] = report.layers.as_slice() else { panic!("two layers") };
        about(first.exchange_ns + last.exchange_ns, 10e6);
        about(report.exposed_ns, 5e6);
        about(report.hidden_ns, 5e6);
        about(report.bytes, 100e6);
        about(report.alone_ns, 5.0 * KERNEL_NS);
    }

    #[test]
    fn the_minimum_bandwidth_is_the_break_even_point() {
        let known = ExampleInputs::on("NVIDIA H200");
        let recorded = recorded(&[1e9]);
        let report = report(&recorded, &known.facts(2, 8, 10e9)).expect("it runs");
        // Two GPUs beat one if the exchange takes less than a step: 30 ms for 1 GB.
        about(report.bandwidth_to_gain.expect("a bandwidth"), 1e9 / 0.03);
        let enough = report.bandwidth_for_90_percent.expect("a bandwidth");
        let at = |bandwidth: f64| {
            let facts = known.facts(2, 8, bandwidth);
            super::report(&recorded, &facts).expect("it runs").scaling[0].efficiency
        };
        assert!(at(enough * 1.02) >= MIN_EFFICIENCY && at(enough / 1.02) < MIN_EFFICIENCY);
    }

    #[test]
    fn efficiency_falls_with_gpus_and_small_gradients_cost_little() {
        let known = ExampleInputs::on("NVIDIA H200");
        let of = |bytes: f64| {
            report(&recorded(&[bytes, bytes]), &known.facts(4, 8, 10e9)).expect("it runs").scaling
        };
        let large = of(500e6);
        assert!(large.windows(2).all(|two| two[1].efficiency <= two[0].efficiency));
        assert!(of(1e3).iter().all(|one| one.efficiency > 0.95));
        assert!(large.iter().all(|one| one.efficiency < 0.6));
    }
}
