//! Fits the factors by which what-ifs change the parts of operators
//! (`analysis/src/whatif/optimizations/shared/*.json`), and prints the errors on families of models
//! that the fit did not see:
//!
//! ```text
//! ridgeline evaluate GROUND_TRUTH --lists LISTS
//! cargo run --release -p ridgeline-analysis --example fit_what_ifs -- compiled GROUND_TRUTH LISTS [OUT]
//! ```
//!
//! The first argument is `compiled` or `channels_last`; `OUT` is the file to write.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};

use ridgeline_analysis::evaluate::error_statistics::{error_statistics, relative_error};
use ridgeline_analysis::evaluate::timm_file_name::TimmFileName;
use ridgeline_analysis::evaluate::timm_results::{TimmResults, read};
use ridgeline_analysis::predict::device_table::DeviceTable;
use ridgeline_analysis::predict::op_cost::Options;
use ridgeline_analysis::predict::op_list::OpList;
use ridgeline_analysis::whatif::optimizations::shared::factors::Factors;
use ridgeline_analysis::whatif::optimizations::shared::parts::{Machine, Part};
use ridgeline_analysis::whatif::optimizations::shared::{channels_last, compiled, factors};

const FOLDS: u32 = 5;
/// How much a factor's distance from 1 (in the logarithm, squared) weighs beside the mean error.
const PRIOR: f64 = 0.0005;
/// What a factor may be: no change makes one sort of work a hundred times shorter or ten times longer.
const LIMITS: (f64, f64) = (0.01, 10.0);

/// What is fitted, and on which files.
struct WhatIf {
    name: &'static str,
    device: &'static str,
    mode: &'static str,
    files: &'static [(&'static str, &'static str)],
    shipped: fn() -> &'static Factors,
    parts: fn(&OpList, &Machine<'_>) -> Vec<Part>,
}

const WHAT_IFS: [WhatIf; 2] = [
    WhatIf {
        name: "compiled",
        device: "RTX4090",
        mode: "infer",
        files: &[
            (
                "infer-amp-nchw-pt240-cu124-rtx4090.csv",
                "infer-amp-nchw-pt240-cu124-rtx4090-dynamo.csv",
            ),
            ("infer-amp-nchw-pt291-cu128-4090.csv", "infer-amp-nchw-pt291-cu128-4090-dynamo.csv"),
        ],
        shipped: factors::compiled,
        parts: compiled::step,
    },
    WhatIf {
        name: "channels_last",
        device: "RTX3090",
        mode: "train",
        files: &[(
            "train-amp-nchw-pt112-cu113-rtx3090.csv",
            "train-amp-nhwc-pt112-cu113-rtx3090.csv",
        )],
        shipped: factors::channels_last,
        parts: channels_last::step,
    },
];

struct Case {
    name: String,
    family: String,
    before_ns: f64,
    after_ns: f64,
    parts: Vec<Part>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, truth, lists, rest @ ..] = arguments.as_slice() else {
        return Err("usage: fit_what_ifs compiled|channels_last GROUND_TRUTH LISTS [OUT]".into());
    };
    let what = WHAT_IFS.iter().find(|what| what.name == name).ok_or("no such what-if")?;
    let cases = cases(what, &PathBuf::from(truth), &PathBuf::from(lists))?;
    let all: Vec<&Case> = cases.iter().collect();
    report("as shipped", &errors(&all, (what.shipped)()));
    report("nothing fitted", &errors(&all, &unfitted(&all)));
    let constant = best_constant(&all);
    report("best constant on the answers", &constant);
    let fitted = fit(&all, &unfitted(&all));
    report("fitted, the same models", &errors(&all, &fitted));
    let mut held_out = Vec::new();
    let mut by_case = Vec::new();
    for fold in 0..FOLDS {
        let is_out = |case: &&&Case| fold_of(&case.family) == fold;
        let (out, rest): (Vec<&Case>, Vec<&Case>) = all.iter().partition(|case| is_out(case));
        let found = fit(&rest, &unfitted(&all));
        held_out.extend(errors(&out, &found));
        by_case.extend(out.iter().map(|case| (*case, predicted(case, &found))));
    }
    report("fitted, families held out", &held_out);
    shares(&all, &fitted);
    worst(by_case);
    if let [out] = rest {
        std::fs::write(out, json(what, &fitted, &held_out, cases.len())?)?;
    }
    Ok(())
}

fn cases(what: &WhatIf, truth: &Path, lists: &Path) -> Result<Vec<Case>, Box<dyn Error>> {
    let device = DeviceTable::shipped().find(what.device).ok_or("no such device")?;
    let machine = Machine { device, options: Options::default() };
    let mut cases = Vec::new();
    let mut missing = 0;
    for (before, after) in what.files {
        let from = results(truth, before)?;
        let to: BTreeMap<(String, u32), (u32, f64)> = results(truth, after)?
            .rows
            .into_iter()
            .map(|row| ((row.model, row.size), (row.batch, row.step_milliseconds)))
            .collect();
        for row in from.rows {
            let Some((batch, after_ms)) = to.get(&(row.model.clone(), row.size)) else { continue };
            let name = format!("{}/{}-{}-b{}.json", what.mode, row.model, row.size, row.batch);
            let list = std::fs::read(lists.join(&name)).ok();
            let Some(list) = list.and_then(|bytes| OpList::parse(&bytes).ok()) else {
                missing += 1;
                continue;
            };
            let images = f64::from(*batch) / f64::from(row.batch);
            cases.push(Case {
                name: format!("{} {} ({before})", row.model, row.size),
                family: family(&row.model),
                before_ns: row.step_milliseconds * 1e6,
                after_ns: after_ms * 1e6 / images,
                parts: merged((what.parts)(&list, &machine)),
            });
        }
    }
    println!("{} cases; {missing} without a list", cases.len());
    Ok(cases)
}

/// One part of each kind.
fn merged(parts: Vec<Part>) -> Vec<Part> {
    let mut by_kind: BTreeMap<&'static str, Part> = BTreeMap::new();
    for part in parts {
        let sum = by_kind.entry(part.kind).or_insert(Part::same(part.kind, 0.0));
        sum.before_ns += part.before_ns;
        sum.after_ns += part.after_ns;
    }
    by_kind.into_values().collect()
}

fn results(truth: &Path, name: &str) -> Result<TimmResults, Box<dyn Error>> {
    let parsed = TimmFileName::parse(name).ok_or("the name of a result file")?;
    let bytes = std::fs::read(truth.join("timm").join(name))?;
    Ok(read(name, parsed, &bytes)?.0)
}

/// The letters before the first digit or underscore: `resnet` of `resnet50d`.
fn family(model: &str) -> String {
    model.chars().take_while(char::is_ascii_alphabetic).collect()
}

fn fold_of(family: &str) -> u32 {
    family.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(31) + u32::from(byte)) % FOLDS
}

fn predicted(case: &Case, factors: &Factors) -> f64 {
    factors.step_ns(case.before_ns, &case.parts).unwrap_or(case.before_ns)
}

fn errors(cases: &[&Case], factors: &Factors) -> Vec<f64> {
    cases.iter().map(|case| relative_error(predicted(case, factors), case.after_ns)).collect()
}

fn unfitted(cases: &[&Case]) -> Factors {
    let kinds: BTreeSet<&str> =
        cases.iter().flat_map(|case| case.parts.iter().map(|part| part.kind)).collect();
    Factors {
        source: String::new(),
        factors: kinds.into_iter().map(|kind| (kind.to_owned(), 1.0)).collect(),
        rest: 1.0,
        range: 1.3,
    }
}

fn best_constant(cases: &[&Case]) -> Vec<f64> {
    let of = |factor: f64| -> Vec<f64> {
        cases.iter().map(|case| relative_error(case.before_ns * factor, case.after_ns)).collect()
    };
    let mean = |errors: &[f64]| errors.iter().sum::<f64>();
    let tried = (20..200).map(|percent| of(f64::from(percent) / 100.0));
    tried.min_by(|one, two| mean(one).total_cmp(&mean(two))).unwrap_or_default()
}

/// One factor after another is moved while that helps, in ever smaller steps.
fn fit(cases: &[&Case], start: &Factors) -> Factors {
    let loss = |factors: &Factors| {
        let errors = errors(cases, factors);
        // A little of the square keeps single large errors from being given up.
        let mean = errors.iter().map(|error| error + error * error).sum::<f64>()
            / errors.len().max(1) as f64;
        let moved: f64 = factors.factors.values().map(|factor| factor.ln().powi(2)).sum();
        mean + PRIOR * (moved + factors.rest.ln().powi(2))
    };
    let mut found = start.clone();
    let mut best = loss(&found);
    let kinds: Vec<Option<String>> =
        found.factors.keys().cloned().map(Some).chain([None]).collect();
    for step in [2.0, 1.3, 1.1, 1.03] {
        for _ in 0..6 {
            let before = best;
            for kind in &kinds {
                for factor in [step, 1.0 / step] {
                    let mut tried = found.clone();
                    let place = match kind {
                        Some(kind) => tried.factors.get_mut(kind),
                        None => Some(&mut tried.rest),
                    };
                    let Some(place) = place else { continue };
                    *place = (*place * factor).clamp(LIMITS.0, LIMITS.1);
                    let found_loss = loss(&tried);
                    if found_loss < best {
                        (best, found) = (found_loss, tried);
                    }
                }
            }
            if before - best < 1e-5 {
                break;
            }
        }
    }
    found
}

fn report(name: &str, errors: &[f64]) {
    if let Some(found) = error_statistics(errors) {
        println!(
            "{name:<30} {:>4} cases: mean {:.1}%, median {:.1}%, 90% {:.1}%",
            found.cases,
            found.mean * 100.0,
            found.median * 100.0,
            found.p90 * 100.0
        );
    }
}

/// Each factor with how much of the time it is about.
fn shares(cases: &[&Case], factors: &Factors) {
    for (kind, factor) in &factors.factors {
        let of = |case: &Case| {
            let all: f64 = case.parts.iter().map(|part| part.before_ns).sum();
            let own = case.parts.iter().filter(|part| part.kind == kind);
            own.map(|part| part.before_ns).sum::<f64>() / all.max(1.0)
        };
        let mean = cases.iter().map(|case| of(case)).sum::<f64>() / cases.len().max(1) as f64;
        println!("{kind:<28} {factor:>6.3}  {:>5.1}% of the time before", mean * 100.0);
    }
    println!("{:<28} {:>6.3}", "rest", factors.rest);
}

fn worst(mut cases: Vec<(&Case, f64)>) {
    let off = |(case, value): &(&Case, f64)| (value / case.after_ns).ln();
    cases.sort_by(|one, two| off(two).abs().total_cmp(&off(one).abs()));
    for one in cases.iter().take(25) {
        let (case, value) = one;
        let modelled: f64 = case.parts.iter().map(|part| part.before_ns).sum();
        println!(
            "{:<60} {:+.0}%: measured {:.2}, predicted {:.2} of before; modelled before {:.2}",
            case.name,
            100.0 * (off(one).exp() - 1.0),
            case.after_ns / case.before_ns,
            value / case.before_ns,
            modelled / case.before_ns
        );
    }
}

fn json(
    what: &WhatIf,
    factors: &Factors,
    held_out: &[f64],
    cases: usize,
) -> Result<String, Box<dyn Error>> {
    let found = error_statistics(held_out).ok_or("no cases")?;
    let files: Vec<&str> = what.files.iter().flat_map(|(one, two)| [*one, *two]).collect();
    let source = format!(
        "Fitted by analysis/examples/fit_what_ifs to {cases} pairs of steps of timm models on an {} \
         ({}; huggingface/pytorch-image-models results/, Apache-2.0). Families of models held out, in \
         {FOLDS} parts: mean error {:.1}%, median {:.1}%, 90% {:.1}%.",
        what.device,
        files.join(", "),
        found.mean * 100.0,
        found.median * 100.0,
        found.p90 * 100.0
    );
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    let rounded: BTreeMap<&String, f64> =
        factors.factors.iter().map(|(kind, factor)| (kind, round(*factor))).collect();
    let document = serde_json::json!({
        "source": source,
        "factors": rounded,
        "rest": round(factors.rest),
        "range": round(1.0 + found.p90),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}
