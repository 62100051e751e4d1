use proptest::prelude::*;

use super::change::Verdict;
use super::run::{InvalidRun, Run, RunLine, RunModule};
use super::*;
use ridgeline_attribution::ranks::side_by_side;
use ridgeline_profile::ranks::RankCost;
use ridgeline_profile::{MAX_SAMPLES, Profile};
use ridgeline_python::fingerprint;

/// Creates a run of a text whose lines end with `#` and their cost in milliseconds; `@f` begins a
/// function.
fn run(text: &str, timed_ms: &[f64]) -> Run {
    let mut lines = Vec::new();
    let mut scope = "";
    for (line, code) in (1_u32..).zip(text.lines()) {
        if let Some(name) = code.strip_prefix('@') {
            scope = name;
        }
        if let Some((code, cost)) = code.split_once('#') {
            let own_ns = (cost.trim().parse::<f64>().expect("a cost") * 1e6) as u64;
            lines.push(RunLine {
                line,
                scope: scope.to_owned(),
                checksum: fingerprint(code)[0],
                total_ns: own_ns,
                own_ns,
                ..RunLine::default()
            });
        }
    }
    let mut sorted = timed_ms.to_vec();
    sorted.sort_by(f64::total_cmp);
    Run {
        version: run::VERSION,
        device: "cpu".to_owned(),
        batch_size: Some(32),
        time_ns: sorted[sorted.len() / 2] * 1e6,
        timed_ns: timed_ms.iter().map(|time| time * 1e6).collect(),
        phases_ns: [0, (sorted[sorted.len() / 2] * 1e6) as u64, 0, 0, 0],
        peak_bytes: 1_000_000,
        files: vec!["train.py".to_owned()],
        lines,
        ..Run::default()
    }
}

const TIMED: [f64; 5] = [99.0, 100.0, 101.0, 100.0, 100.5];

/// Returns each line's old and new number, and the verdict on its self time.
fn lines(before: &str, after: &str) -> Vec<String> {
    let mut rows = compare(&run(before, &TIMED), &run(after, &TIMED)).lines;
    rows.sort_by_key(|row| (row.line_after, row.line_before));
    let place = |line: Option<u32>| line.map_or("-".to_owned(), |line| line.to_string());
    let verdicts = rows.iter().map(|row| {
        let changed = if row.is_changed { "*" } else { "" };
        let (was, is) = (place(row.line_before), place(row.line_after));
        format!("{was}>{is}{changed} {}", row.own.verdict.name())
    });
    verdicts.collect()
}

#[test]
fn lines_that_moved_are_the_same_lines() {
    assert_eq!(
        lines("a # 10\nb # 20\n", "\n\nx\na # 10\nb # 20\n"),
        ["1>4 within noise", "2>5 within noise"]
    );
    assert_eq!(
        lines("a # 10\nb # 20\nc # 30\n", "c # 30\na # 10\nb # 40\n"),
        ["3>1 within noise", "1>2 within noise", "2>3 slower"]
    );
}

#[test]
fn new_gone_and_edited_lines_are_detected() {
    assert_eq!(lines("a # 10\n", "a # 10\nb # 5\n"), ["1>1 within noise", "->2 new"]);
    assert_eq!(lines("a # 10\nb # 5\n", "a # 10\n"), ["2>- gone", "1>1 within noise"]);
    assert_eq!(
        lines("@f\na # 10\nb # 50\nc # 1\n", "@f\na # 10\nx # 20\nc # 1\n"),
        ["2>2 within noise", "3>3* faster", "4>4 within noise"]
    );
}

#[test]
fn a_line_replaced_in_another_function_does_not_match() {
    assert_eq!(
        lines("@f\na # 10\n@g\nb # 5\n", "@f\na # 10\n@h\nx # 5\n"),
        ["4>- gone", "2>2 within noise", "->4 new"]
    );
}

#[test]
fn a_line_is_matched_in_another_file() {
    let before = run("@f\na # 10\nb # 20\n", &TIMED);
    let mut after = before.clone();
    after.files = vec!["model.py".to_owned()];
    let found = compare(&before, &after);
    assert!(found.lines.iter().all(|row| row.own.verdict == Verdict::WithinNoise));
    assert_eq!(found.lines[0].file, "model.py");
}

#[test]
fn without_checksums_lines_are_matched_by_number() {
    let mut before = run("@f\na # 10\nb # 50\n", &TIMED);
    let mut after = run("@f\na # 30\n@g\nb # 50\n", &TIMED);
    for line in before.lines.iter_mut().chain(&mut after.lines) {
        line.checksum = 0;
    }
    let found = compare(&before, &after);
    let verdicts: Vec<_> = found.lines.iter().map(|row| row.own.verdict).collect();
    assert_eq!(verdicts, [Verdict::Gone, Verdict::New, Verdict::Slower]);
}

/// Checks the verdict on a line that takes 20 ms and then 30 ms, with these samples of the profiled
/// iterations.
#[track_caller]
fn check_samples(before: &[u64], after: &[u64], expected: Verdict) {
    let with = |milliseconds: u64, samples: &[u64]| {
        let mut run = run(&format!("a # {milliseconds}"), &TIMED);
        let samples: Vec<u64> = samples.iter().map(|sample| sample * 1_000_000).collect();
        for line in &mut run.lines {
            (line.total_samples_ns, line.own_samples_ns) = (samples.clone(), samples.clone());
        }
        run
    };
    let found = compare(&with(20, before), &with(30, after));
    assert_eq!((found.lines[0].own.verdict, found.lines[0].total.verdict), (expected, expected));
    let back = compare(&with(30, after), &with(20, before));
    let is_faster = back.lines[0].own.verdict == Verdict::Faster;
    assert_eq!(is_faster, expected == Verdict::Slower);
}

#[test]
fn one_disturbed_iteration_is_not_a_change() {
    check_samples(&[20, 21], &[30, 31], Verdict::Slower);
    // Two and two samples: one later sample is as fast as an earlier one.
    check_samples(&[20, 35], &[30, 31], Verdict::WithinNoise);
    check_samples(&[20, 21], &[21, 45], Verdict::WithinNoise);
    check_samples(&[20], &[30], Verdict::Slower);
    // All later samples are longer, but they differ by more than the runs do.
    check_samples(&[20, 21], &[30, 50], Verdict::WithinNoise);
    // More samples can be tested, and tolerate one that was disturbed.
    check_samples(&[20, 20, 21, 20, 21, 45], &[30, 29, 30, 31, 30, 31], Verdict::Slower);
    check_samples(&[20, 20, 21, 33, 21, 45], &[30, 29, 30, 31, 30, 31], Verdict::WithinNoise);
    // Runs stored by older versions have no samples.
    check_samples(&[], &[30, 31], Verdict::Slower);
    check_samples(&[], &[], Verdict::Slower);
}

#[track_caller]
fn check_time(before: &[f64], after: &[f64], expected: Verdict) {
    let found = compare(&run("a # 1", before), &run("a # 1", after));
    assert_eq!(found.time.verdict, expected, "{:?}", found.test);
    assert_eq!(found.throughput.verdict, expected);
}

#[test]
fn iteration_changes_must_be_significant_and_large() {
    check_time(&TIMED, &TIMED.map(|time| time * 1.1), Verdict::Slower);
    check_time(&TIMED, &TIMED.map(|time| time * 0.9), Verdict::Faster);
    // Significant, but too small to matter.
    check_time(&[100.0; 9], &[101.5; 9], Verdict::WithinNoise);
    // Large, but not significant.
    check_time(
        &[80.0, 100.0, 140.0, 90.0, 120.0],
        &[85.0, 110.0, 150.0, 95.0, 130.0],
        Verdict::WithinNoise,
    );
    // Three and three samples are enough if all of one run are longer, and by enough.
    check_time(&[100.0, 101.0, 102.0], &[120.0, 121.0, 122.0], Verdict::Slower);
    check_time(&[100.0, 101.0, 102.0], &[104.0, 105.0, 106.0], Verdict::WithinNoise);
    // Two and two samples are not.
    check_time(&[100.0, 101.0], &[150.0, 151.0], Verdict::Unknown);
}

#[test]
fn other_batch_sizes_and_devices_are_not_comparable() {
    let before = run("a # 10", &TIMED);
    let batch = Run { batch_size: Some(64), ..before.clone() };
    let found = compare(&before, &batch);
    assert_eq!(found.unlike.as_deref(), Some("the batch sizes differ: 32 and 64"));
    assert_eq!((found.time.verdict, found.peak.verdict), (Verdict::Unknown, Verdict::Unknown));
    assert_eq!(found.lines[0].own.verdict, Verdict::Unknown);
    assert_eq!(found.throughput.verdict, Verdict::Faster);
    let device = Run { device: "NVIDIA H200".to_owned(), ..before.clone() };
    let found = compare(&before, &device);
    assert_eq!(found.throughput.verdict, Verdict::Unknown);
    assert_eq!(found.unlike.as_deref(), Some("the devices differ: cpu and NVIDIA H200"));
}

#[test]
fn a_run_that_was_profiled_throughout_is_noted() {
    let before = run("a # 10", &TIMED);
    let trace = Run { timed_ns: Vec::new(), ..before.clone() };
    let notes = |before: &Run, after: &Run| compare(before, after).notes;
    let expected = "the later run was profiled throughout, so its times include profiling overhead";
    assert_eq!(notes(&before, &trace), [expected]);
    assert_eq!(notes(&trace, &before)[0], expected.replace("later", "earlier"));
    assert!(notes(&before, &before).is_empty() && notes(&trace, &trace).is_empty());
}

#[test]
fn a_run_on_a_busy_machine_is_noted() {
    let idle = run("a # 10", &TIMED);
    let busy = Run { waited_share: 0.49, ..idle.clone() };
    let expected = "the machine was busy during the earlier run: the program waited for the CPU 49% of the time";
    assert!(compare(&busy, &idle).notes.iter().any(|note| note == expected));
    assert!(compare(&idle, &busy).notes.iter().any(|note| note.contains("the later run")));
    let hostile = Run { waited_share: f64::NAN, ..idle.clone() }.sanitized();
    assert_eq!(hostile.waited_share, 0.0);
}

#[test]
fn other_numbers_of_ranks_are_not_comparable() {
    let single = Run { world_size: Some(1), ..run("a # 10", &TIMED) };
    let pair = Run { world_size: Some(2), samples: Some(96), peak_rank: Some(1), ..single.clone() };
    let found = compare(&pair, &single);
    assert_eq!(found.unlike.as_deref(), Some("the number of ranks differs: 2 ranks and 1 rank"));
    let verdicts = [&found.time, &found.peak, &found.throughput].map(|measure| measure.verdict);
    assert_eq!(verdicts, [Verdict::Unknown; 3]);
    // Throughput counts the samples of all ranks, and the peak is that of the rank with the highest
    // one.
    let found = compare(&pair, &pair);
    assert_eq!(found.unlike, None);
    assert_eq!(found.throughput.before, Some(960.0));
    assert!(found.notes.iter().any(|note| note.contains("rank 1")), "{:?}", found.notes);
    let unknown = Run { samples: None, ..pair.clone() };
    assert_eq!(compare(&unknown, &pair).throughput.before, None);
    // Runs stored by older versions have no number of ranks.
    let older = Run { world_size: None, ..single.clone() };
    assert_eq!(compare(&older, &pair).unlike, None);
    let json = br#"{"run": {"version": 1, "device": "cpu", "batch_size": 8, "time_ns": 1e9}}"#;
    let read = Run::read(json).expect("a run");
    assert_eq!((read.world_size, read.samples_per_second()), (None, Some(8.0)));
}

#[test]
fn the_highest_peak_of_all_ranks_is_stored() {
    let rank = |rank, batch_size, peak_bytes| RankCost {
        rank,
        batch_size,
        peak_bytes,
        ..RankCost::default()
    };
    let stored = |world_size, ranks| {
        let ranks = side_by_side(world_size, ranks).map(std::sync::Arc::new);
        let run = Run::of(&Profile { ranks, ..Profile::default() });
        (run.world_size, run.samples, run.peak_bytes, run.peak_rank)
    };
    let pair = vec![rank(0, Some(8), 20), rank(1, Some(16), 443)];
    assert_eq!(stored(2, pair.clone()), (Some(2), Some(24), 443, Some(1)));
    assert_eq!(stored(3, pair), (Some(3), None, 443, Some(1)));
    let unknown = vec![rank(0, Some(8), 20), rank(1, None, 20)];
    assert_eq!(stored(2, unknown), (Some(2), None, 20, Some(0)));
    assert_eq!(stored(1, vec![]), (Some(1), None, 0, None));
}

#[test]
fn memory_changes_above_the_noise_are_reported() {
    let before = run("a # 10", &TIMED);
    let peak = |bytes| compare(&before, &Run { peak_bytes: bytes, ..before.clone() }).peak.verdict;
    assert_eq!(peak(1_004_000), Verdict::WithinNoise);
    assert_eq!(peak(1_100_000), Verdict::Larger);
    assert_eq!(peak(900_000), Verdict::Smaller);
    assert_eq!(peak(0), Verdict::Unknown);
}

#[test]
fn omitted_lines_are_not_new() {
    let before = Run { left_out_below_ns: 6_000_000, ..run("a # 10", &TIMED) };
    let found = compare(&before, &run("a # 10\nb # 5\nc # 7", &TIMED));
    let verdicts: Vec<_> = found.lines.iter().map(|row| row.own.verdict).collect();
    assert_eq!(verdicts, [Verdict::New, Verdict::Unknown, Verdict::WithinNoise]);
}

/// Creates a run with the checksums of its text, without the costs after `#`.
fn with_text(text: &str) -> Run {
    let code: Vec<&str> =
        text.lines().map(|line| line.split_once('#').map_or(line, |(code, _)| code)).collect();
    let checksums = fingerprint(&code.join("\n"));
    let texts = vec![run::RunText { path: "train.py".to_owned(), checksums }];
    Run { texts, ..run(text, &TIMED) }
}

/// Returns the verdicts on the self time of all lines, by line number.
fn verdicts_of_lines(before: &Run, after: &Run) -> Vec<(u32, Verdict)> {
    let mut rows = compare(before, after).lines;
    rows.sort_by_key(|row| row.line_after.or(row.line_before));
    let line = |row: &LineRow| row.line_after.or(row.line_before).expect("a line");
    rows.iter().map(|row| (line(row), row.own.verdict)).collect()
}

#[test]
fn cheap_lines_are_neither_new_nor_gone() {
    // Half a percent of the iteration is 0.5 ms.
    assert_eq!(lines("a # 10\nb # 0.4\n", "a # 10\n"), ["2>- within noise", "1>1 within noise"]);
    assert_eq!(lines("a # 10\n", "a # 10\nb # 0.6\n"), ["1>1 within noise", "->2 new"]);
    // Its memory may be large even if its time is small.
    let mut after = run("a # 10\nb # 0.1\n", &TIMED);
    after.lines[1].bytes = 900_000;
    let found = compare(&run("a # 10\n", &TIMED), &after);
    let row = found.lines.iter().find(|row| row.line_after == Some(2)).expect("the line");
    assert_eq!((row.own.verdict, row.memory.verdict), (Verdict::WithinNoise, Verdict::New));
}

#[test]
fn a_line_that_runs_sometimes_is_neither_new_nor_gone() {
    let (with, without) = ("a # 10\nif b:\n    c # 16\n", "a # 10\nif b:\n    c\n");
    let (then, now) = (with_text(with), with_text(without));
    let unknown = [(1, Verdict::WithinNoise), (3, Verdict::Unknown)];
    assert_eq!(verdicts_of_lines(&then, &now), unknown);
    assert_eq!(verdicts_of_lines(&now, &then), unknown);
    // Another line of the text was edited, but this line still exists.
    let edited = with_text("a2 # 10\nif b:\n    c\n");
    assert!(verdicts_of_lines(&then, &edited).contains(&(3, Verdict::Unknown)));
    // The hash of the text is enough if nothing else is stored, for modules as well.
    let bare = |run: &Run, modules: &[&str]| Run {
        texts: Vec::new(),
        text: Some("0123".to_owned()),
        modules: modules
            .iter()
            .map(|path| RunModule {
                path: (*path).to_owned(),
                total_ns: 16_000_000,
                own_ns: 16_000_000,
                ..RunModule::default()
            })
            .collect(),
        ..run.clone()
    };
    let (then, now) = (bare(&then, &["head"]), bare(&now, &[]));
    assert_eq!(verdicts_of_lines(&then, &now), unknown);
    assert_eq!(compare(&then, &now).modules[0].own.verdict, Verdict::Unknown);
}

#[test]
fn duplicate_and_removed_lines_are_detected() {
    let (one, two) = (with_text("a # 10\nb # 5\n"), with_text("a # 10\nb # 5\nc # 1\nb # 5\n"));
    assert_eq!(verdicts_of_lines(&one, &two)[3], (4, Verdict::New));
    let less = with_text("a # 10\n");
    assert_eq!(verdicts_of_lines(&one, &less)[1], (2, Verdict::Gone));
}

#[test]
fn modules_are_matched_by_path() {
    let with = |modules: &[(&str, u64)]| {
        let modules = modules.iter().map(|(path, ms)| RunModule {
            path: (*path).to_owned(),
            total_ns: ms * 1_000_000,
            own_ns: ms * 1_000_000,
            ..RunModule::default()
        });
        Run { modules: modules.collect(), ..run("a # 1", &TIMED) }
    };
    let found = compare(&with(&[("a", 10), ("b", 20)]), &with(&[("b", 30), ("c", 5)]));
    let verdicts: Vec<_> =
        found.modules.iter().map(|row| (row.path.as_str(), row.own.verdict)).collect();
    assert_eq!(verdicts[..2], [("a", Verdict::Gone), ("b", Verdict::Slower)]);
    assert_eq!(verdicts[2], ("c", Verdict::New));
}

#[test]
fn a_run_round_trips_through_json() {
    let stored = with_text("@f\na # 10\nb # 20\n");
    let document = |run: &Run| serde_json::json!({ "schema": 1, "lines": [1], "run": run });
    let bytes = document(&stored).to_string();
    assert_eq!(Run::read(bytes.as_bytes()), Ok(stored.clone()));
    let newer = document(&Run { version: 2, ..stored }).to_string();
    assert_eq!(Run::read(newer.as_bytes()), Err(InvalidRun::Newer(2)));
    assert_eq!(Run::read(b"{\"schema\": 1}"), Err(InvalidRun::Missing));
    assert_eq!(Run::read(b"{\"run\": {}}"), Err(InvalidRun::Missing));
}

#[test]
fn malformed_input_is_rejected_or_sanitized() {
    let deep = "[".repeat(100_000);
    let deep_in = format!("{{\"run\": {{\"version\": 1, \"lines\": {deep}");
    let huge = "{\"run\": {\"version\": 1, \"time_ns\": 1e999}}";
    let negative = "{\"run\": {\"version\": 1, \"peak_bytes\": -5}}";
    let texts = |digits: &str| {
        format!("{{\"run\": {{\"version\": 1, \"texts\": [{{\"checksums\": \"{digits}\"}}]}}}}")
    };
    let (short, other) = (texts("0123456"), texts("\u{e4}\u{e4}\u{e4}\u{e4}"));
    let own = [short.as_str(), &other, "", "no JSON", &deep, &deep_in, huge, negative];
    for text in own.into_iter().chain(["[]", "{\"run\": 7}", "\u{0}"]) {
        let read = Run::read(text.as_bytes());
        assert!(matches!(read, Err(InvalidRun::Form(_))), "{read:?}");
    }
    let odd = serde_json::json!({"run": {"version": 1, "time_ns": -1.0, "timed_ns": [-1.0, 2.0, 1e300],
        "files": ["a\u{1b}[2J.py"], "device": "x".repeat(10_000),
        "lines": [{"file": 9, "line": 1}, {"file": 0, "line": 0},
            {"file": 0, "line": 3, "own_samples_ns": vec![7; 500]}],
        "phase_samples_ns": vec![[1; 5]; 500]}});
    let run = Run::read(odd.to_string().as_bytes()).expect("put right");
    let samples = (run.lines[0].own_samples_ns.len(), run.phase_samples_ns.len());
    assert_eq!(samples, (MAX_SAMPLES, MAX_SAMPLES));
    assert_eq!((run.time_ns, run.timed_ns.len(), run.lines.len()), (0.0, 1, 1));
    assert!(run.device.chars().count() < 300 && !run.files[0].contains('\u{1b}'));
    compare(&run, &run);
}

#[test]
fn a_run_has_no_source_text_and_is_bounded() {
    let (text, mut profile) = crate::fixture::profile(crate::fixture::TRAIN);
    let stored = Run::of(&profile);
    let json = serde_json::to_string(&stored).expect("JSON");
    assert!(text.contains("self.head(") && !json.contains("self.head("), "{json}");
    assert!(stored.text.as_deref().is_some_and(|hash| hash.len() == 16));
    assert_eq!(stored.left_out_below_ns, 0);
    let line = stored.lines.iter().find(|line| line.line == 8).expect("line 8");
    assert_eq!((line.total_ns, line.bytes), (50_000_000, 80_000_000));
    assert_eq!(line.checksum, fingerprint(&text)[7]);

    let costs: Vec<_> = (1..5000)
        .map(|line| ridgeline_profile::LineCost {
            line,
            total_time: ridgeline_profile::PhaseTimes {
                forward: f64::from(line),
                ..Default::default()
            },
            ..Default::default()
        })
        .collect();
    profile.lines = vec![costs];
    let stored = Run::of(&profile);
    assert!(stored.lines.len() <= run::MAX_LINES && stored.left_out_below_ns > 0);
    assert!(stored.lines.iter().any(|line| line.line == 4999));
    assert!(serde_json::to_string(&stored).expect("JSON").len() < 60_000);
    // Another text has another hash.
    let hash = stored.text.clone();
    profile.files[0].fingerprint[3] ^= 1;
    assert_ne!(Run::of(&profile).text, hash);
}

fn any_run() -> impl Strategy<Value = Run> {
    let line = (0_u32..2, 1_u32..20, 0_u32..5, 0_u64..1_000_000, 0_u64..1000);
    (
        proptest::collection::vec(line, 0..30),
        proptest::collection::vec(0.0_f64..1e9, 0..12),
        proptest::option::of(1_u64..64),
    )
        .prop_map(|(lines, timed_ns, batch_size)| {
            let lines = lines.into_iter().map(|(file, line, checksum, own_ns, bytes)| RunLine {
                file,
                line,
                scope: ["", "f"][(checksum % 2) as usize].to_owned(),
                checksum,
                total_ns: 2 * own_ns,
                own_ns,
                bytes,
                ..RunLine::default()
            });
            let time_ns = timed_ns.first().copied().unwrap_or_default();
            let files = vec!["a.py".to_owned(), "b.py".to_owned()];
            let modules = vec![RunModule { total_ns: 7, ..RunModule::default() }];
            let lines = lines.collect();
            Run { time_ns, timed_ns, batch_size, lines, files, modules, ..Run::default() }
        })
}

/// Returns every verdict of a comparison.
fn verdicts(found: &Comparison) -> Vec<Verdict> {
    let lines = found.lines.iter().flat_map(|row| [row.total, row.own, row.memory]);
    let modules = found.modules.iter().flat_map(|row| [row.total, row.own, row.memory]);
    let phases = found.phases.iter().map(|row| row.time);
    let all = [found.time, found.throughput, found.peak].into_iter();
    all.chain(lines).chain(modules).chain(phases).map(|measure| measure.verdict).collect()
}

proptest! {
    #[test]
    fn a_run_does_not_differ_from_itself(run in any_run()) {
        let run = run.sanitized();
        let found = compare(&run, &run);
        prop_assert_eq!(found.lines.len(), run.lines.len());
        prop_assert!(!verdicts(&found).into_iter().any(Verdict::is_change), "{:?}", found);
    }

    #[test]
    fn every_line_is_in_one_row(before in any_run(), after in any_run()) {
        let found = compare(&before, &after);
        let then = found.lines.iter().filter(|row| row.line_before.is_some()).count();
        let now = found.lines.iter().filter(|row| row.line_after.is_some()).count();
        prop_assert_eq!((then, now), (before.lines.len(), after.lines.len()));
    }

    #[test]
    fn slower_one_way_is_faster_the_other(before in any_run(), after in any_run()) {
        let (there, back) = (compare(&before, &after), compare(&after, &before));
        let mirrored = match there.time.verdict {
            Verdict::Faster => Verdict::Slower,
            Verdict::Slower => Verdict::Faster,
            other => other,
        };
        prop_assert!(
            back.time.verdict == mirrored || there.time.verdict == Verdict::WithinNoise
                || back.time.verdict == Verdict::WithinNoise
        );
    }
}
