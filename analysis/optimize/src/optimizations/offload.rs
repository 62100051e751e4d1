//! Offloads what the model saves for its backward pass to host memory, as
//! `torch.autograd.graph.save_on_cpu(pin_memory=True)` does (after vDNN, Rhu et al., MICRO 2016, section III, which only
//! offloads the inputs of convolutions).
//!
//! Each tensor is copied when it is saved and copied back when it is needed, on the stream of the kernels: the copies
//! do not overlap with them. Weights that are saved are copied too.

use std::collections::HashMap;

use super::memory_facts::{self, MEMORY_NAMES};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use crate::stashes::{Kernels, Stash, launch_ns, stashes};
use ridgeline_base::units;
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_graph::graph::{Graph, Task, TaskId, TaskKind};
use ridgeline_graph::host_order::HostOrder;
use ridgeline_graph::memory::{BlockKind, Moment};
use ridgeline_operators::range::Range;
use ridgeline_profile::Phase;

/// Share of a link's rate that a copy from pinned memory reaches: 12.8 of 16 GB/s (vDNN, section
/// IV-A).
const LINK_EFFICIENCY: f64 = 0.8;
/// Uncertainty factor of an assumed rate.
const ASSUMED_FACTOR: f64 = 1.5;
/// Copied bytes relative to the saved activations. A tensor that two operators save is copied twice: counted with hooks
/// on layers of PyTorch 2.15, 0.9 (a transformer encoder) to 1.6 (linear layers with ReLU).
const COPIES: Range = Range { low: 1.0, value: 1.2, high: 1.6 };
/// Share of the weights that are copied: in the same count 0.75 to 1. The table of an embedding is not saved.
const SAVED_WEIGHTS: Range = Range { low: 0.5, value: 0.9, high: 1.0 };

pub(super) struct Offload;

impl Optimization for Offload {
    fn name(&self) -> &'static str {
        "offload"
    }

    fn title(&self) -> &'static str {
        "Offload activations to host memory"
    }

    fn source(&self) -> &'static str {
        "PyTorch, torch.autograd.graph.save_on_cpu; vDNN, Rhu et al., MICRO 2016"
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
        // What the loss saves stays on the GPU.
        let offloaded: Vec<Stash> =
            stashes(graph, &order).into_iter().filter(|stash| stash.module.is_some()).collect();
        if offloaded.is_empty() {
            return Err("no module saves an activation".to_owned());
        }
        let weights = graph.memory.blocks.iter().filter(|block| block.kind == BlockKind::Weights);
        let weight_bytes: f64 = weights.map(|block| block.bytes).sum();
        let bytes: f64 = offloaded.iter().map(|stash| stash.bytes).sum();
        let copied_bytes = bound.of(COPIES) * bytes + bound.of(SAVED_WEIGHTS) * weight_bytes;
        let mut lines: Vec<_> = offloaded
            .iter()
            .filter_map(|stash| graph.memory.blocks.get(stash.block)?.line)
            .collect();
        let copier = Copier {
            link: &link,
            launch_ns: launch_ns(graph),
            kernels: Kernels::new(graph),
            bytes_factor: copied_bytes / bytes.max(1.0),
            // Before PyTorch copied asynchronously, the host waited for each copy.
            waits: bound == Bound::High,
        };
        let back = copier.copy_out(graph, &order, &offloaded);
        copier.copy_in(graph, &order, &offloaded, &back);
        lines.sort_unstable();
        lines.dedup();
        let copied = format!(
            "{:.1} GB are copied to the host and back per iteration, while the GPU waits: this only pays where memory is \
            short",
            copied_bytes / 1e9
        );
        Ok(Effect { lines, notes: vec![link.note.clone(), copied], ..Effect::default() })
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::Offload)
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        // A compiler decides what is saved.
        !MEMORY_NAMES.contains(&other.name()) && !["compile", "cuda-graphs"].contains(&other.name())
    }
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
    /// Copied bytes relative to the size of an activation.
    bytes_factor: f64,
    /// Whether the host waits for each copy to the host.
    waits: bool,
}

impl Copier<'_> {
    fn copy(&self, phase: Phase, bytes: f64, rate: f64) -> Task {
        let bytes = self.bytes_factor * bytes;
        let copy = Task::new(TaskKind::HostCopy, 1e9 * bytes / rate, phase);
        Task { bytes: Some(bytes as u64), ..copy }
    }

    /// Adds the copies to the host, each after the kernel that uses the activation. Returns the blocks for the copies
    /// back.
    fn copy_out(&self, graph: &mut Graph, order: &HostOrder, offloaded: &[Stash]) -> Vec<usize> {
        let first = graph.memory.blocks.len();
        // Several copies after one task or kernel run one after another.
        let mut last_on_host: HashMap<usize, TaskId> = HashMap::new();
        let mut last_copy: HashMap<TaskId, TaskId> = HashMap::new();
        for stash in offloaded {
            let Some(block) = graph.memory.blocks.get(stash.block).copied() else { continue };
            graph.memory.add(block);
            let at = last_on_host.get(&stash.used).or(order.tasks.get(stash.used)).copied();
            let user = self.kernels.until(order, stash.used);
            let Some((at, user)) = at.zip(user) else { continue };
            let launch = Task::new(TaskKind::Launch, self.launch_ns, Phase::Forward);
            let launch = graph.insert_after(at, launch);
            let copy = self.copy(Phase::Forward, stash.bytes, self.link.out);
            let copy = graph.insert_after(last_copy.get(&user).copied().unwrap_or(user), copy);
            last_copy.insert(user, copy);
            graph.wait(launch, copy, 0.0);
            let mut last = launch;
            if self.waits {
                last = graph.insert_after(launch, Task::new(TaskKind::Wait, 0.0, Phase::Forward));
                graph.wait(copy, last, 0.0);
            }
            last_on_host.insert(stash.used, last);
            let event = order.event_at(stash.used + 1).saturating_sub(1);
            if let Some(block) = graph.memory.blocks.get_mut(stash.block) {
                block.freed = Some(Moment { task: last, event });
                block.kind = BlockKind::Temporaries;
            }
        }
        (first..graph.memory.blocks.len()).collect()
    }

    /// Adds the copies back, each before the kernel that needs the activation.
    fn copy_in(&self, graph: &mut Graph, order: &HostOrder, offloaded: &[Stash], back: &[usize]) {
        let mut by_need: Vec<(usize, &Stash)> = back.iter().copied().zip(offloaded).collect();
        by_need.sort_by_key(|(_, stash)| stash.needed);
        for (block, stash) in by_need {
            let at = order.tasks.get(stash.needed).copied();
            let user = self.kernels.from(order, stash.needed);
            let Some((at, user)) = at.zip(user) else { continue };
            let launch = Task::new(TaskKind::Launch, self.launch_ns, Phase::Backward);
            let launch = graph.insert_before(at, launch);
            let copy = self.copy(Phase::Backward, stash.bytes, self.link.back);
            let copy = graph.insert_before(user, copy);
            graph.wait(launch, copy, 0.0);
            let event = order.event_at(stash.needed).saturating_sub(1);
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
        // One layer at a time, and in the backward pass its gradient.
        assert!((WEIGHTS + INNER..=WEIGHTS + 3.0 * INNER + 2.0 * OUTPUT).contains(&peak), "{peak}");
        assert!(prediction.time_ns.value >= prediction.before_ns);
    }

    #[test]
    fn copies_do_not_overlap_with_kernels() {
        let mut step = matmuls(8);
        for block in &mut step.recorded.graph.memory.blocks {
            block.bytes *= 1e9;
        }
        let prediction = predicted(&step, &[&Offload]).unwrap();
        // To the host and back, 880 GB of activations and 50 GB of weights each way, at 51.2 GB/s.
        let copies_ns = 2.0 * (1.2 * 880.0 + 0.9 * 50.0) / 51.2 * 1e9;
        let expected_ns = copies_ns + prediction.before_ns;
        let time_ns = prediction.time_ns.value;
        assert!((time_ns / expected_ns - 1.0).abs() < 0.1, "{time_ns} is not {expected_ns}");
        assert!(prediction.notes.iter().any(|note| note.starts_with("1101.0 GB are copied")));
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
