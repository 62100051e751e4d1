//! `ridgeline analyze`, on real traces and on files that are not traces.

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::cli::schema;
use crate::sandbox::{Sandbox, shared_traces};

/// The reference truncates kernel names to this many characters.
const NAME_CHARACTERS: usize = 200;

/// A trace of torch 2.4 and later with one operator and its kernel.
const SMALL: &str = r#"{"schemaVersion": 1, "baseTimeNanoseconds": 1700000000000000000,
 "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132, "computeMajor": 9, "computeMinor": 0}],
 "traceEvents": [
 {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 100.5, "dur": 50.25},
 {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 110, "dur": 5, "args": {"correlation": 7}},
 {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 120, "dur": 10.5, "args": {"device": 0, "stream": 7, "correlation": 7}},
 {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 140, "dur": 1, "args": {"device": 0, "stream": 7, "correlation": 8}}
 ]}"#;

#[test]
fn sample_traces_match_their_references() {
    let Some(traces) = shared_traces() else { return };
    let sandbox = Sandbox::new();
    let mut compared = 0;
    for entry in std::fs::read_dir(traces).expect("the folder").flatten() {
        let reference = entry.path();
        let name = reference.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(stem) = name.strip_suffix(".ref.json") else { continue };
        let trace = reference.with_file_name(format!("{stem}.json.gz"));
        let json = sandbox.path("out.json");
        sandbox.run(&[Path::new("analyze"), &trace, Path::new("--json"), &json]).exits_with(0);
        let read = |file: &Path| -> Value {
            serde_json::from_slice(&std::fs::read(file).expect("it is there")).expect("JSON")
        };
        schema::validate(&read(&json), "analysis");
        compare(stem, &read(&json), &read(&reference));
        compared += 1;
    }
    assert!(compared > 0, "no reference was found");
}

fn compare(trace: &str, ours: &Value, reference: &Value) {
    for (key, theirs) in [
        ("span_ns", "span"),
        ("busy_ns", "busy_union"),
        ("idle_ns", "idle"),
        ("kernel_ns", "sum_kernel"),
        ("compute_ns", "union_compute"),
        ("communication_ns", "union_comm"),
        ("memory_ns", "union_memory"),
        ("exposed_ns", "exposed_non_compute"),
        ("activities", "n_gpu_activities"),
        ("kernels", "n_kernels"),
    ] {
        assert_eq!(ours["gpu"][key], reference[theirs], "{trace}: {key}");
    }
    let streams = ours["gpu"]["streams"].as_array().expect("streams");
    for (stream, theirs) in reference["streams"].as_object().expect("streams") {
        let number: i64 = stream.parse().expect("a number");
        let same = |ours: &&Value| ours["stream"] == number;
        let ours = streams.iter().find(same).expect("the stream");
        assert_eq!(ours["activities"], theirs["n"], "{trace}: stream {stream}");
        assert_eq!(ours["busy_ns"], theirs["busy"], "{trace}: stream {stream}");
    }
    explained(trace, ours, reference);
    let kernels = ours["kernels"].as_array().expect("kernels");
    for theirs in reference["top_kernels"].as_array().expect("kernels") {
        let same = |ours: &&Value| {
            let name: String =
                ours["name"].as_str().unwrap_or_default().chars().take(NAME_CHARACTERS).collect();
            theirs["name"] == name
                && ours["calls"] == theirs["calls"]
                && ours["total_ns"] == theirs["total"]
        };
        assert!(kernels.iter().any(|ours| same(&ours)), "{trace}: {theirs}");
    }
    let activities: u64 = kernels.iter().filter_map(|kernel| kernel["calls"].as_u64()).sum();
    assert_eq!(activities, reference["n_gpu_activities"], "{trace}: activities");
}

/// The simulated bottleneck agrees with the trace's own metrics and with the reference.
fn explained(trace: &str, ours: &Value, reference: &Value) {
    /// Tolerance: the reference covers the whole trace, the simulation its median iteration.
    const BETWEEN_ITERATIONS: f64 = 0.05;
    let number = |value: &Value| value.as_f64().expect("a number");
    let found = &ours["bottleneck"];
    let busy = number(&found["gpu_busy"]);
    assert!((busy - number(&ours["utilization"]["gpu_busy"])).abs() < 1e-5, "{trace}: {found}");
    let steps = reference["profiler_steps"].as_array().expect("steps");
    let steps: f64 = steps.iter().map(|step| number(&step["dur"])).sum();
    let whole = if steps > 0.0 { steps } else { number(&reference["span"]) };
    let idle = 1.0 - number(&reference["busy_union"]) / whole;
    let exposed = number(&reference["exposed_non_compute"]) / whole;
    let savings = found["savings"].as_array().expect("savings");
    for saving in savings {
        let share = number(&saving["at_most_share"]);
        // Causes on the host save at most the GPU's idle time. Copies and communication save at most
        // the time without compute.
        let (at_most, in_reference) = match saving["cause"].as_str() {
            Some("launch_overhead" | "host_code" | "synchronization" | "data_loading" | "host") => {
                (1.0 - busy, idle)
            }
            Some("host_copies" | "communication") => (1.0, idle + exposed),
            Some("compute" | "memory_bandwidth" | "kernels") => (busy, 1.0 - idle),
            other => panic!("{trace}: {other:?}"),
        };
        assert!(share <= at_most + 1e-5, "{trace}: {saving} where {at_most} is the most");
        let in_reference = in_reference + BETWEEN_ITERATIONS;
        assert!(share <= in_reference, "{trace}: {saving} where the reference has {in_reference}");
    }
    let gpu = &ours["gpu"];
    let exposed = number(&gpu["exposed_communication_ns"]);
    assert!(exposed <= number(&gpu["communication_ns"]), "{trace}");
    assert!(exposed <= number(&gpu["exposed_ns"]), "{trace}");
    assert!((0.0..=1.0).contains(&busy), "{trace}: {busy}");
}

#[test]
fn bottlenecks_of_the_sample_traces() {
    let Some(traces) = shared_traces() else { return };
    let sandbox = Sandbox::new();
    for (name, verdict, tensor_cores) in [
        ("a100_ddp_train_nccl", "launch_overhead", Some(true)),
        ("b200_eager_infer", "launch_overhead", Some(true)),
        ("h100_owlv2_infer", "data_loading", Some(true)),
        // The first convolutions benchmark their algorithms.
        ("mi300x_resnet18_ddp_train", "host_code", Some(true)),
        // Data loading is 43% of the run, but in few of its optimizer steps: the median one has
        // none, and a note reports the others.
        ("rtx2080ti_resnet_train", "host_copies", Some(false)),
        ("v100_8gpu_train_mem", "launch_overhead", Some(false)),
        ("v100_resnet50_train_nw0", "launch_overhead", Some(false)),
    ] {
        let trace = traces.join(format!("{name}.json.gz"));
        let json = sandbox.path("out.json");
        sandbox.run(&[Path::new("analyze"), &trace, Path::new("--json"), &json]).exits_with(0);
        let found: Value =
            serde_json::from_slice(&std::fs::read(&json).expect("it is there")).expect("JSON");
        let bottleneck = &found["bottleneck"];
        assert_eq!(bottleneck["verdict"], verdict, "{name}: {}", bottleneck["text"]);
        let share = found["utilization"]["tensor_cores"].as_f64();
        assert_eq!(share.map(|share| share > 0.5), tensor_cores, "{name}: {share:?}");
        if name == "rtx2080ti_resnet_train" {
            let notes = found["notes"].to_string();
            assert!(notes.contains("the largest difference is in data"), "{notes}");
        }
        if name == "v100_resnet50_train_nw0" {
            // Its loader has no workers: PyTorch's own range for it is 39% of the iterations. Part of
            // that is hidden behind GPU work that is still queued.
            let savings = bottleneck["savings"].as_array().expect("savings");
            let loading = savings.iter().find(|saving| saving["cause"] == "data_loading");
            let loading = loading.and_then(|saving| saving["at_most_share"].as_f64());
            assert!(loading.is_some_and(|share| (0.25..0.39).contains(&share)), "{loading:?}");
        }
    }
}

#[test]
fn a_small_trace() {
    let sandbox = Sandbox::new();
    sandbox.write("small.json", SMALL);
    let result = sandbox.run(&["analyze", "small.json", "--json", "-"]).exits_with(0);
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON and nothing else");
    assert_eq!(json["schema"], 1);
    assert_eq!(json["device"]["name"], "NVIDIA H100");
    assert_eq!(json["gpu"]["span_ns"], 21_000);
    assert_eq!(json["gpu"]["busy_ns"], 11_500);
    assert_eq!(json["gpu"]["idle_ns"], 9_500);
    assert_eq!(json["kernels"][0]["name"], "gemm");
    assert_eq!(json["kernels"][0]["total_ns"], 11_500);
    for key in ["device", "iteration", "memory", "coverage", "lines", "modules"] {
        assert!(!json[key].is_null(), "{key}");
    }
    sandbox
        .run(&["analyze", "small.json"])
        .exits_with(0)
        .stdout_contains("gemm")
        .stdout_contains("NVIDIA H100");
}

#[test]
fn compression_is_detected_by_content() {
    let sandbox = Sandbox::new();
    sandbox.write("trace.bin", zipped(SMALL.as_bytes()));
    sandbox.run(&["analyze", "trace.bin"]).exits_with(0).stdout_contains("gemm");
}

#[test]
fn a_trace_without_a_gpu() {
    let sandbox = Sandbox::new();
    let cpu = r#"{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1,
        "tid": 1, "ts": 1, "dur": 2}]}"#;
    sandbox.write("cpu.json", cpu);
    let result = sandbox.run(&["analyze", "cpu.json", "--json", "-"]).exits_with(0);
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON");
    schema::validate(&json, "analysis");
    assert_eq!(json["gpu"]["span_ns"], 0);
    assert_eq!(json["device"]["kind"], "cpu");
    sandbox.run(&["analyze", "cpu.json"]).exits_with(0).stdout_contains("aten::mm");
}

#[test]
fn a_gpu_run_without_kernels_is_not_predicted() {
    let sandbox = Sandbox::new();
    let launch = r#"{"traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 2,
         "dur": 3, "args": {"correlation": 7}}]}"#;
    sandbox.write("launch.json", launch);
    sandbox.run(&["analyze", "launch.json"]).exits_with(0).stdout_contains("no GPU activities");
    for command in ["predict", "whatif"] {
        let gpu: &[&str] = if command == "predict" { &["--gpu", "all"] } else { &[] };
        let arguments = [&[command, "launch.json"], gpu].concat();
        sandbox.run(&arguments).exits_with(1).stderr_contains("no GPU activities");
    }
}

#[test]
fn an_operator_of_unknown_cost_is_not_predicted() {
    let sandbox = Sandbox::new();
    let cpu = r#"{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1,
        "tid": 1, "ts": 1, "dur": 9000}]}"#;
    sandbox.write("cpu.json", cpu);
    sandbox.run(&["analyze", "cpu.json"]).exits_with(0).stdout_contains("ops of unknown cost");
    sandbox
        .run(&["predict", "cpu.json", "--gpu", "all"])
        .exits_with(1)
        .stderr_contains("in ops of unknown cost");
}

#[test]
fn truncated_traces_are_analyzed_with_a_warning() {
    let sandbox = Sandbox::new();
    let cut = &SMALL.as_bytes()[..SMALL.len() - 60];
    sandbox.write("cut.json", cut);
    sandbox
        .run(&["analyze", "cut.json"])
        .exits_with(0)
        .stdout_contains("gemm")
        .stdout_contains("is truncated");
    let whole = zipped(SMALL.as_bytes());
    sandbox.write("cut.json.gz", &whole[..whole.len() - 12]);
    sandbox.run(&["analyze", "cut.json.gz"]).exits_with(0).stdout_contains("is truncated");
}

#[test]
fn invalid_traces_are_rejected_by_name() {
    let sandbox = Sandbox::new();
    for (name, bytes) in [
        ("empty.json", b"".to_vec()),
        ("list.json", b"[1, 2, 3]".to_vec()),
        ("nothing.json", br#"{"traceEvents": []}"#.to_vec()),
        ("other.json", b"{\"a\": 1}".to_vec()),
        ("text.json", b"hello".to_vec()),
        ("binary.json", vec![0xff; 4096]),
        ("nul.json", vec![0; 4096]),
        ("deep.json", b"[".repeat(20_000)),
        ("deep_event.json", [&br#"{"traceEvents": ["#[..], &b"{\"a\":".repeat(20_000)].concat()),
        ("bad.json.gz", [&[0x1f, 0x8b, 8, 0], &[7; 100][..]].concat()),
        ("empty.json.gz", zipped(b"")),
    ] {
        sandbox.write(name, bytes);
        sandbox.run(&["analyze", name]).exits_with(1).stderr_contains(name);
    }
    sandbox.run(&["analyze", "gone.json"]).exits_with(1).stderr_contains("gone.json");
    sandbox.run(&["analyze", "."]).exits_with(1).stderr_contains("Pass one trace file");
    sandbox.write("empty/notes.txt", "");
    sandbox.run(&["analyze", "empty"]).exits_with(1).stderr_contains("manifest.json");
}

#[test]
fn hostile_numbers_and_names_are_handled() {
    let sandbox = Sandbox::new();
    let hostile = r#"{"traceEvents": [
     {"ph": "X", "cat": "kernel", "name": "\u001b[2J\ud800\u0000", "pid": 0, "tid": 7, "ts": -1e300, "dur": 1e300, "args": {"stream": 7}},
     {"ph": "X", "cat": "kernel", "name": "k", "pid": -9e18, "tid": "x", "ts": 9223372036854775807, "dur": 9223372036854775807, "args": {"stream": -1, "correlation": 1e999}},
     {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": -5, "args": {"grid": [-1, 0, 4294967296], "warps per SM": "inf"}},
     {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 5, "args": {"stream": 7}}
     ]}"#;
    sandbox.write("hostile.json", hostile);
    let result = sandbox.run(&["analyze", "hostile.json"]).exits_with(0);
    assert!(
        !result.stdout.contains('\u{1b}') && !result.stdout.contains('\0'),
        "{}",
        result.stdout
    );
    sandbox.run(&["analyze", "hostile.json", "--json", "out.json"]).exits_with(0);
}

#[test]
fn the_recorded_environment_is_never_shown() {
    let sandbox = Sandbox::new();
    let metadata = r#"{"metadata": {"env": {"TOKEN": "12345678"}}, "traceEvents": ["#;
    let trace =
        SMALL.replacen("{\"schemaVersion\": 1,", &metadata.replace("\"traceEvents\": [", ""), 1);
    sandbox.write("trace.json", trace);
    let result = sandbox.run(&["analyze", "trace.json", "--json", "-"]).exits_with(0);
    assert!(!result.stdout.contains("12345678"));
}

#[test]
fn unwritable_output_files_are_named() {
    let sandbox = Sandbox::new();
    sandbox.write("small.json", SMALL);
    let arguments = ["analyze", "small.json", "--json", "no/such/folder/out.json"];
    sandbox.run(&arguments).exits_with(1).stderr_contains("no/such/folder/out.json");
    if Path::new("/dev/full").exists() {
        let arguments = ["analyze", "small.json", "--json", "/dev/full"];
        sandbox.run(&arguments).exits_with(1).stderr_contains("the disk is full");
    }
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// Returns a trace of this many consecutive operators.
fn plain_trace(operators: u32) -> String {
    let event = |index: u32| {
        let start = index * 5;
        format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":{start},"dur":3}}"#
        )
    };
    format!("[{}]", (0..operators).map(event).collect::<Vec<_>>().join(","))
}

#[test]
fn traces_over_the_memory_limit_are_rejected_with_advice() {
    let sandbox = Sandbox::new();
    sandbox.write("large.json", plain_trace(50_000));
    let refused = sandbox.run(&["analyze", "large.json", "--max-memory", "1"]).exits_with(1);
    refused
        .stderr_contains("more than 1 MB of memory")
        .stderr_contains("--max-memory")
        .stderr_contains("large.json");
    sandbox.run(&["analyze", "large.json", "--max-memory", "100"]).exits_with(0);
    sandbox.run(&["analyze", "large.json", "--max-memory", "0"]).exits_with(2);
}

/// The memory limit is far below the 850 MB that a trace of this size once took. The trace is still
/// summarized.
#[test]
#[cfg(target_os = "linux")]
fn a_million_events_fit_in_little_memory() {
    let sandbox = Sandbox::new();
    sandbox.write("million.json", plain_trace(1_000_000));
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "ulimit -v 600000 && exec \"$0\" analyze million.json --json out.json"])
        .arg(sandbox.ridgeline().get_program())
        .current_dir(sandbox.project());
    crate::sandbox::run_to_end(&mut command).exits_with(0);
    let json = std::fs::read(sandbox.project().join("out.json")).expect("written");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json["trace"]["operators"], 1_000_000);
    let notes = json["notes"].to_string();
    assert!(notes.contains("the bottleneck and the utilization are unknown"), "{notes}");
}
