//! `ridgeline whatif`, on recordings, incomplete traces, real traces, and a program.

use serde_json::{Value, json};

use crate::cli::schema;
use crate::sandbox::{
    CommandResult, Sandbox, python_with_torch, repository, run_to_end, shared_traces,
};

fn conv() -> String {
    repository().join("tests/recordings/conv-cpu").to_str().expect("a path").to_owned()
}

fn document(result: &CommandResult) -> Value {
    let document = serde_json::from_str(&result.stdout).expect("JSON and nothing else");
    schema::validate(&document, "whatif");
    document
}

fn named<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    let rows = document["predictions"].as_array().expect("predictions");
    rows.iter().find(|row| row["names"] == json!([name]))
}

/// A trace of a GPU with this name: one 1 ms kernel per stream, given as `(device, stream)`.
fn trace(gpu: &str, streams: &[(u32, u32)]) -> String {
    let mut events = vec![json!({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1",
                                 "pid": 1, "tid": 1, "ts": 0, "dur": 3000})];
    for (number, (device, stream)) in (1..).zip(streams) {
        let start = 100 * number;
        events.push(json!({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1,
            "ts": start, "dur": 20}));
        events.push(json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel",
            "pid": 1, "tid": 1, "ts": start + 5, "dur": 5, "args": {"correlation": number}}));
        events.push(
            json!({"ph": "X", "cat": "kernel", "name": "gemm", "pid": device, "tid": stream,
            "ts": start + 20, "dur": 1000, "args": {"device": device, "stream": stream,
                "correlation": number, "grid": [1, 1, 1], "block": [128, 1, 1]}}),
        );
    }
    json!({"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000_u64,
        "deviceProperties": [{"id": 0, "name": gpu, "numSms": 80,
                              "computeMajor": 7, "computeMinor": 0}],
        "traceEvents": events})
    .to_string()
}

fn whatif(sandbox: &Sandbox, arguments: &[&str]) -> CommandResult {
    sandbox.run(&[&["whatif"], arguments].concat())
}

#[test]
fn a_recording_has_a_table_and_json() {
    let sandbox = Sandbox::new();
    let result = whatif(&sandbox, &[&conv()]).exits_with(0);
    result
        .stdout_contains("Iteration with batch size 16:")
        .stdout_contains("not applicable")
        .stdout_contains("~ = simulated");
    let result = whatif(&sandbox, &[&conv(), "--json", "-"]).exits_with(0);
    let found = document(&result);
    assert!(found["replay_error"].as_f64().expect("a number").abs() < 0.01);
    let compile = named(&found, "compile").expect("it applies");
    assert_eq!(compile["edit"], true);
    let speedup = |end: &str| compile["speedup"][end].as_f64().expect("a number");
    assert!(speedup("low") <= speedup("value") && speedup("value") <= speedup("high"));
}

#[test]
fn only_the_requested_optimizations() {
    let sandbox = Sandbox::new();
    let arguments = [&conv(), "--only", "compile", "fp8", "compile", "--json", "-"];
    let found = document(&whatif(&sandbox, &arguments).exits_with(0));
    let count = |key: &str| found[key].as_array().expect("a list").len();
    assert_eq!(count("predictions") + count("refusals"), 2, "{found}");
    let result = whatif(&sandbox, &[&conv(), "--only", "warp-speed"]).exits_with(2);
    result.stderr_contains("unknown optimization `warp-speed`").stderr_contains("amp-bf16, ");
}

#[test]
fn typos_are_reported_before_anything_runs() {
    let sandbox = Sandbox::new();
    let gone = "gone.py";
    whatif(&sandbox, &[gone, "--bandwidth", "10"]).exits_with(2).stderr_contains("--gpus");
    whatif(&sandbox, &[gone, "--gpus", "4", "--bandwidth", "fast"])
        .exits_with(2)
        .stderr_contains("`fast`");
    whatif(&sandbox, &[gone, "--gpus", "0"]).exits_with(2);
    whatif(&sandbox, &[gone, "--memory-limit", "lots"])
        .exits_with(2)
        .stderr_contains("`lots` is not a size");
    whatif(&sandbox, &[gone, "--measure", "p3"]).exits_with(2).stderr_contains("no automatic edit");
    whatif(&sandbox, &[&conv(), "--measure", "compile"])
        .exits_with(2)
        .stderr_contains("Pass the recorded script");
    whatif(&sandbox, &[gone]).exits_with(3);
}

#[test]
fn missing_trace_data_is_reported() {
    let sandbox = Sandbox::new();
    sandbox.write("v100.json", trace("Tesla V100-SXM2-16GB", &[(0, 7)]));
    let result = whatif(&sandbox, &["v100.json"]).exits_with(0);
    result.stdout_contains("no operator shapes").stdout_contains("no memory data");
    sandbox.write("two.json", trace("Tesla V100-SXM2-16GB", &[(0, 7), (1, 7)]));
    whatif(&sandbox, &["two.json"]).exits_with(0).stdout_contains("2 GPUs used by one program");
    sandbox.write("other.json", trace("Abacus 9000", &[(0, 7)]));
    whatif(&sandbox, &["other.json"])
        .exits_with(1)
        .stderr_contains("Abacus 9000 is not a known GPU");
    sandbox.write("none.json", r#"{"schemaVersion": 1, "traceEvents": []}"#);
    whatif(&sandbox, &["none.json"]).exits_with(1).stderr_contains("no complete iteration");
    sandbox.write("broken.json", "{");
    whatif(&sandbox, &["broken.json"]).exits_with(1);
}

#[test]
fn a_real_trace_on_several_gpus() {
    let Some(traces) = shared_traces() else { return };
    let sandbox = Sandbox::new();
    let trace = traces.join("v100_resnet50_train_nw0.json.gz");
    let trace = trace.to_str().expect("a path");
    let gpus = ["--gpus", "4", "--bandwidth", "10"];
    let found = document(&whatif(&sandbox, &[&[trace, "--json", "-"], &gpus[..]].concat()));
    let network = &found["network"];
    if network.is_null() {
        // Then the reason is reported.
        let refusals = found["refusals"].as_array().expect("refusals");
        assert!(refusals.iter().any(|one| one["name"] == "data-parallel"), "{found}");
    } else {
        assert_eq!(network["gpus"], 4);
        assert_eq!(network["bandwidth"], 1.25e9);
    }
}

#[test]
fn measuring_leaves_the_script_unchanged() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let script = include_str!("scripts/train.py");
    sandbox.write("train.py", script);
    let python = python.to_str().expect("a path");
    let arguments = [
        "train.py",
        "--python",
        python,
        "--device",
        "cpu",
        "--only",
        "foreach-optimizer",
        "--measure",
        "foreach-optimizer",
        "--json",
        "-",
    ];
    let result = whatif(&sandbox, &arguments).exits_with(0);
    let found = document(&result);
    let measured = found["measured"].as_array().expect("a list");
    assert_eq!(measured.len(), 1, "{}", result.stderr);
    assert!(measured[0]["measured"]["after_ns"].as_f64().is_some_and(|time| time > 0.0));
    let losses = &measured[0]["numerics"]["compared"];
    assert!(losses["losses"].as_u64() > Some(2), "{}", measured[0]);
    assert!(losses["loss"].as_f64() <= losses["tolerance"]["loss"].as_f64(), "{losses}");
    assert_eq!(found["accuracy"]["pairs"], 1);
    let after = std::fs::read_to_string(sandbox.project().join("train.py")).expect("the script");
    assert_eq!(after, script);
    // Later predictions show the earlier measurement.
    let result = whatif(&sandbox, &arguments).exits_with(0);
    assert_eq!(document(&result)["accuracy"]["pairs"], 2);
}

/// With dropout, attention runs in FP32 inside autocast, which only a run of the edited program shows.
#[test]
fn memory_of_mixed_precision_is_that_of_the_edited_program() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    sandbox.write("train.py", include_str!("scripts/attention.py"));
    let python = python.to_str().expect("a path");
    let name = "amp-bf16";
    let arguments = ["train.py", "--python", python, "--device", "cpu", "--only", name];
    let result = whatif(&sandbox, &[&arguments[..], &["--measure", name, "--json", "-"]].concat());
    if result.stderr.contains("this CPU has no 16-bit instructions") {
        println!("SKIPPED: this CPU has no 16-bit instructions");
        return;
    }
    let found = document(&result.exits_with(0));
    let pair = &found["measured"][0];
    let peak = |side: &str| pair[side]["after_peak_bytes"].as_f64().expect("a peak");
    let (predicted, measured) = (peak("predicted"), peak("measured"));
    assert!(
        (predicted / measured - 1.0).abs() < 0.01,
        "{predicted} predicted, {measured} measured"
    );
    let table = named(&found, name).expect("a prediction");
    assert_eq!(table["peak_bytes"]["value"].as_f64(), Some(predicted));
}

#[test]
fn tuning_leaves_the_script_unchanged() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let script = include_str!("scripts/train.py");
    sandbox.write("train.py", script);
    let mut command = sandbox.ridgeline();
    command.args(["tune", "train.py", "--device", "cpu", "--at-most", "1"]);
    command.args(["--patch", "tuned.patch", "--json", "tuned.json", "--python"]).arg(python);
    let result = run_to_end(&mut command).exits_with(0).stdout_contains("tried in turn");
    // Whether anything is kept depends on the machine.
    let is_kept = result.stdout.contains("kept, same loss within");
    assert_eq!(result.stdout.contains("All together: "), is_kept, "{}", result.stdout);
    let patch = std::fs::read_to_string(sandbox.project().join("tuned.patch"));
    assert_eq!(patch.as_ref().is_ok_and(|patch| patch.starts_with("--- a/train.py\n")), is_kept);
    let document = std::fs::read(sandbox.project().join("tuned.json")).expect("a document");
    let document: Value = serde_json::from_slice(&document).expect("JSON");
    schema::validate(&document, "tune");
    assert_eq!(document["trials"].as_array().map(Vec::len), Some(1), "{document}");
    assert_eq!(document["patch"].as_str(), patch.ok().as_deref(), "{document}");
    assert_eq!(document["total"]["verdict"] == "kept", is_kept, "{document}");
    let after = std::fs::read_to_string(sandbox.project().join("train.py")).expect("the script");
    assert_eq!(after, script);
}

/// A script whose optimizer is not fused, and that keeps the graph of every loss.
const SCRIPT: &str = "\
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0
for step in range(100):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).sum()
    loss.backward()
    optimizer.step()
    total += loss
";

#[test]
fn edits_are_shown_and_written_on_request() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    sandbox.write("train.py", SCRIPT);
    let python = python.to_str().expect("a path");
    let own = |more: &[&'static str]| {
        let names = ["train.py", "--apply", "foreach-optimizer", "detach-accumulated"];
        let mut arguments: Vec<&str> = names.to_vec();
        arguments.extend(["--python", python, "--device", "cpu"]);
        arguments.extend(more);
        whatif(&sandbox, &arguments)
    };
    let text = || std::fs::read_to_string(sandbox.project().join("train.py")).expect("the script");
    // Without a terminal: only the patch.
    let shown = own(&[]).exits_with(0).stderr_contains("No file was changed. Add `--yes`");
    assert_eq!(
        shown.stdout,
        "\
--- a/train.py
+++ b/train.py
@@ -1,10 +1,10 @@
 import torch
 model = torch.nn.Linear(8, 8)
-optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
+optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
 total = 0
 for step in range(100):
     optimizer.zero_grad()
     loss = model(torch.ones(4, 8)).sum()
     loss.backward()
     optimizer.step()
-    total += loss
+    total += loss.detach()
"
    );
    assert_eq!(text(), SCRIPT);
    own(&["--yes"]).exits_with(0).stderr_contains("Changed train.py");
    let edited =
        SCRIPT.replace("lr=0.1", "lr=0.1, foreach=True").replace("+= loss", "+= loss.detach()");
    assert_eq!(text(), edited);
    own(&["--yes"]).exits_with(1).stderr_contains("foreach-optimizer: already applied");
    assert_eq!(text(), edited);
    whatif(&sandbox, &["train.py", "--apply", "fp8"])
        .exits_with(2)
        .stderr_contains("`fp8` has no automatic edit: it needs another package");
    whatif(&sandbox, &["train.py", "--apply", "faster"])
        .exits_with(2)
        .stderr_contains("`faster` has no automatic edit")
        .stderr_contains("detach-accumulated");
    whatif(&sandbox, &[&conv(), "--apply", "compile"]).exits_with(2).stderr_contains("recording");
    whatif(&sandbox, &["train.py", "--yes"]).exits_with(2);
}

#[test]
fn the_fixes_of_a_rule_are_applied_by_its_name() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let second = SCRIPT.replace("total += loss\n", "total += loss\n    other += loss.mean()\n");
    let script = second.replace("total = 0\n", "total = 0\nother = 0\n");
    sandbox.write("train.py", &script);
    let python = python.to_str().expect("a path");
    let apply = |rule: &str| {
        let names = ["train.py", "--apply", rule, "--python", python, "--device", "cpu", "--yes"];
        whatif(&sandbox, &names)
    };
    apply("graph-kept").exits_with(0).stderr_contains("Changed train.py");
    let text = std::fs::read_to_string(sandbox.project().join("train.py")).expect("the script");
    let expected = script
        .replace("total += loss\n", "total += loss.detach()\n")
        .replace("loss.mean()", "loss.detach().mean()");
    assert_eq!(text, expected);
    apply("graph-kept").exits_with(1).stderr_contains("the latest run has no finding `graph-kept`");
}
