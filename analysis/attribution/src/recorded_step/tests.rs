use serde_json::{Value, json};

use super::*;
use crate::attribute;
use ridgeline_recording::chrome_trace::Options;

/// Creates an event of one thread, in microseconds.
fn event(category: &str, name: &str, start: u32, duration: u32, args: Value) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1,
               "ts": start, "dur": duration, "args": args})
}

/// Creates an operator on tensors of 1,000 elements.
fn operator(name: &str, start: u32, duration: u32, tensors: usize) -> Value {
    let args = json!({"Input Dims": vec![vec![1000]; tensors],
                          "Input type": vec!["float"; tensors]});
    event("cpu_op", name, start, duration, args)
}

fn step(mut events: Vec<Value>, manifest: Option<Value>) -> RecordedStep {
    events.push(event("user_annotation", "ProfilerStep#1", 0, 1000, json!({})));
    let json = json!({"schemaVersion": 1, "traceEvents": events}).to_string();
    let trace = Trace::read(json.as_bytes(), &Options::default()).unwrap();
    let manifest = manifest
        .map(|manifest| Manifest::parse(manifest.to_string().as_bytes()).expect("a manifest"));
    let recording = Recording { trace, manifest, ..Recording::default() };
    recorded_step(&recording, &attribute(&recording).unwrap())
}

/// Returns operators with their numbers of calls.
fn counts(step: &RecordedStep) -> Vec<(&str, f64)> {
    let counted = step.operators.iter();
    counted.map(|counted| (counted.operator.name.as_str(), counted.calls)).collect()
}

#[test]
fn operators_are_counted_without_those_within() {
    let events = vec![
        operator("aten::linear", 10, 50, 2),
        operator("aten::mul", 20, 10, 2),
        operator("aten::mul", 100, 10, 2),
        operator("aten::mul", 120, 10, 2),
        // A conversion counts as the operators that it calls; if it calls none, it is not counted.
        operator("aten::to", 200, 50, 1),
        operator("aten::copy_", 210, 30, 2),
        operator("aten::to", 300, 50, 1),
        operator("aten::mul", 5000, 10, 2),
    ];
    let step = step(events, None);
    let counts = counts(&step);
    assert!(counts.contains(&("aten::mul", 2.0)), "{counts:?}");
    assert!(counts.contains(&("aten::copy_", 1.0)), "{counts:?}");
    assert!(!counts.iter().any(|(name, _)| *name == "aten::to"), "{counts:?}");
}

#[test]
fn loader_operators_are_not_counted() {
    let loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    let events = vec![
        event("user_annotation", loader, 0, 100, json!({})),
        operator("aten::mul", 10, 10, 2),
        operator("aten::add", 110, 10, 2),
    ];
    assert_eq!(counts(&step(events, None)), [("aten::add", 1.0)]);
}

fn updates(optimizer: Value) -> Vec<(String, f64)> {
    let events = vec![
        event("user_annotation", "Optimizer.step#SGD.step", 0, 100, json!({})),
        operator("aten::add_", 10, 10, 2),
        operator("aten::add_", 30, 10, 2),
        operator("aten::add_", 200, 10, 2),
    ];
    let manifest = json!({"schema": 1, "device": {"kind": "cpu"}, "optimizers": [optimizer],
                              "iterations": {"profiled": [[0, 1_000_000]], "timed_ns": [900_000]}});
    let step = step(events, Some(manifest));
    counts(&step).into_iter().map(|(name, calls)| (name.to_owned(), calls)).collect()
}

#[test]
fn updates_are_merged_unless_the_program_chose() {
    let counted = |name: &str, calls| (name.to_owned(), calls);
    let merged = [counted("aten::add_", 1.0), counted("aten::_foreach_add_", 1.0)];
    assert_eq!(updates(json!({"type": "SGD"})), merged);
    let alone = [counted("aten::add_", 2.0), counted("aten::add_", 1.0)];
    assert_eq!(updates(json!({"type": "SGD", "foreach": false})), alone);
}

#[test]
fn host_time_is_the_time_between_calls() {
    let call = |name: &str, start, duration, correlation: u32| {
        let args = json!({"correlation": correlation});
        event("cuda_runtime", name, start, duration, args)
    };
    let kernel = |start, duration, correlation: u32| {
        json!({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": start,
                   "dur": duration, "args": {"device": 0, "stream": 7, "correlation": correlation}})
    };
    let step = step(
        vec![
            call("cudaLaunchKernel", 100, 10, 1),
            call("cudaLaunchKernel", 150, 10, 2),
            call("cudaStreamSynchronize", 200, 300, 3),
            kernel(120, 100, 1),
            kernel(220, 250, 2),
            // Launched before the iteration.
            kernel(10, 20, 99),
        ],
        None,
    );
    let counted: Vec<(f64, f64, HostEventKind)> =
        step.host.iter().map(|event| (event.before_ns, event.call_ns, event.kind)).collect();
    let expected = [
        (100e3, 10e3, HostEventKind::Launch(0)),
        (40e3, 10e3, HostEventKind::Launch(1)),
        (40e3, 300e3, HostEventKind::Wait),
    ];
    assert_eq!(counted, expected);
    assert_eq!(step.host_after_ns, 500e3);
    assert_eq!(step.busy_ns(), 350e3);
}

#[test]
fn a_long_launch_is_a_wait_only_if_a_queue_or_a_copy_explains_it() {
    let call = |start, correlation: u32| {
        let args = json!({"correlation": correlation});
        event("cuda_runtime", "cudaLaunchKernel", start, 300, args)
    };
    let work = |category: &str, name: &str, start, correlation: u32| {
        json!({"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": start,
               "dur": 10, "args": {"device": 0, "stream": 7, "correlation": correlation}})
    };
    let copy = "Memcpy DtoH (Device -> Pageable)";
    let mut events = vec![
        call(100, 1),
        work("kernel", "k", 410, 1),
        call(500, 2),
        work("gpu_memcpy", copy, 780, 2),
    ];
    let found = |events| -> Vec<(f64, HostEventKind)> {
        step(events, None).host.iter().map(|event| (event.call_ns, event.kind)).collect()
    };
    let launch = HostEventKind::Launch;
    // The kernel's launch compiled code, or did other work on the host.
    assert_eq!(
        found(events.clone()),
        [(300e3, launch(0)), (100e3, launch(1)), (0.0, HostEventKind::Wait)]
    );
    events.extend((0..600).map(|number| work("kernel", "k", 1000 + 10 * number, 10 + number)));
    assert_eq!(found(events).first(), Some(&(100e3, launch(0))));
}

#[test]
fn calls_that_wait() {
    for name in
        ["cudaDeviceSynchronize", "cudaStreamSynchronize_v3020", "hipMemcpy", "hipMemcpyWithStream"]
    {
        assert!(waits(name), "{name}");
    }
    for name in
        ["cudaMemcpyAsync", "hipMemcpyAsync", "cudaStreamWaitEvent", "cudaLaunchKernel", "", "cuda"]
    {
        assert!(!waits(name), "{name}");
    }
}
