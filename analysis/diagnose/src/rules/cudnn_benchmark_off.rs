//! `cudnn-benchmark-off`: convolutions of one size, and cuDNN takes its algorithms by a rule of thumb
//! rather than by trying them (PyTorch, "Performance Tuning Guide").

use crate::evidence::{Evidence, Key, Work};
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use crate::tally::{Line, by_line, highest_first};
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_optimize::facts::Variant;
use ridgeline_optimize::rewrite::EditKind;

/// Convolutions that take a smaller share of the iteration do not matter here.
const LEAST: f64 = 0.2;
/// Where trying was tried and saves a smaller share, the rule of thumb was right.
const LEAST_SAVED: f64 = 0.01;

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

/// What `of` gives for convolutions, by line, the highest first.
pub(super) fn sum(
    evidence: &Evidence<'_>,
    of: impl Fn(&Key, &Work) -> Option<f64>,
) -> Vec<(Line, f64)> {
    highest_first(by_line(evidence, |key, done, operator| {
        let is_one = work(operator)?.family == Family::Convolution && done.kernel_ns > 0.0;
        is_one.then(|| of(key, done)).flatten()
    }))
}

/// By line what the best of cuDNN's algorithms save, of convolutions that ran by themselves in both
/// ways; nothing where none did.
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
    // Who wrote one of these has thought about it: `cudnn.deterministic = True`.
    let mut texts = evidence.program.modules().iter().map(|module| module.index.text());
    let is_chosen = texts.any(|text| text.contains("cudnn."));
    if evidence.profile().device.kind != "cuda" || !is_off || !is_fixed || is_chosen {
        return None;
    }
    let lines = convolutions(evidence);
    let total_ns: f64 = lines.iter().map(|(_, time_ns)| time_ns).sum();
    let saved = saved(evidence);
    let saved_ns: f64 = saved.iter().map(|(_, time_ns)| time_ns).sum();
    let is_tried = !saved.is_empty();
    if evidence.share(total_ns) < LEAST || (is_tried && evidence.share(saved_ns) < LEAST_SAVED) {
        return None;
    }
    let ((file, line), _) = *saved.first().or(lines.first())?;
    let told = match is_tried {
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
            cuDNN benchmarks its algorithms once and keeps the fastest. {told}"
        ),
        cost: is_tried.then(|| Cost::time(saved_ns).predicted()),
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
            .told(|it| {
                it.settings.cudnn_benchmark = Some(false);
                it.loaders = vec![Loader { distinct_shapes: shapes, ..Loader::default() }];
            })
            .call(3, Phase::Forward, &conv(shape), 900.0)
    }

    fn conv(shape: &[u64]) -> ridgeline_operators::operator::Operator {
        operator("conv2d", &[shape, &[64, 64, 3, 3], shape])
    }

    #[test]
    fn fixed_sizes_and_nothing_tried() {
        let found = example(TEXT, Some(1)).measured(&CudnnBenchmarkOff);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].at.line, found[0].cost), (3, None));
    }

    #[test]
    fn what_trying_saves_is_the_cost_where_it_was_tried() {
        let mut example = example(TEXT, Some(1));
        let times = |then| [((0, Variant::Same), 100.0), ((0, Variant::CudnnBenchmark), then)];
        example.probes.operators = times(80.0).into();
        let found = example.measured(&CudnnBenchmarkOff);
        let cost = found[0].cost.unwrap();
        assert!(cost.is_predicted && (cost.time_ns - 180e3).abs() < 1.0, "{cost:?}");
        // The rule of thumb takes the best.
        example.probes.operators = times(99.5).into();
        assert!(example.measured(&CudnnBenchmarkOff).is_empty());
    }

    #[test]
    fn not_where_sizes_change_or_nobody_knows() {
        assert!(example(TEXT, Some(2)).measured(&CudnnBenchmarkOff).is_empty());
        assert!(example(TEXT, None).measured(&CudnnBenchmarkOff).is_empty());
        let provider = example(TEXT, Some(1)).told(|it| it.loaders.clear());
        assert!(provider.measured(&CudnnBenchmarkOff).is_empty());
    }

    #[test]
    fn not_where_it_is_on_or_chosen_or_another_vendors() {
        let on = example(TEXT, Some(1)).told(|it| it.settings.cudnn_benchmark = Some(true));
        assert!(on.measured(&CudnnBenchmarkOff).is_empty());
        let chosen = "import torch\ntorch.backends.cudnn.deterministic = True\ny = model(x)\n";
        assert!(example(chosen, Some(1)).measured(&CudnnBenchmarkOff).is_empty());
        let mut rocm = example(TEXT, Some(1));
        rocm.profile.device.kind = "rocm".to_owned();
        assert!(rocm.measured(&CudnnBenchmarkOff).is_empty());
    }

    #[test]
    fn not_where_convolutions_are_a_small_part() {
        let product = operator("mm", &[&[4096, 4096], &[4096, 4096], &[4096, 4096]]);
        let example = example(TEXT, Some(1)).call(3, Phase::Forward, &product, 20_000.0);
        assert!(example.measured(&CudnnBenchmarkOff).is_empty());
    }
}
