//! Deep gradient compression: each GPU sends only the largest gradients and keeps the others for
//! later (Lin et al., ICLR 2018, section 3).

use crate::distributed::all_reduce::{BASE_NS, Topology, transfer_ns};
use crate::distributed::exchange::{self, Plan, Work};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::range::Range;

/// Share of gradients sent: 0.1% (section 4).
const SENT_SHARE: f64 = 0.001;
/// Size of a sent gradient relative to a dense one: its value and its index.
const INDEX_FACTOR: f64 = 2.0;
/// Number of times that the selection reads or writes a gradient's bytes (algorithm 2 and section
/// 3.2): momentum and residual are updated (three each), the largest are selected (one), sent
/// values are cleared in both (two each) and accumulated again (one). Fused kernels take half of
/// that.
const PASSES: Range = Range { low: 6.0, value: 12.0, high: 16.0 };
/// Number of kernels of the selection, including the selection of a sample.
const KERNELS: Range = Range { low: 4.0, value: 10.0, high: 16.0 };

pub(super) struct GradientCompression;

impl Optimization for GradientCompression {
    fn name(&self) -> &'static str {
        "gradient-compression"
    }

    fn title(&self) -> &'static str {
        "Data parallel with gradient sparsification (top 0.1%)"
    }

    fn source(&self) -> &'static str {
        "Lin et al., ICLR 2018, section 3"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let mut plan = Plan::new(graph, facts)?;
        plan.send_work = Work { passes: bound.of(PASSES), kernels: bound.of(KERNELS) };
        let topology = plan.topology_at(bound);
        exchange::add(graph, &plan, bound, |bucket| {
            vec![(exchange::link(), gather_ns(bucket.bytes, &topology))]
        });
        // Momentum and residual of each parameter.
        exchange::add_bucket_memory(graph, 2.0 * plan.bytes());
        let mut effect = exchange::effect(facts, &plan);
        effect.notes.push(format!(
            "{:.1}% of the gradients are sent per step, the rest later: this changes training. The \
            paper increases sparsity gradually over the first epochs",
            SENT_SHARE * 100.0
        ));
        Ok(effect)
    }

    fn can_combine(&self) -> bool {
        false
    }
}

/// Returns the time of the all-gather in nanoseconds. GPUs select different gradients, so each
/// receives those of every other.
fn gather_ns(bytes: f64, topology: &Topology) -> f64 {
    let others = f64::from(topology.gpus.saturating_sub(1));
    let latency_ns = if topology.machines() > 1 {
        topology.link.latency_ns.max(topology.network.latency_ns)
    } else {
        topology.link.latency_ns
    };
    let sent = bytes * SENT_SHARE * INDEX_FACTOR * others;
    BASE_NS + others * latency_ns + transfer_ns(sent, topology.slowest())
}

#[cfg(test)]
mod tests {
    use super::super::data_parallel::DataParallel;
    use super::*;
    use crate::distributed::example::{ExampleInputs, step};
    use ridgeline_graph::simulate;

    fn time_ns(optimization: &dyn Optimization, bandwidth: f64) -> f64 {
        let known = ExampleInputs::on("NVIDIA H200");
        let mut graph = step(&[400e6, 400e6]);
        let facts = known.facts(4, 8, bandwidth);
        optimization.apply(&mut graph, &facts, Bound::Likely).expect("it applies");
        simulate::steady(&graph).expect("it runs").iteration_ns
    }

    #[test]
    fn it_is_faster_on_slow_links_and_slower_on_fast_ones() {
        assert!(time_ns(&GradientCompression, 1e9) < 0.5 * time_ns(&DataParallel, 1e9));
        assert!(time_ns(&GradientCompression, 400e9) > time_ns(&DataParallel, 400e9));
    }
}
