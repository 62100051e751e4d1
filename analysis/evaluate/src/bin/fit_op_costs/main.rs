//! Fits the coefficients of the operator costs to measurements, and prints the errors on held-out
//! measurements.
//!
//!     cargo run --release -p ridgeline-evaluate --bin fit_op_costs -- \
//!         GROUND_TRUTH LISTS [OUT] [--former COEFFICIENTS]
//!
//! `GROUND_TRUTH` is a folder as described in `docs/op-cost.md`, `LISTS` a folder of operator lists
//! of its models, `OUT` the `coefficients.json` to write. The fitted model is the shipped one:
//! every time comes from `op_cost::Plan`.
//!
//! With `--former`, the coefficients of an earlier fit are the priors, except those that only
//! data-center GPUs determine. It is for runs without the operator lists of image models. The
//! held-out errors of language models and of single operators are those of a fit without these
//! priors.
#![allow(
    clippy::indexing_slicing,
    reason = "a development tool, where a panic is a good enough error message"
)]

mod cases;
mod fitting;
mod parameters;
mod report;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let mut arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let at = arguments.iter().position(|argument| argument.as_os_str() == "--former");
    let former = at.map(|at| arguments.drain(at..).nth(1).context("which file?")).transpose()?;
    let (truth, lists, out) = match arguments.as_slice() {
        [truth, lists] => (truth, lists, None),
        [truth, lists, out] => (truth, lists, Some(out)),
        _ => bail!("say where the measurements are, where the operator lists, and where to write"),
    };
    let cases = cases::read(truth, lists)?;
    println!("{}", report::counts(&cases));
    let parameters = parameters::Parameters::after(former.as_deref())?;
    let fit = fitting::Fit::new(&cases, &parameters);
    let all = fit.run(|_| true, &parameters.start(), ITERATIONS);
    println!(
        "\nfitted on everything:\n{}",
        parameters.show(
            &all,
            &[
                fit.shares(&all, |case| case.set.starts_with("train")),
                fit.shares(&all, |case| case.set.starts_with("infer")),
                fit.shares(&all, |case| case.set == "transformer"),
                fit.shares(&all, |case| case.set.starts_with("benchmark")),
            ]
        )
    );
    println!("{}", report::table("on what was fitted", &cases, &fit.errors(&all)));
    let mut unseen = fit.cross_validate();
    if former.is_some() {
        // The former fit has seen operators and language models on every device.
        let plain = parameters::Parameters::after(None)?;
        let unseen_by_all = fitting::Fit::new(&cases, &plain).cross_validate();
        for ((case, error), plain) in cases.iter().zip(&mut unseen).zip(unseen_by_all) {
            if !case.set.starts_with("benchmark") {
                *error = plain;
            }
        }
    }
    println!("{}", report::table("on what was not", &cases, &unseen));
    println!("{}", report::worst(&cases, &unseen));
    if let Some(out) = out {
        write(out, &parameters.file(&all, &report::provenance(&cases, &unseen), &unseen, &cases))?;
    }
    Ok(())
}

const ITERATIONS: usize = 12;

fn write(out: &Path, text: &str) -> Result<()> {
    std::fs::write(out, text).with_context(|| format!("{} cannot be written", out.display()))
}
