//! Profiles many kinds of training programs with the built binary and checks what must be true of every
//! profile. Comments mark the lines of a program: `# loop`, `# forward`, `# backward`, `# step`. The demo
//! projects are checked in the same way.

mod attention;
mod data_parallel;
mod edits;
mod fixes;
mod machine_lock;
mod planted;
mod prefetch;
mod simulated;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::sandbox::{Sandbox, python_with_torch, repository, run_to_end};
use fixes::fix;

/// How often the fixes of a demo project are applied before it is profiled again: a fix may reveal
/// another finding, and other load on the machine can cause false ones.
const MAX_TUNED: usize = 3;

/// The expected properties of a program's profile.
struct Expected {
    found_by: &'static str,
    batch_size: Option<u64>,
}

/// The Python texts of a folder, by name.
fn texts(folder: &Path) -> HashMap<String, Arc<str>> {
    let files = std::fs::read_dir(folder).expect("the project").flatten();
    let python = files.filter(|file| file.path().extension().is_some_and(|end| end == "py"));
    let named = python.map(|file| {
        let text = std::fs::read_to_string(file.path()).expect("a text");
        (file.file_name().to_string_lossy().into_owned(), text.into())
    });
    named.collect()
}

fn by(found_by: &'static str, batch_size: impl Into<Option<u64>>) -> Expected {
    Expected { found_by, batch_size: batch_size.into() }
}

#[track_caller]
fn check(name: &str, expected: &Expected) {
    let Some(python) = python_with_torch() else { return };
    let _lock = machine_lock::shared();
    let sandbox = Sandbox::new();
    let program = repository().join("tests/scripts/programs").join(name);
    let text = std::fs::read_to_string(program).expect("the program");
    sandbox.write(name, &text);
    let mut command = sandbox.ridgeline();
    command.args(["profile", name, "--device", "cpu", "--json", "-", "--python"]).arg(python);
    let json = run_to_end(&mut command).exits_with(0).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");

    let iteration = &json["iteration"];
    assert_eq!(iteration["found_by"], expected.found_by);
    assert_eq!(iteration["batch_size"].as_u64(), expected.batch_size);

    let lines = json["lines"].as_array().expect("lines");
    let on = |mark: &str, key: &str| -> Option<f64> {
        let marked = 1 + text.lines().position(|line| line.ends_with(&format!("# {mark}")))? as u64;
        let line = lines.iter().find(|line| {
            line["file"] == name
                && (line["line"].as_u64()..=line["end_line"].as_u64()).contains(&Some(marked))
        });
        Some(line.and_then(|line| line[key].as_f64()).unwrap_or(0.0))
    };
    for (mark, key) in
        [("forward", "forward_ms"), ("backward", "total_ms"), ("step", "optimizer_ms")]
    {
        assert!(on(mark, key) != Some(0.0), "the line marked `# {mark}` has no {key}: {lines:#?}");
    }
    let marked_loop = 1 + text.lines().position(|line| line.ends_with("# loop")).expect("a loop");
    assert_eq!(iteration["loop"]["line"], marked_loop);

    check_profile(&json);
}

/// Checks what must be true of every profile.
#[track_caller]
fn check_profile(json: &Value) {
    let iteration = &json["iteration"];
    let sum = |rows: &Value, key: &str| -> f64 {
        rows.as_array().into_iter().flatten().filter_map(|row| row[key].as_f64()).sum()
    };
    let time = iteration["time_ms"].as_f64().expect("an iteration");
    let tracked = sum(&json["lines"], "self_ms") + sum(&json["untracked"], "time_ms");
    assert!((tracked / time - 1.0).abs() < 0.01, "{tracked} ms of {time} ms are attributed");
    let kinds = json["memory"]["at_peak"].as_object().expect("kinds");
    let kinds: u64 = kinds.values().filter_map(Value::as_u64).sum();
    assert_eq!(json["memory"]["peak_bytes"], kinds);
    for share in ["time", "memory"] {
        let coverage = json["coverage"][share].as_f64().expect("a share");
        assert!(coverage > 0.99, "coverage of {share} is {coverage}");
    }
}

/// Profiles a demo project as it is in the repository, and then with the fixes of its findings applied.
/// The fixed program has no findings.
#[track_caller]
fn check_demo(folder: &str, batch_size: u64) {
    let Some(python) = python_with_torch() else { return };
    let _lock = machine_lock::shared();
    let mut texts = texts(&repository().join("demo-projects").join(folder));
    let json = profile(&texts, python);
    assert_eq!(json["iteration"]["batch_size"], batch_size);
    for phase in ["forward_ms", "backward_ms", "optimizer_ms", "data_ms"] {
        assert!(json["iteration"][phase].as_f64() > Some(0.0), "{phase}");
    }
    check_profile(&json);

    let mut findings = json["findings"].as_array().expect("findings").clone();
    for _ in 0..MAX_TUNED {
        if findings.is_empty() {
            return;
        }
        for finding in &findings {
            fix(&mut texts, "train.py", finding).unwrap_or_else(|why| panic!("{folder}: {why}"));
        }
        findings = profile(&texts, python)["findings"].as_array().expect("findings").clone();
    }
    assert_eq!(findings, Vec::<Value>::new(), "{folder}, tuned");
}

/// Returns the JSON of `ridgeline profile` for a project's `train.py`.
#[track_caller]
fn profile(texts: &HashMap<String, Arc<str>>, python: &Path) -> Value {
    let sandbox = Sandbox::new();
    for (name, text) in texts {
        sandbox.write(name, text.as_bytes());
    }
    let mut command = sandbox.ridgeline();
    command.args(["profile", "train.py", "--device", "cpu", "--json", "-", "--python"]).arg(python);
    serde_json::from_str(&run_to_end(&mut command).exits_with(0).stdout).expect("JSON")
}

#[test]
fn demo_projects() {
    // BERT accumulates two batches of eight.
    for (name, batch_size) in
        [("resnet", 8), ("gpt", 8), ("seq2seq", 16), ("dcgan", 16), ("ncf", 512), ("bert", 16)]
    {
        check_demo(name, batch_size);
    }
}

#[test]
fn closure_inside_the_step() {
    check("closure_trainer.py", &by("optimizer", 128));
}

#[test]
fn accumulation_with_mixed_precision() {
    check("amp_accumulation.py", &by("optimizer", 128));
}

#[test]
fn lbfgs() {
    check("lbfgs.py", &by("optimizer", 512));
}

#[test]
fn descent_by_hand_without_an_end() {
    check("by_hand.py", &by("backward", None));
}

#[test]
fn inference() {
    check("inference.py", &by("module", 16));
}

#[test]
fn worker_processes() {
    check("loader_workers.py", &by("optimizer", 64));
}

#[test]
fn second_derivatives_and_two_optimizers() {
    check("wgan.py", &by("optimizer", 320));
}

#[test]
fn custom_functions_checkpoints_and_generators() {
    check("custom_function.py", &by("optimizer", 64));
}

#[test]
fn episodes_of_random_length() {
    check("policy_gradient.py", &by("optimizer", None));
}

#[test]
fn three_iterations_in_all() {
    check("few_iterations.py", &by("optimizer", 64));
}

#[test]
fn compiled_regions() {
    check("compiled.py", &by("optimizer", 256));
}

#[test]
fn threads_and_tied_weights() {
    check("threads_and_tensors.py", &by("optimizer", 16));
}
