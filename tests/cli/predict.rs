//! `ridgeline predict`, on a trace of a GPU, on real ones, and on a program.

use serde_json::{Value, json};

use crate::cli::schema;
use crate::sandbox::{CommandResult, Sandbox, python_with_torch, repository, shared_traces};

/// A V100 runs ten large copies. The host launches all of them and waits: memory-bound.
fn copies() -> String {
    let mut events = vec![json!({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1",
                                 "pid": 1, "tid": 1, "ts": 0, "dur": 10_000})];
    for number in 0..10 {
        let correlation = json!({"correlation": number + 1});
        events.push(json!({"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1,
            "ts": 10 + 10 * number, "dur": 8, "args": {
                "Input Dims": [[100_000_000], [100_000_000], []],
                "Input type": ["float", "float", "Scalar"]}}));
        events.push(json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel",
            "pid": 1, "tid": 1, "ts": 12 + 10 * number, "dur": 5, "args": correlation}));
        events.push(json!({"ph": "X", "cat": "kernel", "pid": 0, "tid": 7,
            "name": "void at::native::vectorized_elementwise_kernel<4>",
            "ts": 100 + 1000 * number, "dur": 1000, "args": {
                "device": 0, "stream": 7, "correlation": number + 1,
                "grid": [781_250, 1, 1], "block": [128, 1, 1],
                "registers per thread": 32, "shared memory": 0}}));
    }
    events.push(json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaDeviceSynchronize",
        "pid": 1, "tid": 1, "ts": 120, "dur": 9_880}));
    json!({"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000_u64,
        "deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-16GB", "numSms": 80,
                              "computeMajor": 7, "computeMinor": 0}],
        "traceEvents": events})
    .to_string()
}

fn predict(sandbox: &Sandbox, arguments: &[&str]) -> CommandResult {
    let mut all = vec!["predict", "copies.json"];
    all.extend(arguments);
    sandbox.run(&all)
}

fn with_copies() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("copies.json", copies());
    sandbox
}

fn document(result: &CommandResult) -> Value {
    let document = serde_json::from_str(&result.stdout).expect("JSON and nothing else");
    schema::validate(&document, "predict");
    document
}

fn rows(result: &CommandResult) -> Vec<Value> {
    document(result)["predictions"][0]["rows"].as_array().expect("rows").clone()
}

#[test]
fn memory_bound_time_scales_with_bandwidth() {
    let sandbox = with_copies();
    let result = predict(&sandbox, &["--gpu", "a100-sxm4-40gb", "--json", "-"]).exits_with(0);
    let rows = rows(&result);
    let time = |name: &str| {
        let row = rows.iter().find(|row| row["name"] == name).expect(name);
        row["time_ns"]["value"].as_f64().expect("a time")
    };
    // The recorded GPU is listed next to the requested ones.
    assert_eq!(rows.len(), 2);
    let ratio = time("V100-SXM2-16GB") / time("A100-SXM4-40GB");
    assert!((ratio / (1555.0 / 900.0) - 1.0).abs() < 0.1, "{ratio}");
}

#[test]
fn table_of_all_devices() {
    let sandbox = with_copies();
    let result = predict(&sandbox, &[]).exits_with(0);
    result
        .stdout_contains("V100-SXM2-16GB (here)")
        .stdout_contains("~ = predicted, scaled from the kernels");
}

#[test]
fn unknown_names_get_suggestions() {
    let sandbox = with_copies();
    predict(&sandbox, &["--gpu", "RTX 4091"]).exits_with(2).stderr_contains("RTX4090");
    predict(&sandbox, &["--gpu", "A100"]).exits_with(0).stdout_contains("A100-PCIe-80GB");
    predict(&sandbox, &["--gpu", ""]).exits_with(2);
}

#[test]
fn custom_gpu_and_price() {
    let sandbox = with_copies();
    let ours = "name = \"Ours\"\narchitecture = \"9.0\"\nmultiprocessors = 100\nmemory_gb = 96\n\
                bandwidth_gb_per_s = 1800\nfp32_tflops = 50\n";
    sandbox.write("gpus/ours.toml", ours);
    let config = "[devices]\nfiles = [\"gpus/ours.toml\", \"gone.toml\"]\n\
                  [devices.prices]\nOurs = 0.5\n\"RTX 9999\" = 1\n";
    sandbox.write("ridgeline.toml", config);
    let result = predict(&sandbox, &["--gpu", "Ours"]).exits_with(0);
    result
        .stdout_contains("Ours")
        .stdout_contains("$0.50 (yours)")
        .stderr_contains("gone.toml")
        .stderr_contains("RTX 9999");
    let result = predict(&sandbox, &["--gpu", "gpus/ours.toml"]).exits_with(0);
    result.stdout_contains("Ours");
    sandbox.write("gpus/ours.toml", ours.replace("= 100", "= -1"));
    let result = predict(&sandbox, &["--gpu", "gpus/ours.toml"]).exits_with(2);
    result.stderr_contains("`multiprocessors`, line 3");
}

#[test]
fn a_price_limit_leaves_out_expensive_gpus() {
    let sandbox = with_copies();
    let result = predict(&sandbox, &["--max-price", "0.5", "--json", "-"]).exits_with(0);
    for row in rows(&result) {
        let usd = row["usd_per_hour"].as_f64();
        assert!(row["here"] == true || usd.is_some_and(|usd| usd <= 0.5), "{row}");
    }
    let result = predict(&sandbox, &["--max-price", "0.01"]).exits_with(2);
    result.stderr_contains("no GPU with a price of at most $0.01 per hour");
    predict(&sandbox, &["--max-price=-1"]).exits_with(2).stderr_contains("US dollars");
}

#[test]
fn failed_predictions_give_the_reason() {
    let sandbox = with_copies();
    let result = predict(&sandbox, &["--batch-size", "8"]).exits_with(2);
    result.stderr_contains("its batch size is fixed");
    predict(&sandbox, &["--estimate"]).exits_with(2).stderr_contains("it is already measured");
    sandbox.write("none.json", r#"{"schemaVersion": 1, "traceEvents": []}"#);
    sandbox.run(&["predict", "none.json"]).exits_with(1).stderr_contains("no kernels or operators");
    sandbox.write("broken.json", "{");
    sandbox.run(&["predict", "broken.json"]).exits_with(1);
    sandbox.run(&["predict", "gone.py"]).exits_with(3);
}

#[test]
fn real_traces() {
    let Some(traces) = shared_traces() else { return };
    let sandbox = Sandbox::new();
    let trace = traces.join("h100_owlv2_infer.json.gz");
    let trace = trace.to_str().expect("a path");
    let result = sandbox.run(&["predict", trace, "--gpu", "T4", "b200", "--json", "-"]);
    let rows = rows(&result.exits_with(0));
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["B200-SXM6-180GB", "H100-SXM5-80GB", "T4"]);
}

#[test]
fn a_program_on_fake_tensors() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let demo = repository().join("demo-projects/gpt");
    let (demo, python) = (demo.to_str().expect("a path"), python.to_str().expect("a path"));
    let result = sandbox.run(&["predict", demo, "--python", python, "--estimate", "--json", "-"]);
    let result = result.exits_with(0);
    let rows = rows(&result);
    assert!(rows.iter().all(|row| row["here"] == false && row["fits"] == true));
    let times: Vec<f64> = rows.iter().filter_map(|row| row["time_ns"]["value"].as_f64()).collect();
    assert!(times.len() > 40 && times.is_sorted());
}

#[test]
fn other_batch_sizes_leave_the_script_unchanged() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let demo = repository().join("demo-projects/ncf");
    for file in std::fs::read_dir(&demo).expect("the demo").flatten() {
        if file.path().is_file() {
            let name = file.file_name().into_string().expect("a name");
            sandbox.write(&name, std::fs::read(file.path()).expect("a file"));
        }
    }
    let before = std::fs::read(sandbox.project().join("train.py")).expect("the script");
    let python = python.to_str().expect("a path");
    let arguments = ["predict", "train.py", "--python", python, "--device", "cpu"];
    for how in [&["--estimate"][..], &[]] {
        let file = sandbox.path("predictions.json");
        let written = ["--batch-size", "64", "128", "--json", file.to_str().expect("a path")];
        let result = sandbox.run(&[&arguments[..], how, &written].concat()).exits_with(0);
        let document = std::fs::read_to_string(&file).expect("predictions");
        let document: Value = serde_json::from_str(&document).expect("JSON");
        schema::validate(&document, "predict");
        let sizes: Vec<&Value> = document["predictions"]
            .as_array()
            .expect("predictions")
            .iter()
            .map(|one| &one["batch_size"])
            .collect();
        assert_eq!(sizes, [64, 128]);
        if how.is_empty() {
            // The host takes as long for an operator of either batch, however busy this machine was.
            let words: Vec<&str> = result.stdout.split(" per operator").collect();
            let times = words.iter().rev().skip(1).map(|text| text.rsplit("this one: ").next());
            let times: Vec<_> = times.collect();
            // Where the iteration waits for data, that is shown instead.
            assert!(times.windows(2).all(|pair| pair[0] == pair[1]), "{times:?}");
        }
    }
    assert_eq!(std::fs::read(sandbox.project().join("train.py")).expect("the script"), before);
    // These runs left no measurement in the project's history.
    sandbox.run(&["report"]).exits_with(3).stderr_contains("has not been profiled yet");
    sandbox.write("train.py", "import torch\nfor i in range(10):\n    pass\n");
    let result = sandbox.run(&[&arguments[..], &["--batch-size", "64"]].concat());
    result.exits_with(2).stderr_contains("--batch-size 64");
}

#[test]
fn a_program_on_a_cpu() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let demo = repository().join("demo-projects/ncf");
    let (demo, python) = (demo.to_str().expect("a path"), python.to_str().expect("a path"));
    let result =
        sandbox.run(&["predict", demo, "--python", python, "--device", "cpu", "--json", "-"]);
    let result = result.exits_with(0);
    let document = document(&result);
    let prediction = &document["predictions"][0];
    assert_eq!(prediction["basis"], "operator costs");
    assert_eq!(prediction["from"], Value::Null);
    assert!(prediction["samples_per_epoch"].as_u64().is_some(), "{prediction}");
    assert!(rows(&result).iter().all(|row| row["fits"] == true));
}

/// Several GPUs have a higher throughput than one, but less than in proportion.
#[test]
fn one_gpu_and_several() {
    let sandbox = Sandbox::new();
    let recording = repository().join("tests/recordings/conv-cpu");
    let arguments = ["predict", recording.to_str().expect("a path"), "--gpu", "4090", "T4"];
    let result = sandbox.run(&[&arguments[..], &["--json", "-"]].concat()).exits_with(0);
    let document = document(&result);
    let machines = document["predictions"][0]["machines"].as_array().expect("machines");
    for name in ["RTX4090", "T4"] {
        let rate = |gpus: u64| {
            let is_it = |one: &&Value| one["name"] == name && one["gpus"] == gpus;
            let machine = machines.iter().find(is_it).expect("a machine");
            machine["samples_per_second"]["value"].as_f64().expect("a number")
        };
        assert!(rate(1) < rate(2) && rate(4) < rate(8), "{machines:?}");
        assert!(rate(8) < rate(1) * 8.0, "{machines:?}");
    }
    let result = sandbox.run(&[&arguments[..], &["--max-price", "1"]].concat()).exits_with(0);
    let result =
        result.stdout_contains("One GPU or several in a machine").stdout_contains("2 x T4");
    let result = result.stdout_contains("Highest throughput for at most $1.00 per hour: 2 x");
    assert!(!result.stdout.contains("8 x T4"), "{}", result.stdout);
}

/// A small model is overhead-bound on every GPU, which is reported above the table.
#[test]
fn a_program_that_is_overhead_bound_everywhere() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    sandbox.write("train.py", include_str!("scripts/train.py"));
    let python = python.to_str().expect("a path");
    let arguments = ["predict", "train.py", "--python", python, "--device", "cpu", "--estimate"];
    let result = sandbox.run(&arguments).exits_with(0);
    assert!(
        result.stdout.starts_with("Overhead-bound on all of these GPUs: launching the "),
        "{}",
        result.stdout
    );
    result.stdout_contains("Assumes 15 µs of CPU time per launch (7.0 µs to 35 µs)");
}

/// An iteration that takes equally long on every GPU says nothing about them. The batch size that keeps each
/// of them busy does.
#[test]
fn the_batch_size_that_each_gpu_needs() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let demo = repository().join("demo-projects/gpt");
    for name in ["train.py", "model.py", "corpus.py"] {
        sandbox.write(name, std::fs::read(demo.join(name)).expect("a file"));
    }
    let python = python.to_str().expect("a path");
    let arguments = ["predict", "train.py", "--python", python, "--device", "cpu"];
    let gpus = ["--gpu", "T4", "H100-SXM5-80GB"];
    let result = sandbox.run(&[&arguments[..], &gpus, &["--json", "-"]].concat()).exits_with(0);
    let document = document(&result);
    let prediction = &document["predictions"][0];
    assert_eq!(prediction["batch_size"], 8, "{}", result.stderr);
    let batch = |name: &str| {
        let rows = prediction["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 2, "only the named GPUs: {prediction}");
        rows.iter().find(|row| row["name"] == name).expect(name)["batch"].clone()
    };
    let (slow, fast) = (batch("T4"), batch("H100-SXM5-80GB"));
    let size = |batch: &Value| batch["size"].as_u64().expect("a number");
    assert!(size(&slow) < size(&fast), "{slow} {fast}");
    let largest = |batch: &Value| batch["largest"]["value"].as_u64().expect("a number");
    assert!(size(&fast) < largest(&slow) && largest(&slow) < largest(&fast), "{slow} {fast}");

    let result = sandbox.run(&[&arguments[..], &gpus].concat()).exits_with(0);
    let result = result
        .stderr_contains("Using the profile")
        .stdout_contains("Batch size that keeps each GPU busy");
    result.stdout_contains("Cheapest: T4 with batch size");
}

#[test]
fn a_batch_size_that_is_not_a_number_in_the_text_gives_a_note() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let python = python.to_str().expect("a path");
    sandbox.write(
        "train.py",
        "import torch\nmodel = torch.nn.Linear(8, 8)\n\
         optimizer = torch.optim.AdamW(model.parameters())\ninputs = torch.ones(len(\"four\"), 8)\n\
         for step in range(100):\n    optimizer.zero_grad()\n    model(inputs).sum().backward()\n\
         \x20   optimizer.step()\n",
    );
    let result = sandbox.run(&["predict", "train.py", "--python", python, "--device", "cpu"]);
    let result = result.exits_with(0);
    result
        .stderr_contains("note: the batch size that each GPU needs is unknown: ")
        .stdout_contains("GPU  ");
}

#[test]
fn fp8_kernels_are_only_predicted_for_gpus_that_run_them() {
    let sandbox = Sandbox::new();
    let trace = r#"{"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}],
        "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::_scaled_mm", "pid": 1, "tid": 1, "ts": 1,
         "dur": 9},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 2,
         "dur": 3, "args": {"correlation": 7}},
        {"ph": "X", "cat": "kernel", "name": "void cutlass::device_kernel<fp8_gemm>()", "pid": 0,
         "tid": 7, "ts": 6, "dur": 900, "args": {"device": 0, "stream": 7, "correlation": 7}}]}"#;
    sandbox.write("fp8.json", trace);
    let result = sandbox.run(&["predict", "fp8.json", "--gpu", "all"]).exits_with(0);
    let result = result.stdout_contains("without FP8 tensor cores are left out");
    assert!(result.stdout.contains("H200"), "{}", result.stdout);
    assert!(!result.stdout.contains("V100"), "{}", result.stdout);
}
