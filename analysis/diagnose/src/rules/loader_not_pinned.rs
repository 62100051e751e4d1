//! `loader-not-pinned`: batches that are copied to a GPU from pageable memory (PyTorch, "CUDA
//! semantics: Use pinned memory buffers").

use crate::data_loaders::{loader, place};
use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, SourceLine};
use crate::rule::Rule;
use ridgeline_graph::uploads::is_upload;
use ridgeline_optimize::optimization::Bound;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_profile::Phase;

/// The minimum share of the iteration time that pinning saves, even by a pessimistic estimate.
const MIN_SHARE: f64 = 0.01;

pub(super) struct LoaderNotPinned;

impl Rule for LoaderNotPinned {
    fn name(&self) -> &'static str {
        "loader-not-pinned"
    }

    fn title(&self) -> &'static str {
        "Batches not in pinned memory"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        finding(evidence).into_iter().collect()
    }
}

fn finding(evidence: &Evidence<'_>) -> Option<Finding> {
    let loader = loader(evidence).filter(|loader| loader.pin_memory == Some(false))?;
    if !evidence.on_gpu() || !evidence.is_replayed() {
        return None;
    }
    let at_worst_ns = evidence.saved_by("pinned-memory", Bound::High)?;
    if at_worst_ns < MIN_SHARE * evidence.iteration_ns() {
        return None;
    }
    Some(Finding {
        rule: "loader-not-pinned",
        at: place(evidence, loader)?,
        related: copies(evidence).into_iter().map(|at| (at, "the copy".to_owned())).collect(),
        message: "The DataLoader does not pin memory, so copies to the GPU block".to_owned(),
        why:
            "Copies from pageable memory go through a staging buffer, and the CPU waits for them. \
            With `pin_memory=True` and `non_blocking=True` the GPU copies the batch asynchronously."
                .to_owned(),
        cost: Some(Cost::time(evidence.saved_by("pinned-memory", Bound::Likely)?).predicted()),
        fix: Some(EditKind::PinnedMemory),
        ..Finding::default()
    })
}

/// The lines that copy batches.
fn copies(evidence: &Evidence<'_>) -> Vec<SourceLine> {
    let graph = evidence.graph();
    let batches = graph.tasks.iter().filter(|task| {
        is_upload(graph, task) && !matches!(task.phase, Phase::Backward | Phase::Optimizer)
    });
    let mut places: Vec<SourceLine> = batches
        .filter_map(|task| task.line)
        .map(|(file, line)| evidence.place(file, line))
        .collect();
    places.sort();
    places.dedup();
    places.truncate(8);
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Case;
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_recording::manifest::Loader;

    const PROGRAM: &str = "\
from torch.utils.data import DataLoader
loader = DataLoader(data, batch_size=8)  # loader
for x in loader:
    x = x.to(device)  # to
    model(x).backward()
";

    /// A copy of 126 MB that takes 20 ms and that the host waits for, followed by 20 ms on the host
    /// and a kernel of 30 ms.
    fn copying(memory: &str, pinned: bool) -> Case {
        let mut case = Case::new(PROGRAM).on_gpu();
        let at = case.line("to");
        let name = format!("Memcpy HtoD ({memory} -> Device)");
        let (_, copy) = case.launch(TaskKind::HostCopy, &name, 20e6, Some(at));
        let task = case.graph.task_mut(copy).expect("a task");
        (task.bytes, task.phase) = (Some(126_000_000), Phase::Other);
        let wait = case.host(TaskKind::Wait, 0.0, Phase::Other, Some(at));
        case.graph.wait(copy, wait, 0.0);
        case.host(TaskKind::HostGap, 20e6, Phase::Forward, None);
        case.launch(TaskKind::Kernel, "k", 30e6, None);
        let loader = Loader {
            workers: Some(4),
            pin_memory: Some(pinned),
            fetch_ns: vec![1000],
            ..Loader::default()
        };
        case.manifest.loaders = vec![loader];
        case
    }

    #[test]
    fn cost_is_what_pinned_memory_saves() {
        let found = copying("Pageable", false).finds(&LoaderNotPinned, "loader");
        assert_eq!(found.related.len(), 1);
        let cost = found.cost.expect("a cost");
        // Now: a copy of 20 ms, 20 ms on the host, and a kernel of 30 ms. With pinned memory, the
        // host's 20 ms overlap with the GPU.
        assert!(cost.time_ns > 30e6 && cost.is_predicted, "{cost:?}");
    }

    #[test]
    fn pinned_batches_and_cpu_runs_are_not_reported() {
        copying("Pinned", true).finds_nothing(&LoaderNotPinned);
        copying("Pageable", true).finds_nothing(&LoaderNotPinned);
        let mut on_cpu = copying("Pageable", false);
        on_cpu.profile.device.kind = "cpu".to_owned();
        on_cpu.finds_nothing(&LoaderNotPinned);
    }
}
