//! Priority-based parameter propagation: gradients are sent in slices, those that the next forward
//! pass needs first before the others, and a layer's next forward pass waits only for its own
//! slices (P3, Jayarajan et al., MLSys 2019, section 4).

use std::collections::HashMap;

use crate::distributed::all_reduce::{BASE_NS, time_ns, transfer_ns};
use crate::distributed::exchange::{self, Plan};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use ridgeline_graph::graph::{Gradient, Graph, Task, TaskId, TaskKind};
use ridgeline_profile::Phase;

/// Size of a slice in bytes: 50,000 parameters, the best size in the paper (section 5).
const SLICE_BYTES: f64 = 50_000.0 * 4.0;
/// The minimum time of a slice as a multiple of the launch time. The paper's links are slow; on a
/// faster one, slices have to be larger.
const MIN_LAUNCH_MULTIPLE: f64 = 20.0;

pub(super) struct P3;

impl Optimization for P3 {
    fn name(&self) -> &'static str {
        "p3"
    }

    fn title(&self) -> &'static str {
        "Data parallel with priority scheduling (P3)"
    }

    fn source(&self) -> &'static str {
        "Jayarajan et al., MLSys 2019, section 4"
    }

    fn is_research(&self) -> bool {
        true
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let plan = Plan::new(graph, facts)?;
        let topology = plan.topology_at(bound);
        let gpus = f64::from(topology.gpus);
        let moved_ns =
            |bytes: f64| transfer_ns(bytes * 2.0 * (gpus - 1.0) / gpus, topology.slowest());
        let slice_bytes =
            SLICE_BYTES * (MIN_LAUNCH_MULTIPLE * BASE_NS / moved_ns(SLICE_BYTES)).max(1.0);
        // Slices are pipelined: one does not wait for the latency of the previous one.
        let path_latency_ns = (time_ns(1.0, &topology) - BASE_NS).max(0.0);
        let waiting_ns = exchange::waiting_ns(graph);
        let link = graph.resource(&exchange::link());
        let first_uses = FirstUses::new(graph, &plan);
        let arrival = shares(graph, &plan);
        for ((order, (_, gradient)), arrival) in plan.gradients.iter().enumerate().zip(arrival) {
            let ready = plan.ready(gradient);
            let count = (gradient.bytes / slice_bytes).ceil().max(1.0);
            let duration_ns = BASE_NS + moved_ns(gradient.bytes / count);
            let mut slice = Task::new(TaskKind::Communication, duration_ns, Phase::Backward);
            (slice.module, slice.bytes) = (gradient.module, Some((gradient.bytes / count) as u64));
            // The backward pass ends with the layer that the forward pass starts with.
            slice.priority = order as i32;
            let mut last = None;
            for _ in 0..count as u32 {
                let id = graph.push(link, slice);
                for task in &ready {
                    graph.wait(*task, id, 0.0);
                }
                last = Some(id);
            }
            if let (Some(last), Some(first)) = (last, first_uses.first_of(gradient.module, arrival))
            {
                graph.wait_across(last, first, path_latency_ns);
            }
        }
        graph.reschedule(link, |task| task.priority);
        let slowest = Task::new(TaskKind::Communication, waiting_ns, Phase::Backward);
        if let Some(last) = plan.order.main_stream().and_then(|stream| graph.last(stream)) {
            graph.insert_after(last, slowest);
        }
        let mut effect = exchange::effect(facts, &plan);
        effect.notes.push(format!(
            "slices of {:.1} MB; each parameter is updated as soon as its slices arrive",
            slice_bytes / 1e6
        ));
        Ok(effect)
    }

    fn can_combine(&self) -> bool {
        false
    }
}

/// The first forward task that needs the parameters of each module.
struct FirstUses {
    /// The first task, by module.
    first: HashMap<u32, TaskId>,
    /// Forward kernels with the device time before each, in nanoseconds.
    kernels: Vec<(f64, TaskId)>,
    /// Device time of all forward kernels, in nanoseconds.
    all_ns: f64,
}

impl FirstUses {
    fn new(graph: &Graph, plan: &Plan) -> FirstUses {
        let mut first_uses = FirstUses { first: HashMap::new(), kernels: Vec::new(), all_ns: 0.0 };
        let Some(stream) = plan.order.main_stream() else { return first_uses };
        for id in graph.on(stream) {
            let Some(task) = graph.task(id).filter(|one| one.phase == Phase::Forward) else {
                continue;
            };
            first_uses.kernels.push((first_uses.all_ns, id));
            first_uses.all_ns += task.duration_ns;
            if let Some(module) = task.module {
                first_uses.first.entry(module).or_insert(id);
            }
        }
        first_uses
    }

    /// Returns the first task that needs a gradient's parameters. Without a known module, its
    /// position is estimated: as far from the end of the forward pass as the gradient is from the
    /// start of the backward pass, as shares of their times.
    fn first_of(&self, module: Option<u32>, arrival: f64) -> Option<TaskId> {
        let known = module.and_then(|module| self.first.get(&module).copied());
        known.or_else(|| {
            let at_ns = (1.0 - arrival) * self.all_ns;
            let after = self.kernels.partition_point(|(before_ns, _)| *before_ns <= at_ns);
            self.kernels.get(after.saturating_sub(1)).map(|(_, id)| *id)
        })
    }
}

/// Returns for each gradient the share of the backward pass's device time after which it is ready.
fn shares(graph: &Graph, plan: &Plan) -> Vec<f64> {
    let Some(stream) = plan.order.main_stream() else { return vec![1.0; plan.gradients.len()] };
    let mut until_ns = HashMap::new();
    let mut all_ns = 0.0;
    for id in graph.on(stream) {
        let Some(task) = graph.task(id).filter(|one| one.phase == Phase::Backward) else {
            continue;
        };
        all_ns += task.duration_ns;
        until_ns.insert(id, all_ns);
    }
    let of = |gradient: &Gradient| {
        let ready = plan.ready(gradient).into_iter().find_map(|id| until_ns.get(&id).copied());
        if all_ns > 0.0 { ready.unwrap_or(all_ns) / all_ns } else { 1.0 }
    };
    plan.gradients.iter().map(|(_, gradient)| of(gradient)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::data_parallel::DataParallel;
    use super::*;
    use crate::distributed::example::{ExampleInputs, KERNEL_NS, step};
    use ridgeline_graph::simulate;

    fn time_ns(optimization: &dyn Optimization, layers: &[f64], bandwidth: f64) -> f64 {
        let known = ExampleInputs::on("NVIDIA H200");
        let mut graph = step(layers);
        let facts = known.facts(2, 8, bandwidth / 1.1);
        optimization.apply(&mut graph, &facts, Bound::Low).expect("it applies");
        simulate::steady(&graph).expect("it runs").iteration_ns
    }

    #[track_caller]
    fn check(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 0.03, "{found} is not {expected}");
    }

    #[test]
    fn the_layer_needed_first_is_sent_first() {
        // The last layer's 1 GB takes 100 ms and is ready first, the first layer's 100 MB take 10
        // ms. In order, the first forward kernel waits for both. By priority, only the last forward
        // kernel does: 110 ms of exchange start with the second backward kernel, and the first
        // forward kernel overlaps with them.
        let layers = [100e6, 1e9];
        let kernels_ns = 5.0 * KERNEL_NS;
        check(time_ns(&DataParallel, &layers, 10e9), kernels_ns + 110e6 - KERNEL_NS);
        // Overlapped: a backward kernel, the optimizer and a forward kernel. Each slice takes a
        // twentieth longer than its bytes.
        let exchange_ns = 110e6 * (1.0 + 1.0 / MIN_LAUNCH_MULTIPLE);
        check(time_ns(&P3, &layers, 10e9), kernels_ns + exchange_ns - 3.0 * KERNEL_NS);
    }

    #[test]
    fn layers_without_a_module_are_found_by_their_order() {
        let mut graph = step(&[1e6, 1e6, 1e6]);
        for task in graph.tasks.iter_mut() {
            task.module = None;
        }
        for gradient in &mut graph.gradients {
            gradient.module = None;
        }
        let known = ExampleInputs::on("NVIDIA H200");
        P3.apply(&mut graph, &known.facts(2, 8, 1e9), Bound::Likely).expect("it applies");
        // The forward kernels are tasks 1, 3 and 5. The last layer's gradient is ready first.
        let needed: Vec<u32> = graph.across().iter().map(|edge| edge.to.0).collect();
        assert_eq!(needed, [5, 3, 1]);
    }

    #[test]
    fn small_gradients_have_nothing_to_gain() {
        let layers = [1e3, 1e3, 1e3];
        check(time_ns(&P3, &layers, 100e9), 7.0 * KERNEL_NS);
    }
}
