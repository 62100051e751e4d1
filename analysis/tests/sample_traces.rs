//! Real traces, recorded by others, and the exact facts that stand beside them.
//!
//! They are too large for the repository: the tests look for them in `RIDGELINE_SHARED`, or in
//! `../shared` beside the repository, and say so where they are absent.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ridgeline_analysis::present::trace_summary::{TraceSummary, summarize};
use ridgeline_analysis::recording::chrome_trace::Options;
use ridgeline_analysis::recording::occupancy::occupancy_of;
use ridgeline_analysis::recording::trace::{Activity, ActivityKind, Trace};
use serde_json::{Map, Value, json};

fn traces() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let shared = std::env::var_os("RIDGELINE_SHARED").map_or(beside, PathBuf::from);
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

/// The summary in the form of the facts beside the traces.
fn facts(summary: &TraceSummary) -> Map<String, Value> {
    let gpu = summary.gpu.as_ref().unwrap();
    let rounded = |value: f64| json!((value * 1000.0).round() / 1000.0);
    let delay = gpu.launch_to_start.as_ref().unwrap();
    let facts = json!({
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
            let facts = json!({"n": stream.activities, "busy": stream.busy_ns});
            (stream.stream.unwrap().to_string(), facts)
        }).collect::<Map<_, _>>(),
        "top_kernels": summary.kernels.iter().take(15).map(|kernel| {
            json!({"name": kernel.name, "calls": kernel.calls, "total": kernel.total_ns})
        }).collect::<Vec<_>>(),
        "memcpy": summary.copies.iter().map(|copy| {
            let facts = json!({
                "calls": copy.calls,
                "bytes": copy.bytes,
                "time": copy.total_ns,
                "gbps": rounded(copy.gigabytes_per_s.unwrap()),
            });
            (copy.name.clone(), facts)
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
    match facts {
        Value::Object(facts) => facts,
        _ => unreachable!(),
    }
}

#[test]
fn summaries_agree_with_the_facts_exactly() {
    for path in traces() {
        let reference = path.to_string_lossy().replace(".json.gz", ".ref.json");
        let reference: Map<String, Value> =
            serde_json::from_str(&fs::read_to_string(reference).unwrap()).unwrap();
        let found = facts(&summarize(&read(&path)));
        for (key, expected) in reference {
            if !["trace", "unit", "definition"].contains(&key.as_str()) {
                assert_eq!(found.get(&key), Some(&expected), "{key} of {}", path.display());
            }
        }
    }
}

#[test]
fn everything_in_real_traces_is_understood() {
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

/// The profiler's own rounding of an occupancy to percents.
fn percent(achieved: f64) -> i64 {
    (0.5 + f64::from(achieved as f32) * 100.0) as i64
}

#[test]
fn occupancy_equals_the_profilers_where_that_is_right() {
    let (mut equal, mut above) = (0, 0);
    let traces = traces();
    for path in &traces {
        let trace = read(path);
        let reported = |kernel: &Activity| trace.details(kernel).launch.reported_occupancy_percent;
        for kernel in trace.activities.iter().filter(|kernel| reported(kernel).is_some()) {
            let found = occupancy_of(&trace, kernel).unwrap_or_else(|| panic!("{kernel:?}"));
            let percent = percent(found.achieved);
            if trace.details(kernel).launch.shared_memory_bytes > Some(48 << 10) {
                above += 1;
                assert_eq!(reported(kernel), Some(0.0));
                assert!(found.achieved > 0.0);
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
