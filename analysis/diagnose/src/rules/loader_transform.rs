//! Decoding or augmentation that takes longer than the training itself, so that the loop waits whatever
//! loads it.

use ridgeline_base::statistics::quantile;
use tree_sitter::Node;

use crate::dataset::{of_library, value_of};
use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, Place};
use crate::loading::{batches, loader, ns, place};
use crate::loops::heads;
use crate::rule::Rule;
use ridgeline_base::units::duration;
use ridgeline_optimize::loading::workers as workers_to_be_had;
use ridgeline_optimize::rewrite::loader::loaders;
use ridgeline_profile::{FileId, Phase};
use ridgeline_recording::manifest::Loader;

/// A line that takes less of an iteration in loading is not what dominates.
const LEAST_SHARE: f64 = 0.2;
/// A line that takes less of the loading is one of many.
const LEAST_OF_LOADING: f64 = 0.3;
/// What taking a batch from a worker costs at most, in nanoseconds: waiting less is no waiting.
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
            Some(0) => in_the_loop(evidence, loader),
            Some(workers) => despite_workers(evidence, loader, workers),
            None => None,
        };
        found.into_iter().collect()
    }
}

/// Without workers the lines are in the recording.
fn in_the_loop(evidence: &Evidence<'_>, loader: &Loader) -> Option<Finding> {
    let loading_ns = evidence.profile().iteration.phases.data;
    let training_ns = evidence.iteration_ns() - loading_ns;
    let workers = workers_to_be_had(evidence.manifest());
    // With workers that hide it, their number is what is missing, and not a quicker transform.
    if loading_ns / f64::from(workers) <= training_ns {
        return None;
    }
    let dominates = |ns: f64| {
        ns >= LEAST_SHARE * evidence.iteration_ns() && ns >= LEAST_OF_LOADING * loading_ns
    };
    let of_line = costliest(evidence).map(|(file, line, own_ns)| {
        let line_ns = own_ns + loops_ns(evidence, file, line);
        (evidence.place(file, line), Vec::new(), line_ns, "on this line")
    });
    let of_line = of_line.filter(|(.., ns, _)| dominates(*ns));
    let of_library = || {
        let loop_ns = in_libraries_ns(evidence).filter(|ns| dominates(*ns))?;
        let (at, transform) = made_by_library(evidence, loader)?;
        Some((at, transform, loop_ns, "in this dataset"))
    };
    let (at, related, line_ns, which) = of_line.or_else(of_library)?;
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

/// The line with the most time of its own in loading; not the loop's, whose waiting it is.
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

/// What the loop's own line takes for loading: the code of libraries, which has no lines of its own here.
fn in_libraries_ns(evidence: &Evidence<'_>) -> Option<f64> {
    let (file, line) = evidence.profile().iteration.loop_line?;
    Some(evidence.line(file, line)?.self_time.get(Phase::Data))
}

/// Where the loader's data set is made, which is a library's, and beside it its transform.
fn made_by_library(
    evidence: &Evidence<'_>,
    loader: &Loader,
) -> Option<(Place, Vec<(Place, String)>)> {
    let program = evidence.program;
    let of_loader = place(evidence, loader)?;
    let at = |module: usize, node: Node<'_>| {
        let (file, line) = evidence.ran(module, program.module(module).line(node.start_byte()))?;
        Some(evidence.place(file, line))
    };
    let found = loaders(program).ok()?;
    let one = found.iter().find(|one| at(one.module, one.call).as_ref() == Some(&of_loader))?;
    let dataset = of_library(program, one.module, one.call)?;
    let transform = program.arguments(one.module, dataset)?.named("transform");
    let transform = transform.and_then(|it| value_of(program, one.module, it));
    let related = transform.and_then(|it| at(one.module, it));
    let related = related.map(|at| (at, "its transform is created here".to_owned()));
    Some((at(one.module, dataset)?, related.into_iter().collect()))
}

/// What the loops take, in loading, that run this line and nothing else.
fn loops_ns(evidence: &Evidence<'_>, file: FileId, line: u32) -> f64 {
    let Some((module, today)) = evidence.today(file, line) else { return 0.0 };
    let heads = heads(evidence.program.module(module), today).into_iter();
    let costs = heads.filter_map(|head| {
        let (file, ran) = evidence.ran(module, head)?;
        Some(evidence.line(file, ran)?.self_time.get(Phase::Data))
    });
    costs.sum()
}

/// With workers only the waiting is seen.
fn despite_workers(evidence: &Evidence<'_>, loader: &Loader, workers: u32) -> Option<Finding> {
    // Two workers give two batches at a time, and at the beginning of an epoch nothing is loaded ahead:
    // only where each batch is waited for, the loader is slower than the loop.
    let least_ns = quantile(&ns(&loader.fetch_ns), 0.0).filter(|_| loader.fetch_ns.len() >= 3)?;
    let waited_ns = (least_ns - HANDOVER_NS) * batches(evidence, loader);
    if waited_ns < LEAST_SHARE * evidence.iteration_ns() || waited_ns <= 0.0 {
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

    /// An iteration that trains for 10 ms; loading takes so long, on one line, on four cores.
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
    fn the_line_that_loading_spends_its_time_on() {
        let cost = loading(100e6, 0).finds(&LoaderTransform, "augment").cost;
        assert_eq!(cost, Some(Cost::time(70e6)));
    }

    #[test]
    fn a_loop_over_one_line_belongs_to_it() {
        let around = PROGRAM.replace(
            "        return augment(self.pictures[index])  # augment",
            "        for row in range(9):  # rows\n            turn(row)  # augment\n        return row",
        );
        let mut case = loading_by(&around, 100e6, 0);
        case.ran("rows", 8.0).self_time.data = 5e6;
        let cost = case.finds(&LoaderTransform, "augment").cost;
        assert_eq!(cost, Some(Cost::time(75e6)));
    }

    /// The same of a data set of a library: all that is seen of its code is the loop's line.
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
    fn a_library_s_data_set_is_told_where_it_is_made() {
        let found = in_a_library("datasets.CIFAR10('data', transform=steps)", 100e6)
            .finds(&LoaderTransform, "data");
        assert_eq!(found.cost, Some(Cost::time(100e6)));
        assert_eq!(found.related.len(), 1);
        assert_eq!(found.related[0].0.line, 3);
        let one = in_a_library("datasets.CIFAR10('data', transform=None)", 100e6);
        assert_eq!(one.finds(&LoaderTransform, "data").related, []);
    }

    #[test]
    fn what_workers_would_hide_of_a_library_and_tensors_of_torch_are_none() {
        in_a_library("datasets.CIFAR10('data', transform=steps)", 36e6)
            .finds_nothing(&LoaderTransform);
        in_a_library("TensorDataset(pictures, labels)", 100e6).finds_nothing(&LoaderTransform);
    }

    #[test]
    fn what_workers_would_hide_is_none() {
        // 36 ms by four workers are 9.
        loading(36e6, 0).finds_nothing(&LoaderTransform);
    }

    #[test]
    fn many_lines_that_take_little_are_none() {
        let mut case = loading(100e6, 0);
        for line in &mut case.profile.lines[0] {
            line.self_time.data *= 0.3;
        }
        case.finds_nothing(&LoaderTransform);
    }

    #[test]
    fn waiting_despite_workers() {
        let cost = loading(30e6, 2).finds(&LoaderTransform, "loader").cost;
        assert_eq!(cost, Some(Cost::time(27.5e6)));
        loading(3e6, 2).finds_nothing(&LoaderTransform);
        // Of two that come at a time the second one is there.
        let mut by_turns = loading(30e6, 2);
        by_turns.manifest.loaders[0].fetch_ns = vec![30_000_000, 400_000, 30_000_000];
        by_turns.finds_nothing(&LoaderTransform);
    }
}
