//! `ridgeline evaluate`, on synthetic and on hostile measurements.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::sandbox::{CommandResult, Sandbox, python_with_torch, repository, run_to_end};

/// A stand-in for `timm`: models of one linear layer, and one unknown name.
const TIMM: &str = r#"
import torch

__version__ = "0.0.made.up"


def create_model(name, img_size=None):
    if name == "made_up_gone":
        raise RuntimeError("Unknown model (made_up_gone)")
    width = {"made_up_a": 8, "made_up_b": 64}.get(name, 512)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, width))
"#;

fn made_up() -> PathBuf {
    repository().join("tests/cli/ground-truth")
}

/// Runs with a Python that has torch and, optionally, the stand-in for `timm`.
fn evaluate(sandbox: &Sandbox, python: &Path, timm: bool, arguments: &[&str]) -> CommandResult {
    let packages = sandbox.path("packages");
    if timm {
        std::fs::create_dir_all(packages.join("timm")).expect("a folder");
        std::fs::write(packages.join("timm/__init__.py"), TIMM).expect("written");
        let layers = "def set_fused_attn(enable):\n    pass\n";
        std::fs::write(packages.join("timm/layers.py"), layers).expect("written");
    }
    let mut command = sandbox.ridgeline();
    command.arg("evaluate").arg(made_up()).args(arguments).arg("--python").arg(python);
    if timm {
        command.env("PYTHONPATH", packages);
    }
    run_to_end(&mut command)
}

fn question<'a>(report: &'a Value, id: &str) -> &'a Value {
    let questions = report["questions"].as_array().expect("questions");
    questions.iter().find(|question| question["id"] == id).expect("it is asked")
}

fn count(reasons: &Value, why: &str) -> u64 {
    let reasons = reasons.as_array().expect("reasons");
    let found = reasons
        .iter()
        .filter(|reason| reason["why"].as_str().is_some_and(|text| text.contains(why)));
    found.map(|reason| reason["count"].as_u64().expect("a number")).sum()
}

#[test]
fn every_case_reports_a_missing_python() {
    let sandbox = Sandbox::new();
    let folder = made_up();
    sandbox
        .run_without_python(&[Path::new("evaluate"), &folder])
        .exits_with(0)
        .stderr_contains("no operators can be listed")
        .stdout_contains("From an RTX 3090 to an RTX 4090")
        .stdout_contains("no case was answered")
        .stdout_contains("no operator list");
}

#[test]
fn every_case_is_answered_or_counted_as_skipped() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let out = evaluate(&sandbox, python, true, &["--json", "-"]).exits_with(0).stdout;
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["lister"]["timm"], "0.0.made.up");

    let known = question(&report, "rtx3090_to_rtx4090");
    let ours = &known["groups"][0]["ours"];
    assert_eq!(ours["cases"], 3);
    assert_eq!(count(&known["not_answered"], "no operator list"), 1);
    assert!(known["not_answered"].to_string().contains("Unknown model (made_up_gone)"));
    // made_up_new was measured on only one of the two.
    assert_eq!(count(&known["passed_over"], "no such row"), 1);
    let trivial = known["groups"][0]["trivial"].as_array().expect("trivial predictors");
    assert_eq!(trivial.len(), 3);
    for answer in trivial {
        assert_eq!(answer["errors"]["cases"], 3, "on the same cases: {answer}");
    }
    // 936 / 1008 of 100, 2 * 200 and 300 ms; the measurements are 70, 160 and 210.
    let bandwidth = |start: f64, answer: f64| start * 936.0 / 1008.0 / answer - 1.0;
    let mean = (bandwidth(100.0, 70.0) + bandwidth(400.0, 160.0) + bandwidth(300.0, 210.0)) / 3.0;
    let reported = trivial[0]["errors"]["mean"].as_f64().expect("a number");
    assert_eq!(trivial[0]["name"], "bandwidth ratio");
    assert!((reported - mean).abs() < 1e-9, "{reported} is not {mean}");

    let unseen = question(&report, "rtx4090_to_unseen");
    assert_eq!(unseen["groups"][0]["name"], "RTX4090 to RTX5090, torch 2.4.0 to 2.9.1");
    assert_eq!(unseen["groups"][0]["ours"]["cases"], 1);
    assert_eq!(count(&unseen["passed_over"], "unheard-of-9999"), 1);

    // One file of each layout.
    let training = question(&report, "training_without_gpu");
    assert_eq!(training["groups"][0]["ours"]["cases"], 2);

    let transformers = question(&report, "transformers");
    // Inference, training, and the forward and backward pass separately.
    assert_eq!(transformers["cases"].as_array().map(Vec::len), Some(4));
    assert!(
        transformers["cases"].as_array().expect("cases").iter().all(|case| {
            case["predicted_ms"]["value"].as_f64().is_some_and(|value| value > 0.0)
        })
    );
    assert_eq!(transformers["groups"][0]["ours"]["cases"], 2);
    for why in ["tensor4", "no configuration of absent", "NVIDIA_Unheard"] {
        assert_eq!(count(&transformers["passed_over"], why), 1, "{why}");
    }

    let compiled = question(&report, "torch_compile");
    assert_eq!(compiled["groups"][0]["ours"]["cases"], 1);
    assert_eq!(count(&compiled["passed_over"], "no such row"), 1);
    assert_eq!(count(&compiled["not_answered"], "no operator list"), 1);
    // Half of the images, which the trivial predictors also account for: 35, as measured.
    let unchanged = &compiled["groups"][0]["trivial"][0];
    assert_eq!(
        (&unchanged["name"], unchanged["errors"]["mean"].as_f64()),
        (&"no change".into(), Some(0.0))
    );

    let turned = question(&report, "channels_last");
    assert_eq!(turned["groups"][0]["ours"]["cases"], 1);
    // A model of one linear layer has nothing to convert.
    let row = &turned["cases"][0];
    let predicted = row["predicted_ms"]["value"].as_f64().expect("a number");
    assert!((predicted / 10.0 - 1.0).abs() < 0.2, "{row}");

    let half = question(&report, "mixed_precision");
    assert_eq!(half["groups"][0]["ours"]["cases"], 2);
    assert_eq!(count(&half["passed_over"], "no GPU of the table is called Unheard 9999"), 1);
}

#[test]
fn the_same_seed_samples_the_same_cases() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let labels = |seed: &str| -> Vec<String> {
        let arguments = ["--sample", "2", "--seed", seed, "--json", "-"];
        let out = evaluate(&sandbox, python, true, &arguments).exits_with(0).stdout;
        let report: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(report["sample"]["cases"], 2);
        let cases = question(&report, "rtx3090_to_rtx4090")["cases"].as_array().expect("cases");
        cases.iter().map(|case| case["label"].as_str().expect("a label").to_owned()).collect()
    };
    let first = labels("1");
    assert_eq!(first.len(), 2);
    assert_eq!(first, labels("1"));
    let others: Vec<_> = ["2", "3", "4", "5"].map(labels).into();
    assert!(others.iter().any(|labels| *labels != first), "no seed takes other cases");
}

#[test]
fn missing_timm_is_reported_and_other_cases_still_run() {
    let Some(python) = python_with_torch() else { return };
    let has_timm = std::process::Command::new(python).args(["-c", "import timm"]).output();
    if has_timm.is_ok_and(|output| output.status.success()) {
        println!("skipped: {} has timm", python.display());
        return;
    }
    let sandbox = Sandbox::new();
    evaluate(&sandbox, python, false, &[])
        .exits_with(0)
        .stderr_contains("pip install timm")
        .stdout_contains("timm is not installed")
        .stdout_contains("L4, forward alone");
}

#[test]
fn hostile_files_are_reported_by_name() {
    let sandbox = Sandbox::new();
    let header = "model,infer_img_size,infer_step_time,infer_batch_size\n";
    let rows = "a,32,nan,8\nb,32,-1,8\nc,32,inf,8\nd,0,1,8\ne,32,1,1e99\nhf-hub:x/y,32,1,8\n\
                ../f,32,1,8\nok,32,1,8\nok,32,2,8\n,,,\nshort\n";
    let name = "folder/timm/infer-amp-nchw-pt240-cu124-rtx3090.csv";
    sandbox.write(name, format!("{header}{rows}\u{0}\u{7}\n"));
    sandbox
        .write("folder/timm/infer-amp-nchw-pt240-cu124-rtx4090.csv", [0xff, 0xfe, 0, b'\n', 0x80]);
    sandbox.write("folder/timm/\u{1b}[31mnotes.csv", "x");
    sandbox.write("folder/neusight/models.csv", "gpu,model\n1,2\n");
    sandbox.write("folder/neusight/model-configs/list.json", "[1, 2]");
    let deep = "[".repeat(100_000);
    sandbox.write("folder/neusight/model-configs/deep.json", format!("{{\"a\": {deep}"));
    let folder = sandbox.project().join("folder");
    let result = sandbox.run_without_python(&[Path::new("evaluate"), &folder]).exits_with(0);
    assert!(!result.stdout.contains('\u{1b}'), "{:?}", result.stdout);
    let result = result
        .stdout_contains("3 rows left out: no step time")
        .stdout_contains("2 rows left out: no image size")
        .stdout_contains("1 row left out: no batch size")
        .stdout_contains("left out: no model's name")
        .stdout_contains("1 row left out: a second row of a model at that size")
        .stdout_contains("it has no column model")
        .stdout_contains("its name does not say")
        .stdout_contains("neusight/models.csv: it has no column mode");
    for name in ["list.json", "deep.json"] {
        assert!(result.stdout.contains(&format!("{name}: it is no JSON object")), "{name}");
    }
    result.stdout_contains("no case in this folder");
}

#[test]
fn a_folder_without_measurements_is_reported() {
    let sandbox = Sandbox::new();
    let empty = sandbox.path("empty");
    std::fs::create_dir_all(&empty).expect("a folder");
    sandbox
        .run_without_python(&[Path::new("evaluate"), &empty])
        .exits_with(0)
        .stdout_contains("timm: there is no result file")
        .stdout_contains("neusight/models.csv: not found");
    sandbox
        .run_without_python(&[Path::new("evaluate"), Path::new("no/such/folder")])
        .exits_with(2)
        .stderr_contains("is no folder");
}
