//! Fits what `analysis/optimize/src/distributed/single_step.rs` takes for granted to measured training
//! throughput, and prints the errors on GPUs and on models that the fit did not see:
//!
//! ```text
//! cargo run --release -p ridgeline-evaluate --bin fit_data_parallel -- GROUND_TRUTH
//! ```
#![allow(
    clippy::indexing_slicing,
    reason = "a development tool, where a panic is a good enough error message"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use ridgeline_devices::device_table::DeviceTable;
use ridgeline_evaluate::benchmark_facts::GNMT_TOKENS;
use ridgeline_evaluate::error_statistics::{error_statistics, relative_error};
use ridgeline_evaluate::ground_truth::{File, GroundTruth, LAMBDA};
use ridgeline_evaluate::questions::Cases;
use ridgeline_evaluate::questions::data_parallel::{Pair, pairs};
use ridgeline_optimize::distributed::single_step::{Fitted, SHIPPED};

/// Where a fit begins: guesses from before any measurement. The rate is half of PCIe 3; the tokens
/// are two sentences of 25.
const FIRST_GUESSES: Values = [8e9, 0.01, 0.05, 50.0];
const NAMES: [&str; 4] = ["through_host", "waiting", "feeding", "GNMT_TOKENS"];

/// In the order of [`NAMES`].
type Values = [f64; 4];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or("usage: fit_data_parallel GROUND_TRUTH")?;
    let truth = GroundTruth::read(&files(&folder.join(LAMBDA))?);
    let mut left_out = Cases::default();
    let pairs = pairs(&truth, DeviceTable::shipped(), &mut left_out);
    for (why, count) in &left_out.passed_over {
        println!("{count} left out: {why}");
    }
    let all: Vec<&Pair> = pairs.iter().collect();
    let linear: Vec<f64> = all
        .iter()
        .map(|pair| relative_error(pair.task.linear_milliseconds(), pair.measured_milliseconds))
        .collect();
    report("linear scaling", &linear);
    let shipped = [SHIPPED.through_host, SHIPPED.waiting, SHIPPED.feeding, GNMT_TOKENS];
    report("as shipped", &errors(&all, &shipped));
    let in_range = all.iter().filter(|pair| {
        let range = pair.task.milliseconds(&SHIPPED, GNMT_TOKENS);
        (range.low..=range.high).contains(&pair.measured_milliseconds)
    });
    println!("in range: {} of {}", in_range.count(), all.len());
    report("first guesses", &errors(&all, &FIRST_GUESSES));
    let fitted = fit(&all);
    report("fitted, the same pairs", &errors(&all, &fitted));
    held_out("fitted, GPUs held out", &all, |pair| pair.task.device.name.clone());
    held_out("fitted, models held out", &all, |pair| pair.task.facts.name.to_owned());
    for (name, value) in NAMES.iter().zip(fitted) {
        println!("{name:<16} {value:.4}");
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<File>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        files.push(File {
            path: format!("{LAMBDA}/{}", entry.file_name().to_string_lossy()),
            contents: Ok(std::fs::read(entry.path())?),
        });
    }
    Ok(files)
}

fn held_out(name: &str, all: &[&Pair], group: impl Fn(&Pair) -> String) {
    let mut groups: BTreeMap<String, Vec<&Pair>> = BTreeMap::new();
    for pair in all {
        groups.entry(group(pair)).or_default().push(pair);
    }
    let mut found = Vec::new();
    let mut lines = Vec::new();
    for (out, pairs) in &groups {
        let rest: Vec<&Pair> = all.iter().filter(|pair| group(pair) != *out).copied().collect();
        let errors = errors(pairs, &fit(&rest));
        lines.push((out, errors.clone()));
        found.extend(errors);
    }
    report(name, &found);
    for (out, errors) in lines {
        report(&format!("  {out}"), &errors);
    }
}

fn errors(pairs: &[&Pair], values: &Values) -> Vec<f64> {
    let [through_host, waiting, feeding, tokens] = *values;
    let fitted = Fitted { through_host, waiting, feeding };
    pairs
        .iter()
        .map(|pair| {
            let predicted = pair.task.milliseconds(&fitted, tokens).value;
            relative_error(predicted, pair.measured_milliseconds)
        })
        .collect()
}

/// One value after another is moved while that helps, in ever smaller steps.
fn fit(pairs: &[&Pair]) -> Values {
    let loss = |values: &Values| {
        let errors = errors(pairs, values);
        errors.iter().sum::<f64>() / errors.len().max(1) as f64
    };
    let mut values = FIRST_GUESSES;
    let mut best = loss(&values);
    for step in [1.5, 1.2, 1.05, 1.02] {
        loop {
            let before = best;
            for place in 0..values.len() {
                for factor in [step, 1.0 / step] {
                    let mut tried = values;
                    tried[place] *= factor;
                    let found = loss(&tried);
                    if found < best - 1e-9 {
                        (best, values) = (found, tried);
                    }
                }
            }
            if before - best < 1e-6 {
                break;
            }
        }
    }
    values
}

fn report(name: &str, errors: &[f64]) {
    if let Some(found) = error_statistics(errors) {
        println!(
            "{name:<28} {:>4} pairs: mean {:.1}%, median {:.1}%, 90% {:.1}%",
            found.cases,
            found.mean * 100.0,
            found.median * 100.0,
            found.p90 * 100.0
        );
    }
}
