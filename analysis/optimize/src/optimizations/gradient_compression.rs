//! Deep gradient compression: each GPU sends the largest gradients alone and keeps the others for
//! later (Lin et al., ICLR 2018, section 3).

use crate::distributed::all_reduce::{BASE_NS, Topology, transfer_ns};
use crate::distributed::exchange::{self, Plan, Work};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::range::Range;

/// The share of gradients that is sent: 0.1% (section 4).
const SENT: f64 = 0.001;
/// Bytes of one that is sent over those of a gradient: its value and its place.
const WITH_PLACE: f64 = 2.0;
/// How often a gradient's bytes are read or written by what chooses (algorithm 2 and section 3.2):
/// momentum and what was kept are updated (three each), the largest are looked for (one), what is
/// sent is cleared in both (two each) and added up again (one). In fused kernels it is half of that.
const PASSES: Range = Range { low: 6.0, value: 12.0, high: 16.0 };
/// The same in kernels, a sample's selection included.
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
        plan.before_sending = Work { passes: bound.of(PASSES), kernels: bound.of(KERNELS) };
        let topology = plan.topology_at(bound);
        exchange::add(graph, &plan, bound, |bucket| {
            vec![(exchange::link(), gather_ns(bucket.bytes, &topology))]
        });
        // Momentum and what is kept for later, of each parameter.
        exchange::add_bucket_memory(graph, 2.0 * plan.bytes());
        let mut touched = exchange::touched(facts, &plan);
        touched.notes.push(format!(
            "{:.1}% of the gradients are sent per step, the rest later: this changes training. The \
            paper increases sparsity gradually over the first epochs",
            SENT * 100.0
        ));
        Ok(touched)
    }

    fn can_combine(&self) -> bool {
        false
    }
}

/// Each GPU gets what every other one chose: an all-gather, as they choose differently.
fn gather_ns(bytes: f64, topology: &Topology) -> f64 {
    let others = f64::from(topology.gpus.saturating_sub(1));
    let latency_ns = if topology.machines() > 1 {
        topology.link.latency_ns.max(topology.network.latency_ns)
    } else {
        topology.link.latency_ns
    };
    let sent = bytes * SENT * WITH_PLACE * others;
    BASE_NS + others * latency_ns + transfer_ns(sent, topology.slowest())
}

#[cfg(test)]
mod tests {
    use super::super::data_parallel::DataParallel;
    use super::*;
    use crate::distributed::example::{Known, step};
    use ridgeline_graph::simulate;

    fn time_ns(optimization: &dyn Optimization, bandwidth: f64) -> f64 {
        let known = Known::on("NVIDIA H200");
        let mut graph = step(&[400e6, 400e6]);
        let facts = known.facts(4, 8, bandwidth);
        optimization.apply(&mut graph, &facts, Bound::Likely).expect("it applies");
        simulate::steady(&graph).expect("it runs").iteration_ns
    }

    #[test]
    fn it_pays_on_a_slow_link_and_costs_on_a_quick_one() {
        assert!(time_ns(&GradientCompression, 1e9) < 0.5 * time_ns(&DataParallel, 1e9));
        assert!(time_ns(&GradientCompression, 400e9) > time_ns(&DataParallel, 400e9));
    }
}
