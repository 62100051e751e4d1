//! Fits the efficiencies that scale a measured step to another GPU
//! (`analysis/predict/src/step_scaling`), and prints the errors on held-out families of models:
//!
//! ```text
//! ridgeline evaluate GROUND_TRUTH --lists LISTS
//! cargo run --release -p ridgeline-evaluate --bin fit_step_scaling -- GROUND_TRUTH LISTS
//! ```
//!
//! It prints the fitted values; `efficiencies.json` stores them with their provenance.
#![allow(
    clippy::indexing_slicing,
    reason = "a development tool, where a panic is a good enough error message"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use ridgeline_devices::device_table::DeviceTable;
use ridgeline_evaluate::error_statistics::{error_statistics, relative_error};
use ridgeline_evaluate::timm_file_name::TimmFileName;
use ridgeline_evaluate::timm_results::{TimmResults, read};
use ridgeline_operators::op_list::OpList;
use ridgeline_predict::step_scaling::{Efficiencies, StepKernels, scale_kernels};
use ridgeline_profile::Phase;

const FROM: (&str, &str) = ("RTX3090", "infer-amp-nchw-pt240-cu124-rtx3090.csv");
const TO: (&str, &str) = ("RTX4090", "infer-amp-nchw-pt240-cu124-rtx4090.csv");
const FOLDS: u32 = 4;
/// The start of a fit, in the order of `Efficiencies::NAMES`: guesses made before any measurement.
/// The shipped values must not be the start, because they have seen the held-out families.
const FIRST_GUESSES: [f64; 22] = [
    0.85, 0.5, 0.25, 0.6, 0.8, 0.3, 0.06, 0.5, 0.4, // products
    0.85, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85, // streams
    0.5, 12.0, 0.5, // cache and the rest
];
/// The weight of a value's distance from its first guess (logarithm, squared) relative to the mean
/// error. Values that the data does not determine keep their guess.
const PRIOR_WEIGHT: f64 = 0.002;

struct Pair {
    family: String,
    kernels: StepKernels,
    from_ms: f64,
    to_ms: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(truth), Some(lists)) = (arguments.next(), arguments.next()) else {
        return Err("usage: fit_step_scaling GROUND_TRUTH LISTS".into());
    };
    let pairs = pairs(&truth, &lists)?;
    let all: Vec<&Pair> = pairs.iter().collect();
    let start = &Efficiencies::shipped().with_values(&FIRST_GUESSES);
    report("as shipped", &errors(&all, Efficiencies::shipped()));
    report("first guesses", &errors(&all, start));
    let fitted = fit(&all, start);
    report("fitted, the same models", &errors(&all, &fitted));
    let mut held_out = Vec::new();
    for fold in 0..FOLDS {
        let is_out = |pair: &&&Pair| fold_of(&pair.family) == fold;
        let (out, rest): (Vec<&Pair>, Vec<&Pair>) = all.iter().partition(|pair| is_out(pair));
        held_out.extend(errors(&out, &fit(&rest, start)));
    }
    report("fitted, families held out", &held_out);
    for (name, value) in Efficiencies::NAMES.iter().zip(fitted.values()) {
        println!("{name:<40} {value:.3}");
    }
    Ok(())
}

fn pairs(truth: &Path, lists: &Path) -> Result<Vec<Pair>, Box<dyn Error>> {
    let from = results(truth, FROM.1)?;
    let to: BTreeMap<(String, u32), (u32, f64)> = results(truth, TO.1)?
        .rows
        .into_iter()
        .map(|row| ((row.model, row.size), (row.batch, row.step_milliseconds)))
        .collect();
    let mut pairs = Vec::new();
    let mut missing = 0;
    for row in from.rows {
        let Some((batch, to_ms)) = to.get(&(row.model.clone(), row.size)) else { continue };
        let file = lists.join(format!("infer/{}-{}-b{batch}.json", row.model, row.size));
        let list = std::fs::read(&file).ok().and_then(|bytes| OpList::parse(&bytes).ok());
        let Some(list) = list.filter(|_| *batch == row.batch) else {
            missing += 1;
            continue;
        };
        pairs.push(Pair {
            family: family(&row.model),
            kernels: StepKernels::of(&list, &[Phase::Forward], false),
            from_ms: row.step_milliseconds,
            to_ms: *to_ms,
        });
    }
    println!("{} pairs; {missing} without a list or of two batch sizes", pairs.len());
    Ok(pairs)
}

fn results(truth: &Path, name: &str) -> Result<TimmResults, Box<dyn Error>> {
    let parsed = TimmFileName::parse(name).ok_or("the name of a result file")?;
    let bytes = std::fs::read(truth.join("timm").join(name))?;
    Ok(read(name, parsed, &bytes)?.0)
}

/// Returns the letters before the first digit or underscore: `resnet` of `resnet50d`.
fn family(model: &str) -> String {
    model.chars().take_while(char::is_ascii_alphabetic).collect()
}

fn fold_of(family: &str) -> u32 {
    family.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(31) + u32::from(byte)) % FOLDS
}

fn errors(pairs: &[&Pair], efficiencies: &Efficiencies) -> Vec<f64> {
    let table = DeviceTable::shipped();
    let (Some(from), Some(to)) = (table.find(FROM.0), table.find(TO.0)) else { return Vec::new() };
    let predicted = |pair: &Pair| {
        scale_kernels(pair.from_ms, (&pair.kernels, from), (&pair.kernels, to), efficiencies)
    };
    pairs
        .iter()
        .map(|pair| predicted(pair).map_or(1.0, |value| relative_error(value, pair.to_ms)))
        .collect()
}

/// Coordinate descent with decreasing steps.
fn fit(pairs: &[&Pair], start: &Efficiencies) -> Efficiencies {
    let first = start.values();
    let loss = |values: &[f64]| {
        let errors = errors(pairs, &start.with_values(values));
        let moved: f64 =
            values.iter().zip(&first).map(|(one, other)| (one / other).ln().powi(2)).sum();
        errors.iter().sum::<f64>() / errors.len().max(1) as f64 + PRIOR_WEIGHT * moved
    };
    let mut values = first.clone();
    let mut best = loss(&values);
    for step in [1.3, 1.1, 1.03] {
        for _ in 0..4 {
            let before = best;
            for place in 0..values.len() {
                for factor in [step, 1.0 / step] {
                    let previous = values[place];
                    values[place] = Efficiencies::clamped(place, previous * factor);
                    let found = loss(&values);
                    if found < best {
                        best = found;
                    } else {
                        values[place] = previous;
                    }
                }
            }
            if before - best < 1e-5 {
                break;
            }
        }
    }
    start.with_values(&values)
}

fn report(name: &str, errors: &[f64]) {
    if let Some(found) = error_statistics(errors) {
        println!(
            "{name:<28} {:>4} models: mean {:.1}%, median {:.1}%, 90% {:.1}%",
            found.cases,
            found.mean * 100.0,
            found.median * 100.0,
            found.p90 * 100.0
        );
    }
}
