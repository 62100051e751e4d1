//! Checks the graphs that what-ifs start from, on recordings of real programs and on third-party
//! traces: a replay takes as long as the recorded iteration, and every optimization gives either a
//! prediction or a reason why it does not apply.

use crate::recorded;

use proptest::prelude::*;
use recorded::{recording, recordings, sample_traces, trace};
use ridgeline_analysis::attribution::{attribute, attribute_with_graph, step_graph};
use ridgeline_analysis::devices::cpu::cpu;
use ridgeline_analysis::devices::device_spec::DeviceSpec;
use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::graph::graph::TaskKind;
use ridgeline_analysis::graph::recorded::Recorded;
use ridgeline_analysis::graph::simulate;
use ridgeline_analysis::operators::op_cost::Options;
use ridgeline_analysis::optimize::facts::{Cluster, Facts, Probes};
use ridgeline_analysis::optimize::optimization::{NoPrediction, predict};
use ridgeline_analysis::optimize::optimizations::ALL;
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::recording::Recording;
use ridgeline_analysis::recording::chrome_trace::Options as TraceOptions;
use ridgeline_analysis::recording::trace::Trace;
use serde_json::{Value, json};

/// The maximum relative error of a replay.
const MAX_ERROR: f64 = 0.01;

/// Calls `check` with each recording, its profile and its graph.
fn for_each_recording(check: impl Fn(&str, &Recording, &Profile, &Recorded)) {
    let ours = recordings().into_iter().map(|(name, path)| (name, recording(&path)));
    let third_party = sample_traces().unwrap_or_default().into_iter().map(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name, Recording { trace: trace(&path), ..Recording::default() })
    });
    for (name, recording) in ours.chain(third_party) {
        let profile = attribute(&recording).expect("a profile");
        let recorded = step_graph(&recording, &profile).expect("a graph");
        check(&name, &recording, &profile, &recorded);
    }
}

fn device(profile: &Profile) -> DeviceSpec {
    let known = DeviceTable::shipped().find(&profile.device.name).cloned();
    known.unwrap_or_else(|| cpu(Some(profile), 2))
}

#[test]
fn replays_take_the_measured_time() {
    for_each_recording(|name, recording, _, recorded| {
        assert!(recorded.replay_error.abs() < MAX_ERROR, "{name}: {}", recorded.replay_error);
        let steady = recorded.schedule.iteration_ns / recorded.measured_ns - 1.0;
        assert!(steady.abs() < MAX_ERROR, "{name}: {steady}");
        let has = |kind| recorded.graph.tasks.iter().any(|task| task.kind == kind);
        assert!(has(TaskKind::HostGap), "{name}");
        assert_eq!(has(TaskKind::Kernel), !recording.trace.activities.is_empty(), "{name}");
    });
}

#[test]
fn every_optimization_gives_a_prediction_or_a_reason() {
    for_each_recording(|name, recording, profile, recorded| {
        let (device, probes) = (device(profile), Probes::default());
        let facts = Facts {
            profile,
            manifest: recording.manifest.as_ref(),
            device: &device,
            options: Options::default(),
            probes: &probes,
            cluster: Cluster::default(),
        };
        for one in ALL {
            let predicted = predict(&recorded.graph, &recorded.schedule, &facts, &[*one]);
            match &predicted {
                Ok(found) => {
                    let time = found.time_ns;
                    assert!(time.low > 0.0 && time.high.is_finite(), "{name}: {found:?}");
                    assert!(time.low <= time.value && time.value <= time.high, "{name}: {found:?}");
                }
                Err(NoPrediction::DoesNotApply(why)) => {
                    assert!(!why.is_empty() && !why.ends_with('.'), "{name}: {why}");
                }
                Err(error) => panic!("{name}: {}: {error}", one.name()),
            }
            if recording.manifest.is_none() {
                continue;
            }
            let twice = predict(&recorded.graph, &recorded.schedule, &facts, &[*one, *one]);
            assert!(matches!(twice, Err(NoPrediction::DoesNotApply(_))), "{name}: {}", one.name());
        }
    });
}

/// Returns a trace event, valid or not, from its type, start, duration, correlation ID and thread
/// or stream.
fn event((what, start, duration, correlation, place): (u8, u32, u32, u32, u32)) -> Value {
    let (category, name) = match what {
        0 => ("cpu_op", "aten::mm"),
        1 => ("cpu_op", "aten::relu"),
        2 => ("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0"),
        3 => ("cuda_runtime", "cudaLaunchKernel"),
        4 => ("cuda_runtime", "cudaStreamSynchronize"),
        5 => ("cuda_runtime", "cudaMemcpyAsync"),
        6 => ("cuda_runtime", "cudaStreamWaitEvent"),
        7 => ("kernel", "k"),
        8 => ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"),
        _ => ("user_annotation", "Optimizer.step#SGD.step"),
    };
    json!({"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration,
           "pid": u32::from(what < 7), "tid": place,
           "args": {"correlation": correlation, "device": 0, "stream": place,
                    "External id": correlation, "Input Dims": [[64, 64], [64, 64]],
                    "Input type": ["float", "float"]}})
}

proptest! {
    /// The graph of any trace replays or is refused with a reason, and an empty change does not
    /// change the result.
    #[test]
    fn any_trace_is_replayed_or_refused(
        events in proptest::collection::vec(
            (0_u8..10, 0_u32..1000, 0_u32..300, 0_u32..8, 0_u32..3), 0..40,
        ),
    ) {
        let mut events: Vec<Value> = events.into_iter().map(event).collect();
        events.push(json!({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1,
                           "tid": 0, "ts": 0, "dur": 1000, "args": {}}));
        let text = json!({"schemaVersion": 1, "traceEvents": events}).to_string();
        let trace = Trace::read(text.as_bytes(), &TraceOptions::default()).unwrap();
        let recording = Recording { trace, ..Recording::default() };
        let Ok((profile, graph)) = attribute_with_graph(&recording, None) else { return Ok(()) };
        let separate = step_graph(&recording, &profile);
        let times = |graph: &Recorded| (graph.replay_error, graph.schedule.iteration_ns);
        prop_assert_eq!(graph.as_ref().map(times), separate.as_ref().map(times));
        let (Ok(recorded), Ok(separate)) = (graph, separate) else { return Ok(()) };
        prop_assert_eq!(recorded.graph.tasks.as_slice(), separate.graph.tasks.as_slice());
        prop_assert_eq!(recorded.graph.edges(), separate.graph.edges());
        let mut graph = recorded.graph.clone();
        let nothing = graph.select(|_| false);
        nothing.into_iter().for_each(|id| graph.remove(id));
        let again = simulate::steady(&graph).unwrap().iteration_ns;
        prop_assert_eq!(again, recorded.schedule.iteration_ns);
        let device = DeviceTable::shipped().find("NVIDIA A100-SXM4-40GB").unwrap();
        let probes = Probes::default();
        let (manifest, options, cluster) = (None, Options::default(), Cluster::default());
        let profile = &profile;
        let facts = Facts { profile, manifest, device, options, probes: &probes, cluster };
        for one in ALL {
            if let Ok(found) = predict(&recorded.graph, &recorded.schedule, &facts, &[*one]) {
                prop_assert!(found.time_ns.low >= 0.0 && found.time_ns.high.is_finite());
            }
        }
    }
}
