//! Profiles the miniatures with the first command that a new user types: `ridgeline profile .`, in a copy of the
//! project's folder and with no configuration. A row has the expected profile of each. Comments in a miniature mark
//! its lines: `# top` is the most expensive line.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::sandbox::{Sandbox, python_with_torch, repository, run_to_end};

/// The expected profile of a miniature.
struct Row {
    /// The program that ran, as printed by the command.
    ran: &'static str,
    batch_size: Option<u64>,
    /// The unit of throughput per second.
    unit: &'static str,
    /// The file with the line marked `# top`, the most expensive one.
    top: &'static str,
    /// Whether an iteration has a backward pass and an optimizer step.
    trains: bool,
}

/// A program that trains on samples.
fn trains(ran: &'static str, batch_size: u64, top: &'static str) -> Row {
    Row { ran, batch_size: Some(batch_size), unit: "samples/s", top, trains: true }
}

fn miniatures() -> PathBuf {
    repository().join("tests/programs/miniatures")
}

/// Copies a folder's files into the project, recursively.
fn copy(sandbox: &Sandbox, folder: &Path, below: &Path) {
    for entry in std::fs::read_dir(folder).expect("the miniature").flatten() {
        let path = entry.path();
        let name = below.join(entry.file_name());
        if path.is_dir() {
            copy(sandbox, &path, &name);
        } else {
            sandbox.write(name.to_str().expect("text"), std::fs::read(&path).expect("a file"));
        }
    }
}

/// Returns the one-based number of the line that ends with this mark.
fn marked(file: &Path, mark: &str) -> u64 {
    let text = std::fs::read_to_string(file).expect("the program");
    let at = text.lines().position(|line| line.ends_with(&format!("# {mark}")));
    at.unwrap_or_else(|| panic!("no line of {} is marked # {mark}", file.display())) as u64 + 1
}

/// Profiles a miniature and checks it against its row. Returns its profile and the output.
#[track_caller]
fn profile(name: &str, row: &Row) -> Option<(Value, String)> {
    let python = python_with_torch()?;
    let sandbox = Sandbox::new();
    copy(&sandbox, &miniatures().join(name), Path::new(""));
    let written = sandbox.path("profile.json");
    let mut command = sandbox.ridgeline();
    command.args(["profile", ".", "--device", "cpu", "--json"]).arg(&written);
    command.arg("--python").arg(python).env("PYTHONPATH", miniatures().join("fakelibs"));
    // On a busy machine, threads waiting for each other could make a small operator the most expensive.
    command.env("OMP_NUM_THREADS", "1");
    let result =
        run_to_end(&mut command).exits_with(0).stderr_contains(row.ran).stdout_contains(row.unit);
    let json = std::fs::read_to_string(written).expect("a profile");
    let json: Value = serde_json::from_str(&json).expect("JSON");

    let iteration = &json["iteration"];
    assert_eq!(iteration["batch_size"].as_u64(), row.batch_size, "{}", result.stdout);
    let phases: &[&str] =
        if row.trains { &["forward_ms", "backward_ms", "optimizer_ms"] } else { &["forward_ms"] };
    for phase in phases {
        assert!(iteration[phase].as_f64() > Some(0.0), "{phase}:\n{}", result.stdout);
    }
    let lines = json["lines"].as_array().expect("lines");
    let costs = |line: &&Value| line["self_ms"].as_f64().unwrap_or(0.0);
    let top = lines.iter().max_by(|a, b| costs(a).total_cmp(&costs(b))).expect("a line");
    let expected = marked(&miniatures().join(name).join(row.top), "top");
    assert_eq!(
        (top["file"].as_str(), top["line"].as_u64()),
        (Some(row.top), Some(expected)),
        "{}",
        result.stdout
    );
    Some((json, result.stdout))
}

#[test]
fn keras_like_fit() {
    profile("keras_fit", &trains("regression_mlp.py", 64, "regression_mlp.py"));
}

#[test]
fn skorch_like_fit() {
    profile("skorch_fit", &trains("classify.py", 64, "classify.py"));
}

/// The sampler has no batch size, and the first tensor of a batch has one row per box.
#[test]
fn ultralytics_like_train() {
    profile("yolo_train", &trains("detect.py", 8, "detect.py"));
}

#[test]
fn hugging_face_like_trainer() {
    profile("hf_trainer", &trains("finetune.py", 8, "finetune.py"));
}

/// The subcommand comes from the README.
#[test]
fn lightning_like_command_line() {
    profile("lightning_cli", &trains("autoencoder.py fit", 128, "autoencoder.py"));
}

#[test]
fn hydra_like_main() {
    profile("hydra_main", &trains("src/train.py", 64, "src/model.py"));
}

/// A script with relative imports runs as a module.
#[test]
fn package_run_as_a_module() {
    profile("package_module", &trains("-m tinylm.train", 12, "tinylm/model.py"));
}

#[test]
fn loop_in_another_file() {
    profile("engine_loop", &trains("main.py", 4, "net.py"));
}

/// The script imports a package that is in the repository but not installed.
#[test]
fn mingpt_like_project() {
    profile("mingpt_adder", &trains("projects/adder/adder.py", 64, "mingpt/model.py"));
}

#[test]
fn hogwild_like_processes() {
    profile("hogwild", &trains("main.py", 64, "main.py"));
}

#[test]
fn distributed_single_step() {
    profile("ddp_once", &trains("example.py", 256, "example.py"));
}

/// Every fourth iteration begins with a rollout, which is most of the time.
#[test]
fn ppo_like_rollouts() {
    let Some((json, _)) = profile("ppo_rollouts", &trains("ppo.py", 8, "ppo.py")) else { return };
    periodic(&json, 4);
}

/// Every second iteration evaluates.
#[test]
fn unet_like_evaluation() {
    let row = trains("train.py", 2, "unet.py");
    let Some((json, _)) = profile("unet_evaluation", &row) else { return };
    periodic(&json, 2);
}

/// Iterations do more at a fixed period. The period is found, and throughput averages over it.
#[track_caller]
fn periodic(json: &Value, period: u64) {
    let iteration = &json["iteration"];
    let slow = &iteration["slow"];
    assert_eq!(slow["period"].as_u64(), Some(period), "{iteration}");
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{iteration}"));
    assert!(number(&slow["slow_ms"]) > number(&slow["typical_ms"]), "{slow}");
    let by_mean = number(&iteration["batch_size"]) * 1e3 / number(&slow["mean_ms"]);
    let rate = number(&iteration["samples_per_s"]);
    assert!((rate / by_mean - 1.0).abs() < 0.01, "{rate} samples/s, {by_mean} by the mean");
}

/// The README has the arguments.
#[test]
fn required_arguments() {
    profile("required_arguments", &trains("main.py --dataset fake", 16, "main.py"));
}

/// The subcommand is in the code only. The losses that are evaluated before the optimizer is created compute gradients.
#[test]
fn physics_with_a_subcommand() {
    profile("physics_subcommand", &trains("main.py train", 512, "main.py"));
}

#[test]
fn generation() {
    let row = Row {
        ran: "generate.py",
        batch_size: Some(1),
        unit: "tokens/s",
        top: "generate.py",
        trains: false,
    };
    profile("generation", &row);
}

#[test]
fn forward_only() {
    let row = Row {
        ran: "model.py",
        batch_size: Some(2),
        unit: "samples/s",
        top: "model.py",
        trains: false,
    };
    profile("forward_only", &row);
}

#[test]
fn notebook_as_a_script() {
    profile("notebook_script", &trains("digits.py", 24, "digits.py"));
}

#[test]
fn spaces_in_the_path() {
    profile("folder_with_spaces", &trains("my net/train net.py", 40, "my net/train net.py"));
}
