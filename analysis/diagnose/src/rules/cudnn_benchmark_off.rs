//! `cudnn-benchmark-off`: convolutions of fixed sizes, for which cuDNN picks its algorithms by
//! heuristics instead of benchmarking them (PyTorch, "Performance Tuning Guide").

use crate::evidence::{Evidence, Key, Work};
use crate::finding::{Cost, Finding};
use crate::line_sums::{Line, by_line, highest_first};
use crate::rule::Rule;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_optimize::facts::Variant;
use ridgeline_optimize::rewrite::EditKind;

/// The minimum share of the iteration time in convolutions.
const MIN_SHARE: f64 = 0.2;
/// The minimum share that the probes must save; otherwise the heuristics were right.
const MIN_SAVED_SHARE: f64 = 0.01;

pub(super) struct CudnnBenchmarkOff;

impl Rule for CudnnBenchmarkOff {
    fn name(&self) -> &'static str {
        "cudnn-benchmark-off"
    }

    fn title(&self) -> &'static str {
        "cudnn.benchmark disabled with fixed input shapes"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        find(evidence).into_iter().collect()
    }
}

/// The kernel time of convolutions by line, the longest first.
pub(super) fn convolutions(evidence: &Evidence<'_>) -> Vec<(Line, f64)> {
    sum(evidence, |_, done| Some(done.kernel_ns))
}

/// Sums `value_of` over convolutions by line, the highest first.
pub(super) fn sum(
    evidence: &Evidence<'_>,
    value_of: impl Fn(&Key, &Work) -> Option<f64>,
) -> Vec<(Line, f64)> {
    highest_first(by_line(evidence, |key, done, operator| {
        let is_convolution = work(operator)?.family == Family::Convolution && done.kernel_ns > 0.0;
        is_convolution.then(|| value_of(key, done)).flatten()
    }))
}

/// The time that cuDNN's fastest algorithms save, by line, for the convolutions that were probed
/// both ways. Empty if none were.
fn saved(evidence: &Evidence<'_>) -> Vec<(Line, f64)> {
    sum(evidence, |key, done| {
        let ratio = evidence.probes.ratio(key.3, Variant::CudnnBenchmark)?;
        Some(done.kernel_ns * (1.0 - ratio.value))
    })
}

fn find(evidence: &Evidence<'_>) -> Option<Finding> {
    let manifest = evidence.manifest()?;
    let settings = &manifest.settings;
    let is_off = settings.cudnn_benchmark == Some(false) && settings.deterministic != Some(true);
    let sizes = manifest.loaders.iter().map(|loader| loader.distinct_shapes);
    let is_fixed = !manifest.loaders.is_empty() && sizes.clone().all(|count| count == Some(1));
    // A program that sets one of these made a choice: `cudnn.deterministic = True`.
    let mut texts = evidence.program.modules().iter().map(|module| module.index.text());
    let is_chosen = texts.any(|text| text.contains("cudnn."));
    if evidence.profile().device.kind != "cuda" || !is_off || !is_fixed || is_chosen {
        return None;
    }
    let lines = convolutions(evidence);
    let total_ns: f64 = lines.iter().map(|(_, time_ns)| time_ns).sum();
    let saved = saved(evidence);
    let saved_ns: f64 = saved.iter().map(|(_, time_ns)| time_ns).sum();
    let is_probed = !saved.is_empty();
    if evidence.share(total_ns) < MIN_SHARE
        || (is_probed && evidence.share(saved_ns) < MIN_SAVED_SHARE)
    {
        return None;
    }
    let ((file, line), _) = *saved.first().or(lines.first())?;
    let explanation = match is_probed {
        true => "The cost is the measured saving of the same convolutions, run in isolation.",
        false => "The saving depends on the GPU and the shapes; measure it with a run.",
    };
    Some(Finding {
        rule: "cudnn-benchmark-off",
        at: evidence.place(file, line),
        message: "cudnn.benchmark is disabled, so cuDNN does not search for the fastest algorithm"
            .to_owned(),
        why: format!(
            "All batches have the same shape, so with `torch.backends.cudnn.benchmark = True` \
            cuDNN benchmarks its algorithms once and keeps the fastest. {explanation}"
        ),
        cost: is_probed.then(|| Cost::time(saved_ns).predicted()),
        fix: Some(EditKind::CudnnBenchmark),
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, operator};
    use ridgeline_profile::Phase;
    use ridgeline_recording::manifest::Loader;

    const TEXT: &str = "import torch\n\ny = model(x)\n";

    fn example(text: &str, shapes: Option<u32>) -> Case {
        let shape: &[u64] = &[32, 64, 56, 56];
        Case::new(text)
            .on_gpu()
            .with_manifest(|it| {
                it.settings.cudnn_benchmark = Some(false);
                it.loaders = vec![Loader { distinct_shapes: shapes, ..Loader::default() }];
            })
            .call(3, Phase::Forward, &conv(shape), 900.0)
    }

    fn conv(shape: &[u64]) -> ridgeline_operators::operator::Operator {
        operator("conv2d", &[shape, &[64, 64, 3, 3], shape])
    }

    #[test]
    fn fixed_sizes_without_probes() {
        let found = example(TEXT, Some(1)).measured(&CudnnBenchmarkOff);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].at.line, found[0].cost), (3, None));
    }

    #[test]
    fn cost_is_the_probed_saving() {
        let mut example = example(TEXT, Some(1));
        let times = |then| [((0, Variant::Same), 100.0), ((0, Variant::CudnnBenchmark), then)];
        example.probes.operators = times(80.0).into();
        let found = example.measured(&CudnnBenchmarkOff);
        let cost = found[0].cost.unwrap();
        assert!(cost.is_predicted && (cost.time_ns - 180e3).abs() < 1.0, "{cost:?}");
        // The heuristics already pick the fastest algorithm.
        example.probes.operators = times(99.5).into();
        assert!(example.measured(&CudnnBenchmarkOff).is_empty());
    }

    #[test]
    fn varying_or_unknown_sizes_are_not_reported() {
        assert!(example(TEXT, Some(2)).measured(&CudnnBenchmarkOff).is_empty());
        assert!(example(TEXT, None).measured(&CudnnBenchmarkOff).is_empty());
        let provider = example(TEXT, Some(1)).with_manifest(|it| it.loaders.clear());
        assert!(provider.measured(&CudnnBenchmarkOff).is_empty());
    }

    #[test]
    fn enabled_chosen_or_rocm_is_not_reported() {
        let on =
            example(TEXT, Some(1)).with_manifest(|it| it.settings.cudnn_benchmark = Some(true));
        assert!(on.measured(&CudnnBenchmarkOff).is_empty());
        let chosen = "import torch\ntorch.backends.cudnn.deterministic = True\ny = model(x)\n";
        assert!(example(chosen, Some(1)).measured(&CudnnBenchmarkOff).is_empty());
        let mut rocm = example(TEXT, Some(1));
        rocm.profile.device.kind = "rocm".to_owned();
        assert!(rocm.measured(&CudnnBenchmarkOff).is_empty());
    }

    #[test]
    fn few_convolutions_are_not_reported() {
        let product = operator("mm", &[&[4096, 4096], &[4096, 4096], &[4096, 4096]]);
        let example = example(TEXT, Some(1)).call(3, Phase::Forward, &product, 20_000.0);
        assert!(example.measured(&CudnnBenchmarkOff).is_empty());
    }
}
