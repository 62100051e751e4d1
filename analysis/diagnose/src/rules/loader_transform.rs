//! `loader-transform`: decoding or augmentation that takes longer than the training itself, so that
//! the loop waits however the data is loaded.

use ridgeline_base::statistics::quantile;
use tree_sitter::Node;

use crate::data_loaders::{batches, loader, ns, place};
use crate::dataset::{library_dataset, value_of};
use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, SourceLine};
use crate::loops::loop_headers;
use crate::rule::Rule;
use ridgeline_base::units::duration;
use ridgeline_optimize::loading::workers as available_workers;
use ridgeline_optimize::rewrite::loader::loaders;
use ridgeline_profile::{FileId, Phase};
use ridgeline_recording::manifest::Loader;

/// The minimum share of the iteration time that a line takes in loading.
const MIN_SHARE: f64 = 0.2;
/// The minimum share of the loading time that a line takes; below it, it is one of many.
const MIN_LOADING_SHARE: f64 = 0.3;
/// The maximum time to take a batch from a worker, in nanoseconds: a shorter wait does not count as
/// one.
const HANDOVER_NS: f64 = 2.5e6;

pub(super) struct LoaderTransform;

impl Rule for LoaderTransform {
    fn name(&self) -> &'static str {
        "loader-transform"
    }

    fn title(&self) -> &'static str {
        "Preprocessing slower than training"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(loader) = loader(evidence) else { return Vec::new() };
        let found = match loader.workers {
            Some(0) => without_workers(evidence, loader),
            Some(workers) => with_workers(evidence, loader, workers),
            None => None,
        };
        found.into_iter().collect()
    }
}

/// Without workers the recording has the lines that load.
fn without_workers(evidence: &Evidence<'_>, loader: &Loader) -> Option<Finding> {
    let loading_ns = evidence.profile().iteration.phases.data;
    let training_ns = evidence.iteration_ns() - loading_ns;
    let workers = available_workers(evidence.manifest());
    // If workers would hide the loading, the problem is their number, not a slow transform.
    if loading_ns / f64::from(workers) <= training_ns {
        return None;
    }
    let dominates =
        |ns: f64| ns >= MIN_SHARE * evidence.iteration_ns() && ns >= MIN_LOADING_SHARE * loading_ns;
    let in_line = costliest(evidence).map(|(file, line, own_ns)| {
        let line_ns = own_ns + loops_ns(evidence, file, line);
        (evidence.place(file, line), Vec::new(), line_ns, "on this line")
    });
    let in_line = in_line.filter(|(.., ns, _)| dominates(*ns));
    let in_library = || {
        let loop_ns = in_libraries_ns(evidence).filter(|ns| dominates(*ns))?;
        let (at, transform) = library_dataset_place(evidence, loader)?;
        Some((at, transform, loop_ns, "in this dataset"))
    };
    let (at, related, line_ns, which) = in_line.or_else(in_library)?;
    let with = if workers == 1 {
        "one worker".to_owned()
    } else {
        format!("{workers} workers (one per core)")
    };
    Some(Finding {
        rule: "loader-transform",
        at,
        related,
        message: format!("Preprocessing {which} takes longer than training"),
        why: format!(
            "Per iteration, loading takes {} and training {}, more than {with} can hide. \
            Preprocess once before training, in whole batches, or on the GPU.",
            duration(loading_ns),
            duration(training_ns)
        ),
        cost: Some(Cost::time(line_ns)),
        ..Finding::default()
    })
}

/// The line with the most self time in loading, except the loop's own line, which waits for the
/// data.
fn costliest(evidence: &Evidence<'_>) -> Option<(FileId, u32, f64)> {
    let profile = evidence.profile();
    let mut best: Option<(FileId, u32, f64)> = None;
    for (file, lines) in (0_u32..).map(FileId).zip(&profile.lines) {
        for cost in lines {
            let ns = cost.self_time.get(Phase::Data);
            let is_loop = profile.iteration.loop_line == Some((file, cost.line));
            if !is_loop && best.is_none_or(|(.., most)| ns > most) {
                best = Some((file, cost.line, ns));
            }
        }
    }
    best
}

/// The loading time on the loop's own line: the code of libraries, whose lines are not recorded.
fn in_libraries_ns(evidence: &Evidence<'_>) -> Option<f64> {
    let (file, line) = evidence.profile().iteration.loop_line?;
    Some(evidence.line(file, line)?.self_time.get(Phase::Data))
}

/// Where a library creates the loader's dataset, and its transform as a related line.
fn library_dataset_place(
    evidence: &Evidence<'_>,
    loader: &Loader,
) -> Option<(SourceLine, Vec<(SourceLine, String)>)> {
    let program = evidence.program;
    let loader_place = place(evidence, loader)?;
    let at = |module: usize, node: Node<'_>| {
        let (file, line) =
            evidence.recorded_line(module, program.module(module).line(node.start_byte()))?;
        Some(evidence.place(file, line))
    };
    let found = loaders(program).ok()?;
    let one = found.iter().find(|one| at(one.module, one.call).as_ref() == Some(&loader_place))?;
    let dataset = library_dataset(program, one.module, one.call)?;
    let transform = program.arguments(one.module, dataset)?.named("transform");
    let transform = transform.and_then(|it| value_of(program, one.module, it));
    let related = transform.and_then(|it| at(one.module, it));
    let related = related.map(|at| (at, "its transform is created here".to_owned()));
    Some((at(one.module, dataset)?, related.into_iter().collect()))
}

/// The loading time of loops whose body is only this line.
fn loops_ns(evidence: &Evidence<'_>, file: FileId, line: u32) -> f64 {
    let Some((module, today)) = evidence.current_line(file, line) else { return 0.0 };
    let loop_headers = loop_headers(evidence.program.module(module), today).into_iter();
    let costs = loop_headers.filter_map(|head| {
        let (file, ran) = evidence.recorded_line(module, head)?;
        Some(evidence.line(file, ran)?.self_time.get(Phase::Data))
    });
    costs.sum()
}

/// With workers, only the waiting is visible.
fn with_workers(evidence: &Evidence<'_>, loader: &Loader, workers: u32) -> Option<Finding> {
    // Two workers deliver two batches at a time, and at the beginning of an epoch nothing is
    // prefetched. The loader is slower than the loop only if every batch is waited for.
    let least_ns = quantile(&ns(&loader.fetch_ns), 0.0).filter(|_| loader.fetch_ns.len() >= 3)?;
    let waited_ns = (least_ns - HANDOVER_NS) * batches(evidence, loader);
    if waited_ns < MIN_SHARE * evidence.iteration_ns() || waited_ns <= 0.0 {
        return None;
    }
    let s = if workers == 1 { "" } else { "s" };
    Some(Finding {
        rule: "loader-transform",
        at: place(evidence, loader)?,
        message: format!("{workers} worker{s} cannot keep up with training"),
        why: "The loop waits for batches even with workers. Use more workers if cores are idle. \
            Otherwise reduce decoding and augmentation, do it once before training, or move it to \
            the GPU."
            .to_owned(),
        cost: Some(Cost::time(waited_ns)),
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Case;
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_recording::manifest::Machine;

    const PROGRAM: &str = "\
from torch.utils.data import DataLoader
class Pictures:
    def __getitem__(self, index):
        return augment(self.pictures[index])  # augment
loader = DataLoader(data, num_workers=2)  # loader
for x in loader:  # loop
    model(x).backward()
";

    /// An iteration that trains for 10 ms and loads for `load_ns`, on one line, on four cores.
    fn loading(load_ns: f64, workers: u32) -> Case {
        loading_by(PROGRAM, load_ns, workers)
    }

    fn loading_by(program: &str, load_ns: f64, workers: u32) -> Case {
        let mut case = Case::new(program);
        case.host(TaskKind::HostGap, load_ns, Phase::Data, None);
        case.host(TaskKind::HostGap, 10e6, Phase::Forward, None);
        case.profile.iteration.phases.data = load_ns;
        case.profile.iteration.timed_ns = vec![10e6 + load_ns; 3];
        case.profile.iteration.loop_line = Some(case.line("loop"));
        case.ran("augment", 8.0).self_time.data = 0.7 * load_ns;
        case.ran("loop", 1.0).self_time.data = 0.3 * load_ns;
        case.manifest.machine = Some(Machine { cores: Some(4) });
        case.manifest.loaders = vec![Loader {
            workers: Some(workers),
            fetch_ns: vec![load_ns as u64; 3],
            ..Loader::default()
        }];
        case
    }

    #[test]
    fn line_with_most_loading_time_is_reported() {
        let cost = loading(100e6, 0).finds(&LoaderTransform, "augment").cost;
        assert_eq!(cost, Some(Cost::time(70e6)));
    }

    #[test]
    fn loop_around_a_single_line_counts_for_it() {
        let around = PROGRAM.replace(
            "        return augment(self.pictures[index])  # augment",
            "        for row in range(9):  # rows\n            turn(row)  # augment\n        return row",
        );
        let mut case = loading_by(&around, 100e6, 0);
        case.ran("rows", 8.0).self_time.data = 5e6;
        let cost = case.finds(&LoaderTransform, "augment").cost;
        assert_eq!(cost, Some(Cost::time(75e6)));
    }

    /// Like `loading`, with a dataset of a library: only the loop's own line shows its time.
    fn in_a_library(dataset: &str, load_ns: f64) -> Case {
        let program = format!(
            "from torch.utils.data import DataLoader, TensorDataset\n\
             from torchvision import datasets, transforms\n\
             steps = transforms.Compose([transforms.RandomCrop(32), transforms.ToTensor()])  # steps\n\
             data = {dataset}  # data\nloader = DataLoader(data, batch_size=8)  # loader\n\
             for x in loader:  # loop\n    model(x).backward()  # augment\n"
        );
        let mut case = loading_by(&program, load_ns, 0);
        for cost in &mut case.profile.lines[0] {
            cost.self_time.data = 0.0;
        }
        case.ran("loop", 1.0).self_time.data = load_ns;
        case.profile.lines[0].retain(|cost| cost.self_time.data > 0.0);
        case.manifest.loaders[0].at = Some(case.location("loader"));
        case
    }

    #[test]
    fn library_dataset_is_reported_where_it_is_created() {
        let found = in_a_library("datasets.CIFAR10('data', transform=steps)", 100e6)
            .finds(&LoaderTransform, "data");
        assert_eq!(found.cost, Some(Cost::time(100e6)));
        assert_eq!(found.related.len(), 1);
        assert_eq!(found.related[0].0.line, 3);
        let one = in_a_library("datasets.CIFAR10('data', transform=None)", 100e6);
        assert_eq!(one.finds(&LoaderTransform, "data").related, []);
    }

    #[test]
    fn hidden_library_loading_and_tensor_datasets_are_not_reported() {
        in_a_library("datasets.CIFAR10('data', transform=steps)", 36e6)
            .finds_nothing(&LoaderTransform);
        in_a_library("TensorDataset(pictures, labels)", 100e6).finds_nothing(&LoaderTransform);
    }

    #[test]
    fn loading_that_workers_can_hide_is_not_reported() {
        // 36 ms divided by four workers are 9 ms.
        loading(36e6, 0).finds_nothing(&LoaderTransform);
    }

    #[test]
    fn many_small_lines_are_not_reported() {
        let mut case = loading(100e6, 0);
        for line in &mut case.profile.lines[0] {
            line.self_time.data *= 0.3;
        }
        case.finds_nothing(&LoaderTransform);
    }

    #[test]
    fn waiting_with_workers() {
        let cost = loading(30e6, 2).finds(&LoaderTransform, "loader").cost;
        assert_eq!(cost, Some(Cost::time(27.5e6)));
        loading(3e6, 2).finds_nothing(&LoaderTransform);
        // If two batches arrive at a time, the second one is not waited for.
        let mut by_turns = loading(30e6, 2);
        by_turns.manifest.loaders[0].fetch_ns = vec![30_000_000, 400_000, 30_000_000];
        by_turns.finds_nothing(&LoaderTransform);
    }
}
