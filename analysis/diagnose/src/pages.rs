//! The pages of `docs/findings`. They are embedded in the binary because a code host that shows a
//! finding cannot open them otherwise.

/// Returns the page of a rule.
pub fn page(rule: &str) -> Option<&'static str> {
    PAGES.iter().find(|(name, _)| *name == rule).map(|(_, page)| *page)
}

macro_rules! pages {
    ($($rule:literal),* $(,)?) => {
        &[$((
            $rule,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/findings/", $rule, ".md")),
        )),*]
    };
}

const PAGES: &[(&str, &str)] = pages![
    "anomaly-detection",
    "attention-written-out",
    "bias-before-batch-norm",
    "blocking-copy",
    "channels-last-missed",
    "cudnn-benchmark-changing",
    "cudnn-benchmark-off",
    "exposed-communication",
    "float64",
    "fp32-without-tf32",
    "gpu-slowed",
    "gradients-in-validation",
    "graph-break",
    "graph-kept",
    "hidden-sync",
    "imbalance",
    "in-place-candidates",
    "iteration-varies",
    "layout-copies",
    "loader-no-workers",
    "loader-not-pinned",
    "loader-transform",
    "loader-workers-restarted",
    "padding-waste",
    "profiler-left-on",
    "python-loop",
    "recompilation",
    "recompute-candidates",
    "repeated-casts",
    "straggler",
    "sync-each-accumulation-step",
    "tensor-core-sizes",
    "tiny-kernels",
    "train-mode-in-validation",
    "unfused-optimizer",
];
