//! `loader-workers-restarted`: loader workers that stop after each epoch and start again for the
//! next (PyTorch, "torch.utils.data: persistent_workers").

use crate::data_loaders::{batches, median, place};
use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use ridgeline_base::statistics::quantile;
use ridgeline_base::units::duration;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_recording::manifest::Loader;

/// The minimum share of the iteration time that a fix saves.
const MIN_SHARE: f64 = 0.01;

pub(super) struct LoaderWorkersRestarted;

impl Rule for LoaderWorkersRestarted {
    fn name(&self) -> &'static str {
        "loader-workers-restarted"
    }

    fn title(&self) -> &'static str {
        "DataLoader workers restarted every epoch"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let loaders = evidence.manifest().map(|manifest| manifest.loaders.as_slice());
        let loaders = loaders.unwrap_or_default().iter();
        loaders.filter_map(|loader| finding(evidence, loader)).collect()
    }
}

fn finding(evidence: &Evidence<'_>, loader: &Loader) -> Option<Finding> {
    let workers = loader.workers.filter(|workers| *workers > 0)?;
    if loader.persistent != Some(false) {
        return None;
    }
    // Every epoch except the last one also stops the workers.
    let ending_ns = median(&loader.end_ns).unwrap_or(0.0);
    let each_ns = starting_ns(evidence, loader, workers)? + ending_ns;
    let time_ns = each_ns / iterations_per_epoch(evidence, loader)?;
    if time_ns < MIN_SHARE * evidence.iteration_ns() {
        return None;
    }
    let are = if workers == 1 { " is" } else { "s are" };
    Some(Finding {
        rule: "loader-workers-restarted",
        at: place(evidence, loader)?,
        message: format!("{workers} worker{are} restarted every epoch"),
        why: format!(
            "Every epoch waits {} for worker processes to stop and start. \
            `persistent_workers=True` keeps them alive. The cost is that time divided by the \
            iterations per epoch.",
            duration(each_ns)
        ),
        cost: Some(Cost::time(time_ns)),
        fix: Some(EditKind::PersistentWorkers),
        ..Finding::default()
    })
}

/// How long an epoch waits for its workers to start, in nanoseconds: the time until its first
/// batch, minus the time to load a batch. If the recording does not have the latter, it is
/// estimated as the usual wait for a batch plus, as an upper bound, the time in which the loop
/// processes one batch per worker.
fn starting_ns(evidence: &Evidence<'_>, loader: &Loader, workers: u32) -> Option<f64> {
    // The very first epoch also starts other things.
    let later = loader.first_batch_ns.get(1..).filter(|later| !later.is_empty())?;
    let loading_ns = if let Some(loading_ns) = loader.worker_load_ns {
        loading_ns as f64
    } else {
        // In short epochs many iterations wait for workers, but the fastest one does not.
        let quickest_ns = quantile(&evidence.profile().iteration.timed_ns, 0.0)?;
        let batch_ns = quickest_ns / batches(evidence, loader);
        median(&loader.fetch_ns)? + f64::from(workers) * batch_ns
    };
    let each_ns = median(later)? - loading_ns;
    (each_ns > 0.0).then_some(each_ns)
}

/// The number of iterations per epoch: from the length of the data, otherwise from the observed
/// iterations.
fn iterations_per_epoch(evidence: &Evidence<'_>, loader: &Loader) -> Option<f64> {
    let manifest = evidence.manifest()?;
    let passes = loader.passes.filter(|passes| *passes >= 2)?;
    let iterations = f64::from(manifest.iterations.seen?) / f64::from(passes);
    let known = manifest.batch.as_ref().and_then(|batch| {
        Some(batch.samples_per_epoch? as f64 / batch.size.filter(|size| *size > 0)? as f64)
    });
    // The observed first and last epochs may be incomplete, so each has at least this many.
    Some(known.unwrap_or(iterations).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Case;
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_profile::Phase;
    use ridgeline_recording::manifest::Batch;

    const PROGRAM: &str = "\
from torch.utils.data import DataLoader
loader = DataLoader(data, num_workers=2)  # loader
for epoch in range(9):
    for x in loader:
        model(x).backward()
";

    /// Epochs of ten iterations of 5 ms, each with this wait for its first batch.
    fn epochs(first_ms: &[u64], persistent: bool, workers: u32) -> Case {
        let mut case = Case::new(PROGRAM);
        case.host(TaskKind::HostGap, 5e6, Phase::Forward, None);
        let loader = Loader {
            workers: Some(workers),
            persistent: Some(persistent),
            passes: u32::try_from(first_ms.len()).ok(),
            first_batch_ns: first_ms.iter().map(|ms| ms * 1_000_000).collect(),
            fetch_ns: vec![100_000; 4],
            ..Loader::default()
        };
        case.profile.iteration.timed_ns = vec![5e6; 4];
        case.manifest.loaders = vec![loader];
        case.manifest.iterations.seen = Some(10 * first_ms.len() as u32);
        case
    }

    #[test]
    fn startup_time_is_divided_by_the_iterations() {
        let cost = epochs(&[300, 80, 82], false, 2).finds(&LoaderWorkersRestarted, "loader").cost;
        // 81 ms, minus 0.1 ms for a usual batch and 10 ms of loading, over ten iterations.
        let time_ns = cost.expect("a cost").time_ns;
        assert!((time_ns - 7.09e6).abs() < 0.01e6, "{time_ns}");
    }

    #[test]
    fn measured_load_time_is_subtracted() {
        let mut case = epochs(&[300, 80, 82], false, 2);
        case.manifest.loaders[0].worker_load_ns = Some(1_000_000);
        let cost = case.finds(&LoaderWorkersRestarted, "loader").cost.expect("a cost");
        assert!((cost.time_ns - 8.0e6).abs() < 0.01e6, "{cost:?}");
    }

    #[test]
    fn shutdown_time_is_added() {
        let mut case = epochs(&[300, 80, 82], false, 2);
        case.manifest.loaders[0].end_ns = vec![30_000_000, 29_000_000];
        let cost = case.finds(&LoaderWorkersRestarted, "loader").cost.expect("a cost");
        assert!((cost.time_ns - (7.09e6 + 2.95e6)).abs() < 0.01e6, "{cost:?}");
    }

    #[test]
    fn epoch_length_comes_from_the_data_if_known() {
        let mut case = epochs(&[300, 80, 82], false, 2);
        let batch = Batch { size: Some(8), samples_per_epoch: Some(160), ..Batch::default() };
        case.manifest.batch = Some(batch);
        let cost = case.finds(&LoaderWorkersRestarted, "loader").cost.expect("a cost");
        assert!((cost.time_ns - 3.545e6).abs() < 0.01e6, "{cost:?}");
    }

    #[test]
    fn persistent_single_or_fast_starts_are_not_reported() {
        epochs(&[300, 80, 82], true, 2).finds_nothing(&LoaderWorkersRestarted);
        epochs(&[300], false, 2).finds_nothing(&LoaderWorkersRestarted);
        epochs(&[300, 80, 82], false, 0).finds_nothing(&LoaderWorkersRestarted);
        // Loading the first batch may take as long.
        epochs(&[300, 10, 10], false, 2).finds_nothing(&LoaderWorkersRestarted);
    }
}
