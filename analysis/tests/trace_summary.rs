//! Checks the summary of third-party traces, on small traces with a known answer.

use ridgeline_analysis::attribution::attribute;
use ridgeline_analysis::present::trace_summary::{TraceSummary, summarize};
use ridgeline_analysis::recording::Recording;
use ridgeline_analysis::recording::chrome_trace::Options;
use ridgeline_analysis::recording::trace::Trace;

/// Parses an event from `category thread name start duration | arguments`. Times are in
/// microseconds; `~` in a name stands for a space.
fn event(line: &str) -> String {
    let (event, arguments) = line.split_once(" | ").unwrap_or((line, ""));
    let words: Vec<&str> = event.split_whitespace().collect();
    let [category, thread, name, start, duration] = words[..] else { panic!("{line}") };
    format!(
        r#"{{"ph": "X", "cat": "{category}", "name": "{}", "pid": 1, "tid": {thread}, "ts": {start},
            "dur": {duration}, "args": {{{arguments}}}}}"#,
        name.replace('~', " ")
    )
}

fn summary(events: &str) -> TraceSummary {
    summarize(&trace(events))
}

fn trace(events: &str) -> Trace {
    let events: Vec<String> =
        events.lines().map(str::trim).filter(|line| !line.is_empty()).map(event).collect();
    let json = format!("[{}]", events.join(","));
    Trace::read(json.as_bytes(), &Options::default()).unwrap()
}

#[track_caller]
fn check_iteration(events: &str, found_by: Option<&str>, expected_ms: Option<[f64; 6]>) {
    let iteration = summary(events).iteration;
    assert_eq!(iteration.found_by, found_by);
    let parts = [
        iteration.time_ms,
        iteration.data_ms,
        iteration.forward_ms,
        iteration.backward_ms,
        iteration.optimizer_ms,
        iteration.other_ms,
    ];
    assert_eq!(parts, expected_ms.map_or([None; 6], |parts| parts.map(Some)));
}

const STEP: &str = r#"
    user_annotation 1 ProfilerStep#3 0 10000
    user_annotation 1 enumerate(DataLoader)#Iter.__next__ 0 1000
    cpu_op 1 aten::stack 200 300
    cpu_op 1 aten::linear 2000 1000
    cpu_op 1 aten::addmm 2100 500 | "Sequence number": 5
    cpu_op 2 autograd::engine::evaluate_function:~AddmmBackward0 4000 2000 | "Sequence number": 5, "Fwd thread id": 1
    cpu_op 2 aten::mm 4100 1000
    user_annotation 1 Optimizer.step#SGD.step 7000 2000
    cpu_op 1 aten::_foreach_add_ 7500 1000
    cpu_op 1 aten::item 9500 100
"#;

#[test]
fn a_profiler_step_is_split_into_phases() {
    check_iteration(STEP, Some("profiler steps"), Some([10.0, 1.0, 1.0, 2.0, 2.0, 4.0]));
}

#[test]
fn optimizer_steps_are_used_if_there_are_no_profiler_steps() {
    check_iteration(
        "user_annotation 1 Optimizer.step#SGD.step 0 1000
        user_annotation 1 Optimizer.step#SGD.step 5000 1000
        user_annotation 1 Optimizer.step#SGD.step 9000 1000
        user_annotation 1 Optimizer.step#SGD.step 20000 1000",
        Some("optimizer steps"),
        Some([5.0, 0.0, 0.0, 0.0, 1.0, 4.0]),
    );
}

#[test]
fn two_optimizers_in_turn_make_one_iteration() {
    check_iteration(
        "user_annotation 1 Optimizer.step#Adam.step 0 1000
        user_annotation 1 Optimizer.step#SGD.step 2000 1000
        user_annotation 1 Optimizer.step#Adam.step 10000 1000
        user_annotation 1 Optimizer.step#SGD.step 12000 1000",
        Some("optimizer steps"),
        Some([10.0, 0.0, 0.0, 0.0, 2.0, 8.0]),
    );
}

#[test]
fn all_results_use_the_same_optimizer_steps() {
    let events = "user_annotation 1 Optimizer.step#SGD.step 0 1000
        user_annotation 1 Optimizer.step#SGD.step 5000 1000
        user_annotation 1 enumerate(DataLoader)#Iter.__next__ 6000 40000
        user_annotation 1 Optimizer.step#SGD.step 50000 1000
        user_annotation 1 Optimizer.step#SGD.step 55000 1000";
    let trace = trace(events);
    let summary = summarize(&trace);
    let iteration = summary.iteration;
    assert_eq!((iteration.time_ms, iteration.iterations), (Some(5.0), 3));
    assert_eq!((iteration.shortest_ms, iteration.longest_ms), (Some(5.0), Some(45.0)));
    assert_eq!(
        summary.notes,
        [
            "steps take 18.3 ms on average, more than the median of 5.0 ms: the largest difference is in \
          data (13.3 ms on average, 0 ns in the median step); the bottleneck is that of the median \
          step"
        ]
    );
    let profile = attribute(&Recording { trace, ..Recording::default() }).unwrap();
    assert_eq!(profile.iteration.time_ns, 5e6);
}

#[test]
fn a_host_that_runs_ahead_of_the_gpu_takes_less_than_the_iteration() {
    let iteration = summary(
        r#"user_annotation 1 ProfilerStep#1 0 1000
        user_annotation 1 ProfilerStep#2 1000 1000
        cpu_op 1 aten::mm 0 500
        cuda_runtime 1 cudaLaunchKernel 10 5 | "correlation": 1
        kernel 7 gemm 20 2990 | "correlation": 1
        cuda_runtime 1 cudaLaunchKernel 1010 5 | "correlation": 2
        kernel 7 gemm 3020 2990 | "correlation": 2"#,
    )
    .iteration;
    assert_eq!((iteration.time_ms, iteration.host_ms), (Some(2.99), Some(1.0)));
    assert_eq!((iteration.longest_ms, iteration.other_ms), (Some(3.0), Some(2.99)));
}

#[test]
fn inference_has_no_iteration() {
    check_iteration("cpu_op 1 aten::linear 0 10", None, None);
    check_iteration("user_annotation 1 Optimizer.step#SGD.step 0 10", None, None);
}

#[test]
fn operators_have_self_time_and_device_time() {
    let summary = summary(
        r#"cpu_op 1 aten::linear 0 100
        cpu_op 1 aten::addmm 10 60
        cuda_runtime 1 cudaLaunchKernel 20 5 | "correlation": 1
        kernel 7 gemm 30 500 | "correlation": 1"#,
    );
    let operators: Vec<_> =
        summary.operators.iter().map(|o| (o.name.as_str(), o.self_ns, o.device_ns)).collect();
    assert_eq!(operators, [("aten::addmm", 60_000, 500_000), ("aten::linear", 40_000, 0)]);
}

/// Expects lines in the format `file:line self total backward device`, in milliseconds.
#[track_caller]
fn check_lines(events: &str, expected: &[&str], coverage: f64) {
    let summary = summary(events);
    let lines: Vec<String> = summary
        .lines
        .iter()
        .map(|line| {
            format!(
                "{}:{} {} {} {} {}",
                line.file, line.line, line.self_ms, line.total_ms, line.backward_ms, line.device_ms
            )
        })
        .collect();
    assert_eq!(lines, expected);
    assert_eq!(summary.coverage.time, Some(coverage));
}

#[test]
fn call_stacks_give_lines_and_backward_reaches_its_forward_line() {
    check_lines(
        r#"Operator 1 aten::linear 0 2000 | "Sequence number": 7, "Call stack": "torch/nn/modules/linear.py(9): forward;model.py(30): forward;train.py(8): main"
        Operator 1 aten::randn 3000 1000 | "Call stack": "train.py(7): main"
        Operator 2 AddmmBackward0 5000 4000 | "Sequence number": 7, "Fwd thread id": 1"#,
        &["train.py:8 0 6 4 0", "model.py:30 6 6 4 0", "train.py:7 1 1 0 0"],
        1.0,
    );
}

#[test]
fn frames_give_lines_and_recursion_counts_once() {
    check_lines(
        r#"python_function 1 train.py(3):~main 0 10000
        python_function 1 model.py(5):~walk 1000 8000
        python_function 1 torch/nn/modules/module.py(1):~_call_impl 1100 7000
        python_function 1 model.py(5):~walk 2000 6000
        python_function 1 <built-in~mm> 2500 2000
        cpu_op 1 aten::mm 3000 1000
        cuda_runtime 1 cudaLaunchKernel 3100 5 | "correlation": 1
        cpu_op 1 aten::relu 9500 250
        cpu_op 3 aten::elsewhere 0 100
        kernel 7 gemm 4000 3000 | "correlation": 1
        kernel 7 leaked 1000 1000 | "correlation": 99"#,
        &["train.py:3 0.25 1.25 0 3", "model.py:5 1 1 0 3"],
        0.75,
    );
}

#[test]
fn the_gpus_peak_memory_is_preferred() {
    let memory = |device_type: u32, device: i32, total: u64| {
        format!(
            r#"{{"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1, "args": {{"Bytes": 1,
                "Device Type": {device_type}, "Device Id": {device}, "Total Allocated": {total}}}}}"#
        )
    };
    let check = |events: &[String], expected: Option<u64>| {
        let json = format!("[{}]", events.join(","));
        let trace = Trace::read(json.as_bytes(), &Options::default()).unwrap();
        assert_eq!(summarize(&trace).memory.peak_bytes, expected);
    };
    check(&[memory(0, -1, 900), memory(1, 0, 40), memory(1, 0, 70), memory(1, 0, 30)], Some(70));
    check(&[memory(0, -1, 900)], Some(900));
    check(&[], None);
}

#[test]
fn long_names_are_truncated_to_200_characters() {
    let name = "é".repeat(300);
    let summary = summary(&format!("kernel 7 {name} 0 10"));
    assert_eq!(summary.kernels[0].name.chars().count(), 200);
}
