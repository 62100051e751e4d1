//! Checks the panel's documents for recordings of real programs: nothing is lost or counted twice,
//! and the fixtures of the panel's own tests are up to date.

mod documented;

use crate::recorded;

use std::collections::BTreeMap;
use std::sync::Arc;

use expect_test::expect_file;
use recorded::large::large;
use recorded::{recording, recordings, root, sample_traces, trace};
use ridgeline_analysis::attribution::{attribute, attribute_compiled};
use ridgeline_analysis::base::units;
use ridgeline_analysis::compare::run::Run;
use ridgeline_analysis::operators::range::Range;
use ridgeline_analysis::optimize::accuracy::{Pair, Sides};
use ridgeline_analysis::optimize::optimization::Prediction;
use ridgeline_analysis::optimize::ranking::{self, Inapplicable};
use ridgeline_analysis::optimize::recompute_curve::Point;
use ridgeline_analysis::optimize::study::Study;
use ridgeline_analysis::predict::device_comparison::Comparison;
use ridgeline_analysis::present::panel::{PanelInput, RunRecord, WhatIfs, document};
use ridgeline_analysis::present::timeline::{MAX_SPANS, timeline};
use ridgeline_analysis::profile::since::Since;
use ridgeline_analysis::profile::{FileId, Profile};
use ridgeline_analysis::recording::Recording;
use serde_json::{Value, json};

/// Builds the panel document of a profile as the server does.
fn panel(profile: &Profile, texts: &[Option<&str>]) -> Value {
    panel_with(profile, texts, None)
}

/// Builds the panel document of a profile with predictions for other devices.
fn panel_with(profile: &Profile, texts: &[Option<&str>], devices: Option<&Comparison>) -> Value {
    let now = RunRecord {
        commit: Some("a1b2c3d4".to_owned()),
        generation: Some(7),
        ..RunRecord::of(profile, 1_789_000_000_000)
    };
    let before = RunRecord {
        when_unix_ms: now.when_unix_ms - 180_000,
        time_ns: now.time_ns * 2.0,
        samples_per_second: now.samples_per_second.map(|rate| rate / 2.0),
        generation: None,
        ..now.clone()
    };
    let committed = RunRecord {
        when_unix_ms: now.when_unix_ms - 90_000_000,
        time_ns: now.time_ns * 1.01,
        samples_per_second: now.samples_per_second.map(|rate| rate / 1.01),
        peak_bytes: now.peak_bytes * 2,
        clean: true,
        generation: None,
        ..now.clone()
    };
    let mut profile = profile.clone();
    let since = Since { head_unix_ms: Some(committed.when_unix_ms), ..Since::default() };
    profile.since = Some(Arc::new(since));
    let saved_run = |record: &RunRecord| {
        let mut run = Run::of(&profile);
        let factor = record.time_ns / run.time_ns;
        (run.time_ns, run.peak_bytes) = (record.time_ns, record.peak_bytes);
        run.timed_ns = run.timed_ns.iter().map(|time_ns| time_ns * factor).collect();
        run
    };
    let input = PanelInput {
        generation: 7,
        project: "conv",
        can_jump: true,
        can_highlight: true,
        status: json!({"state": "idle", "message": null, "run": null}),
        profile: Some(&profile),
        when_unix_ms: now.when_unix_ms,
        texts,
        last: Some(&saved_run(&before)),
        head: Some(&saved_run(&committed)),
        history: &[now, before, committed],
        device_comparison: devices,
        what_ifs: Some(&what_ifs()),
        ..PanelInput::default()
    };
    serde_json::to_value(document(&input)).expect("JSON")
}

/// Returns what-ifs with every optional part and fixed numbers, which do not change with the
/// predictions.
fn what_ifs() -> WhatIfs {
    let range = |low: f64, value: f64, high: f64| Range { low, value, high };
    let line = |line: u32| (FileId(0), line);
    let prediction = |names: &[&str], title: &str, time_ns: Range| Prediction {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        title: title.to_owned(),
        before_ns: 10e6,
        time_ns,
        before_peak_bytes: Some(40e6),
        samples_factor: 1.0,
        ..Prediction::default()
    };
    let zero = Prediction {
        peak_bytes: Some(range(40e6, 40e6, 41e6)),
        lines: vec![line(31)],
        notes: vec!["gradients that nothing makes are none, and no zeros".to_owned()],
        ..prediction(
            &["zero-grad-none"],
            "Set gradients to None instead of zero",
            range(4e6, 5e6, 6.25e6),
        )
    };
    let amp = Prediction {
        lines: vec![line(38), line(39)],
        ..prediction(&["amp-bf16"], "Mixed precision (bf16)", range(7e6, 8e6, 12e6))
    };
    let together = Prediction {
        peak_bytes: Some(range(30e6, 32e6, 35e6)),
        ..prediction(
            &["amp-bf16", "zero-grad-none"],
            "Mixed precision (bf16) + Set gradients to None instead of zero",
            range(3e6, 4e6, 5e6),
        )
    };
    let refused = Inapplicable {
        name: "fp8",
        title: "FP8",
        why: "this device does not support FP8".to_owned(),
    };
    let point = |time_ns: f64, peak_bytes: f64, lines: &[u32]| Point {
        time_ns,
        peak_bytes,
        lines: lines.iter().map(|number| line(*number)).collect(),
        ..Point::default()
    };
    let study = Study {
        batch_size: Some(16),
        iteration_ns: 10e6,
        peak_bytes: Some(40e6),
        replay_error: 0.004,
        what_ifs: ranking::WhatIfs {
            predictions: vec![zero, amp],
            combinations: vec![together],
            refusals: vec![refused],
        },
        recompute: vec![
            point(10e6, 40e6, &[]),
            point(11e6, 30e6, &[19]),
            point(13e6, 22e6, &[19, 20]),
        ],
        notes: vec!["The recording is a small one".to_owned()],
        ..Study::default()
    };
    let sides = |after_ns: f64| Sides {
        before_ns: 10e6,
        after_ns,
        before_peak_bytes: Some(40e6),
        after_peak_bytes: Some(39e6),
    };
    let measured = Pair {
        name: "zero-grad-none".to_owned(),
        when_unix_ms: 1_788_999_000_000,
        predicted: sides(5e6),
        measured: sides(5.5e6),
        ..Pair::default()
    };
    WhatIfs {
        study: Some(Arc::new(study)),
        message: None,
        edits: vec![
            ("zero-grad-none".to_owned(), Ok(())),
            ("amp-bf16".to_owned(), Err("the loop has no forward pass of its own".to_owned())),
        ],
        pairs: vec![measured],
        measuring: Some("amp-bf16".to_owned()),
    }
}

fn profiles() -> Vec<(String, Profile)> {
    let mut profiles: Vec<(String, Profile)> = recordings()
        .iter()
        .map(|(name, path)| (name.clone(), attribute(&recording(path)).expect("a profile")))
        .collect();
    let compiled = root().join("tests/recordings/compiled-cpu");
    let eager = recording(&compiled.join("eager"));
    let split = attribute_compiled(&recording(&compiled), &eager).expect("a profile");
    profiles.push(("compiled-cpu by eager shares".to_owned(), split));
    profiles
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} is no whole number: {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is no list: {value}"))
}

#[test]
fn breakdown_roots_sum_to_the_iteration_and_the_peak() {
    for (name, profile) in profiles() {
        let document = panel(&profile, &[]);
        let recording = &document["recording"];
        let keys: Vec<&str> =
            list(recording, "breakdowns").iter().filter_map(|b| b["key"].as_str()).collect();
        assert_eq!(keys, ["module", "line", "phase"], "{name}");
        for breakdown in list(recording, "breakdowns") {
            assert_roots_sum_to_total(breakdown, &document, &name);
        }
    }
}

#[track_caller]
fn assert_roots_sum_to_total(breakdown: &Value, document: &Value, name: &str) {
    let recording = &document["recording"];
    let nodes = list(breakdown, "nodes");
    let roots: Vec<&Value> = nodes.iter().filter(|node| node["parent"] == -1).collect();
    let sum = |key: &str| roots.iter().map(|root| number(root, key)).sum::<u64>();
    let key = &breakdown["key"];
    // Each leaf is rounded to a nanosecond.
    let difference = sum("time_ns").abs_diff(number(recording, "duration_ns"));
    assert!(difference <= nodes.len() as u64, "{name} by {key}: {difference} ns");
    let peak = recording["memory"]["peak_bytes"].as_u64().unwrap_or(0);
    assert_eq!(sum("memory_bytes"), peak, "{name} by {key}");
}

#[test]
fn children_sum_to_at_most_their_parent() {
    for (name, profile) in profiles() {
        let document = panel(&profile, &[]);
        for breakdown in list(&document["recording"], "breakdowns") {
            let nodes = list(breakdown, "nodes");
            let mut left: Vec<(u64, u64)> = nodes
                .iter()
                .map(|node| (number(node, "time_ns"), number(node, "memory_bytes")))
                .collect();
            for (index, node) in nodes.iter().enumerate() {
                let phases: u64 = list(node, "phases").iter().filter_map(Value::as_u64).sum();
                assert_eq!(phases, number(node, "time_ns"), "{name}: {node}");
                let Ok(parent) = usize::try_from(node["parent"].as_i64().expect("a parent")) else {
                    continue;
                };
                assert!(parent < index, "{name}: {node}");
                let (time_ns, bytes) = left[parent];
                let time_left = time_ns.checked_sub(number(node, "time_ns"));
                let bytes_left = bytes.checked_sub(number(node, "memory_bytes"));
                left[parent] =
                    time_left.zip(bytes_left).unwrap_or_else(|| panic!("{name}: {node}"));
            }
        }
    }
}

/// The module tree attributes each moment to a single module; `total_time` attributes it to all
/// enclosing modules. The two agree if modules call only their submodules.
#[test]
fn root_modules_agree_with_their_lenses() {
    for (name, profile) in profiles() {
        let document = panel(&profile, &[]);
        let nodes = list(&list(&document["recording"], "breakdowns")[0], "nodes");
        let paths: BTreeMap<&str, &Value> = nodes
            .iter()
            .filter(|node| node["parent"] == -1 && node["detail"] != "")
            .filter_map(|node| Some((node["detail"].as_str()?, node)))
            .collect();
        for module in profile.modules.iter().filter(|module| module.parent.is_none()) {
            let costs_something = module.total_time.total() > 0.0;
            let Some(node) = paths.get(module.type_name.as_str()).filter(|_| costs_something)
            else {
                assert!(!costs_something, "{name}: {}", module.type_name);
                continue;
            };
            let (shown, lens) = (number(node, "time_ns") as f64, module.total_time.total());
            assert!((shown - lens).abs() <= 1e-6 * lens + nodes.len() as f64, "{name}: {node}");
            assert_eq!(number(node, "memory_bytes"), module.memory.total(), "{name}: {node}");
        }
    }
}

#[test]
fn places_refer_to_existing_files() {
    for (name, profile) in profiles() {
        let document = panel(&profile, &[]);
        let text = document.to_string();
        let files = list(&document["recording"], "files").len() as u64;
        assert_eq!(files, profile.files.len() as u64, "{name}");
        let mut places = 0;
        for breakdown in list(&document["recording"], "breakdowns") {
            for node in list(breakdown, "nodes").iter().filter(|node| !node["place"].is_null()) {
                assert!(number(&node["place"], "file") < files, "{name}: {node}");
                assert!(number(&node["place"], "line") > 0, "{name}: {node}");
                places += 1;
            }
        }
        assert!(places > 0 && !text.contains("null,null"), "{name}");
    }
}

/// Converts the columns of a timeline's spans to rows.
fn rows(timeline: &Value) -> Vec<BTreeMap<&str, i64>> {
    let columns = timeline["spans"].as_object().expect("columns");
    let number = list(&timeline["spans"], "track").len();
    let mut rows = vec![BTreeMap::new(); number];
    for (key, column) in columns {
        let column = column.as_array().expect("a column");
        assert_eq!(column.len(), number, "{key}");
        for (row, value) in rows.iter_mut().zip(column) {
            row.insert(key.as_str(), value.as_i64().expect("a whole number"));
        }
    }
    rows
}

#[test]
fn spans_are_on_tracks_in_order_and_within_the_iteration() {
    for (name, path) in recordings() {
        let recording = recording(&path);
        let files = recording.manifest.as_ref().map_or(0, |manifest| manifest.files.len()) as i64;
        let timeline = serde_json::to_value(timeline(&recording, 7, MAX_SPANS)).expect("JSON");
        let (tracks, names) = (list(&timeline, "tracks").len(), list(&timeline, "names").len());
        let duration_ns = number(&timeline, "duration_ns") as i64;
        let rows = rows(&timeline);
        assert!(rows.len() > 100, "{name}: {} spans", rows.len());
        let mut before = (0, i64::MIN);
        for row in &rows {
            assert!((row["track"] as usize) < tracks && (row["name"] as usize) < names, "{row:?}");
            assert!((0..5).contains(&row["phase"]) && (-1..files).contains(&row["file"]));
            assert_eq!(row["file"] == -1, row["line"] == 0, "{name}: {row:?}");
            assert!(row["start_ns"] + row["duration_ns"] <= duration_ns, "{name}: {row:?}");
            let place = (row["track"], row["start_ns"]);
            assert!(before <= place, "{name}: {row:?} comes after {before:?}");
            before = place;
        }
        // Nearly all operator time is on user lines.
        let outermost = rows.iter().filter(|row| row["track"] == 1 && row["depth"] == 0);
        let (on_a_line, all) = outermost.fold((0, 0), |(on_a_line, all), row| {
            let with_line = if row["file"] >= 0 { row["duration_ns"] } else { 0 };
            (on_a_line + with_line, all + row["duration_ns"])
        });
        assert!(on_a_line * 100 > all * 99, "{name}: {on_a_line} of {all} ns have a line");
        // The phases cover the whole iteration.
        let phases = rows.iter().filter(|row| row["track"] == 0);
        assert_eq!(phases.map(|row| row["duration_ns"]).sum::<i64>(), duration_ns, "{name}");
    }
}

/// Third-party GPU traces, if available. They have no manifest.
#[test]
fn third_party_traces_have_streams_and_idle_time() {
    let Some(traces) = sample_traces() else { return };
    for path in traces {
        let name = path.display();
        let recording = Recording { trace: trace(&path), ..Recording::default() };
        let timeline = serde_json::to_value(timeline(&recording, 7, MAX_SPANS)).expect("JSON");
        let tracks = list(&timeline, "tracks");
        let of_kind = |kind: &str| -> Vec<i64> {
            let tracks = (0_i64..).zip(tracks);
            tracks.filter(|(_, track)| track["kind"] == kind).map(|(index, _)| index).collect()
        };
        assert!(!of_kind("stream").is_empty() && !of_kind("host").is_empty(), "{name}: {tracks:?}");
        let rows = rows(&timeline);
        // With a single GPU, stream activity and idle time together cover the iteration.
        if let [idle] = of_kind("idle")[..] {
            let streams = of_kind("stream");
            let is_gpu_track = |row: &&BTreeMap<&str, i64>| {
                row["track"] == idle || streams.contains(&row["track"])
            };
            let mut spans: Vec<(i64, i64)> = rows
                .iter()
                .filter(is_gpu_track)
                .map(|row| (row["start_ns"], row["start_ns"] + row["duration_ns"]))
                .collect();
            spans.sort_unstable();
            let mut end_of_coverage = 0;
            for (start_ns, end_ns) in spans {
                assert!(
                    start_ns <= end_of_coverage,
                    "{name}: a gap from {end_of_coverage} to {start_ns}"
                );
                end_of_coverage = end_of_coverage.max(end_ns);
            }
            assert_eq!(end_of_coverage, number(&timeline, "duration_ns") as i64, "{name}");
        }
        let profile = attribute(&recording).expect("a profile");
        let document = panel(&profile, &[]);
        for breakdown in list(&document["recording"], "breakdowns") {
            assert_roots_sum_to_total(breakdown, &document, &name.to_string());
        }
    }
}

#[test]
fn the_shortest_spans_are_left_out() {
    let recording = recording(&root().join("tests/recordings/conv-cpu"));
    let with_limit = |limit: usize| {
        let timeline = serde_json::to_value(timeline(&recording, 7, limit)).expect("JSON");
        let mut durations: Vec<i64> =
            rows(&timeline).iter().map(|row| row["duration_ns"]).collect();
        durations.sort_unstable_by_key(|duration| std::cmp::Reverse(*duration));
        (durations, number(&timeline, "left_out") as usize)
    };
    let (all, none_left_out) = with_limit(MAX_SPANS);
    assert_eq!(none_left_out, 0);
    for limit in [0, 1, 2, 10, 100, all.len() - 1, all.len(), all.len() + 1] {
        let shown = limit.min(all.len());
        assert_eq!(with_limit(limit), (all[..shown].to_vec(), all.len() - shown), "{limit}");
    }
}

#[test]
fn a_hundred_thousand_operators_are_all_shown() {
    let recording = large(100_000);
    let timeline = timeline(&recording, 7, MAX_SPANS);
    let json = serde_json::to_string(&timeline).expect("JSON");
    assert!(json.len() < 10_000_000, "{} bytes", json.len());
    let timeline: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(timeline["left_out"], 0);
    let kinds: Vec<&str> =
        list(&timeline, "tracks").iter().filter_map(|track| track["kind"].as_str()).collect();
    assert_eq!(kinds, ["phases", "host", "host", "stream", "idle"]);
    let rows = rows(&timeline);
    let on_hosts = rows.iter().filter(|row| (1..3).contains(&row["track"])).count();
    // Every operator, and one launch per four operators.
    assert_eq!(on_hosts, 125_000);
    assert!(rows.iter().all(|row| row["track"] == 0 || row["file"] == 0), "all have a line");
    for kernel in rows.iter().filter(|row| row["track"] == 3) {
        let launch = &rows[usize::try_from(kernel["launch"]).expect("it was launched")];
        assert!((1..3).contains(&launch["track"]) && launch["start_ns"] <= kernel["start_ns"]);
    }
}

#[test]
fn spans_beyond_the_limit_are_counted() {
    let recording = large(200_000);
    let timeline = serde_json::to_value(timeline(&recording, 7, MAX_SPANS)).expect("JSON");
    assert_eq!(rows(&timeline).len(), MAX_SPANS);
    assert!(number(&timeline, "left_out") > 100_000);
}

/// The panel's own tests read these files. `UPDATE_EXPECT=1` updates them.
#[test]
fn the_panels_fixtures_are_up_to_date() {
    let folder = root().join("tests/recordings/conv-cpu");
    let recording = recording(&folder);
    let profile = attribute(&recording).expect("a profile");
    let texts: Vec<Option<String>> = profile
        .files
        .iter()
        .map(|file| std::fs::read_to_string(folder.join("src").join(&file.path)).ok())
        .collect();
    assert!(texts.iter().any(Option::is_some), "the recording's sources were not found");
    let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
    let document = serde_json::to_string_pretty(&panel(&profile, &texts)).expect("JSON");
    expect_file!["../../server/panel/fixtures/document.json"].assert_eq(&format!("{document}\n"));
    let on_cpu = serde_json::to_string(&timeline(&recording, 7, MAX_SPANS)).expect("JSON");
    expect_file!["../../server/panel/fixtures/timeline.json"].assert_eq(&format!("{on_cpu}\n"));
    // None of the recordings is of a GPU.
    let on_gpu = timeline(&large(800), 7, MAX_SPANS);
    let on_gpu = serde_json::to_string(&on_gpu).expect("JSON");
    expect_file!["../../server/panel/fixtures/timeline-gpu.json"].assert_eq(&format!("{on_gpu}\n"));
}

/// The panel formats durations, sizes and percentages in TypeScript; its tests compare the results
/// with these texts. Some values are ties, which our formatter rounds to even.
#[test]
fn unit_texts_for_the_panels_tests_are_up_to_date() {
    let steps = [0.0, 0.4, 1.0, 2.25, 9.94, 9.995, 12.25, 42.0, 99.94, 99.95, 312.5, 999.4, 999.5];
    let scaled = |max_power: i32| {
        (0..=max_power).flat_map(move |power| steps.map(|step| step * 1000_f64.powi(power)))
    };
    let formatted =
        |values: &mut dyn Iterator<Item = f64>, text: fn(f64) -> String| -> Vec<Value> {
            values.map(|value| json!([value, text(value)])).collect()
        };
    let shares = [0.0, 0.0004, 0.0009, 0.001, 0.0025, 0.00949, 0.0095, 0.01, 0.125, 0.985, 1.0];
    let units = json!({
        "duration": formatted(&mut scaled(3), units::duration),
        "bytes": formatted(&mut scaled(4), units::bytes),
        "percent": formatted(&mut shares.into_iter(), units::percent),
        "rate": formatted(&mut scaled(6), |value| units::rate(value, "FLOP/s")),
        "significant": formatted(&mut scaled(1), units::significant),
    });
    let lines = units.to_string().replace("],[", "],\n[");
    expect_file!["../../server/panel/fixtures/units.json"].assert_eq(&format!("{lines}\n"));
}
