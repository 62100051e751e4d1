//! Steps of small traces, in microseconds.

use super::*;
use ridgeline_recording::chrome_trace::Options;
use serde_json::{Value, json};

fn event(category: &str, name: &str, start: u32, duration: u32, args: Value) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1,
           "ts": start, "dur": duration, "args": args})
}

fn step(start: u32, duration: u32) -> Value {
    event("user_annotation", &format!("ProfilerStep#{start}"), start, duration, json!({}))
}

/// A launch of 10 µs and its kernel.
fn launch(number: u32, at: u32, kernel: u32, duration: u32) -> [Value; 2] {
    let on_gpu = json!({"device": 0, "stream": 7, "correlation": number});
    [
        event("cuda_runtime", "cudaLaunchKernel", at, 10, json!({"correlation": number})),
        event("kernel", "gemm", kernel, duration, on_gpu),
    ]
}

fn steps(events: Vec<Value>) -> Option<TraceSteps> {
    let json = json!({"schemaVersion": 1, "traceEvents": events}).to_string();
    TraceSteps::new(&Trace::read(json.as_bytes(), &Options::default()).unwrap())
}

#[track_caller]
fn check(events: Vec<Value>, expected_us: &[u64], median_us: u64) {
    let found = steps(events).unwrap();
    let times_us: Vec<u64> = found.times_ns.iter().map(|ns| ns / 1000).collect();
    assert_eq!(times_us, expected_us);
    assert_eq!(found.median().unwrap().time_ns / 1000, median_us);
}

#[test]
fn windows_neither_overlap_nor_end_before_they_start() {
    let windows = in_order(vec![(10, 20), (5, 12), (30, 30), (40, 35), (i64::MIN, i64::MIN)]);
    assert_eq!(windows, [(5, 12), (12, 20)]);
}

#[test]
fn a_host_that_runs_ahead_takes_as_long_as_the_gpu() {
    let mut events = vec![step(0, 1000), step(1000, 1000), step(2000, 1000)];
    events.extend(launch(1, 10, 30, 2900));
    events.extend(launch(2, 1010, 3000, 2900));
    events.extend(launch(3, 2010, 6000, 2900));
    // No kernel of a fourth step begins, so the last one takes as long as its kernel.
    check(events, &[2970, 3000, 2900], 2970);
}

#[test]
fn a_host_that_waits_for_nothing_takes_its_own_time() {
    let mut events = vec![step(0, 1000), step(1000, 1000)];
    events.extend(launch(1, 10, 30, 500));
    // The first kernel comes late, but not because the GPU is busy.
    events.extend(launch(2, 1900, 1915, 500));
    check(events, &[1000, 1000], 1000);
}

#[test]
fn skipped_steps_are_not_part_of_an_iteration() {
    let mut events = vec![step(0, 1000), step(9000, 1000)];
    events.extend(launch(1, 10, 30, 500));
    events.extend(launch(2, 9010, 9500, 500));
    check(events, &[1000, 1000], 1000);
}

#[test]
fn empty_steps_at_the_ends_are_dropped() {
    let events = vec![step(0, 5), step(5, 1000), step(1005, 49)];
    let work = event("cpu_op", "aten::mm", 100, 200, json!({}));
    check([events.clone(), vec![work]].concat(), &[1000], 1000);
    check(events, &[5, 1000, 49], 49);
}

#[test]
fn the_median_of_two_is_the_shorter_one() {
    let work = |at| event("cpu_op", "aten::mm", at, 10, json!({}));
    check(vec![step(0, 1000), step(1000, 3000), work(10), work(1010)], &[1000, 3000], 1000);
}
