//! `cudnn-benchmark-changing`: with `cudnn.benchmark` enabled, cuDNN benchmarks its algorithms
//! again for each new input shape (PyTorch, `torch.backends.cudnn.benchmark`).

use super::cudnn_benchmark_off::{convolutions, sum};
use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::line_sums::Line;
use crate::rule::Rule;
use ridgeline_optimize::facts::Variant;

/// The minimum number of shapes. Fewer are soon all benchmarked; a smaller last batch counts as
/// one.
const MIN_SHAPES: u32 = 4;
/// The minimum share of the iteration time for benchmarking to be part of it.
const MIN_SHARE: f64 = 0.01;

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
    let benchmarking = benchmarking(evidence);
    let benchmarking_ns: f64 = benchmarking.iter().map(|(_, time_ns)| time_ns).sum();
    let is_significant = evidence.share(benchmarking_ns) >= MIN_SHARE;
    let convolutions = convolutions(evidence);
    let ((file, line), _) =
        *benchmarking.first().filter(|_| is_significant).or(convolutions.first())?;
    (shapes >= MIN_SHAPES).then(|| Finding {
        rule: "cudnn-benchmark-changing",
        at: evidence.place(file, line),
        message: format!("cudnn.benchmark is enabled, but batches have {shapes} different shapes"),
        why: "cuDNN benchmarks all its algorithms again for every new shape. Remove \
            `torch.backends.cudnn.benchmark = True`, or pad batches to a few fixed shapes."
            .to_owned(),
        cost: is_significant.then(|| Cost::time(benchmarking_ns).predicted()),
        ..Finding::default()
    })
}

/// The time that convolutions took in the profiled iterations beyond their probed time without
/// benchmarking, by line: cuDNN runs the benchmarked kernels within them.
fn benchmarking(evidence: &Evidence<'_>) -> Vec<(Line, f64)> {
    sum(evidence, |key, done| {
        let plain_ns = evidence.probes.operators.get(&(key.3, Variant::CudnnBenchmark))?;
        Some((done.kernel_ns - f64::from(done.calls) * plain_ns).max(0.0))
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
            .with_manifest(|it| {
                it.settings.cudnn_benchmark = Some(is_on);
                it.loaders = vec![Loader { distinct_shapes: shapes, ..Loader::default() }];
            })
            .call(3, Phase::Forward, &operator("conv2d", &[shape, &[64, 64, 3, 3], shape]), 900.0)
    }

    #[test]
    fn many_shapes_are_reported() {
        let found = example(true, Some(6)).measured(&CudnnBenchmarkChanging);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("6 different shapes"), "{}", found[0].message);
    }

    #[test]
    fn cost_is_the_benchmarking_time_if_known() {
        let mut example = example(true, Some(6));
        example.probes.operators = [((0, Variant::CudnnBenchmark), 300e3)].into();
        let cost = example.measured(&CudnnBenchmarkChanging)[0].cost.unwrap();
        assert!(cost.is_predicted && (cost.time_ns - 600e3).abs() < 1.0, "{cost:?}");
        // The profiled iterations had no new shape.
        example.probes.operators = [((0, Variant::CudnnBenchmark), 899e3)].into();
        assert_eq!(example.measured(&CudnnBenchmarkChanging)[0].cost, None);
    }

    #[test]
    fn few_shapes_or_disabled_benchmark_are_not_reported() {
        assert!(example(true, Some(2)).measured(&CudnnBenchmarkChanging).is_empty());
        assert!(example(true, None).measured(&CudnnBenchmarkChanging).is_empty());
        assert!(example(false, Some(6)).measured(&CudnnBenchmarkChanging).is_empty());
    }

    #[test]
    fn programs_without_convolutions_are_skipped() {
        let product = operator("mm", &[&[64, 64], &[64, 64], &[64, 64]]);
        let example = Case::new(TEXT)
            .on_gpu()
            .with_manifest(|it| {
                it.settings.cudnn_benchmark = Some(true);
                it.loaders = vec![Loader { distinct_shapes: Some(9), ..Loader::default() }];
            })
            .call(3, Phase::Forward, &product, 900.0);
        assert!(example.measured(&CudnnBenchmarkChanging).is_empty());
    }
}
