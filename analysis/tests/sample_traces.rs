//! Checks summaries of third-party traces against the exact numbers in their reference files.
//!
//! The traces are too large for the repository. The tests look for them in `RIDGELINE_SHARED`, or
//! in `../shared` next to the repository, and print a message if they are not there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ridgeline_analysis::present::trace_summary::{TraceSummary, summarize};
use ridgeline_analysis::recording::chrome_trace::Options;
use ridgeline_analysis::recording::occupancy::occupancy_of;
use ridgeline_analysis::recording::trace::{Activity, ActivityKind, Trace};
use serde_json::{Map, Value, json};

fn traces() -> Vec<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let shared = std::env::var_os("RIDGELINE_SHARED").map_or(default, PathBuf::from);
    let Ok(folder) = fs::read_dir(shared.join("traces")) else {
        eprintln!("skipped: no sample traces in {}", shared.display());
        return Vec::new();
    };
    let mut traces: Vec<PathBuf> = folder
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".json.gz"))
        .collect();
    traces.sort();
    assert!(!traces.is_empty(), "the folder of sample traces is empty");
    traces
}

fn read(path: &Path) -> Trace {
    Trace::read(File::open(path).unwrap(), &Options::default()).unwrap()
}

/// Converts a summary to the form of the reference files.
fn reference_form(summary: &TraceSummary) -> Map<String, Value> {
    let gpu = summary.gpu.as_ref().unwrap();
    let rounded = |value: f64| json!((value * 1000.0).round() / 1000.0);
    let delay = gpu.launch_to_start.as_ref().unwrap();
    let reference_form = json!({
        "n_gpu_activities": gpu.activities,
        "n_kernels": gpu.kernels,
        "span": gpu.span_ns,
        "busy_union": gpu.busy_ns,
        "idle": gpu.idle_ns,
        "idle_pct": rounded(100.0 * gpu.idle_ns as f64 / gpu.span_ns as f64),
        "union_compute": gpu.compute_ns,
        "union_comm": gpu.communication_ns,
        "union_memory": gpu.memory_ns,
        "sum_kernel": gpu.kernel_ns,
        "exposed_non_compute": gpu.exposed_ns,
        "streams": gpu.streams.iter().map(|stream| {
            let reference_form = json!({"n": stream.activities, "busy": stream.busy_ns});
            (stream.stream.unwrap().to_string(), reference_form)
        }).collect::<Map<_, _>>(),
        "top_kernels": summary.kernels.iter().take(15).map(|kernel| {
            json!({"name": kernel.name, "calls": kernel.calls, "total": kernel.total_ns})
        }).collect::<Vec<_>>(),
        "memcpy": summary.copies.iter().map(|copy| {
            let reference_form = json!({
                "calls": copy.calls,
                "bytes": copy.bytes,
                "time": copy.total_ns,
                "gbps": rounded(copy.gigabytes_per_s.unwrap()),
            });
            (copy.name.clone(), reference_form)
        }).collect::<Map<_, _>>(),
        "profiler_steps": summary.steps.iter().map(|step| {
            let in_file = step.start_ns - summary.trace.base_time_ns;
            json!({"name": step.name, "ts": in_file, "dur": step.duration_ns})
        }).collect::<Vec<_>>(),
        "unlinked_gpu_activities": gpu.leaked,
        "launch_to_start_ns": {"p05": delay.p05_ns, "p50": delay.p50_ns, "p95": delay.p95_ns},
        "memory_events": summary.memory.events,
        "peak_allocated_by_device": summary.memory.peaks.iter().map(|peak| {
            let device = format!("{}:{}", peak.device_type.unwrap(), peak.device.unwrap());
            (device, json!(peak.peak_bytes))
        }).collect::<Map<_, _>>(),
    });
    match reference_form {
        Value::Object(reference_form) => reference_form,
        _ => unreachable!(),
    }
}

#[test]
fn summaries_equal_the_references() {
    for path in traces() {
        let reference = path.to_string_lossy().replace(".json.gz", ".ref.json");
        let reference: Map<String, Value> =
            serde_json::from_str(&fs::read_to_string(reference).unwrap()).unwrap();
        let summary_values = reference_form(&summarize(&read(&path)));
        for (key, expected) in reference {
            if !["trace", "unit", "definition"].contains(&key.as_str()) {
                assert_eq!(
                    summary_values.get(&key),
                    Some(&expected),
                    "{key} of {}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn every_event_of_real_traces_is_usable() {
    for path in traces() {
        let trace = read(&path);
        assert_eq!(trace.unusable_events, 0, "{}", path.display());
        assert_eq!(trace.truncated_at, None, "{}", path.display());
        assert!(!trace.devices.is_empty(), "{}", path.display());
        for kernel in trace.activities.iter().filter(|a| a.kind == ActivityKind::Kernel) {
            let details = trace.details(kernel);
            assert!(details.launch.grid.is_some() && details.launch.block.is_some());
            assert!(details.device.is_some() && details.stream.is_some());
        }
    }
}

/// Rounds an occupancy to a percentage in the same way as the profiler.
fn percent(achieved: f64) -> i64 {
    (0.5 + f64::from(achieved as f32) * 100.0) as i64
}

#[test]
fn occupancy_equals_the_profilers_up_to_48_kib_of_shared_memory() {
    let (mut equal, mut above) = (0, 0);
    let traces = traces();
    for path in &traces {
        let trace = read(path);
        let reported = |kernel: &Activity| trace.details(kernel).launch.reported_occupancy_percent;
        for kernel in trace.activities.iter().filter(|kernel| reported(kernel).is_some()) {
            let occupancy = occupancy_of(&trace, kernel).unwrap_or_else(|| panic!("{kernel:?}"));
            let percent = percent(occupancy.achieved);
            if trace.details(kernel).launch.shared_memory_bytes > Some(48 << 10) {
                above += 1;
                assert_eq!(reported(kernel), Some(0.0));
                assert!(occupancy.achieved > 0.0);
            } else {
                equal += 1;
                assert_eq!(Some(percent as f32), reported(kernel), "{kernel:?}");
            }
        }
    }
    if !traces.is_empty() {
        assert!(equal > 40_000 && above > 500, "{equal} equal, {above} above 48 KiB");
    }
}
