//! Fits the factors by which what-ifs change the parts of operators
//! (`analysis/optimize/src/optimizations/shared/*.json`), and prints the errors on held-out model
//! families or GPUs:
//!
//! ```text
//! ridgeline evaluate GROUND_TRUTH --lists LISTS
//! cargo run --release -p ridgeline-evaluate --bin fit_what_ifs -- NAME GROUND_TRUTH LISTS [OUT]
//! ```
//!
//! `NAME` is `compiled`, `channels_last` or `mixed_precision`, `OUT` the file to write.

mod cases;
mod fitting;
mod report;

use std::path::Path;

use anyhow::{Context, Result, bail};
use ridgeline_evaluate::error_statistics::relative_error;
use ridgeline_optimize::optimizations::shared::factors::{self, Factors};
use ridgeline_optimize::optimizations::shared::{channels_last, compiled};

use cases::{Case, Timm};
use fitting::{errors, fit};

/// The number of parts in cross-validation.
const PARTS: usize = 8;

const COMPILED: Timm = Timm {
    device: "RTX4090",
    mode: "infer",
    files: &[
        ("infer-amp-nchw-pt240-cu124-rtx4090.csv", "infer-amp-nchw-pt240-cu124-rtx4090-dynamo.csv"),
        ("infer-amp-nchw-pt291-cu128-4090.csv", "infer-amp-nchw-pt291-cu128-4090-dynamo.csv"),
    ],
    parts: compiled::step,
};

const CHANNELS_LAST: Timm = Timm {
    device: "RTX3090",
    mode: "train",
    files: &[("train-amp-nchw-pt112-cu113-rtx3090.csv", "train-amp-nhwc-pt112-cu113-rtx3090.csv")],
    parts: channels_last::step,
};

/// The description of the data, the cases, and the shipped factors.
type WhatIf = (&'static str, Vec<Case>, &'static Factors);

fn what_if(name: &str, truth: &Path, lists: &Path) -> Result<WhatIf> {
    const TIMM: &str = "timm models (huggingface/pytorch-image-models results/, Apache-2.0)";
    const LAMBDA: &str = "training throughputs on one GPU (lambdal/deeplearning-benchmark, MIT), in FP32 and in FP16";
    Ok(match name {
        "compiled" => (TIMM, COMPILED.cases(truth, lists)?, factors::compiled()),
        "channels_last" => (TIMM, CHANNELS_LAST.cases(truth, lists)?, factors::channels_last()),
        "mixed_precision" => (LAMBDA, cases::lambda(truth, lists)?, factors::mixed_precision()),
        _ => bail!("there is no what-if {name}"),
    })
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, truth, lists, rest @ ..] = arguments.as_slice() else {
        bail!("say which what-if, where the measurements are, and where the operator lists");
    };
    let (on, cases, shipped) = what_if(name, Path::new(truth), Path::new(lists))?;
    let all: Vec<&Case> = cases.iter().collect();
    let start = fitting::first_guesses(&cases);
    report::errors("as shipped", &errors(&all, shipped));
    report::errors("first guesses", &errors(&all, &start));
    report::errors("best constant on the answers", &best_constant(&all));
    let fitted = fit(&all, &start);
    report::errors("fitted, the same cases", &errors(&all, &fitted));
    let unseen = cross_validate(&cases, &start);
    let held_out: Vec<f64> =
        unseen.iter().map(|(case, value)| relative_error(*value, case.after_ns)).collect();
    report::errors("fitted, groups held out", &held_out);
    report::factors(&all, &fitted);
    report::groups(&unseen);
    report::worst(unseen);
    if let [out] = rest {
        let text = report::json(on, PARTS, &fitted, &held_out)?;
        std::fs::write(out, text).with_context(|| format!("{out} cannot be written"))?;
    }
    Ok(())
}

/// Returns predictions by fits that have not seen the case's group.
fn cross_validate<'a>(cases: &'a [Case], start: &Factors) -> Vec<(&'a Case, f64)> {
    let groups = cases::groups(cases);
    let part_of =
        |case: &Case| groups.iter().position(|group| *group == case.group).map(|at| at % PARTS);
    let mut unseen = Vec::new();
    for part in 0..PARTS {
        let (out, rest): (Vec<&Case>, Vec<&Case>) =
            cases.iter().partition(|case| part_of(case) == Some(part));
        if !out.is_empty() && !rest.is_empty() {
            let fitted = fit(&rest, start);
            unseen.extend(out.into_iter().map(|case| (case, case.predicted(&fitted))));
        }
    }
    unseen
}

fn best_constant(cases: &[&Case]) -> Vec<f64> {
    let errors_of = |factor: f64| -> Vec<f64> {
        cases.iter().map(|case| relative_error(case.before_ns * factor, case.after_ns)).collect()
    };
    let mean = |errors: &[f64]| errors.iter().sum::<f64>();
    let tried = (20..200).map(|percent| errors_of(f64::from(percent) / 100.0));
    tried.min_by(|one, two| mean(one).total_cmp(&mean(two))).unwrap_or_default()
}
