//! Batches in pinned memory: `DataLoader(pin_memory=True)` and non-blocking copies (PyTorch's CUDA
//! documentation, "Use pinned memory buffers").

use crate::distributed::links;
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use ridgeline_base::units;
use ridgeline_graph::graph::{Graph, Task, TaskId, TaskKind};
use ridgeline_graph::uploads::is_upload;
use ridgeline_profile::Phase;
use ridgeline_profile::day::Day;

/// Rate at which the host copies a batch into pinned memory, in bytes per second: a single-threaded
/// memory copy.
const PINNING_RATE: f64 = 8e9;
/// Uncertainty factor of this rate.
const PINNING_SPREAD: f64 = 1.5;
/// The minimum share of the iteration's device time spent on copies for a what-if.
const MIN_SHARE: f64 = 0.01;

pub(super) struct PinnedMemory;

impl Optimization for PinnedMemory {
    fn name(&self) -> &'static str {
        "pinned-memory"
    }

    fn title(&self) -> &'static str {
        "Pinned memory for batches"
    }

    fn source(&self) -> &'static str {
        "PyTorch, CUDA semantics, \"Use pinned memory buffers\""
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let copies = pageable_copies(graph, facts)?;
        let bytes = release(graph, facts, &copies);
        pin(graph, facts, &copies, bytes, bound);
        Ok(effect(graph, facts, &copies))
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::PinnedMemory)
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !matches!(other.name(), "pinned-memory" | "prefetch")
    }
}

/// Adds the time in which the main thread pins each batch, if there are no workers.
pub(super) fn pin(
    graph: &mut Graph,
    facts: &Facts<'_>,
    copies: &[TaskId],
    bytes: f64,
    bound: Bound,
) {
    let workers = facts.manifest.and_then(|manifest| manifest.loaders.first()?.workers);
    if workers.unwrap_or(0) > 0 {
        return;
    }
    let pin_ns = bound.within_factor(bytes / PINNING_RATE * 1e9, PINNING_SPREAD);
    let data = graph.select(|task| task.phase == Phase::Data && task.kind.is_host());
    let before = copies.first().and_then(|copy| graph.task(*copy)?.launched_by);
    let pin = Task::new(TaskKind::HostOperator, pin_ns, Phase::Data);
    match (data.last(), before) {
        (Some(last), _) => {
            graph.insert_after(*last, pin);
        }
        (None, Some(call)) => {
            graph.insert_before(call, pin);
        }
        (None, None) => {}
    }
}

/// Returns the copies of batches to the GPU from pageable memory.
///
/// # Errors
/// The reason why there is nothing to gain.
pub(super) fn pageable_copies(graph: &Graph, facts: &Facts<'_>) -> Result<Vec<TaskId>, String> {
    if !facts.is_gpu() {
        return Err("not applicable: CPU run".to_owned());
    }
    let loads = |task: &Task| {
        is_upload(graph, task)
            && graph.name_of(task).contains("Pageable")
            && !matches!(task.phase, Phase::Backward | Phase::Optimizer)
    };
    let copies = graph.select(loads);
    if copies.is_empty() {
        return Err("no batch is copied to the GPU from pageable memory".to_owned());
    }
    let share = graph.time_of(loads) / graph.time_of(|task| !task.kind.is_host()).max(1.0);
    if share < MIN_SHARE {
        return Err(format!("copies take {:.1}% of GPU time", share * 100.0));
    }
    Ok(copies)
}

/// Shortens copies to their time from pinned memory, and removes the host's waits for them. Returns
/// their bytes.
pub(super) fn release(graph: &mut Graph, facts: &Facts<'_>, copies: &[TaskId]) -> f64 {
    let bandwidth = measured_rate(facts).map(|(rate, _)| rate);
    let bandwidth = bandwidth.unwrap_or_else(|| links::pcie_bandwidth(facts.device));
    let mut all = 0.0;
    for copy in copies {
        let Some(task) = graph.task_mut(*copy) else { continue };
        let bytes = task.bytes.unwrap_or(0) as f64;
        if bytes > 0.0 {
            task.duration_ns = task.duration_ns.min(bytes / bandwidth * 1e9);
        }
        all += bytes;
    }
    let waits: Vec<TaskId> = graph
        .edges()
        .iter()
        .filter(|edge| copies.contains(&edge.from))
        .filter(|edge| graph.task(edge.to).is_some_and(|to| to.kind == TaskKind::Wait))
        .map(|edge| edge.to)
        .collect();
    graph.retain_edges(|edge| !(copies.contains(&edge.from) && waits.contains(&edge.to)));
    for wait in waits {
        let waits_for_more = graph.edges().iter().any(|edge| edge.to == wait);
        if !waits_for_more {
            graph.remove(wait);
        }
    }
    all
}

/// Returns the rate from pinned memory to this GPU in bytes per second, and the day of the
/// measurement.
fn measured_rate(facts: &Facts<'_>) -> Option<(f64, Day)> {
    let ceilings = facts.device.ceilings?;
    let rate = ceilings.host_to_device.filter(|rate| *rate > 0.0)?;
    Some((rate, ceilings.measured_on?))
}

/// Returns the lines of the copies, and a note with the rate if it was measured.
pub(super) fn effect(graph: &Graph, facts: &Facts<'_>, copies: &[TaskId]) -> Effect {
    let mut effect = Effect::default();
    if let Some((rate, day)) = measured_rate(facts) {
        effect.notes.push(format!(
            "copies from pinned memory reach {}, measured on this GPU on {day}",
            units::rate(rate, "B/s")
        ));
    }
    for copy in copies {
        let line = graph.task(*copy).and_then(|task| task.line);
        effect.lines.extend(line.filter(|line| !effect.lines.contains(line)));
    }
    effect
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::distributed::example::ExampleInputs;
    use ridgeline_graph::graph::Resource;
    use ridgeline_graph::simulate;

    /// Creates a copy of 126 MB that takes 20 ms and blocks the host, then a kernel of 30 ms.
    pub(crate) fn step() -> Graph {
        let mut graph = Graph::default();
        let host = graph.resource(&Resource::Host);
        let stream = graph.resource(&Resource::Stream(0, 7));
        let call = graph.push(host, Task::new(TaskKind::Launch, 1e3, Phase::Other));
        let wait = graph.push(host, Task::new(TaskKind::Wait, 0.0, Phase::Other));
        let launch = graph.push(host, Task::new(TaskKind::Launch, 20e6, Phase::Forward));
        let name = Some(graph.name("Memcpy HtoD (Pageable -> Device)"));
        let copy = Task {
            name,
            bytes: Some(126_000_000),
            launched_by: Some(call),
            ..Task::new(TaskKind::HostCopy, 20e6, Phase::Other)
        };
        let copy = graph.push(stream, copy);
        let kernel =
            Task { launched_by: Some(launch), ..Task::new(TaskKind::Kernel, 30e6, Phase::Forward) };
        let kernel = graph.push(stream, kernel);
        graph.wait(call, copy, 0.0);
        graph.wait(copy, wait, 0.0);
        graph.wait(launch, kernel, -20e6);
        graph
    }

    #[test]
    fn copies_are_faster_and_do_not_block_the_host() {
        let mut graph = step();
        let before = simulate::steady(&graph).expect("it runs").iteration_ns;
        assert!(before >= 50e6, "{before}");
        let known = ExampleInputs::on("NVIDIA A100-SXM4-40GB");
        let facts = known.facts(1, 1, 1.0);
        PinnedMemory.apply(&mut graph, &facts, Bound::Likely).expect("it applies");
        // 126 MB at 24 GB/s take 5.25 ms. Pinning them takes 15.75 ms on the host.
        let after = simulate::steady(&graph).expect("it runs").iteration_ns;
        assert!((after - 35.75e6).abs() < 0.6e6, "{after}");
        let repeated = PinnedMemory.apply(&mut Graph::default(), &facts, Bound::Likely);
        assert!(repeated.expect_err("nothing is copied").contains("pageable"));
    }
}
