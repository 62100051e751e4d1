//! `loader-no-workers`: a loader without workers whose batches the loop waits for (PyTorch,
//! "Performance Tuning Guide: Enable asynchronous data loading and augmentation").

use crate::data_loaders::{loader, place};
use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use ridgeline_base::units::duration;
use ridgeline_graph::graph::TaskKind;
use ridgeline_optimize::optimization::Bound;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_profile::Phase;

/// The minimum share of the iteration time that workers save, even by a pessimistic estimate.
const MIN_SHARE: f64 = 0.02;

pub(super) struct LoaderNoWorkers;

impl Rule for LoaderNoWorkers {
    fn name(&self) -> &'static str {
        "loader-no-workers"
    }

    fn title(&self) -> &'static str {
        "Data loading in the training process"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        finding(evidence).into_iter().collect()
    }
}

fn finding(evidence: &Evidence<'_>) -> Option<Finding> {
    let loader = loader(evidence).filter(|loader| loader.workers == Some(0))?;
    if !evidence.is_replayed() || loads_on_the_gpu(evidence) || has_one_iteration(evidence) {
        return None;
    }
    let at_worst_ns = evidence.saved_by("loader-workers", Bound::High)?;
    if at_worst_ns < MIN_SHARE * evidence.iteration_ns() {
        return None;
    }
    let saved_ns = evidence.saved_by("loader-workers", Bound::Likely)?;
    let loading_ns =
        evidence.graph().time_of(|task| task.phase == Phase::Data && task.kind.is_host());
    Some(Finding {
        rule: "loader-no-workers",
        at: place(evidence, loader)?,
        message: "The DataLoader has no workers, so the loop waits for data".to_owned(),
        why: format!(
            "Data loading takes {} per iteration in the training process. With `num_workers`, \
            other processes load the next batches in parallel. The cost is the time that workers \
            would hide.",
            duration(loading_ns)
        ),
        cost: Some(Cost::time(saved_ns).predicted()),
        fix: Some(EditKind::LoaderWorkers),
        ..Finding::default()
    })
}

/// Whether the program has only one iteration. Workers have no earlier iteration in which to load
/// its batch, and starting them takes longer than loading it.
fn has_one_iteration(evidence: &Evidence<'_>) -> bool {
    evidence.manifest().is_some_and(|manifest| manifest.iterations.seen == Some(1))
}

/// Whether the dataset's samples are on a GPU, which worker processes cannot easily share.
fn loads_on_the_gpu(evidence: &Evidence<'_>) -> bool {
    let tasks = evidence.graph().tasks.iter();
    tasks.filter(|task| task.phase == Phase::Data).any(|task| task.kind == TaskKind::Kernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Case;
    use ridgeline_recording::manifest::{Loader, Machine};

    const PROGRAM: &str = "\
from torch.utils.data import DataLoader
loader = DataLoader(data, batch_size=8)  # loader
for x in loader:
    model(x).backward()
";

    /// An iteration that loads for `load_ns` and computes for 70 ms, on eight cores.
    fn loading(load_ns: f64, workers: u32) -> Case {
        let mut case = Case::new(PROGRAM);
        case.host(TaskKind::HostGap, load_ns, Phase::Data, None);
        case.host(TaskKind::HostGap, 70e6, Phase::Forward, None);
        let loader =
            Loader { workers: Some(workers), fetch_ns: vec![load_ns as u64], ..Loader::default() };
        case.manifest.loaders = vec![loader];
        case.manifest.machine = Some(Machine { cores: Some(8) });
        case
    }

    #[test]
    fn cost_is_what_workers_would_hide() {
        let found = loading(30e6, 0).finds(&LoaderNoWorkers, "loader");
        let cost = found.cost.expect("a cost");
        // All but the one millisecond in which the loop takes a batch from a worker.
        assert!((cost.time_ns - 29e6).abs() < 0.1e6, "{cost:?}");
        assert_eq!(found.fix, Some(EditKind::LoaderWorkers));
    }

    #[test]
    fn recorded_line_takes_precedence() {
        let mut case = loading(30e6, 0);
        case.manifest.loaders[0].at = Some(case.location("loader"));
        case.finds(&LoaderNoWorkers, "loader");
        case.manifest.loaders[0].at.as_mut().expect("a place").file = 9;
        case.finds_nothing(&LoaderNoWorkers);
    }

    #[test]
    fn fast_loading_or_workers_are_not_reported() {
        loading(3e6, 0).finds_nothing(&LoaderNoWorkers);
        loading(30e6, 2).finds_nothing(&LoaderNoWorkers);
        let mut one_core = loading(30e6, 0);
        one_core.manifest.machine = Some(Machine { cores: Some(1) });
        one_core.finds_nothing(&LoaderNoWorkers);
    }

    #[test]
    fn single_iterations_are_not_reported() {
        let mut case = loading(30e6, 0);
        case.manifest.iterations.seen = Some(2);
        case.finds(&LoaderNoWorkers, "loader");
        case.manifest.iterations.seen = Some(1);
        case.finds_nothing(&LoaderNoWorkers);
    }

    #[test]
    fn gpu_datasets_are_not_reported() {
        let mut case = loading(30e6, 0).on_gpu();
        let (_, kernel) = case.launch(TaskKind::Kernel, "k", 1e6, None);
        case.finds(&LoaderNoWorkers, "loader");
        case.graph.task_mut(kernel).expect("a task").phase = Phase::Data;
        case.finds_nothing(&LoaderNoWorkers);
    }
}
