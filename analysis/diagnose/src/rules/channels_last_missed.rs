//! `channels-last-missed`: convolutions of pictures whose channels are apart in memory, which tensor cores
//! do not want: kernels reorder them before and after (PyTorch, "Channels Last Memory Format").

use std::collections::BTreeMap;

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use crate::tally::{Line, highest_first};
use ridgeline_graph::graph::Graph;
use ridgeline_optimize::facts::Variant;
use ridgeline_optimize::rewrite::EditKind;

/// The share of the iteration from which on kernels that reorder matter.
const LEAST: f64 = 0.02;
/// How cuDNN and PyTorch name them, in small letters.
const REORDERING: [&str; 4] = ["nchwtonhwc", "nhwctonchw", "nchw_to_nhwc", "nhwc_to_nchw"];

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
    // Who has written of it knows of it, and what is left is reordered for a reason.
    if !evidence.on_gpu() || texts.any(|text| text.contains("channels_last")) {
        return None;
    }
    let reordering = reordering(evidence.graph());
    let total_ns: f64 = reordering.values().sum();
    if evidence.share(total_ns) < LEAST {
        return None;
    }
    let lines = highest_first(reordering);
    let ((file, line), _) = *lines.first()?;
    let cost = cost(evidence, total_ns);
    if evidence.share(cost.time_ns) < LEAST {
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

/// What the same operators save that ran by themselves in the other order. Else the kernels that reorder:
/// what convolutions gain besides nobody knows then.
fn cost(evidence: &Evidence<'_>, reordering_ns: f64) -> Cost {
    let is_probed = evidence.probes.operators.keys().any(|(_, way)| *way == Variant::ChannelsLast);
    let then = if is_probed { evidence.what_if("channels-last") } else { None };
    then.map_or(Cost::time(reordering_ns), |then| Cost::time(then.time_ns.max(0.0)).predicted())
}

/// Nanoseconds of kernels that reorder pictures, by line.
pub(super) fn reordering(graph: &Graph) -> BTreeMap<Line, f64> {
    let reorders: Vec<bool> = graph.names.iter().map(|name| reorders(name)).collect();
    let mut found = BTreeMap::new();
    for task in graph.tasks.iter().filter(|task| !task.is_removed && !task.kind.is_host()) {
        let is_one = task.name.is_some_and(|name| reorders.get(name as usize) == Some(&true));
        if let Some(line) = task.line.filter(|_| is_one) {
            *found.entry(line).or_insert(0.0) += task.duration_ns;
        }
    }
    found
}

/// Whether a kernel of that name reorders a picture.
fn reorders(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    REORDERING.iter().any(|mark| name.contains(mark))
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
    fn kernels_that_reorder_are_the_cost() {
        let found = convolution(3, 150.0).measured(&ChannelsLastMissed);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 3);
        assert_eq!(found[0].cost, Some(Cost::time(150e3)));
        assert_eq!(found[0].fix, Some(EditKind::ChannelsLast));
    }

    #[test]
    fn what_the_gpu_made_of_the_other_order_is_the_cost() {
        let mut example = convolution(3, 150.0);
        let times = |then| [((0, Variant::Same), 100.0), ((0, Variant::ChannelsLast), then)];
        example.probes.operators = times(60.0).into();
        let cost = example.measured(&ChannelsLastMissed)[0].cost.unwrap();
        assert!(cost.is_predicted && cost.time_ns > 300e3, "{cost:?}");
        // Kernels that reorder, and convolutions that are the slower without them.
        example.probes.operators = times(105.0).into();
        assert!(example.measured(&ChannelsLastMissed).is_empty());
    }

    #[test]
    fn few_of_them_are_no_fault() {
        assert!(convolution(3, 5.0).measured(&ChannelsLastMissed).is_empty());
        let conv = operator("conv2d", &[SHAPE, &[64, 64, 3, 3], SHAPE]);
        let none = Case::new(TEXT).on_gpu().call(3, Phase::Forward, &conv, 900.0);
        assert!(none.measured(&ChannelsLastMissed).is_empty());
    }

    #[test]
    fn a_program_that_knows_of_it_is_left_alone() {
        let mut known = convolution(3, 150.0);
        known.file(
            "train.py",
            "import torch\n\ny = conv1(x.to(memory_format=torch.channels_last))\n",
        );
        assert!(known.measured(&ChannelsLastMissed).is_empty());
    }

    #[test]
    fn names_of_other_kernels() {
        assert!(reorders(NAME) && reorders("void cudnn::ops::nhwcToNchwKernel<float>()"));
        assert!(!reorders("cudnn_infer_ampere_scudnn_128x64_relu_nchw") && !reorders("nhwc_pool"));
    }
}
