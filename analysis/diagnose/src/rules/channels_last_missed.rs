//! `channels-last-missed`: convolutions of images in NCHW layout, which tensor cores do not
//! support: kernels convert the layout before and after them (PyTorch, "Channels Last Memory
//! Format").

use std::collections::BTreeMap;

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::line_sums::{Line, highest_first};
use crate::rule::Rule;
use ridgeline_graph::graph::Graph;
use ridgeline_optimize::facts::Variant;
use ridgeline_optimize::rewrite::EditKind;

/// The minimum share of the iteration time in conversion kernels.
const MIN_SHARE: f64 = 0.02;
/// Parts of their names in cuDNN and PyTorch, in lower case.
const CONVERSIONS: [&str; 4] = ["nchwtonhwc", "nhwctonchw", "nchw_to_nhwc", "nhwc_to_nchw"];

pub(super) struct ChannelsLastMissed;

impl Rule for ChannelsLastMissed {
    fn name(&self) -> &'static str {
        "channels-last-missed"
    }

    fn title(&self) -> &'static str {
        "NCHW/NHWC conversion on every convolution"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        find(evidence).into_iter().collect()
    }
}

fn find(evidence: &Evidence<'_>) -> Option<Finding> {
    let mut texts = evidence.program.modules().iter().map(|module| module.index.text());
    // A program that mentions the format already uses it, and the remaining conversions have a
    // reason.
    if !evidence.on_gpu() || texts.any(|text| text.contains("channels_last")) {
        return None;
    }
    let conversion_ns = conversion_ns(evidence.graph());
    let total_ns: f64 = conversion_ns.values().sum();
    if evidence.share(total_ns) < MIN_SHARE {
        return None;
    }
    let lines = highest_first(conversion_ns);
    let ((file, line), _) = *lines.first()?;
    let cost = cost(evidence, total_ns);
    if evidence.share(cost.time_ns) < MIN_SHARE {
        return None;
    }
    let others = lines.iter().skip(1).take(4);
    Some(Finding {
        rule: "channels-last-missed",
        at: evidence.place(file, line),
        related: others
            .map(|((file, line), _)| (evidence.place(*file, *line), "also converted here".into()))
            .collect(),
        message: "Tensors are converted between NCHW and NHWC around convolutions".to_owned(),
        why: "Tensor core convolutions need NHWC data. With the model and its input in \
            `memory_format=torch.channels_last`, these conversion kernels disappear."
            .to_owned(),
        cost: Some(cost),
        fix: Some(EditKind::ChannelsLast),
        ..Finding::default()
    })
}

/// The savings of the same operators as probed in channels-last layout. Without probes, the time of
/// the conversion kernels: how much faster the convolutions would be is unknown.
fn cost(evidence: &Evidence<'_>, reordering_ns: f64) -> Cost {
    let is_probed = evidence.probes.operators.keys().any(|(_, way)| *way == Variant::ChannelsLast);
    let then = if is_probed { evidence.what_if("channels-last") } else { None };
    then.map_or(Cost::time(reordering_ns), |then| Cost::time(then.time_ns.max(0.0)).predicted())
}

/// The time of layout conversion kernels by line, in nanoseconds.
pub(super) fn conversion_ns(graph: &Graph) -> BTreeMap<Line, f64> {
    let conversions: Vec<bool> = graph.names.iter().map(|name| is_conversion(name)).collect();
    let mut found = BTreeMap::new();
    for task in graph.tasks.iter().filter(|task| !task.is_removed && !task.kind.is_host()) {
        let converts = task.name.is_some_and(|name| conversions.get(name as usize) == Some(&true));
        if let Some(line) = task.line.filter(|_| converts) {
            *found.entry(line).or_insert(0.0) += task.duration_ns;
        }
    }
    found
}

/// Whether a kernel with this name converts the layout of an image.
fn is_conversion(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CONVERSIONS.iter().any(|mark| name.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, operator};
    use ridgeline_profile::Phase;

    const TEXT: &str = "import torch\n\ny = conv1(x)\nz = conv2(y)\n";
    const SHAPE: &[u64] = &[32, 64, 56, 56];
    const NAME: &str = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(…)";

    fn convolution(line: u32, reorder_us: f64) -> Case {
        let conv = operator("conv2d", &[SHAPE, &[64, 64, 3, 3], SHAPE]);
        Case::new(TEXT)
            .on_gpu()
            .call(line, Phase::Forward, &conv, 900.0)
            .kernel(NAME, reorder_us)
            .call(4, Phase::Forward, &conv, 900.0)
            .kernel("sm80_xmma_fprop_implicit_gemm_nhwc", 100.0)
    }

    #[test]
    fn cost_is_the_conversion_kernels() {
        let found = convolution(3, 150.0).measured(&ChannelsLastMissed);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 3);
        assert_eq!(found[0].cost, Some(Cost::time(150e3)));
        assert_eq!(found[0].fix, Some(EditKind::ChannelsLast));
    }

    #[test]
    fn cost_comes_from_probes_of_the_other_layout() {
        let mut example = convolution(3, 150.0);
        let times = |then| [((0, Variant::Same), 100.0), ((0, Variant::ChannelsLast), then)];
        example.probes.operators = times(60.0).into();
        let cost = example.measured(&ChannelsLastMissed)[0].cost.unwrap();
        assert!(cost.is_predicted && cost.time_ns > 300e3, "{cost:?}");
        // The conversions disappear, but the convolutions become slower.
        example.probes.operators = times(105.0).into();
        assert!(example.measured(&ChannelsLastMissed).is_empty());
    }

    #[test]
    fn few_conversions_are_not_reported() {
        assert!(convolution(3, 5.0).measured(&ChannelsLastMissed).is_empty());
        let conv = operator("conv2d", &[SHAPE, &[64, 64, 3, 3], SHAPE]);
        let none = Case::new(TEXT).on_gpu().call(3, Phase::Forward, &conv, 900.0);
        assert!(none.measured(&ChannelsLastMissed).is_empty());
    }

    #[test]
    fn program_that_uses_channels_last_is_skipped() {
        let mut known = convolution(3, 150.0);
        known.file(
            "train.py",
            "import torch\n\ny = conv1(x.to(memory_format=torch.channels_last))\n",
        );
        assert!(known.measured(&ChannelsLastMissed).is_empty());
    }

    #[test]
    fn conversion_kernel_names() {
        assert!(is_conversion(NAME) && is_conversion("void cudnn::ops::nhwcToNchwKernel<float>()"));
        assert!(
            !is_conversion("cudnn_infer_ampere_scudnn_128x64_relu_nchw")
                && !is_conversion("nhwc_pool")
        );
    }
}
