//! Checks the communication time of third-party traces against their reference files.

use crate::recorded;

use ridgeline_analysis::attribution::attribute;
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::recording::Recording;

/// Returns the profile of a sample trace, and the communication time per iteration in nanoseconds
/// from its reference file (total over the profiler steps). Returns `None` if the sample traces are
/// not available.
fn sample(name: &str) -> Option<(Profile, f64)> {
    let traces = recorded::sample_traces()?;
    let path = traces.into_iter().find(|path| path.to_string_lossy().contains(name))?;
    let trace = recorded::trace(&path);
    let profile = attribute(&Recording { trace, ..Recording::default() }).expect("a profile");
    let reference = path.to_string_lossy().replace(".json.gz", ".ref.json");
    let reference = std::fs::read_to_string(reference).expect("the reference");
    let reference: serde_json::Value = serde_json::from_str(&reference).expect("JSON");
    let steps = reference["profiler_steps"].as_array().map_or(0, Vec::len).max(1);
    Some((profile, reference["union_comm"].as_f64().expect("a number") / steps as f64))
}

fn check(name: &str) {
    let Some((profile, reference_ns)) = sample(name) else {
        println!("skipped: the sample traces are not here");
        return;
    };
    let Some(exchange) = profile.exchange else {
        assert_eq!(reference_ns, 0.0, "{name}");
        return;
    };
    let total_ns = exchange.total_ns;
    assert!((total_ns / reference_ns - 1.0).abs() < 1e-6, "{name}: {total_ns} {reference_ns}");
    assert!(exchange.exposed_ns > 0.0 && exchange.exposed_ns <= exchange.total_ns, "{exchange:?}");
}

#[test]
fn nccl() {
    check("a100_ddp_train_nccl");
}

#[test]
fn one_process_with_eight_gpus() {
    check("v100_8gpu_train_mem");
}

#[test]
fn mi300x_without_communication() {
    check("mi300x_resnet18_ddp_train");
}
