//! What the panel shows of recordings of real programs: that nothing is lost or counted twice, that
//! its page describes it, and the documents that the page's own tests read.

use crate::recorded;

use ridgeline_analysis::attribution::ranks::{rank_cost, side_by_side};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use expect_test::expect_file;
use recorded::large::large;
use recorded::{recording, recordings, root, sample_traces, trace};
use ridgeline_analysis::attribution::{attribute, attribute_compiled, recorded_step};
use ridgeline_analysis::base::units;
use ridgeline_analysis::compare::run::Run;
use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::operators::range::Range;
use ridgeline_analysis::optimize::accuracy::{Pair, Sides};
use ridgeline_analysis::optimize::optimization::Prediction;
use ridgeline_analysis::optimize::ranking::{self, Refused};
use ridgeline_analysis::optimize::recompute_curve::Point;
use ridgeline_analysis::optimize::study::Study;
use ridgeline_analysis::predict::device_comparison::{Comparison, Subject, compare};
use ridgeline_analysis::present::panel::{PanelInput, RunRecord, WhatIfs, document};
use ridgeline_analysis::present::timeline::{MOST_SPANS, timeline};
use ridgeline_analysis::profile::since::Since;
use ridgeline_analysis::profile::utilization::Utilization;
use ridgeline_analysis::profile::{FileId, KernelCost, Profile, Untracked};
use ridgeline_analysis::recording::Recording;
use serde_json::{Value, json};

/// As the server makes it, for a profile of one of the recordings.
fn panel(profile: &Profile, texts: &[Option<&str>]) -> Value {
    panel_with(profile, texts, None)
}

/// The same with what is predicted for other devices.
fn panel_with(profile: &Profile, texts: &[Option<&str>], elsewhere: Option<&Comparison>) -> Value {
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
    let kept = |record: &RunRecord| {
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
        last: Some(&kept(&before)),
        head: Some(&kept(&committed)),
        history: &[now, before, committed],
        elsewhere,
        what_ifs: Some(&what_ifs()),
        ..PanelInput::default()
    };
    serde_json::to_value(document(&input)).expect("JSON")
}

/// What-ifs with everything that can be told, of numbers that stay as predictions become better.
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
    let refused =
        Refused { name: "fp8", title: "FP8", why: "this device does not support FP8".to_owned() };
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
fn the_roots_of_each_breakdown_are_the_iteration_and_the_peak() {
    for (name, profile) in profiles() {
        let document = panel(&profile, &[]);
        let whole = &document["recording"];
        let keys: Vec<&str> =
            list(whole, "breakdowns").iter().filter_map(|b| b["key"].as_str()).collect();
        assert_eq!(keys, ["module", "line", "phase"], "{name}");
        for breakdown in list(whole, "breakdowns") {
            assert_whole(breakdown, &document, &name);
        }
    }
}

#[track_caller]
fn assert_whole(breakdown: &Value, document: &Value, name: &str) {
    let whole = &document["recording"];
    let nodes = list(breakdown, "nodes");
    let roots: Vec<&Value> = nodes.iter().filter(|node| node["parent"] == -1).collect();
    let sum = |key: &str| roots.iter().map(|root| number(root, key)).sum::<u64>();
    let key = &breakdown["key"];
    // Each leaf is rounded to a nanosecond.
    let difference = sum("time_ns").abs_diff(number(whole, "duration_ns"));
    assert!(difference <= nodes.len() as u64, "{name} by {key}: {difference} ns");
    let peak = whole["memory"]["peak_bytes"].as_u64().unwrap_or(0);
    assert_eq!(sum("memory_bytes"), peak, "{name} by {key}");
}

#[test]
fn a_node_is_at_least_its_children() {
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
                let own = time_ns.checked_sub(number(node, "time_ns"));
                let own_bytes = bytes.checked_sub(number(node, "memory_bytes"));
                left[parent] = own.zip(own_bytes).unwrap_or_else(|| panic!("{name}: {node}"));
            }
        }
    }
}

/// The tree of modules gives each moment to one module; `total_time` gives it to all around. Where
/// modules call only what they hold, the two agree.
#[test]
fn modules_cost_what_their_lenses_say() {
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
            let (shown, told) = (number(node, "time_ns") as f64, module.total_time.total());
            assert!((shown - told).abs() <= 1e-6 * told + nodes.len() as f64, "{name}: {node}");
            assert_eq!(number(node, "memory_bytes"), module.memory.total(), "{name}: {node}");
        }
    }
}

#[test]
fn places_are_in_files_and_in_range() {
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

/// The spans of a timeline as rows of its columns.
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
        let timeline = serde_json::to_value(timeline(&recording, 7, MOST_SPANS)).expect("JSON");
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
        // Of the operators' time nearly all is on lines of the user.
        let outermost = rows.iter().filter(|row| row["track"] == 1 && row["depth"] == 0);
        let (on_a_line, all) = outermost.fold((0, 0), |(on_a_line, all), row| {
            let own = if row["file"] >= 0 { row["duration_ns"] } else { 0 };
            (on_a_line + own, all + row["duration_ns"])
        });
        assert!(on_a_line * 100 > all * 99, "{name}: {on_a_line} of {all} ns have a line");
        // The phases leave nothing out.
        let phases = rows.iter().filter(|row| row["track"] == 0);
        assert_eq!(phases.map(|row| row["duration_ns"]).sum::<i64>(), duration_ns, "{name}");
    }
}

/// Traces that other profilers recorded on GPUs, where they are at hand: they have no manifest.
#[test]
fn traces_of_others_have_streams_and_idle_time() {
    let Some(traces) = sample_traces() else { return };
    for path in traces {
        let name = path.display();
        let recording = Recording { trace: trace(&path), ..Recording::default() };
        let timeline = serde_json::to_value(timeline(&recording, 7, MOST_SPANS)).expect("JSON");
        let tracks = list(&timeline, "tracks");
        let of_kind = |kind: &str| -> Vec<i64> {
            let tracks = (0_i64..).zip(tracks);
            tracks.filter(|(_, track)| track["kind"] == kind).map(|(index, _)| index).collect()
        };
        assert!(!of_kind("stream").is_empty() && !of_kind("host").is_empty(), "{name}: {tracks:?}");
        let rows = rows(&timeline);
        // Where there is one GPU, what it did on any stream and what it did not is the iteration.
        if let [idle] = of_kind("idle")[..] {
            let streams = of_kind("stream");
            let on = |row: &&BTreeMap<&str, i64>| {
                row["track"] == idle || streams.contains(&row["track"])
            };
            let mut spans: Vec<(i64, i64)> = rows
                .iter()
                .filter(on)
                .map(|row| (row["start_ns"], row["start_ns"] + row["duration_ns"]))
                .collect();
            spans.sort_unstable();
            let mut until = 0;
            for (start_ns, end_ns) in spans {
                assert!(start_ns <= until, "{name}: a gap from {until} to {start_ns}");
                until = until.max(end_ns);
            }
            assert_eq!(until, number(&timeline, "duration_ns") as i64, "{name}");
        }
        let profile = attribute(&recording).expect("a profile");
        let document = panel(&profile, &[]);
        for breakdown in list(&document["recording"], "breakdowns") {
            assert_whole(breakdown, &document, &name.to_string());
        }
    }
}

#[test]
fn the_shortest_spans_are_left_out() {
    let recording = recording(&root().join("tests/recordings/conv-cpu"));
    let at_most = |most: usize| {
        let timeline = serde_json::to_value(timeline(&recording, 7, most)).expect("JSON");
        let mut durations: Vec<i64> =
            rows(&timeline).iter().map(|row| row["duration_ns"]).collect();
        durations.sort_unstable_by_key(|duration| std::cmp::Reverse(*duration));
        (durations, number(&timeline, "left_out") as usize)
    };
    let (all, none_left_out) = at_most(MOST_SPANS);
    assert_eq!(none_left_out, 0);
    for most in [0, 1, 2, 10, 100, all.len() - 1, all.len(), all.len() + 1] {
        let kept = most.min(all.len());
        assert_eq!(at_most(most), (all[..kept].to_vec(), all.len() - kept), "{most}");
    }
}

#[test]
fn a_hundred_thousand_operators_are_shown_whole() {
    let recording = large(100_000);
    let made = timeline(&recording, 7, MOST_SPANS);
    let json = serde_json::to_string(&made).expect("JSON");
    assert!(json.len() < 10_000_000, "{} bytes", json.len());
    let timeline: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(timeline["left_out"], 0);
    let kinds: Vec<&str> =
        list(&timeline, "tracks").iter().filter_map(|track| track["kind"].as_str()).collect();
    assert_eq!(kinds, ["phases", "host", "host", "stream", "idle"]);
    let rows = rows(&timeline);
    let on_hosts = rows.iter().filter(|row| (1..3).contains(&row["track"])).count();
    // Every operator, and a call that launches for every fourth.
    assert_eq!(on_hosts, 125_000);
    assert!(rows.iter().all(|row| row["track"] == 0 || row["file"] == 0), "all have a line");
}

#[test]
fn what_is_beyond_the_limit_is_counted() {
    let recording = large(200_000);
    let timeline = serde_json::to_value(timeline(&recording, 7, MOST_SPANS)).expect("JSON");
    assert_eq!(rows(&timeline).len(), MOST_SPANS);
    assert!(number(&timeline, "left_out") > 100_000);
}

/// The profile of a recording, and what is predicted for other devices, as the server makes them.
fn predicted_profile(name: &str) -> (Profile, Option<Comparison>) {
    let recording = recording(&root().join("tests/recordings").join(name));
    let profile = attribute(&recording).expect("a profile");
    let step = recorded_step(&recording, &profile);
    let elsewhere = compare(Subject::Recorded(&step), DeviceTable::shipped());
    (profile, elsewhere)
}

/// The example in `docs/panel.md` under a heading, without its comments.
fn example(heading: &str) -> Value {
    let page = std::fs::read_to_string(root().join("docs/panel.md")).expect("the page");
    example_in(&page, heading)
}

/// The same in another page.
fn example_in(page: &str, heading: &str) -> Value {
    let section = page.split(heading).nth(1).expect("the section");
    let block = section.split("```jsonc\n").nth(1).and_then(|rest| rest.split("```").next());
    let without_comments: String = block
        .expect("an example")
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect();
    serde_json::from_str(&without_comments).expect("an example that is JSON")
}

/// Every key of a document with the kinds of its values: `recording.files[].path: string`.
fn keys(value: &Value, path: &str, found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let kind = match value {
        Value::Null => None,
        Value::Bool(_) => Some("bool"),
        Value::Number(_) => Some("number"),
        Value::String(_) => Some("string"),
        Value::Array(_) => Some("list"),
        Value::Object(_) => Some("object"),
    };
    found.entry(path.to_owned()).or_default().extend(kind);
    match value {
        Value::Array(values) => {
            values.iter().for_each(|value| keys(value, &format!("{path}[]"), found));
        }
        Value::Object(values) => {
            values.iter().for_each(|(key, value)| keys(value, &format!("{path}.{key}"), found));
        }
        _ => {}
    }
}

/// A key may be null, and then says nothing of its kind.
#[track_caller]
fn assert_described(document: &Value, example: &Value) {
    let (mut written, mut described) = (BTreeMap::new(), BTreeMap::new());
    keys(document, "", &mut written);
    keys(example, "", &mut described);
    let missing: Vec<_> = written.keys().filter(|key| !described.contains_key(*key)).collect();
    assert!(missing.is_empty(), "the page does not describe {missing:?}");
    let gone: Vec<_> = described.keys().filter(|key| !written.contains_key(*key)).collect();
    assert!(gone.is_empty(), "the page describes {gone:?}, which the document does not have");
    for (key, kinds) in &written {
        let other = &described[key];
        let agree = kinds.is_empty() || other.is_empty() || kinds == other;
        assert!(agree, "{key} is {kinds:?} in the document and {other:?} on the page");
    }
}

/// A profile in which nothing is unknown.
fn full_profile() -> Profile {
    let mut profile =
        attribute(&recording(&root().join("tests/recordings/conv-cpu"))).expect("one");
    profile.kernels.push(KernelCost { occupancy: Some(0.5), ..KernelCost::default() });
    profile.notes.push("a note".to_owned());
    profile.untracked.push(Untracked::default());
    let products = Utilization { kernel_ns: 1.0, tensor_core_ns: 1.0, ..Utilization::default() };
    for module in &mut profile.modules {
        module.utilization = Some(products);
    }
    let mut slow = rank_cost(1, &profile);
    slow.exchange_ns = Some((2e6, 1e6));
    slow.lines.values_mut().for_each(|line| line.total_ns *= 2.0);
    profile.ranks = side_by_side(2, vec![rank_cost(0, &profile), slow]).map(Arc::new);
    profile
}

#[test]
fn the_page_describes_the_document() {
    let mut document = panel(&full_profile(), &[]);
    let what_ifs = document["what_ifs"].take();
    assert_described(&document, &example("## The document"));
    let page = std::fs::read_to_string(root().join("docs/whatif.md")).expect("the page");
    assert_described(&what_ifs, &example_in(&page, "## In the panel"));
}

#[test]
fn the_page_describes_the_predictions_for_other_devices() {
    let page = std::fs::read_to_string(root().join("docs/panel.md")).expect("the page");
    let section = page.split("### Predictions").nth(1).expect("the section");
    let block = section.split("```jsonc\n").nth(1).and_then(|rest| rest.split("```").next());
    let without_comments: String = block
        .expect("an example")
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect();
    let example: Value = serde_json::from_str(&format!("{{{without_comments}}}")).expect("JSON");
    let example = &example["predictions"]["devices"];
    let (profile, elsewhere) = predicted_profile("conv-cpu");
    let document = panel_with(&profile, &[], elsewhere.as_ref());
    let devices = &document["predictions"]["devices"];
    let keys = |value: &Value| -> BTreeSet<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(keys(devices), keys(example));
    assert_eq!(keys(&devices["rows"][0]), keys(&example["rows"][0]));
    let range: BTreeSet<String> = ["low", "value", "high"].map(str::to_owned).into();
    assert_eq!(keys(&devices["rows"][0]["time_ns"]), range);
}

#[test]
fn the_page_describes_the_timeline() {
    let recording = recording(&root().join("tests/recordings/conv-cpu"));
    let timeline = serde_json::to_value(timeline(&recording, 7, MOST_SPANS)).expect("JSON");
    assert_described(&timeline, &example("## The timeline"));
}

/// The tests of the page's source read these; `UPDATE_EXPECT=1` writes them.
#[test]
fn the_fixtures_of_the_page_are_what_is_served() {
    let folder = root().join("tests/recordings/conv-cpu");
    let recording = recording(&folder);
    let profile = attribute(&recording).expect("a profile");
    let texts: Vec<Option<String>> = profile
        .files
        .iter()
        .map(|file| std::fs::read_to_string(folder.join("src").join(&file.path)).ok())
        .collect();
    assert!(texts.iter().any(Option::is_some), "the recording's sources are not at hand");
    let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
    let document = serde_json::to_string_pretty(&panel(&profile, &texts)).expect("JSON");
    expect_file!["../../server/panel/fixtures/document.json"].assert_eq(&format!("{document}\n"));
    let on_cpu = serde_json::to_string(&timeline(&recording, 7, MOST_SPANS)).expect("JSON");
    expect_file!["../../server/panel/fixtures/timeline.json"].assert_eq(&format!("{on_cpu}\n"));
    // None of the recordings is of a GPU.
    let on_gpu = timeline(&large(800), 7, MOST_SPANS);
    let on_gpu = serde_json::to_string(&on_gpu).expect("JSON");
    expect_file!["../../server/panel/fixtures/timeline-gpu.json"].assert_eq(&format!("{on_gpu}\n"));
}

/// The page writes durations, sizes and shares itself; its tests hold it to these texts. Among them
/// are halves, which our formatter rounds to the even digit.
#[test]
fn the_units_of_the_page_are_ours() {
    let steps = [0.0, 0.4, 1.0, 2.25, 9.94, 9.995, 12.25, 42.0, 99.94, 99.95, 312.5, 999.4, 999.5];
    let scaled =
        |most: i32| (0..=most).flat_map(move |power| steps.map(|step| step * 1000_f64.powi(power)));
    let told = |values: &mut dyn Iterator<Item = f64>, text: fn(f64) -> String| -> Vec<Value> {
        values.map(|value| json!([value, text(value)])).collect()
    };
    let shares = [0.0, 0.0004, 0.0009, 0.001, 0.0025, 0.00949, 0.0095, 0.01, 0.125, 0.985, 1.0];
    let units = json!({
        "duration": told(&mut scaled(3), units::duration),
        "bytes": told(&mut scaled(4), units::bytes),
        "percent": told(&mut shares.into_iter(), units::percent),
        "significant": told(&mut scaled(1), units::significant),
    });
    let lines = units.to_string().replace("],[", "],\n[");
    expect_file!["../../server/panel/fixtures/units.json"].assert_eq(&format!("{lines}\n"));
}
