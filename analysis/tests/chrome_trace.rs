//! Checks the reader of Chrome traces on small realistic traces.

mod damaged;

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use ridgeline_analysis::present::trace_summary::summarize;
use ridgeline_analysis::recording::chrome_trace::{Options, TraceError};
use ridgeline_analysis::recording::trace::{
    Activity, ActivityKind, MemoryEvent, Operator, PythonFrame, RuntimeCall, Trace,
};
use serde_json::Value;

/// The format of torch 2.4 and later on CUDA, with stacks, shapes and memory.
const TODAY: &str = include_str!("traces/today.json");
/// The format of torch 1.9 (2021).
const TORCH_1_9: &str = include_str!("traces/of_2021.json");
/// The format of torch on ROCm.
const ROCM: &str = include_str!("traces/rocm.json");

fn read(json: impl AsRef<[u8]>) -> Result<Trace, TraceError> {
    Trace::read(json.as_ref(), &Options::default())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns the JSON of a trace with these events.
fn with_events(events: &str) -> String {
    format!(r#"{{"traceEvents": [{events}]}}"#)
}

#[track_caller]
fn check_error(json: impl AsRef<[u8]>, expected: &str) {
    assert_eq!(read(json).unwrap_err().to_string(), expected);
}

#[test]
fn a_trace_of_torch_2_4() {
    let trace = read(TODAY).unwrap();
    assert_eq!((trace.unusable_events, trace.truncated_at), (0, None));

    let base = 1_751_410_836_000_000_000;
    assert_eq!(trace.base_time_ns, base);
    let names: Vec<&str> = trace.operators.iter().map(|o| trace.text(o.name)).collect();
    assert_eq!(names, ["aten::linear", "aten::addmm", "AddmmBackward0", "aten::mm"]);
    let addmm = &trace.operators[1];
    assert_eq!(addmm.start_ns, base + 1_419_116_104_995_100);
    assert_eq!(addmm.duration_ns, 40_250);
    assert_eq!((addmm.sequence.get(), addmm.forward_thread.get()), (Some(12), Some(0)));
    assert_eq!(trace.text_or_empty(addmm.input_dims), "[[128], [32, 64], [64, 128], [], []]");
    assert_eq!(
        trace.text_or_empty(addmm.input_types),
        r#"["float", "float", "float", "Scalar", "Scalar"]"#
    );
    assert_eq!(trace.text_or_empty(addmm.concrete_inputs), r#"["", "", "", "1", "1"]"#);
    assert_eq!(trace.operators[2].forward_thread.get(), Some(1));
    assert_eq!(trace.thread_number(trace.operators[2].thread), Some(21_600));
    assert_eq!(trace.thread_number(addmm.thread), Some(21_587));

    let kernel = trace.activities[0];
    let details = trace.details(&kernel);
    assert_eq!(
        (kernel.kind, details.device, details.stream),
        (ActivityKind::Kernel, Some(0), Some(7))
    );
    assert_eq!(kernel.correlation.get(), Some(495_813));
    assert_eq!(details.launch.grid, Some([8, 2, 1]));
    assert_eq!(details.launch.shared_memory_bytes, Some(98_304));
    let copy = trace.activities[1];
    assert_eq!((copy.kind, trace.details(&copy).bytes), (ActivityKind::Memcpy, Some(8192)));

    let freed = trace.memory[1];
    assert_eq!((freed.bytes, freed.address.get()), (-20_992, Some(137_278_998_388_736)));
    assert_eq!((freed.device_type, freed.device), (Some(1), Some(0)));
    assert_eq!(freed.total_allocated.get(), Some(955_420_672));

    assert_eq!(trace.annotations.len(), 2);
    assert_eq!(trace.python_frames.len(), 2);
    assert_eq!(trace.runtime_calls.len(), 2);
    assert_eq!(trace.instants.len(), 1);
    assert_eq!(trace.devices[0].name, "NVIDIA H100 80GB HBM3");
    assert_eq!(trace.devices[0].capability, Some((9, 0)));
    assert_eq!(trace.distributed.as_ref().unwrap().rank, Some(1));
    assert_eq!(trace.process_names.len(), 1);
}

#[test]
fn a_trace_of_torch_1_9() {
    let trace = read(TORCH_1_9).unwrap();
    assert_eq!((trace.unusable_events, trace.base_time_ns), (0, 0));
    let operator = &trace.operators[0];
    assert_eq!(operator.start_ns, 1_623_142_623_460_111_000);
    assert_eq!(trace.thread_number(operator.thread), Some(25_738));
    assert_eq!(
        trace.text_or_empty(operator.call_stack),
        "lib/torch/functional.py(20): f;train.py(54): <module>"
    );
    assert_eq!(trace.text(trace.annotations[0].name), "ProfilerStep#5");
    // Without a stream argument, the stream is taken from the thread name.
    assert_eq!(trace.details(&trace.activities[0]).stream, Some(7));
    assert_eq!(trace.activities[0].kind, ActivityKind::Kernel);
    assert_eq!(trace.memory[0].address.get(), None);
    assert_eq!(trace.memory[0].total_allocated.get(), None);
}

#[test]
fn a_trace_of_torch_on_rocm() {
    let trace = read(ROCM).unwrap();
    assert_eq!(trace.unusable_events, 0);
    assert_eq!(trace.details(&trace.activities[0]).launch.registers, None);
    assert_eq!(trace.details(&trace.activities[0]).device, Some(2));
    let summary = summarize(&trace);
    assert_eq!(
        (summary.device.kind, summary.device.name.as_str()),
        ("rocm", "AMD Instinct MI300X")
    );
    assert_eq!(summary.kernels[0].occupancy, None);
}

#[test]
fn rocm_copies_and_fills_in_the_kernel_category_are_recognized() {
    let names = ["CopyHostToDevice", "FillBuffer", "Cijk_Ailk_Bljk_SB_MT64x64x16_SN"];
    let events = names.map(|name| {
        format!(r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 2, "tid": 0, "ts": 1, "dur": 2}}"#)
    });
    let kinds: Vec<ActivityKind> = read(with_events(&events.join(",")))
        .unwrap()
        .activities
        .iter()
        .map(|activity| activity.kind)
        .collect();
    assert_eq!(kinds, [ActivityKind::Memcpy, ActivityKind::Memset, ActivityKind::Kernel]);
}

#[test]
fn gzip_is_detected_by_its_magic_bytes() {
    assert_eq!(read(gzip(TODAY.as_bytes())).unwrap(), read(TODAY).unwrap());
    let two_members = [gzip(&TODAY.as_bytes()[..500]), gzip(&TODAY.as_bytes()[500..])].concat();
    assert_eq!(read(two_members).unwrap(), read(TODAY).unwrap());
}

#[test]
fn a_list_of_events_is_a_trace() {
    let events =
        r#"[{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]"#;
    assert_eq!(read(events).unwrap().operators.len(), 1);
    assert_eq!(read("[]").unwrap(), Trace::default());
}

#[test]
fn python_frames_are_optional() {
    let options = Options { python_frames: false, ..Options::default() };
    let trace = Trace::read(TODAY.as_bytes(), &options).unwrap();
    assert_eq!(trace.python_frames, []);
    assert_eq!(trace.operators.len(), 4);
}

#[test]
fn environment_variables_are_never_stored() {
    let secret = "hunter2hunter2";
    let json = format!(
        r#"{{"metadata": {{"env": {{"TOKEN": "{secret}"}}}}, "traceName": "/home/{secret}",
            "traceEvents": [
            {{"ph": "M", "name": "process_labels", "pid": 1, "args": {{"labels": "{secret}"}}}},
            {{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1,
              "args": {{"environment": "{secret}"}}}}]}}"#
    );
    let trace = read(json).unwrap();
    assert_eq!(trace.operators.len(), 1);
    assert!(!format!("{trace:?}").contains(secret));
}

#[test]
fn wrong_types_do_not_fail_an_event() {
    let json = with_events(
        r#"{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10.5, "dur": 2, "args": {
            "warps per SM": inf, "blocks per SM": "inf", "memory bandwidth (GB/s)": "N/A", "grid": "N/A",
            "block": [1, 2], "registers per thread": null, "shared memory": -1, "stream": {},
            "device": true, "correlation": 1e3, "est. achieved occupancy %": NaN}},
        {"ph": "X", "cat": "cpu_op", "name": "o", "pid": 1, "tid": 1, "ts": "12", "dur": 3, "args": null},
        {"ph": "X", "cat": "cpu_op", "name": "p", "pid": 1, "tid": 1, "ts": 13, "dur": -3, "args": [1]}"#,
    );
    let trace = read(json).unwrap();
    assert_eq!(trace.unusable_events, 0);
    let kernel = trace.activities[0];
    let details = trace.details(&kernel);
    assert_eq!((details.device, details.stream), (Some(0), Some(7)));
    assert_eq!((kernel.correlation.get(), details.launch), (None, Default::default()));
    assert_eq!(trace.operators[0].start_ns, 12_000);
    assert_eq!(trace.operators[1].duration_ns, 0);
}

#[test]
fn negative_durations_are_reported_in_a_note() {
    let json = with_events(
        r#"{"ph": "X", "cat": "cpu_op", "name": "o", "pid": 1, "tid": 1, "ts": 13, "dur": -3},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10.5, "dur": -0.001},
        {"ph": "X", "cat": "cpu_op", "name": "o", "pid": 1, "tid": 1, "ts": 20, "dur": -0.0}"#,
    );
    let trace = read(json).unwrap();
    assert_eq!((trace.unusable_events, trace.negative_durations), (0, 2));
    let notes = summarize(&trace).notes;
    assert!(
        notes.iter().any(|note| note.starts_with("2 events have a negative duration")),
        "{notes:?}"
    );
}

/// A million events must fit in a few tens of megabytes.
#[test]
fn stored_events_are_small() {
    assert_eq!(size_of::<Operator>(), 56);
    assert_eq!(size_of::<Activity>(), 40);
    assert_eq!(size_of::<RuntimeCall>(), 32);
    assert_eq!(size_of::<MemoryEvent>(), 48);
    assert_eq!(size_of::<PythonFrame>(), 24);
}

#[test]
fn equal_launch_details_are_stored_once() {
    let kernel = r#"{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1,
        "args": {"device": 0, "stream": 7, "grid": [8, 1, 1], "block": [64, 1, 1]}}"#;
    let events = [kernel, &kernel.replace("\"stream\": 7", "\"stream\": 9"), kernel].join(",");
    let trace = read(with_events(&events)).unwrap();
    assert_eq!(trace.details.len(), 2);
    let streams = trace.activities.iter().map(|activity| trace.details(activity).stream);
    assert_eq!(streams.collect::<Vec<_>>(), [Some(7), Some(9), Some(7)]);
}

#[test]
fn events_without_a_time_are_counted() {
    let json = with_events(
        r#"{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": NaN, "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "dur": 1},
        {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "a", "ts": 1e30, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": 9e15},
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1, "args": {}},
        17, null, [{"ph": "X"}]"#,
    );
    let trace = read(json).unwrap();
    assert_eq!(trace.unusable_events, 10);
    assert_eq!(summarize(&trace).notes.len(), 1);
}

#[test]
fn times_cannot_overflow() {
    let json = r#"{"baseTimeNanoseconds": 4000000000000000000, "traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 1, "ts": 4e15, "dur": 1e15},
        {"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 1, "ts": -4e15, "dur": 1e15},
        {"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 1, "ts": -4e15, "dur": 1e15}]}"#;
    let summary = summarize(&read(json).unwrap());
    let gpu = summary.gpu.unwrap();
    assert_eq!(gpu.span_ns, 9_000_000_000_000_000_000);
    assert_eq!(gpu.busy_ns, 2_000_000_000_000_000_000);
    assert_eq!(gpu.kernel_ns, 3_000_000_000_000_000_000);
    for absurd in ["9223372036854775807", "-1", "1e99", "\"x\"", "{}"] {
        let json = format!(r#"{{"baseTimeNanoseconds": {absurd}, "traceEvents": []}}"#);
        assert_eq!(read(json).unwrap().base_time_ns, 0);
    }
}

#[test]
fn the_last_of_duplicate_keys_is_used() {
    let json = with_events(
        r#"{"ph": "i", "cat": "kernel", "cat": "cpu_op", "name": "a", "name": "b", "ph": "X", "pid": 1,
            "tid": 1, "ts": 1, "ts": 2, "dur": 1, "args": {"Sequence number": 1},
            "args": {"Sequence number": 3, "Sequence number": 4}}, {"ph": "X", "cat": "cpu_op",
            "name": "c", "pid": 1, "tid": 1, "ts": 9, "dur": 1, "args": {"Sequence number": 1},
            "args": {}}"#,
    );
    let trace = read(json).unwrap();
    let operator = &trace.operators[0];
    assert_eq!(trace.text(operator.name), "b");
    assert_eq!((operator.start_ns, operator.sequence.get()), (2000, Some(4)));
    assert_eq!(trace.operators[1].sequence.get(), None);
}

#[test]
fn the_chunk_size_does_not_change_the_trace() {
    for json in [TODAY, TORCH_1_9, ROCM] {
        let complete = read(json).unwrap();
        for chunk_bytes in [1, 2, 3, 7, 64, 1000] {
            let options = Options { chunk_bytes, ..Options::default() };
            assert_eq!(Trace::read(json.as_bytes(), &options).unwrap(), complete);
        }
    }
}

/// Counts operators, runtime calls and GPU activities with serde_json. Returns `None` if the
/// document has no list of events.
fn expected_events(document: &Value) -> Option<(usize, usize, usize)> {
    let events = match document {
        Value::Array(events) => events,
        _ => document.get("traceEvents")?.as_array()?,
    };
    let text = |event: &Value, key: &str| {
        event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let count = |categories: &[&str]| {
        events
            .iter()
            .filter(|event| text(event, "ph") == "X")
            .filter(|event| categories.contains(&text(event, "cat").as_str()))
            .count()
    };
    Some((
        count(&["cpu_op", "Operator"]),
        count(&["cuda_runtime", "Runtime"]),
        count(&["kernel", "Kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset"]),
    ))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_bytes_never_panic_and_agree_with_serde_json(
        which in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..5),
        chunk_bytes in 1usize..2000,
    ) {
        let mut bytes = [TODAY, TORCH_1_9, ROCM][which].as_bytes().to_vec();
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"{}[]\",:0\\ "[usize::from(byte) % 10]),
                _ => {
                    let copied = bytes[at..(at + usize::from(byte)).min(bytes.len())].to_vec();
                    bytes.splice(at..at, copied);
                }
            }
        }
        let options = Options { chunk_bytes, ..Options::default() };
        let found = Trace::read(&bytes[..], &options);
        if let Ok(trace) = &found {
            summarize(trace);
        }
        // If a key occurs twice, serde_json keeps the last value, but the streaming reader has
        // already used the first.
        let has_single_list = bytes.windows(13).filter(|text| text == b"\"traceEvents\"").count() < 2;
        if let Some(document) = serde_json::from_slice::<Value>(&bytes).ok().filter(|_| has_single_list) {
            match expected_events(&document) {
                Some((operators, calls, activities)) => {
                    let trace = found.unwrap();
                    prop_assert_eq!(trace.truncated_at, None);
                    let unusable = trace.unusable_events as usize;
                    let annotations = trace.annotations.len();
                    prop_assert!((trace.operators.len()..=trace.operators.len() + unusable + annotations).contains(&operators));
                    prop_assert!((trace.runtime_calls.len()..=trace.runtime_calls.len() + unusable).contains(&calls));
                    prop_assert!((trace.activities.len()..=trace.activities.len() + unusable).contains(&activities));
                }
                None => prop_assert!(found.is_err()),
            }
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
        let _ = read(gzip(&bytes));
        let _ = read([&[0x1f, 0x8b, 8, 0][..], &bytes].concat());
    }
}
