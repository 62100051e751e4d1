//! Offloads activations that convolutions and matrix multiplications save for the backward pass to
//! host memory (vDNN, Rhu et al., MICRO 2016, section III: `vDNN_conv`).
//!
//! The copy to the host overlaps with the layer that reads its input, and the host waits for both
//! before it frees the memory. The copy back overlaps with the backward pass of the following
//! layer.

use std::collections::HashMap;

use super::memory_facts::{self, MEMORY_NAMES};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use crate::stashes::{Kernels, Stash, launch_ns, stashes};
use ridgeline_base::units;
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_graph::graph::{Graph, Resource, ResourceId, Task, TaskId, TaskKind};
use ridgeline_graph::host_order::HostOrder;
use ridgeline_graph::memory::{BlockKind, Moment};
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_profile::Phase;

/// Share of a link's rate that a copy from pinned memory reaches: 12.8 of 16 GB/s (vDNN, section
/// IV-A).
const LINK_EFFICIENCY: f64 = 0.8;
/// Uncertainty factor of an assumed rate.
const ASSUMED_FACTOR: f64 = 1.5;

pub(super) struct Offload;

impl Optimization for Offload {
    fn name(&self) -> &'static str {
        "offload"
    }

    fn title(&self) -> &'static str {
        "Offload activations to host memory (vDNN)"
    }

    fn source(&self) -> &'static str {
        "vDNN, Rhu et al., MICRO 2016, section III"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        if !facts.is_gpu() {
            return Err(
                "not applicable: CPU run, activations are already in host memory".to_owned()
            );
        }
        memory_facts::needed(graph, facts)?;
        let link = Link::of(facts.device, bound)?;
        let order = HostOrder::new(graph);
        let offloaded: Vec<Stash> = stashes(graph, &order)
            .into_iter()
            .filter(|stash| feeds_product(graph, stash))
            .collect();
        if offloaded.is_empty() {
            return Err("no convolution or matrix multiplication saves an activation".to_owned());
        }
        let bytes: f64 = offloaded.iter().map(|stash| stash.bytes).sum();
        let mut lines: Vec<_> = offloaded
            .iter()
            .filter_map(|stash| graph.memory.blocks.get(stash.block)?.line)
            .collect();
        let copier = Copier {
            link: &link,
            launch_ns: launch_ns(graph),
            kernels: Kernels::new(graph),
            stream: graph.resource(&Resource::Added("activation copies".to_owned())),
        };
        let back = copier.copy_out(graph, &order, &offloaded);
        copier.copy_in(graph, &order, &offloaded, &back);
        lines.sort_unstable();
        lines.dedup();
        let copied = format!("{:.1} GB are copied to the host and back per iteration", bytes / 1e9);
        Ok(Effect { lines, notes: vec![link.note.clone(), copied], ..Effect::default() })
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !MEMORY_NAMES.contains(&other.name())
    }
}

fn feeds_product(graph: &Graph, stash: &Stash) -> bool {
    let user = stash.used_by.and_then(|operator| graph.operators.get(operator as usize));
    user.and_then(work)
        .is_some_and(|work| matches!(work.family, Family::Convolution | Family::Gemm))
}

/// Copy bandwidth between host and GPU, in bytes per second.
struct Link {
    out: f64,
    back: f64,
    note: String,
}

impl Link {
    fn of(device: &DeviceSpec, bound: Bound) -> Result<Link, String> {
        let measured = device.ceilings.and_then(|ceilings| {
            Some((ceilings.device_to_host?, ceilings.host_to_device?, ceilings.measured_on?))
        });
        if let Some((out, back, day)) = measured.filter(|(out, back, _)| *out > 0.0 && *back > 0.0)
        {
            let note = format!(
                "copy bandwidth: {} to the host and {} back, measured on this GPU on {day}",
                units::rate(out, "B/s"),
                units::rate(back, "B/s")
            );
            return Ok(Link { out, back, note });
        }
        let (generation, rate) =
            pcie(device).ok_or("the copy bandwidth between this GPU and the host is unknown")?;
        // The fastest link gives the shortest time.
        let rate = LINK_EFFICIENCY * rate / bound.within_factor(1.0, ASSUMED_FACTOR);
        let note = format!("assumes copies at 80% of PCIe {generation} x16 bandwidth");
        Ok(Link { out: rate, back: rate, note })
    }
}

/// Returns the PCIe generation of a GPU and the rate of 16 lanes, from the vendors' data sheets: 3
/// up to Turing, 4 from Ampere and MI200 on, 5 from Hopper and MI300 on.
fn pcie(device: &DeviceSpec) -> Option<(u32, f64)> {
    let generation = match device.capability() {
        Some((6 | 7, _)) => 3,
        Some((8, _)) => 4,
        Some((9.., _)) => 5,
        Some(_) => return None,
        None if device.architecture == "gfx90a" => 4,
        None if device.architecture == "gfx942" => 5,
        None => return None,
    };
    Some((generation, 16e9 * f64::from(1_u32 << (generation - 3))))
}

struct Copier<'a> {
    link: &'a Link,
    launch_ns: f64,
    kernels: Kernels,
    stream: ResourceId,
}

impl Copier<'_> {
    fn copy(&self, phase: Phase, bytes: f64, rate: f64) -> Task {
        let copy = Task::new(TaskKind::HostCopy, 1e9 * bytes / rate, phase);
        Task { bytes: Some(bytes as u64), ..copy }
    }

    /// Adds the copies to the host. Each input is copied while its layer reads it, and the host
    /// waits before it frees the memory. Returns the blocks for the copies back.
    fn copy_out(&self, graph: &mut Graph, order: &HostOrder, offloaded: &[Stash]) -> Vec<usize> {
        let first = graph.memory.blocks.len();
        // Several copies after one task run one after another.
        let mut last_after: HashMap<usize, TaskId> = HashMap::new();
        for stash in offloaded {
            let Some(block) = graph.memory.blocks.get(stash.block).copied() else { continue };
            graph.memory.add(block);
            let at = last_after.get(&stash.used).or(order.tasks.get(stash.used)).copied();
            let Some(at) = at else { continue };
            let copy = self.copy(Phase::Forward, stash.bytes, self.link.out);
            let copy = graph.push(self.stream, copy);
            // The kernel that produced it ran before the one that uses it.
            let user = self.kernels.until(order, stash.used);
            if let Some(producer) = user.and_then(|user| graph.before(user)) {
                graph.wait(producer, copy, 0.0);
            }
            let launch = Task::new(TaskKind::Launch, self.launch_ns, Phase::Forward);
            let launch = graph.insert_after(at, launch);
            graph.wait(launch, copy, 0.0);
            let wait = Task::new(TaskKind::Wait, 0.0, Phase::Forward);
            let wait = graph.insert_after(launch, wait);
            last_after.insert(stash.used, wait);
            graph.wait(copy, wait, 0.0);
            if let Some(user) = user {
                graph.wait(user, wait, 0.0);
            }
            let event = order.event_at(stash.used + 1).saturating_sub(1);
            if let Some(block) = graph.memory.blocks.get_mut(stash.block) {
                block.freed = Some(Moment { task: wait, event });
                block.kind = BlockKind::Temporaries;
            }
        }
        (first..graph.memory.blocks.len()).collect()
    }

    /// Adds the copies back. Each runs while the activation that is needed before it is in use.
    fn copy_in(&self, graph: &mut Graph, order: &HostOrder, offloaded: &[Stash], back: &[usize]) {
        let mut by_need: Vec<(usize, &Stash)> = back.iter().copied().zip(offloaded).collect();
        by_need.sort_by_key(|(_, stash)| stash.needed);
        let mut before: Option<usize> = None;
        for (block, stash) in by_need {
            let ahead = before.replace(stash.needed).unwrap_or(stash.needed);
            let Some(at) = order.tasks.get(ahead).copied() else { continue };
            let copy = self.copy(Phase::Backward, stash.bytes, self.link.back);
            let copy = graph.push(self.stream, copy);
            let launch = Task::new(TaskKind::Launch, self.launch_ns, Phase::Backward);
            let launch = graph.insert_before(at, launch);
            graph.wait(launch, copy, 0.0);
            // It may reuse memory that was freed only then.
            let reached = self.kernels.from(order, ahead).and_then(|kernel| graph.before(kernel));
            if let Some(reached) = reached {
                graph.wait(reached, copy, 0.0);
            }
            if let Some(user) = self.kernels.from(order, stash.needed) {
                graph.wait(copy, user, 0.0);
            }
            let event = order.event_at(ahead).saturating_sub(1);
            if let Some(block) = graph.memory.blocks.get_mut(block) {
                block.allocated = Some(Moment { task: launch, event });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{
        INNER, OUTPUT, Step, WEIGHTS, cpu, gpu, operator, predicted, refusal, step,
    };

    /// Creates a step whose layers are matrix multiplications.
    fn matmuls(layers: u32) -> Step {
        let mut step = step(layers, true);
        let linear = operator("aten::linear", &[&[64, 64], &[64, 64]], &[64, 64]);
        step.recorded.graph.operators = vec![linear; layers as usize + 1];
        step
    }

    #[test]
    fn offloaded_activations_do_not_take_device_memory() {
        let prediction = predicted(&matmuls(8), &[&Offload]).unwrap();
        let now = WEIGHTS + 8.0 * (INNER + OUTPUT);
        assert_eq!(prediction.before_peak_bytes, Some(now));
        let peak = prediction.peak_bytes.unwrap().value;
        // Two layers at a time: the current one and the one being copied.
        assert!((WEIGHTS + INNER..=WEIGHTS + 3.0 * INNER + 2.0 * OUTPUT).contains(&peak), "{peak}");
        assert!(prediction.time_ns.value >= prediction.before_ns);
    }

    #[test]
    fn copies_over_a_slow_link_determine_the_time() {
        let mut step = matmuls(8);
        for block in &mut step.recorded.graph.memory.blocks {
            block.bytes *= 1e9;
        }
        let prediction = predicted(&step, &[&Offload]).unwrap();
        // To the host and back, 880 GB each way at 51.2 GB/s. One second of work per layer overlaps
        // with its copies.
        let copies_ns = 2.0 * 880.0 / 51.2 * 1e9;
        let time_ns = prediction.time_ns.value;
        assert!(time_ns > copies_ns && time_ns < copies_ns + prediction.before_ns, "{time_ns}");
    }

    #[test]
    fn activations_used_by_one_operator_are_copied_one_after_another() {
        let mut step = matmuls(4);
        let blocks = &mut step.recorded.graph.memory.blocks;
        let duplicates: Vec<_> =
            blocks.iter().filter(|one| one.kind == BlockKind::Activations).copied().collect();
        blocks.extend(duplicates);
        let prediction = predicted(&step, &[&Offload]).unwrap();
        assert!(prediction.peak_bytes.unwrap().value < prediction.before_peak_bytes.unwrap());
    }

    #[test]
    fn offloading_requires_a_gpu_and_a_known_link() {
        assert_eq!(
            refusal(&matmuls(4), &cpu(), &Offload),
            "not applicable: CPU run, activations are already in host memory"
        );
        let unknown = DeviceSpec { architecture: String::new(), ..gpu().clone() };
        assert_eq!(
            refusal(&matmuls(4), &unknown, &Offload),
            "the copy bandwidth between this GPU and the host is unknown"
        );
    }
}
