//! Checks multi-GPU what-ifs on third-party traces and on recordings of real programs.

use crate::recorded;

use std::path::Path;

use recorded::{recording, recordings, sample_traces, trace};
use ridgeline_analysis::attribution::{attribute, step_graph};
use ridgeline_analysis::devices::device_spec::DeviceSpec;
use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::graph::recorded::Recorded;
use ridgeline_analysis::operators::op_cost::Options;
use ridgeline_analysis::optimize::facts::{Cluster, Facts, Probes};
use ridgeline_analysis::optimize::network::report;
use ridgeline_analysis::optimize::optimization::{Prediction, predict};
use ridgeline_analysis::optimize::study::optimization;
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::recording::Recording;

/// Gradient bytes of torchvision's ResNet-50 in fp32 (25,557,032 parameters).
const RESNET50_BYTES: f64 = 4.0 * 25_557_032.0;

struct Case {
    recorded: Recorded,
    profile: Profile,
    device: &'static DeviceSpec,
    probes: Probes,
}

fn case(recording: &Recording, device: &str) -> Case {
    let profile = attribute(recording).expect("a profile");
    let recorded = step_graph(recording, &profile).expect("a graph");
    let device = DeviceTable::shipped().find(device).expect("a device of the table");
    Case { recorded, profile, device, probes: Probes::default() }
}

impl Case {
    fn facts(&self, gpus: u32, bandwidth: f64) -> Facts<'_> {
        Facts {
            profile: &self.profile,
            manifest: None,
            device: self.device,
            options: Options::default(),
            probes: &self.probes,
            cluster: Cluster {
                gpus,
                gpus_per_machine: 8,
                link: Some(bandwidth),
                network: Some(bandwidth),
            },
        }
    }

    fn predict(&self, name: &str, gpus: u32, bandwidth: f64) -> Result<Prediction, String> {
        let one = optimization(name).expect("an optimization");
        let facts = self.facts(gpus, bandwidth);
        predict(&self.recorded.graph, &self.recorded.schedule, &facts, &[one])
            .map_err(|error| error.to_string())
    }
}

fn has_prefix(path: &Path, name: &str) -> bool {
    path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))
}

fn sample(name: &str, device: &str) -> Option<Case> {
    let path = sample_traces()?.into_iter().find(|path| has_prefix(path, name)).expect("the trace");
    let recording = Recording { trace: trace(&path), ..Recording::default() };
    Some(case(&recording, device))
}

#[test]
fn gradient_bytes_of_a_real_trace_equal_its_models() {
    let Some(case) = sample("v100_resnet50_train_nw0", "Tesla V100-SXM2-16GB") else { return };
    let gradients = &case.recorded.graph.gradients;
    assert_eq!(gradients.len(), 161);
    let bytes: f64 = gradients.iter().map(|one| one.bytes).sum();
    assert_eq!(bytes, RESNET50_BYTES);
}

#[test]
fn a_slower_network_slows_a_real_step() {
    let Some(case) = sample("v100_resnet50_train_nw0", "Tesla V100-SXM2-16GB") else { return };
    let time_ns = |name: &str, gpus: u32, bandwidth: f64| {
        let prediction = case.predict(name, gpus, bandwidth).expect("it applies");
        assert_eq!(prediction.samples_factor, f64::from(gpus), "{name}");
        assert!(prediction.time_ns.low <= prediction.time_ns.value, "{name}");
        assert!(prediction.time_ns.value <= prediction.time_ns.high, "{name}");
        prediction.time_ns.value
    };
    let single_ns = case.recorded.schedule.iteration_ns;
    let quick = time_ns("data-parallel", 8, 100e9);
    assert!((1.0..1.15).contains(&(quick / single_ns)), "{}", quick / single_ns);
    let mut slowest_ns = 0.0;
    for bandwidth in [100e9, 10e9, 1e9, 0.1e9] {
        let step_ns = time_ns("data-parallel", 8, bandwidth);
        assert!(step_ns >= slowest_ns * (1.0 - 1e-9), "at {bandwidth}: {step_ns} < {slowest_ns}");
        slowest_ns = step_ns;
    }
    // At 0.1 GB/s, the all-reduce of 102 MB dominates: it takes 1.8 s.
    let exchange_ns = 1.75 * RESNET50_BYTES / 0.1e9 * 1e9;
    assert!((exchange_ns..exchange_ns + 2.0 * single_ns).contains(&slowest_ns), "{slowest_ns}");
    for name in ["accumulate", "p3", "gradient-compression"] {
        let slow = time_ns(name, 8, 0.1e9);
        assert!(slow < slowest_ns, "{name}: {slow} is not below {slowest_ns}");
    }
    assert!(case.predict("blueconnect", 8, 1e9).is_err());
    assert!(case.predict("blueconnect", 16, 1e9).is_ok());
}

#[test]
fn loader_workers_are_detected_in_real_traces() {
    let Some(without_workers) = sample("v100_resnet50_train_nw0", "Tesla V100-SXM2-16GB") else {
        return;
    };
    let found =
        without_workers.predict("loader-workers", 1, 1e9).expect("it has no loader workers");
    assert!(found.speedup().value > 1.2, "{:?}", found.speedup());
    let Some(with_workers) = sample("rtx2080ti_resnet_train", "NVIDIA GeForce RTX 2080 Ti") else {
        return;
    };
    let why = with_workers.predict("loader-workers", 1, 1e9).expect_err("workers load");
    assert!(why.contains("already uses workers"), "{why}");
}

#[test]
fn the_network_report_of_a_real_step_adds_up() {
    let Some(case) = sample("v100_resnet50_train_nw0", "Tesla V100-SXM2-16GB") else { return };
    let found = report(&case.recorded, &case.facts(8, 5e9)).expect("a report");
    assert_eq!(found.bytes, RESNET50_BYTES);
    let difference_ns = found.hidden_ns + found.exposed_ns - found.exchange_ns;
    assert!(difference_ns.abs() < 1.0, "{difference_ns}");
    let (for_90_percent, to_gain) = (found.bandwidth_for_90_percent, found.bandwidth_to_gain);
    assert!(for_90_percent.expect("a bandwidth") > to_gain.expect("a bandwidth"));
    let text = serde_json::to_string(&found).expect("it is written");
    assert!(text.contains("bandwidth_to_gain"));
}

#[test]
fn distributed_traces_are_refused() {
    let Some(case) = sample("a100_ddp_train_nccl", "NVIDIA A100-SXM4-40GB") else { return };
    let why = case.predict("data-parallel", 4, 1e9).expect_err("it exchanges already");
    assert!(why.contains("already"), "{why}");
}

/// The host limits this step, so that shorter exchanges save nothing.
#[test]
fn recorded_exchanges_of_a_real_step_are_compressed() {
    let Some(case) = sample("a100_ddp_train_nccl", "NVIDIA A100-SXM4-40GB") else { return };
    let found = case.predict("gradient-compression", 4, 1e9).expect("it applies");
    let before_ns = case.recorded.schedule.iteration_ns;
    assert!(found.time_ns.low <= before_ns * 1.001, "{:?} of {before_ns}", found.time_ns);
    assert!(found.time_ns.high >= 0.95 * before_ns, "{:?} of {before_ns}", found.time_ns);
    assert_eq!(found.samples_factor, 1.0);
    let why = case.predict("accumulate", 4, 1e9).expect_err("it is not known to accumulate");
    assert!(why.contains("accumulated"), "{why}");
}

#[test]
fn cpu_recordings_are_refused() {
    for (name, path) in recordings() {
        let recording = recording(&path);
        if !recording.trace.activities.is_empty() {
            continue;
        }
        let profile = attribute(&recording).expect("a profile");
        let recorded = step_graph(&recording, &profile).expect("a graph");
        assert!(!recorded.graph.gradients.is_empty(), "{name}: no gradients");
        let device = ridgeline_analysis::optimize::study::device_of(
            &profile,
            false,
            DeviceTable::shipped(),
            2,
        )
        .expect("CPU run");
        let facts = Facts {
            profile: &profile,
            manifest: recording.manifest.as_ref(),
            device: &device,
            options: Options::default(),
            probes: &Probes::default(),
            cluster: Cluster::default(),
        };
        let one = optimization("data-parallel").expect("an optimization");
        let why = predict(&recorded.graph, &recorded.schedule, &facts, &[one]);
        assert!(why.expect_err("it is a CPU").to_string().contains("GPU"), "{name}");
    }
}
