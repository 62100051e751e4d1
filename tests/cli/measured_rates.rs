//! `ridgeline doctor --measure` on the simulated CUDA device, and the commands that use its rates.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::cli::schema;
use crate::sandbox::{Sandbox, python_with_torch, repository, run_to_end};

const SCRIPT: &str = "\
import torch
model = torch.nn.Linear(512, 512).to('cuda')
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    batch = torch.randn(64, 512).to('cuda')
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
";

/// Returns `ridgeline` on the simulated device. Prints a message if the device cannot be built.
fn simulated(sandbox: &Sandbox, python: &Path) -> Option<impl Fn(&[&str]) -> Command> {
    let run = repository().join("tests/gpu/simulated/run");
    let tried = Command::new(&run).arg("--python").arg(python).arg("true").output();
    let tried = tried.expect("tests/gpu/simulated/run starts");
    if tried.status.code() == Some(77) {
        println!("{}", String::from_utf8_lossy(&tried.stderr).trim());
        return None;
    }
    assert!(tried.status.success(), "{}", String::from_utf8_lossy(&tried.stderr));
    let (python, plain) = (python.to_owned(), sandbox.ridgeline());
    let program = plain.get_program().to_owned();
    let folder = plain.get_current_dir().expect("it has one").to_owned();
    let variables: Vec<_> = plain
        .get_envs()
        .map(|(key, value)| (key.to_owned(), value.map(ToOwned::to_owned)))
        .collect();
    Some(move |arguments: &[&str]| {
        let mut command = Command::new(&run);
        command.arg("--python").arg(&python).arg(&program).args(arguments).current_dir(&folder);
        // The simulated device memory is main memory.
        command.env("SIMGPU", "h100").env("SIMGPU_MEMORY_MB", "2048");
        for (key, value) in &variables {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        command
    })
}

/// Returns the measurements in the cache as text.
fn stored_rates(sandbox: &Sandbox) -> Vec<String> {
    let files = std::fs::read_dir(sandbox.path("cache").join("gpu-rates"));
    let files = files.into_iter().flatten().flatten();
    files.map(|file| std::fs::read_to_string(file.path()).expect("text")).collect()
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).expect("written")).expect("JSON")
}

fn has_note(document: &Value, part: &str) -> bool {
    let notes = document["notes"].as_array().into_iter().flatten();
    notes.filter_map(Value::as_str).any(|note| note.contains(part))
}

#[test]
fn measured_rates_are_stored_and_used() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let Some(ridgeline) = simulated(&sandbox, python) else { return };
    let python = python.to_str().expect("UTF-8");
    let script = sandbox.write("train.py", SCRIPT);
    let script = script.to_str().expect("UTF-8");
    let out = sandbox.path("out.json");
    let json = out.to_str().expect("UTF-8");

    // Before: the datasheet.
    run_to_end(&mut ridgeline(&["doctor", "--python", python]))
        .exits_with(0)
        .stdout_contains("rates: datasheet");
    run_to_end(&mut ridgeline(&["profile", script, "--python", python, "--json", json]))
        .exits_with(0);
    let before = read(&out);
    assert_eq!(before["device"]["rates_from"], "datasheet");
    assert!(!has_note(&before, "measured on this GPU"), "{}", before["notes"]);

    run_to_end(&mut ridgeline(&["doctor", "--measure", "--python", python]))
        .exits_with(0)
        .stdout_contains("rates: measured on")
        .stdout_contains("(simulated)")
        .stdout_contains("BF16")
        .stdout_contains("launch");

    // The cache has the rates of one simulated GPU, and nothing that identifies machine or user.
    let [file] = &stored_rates(&sandbox)[..] else { panic!("{:?}", stored_rates(&sandbox)) };
    let document: Value = serde_json::from_str(file).expect("JSON");
    assert_eq!(document["device"]["name"], "NVIDIA H100 80GB HBM3");
    assert_eq!(document["device"]["simulated"], true);
    assert!(document["ceilings"]["copy_bandwidth"]["median"].as_f64().expect("a rate") > 1e11);
    assert!(!file.contains('/') && !file.contains(python), "{file}");

    // After: the measurement, and all commands report it.
    run_to_end(&mut ridgeline(&["profile", script, "--python", python, "--json", json]))
        .exits_with(0);
    let after = read(&out);
    schema::validate(&after, "profile");
    let from = after["device"]["rates_from"].as_str().expect("a text");
    assert!(from.starts_with("measured on 2"), "{from}");
    assert!(has_note(&after, "measured on this GPU"), "{}", after["notes"]);

    run_to_end(&mut ridgeline(&[
        "predict", script, "--python", python, "--gpu", "all", "--json", json,
    ]))
    .exits_with(0);
    let predicted = read(&out);
    assert!(
        has_note(&predicted["predictions"][0], "rates measured on this machine"),
        "{predicted}"
    );

    // The rates belong to the simulated device: without it, this machine has none.
    let doctor = run_to_end(sandbox.ridgeline().args(["doctor", "--python", python]));
    assert!(!doctor.stdout.contains("rates: measured"), "{}", doctor.stdout);
}

#[test]
fn a_missing_gpu_is_not_measured() {
    let result = Sandbox::new().run_without_python(&["doctor", "--measure"]);
    // A developer's machine may have a GPU.
    if !result.stdout.contains("none: training runs on the CPU") {
        println!("skipped: this machine has a GPU");
        return;
    }
    result.exits_with(1).stderr_contains("no GPU to measure");
}
