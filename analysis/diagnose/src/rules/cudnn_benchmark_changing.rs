//! `cudnn-benchmark-changing`: with `cudnn.benchmark` on, cuDNN tries its algorithms again for each new
//! shape of a batch (PyTorch, `torch.backends.cudnn.benchmark`).

use super::cudnn_benchmark_off::{convolutions, sum};
use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use crate::tally::Line;
use ridgeline_optimize::facts::Variant;

/// With fewer shapes it soon has tried all of them; a smaller last batch is one more.
const FEWEST: u32 = 4;
/// A smaller share of the iteration is no trial.
const LEAST: f64 = 0.01;

pub(super) struct CudnnBenchmarkChanging;

impl Rule for CudnnBenchmarkChanging {
    fn name(&self) -> &'static str {
        "cudnn-benchmark-changing"
    }

    fn title(&self) -> &'static str {
        "cudnn.benchmark enabled with varying input shapes"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        find(evidence).into_iter().collect()
    }
}

fn find(evidence: &Evidence<'_>) -> Option<Finding> {
    let manifest = evidence.manifest()?;
    let is_cuda = evidence.profile().device.kind == "cuda";
    if !is_cuda || manifest.settings.cudnn_benchmark != Some(true) {
        return None;
    }
    let shapes = manifest.loaders.iter().filter_map(|loader| loader.distinct_shapes).max()?;
    let tried = tried(evidence);
    let tried_ns: f64 = tried.iter().map(|(_, time_ns)| time_ns).sum();
    let is_told = evidence.share(tried_ns) >= LEAST;
    let convolutions = convolutions(evidence);
    let ((file, line), _) = *tried.first().filter(|_| is_told).or(convolutions.first())?;
    (shapes >= FEWEST).then(|| Finding {
        rule: "cudnn-benchmark-changing",
        at: evidence.place(file, line),
        message: format!("cudnn.benchmark is enabled, but batches have {shapes} different shapes"),
        why: "cuDNN benchmarks all its algorithms again for every new shape. Remove \
            `torch.backends.cudnn.benchmark = True`, or pad batches to a few fixed shapes."
            .to_owned(),
        cost: is_told.then(|| Cost::time(tried_ns).predicted()),
        ..Finding::default()
    })
}

/// By line what convolutions took in the profiled iterations beyond what they take by themselves without
/// trying, where that is known: the kernels that cuDNN tries run within them.
fn tried(evidence: &Evidence<'_>) -> Vec<(Line, f64)> {
    sum(evidence, |key, done| {
        let untried_ns = evidence.probes.operators.get(&(key.3, Variant::CudnnBenchmark))?;
        Some((done.kernel_ns - f64::from(done.calls) * untried_ns).max(0.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, operator};
    use ridgeline_profile::Phase;
    use ridgeline_recording::manifest::Loader;

    const TEXT: &str = "import torch\n\ny = model(x)\n";

    fn example(is_on: bool, shapes: Option<u32>) -> Case {
        let shape: &[u64] = &[32, 64, 56, 56];
        Case::new(TEXT)
            .on_gpu()
            .told(|it| {
                it.settings.cudnn_benchmark = Some(is_on);
                it.loaders = vec![Loader { distinct_shapes: shapes, ..Loader::default() }];
            })
            .call(3, Phase::Forward, &operator("conv2d", &[shape, &[64, 64, 3, 3], shape]), 900.0)
    }

    #[test]
    fn many_shapes_are_tried_again_and_again() {
        let found = example(true, Some(6)).measured(&CudnnBenchmarkChanging);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("6 different shapes"), "{}", found[0].message);
    }

    #[test]
    fn what_trying_takes_is_the_cost_where_it_is_known() {
        let mut example = example(true, Some(6));
        example.probes.operators = [((0, Variant::CudnnBenchmark), 300e3)].into();
        let cost = example.measured(&CudnnBenchmarkChanging)[0].cost.unwrap();
        assert!(cost.is_predicted && (cost.time_ns - 600e3).abs() < 1.0, "{cost:?}");
        // The profiled iterations met no new shape.
        example.probes.operators = [((0, Variant::CudnnBenchmark), 899e3)].into();
        assert_eq!(example.measured(&CudnnBenchmarkChanging)[0].cost, None);
    }

    #[test]
    fn a_smaller_last_batch_or_a_switch_that_is_off_is_no_fault() {
        assert!(example(true, Some(2)).measured(&CudnnBenchmarkChanging).is_empty());
        assert!(example(true, None).measured(&CudnnBenchmarkChanging).is_empty());
        assert!(example(false, Some(6)).measured(&CudnnBenchmarkChanging).is_empty());
    }

    #[test]
    fn without_convolutions_it_does_not_matter() {
        let product = operator("mm", &[&[64, 64], &[64, 64], &[64, 64]]);
        let example = Case::new(TEXT)
            .on_gpu()
            .told(|it| {
                it.settings.cudnn_benchmark = Some(true);
                it.loaders = vec![Loader { distinct_shapes: Some(9), ..Loader::default() }];
            })
            .call(3, Phase::Forward, &product, 900.0);
        assert!(example.measured(&CudnnBenchmarkChanging).is_empty());
    }
}
