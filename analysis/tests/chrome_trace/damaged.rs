//! Input that is damaged, truncated, malicious or not a trace.

use std::io::{self, Read};

use ridgeline_analysis::present::trace_summary::summarize;
use ridgeline_analysis::recording::chrome_trace::{Options, TraceError};
use ridgeline_analysis::recording::trace::Trace;

use super::{TODAY, check_error, gzip, read, with_events};

#[test]
fn input_that_is_not_a_trace_is_an_error() {
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
fn deep_nesting_is_refused() {
    let deep = "[".repeat(20_000);
    let depth = "expected a value nested less than 128 levels deep";
    check_error(with_events(&deep), &format!("the trace is invalid at byte 145: {depth}"));
    check_error(&deep, &format!("the trace is invalid at byte 129: {depth}"));
    let members = r#"{"a":"#.repeat(20_000);
    assert!(matches!(read(&members), Err(TraceError::Invalid { .. })));
    assert!(matches!(read(with_events(&members)), Err(TraceError::Invalid { .. })));
}

#[test]
fn limits_are_enforced() {
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

/// An endless source, like a device file: a prefix of the given length, then the remaining bytes
/// repeated.
struct Endless(&'static [u8], usize);

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (prefix, repeated) = self.0.split_at(self.1);
        let (from, length) =
            if prefix.is_empty() { (repeated, buffer.len()) } else { (prefix, self.1) };
        let length = length.min(buffer.len());
        buffer[..length].iter_mut().zip(from.iter().cycle()).for_each(|(to, from)| *to = *from);
        self.0 = &self.0[if prefix.is_empty() { 0 } else { length }..];
        self.1 -= if prefix.is_empty() { 0 } else { length };
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
fn a_gzip_bomb_is_refused() {
    let bomb = gzip(&vec![b' '; 16 << 20]);
    check_error(bomb, "the trace's gzip data decompresses to more than 300 times its size");
}

#[test]
fn damaged_gzip_data_is_an_error() {
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
fn read_errors_are_returned() {
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
fn a_trace_truncated_anywhere_gives_the_complete_events() {
    let complete = read(TODAY).unwrap();
    let first_event = TODAY.find("\"traceEvents\": [").unwrap() + "\"traceEvents\": [".len();
    let end = TODAY.trim_end().len();
    for cut in 0..end {
        match read(&TODAY[..cut]) {
            Ok(trace) => {
                assert!(cut >= first_event, "at {cut}");
                assert_eq!(trace.truncated_at, Some(cut as u64));
                assert!(trace.operators.len() <= complete.operators.len());
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
fn truncated_gzip_data_gives_a_truncated_trace() {
    let zipped = gzip(TODAY.as_bytes());
    for cut in 2..zipped.len() {
        match read(&zipped[..cut]) {
            Ok(trace) => assert!(trace.truncated_at.is_some(), "at {cut}"),
            Err(TraceError::Empty | TraceError::EndsEarly { .. }) => {}
            Err(error) => panic!("at {cut}: {error}"),
        }
    }
}
