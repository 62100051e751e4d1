//! The reader of Chrome traces, on small traces in the form of real ones: what it keeps, and what it
//! says of traces that are damaged, cut off or made to harm.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use ridgeline_analysis::present::trace_summary::summarize;
use ridgeline_analysis::recording::chrome_trace::{Options, TraceError};
use ridgeline_analysis::recording::trace::{
    Activity, ActivityKind, MemoryEvent, Operator, PythonFrame, RuntimeCall, Trace,
};
use serde_json::Value;

/// As torch 2.4 and later write it, on CUDA, with stacks, shapes and memory.
const TODAY: &str = include_str!("traces/today.json");
/// As torch 1.9 wrote it in 2021.
const OF_2021: &str = include_str!("traces/of_2021.json");
/// As torch writes it on ROCm.
const ROCM: &str = include_str!("traces/rocm.json");

fn read(json: impl AsRef<[u8]>) -> Result<Trace, TraceError> {
    Trace::read(json.as_ref(), &Options::default())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A trace with these events.
fn with_events(events: &str) -> String {
    format!(r#"{{"traceEvents": [{events}]}}"#)
}

#[track_caller]
fn check_error(json: impl AsRef<[u8]>, expected: &str) {
    assert_eq!(read(json).unwrap_err().to_string(), expected);
}

#[test]
fn a_trace_of_today() {
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
fn a_trace_of_2021() {
    let trace = read(OF_2021).unwrap();
    assert_eq!((trace.unusable_events, trace.base_time_ns), (0, 0));
    let operator = &trace.operators[0];
    assert_eq!(operator.start_ns, 1_623_142_623_460_111_000);
    assert_eq!(trace.thread_number(operator.thread), Some(25_738));
    assert_eq!(
        trace.text_or_empty(operator.call_stack),
        "lib/torch/functional.py(20): f;train.py(54): <module>"
    );
    assert_eq!(trace.text(trace.annotations[0].name), "ProfilerStep#5");
    // Without the argument, the stream is that of the thread's name.
    assert_eq!(trace.details(&trace.activities[0]).stream, Some(7));
    assert_eq!(trace.activities[0].kind, ActivityKind::Kernel);
    assert_eq!(trace.memory[0].address.get(), None);
    assert_eq!(trace.memory[0].total_allocated.get(), None);
}

#[test]
fn a_trace_of_rocm() {
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
fn copies_and_fills_that_rocm_had_among_the_kernels_are_told_from_them() {
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
fn gzip_is_known_by_its_first_bytes() {
    assert_eq!(read(gzip(TODAY.as_bytes())).unwrap(), read(TODAY).unwrap());
    let in_two = [gzip(&TODAY.as_bytes()[..500]), gzip(&TODAY.as_bytes()[500..])].concat();
    assert_eq!(read(in_two).unwrap(), read(TODAY).unwrap());
}

#[test]
fn a_list_of_events_is_a_trace() {
    let events =
        r#"[{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]"#;
    assert_eq!(read(events).unwrap().operators.len(), 1);
    assert_eq!(read("[]").unwrap(), Trace::default());
}

#[test]
fn frames_of_python_are_kept_on_request() {
    let options = Options { python_frames: false, ..Options::default() };
    let trace = Trace::read(TODAY.as_bytes(), &options).unwrap();
    assert_eq!(trace.python_frames, []);
    assert_eq!(trace.operators.len(), 4);
}

#[test]
fn the_recorders_environment_is_never_kept() {
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
fn negative_durations_are_noted() {
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

/// A million events are a few tens of megabytes: what is stored of each is held small.
#[test]
fn what_is_kept_of_an_event_is_small() {
    assert_eq!(size_of::<Operator>(), 56);
    assert_eq!(size_of::<Activity>(), 40);
    assert_eq!(size_of::<RuntimeCall>(), 32);
    assert_eq!(size_of::<MemoryEvent>(), 48);
    assert_eq!(size_of::<PythonFrame>(), 24);
}

#[test]
fn launches_alike_are_stored_once() {
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
fn of_keys_that_occur_twice_the_last_holds() {
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
fn what_is_no_trace_is_said_so() {
    check_error("", "the trace is empty");
    check_error("  \n", "the trace is truncated at byte 3, before its events");
    check_error("{}", "the file has no `traceEvents` list: it is not a profiler trace");
    check_error(
        r#"{"traceEvents": 5}"#,
        "the file has no `traceEvents` list: it is not a profiler trace",
    );
    check_error("import torch\n", "the trace is invalid at byte 0: expected an object or a list");
    check_error("\u{feff}\"a\"", "the trace is invalid at byte 3: expected an object or a list");
    check_error(
        r#"{"traceEvents": []} {}"#,
        "the trace is invalid at byte 20: expected the end of the trace",
    );
    check_error(
        r#"{"traceEvents": [{"ph" "X"}]}"#,
        "the trace is invalid at byte 23: expected a colon",
    );
    check_error(
        r#"{"traceEvents": [{} {}]}"#,
        "the trace is invalid at byte 20: expected a comma or the end of the events",
    );
    check_error(
        r#"{"schemaVersion": 1, "trac"#,
        "the trace is truncated at byte 26, before its events",
    );
    check_error([0u8; 64], "the trace is invalid at byte 0: expected an object or a list");
}

#[test]
fn absurd_nesting_is_refused() {
    let deep = "[".repeat(20_000);
    let depth = "expected a value nested less than 128 levels deep";
    check_error(with_events(&deep), &format!("the trace is invalid at byte 145: {depth}"));
    check_error(&deep, &format!("the trace is invalid at byte 129: {depth}"));
    let members = r#"{"a":"#.repeat(20_000);
    assert!(matches!(read(&members), Err(TraceError::Invalid { .. })));
    assert!(matches!(read(with_events(&members)), Err(TraceError::Invalid { .. })));
}

#[test]
fn limits_hold() {
    let many = with_events(
        &[r#"{"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 1, "ts": 1, "dur": 1}"#;
            11]
            .join(","),
    );
    let check = |options: Options, expected: &str| {
        assert_eq!(Trace::read(many.as_bytes(), &options).unwrap_err().to_string(), expected);
    };
    check(Options { max_events: 10, ..Options::default() }, "the trace has more than 10 events");
    check(
        Options { max_string_bytes: 0, ..Options::default() },
        "the trace has more than 0 bytes of names",
    );
    check(
        Options { max_json_bytes: 100, ..Options::default() },
        "the trace has more than 100 bytes of JSON",
    );
    check(
        Options { max_value_bytes: 16, chunk_bytes: 8, ..Options::default() },
        "the value at byte 17 exceeds 16 bytes",
    );
}

/// Endless bytes, as a device file gives them.
struct Endless(&'static [u8], usize);

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (start, repeated) = self.0.split_at(self.1);
        let (from, length) =
            if start.is_empty() { (repeated, buffer.len()) } else { (start, self.1) };
        let length = length.min(buffer.len());
        buffer[..length].iter_mut().zip(from.iter().cycle()).for_each(|(to, from)| *to = *from);
        self.0 = &self.0[if start.is_empty() { 0 } else { length }..];
        self.1 -= if start.is_empty() { 0 } else { length };
        Ok(length)
    }
}

#[test]
fn a_huge_string_is_refused_before_it_fills_memory() {
    let options = Options { max_value_bytes: 1 << 20, ..Options::default() };
    let error = Trace::read(Endless(b"[{\"name\": \"aaaaaaaa", 11), &options).unwrap_err();
    assert_eq!(error.to_string(), "the value at byte 1 exceeds 1048576 bytes");
}

#[test]
fn a_bomb_is_refused() {
    let bomb = gzip(&vec![b' '; 16 << 20]);
    check_error(bomb, "the trace's gzip data decompresses to more than 300 times its size");
}

#[test]
fn damaged_gzip_data_is_said_so() {
    let mut bytes = gzip(TODAY.as_bytes());
    let middle = bytes.len() / 2;
    bytes[middle..middle + 20].fill(0xff);
    let error = read(&bytes).unwrap_err();
    assert!(matches!(error, TraceError::Damaged { .. } | TraceError::Invalid { .. }), "{error}");
    let mut checksum_wrong = gzip(TODAY.as_bytes());
    let at = checksum_wrong.len() - 6;
    checksum_wrong[at] ^= 1;
    assert!(matches!(read(&checksum_wrong), Err(TraceError::Damaged { .. })));
}

#[test]
fn an_error_of_the_source_is_passed_on() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is on fire"))
        }
    }
    let source = TODAY.as_bytes()[..200].chain(Failing);
    let error = Trace::read(source, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the trace: the disk is on fire");
}

#[test]
fn a_trace_that_is_cut_anywhere_gives_what_was_read() {
    let whole = read(TODAY).unwrap();
    let first_event = TODAY.find("\"traceEvents\": [").unwrap() + "\"traceEvents\": [".len();
    let end = TODAY.trim_end().len();
    for cut in 0..end {
        match read(&TODAY[..cut]) {
            Ok(trace) => {
                assert!(cut >= first_event, "at {cut}");
                assert_eq!(trace.truncated_at, Some(cut as u64));
                assert!(trace.operators.len() <= whole.operators.len());
                assert!(!summarize(&trace).notes.is_empty());
            }
            Err(TraceError::Empty) => assert_eq!(cut, 0),
            Err(TraceError::EndsEarly { offset }) => {
                assert_eq!(offset, cut as u64);
                assert!(cut < first_event, "at {cut}");
            }
            Err(error) => panic!("at {cut}: {error}"),
        }
    }
}

#[test]
fn gzip_data_that_is_cut_anywhere_gives_what_was_read() {
    let zipped = gzip(TODAY.as_bytes());
    for cut in 2..zipped.len() {
        match read(&zipped[..cut]) {
            Ok(trace) => assert!(trace.truncated_at.is_some(), "at {cut}"),
            Err(TraceError::Empty | TraceError::EndsEarly { .. }) => {}
            Err(error) => panic!("at {cut}: {error}"),
        }
    }
}

#[test]
fn chunks_of_any_size_give_the_same_trace() {
    for json in [TODAY, OF_2021, ROCM] {
        let whole = read(json).unwrap();
        for chunk_bytes in [1, 2, 3, 7, 64, 1000] {
            let options = Options { chunk_bytes, ..Options::default() };
            assert_eq!(Trace::read(json.as_bytes(), &options).unwrap(), whole);
        }
    }
}

/// What the reader has to have found of a document, by serde_json.
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
        let mut bytes = [TODAY, OF_2021, ROCM][which].as_bytes().to_vec();
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
        // Of a key that stands twice serde_json keeps the last, and a stream has read the first.
        let is_plain = bytes.windows(13).filter(|text| text == b"\"traceEvents\"").count() < 2;
        if let Some(document) = serde_json::from_slice::<Value>(&bytes).ok().filter(|_| is_plain) {
            match expected_events(&document) {
                Some((operators, calls, activities)) => {
                    let trace = found.unwrap();
                    prop_assert_eq!(trace.truncated_at, None);
                    let lost = trace.unusable_events as usize;
                    let named = trace.annotations.len();
                    prop_assert!((trace.operators.len()..=trace.operators.len() + lost + named).contains(&operators));
                    prop_assert!((trace.runtime_calls.len()..=trace.runtime_calls.len() + lost).contains(&calls));
                    prop_assert!((trace.activities.len()..=trace.activities.len() + lost).contains(&activities));
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
