//! Fits the assumptions of `analysis/optimize/src/distributed/single_step.rs` and
//! `analysis/evaluate/src/benchmark_facts.rs` to measured training throughput, and prints a
//! Markdown table of the errors on held-out GPUs and models:
//!
//! ```text
//! cargo run --release -p ridgeline-evaluate --bin fit_data_parallel -- GROUND_TRUTH
//! ```

mod held_out;
mod values;

use std::error::Error;
use std::path::{Path, PathBuf};

use held_out::{Outcome, calibrate, held_out};
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_evaluate::error_statistics::{error_statistics, relative_error};
use ridgeline_evaluate::ground_truth::{File, GroundTruth, LAMBDA};
use ridgeline_evaluate::questions::Cases;
use ridgeline_evaluate::questions::data_parallel::{Pair, pairs};
use values::{FIRST_GUESSES, NAMES, fit, shipped};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or("usage: fit_data_parallel GROUND_TRUTH")?;
    let truth = GroundTruth::read(&files(&folder.join(LAMBDA))?);
    let mut left_out = Cases::default();
    let pairs = pairs(&truth, DeviceTable::shipped(), &mut left_out);
    let all: Vec<&Pair> = pairs.iter().collect();

    println!("| | pairs | mean | median | 90% | in range |");
    println!("|---|---:|---:|---:|---:|---:|");
    let by_gpu = held_out(&all, |pair| pair.task.device.name.clone());
    by_count("each GPU held out in turn", &by_gpu, true);
    let by_model = held_out(&all, |pair| pair.task.facts.name.to_owned());
    by_count("each model held out in turn", &by_model, true);
    row("as shipped, in sample", &Outcome::of(&all, &shipped(), None), true);
    let fitted = fit(&all);
    row("fitted again, in sample", &Outcome::of(&all, &fitted, None), false);
    row("guesses from before any fit", &Outcome::of(&all, &FIRST_GUESSES, None), false);
    by_count("linear scaling", &linear(&all), false);
    println!();
    groups("GPU held out", &by_gpu);
    println!();
    groups("model held out", &by_model);

    println!();
    println!("| coefficient | shipped | fitted again |");
    println!("|---|---:|---:|");
    for ((name, shipped), value) in NAMES.iter().zip(shipped()).zip(fitted) {
        println!("| `{name}` | {shipped:.4} | {value:.4} |");
    }
    let width = calibrate(&by_gpu).unwrap_or_default();
    println!("| `width`, calibrated | {:.4} | {width:.4} |", values::shipped_width());
    for (why, count) in &left_out.passed_over {
        println!("\n{count} left out: {why}");
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

fn linear(all: &[&Pair]) -> Vec<Outcome> {
    let outcome = |pair: &&Pair| Outcome {
        group: String::new(),
        gpus: pair.task.gpus,
        error: relative_error(pair.task.linear_milliseconds(), pair.measured_milliseconds),
        needed_width: 0.0,
        in_range: false,
    };
    all.iter().map(outcome).collect()
}

/// Prints a row for all outcomes, and one for each number of GPUs.
fn by_count(name: &str, outcomes: &[Outcome], has_range: bool) {
    row(&format!("**{name}**"), outcomes, has_range);
    for gpus in [2, 4, 8] {
        let some: Vec<Outcome> = outcomes.iter().filter(|one| one.gpus == gpus).cloned().collect();
        row(&format!("{name}: 1 to {gpus} GPUs"), &some, has_range);
    }
}

fn groups(title: &str, outcomes: &[Outcome]) {
    println!("| {title} | pairs | mean | median | 90% | in range |");
    println!("|---|---:|---:|---:|---:|---:|");
    let mut names: Vec<&str> = outcomes.iter().map(|one| one.group.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let some: Vec<Outcome> = outcomes.iter().filter(|one| one.group == name).cloned().collect();
        row(name, &some, true);
    }
}

fn row(name: &str, outcomes: &[Outcome], has_range: bool) {
    let errors: Vec<f64> = outcomes.iter().map(|one| one.error).collect();
    let Some(found) = error_statistics(&errors) else { return };
    let inside = outcomes.iter().filter(|one| one.in_range).count();
    let in_range = if has_range {
        format!("{:.0}%", inside as f64 / found.cases.max(1) as f64 * 100.0)
    } else {
        String::new()
    };
    println!(
        "| {name} | {} | {:.1}% | {:.1}% | {:.1}% | {in_range} |",
        found.cases,
        found.mean * 100.0,
        found.median * 100.0,
        found.p90 * 100.0
    );
}
