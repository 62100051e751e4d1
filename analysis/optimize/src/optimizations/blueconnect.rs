//! Hierarchical all-reduce: reduce-scatter within each machine, all-reduce between machines,
//! all-gather within each machine. Each stage uses its own link, and buckets are pipelined
//! (BlueConnect, Cho et al., MLSys 2019, section 4).

use crate::distributed::all_reduce::{self, Topology, scatter_ns};
use crate::distributed::exchange::{self, Plan};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use ridgeline_graph::graph::{Graph, Order, Resource};

pub(super) struct BlueConnect;

impl Optimization for BlueConnect {
    fn name(&self) -> &'static str {
        "blueconnect"
    }

    fn title(&self) -> &'static str {
        "Data parallel with hierarchical all-reduce (BlueConnect)"
    }

    fn source(&self) -> &'static str {
        "Cho et al., MLSys 2019, section 4"
    }

    fn is_research(&self) -> bool {
        true
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let plan = Plan::new(graph, facts)?;
        if plan.topology.machines() < 2 {
            return Err(format!(
                "all {} GPUs are in one machine; hierarchical all-reduce is for several machines",
                plan.topology.gpus
            ));
        }
        if plan.topology.local() < 2 {
            return Err(
                "each machine has one GPU; hierarchical all-reduce needs several GPUs per \
                machine"
                    .to_owned(),
            );
        }
        let topology = plan.topology_at(bound);
        let between = Topology {
            gpus: topology.machines(),
            per_machine: 1,
            link: topology.network,
            network: topology.network,
        };
        let (link, network) = (exchange::link(), Resource::Added("network".to_owned()));
        exchange::add(graph, &plan, bound, |bucket| {
            let scatter = scatter_ns(bucket.bytes, topology.local(), &topology.link);
            // Each GPU of a machine exchanges its part over the shared network.
            let across = all_reduce::ring_ns(bucket.bytes, &between);
            vec![(link.clone(), scatter), (network.clone(), across), (link.clone(), scatter)]
        });
        // Stages run when they are ready: a bucket's last stage does not block the next one's
        // first.
        for resource in [link, network] {
            let resource = graph.resource(&resource);
            graph.set_order(resource, Order::Priority);
        }
        exchange::add_bucket_memory(graph, plan.bytes());
        Ok(exchange::effect(facts, &plan))
    }

    fn can_combine(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::data_parallel::DataParallel;
    use super::*;
    use crate::distributed::example::{ExampleInputs, step};
    use ridgeline_graph::simulate;

    #[test]
    fn less_data_crosses_the_network_and_stages_overlap() {
        let known = ExampleInputs::on("NVIDIA H200");
        let time_ns = |optimization: &dyn Optimization| {
            let mut graph = step(&[200e6, 200e6, 200e6]);
            let mut facts = known.facts(16, 8, 10e9);
            facts.cluster.link = Some(100e9);
            optimization.apply(&mut graph, &facts, Bound::Likely).expect("it applies");
            simulate::steady(&graph).expect("it runs").iteration_ns
        };
        // Two machines: half of the 2 bytes per byte crosses the network, instead of 15/16.
        let (ring, staged) = (time_ns(&DataParallel), time_ns(&BlueConnect));
        assert!(staged < 0.7 * ring, "{staged} and {ring}");
        // 600 MB cross it once. Only the first and last stage do not overlap.
        assert!(staged < 70e6 + 60e6 + 12e6, "{staged}");
    }

    #[test]
    fn a_single_machine_has_no_stages() {
        let known = ExampleInputs::on("NVIDIA H200");
        let why = BlueConnect.apply(&mut step(&[1.0]), &known.facts(8, 8, 1e9), Bound::Likely);
        assert!(why.expect_err("one machine").contains("in one machine"));
    }
}
