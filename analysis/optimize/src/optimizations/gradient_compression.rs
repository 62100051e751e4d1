//! Gradient compression: each bucket is cast to bfloat16 before it is summed over the GPUs, and back afterwards
//! (`bf16_compress_hook` of `DistributedDataParallel`).

use crate::distributed::all_reduce::{self, BASE_NS, transfer_ns};
use crate::distributed::exchange::{self, COPY_IN, Plan, Work};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use ridgeline_graph::graph::{Graph, TaskId};
use ridgeline_operators::range::Range;

/// Size of a sent gradient relative to float32.
const SENT_SHARE: f64 = 0.5;
/// Number of times that a bucket's float32 bytes are read or written before it is sent: the cast (1.5), and the
/// division by the number of GPUs (1).
const COMPRESSION: f64 = 2.5;
/// The same for the cast back.
const DECOMPRESSION: f64 = 1.5;
/// A recorded exchange takes this share of its time beyond the launch. Half of the bytes take half of the time, unless
/// the exchange waits for the slowest GPU.
const RECORDED_SHARE: Range = Range { low: 0.5, value: 0.5, high: 1.0 };
/// Bytes of a gradient's element above which it is taken for float32.
const MIN_ELEMENT_BYTES: f64 = 3.0;

pub(super) struct GradientCompression;

impl Optimization for GradientCompression {
    fn name(&self) -> &'static str {
        "gradient-compression"
    }

    fn title(&self) -> &'static str {
        "Data parallel with bfloat16 gradients"
    }

    fn source(&self) -> &'static str {
        "PyTorch, DDP communication hooks (bf16_compress_hook)"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        check_types(graph, facts)?;
        let recorded = exchange::recorded(graph);
        if !recorded.is_empty() && exchange::uses_ddp(facts) == Some(false) {
            return Err("the program does not use DistributedDataParallel".to_owned());
        }
        let mut effect = match recorded.is_empty() {
            true => add(graph, facts, bound)?,
            false => shorten(graph, facts, &recorded, bound),
        };
        effect.notes.push(
            "gradients are rounded to bfloat16 before they are summed, which changes the results slightly".to_owned(),
        );
        Ok(effect)
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::GradientCompression)
    }

    fn can_combine(&self) -> bool {
        false
    }
}

/// Adds the exchange of compressed gradients to an iteration of one GPU.
fn add(graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
    let mut plan = Plan::new(graph, facts)?;
    plan.send_work = Work { passes: COPY_IN.passes + COMPRESSION, kernels: COPY_IN.kernels };
    let topology = plan.topology_at(bound);
    let bandwidth = facts.device.attainable_bandwidth();
    exchange::add(graph, &plan, bound, |bucket| {
        let exchange_ns = all_reduce::time_ns(SENT_SHARE * bucket.bytes, &topology);
        let decompression_ns = transfer_ns(DECOMPRESSION * bucket.bytes, bandwidth);
        vec![(exchange::link(), exchange_ns + decompression_ns)]
    });
    // The buckets, and their compressed copies.
    exchange::add_bucket_memory(graph, (1.0 + SENT_SHARE) * plan.bytes());
    Ok(exchange::effect(facts, &plan))
}

/// Shortens the exchanges of a recording of several GPUs.
fn shorten(graph: &mut Graph, facts: &Facts<'_>, recorded: &[TaskId], bound: Bound) -> Effect {
    let bandwidth = facts.device.attainable_bandwidth();
    for id in recorded {
        let Some(task) = graph.task(*id) else { continue };
        let (before_ns, bytes) = (task.duration_ns, task.bytes.unwrap_or_default() as f64);
        let transfer = (before_ns - BASE_NS).max(0.0);
        let casts_ns = transfer_ns((COMPRESSION + DECOMPRESSION) * bytes, bandwidth);
        let after_ns = before_ns - transfer * (1.0 - bound.of(RECORDED_SHARE)) + casts_ns;
        if before_ns > 0.0 {
            graph.scale(&[*id], after_ns / before_ns);
        }
    }
    let mut effect = Effect { memory_is_unknown: true, ..Effect::default() };
    effect.lines.extend(facts.profile.iteration.loop_line);
    effect.notes.push("at the upper end, the exchanges only wait for the slowest GPU".to_owned());
    effect
}

/// Fails if gradients are in 16 bits already.
fn check_types(graph: &Graph, facts: &Facts<'_>) -> Result<(), String> {
    let bytes: f64 = graph.gradients.iter().map(|one| one.bytes).sum();
    let elements = exchange::parameters(facts);
    match bytes > 0.0 && elements > 0.0 && bytes / elements < MIN_ELEMENT_BYTES {
        true => Err("gradients have 16 bits already".to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::data_parallel::DataParallel;
    use super::*;
    use crate::distributed::example::{ExampleInputs, step};
    use ridgeline_graph::simulate;

    fn time_ns(optimization: &dyn Optimization, graph: &mut Graph, bandwidth: f64) -> f64 {
        let known = ExampleInputs::on("NVIDIA H200");
        let facts = known.facts(4, 8, bandwidth);
        optimization.apply(graph, &facts, Bound::Likely).expect("it applies");
        simulate::steady(graph).expect("it runs").iteration_ns
    }

    #[test]
    fn a_slow_link_needs_half_the_time() {
        let layers = [400e6, 400e6];
        let plain = time_ns(&DataParallel, &mut step(&layers), 1e9);
        let compressed = time_ns(&GradientCompression, &mut step(&layers), 1e9);
        assert!((compressed / plain - 0.5).abs() < 0.05, "{compressed} of {plain}");
    }

    #[test]
    fn casts_take_longer_than_they_save_on_a_fast_link() {
        let layers = [400e6, 400e6];
        let plain = time_ns(&DataParallel, &mut step(&layers), 4e12);
        assert!(time_ns(&GradientCompression, &mut step(&layers), 4e12) > plain);
    }

    #[test]
    fn recorded_exchanges_are_shortened() {
        let mut graph = step(&[400e6, 400e6]);
        let before_ns = time_ns(&DataParallel, &mut graph, 1e9);
        let after_ns = time_ns(&GradientCompression, &mut graph, 1e9);
        assert!(after_ns < 0.6 * before_ns, "{after_ns} of {before_ns}");
    }
}
