//! Data-parallel training: N GPUs process one batch each, and sum their gradients in buckets during
//! the backward pass (Li et al., VLDB 2020, section 3.2; Daydream, section 5.1).

use crate::distributed::exchange::{self, Plan};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use ridgeline_graph::graph::Graph;

pub(super) struct DataParallel;

impl Optimization for DataParallel {
    fn name(&self) -> &'static str {
        "data-parallel"
    }

    fn title(&self) -> &'static str {
        "Data parallel"
    }

    fn source(&self) -> &'static str {
        "Li et al., VLDB 2020, section 3.2 (PyTorch DistributedDataParallel); Daydream, section 5.1"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let plan = Plan::new(graph, facts)?;
        let topology = plan.topology_at(bound);
        exchange::add(graph, &plan, bound, exchange::one_all_reduce(&topology));
        exchange::add_bucket_memory(graph, plan.bytes());
        Ok(exchange::effect(facts, &plan))
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::DataParallel)
    }

    fn can_combine(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::example::{ExampleInputs, KERNEL_NS, step};
    use crate::distributed::exchange::STRAGGLER_DELAY;
    use ridgeline_graph::simulate;

    const MIB: f64 = 1024.0 * 1024.0;

    fn time_ns(layers: &[f64], gpus: u32, bandwidth: f64) -> f64 {
        let known = ExampleInputs::on("NVIDIA H200");
        let mut graph = step(layers);
        let facts = known.facts(gpus, 8, bandwidth);
        DataParallel.apply(&mut graph, &facts, Bound::Low).expect("it applies");
        simulate::steady(&graph).expect("it runs").iteration_ns
    }

    /// Checks that the step takes its kernel time plus the exposed exchange, and little for copies
    /// and waiting.
    #[track_caller]
    fn check(layers: &[f64], bandwidth: f64, exposed_ns: f64) {
        // At the low bound, a specified rate may be a tenth higher.
        let found = time_ns(layers, 2, bandwidth / 1.1);
        let kernels_ns = (2 * layers.len() + 1) as f64 * KERNEL_NS;
        let expected = kernels_ns * (1.0 + STRAGGLER_DELAY) + exposed_ns;
        assert!((found / expected - 1.0).abs() < 0.02, "{found} is not {expected}");
    }

    #[test]
    fn a_bucket_overlaps_with_the_rest_of_the_backward_pass() {
        // 100 MiB are ready after the first of four backward kernels; at 10 GB/s they take 10.5 ms.
        check(&[1.0, 1.0, 1.0, 100.0 * MIB], 10e9, 0.0);
    }

    #[test]
    fn the_last_bucket_is_exposed() {
        // The same at the end of the backward pass.
        check(&[100.0 * MIB, 1.0, 1.0, 1.0], 10e9, 100.0 * MIB / 10e9 * 1e9);
    }

    #[test]
    fn buckets_run_one_after_another_on_the_link() {
        // Three of 100 MiB from 10 ms on, one after another. 20 ms of it overlap.
        let exchange_ns = 3.0 * 100.0 * MIB / 5e9 * 1e9;
        check(&[100.0 * MIB, 100.0 * MIB, 100.0 * MIB], 5e9, exchange_ns - 2.0 * KERNEL_NS);
    }

    #[test]
    fn more_bandwidth_is_never_slower_and_more_gpus_are_never_faster() {
        let layers = [30.0 * MIB, 5.0 * MIB, 200.0 * MIB, 1.0 * MIB];
        let mut before = 0.0;
        for gpus in [2, 3, 4, 8, 16, 64, 256] {
            let now = time_ns(&layers, gpus, 5e9);
            assert!(now >= before, "{gpus} GPUs");
            before = now;
            let mut slower = f64::INFINITY;
            for bandwidth in [1e8, 1e9, 1e10, 1e11, 1e12] {
                let now = time_ns(&layers, gpus, bandwidth);
                assert!(now <= slower, "{gpus} GPUs at {bandwidth}");
                slower = now;
            }
        }
    }

    #[test]
    fn missing_requirements_are_reported() {
        let known = ExampleInputs::on("NVIDIA H200");
        let mut graph = step(&[]);
        let why = DataParallel.apply(&mut graph, &known.facts(4, 8, 1e9), Bound::Likely);
        assert!(why.expect_err("there is nothing to exchange").contains("gradients"));
        let mut graph = step(&[1.0]);
        let why = DataParallel.apply(&mut graph, &known.facts(1, 8, 1e9), Bound::Likely);
        assert!(why.expect_err("one GPU").contains("two GPUs"));
        DataParallel.apply(&mut graph, &known.facts(4, 8, 1e9), Bound::Likely).expect("it applies");
        let repeated = DataParallel.apply(&mut graph, &known.facts(4, 8, 1e9), Bound::Likely);
        assert!(repeated.expect_err("applied twice").contains("already"));
    }
}
