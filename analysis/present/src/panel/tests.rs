//! Arbitrary input must not make the document invalid or unbounded.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::fixture::add_utilization;
use ridgeline_compare::fixture::{TRAIN, profile};
use ridgeline_profile::since::Since;
use ridgeline_profile::{
    KernelCost, LineCost, MemoryByAge, MemoryByKind, ModuleCost, ModuleId, Phase, PhaseTimes,
    Untracked,
};

fn document_of(profile: &Profile, texts: &[Option<&str>], history: &[RunRecord]) -> Value {
    let input = PanelInput {
        profile: Some(profile),
        texts,
        history,
        project: "p",
        ..PanelInput::default()
    };
    serde_json::to_value(document(&input)).expect("JSON")
}

fn nodes<'a>(document: &'a Value, key: &str) -> &'a [Value] {
    let all = document["recording"]["breakdowns"].as_array().expect("breakdowns");
    let found = all.iter().find(|breakdown| breakdown["key"] == key).expect("the breakdown");
    found["nodes"].as_array().expect("nodes")
}

/// Checks that parents come before children and cost at least as much.
fn assert_trees(document: &Value) {
    for breakdown in document["recording"]["breakdowns"].as_array().expect("breakdowns") {
        let nodes = breakdown["nodes"].as_array().expect("nodes");
        for (index, node) in nodes.iter().enumerate() {
            let Ok(parent) = usize::try_from(node["parent"].as_i64().expect("a parent")) else {
                continue;
            };
            assert!(parent < index, "{node}");
            for key in ["time_ns", "memory_bytes"] {
                assert!(nodes[parent][key].as_u64() >= node[key].as_u64(), "{node}");
            }
        }
    }
}

#[test]
fn before_the_first_run_there_is_no_recording() {
    let document = serde_json::to_value(document(&PanelInput::default())).expect("JSON");
    assert_eq!(document["recording"], Value::Null);
    assert_eq!(document["history"], serde_json::json!([]));
}

#[test]
fn an_empty_profile_has_a_document() {
    let document = document_of(&Profile::default(), &[], &[]);
    assert_eq!(document["recording"]["duration_ns"], 0);
    assert_eq!(document["recording"]["memory"], Value::Null);
    assert!(nodes(&document, "line").is_empty() && nodes(&document, "phase").is_empty());
}

#[test]
fn lines_have_code_only_if_it_is_what_ran() {
    let (source, profile) = profile(TRAIN);
    let today = source.replace("optimizer.step() ", "optimizer.step()  # slow");
    let detail = |text: Option<&str>, name: &str| {
        let document = document_of(&profile, &[text], &[]);
        let node = nodes(&document, "line").iter().find(|node| node["name"] == name).cloned();
        node.expect("the line")["detail"].as_str().expect("text").to_owned()
    };
    assert_eq!(detail(Some(&source), "train.py:18"), "loss.backward()");
    assert_eq!(detail(None, "train.py:18"), "");
    let changed = today.replace("loss.backward()", "loss.backward(retain_graph=True)");
    assert_eq!(detail(Some(&changed), "train.py:18"), "");
    assert_eq!(detail(Some(&changed), "train.py:19"), "optimizer.step()");
}

#[test]
fn invalid_numbers_are_left_out() {
    let (source, mut profile) = profile(TRAIN);
    let nan = PhaseTimes { forward: f64::NAN, backward: f64::INFINITY, ..PhaseTimes::default() };
    profile.iteration.time_ns = f64::NAN;
    profile.iteration.timed_ns = vec![f64::NAN, -1.0, f64::INFINITY];
    profile.iteration.phases = nan;
    profile.lines[0][0].self_time = nan;
    profile.lines[0][0].calls = f64::NAN;
    profile.modules[1].self_time = nan;
    profile.coverage.time = f64::NAN;
    profile.kernels.push(KernelCost { calls: f64::NAN, time_ns: f64::NAN, ..Default::default() });
    profile.untracked.push(Untracked { time_ns: f64::NEG_INFINITY, ..Untracked::default() });
    let run = RunRecord {
        time_ns: f64::NAN,
        samples_per_second: Some(f64::INFINITY),
        ..RunRecord::of(&profile, 1)
    };
    let document = document_of(&profile, &[Some(&source)], &[run.clone(), run]);
    assert_eq!(document["recording"]["duration_ns"], 0);
    let keys: Vec<&Value> = document["recording"]["headline"]
        .as_array()
        .expect("numbers")
        .iter()
        .map(|number| &number["key"])
        .collect();
    assert_eq!(keys, ["memory"]);
    assert_eq!(document["history"][0]["time_ns"], 0.0);
    assert_trees(&document);
}

#[test]
fn throughput_of_a_language_model_is_in_tokens() {
    let (source, mut profile) = profile(TRAIN);
    let throughput = |profile: &Profile| {
        let document = document_of(profile, &[Some(&source)], &[]);
        document["recording"]["headline"][0]["text"].as_str().expect("text").to_owned()
    };
    assert!(throughput(&profile).ends_with(" samples/s"));
    profile.iteration.counts_tokens = true;
    assert!(throughput(&profile).ends_with(" tokens/s"));
}

#[test]
fn modules_with_invalid_parents_are_roots() {
    let (_, mut profile) = profile(TRAIN);
    let module = |path: &str, parent: u32| ModuleCost {
        path: path.into(),
        parent: Some(ModuleId(parent)),
        self_time: PhaseTimes { forward: 1e6, ..PhaseTimes::default() },
        ..ModuleCost::default()
    };
    // A module that is its own parent, a parent that comes later, a missing parent, and a cycle.
    profile.modules =
        vec![module("a", 0), module("b", 3), module("c", 99), module("d", 4), module("e", 3)];
    let document = document_of(&profile, &[], &[]);
    let parents: Vec<&Value> =
        nodes(&document, "module").iter().map(|node| &node["parent"]).collect();
    assert_eq!(parents, [-1, -1, -1, -1, 3, -1]);
    assert_trees(&document);
}

#[test]
fn names_are_safe_to_display() {
    let (_, mut profile) = profile(TRAIN);
    let evil = "<b onclick='x'>\"\n\u{202e}\u{0}".to_owned() + &"long ".repeat(1000);
    profile.files[0].path.clone_from(&evil);
    profile.lines[0][0].scope.clone_from(&evil);
    profile.modules[1].path.clone_from(&evil);
    profile.modules[1].type_name.clone_from(&evil);
    profile.device.name.clone_from(&evil);
    profile.untracked.push(Untracked { name: evil.clone(), time_ns: 1e6, phase: Phase::Other });
    profile.notes.push(evil.clone());
    let run = RunRecord {
        device: evil.clone(),
        commit: Some(evil),
        clean: true,
        ..RunRecord::of(&profile, 1)
    };
    let text = document_of(&profile, &[], &[run.clone(), run]).to_string();
    assert!(!text.contains('\u{202e}') && !text.contains("\\u0000") && !text.contains("\\n"));
    assert!(text.len() < 40_000, "{}", text.len());
}

#[test]
fn parts_show_their_utilization() {
    for (on_gpu, first) in [(true, "GPU busy 80%"), (false, "80% in PyTorch ops")] {
        let (_, mut profile) = profile(TRAIN);
        add_utilization(&mut profile, on_gpu);
        profile.modules[1].self_time = profile.modules[1].total_time;
        let document = document_of(&profile, &[], &[]);
        let facts: Vec<(String, Value)> = document["recording"]["breakdowns"]
            .as_array()
            .expect("breakdowns")
            .iter()
            .flat_map(|tree| tree["nodes"].as_array().expect("nodes"))
            .filter(|node| node["facts"].is_array())
            .map(|node| (node["name"].to_string(), node["facts"][0].clone()))
            .collect();
        let names = ["Net", "conv", "train.py:8", "train.py:17", "forward", "backward"];
        let expected = names.map(|name| (format!("{name:?}"), Value::from(first)));
        assert_eq!(facts, expected);
    }
}

#[test]
fn modules_and_lines_show_their_memory() {
    let (_, mut profile) = profile(TRAIN);
    profile.modules[1].self_memory = profile.modules[1].memory;
    let document = document_of(&profile, &[], &[]);
    let holds = |key: &str, name: &str| {
        let node = nodes(&document, key).iter().find(|node| node["name"] == name).cloned();
        node.expect("the node")["holds"].clone()
    };
    assert_eq!(holds("module", "conv"), "activations 80 MB · weights 8.0 MB");
    assert_eq!(holds("line", "train.py:8"), "activations 80 MB");
    // The kinds of memory are unknown by phase.
    assert_eq!(holds("phase", "train.py:8"), Value::Null);
}

#[test]
fn a_long_history_is_truncated() {
    let (_, mut profile) = profile(TRAIN);
    profile.since = Some(Since { head_unix_ms: Some(1), ..Since::default() }.into());
    let run = RunRecord { commit: Some("abc".to_owned()), ..RunRecord::of(&profile, 2) };
    let mut history = vec![run; 1_000_000];
    history[999_999].when_unix_ms = 1;
    let document = document_of(&profile, &[], &history);
    assert_eq!(document["history"].as_array().expect("runs").len(), MAX_RUNS);
    assert_eq!(document["recording"]["changes_against"]["head"], "abc");
    assert_eq!(document["recording"]["changes_against"]["head_unix_ms"], 1);
}

#[test]
fn nodes_beyond_the_limit_count_as_self_cost_of_their_parents() {
    let (_, mut profile) = profile(TRAIN);
    let line = |line: u32| LineCost {
        line,
        scope: format!("f{}", line % 1000),
        self_time: PhaseTimes { forward: f64::from(line), ..PhaseTimes::default() },
        self_memory: MemoryByKind { activations: 10, ..MemoryByKind::default() },
        self_memory_made: MemoryByAge { before: 4, phases: [0, 6, 0, 0, 0] },
        ..LineCost::default()
    };
    profile.lines = vec![(1..=50_000).map(line).collect()];
    profile.iteration.phases =
        PhaseTimes { forward: 50_000.0 * 50_001.0 / 2.0, ..Default::default() };
    profile.iteration.time_ns = profile.iteration.phases.total();
    profile.memory.peak_bytes = 500_000;
    profile.memory.by_age = MemoryByAge { before: 200_000, phases: [0, 300_000, 0, 0, 0] };
    let document = document_of(&profile, &[], &[]);
    assert_trees(&document);
    for (key, left_out) in [("line", 31_001), ("phase", 82_002)] {
        let nodes = nodes(&document, key);
        assert_eq!(nodes.len(), 20_000, "{key}");
        let all = document["recording"]["breakdowns"].as_array().expect("breakdowns");
        let breakdown = all.iter().find(|breakdown| breakdown["key"] == key).expect("it");
        assert_eq!(breakdown["left_out"], left_out, "{key}");
        let roots = nodes.iter().filter(|node| node["parent"] == -1);
        let sum: u64 = roots.clone().filter_map(|root| root["time_ns"].as_u64()).sum();
        assert_eq!(Some(sum), document["recording"]["duration_ns"].as_u64(), "{key}");
        let bytes: u64 = roots.filter_map(|root| root["memory_bytes"].as_u64()).sum();
        assert_eq!(bytes, 500_000, "{key}");
        // The most expensive line is kept.
        assert!(nodes.iter().any(|node| node["name"] == "train.py:50000"), "{key}");
    }
}

fn any_time() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..1e9, Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(1e300)]
}

proptest! {
    #[test]
    fn arbitrary_profiles_have_valid_documents(
        times in prop::collection::vec((any_time(), any_time(), any::<u64>(), 0u32..9), 0..30),
        time_ns in any_time(),
        peak_bytes in any::<u64>(),
        untracked in prop::collection::vec(any_time(), 0..4),
        timed_ns in prop::collection::vec(any_time(), 0..9),
    ) {
        let mut profile = Profile::default();
        profile.iteration.time_ns = time_ns;
        profile.iteration.timed_ns = timed_ns;
        profile.iteration.batch_size = Some(u64::MAX);
        profile.memory.peak_bytes = peak_bytes;
        profile.memory.peak_at_ns = peak_bytes;
        profile.memory.capacity_bytes = Some(1);
        profile.memory.at_peak.other = peak_bytes;
        for phase in Phase::ALL {
            *profile.iteration.phases.get_mut(phase) = time_ns;
        }
        let mut lines = Vec::new();
        for (forward, other, bytes, index) in times {
            let self_time = PhaseTimes { forward, other, ..PhaseTimes::default() };
            let self_memory = MemoryByKind { weights: bytes, ..MemoryByKind::default() };
            lines.push(LineCost { line: index, self_time, self_memory, ..LineCost::default() });
            profile.modules.push(ModuleCost {
                parent: (index > 0).then_some(ModuleId(index)),
                definition: vec![(FileId(index), index)],
                self_time,
                self_memory,
                ..ModuleCost::default()
            });
        }
        // More lists of lines than files.
        profile.lines = vec![lines.clone(), lines];
        profile.files.push(ridgeline_profile::FileFacts::default());
        profile.untracked =
            untracked.into_iter().map(|time_ns| Untracked { time_ns, ..Default::default() }).collect();
        let run = RunRecord::of(&profile, 5);
        let document = document_of(&profile, &[Some("text"), None, Some("")], &[run.clone(), run]);
        assert_trees(&document);
    }
}
