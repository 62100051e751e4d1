use super::*;
use crate::manifest::Thread;
use proptest::prelude::*;

fn main_thread() -> Manifest {
    Manifest { threads: vec![Thread { tid: 7, main: true }], ..Manifest::default() }
}

/// Replays records of thread 0 as `(kind, a, b)`, one per nanosecond.
fn log(records: &[(u8, u32, u32)]) -> LineLog {
    let mut builder = LineLogBuilder::new(&[(7, true)]);
    for (time_ns, &(kind, a, b)) in (0..).zip(records) {
        builder.record(Record { time_ns, kind, thread: 0, a, b });
    }
    builder.finish()
}

/// Checks the final stack, outermost first, as `code:line`.
#[track_caller]
fn check(records: &[(u8, u32, u32)], expected: &str) {
    let log = log(records);
    let (stack, _) = log.thread(7).expect("the thread").at(i64::MAX);
    let mut frames: Vec<_> =
        log.stacks.walk(stack).map(|(_, f)| format!("{}:{}", f.code, f.line)).collect();
    frames.reverse();
    assert_eq!(frames.join(" "), expected);
}

fn file(records: &[[u8; RECORD_SIZE]]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(1u32.to_le_bytes());
    bytes.extend((RECORD_SIZE as u32).to_le_bytes());
    bytes.extend(records.iter().flatten());
    bytes
}

#[test]
fn lines_move_the_top_frame() {
    check(&[(PUSH, 1, 10), (LINE, 1, 11), (PUSH, 2, 5), (LINE, 2, 6)], "1:11 2:6");
}

#[test]
fn a_pop_returns_to_the_callers_line() {
    check(&[(PUSH, 1, 10), (LINE, 1, 12), (PUSH, 2, 5), (POP, 2, 0)], "1:12");
}

#[test]
fn an_expression_lasts_until_the_next_line_of_its_frame() {
    let expression = |records: &[(u8, u32, u32)]| {
        let log = log(records);
        let (stack, _) = log.thread(7).expect("the thread").at(i64::MAX);
        log.stacks.top(stack).and_then(|frame| frame.expression)
    };
    let records = [(PUSH, 1, 10), (LINE, 1, 11), (EXPRESSION, 1, 5), (PUSH, 2, 3), (POP, 2, 0)];
    assert_eq!(expression(&records), Some(5));
    assert_eq!(expression(&records[..4]), None);
    assert_eq!(expression(&[&records[..], &[(LINE, 1, 12)]].concat()), None);
    assert_eq!(expression(&[(PUSH, 1, 10), (EXPRESSION, 9, 5)]), None);
    check(&records, "1:11");
}

#[test]
fn a_pop_of_a_lower_frame_pops_down_to_it() {
    check(&[(PUSH, 1, 1), (PUSH, 2, 1), (PUSH, 3, 1), (POP, 2, 0)], "1:1");
}

#[test]
fn a_pop_of_an_unknown_frame_is_ignored() {
    check(&[(PUSH, 1, 1), (POP, 9, 0)], "1:1");
    check(&[(POP, 9, 0)], "");
}

#[test]
fn a_line_of_a_lower_frame_pops_and_of_an_unknown_frame_pushes() {
    check(&[(PUSH, 1, 1), (PUSH, 2, 1), (LINE, 1, 3)], "1:3");
    check(&[(PUSH, 1, 1), (LINE, 2, 3)], "1:1 2:3");
}

#[test]
fn recursion_beyond_the_limit_unwinds_correctly() {
    let deep = 20_000;
    let mut records = vec![(PUSH, 0, 1)];
    records.extend(std::iter::repeat_n((PUSH, 1, 2), deep));
    records.extend(std::iter::repeat_n((POP, 1, 0), deep));
    check(&records, "0:1");
}

#[test]
fn recorder_time_is_merged_into_intervals() {
    let log = log(&[
        (PUSH, 1, 1),
        (LINE, 1, 2),
        (RECORDER, 1, 0),
        (RECORDER, 1, 0),
        (RECORDER, 3, 0),
        (RECORDER, 0, 0),
        (RECORDER, u32::MAX, 0),
    ]);
    let thread = log.thread(7).expect("the thread");
    assert_eq!(thread.moments.len(), 2);
    // The time of a nested hook is recorded first.
    assert_eq!(thread.recorder, [(6 - i64::from(u32::MAX), 6)]);
    let log =
        super::tests::log(&[(RECORDER, 0, 0), (RECORDER, 1, 0), (LINE, 1, 1), (RECORDER, 1, 0)]);
    assert_eq!(log.thread(7).expect("the thread").recorder, [(0, 0), (0, 1), (2, 3)]);
}

#[test]
fn modules_and_phases_nest() {
    let log = log(&[
        (PHASE_ENTER, 3, 0),
        (PHASE_ENTER, 1, 0),
        (MODULE_ENTER, 0, 0),
        (MODULE_ENTER, 4, 0),
        (MODULE_EXIT, 0, 0),
    ]);
    let thread = log.main_thread().expect("a thread");
    let markers = |time| log.markers.walk(thread.at(time).1).collect::<Vec<_>>();
    use Marker::{Module, Phase};
    assert_eq!(markers(3), [Module(4), Module(0), Phase(1), Phase(3)]);
    assert_eq!(markers(4), [Phase(1), Phase(3)], "the inner exit went missing");
    assert_eq!(markers(-1), []);
}

#[test]
fn a_clock_set_back_does_not_reorder_moments() {
    let mut builder = LineLogBuilder::new(&[(7, true)]);
    for (time_ns, line) in [(100, 1), (50, 2), (110, 3)] {
        builder.record(Record { time_ns, kind: LINE, thread: 0, a: 0, b: line });
    }
    let log = builder.finish();
    let times: Vec<_> = log.threads.iter().flat_map(|t| &t.moments).map(|m| m.time_ns).collect();
    assert_eq!(times, [100, 100, 110]);
}

#[test]
fn a_file_round_trips() {
    let mut record = [0; RECORD_SIZE];
    record[..8].copy_from_slice(&1_700_000_000_000_000_000_i64.to_le_bytes());
    record[8] = PUSH;
    record[12] = 3;
    record[16] = 40;
    let log = LineLog::parse(&file(&[record]), &main_thread()).expect("a log");
    assert_eq!((log.events, log.cut_short), (1, false));
    let (stack, _) = log.thread(7).expect("it").at(1_700_000_000_000_000_000);
    let top = log.stacks.top(stack).expect("a frame");
    assert_eq!((top.code, top.line), (3, 40));
}

#[test]
fn unknown_expressions_are_part_of_their_line() {
    let ranges = [[3, 0, 3, 5], [0; 4]];
    let expressions = ranges.map(|range| Expression { code: 3, range }).to_vec();
    let manifest = Manifest { expressions, ..main_thread() };
    let expression_of = |number: u8| {
        let (mut push, mut begin) = ([0; RECORD_SIZE], [0; RECORD_SIZE]);
        (push[8], push[12], push[16]) = (PUSH, 3, 40);
        (begin[8], begin[12], begin[16]) = (EXPRESSION, 3, number);
        let log = LineLog::parse(&file(&[push, begin]), &manifest).expect("a log");
        let (stack, _) = log.thread(7).expect("it").at(0);
        log.stacks.top(stack).expect("a frame").expression
    };
    assert_eq!((expression_of(0), expression_of(1)), (Some(0), None));
}

#[test]
fn a_truncated_log_is_read_up_to_its_end() {
    let mut bytes = file(&[[0; RECORD_SIZE], [0; RECORD_SIZE]]);
    bytes.truncate(bytes.len() - 5);
    let log = LineLog::parse(&bytes, &main_thread()).expect("a log");
    assert_eq!((log.events, log.cut_short), (1, true));
}

#[test]
fn other_files_are_rejected() {
    assert_eq!(LineLog::parse(b"", &Manifest::default()).err(), Some(LineLogError::Magic));
    assert_eq!(LineLog::parse(&[0; 64], &Manifest::default()).err(), Some(LineLogError::Magic));
    let mut later = file(&[]);
    later[8] = 2;
    assert_eq!(
        LineLog::parse(&later, &Manifest::default()).err(),
        Some(LineLogError::Version { found: 2 })
    );
    let mut small = file(&[]);
    small[12] = 0;
    assert_eq!(
        LineLog::parse(&small, &Manifest::default()).err(),
        Some(LineLogError::RecordSize { found: 0 })
    );
}

proptest! {
    #[test]
    fn arbitrary_records_are_read(records in prop::collection::vec(any::<[u8; RECORD_SIZE]>(), 0..200),
                            cut in 0usize..24) {
        let mut bytes = file(&records);
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        if let Ok(log) = LineLog::parse(&bytes, &main_thread()) {
            for thread in &log.threads {
                prop_assert!(thread.moments.is_sorted_by_key(|moment| moment.time_ns));
            }
        }
    }

    #[test]
    fn arbitrary_nesting_is_replayed(records in prop::collection::vec((0u8..9, 0u32..4, 0u32..4), 0..300)) {
        log(&records);
    }
}
