//! Checks attribution on recordings of real programs (`tests/recordings`) and on third-party sample
//! traces.

use crate::recorded;

use std::path::Path;

use recorded::{recording, recordings, root, sample_traces, trace};
use ridgeline_analysis::attribution::{attribute, attribute_compiled};
use ridgeline_analysis::profile::{LineCost, Profile, Provenance};
use ridgeline_analysis::recording::Recording;

fn profiles() -> Vec<(String, Profile)> {
    let profile = |path: &Path| attribute(&recording(path)).expect("a profile");
    recordings().iter().map(|(name, path)| (name.clone(), profile(path))).collect()
}

fn lines(profile: &Profile) -> impl Iterator<Item = &LineCost> {
    profile.lines.iter().flatten()
}

#[test]
fn time_is_conserved() {
    for (name, profile) in profiles() {
        let self_ns: f64 = lines(&profile).map(|line| line.self_time.total()).sum();
        let untracked: f64 = profile.untracked.iter().map(|part| part.time_ns).sum();
        let time_ns = profile.iteration.time_ns;
        assert!(time_ns > 0.0, "{name}");
        let difference = (self_ns + untracked - time_ns).abs();
        assert!(difference < 1e-6 * time_ns, "{name}: {self_ns} + {untracked} != {time_ns}");
        let phases = profile.iteration.phases.total();
        assert!((phases - time_ns).abs() < 1e-6 * time_ns, "{name}: {phases} != {time_ns}");
    }
}

#[test]
fn total_time_is_between_self_time_and_iteration_time() {
    for (name, profile) in profiles() {
        for line in lines(&profile) {
            let (self_ns, total) = (line.self_time.total(), line.total_time.total());
            assert!(total <= profile.iteration.time_ns * 1.000_001, "{name}:{}", line.line);
            assert!(self_ns <= total * 1.000_001, "{name}:{}: {self_ns} > {total}", line.line);
            assert!(self_ns >= 0.0, "{name}:{}", line.line);
        }
    }
}

#[test]
fn memory_sums_to_the_peak() {
    for (name, profile) in profiles() {
        assert!(profile.memory.peak_bytes > 0, "{name}");
        assert_eq!(profile.memory.at_peak.total(), profile.memory.peak_bytes, "{name}");
        let highest = profile.memory.curve.iter().map(|(_, bytes)| *bytes).max();
        assert_eq!(highest, Some(profile.memory.peak_bytes), "{name}");
    }
}

#[test]
fn tensors_are_alive_within_the_memory_of_each_moment() {
    for (name, profile) in profiles() {
        let memory = &profile.memory;
        assert!(!memory.tensors.is_empty(), "{name}");
        let alive_at = |time_ns: u64| {
            let alive = memory.tensors.iter().filter(move |tensor| {
                tensor.allocated_ns.is_none_or(|allocated_ns| allocated_ns <= time_ns)
                    && tensor.freed_ns.is_none_or(|freed_ns| time_ns < freed_ns)
            });
            alive.map(|tensor| tensor.bytes).sum::<u64>()
        };
        for (time_ns, bytes) in &memory.curve {
            assert!(alive_at(*time_ns) <= *bytes, "{name}: more than {bytes} at {time_ns} ns");
        }
        // These programs have few tensors that are too small for the list.
        let at_peak = alive_at(memory.peak_at_ns) as f64;
        assert!(at_peak > 0.95 * memory.peak_bytes as f64, "{name}: {at_peak} at the peak");
        let with_line = memory.tensors.iter().filter(|tensor| tensor.line.is_some()).count();
        assert!(2 * with_line > memory.tensors.len(), "{name}: {with_line} tensors have a line");
    }
}

#[test]
fn every_byte_of_activations_has_a_line() {
    for (name, profile) in profiles() {
        let with_line: u64 = lines(&profile).map(|line| line.self_memory.activations).sum();
        assert_eq!(with_line, profile.memory.at_peak.activations, "{name}");
        assert!((profile.coverage.memory - 1.0).abs() < 1e-9, "{name}");
    }
}

#[test]
fn nearly_all_operator_time_has_a_line() {
    for (name, profile) in profiles() {
        assert!(profile.coverage.time > 0.99, "{name}: {:?}", profile.coverage);
    }
}

#[test]
fn weights_belong_to_modules() {
    for (name, profile) in profiles() {
        let Some(root) = profile.modules.first() else { continue };
        assert!(root.memory.weights <= profile.memory.at_peak.weights, "{name}");
        let parents = profile.modules.iter().filter(|module| module.parent.is_none());
        let sum: u64 = parents.map(|module| module.memory.weights).sum();
        assert_eq!(sum, profile.memory.at_peak.weights, "{name}");
    }
}

#[test]
fn a_compiled_function_is_split_over_its_lines() {
    let folder = root().join("tests/recordings/compiled-cpu");
    let unsplit = attribute(&recording(&folder)).expect("a profile");
    let split = attribute_compiled(&recording(&folder), &recording(&folder.join("eager")))
        .expect("a profile");
    let self_ns = |profile: &Profile| -> f64 { lines(profile).map(|l| l.self_time.total()).sum() };
    assert!((self_ns(&unsplit) - self_ns(&split)).abs() < 1e-6 * self_ns(&unsplit));
    let line = |profile: &Profile, number: u32| {
        lines(profile).find(|line| line.line == number).cloned().unwrap_or_default()
    };
    // The call keeps its total time; its self time moves to the lines of the function.
    let (before, after) = (line(&unsplit, 36), line(&split, 36));
    assert_eq!(before.total_time, after.total_time);
    assert!(after.self_time.total() < before.self_time.total());
    for number in [14, 15, 26, 27] {
        let line = line(&split, number);
        assert!(line.total_time.forward > 0.0 && line.total_time.backward > 0.0, "{line:?}");
        assert_eq!(line.provenance, Provenance::Estimated);
    }
    let module = |path: &str| split.modules.iter().find(|module| module.path == path);
    assert!(module("blocks.1").expect("a block").total_time.forward > 0.0);
}

#[test]
fn optimizer_time_is_attributed_to_modules() {
    for (name, profile) in profiles() {
        let roots = profile.modules.iter().filter(|module| module.parent.is_none());
        let modules_ns: f64 = roots.map(|module| module.total_time.optimizer).sum();
        let optimizer_ns = profile.iteration.phases.optimizer;
        assert!((modules_ns - optimizer_ns).abs() < 1e-6 * optimizer_ns, "{name}: {modules_ns}");
    }
}

#[test]
fn third_party_traces_are_attributed() {
    let Some(traces) = sample_traces() else { return };
    for path in traces {
        let recording = Recording { trace: trace(&path), ..Recording::default() };
        let profile = attribute(&recording).expect("a profile");
        let gpu = profile.gpu.expect("a GPU");
        assert_eq!(gpu.idle_ns + gpu.busy_ns, gpu.span_ns, "{}", path.display());
        assert!(profile.iteration.time_ns > 0.0 && !profile.kernels.is_empty());
        assert_eq!(profile.memory.at_peak.total(), profile.memory.peak_bytes);
        let untracked: f64 = profile.untracked.iter().map(|part| part.time_ns).sum();
        assert!((untracked - profile.iteration.time_ns).abs() < 1e-6 * untracked);
    }
}
