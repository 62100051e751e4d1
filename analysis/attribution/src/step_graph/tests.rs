//! Graphs of small traces, with times computed by hand in microseconds.

use serde_json::{Value, json};

use super::*;
use crate::attribute;
use crate::bottleneck::bottleneck;
use ridgeline_graph::graph::TaskKind;
use ridgeline_profile::Phase;
use ridgeline_recording::chrome_trace::Options;
use ridgeline_recording::line_log::ThreadLines;
use ridgeline_recording::trace::Trace;

fn event(category: &str, name: &str, start: u32, duration: u32, args: Value) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1,
           "ts": start, "dur": duration, "args": args})
}

fn call(name: &str, start: u32, duration: u32, correlation: u32) -> Value {
    event("cuda_runtime", name, start, duration, json!({"correlation": correlation}))
}

fn kernel(stream: u32, start: u32, duration: u32, correlation: u32) -> Value {
    json!({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": stream, "ts": start,
           "dur": duration,
           "args": {"device": 0, "stream": stream, "correlation": correlation}})
}

fn copy(name: &str, start: u32, duration: u32, correlation: u32) -> Value {
    json!({"ph": "X", "cat": "gpu_memcpy", "name": name, "pid": 0, "tid": 7, "ts": start,
           "dur": duration,
           "args": {"device": 0, "stream": 7, "correlation": correlation, "bytes": 4096}})
}

/// Creates an iteration of `length` microseconds.
fn recorded(length: u32, events: Vec<Value>) -> Recorded {
    recorded_with(None, length, events)
}

fn recorded_with(lines: Option<LineLog>, length: u32, mut events: Vec<Value>) -> Recorded {
    events.push(event("user_annotation", "ProfilerStep#1", 0, length, json!({})));
    let json = json!({"schemaVersion": 1, "traceEvents": events}).to_string();
    let trace = Trace::read(json.as_bytes(), &Options::default()).unwrap();
    let recording = Recording { trace, lines, ..Recording::default() };
    let profile = attribute(&recording).unwrap();
    step_graph(&recording, &profile).unwrap()
}

/// Returns the iteration time if kernels take `factor` of their time.
fn with_kernels(recorded: &Recorded, factor: f64) -> f64 {
    let mut graph = recorded.graph.clone();
    let kernels = graph.select(|task| task.kind == TaskKind::Kernel);
    graph.scale(&kernels, factor);
    simulate::steady(&graph).unwrap().iteration_ns / 1e3
}

#[track_caller]
fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.02, "{found} rather than {expected}");
}

#[test]
fn a_host_that_launches_and_waits() {
    let recorded = recorded(
        1000,
        vec![
            call("cudaLaunchKernel", 100, 10, 1),
            kernel(7, 112, 400, 1),
            call("cudaLaunchKernel", 150, 10, 2),
            kernel(7, 514, 386, 2),
            call("cudaDeviceSynchronize", 200, 705, 3),
        ],
    );
    assert!(recorded.replay_error.abs() < 0.001, "{}", recorded.replay_error);
    close(with_kernels(&recorded, 1.0), 1000.0);
    // 295 for the host and 393 for the kernels, the first of which begins at 112.
    close(with_kernels(&recorded, 0.5), 1000.0 - 393.0);
}

#[test]
fn the_recorders_final_wait_is_excluded() {
    let waits = |recorder: Vec<(i64, i64)>| {
        let main = ThreadLines { tid: 1, main: true, recorder, ..ThreadLines::default() };
        let events = vec![
            call("cudaLaunchKernel", 100, 10, 1),
            kernel(7, 112, 400, 1),
            call("cudaDeviceSynchronize", 120, 400, 2),
            call("cudaLaunchKernel", 550, 10, 3),
            kernel(7, 562, 338, 3),
            call("cudaDeviceSynchronize", 600, 305, 4),
        ];
        let lines = LineLog { threads: vec![main], ..LineLog::default() };
        let recorded = recorded_with(Some(lines), 1000, events);
        assert!(recorded.replay_error.abs() < 0.001, "{}", recorded.replay_error);
        recorded.graph.select(|task| task.kind == TaskKind::Wait).len()
    };
    assert_eq!(waits(Vec::new()), 2);
    // The program's own wait is part of the iteration.
    assert_eq!(waits(vec![(590_000, 1_000_000)]), 1);
    // Recorder time within an iteration does not end it.
    assert_eq!(waits(vec![(10_000, 20_000)]), 2);
}

#[test]
fn a_blocking_copy_waits_for_earlier_kernels() {
    for (copies, name) in [
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)"),
        ("hipMemcpyWithStream", "CopyDeviceToHost"),
    ] {
        let recorded = recorded(
            1000,
            vec![
                call("cudaLaunchKernel", 100, 10, 1),
                kernel(7, 112, 600, 1),
                call(copies, 150, 580, 2),
                copy(name, 714, 6, 2),
            ],
        );
        assert!(recorded.replay_error.abs() < 0.001, "{}", recorded.replay_error);
        close(with_kernels(&recorded, 0.5), 700.0);
    }
}

#[test]
fn without_waits_the_slower_resource_counts() {
    let events = vec![
        call("cudaLaunchKernel", 100, 10, 1),
        kernel(7, 112, 600, 1),
        call("cudaLaunchKernel", 700, 10, 2),
        kernel(7, 713, 280, 2),
    ];
    let recorded = recorded(1000, events);
    close(with_kernels(&recorded, 1.0), 1000.0);
    close(with_kernels(&recorded, 0.1), 1000.0);
    // 881 for kernels, twice.
    close(with_kernels(&recorded, 2.0), 1762.0);
}

#[test]
fn stream_waits_are_dependencies() {
    let recorded = recorded(
        1000,
        vec![
            call("cudaLaunchKernel", 100, 10, 1),
            kernel(7, 112, 500, 1),
            call("cudaStreamWaitEvent", 120, 2, 2),
            call("cudaLaunchKernel", 130, 10, 3),
            kernel(20, 614, 300, 3),
            call("cudaDeviceSynchronize", 200, 720, 4),
        ],
    );
    assert!(recorded.replay_error.abs() < 0.001, "{}", recorded.replay_error);
    close(with_kernels(&recorded, 0.5), 600.0);
    // They launch nothing.
    let launches = recorded.graph.select(|task| task.kind == TaskKind::Launch);
    assert_eq!(launches.len(), 2);
}

#[test]
fn independent_streams_run_concurrently() {
    let recorded = recorded(
        1000,
        vec![
            call("cudaLaunchKernel", 100, 10, 1),
            kernel(7, 112, 500, 1),
            call("cudaLaunchKernel", 130, 10, 3),
            kernel(20, 142, 600, 3),
            call("cudaDeviceSynchronize", 200, 545, 4),
        ],
    );
    close(with_kernels(&recorded, 0.5), 700.0);
}

#[test]
fn an_operator_keeps_its_shapes_on_the_host_and_on_the_gpu() {
    let shapes = json!({"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]});
    let recorded = recorded(
        1000,
        vec![
            event("cpu_op", "aten::mm", 90, 40, shapes),
            call("cudaLaunchKernel", 100, 10, 1),
            kernel(7, 112, 400, 1),
        ],
    );
    let graph = &recorded.graph;
    let kernels = graph.select(|task| task.kind == TaskKind::Kernel);
    let kernel = graph.task(kernels[0]).unwrap();
    assert_eq!(graph.operator_of(kernel).unwrap().base_name(), Some("mm"));
    let host = graph.select(|task| task.kind == TaskKind::HostOperator);
    assert_eq!(host.len(), 2, "before and after the launch");
    assert_eq!(graph.task(host[0]).unwrap().call, kernel.call);
}

#[test]
fn an_empty_recording_has_no_graph() {
    let recording = Recording::default();
    let found = step_graph(&recording, &Profile::default());
    assert_eq!(found.unwrap_err(), NoGraph::NoIteration);
}

#[test]
fn loading_and_updates_come_from_pytorchs_annotations() {
    let loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
    let recorded = recorded(
        1000,
        vec![
            event("user_annotation", loader, 0, 300, json!({})),
            call("cudaLaunchKernel", 400, 10, 1),
            kernel(7, 412, 100, 1),
            event("user_annotation", "Optimizer.step#SGD.step", 600, 200, json!({})),
        ],
    );
    let in_phase = |phase: Phase| recorded.graph.time_of(|task| task.phase == phase) / 1e3;
    assert_eq!((in_phase(Phase::Data), in_phase(Phase::Optimizer)), (300.0, 200.0));
    assert_eq!(recorded.graph.loader_has_workers, Some(true));
}

#[test]
fn launches_pending_at_the_start_fill_the_queue() {
    let mut events = Vec::new();
    // The launches of these 600 kernels are not in the trace.
    for number in 0..600 {
        events.push(kernel(7, 10 * number, 10, number));
    }
    // The first launch of the step waits until nearly 300 of them are done.
    events.push(call("cudaLaunchKernel", 100, 2900, 600));
    events.push(kernel(7, 6000, 100, 600));
    let recorded = recorded(6200, events);
    let launches = recorded.graph.select(|task| task.kind == TaskKind::Launch);
    let times = launches.iter().filter_map(|id| recorded.graph.task(*id));
    assert_eq!(times.map(|task| task.duration_ns).fold(0.0, f64::max), 0.0);
}

#[test]
fn kernels_launched_before_the_step_are_busy_time() {
    let busy = |events: Vec<Value>| {
        let recorded = recorded(1000, events);
        let earlier = recorded.graph.select(|task| task.kind == TaskKind::EarlierWork);
        let earlier = earlier.iter().filter_map(|id| recorded.graph.task(*id));
        let found = bottleneck(&recorded, None).unwrap();
        let saving = found.share(ridgeline_profile::bottleneck::Cause::Launches);
        assert!(saving <= 1.0 - found.gpu_busy.unwrap() + 1e-9, "{found:?}");
        (earlier.map(|task| task.duration_ns / 1e3).sum::<f64>(), found.gpu_busy.unwrap())
    };
    let own = vec![
        call("cudaLaunchKernel", 50, 10, 1),
        kernel(7, 600, 200, 1),
        call("cudaDeviceSynchronize", 70, 735, 2),
    ];
    // No launch of these is in the trace. One runs when the step begins, the other is still queued.
    let leaked = |start, duration, number| kernel(7, start, duration, number);
    let both = [own.clone(), vec![leaked(0, 300, 8), leaked(300, 300, 9)]].concat();
    let (earlier_us, share) = busy(both);
    close(earlier_us, 600.0);
    close(share, 0.8);
    assert_eq!(busy(own).0, 0.0);
}

#[test]
fn the_busy_share_of_a_trace_is_what_it_shows() {
    // The launched work runs half an iteration later, and exceeds the iteration.
    let mut events = vec![kernel(7, 0, 300, 8), kernel(7, 350, 150, 9)];
    for (number, start) in [(1, 600), (2, 1100)] {
        events.push(call("cudaLaunchKernel", 50 * number, 10, number));
        events.push(kernel(7, start, 450, number));
    }
    events.push(event("user_annotation", "ProfilerStep#1", 0, 1000, json!({})));
    let json = json!({"schemaVersion": 1, "traceEvents": events}).to_string();
    let trace = Trace::read(json.as_bytes(), &Options::default()).unwrap();
    let profile = attribute(&Recording { trace, ..Recording::default() }).unwrap();
    let metrics = profile.metrics.expect("metrics");
    close(metrics.whole.busy_ns / metrics.iteration_ns, 0.85);
    close(profile.bottleneck.expect("a bottleneck").gpu_busy.unwrap(), 0.85);
}
