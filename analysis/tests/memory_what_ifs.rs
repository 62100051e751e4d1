//! Checks memory what-ifs on real recordings and traces: predictions are possible, and refusals
//! have a reason.

use crate::recorded;

use ridgeline_analysis::attribution::{attribute, step_graph};
use ridgeline_analysis::devices::device_spec::{DeviceKind, DeviceSpec};
use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::graph::memory::{BlockKind, peak};
use ridgeline_analysis::graph::recorded::Recorded;
use ridgeline_analysis::operators::op_cost::Options;
use ridgeline_analysis::optimize::facts::{Cluster, Facts, Probes};
use ridgeline_analysis::optimize::ranking::rank;
use ridgeline_analysis::optimize::recompute_curve::{MAX_POINTS, curve};
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::recording::Recording;

const NAMES: [&str; 5] = ["recompute", "gist", "offload", "horizontal-fusion", "parallel-scan"];

/// Returns the recorded GPU, or a CPU if the device table has no such GPU.
fn device_of(profile: &Profile) -> DeviceSpec {
    let table = DeviceTable::shipped();
    let found = table.find(&profile.device.name).cloned();
    found.unwrap_or_else(|| {
        let any = table.devices().first().expect("a device").clone();
        DeviceSpec { kind: DeviceKind::Cpu, ..any }
    })
}

/// Returns the names of the predicted what-ifs, and the refused ones with their reasons.
fn predict_all(name: &str, recording: &Recording) -> (Vec<String>, Vec<(&'static str, String)>) {
    let profile = attribute(recording).expect("a profile");
    let Ok(recorded) = step_graph(recording, &profile) else { return Default::default() };
    let device = device_of(&profile);
    let probes = Probes::default();
    let facts = Facts {
        profile: &profile,
        manifest: recording.manifest.as_ref(),
        device: &device,
        options: Options::default(),
        probes: &probes,
        cluster: Cluster::default(),
    };
    let found = rank(&recorded, &facts, &NAMES, None);
    assert_eq!(found.predictions.len() + found.refusals.len(), NAMES.len(), "{name}");
    for prediction in &found.predictions {
        let time_ns = prediction.time_ns;
        assert!(time_ns.low > 0.0 && time_ns.low <= time_ns.value && time_ns.value <= time_ns.high);
        if let Some(peak) = prediction.peak_bytes {
            let floor = permanent_bytes(&recorded);
            assert!(peak.low >= floor, "{name}: {} under {floor}", prediction.title);
        }
    }
    check_curve(name, &recorded, &facts);
    let refused = found.refusals.into_iter().map(|one| (one.name, one.why)).collect();
    (found.predictions.iter().flat_map(|one| one.names.clone()).collect(), refused)
}

/// Returns the bytes of weights and optimizer state that live for the whole iteration.
fn permanent_bytes(recorded: &Recorded) -> f64 {
    let blocks = recorded.graph.memory.blocks.iter();
    let permanent = blocks.filter(|block| {
        let is_state = matches!(block.kind, BlockKind::Weights | BlockKind::OptimizerState);
        is_state && block.allocated.is_none() && block.freed.is_none()
    });
    permanent.map(|block| block.bytes).sum()
}

fn check_curve(name: &str, recorded: &Recorded, facts: &Facts<'_>) {
    let points = curve(recorded, facts);
    assert!(points.len() <= MAX_POINTS, "{name}");
    if let Some(first) = points.first() {
        assert_eq!(Some(first.peak_bytes), peak(&recorded.graph, &recorded.schedule), "{name}");
    }
    for pair in points.windows(2) {
        let [fast, small] = pair else { continue };
        assert!(fast.time_ns <= small.time_ns && fast.peak_bytes > small.peak_bytes, "{name}");
        assert!(!small.lines.is_empty() && !small.modules.is_empty(), "{name}");
    }
}

fn check_reasons(name: &str, refused: &[(&'static str, String)]) {
    for (one, why) in refused {
        println!("{name}: {one}: {why}");
        let is_a_sentence = !why.ends_with('.') && why.starts_with(|c: char| !c.is_uppercase());
        assert!(is_a_sentence && why.len() > 20, "{name}: {one}: {why}");
        assert!(!why.contains("wait for each other: the recorded times"), "{name}: {one}: {why}");
    }
}

#[test]
fn cpu_recordings_are_predicted_or_refused() {
    for (name, folder) in recorded::recordings() {
        let (predicted, refused) = predict_all(&name, &recorded::recording(&folder));
        println!("{name}: {predicted:?}");
        check_reasons(&name, &refused);
        for gpu_only in ["offload", "horizontal-fusion", "parallel-scan"] {
            assert!(!predicted.iter().any(|one| one == gpu_only), "{name}");
        }
    }
}

#[test]
fn gpu_traces_are_predicted_or_refused() {
    for path in recorded::sample_traces().into_iter().flatten() {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let recording = Recording { trace: recorded::trace(&path), ..Recording::default() };
        let (predicted, refused) = predict_all(&name, &recording);
        println!("{name}: {predicted:?}");
        check_reasons(&name, &refused);
    }
}
