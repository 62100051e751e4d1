//! Attribution of small handwritten recordings, line by line.

mod callers;
mod expressions;
mod gpu;
mod iterations;
mod memory;
mod passes;

use std::fmt::Write;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::attribute;
use super::fixture::{TraceBuilder, recording};
use super::spans::{self, recorded_iteration};
use super::step_graph;
use ridgeline_profile::{FileId, MemoryByKind, Phase, PhaseTimes, Profile, Sample};
use ridgeline_recording::Recording;
use ridgeline_recording::line_log::{
    LINE, LineLogBuilder, MODULE_ENTER, MODULE_EXIT, PHASE_ENTER, PHASE_EXIT, POP, PUSH, Record,
};
use ridgeline_recording::manifest::{Block, BlockKind, Expression, Location, Memory};

pub(super) type Records<'a> = &'a [(i64, u8, u32, u32)];

fn times(times: &PhaseTimes) -> String {
    Phase::ALL
        .iter()
        .filter(|&&phase| times.get(phase).round() != 0.0)
        .map(|&phase| format!(" {} {:.0}", phase.name(), times.get(phase)))
        .collect()
}

/// Renders the self time and total time of each line.
fn render_lines(profile: &Profile) -> String {
    let mut text = String::new();
    for line in profile.lines.iter().flatten() {
        let (own, total) = (times(&line.self_time), times(&line.total_time));
        if !total.is_empty() {
            writeln!(text, "{}:{own} | total{total}", line.line).expect("a string");
        }
    }
    for untracked in &profile.untracked {
        writeln!(text, "{}: {:.0}", untracked.name, untracked.time_ns).expect("a string");
    }
    text
}

fn render_modules(profile: &Profile) -> String {
    let line = |module: &ridgeline_profile::ModuleCost| {
        format!("{:?} calls {}:{}\n", module.path, module.calls, times(&module.total_time))
    };
    profile.modules.iter().map(line).collect()
}

fn assert_conserved(profile: &Profile) {
    let own: f64 = profile.lines.iter().flatten().map(|line| line.self_time.total()).sum();
    let untracked: f64 = profile.untracked.iter().map(|part| part.time_ns).sum();
    let time_ns = profile.iteration.time_ns;
    assert!((own + untracked - time_ns).abs() <= 1e-6 * time_ns, "{own} + {untracked} {time_ns}");
    assert!((profile.iteration.phases.total() - time_ns).abs() <= 1e-6 * time_ns);
    assert_eq!(profile.memory.at_peak.total(), profile.memory.peak_bytes);
    assert_no_double_counting(profile);
}

/// Checks that self costs are at most total costs, and that no time or byte is counted for two
/// modules or two phases.
fn assert_no_double_counting(profile: &Profile) {
    let mut own = PhaseTimes::default();
    let mut own_bytes = 0_u64;
    for module in &profile.modules {
        own += module.self_time;
        own_bytes = own_bytes.saturating_add(module.self_memory.total());
        assert!(module.self_memory.total() <= module.memory.total(), "{module:?}");
        for phase in Phase::ALL {
            let (own, total) = (module.self_time.get(phase), module.total_time.get(phase));
            assert!(own <= total + 1e-6 * profile.iteration.time_ns + 1e-3, "{module:?}");
        }
    }
    let time_ns = profile.iteration.time_ns;
    for phase in Phase::ALL {
        let all = profile.iteration.phases.get(phase);
        assert!(own.get(phase) <= all + 1e-6 * time_ns + 1e-3, "{phase:?}: {own:?} {all}");
    }
    assert!(own_bytes <= profile.memory.peak_bytes);
    assert_eq!(profile.memory.by_age.total(), profile.memory.peak_bytes);
    for line in profile.lines.iter().flatten() {
        assert_eq!(line.self_memory_made.total(), line.self_memory.total(), "{}", line.line);
        assert_samples(&line.samples, line.total_time.total(), line.self_time.total());
        let expressions: f64 = line.expressions.iter().map(|one| one.total_time.total()).sum();
        assert!(expressions <= line.total_time.total() * (1.0 + 1e-9) + 1e-3, "{line:?}");
    }
    for module in &profile.modules {
        assert_samples(&module.samples, module.total_time.total(), module.self_time.total());
    }
}

/// Checks samples: those of a single iteration equal the typical one. With several, none has to be
/// as fast as the sum of typical parts, and one is at least as slow.
fn assert_samples(samples: &[Sample], total_ns: f64, own_ns: f64) {
    for (shown, part) in [
        (total_ns, (|sample| sample.total_ns) as fn(&Sample) -> f64),
        (own_ns, |sample| sample.own_ns),
    ] {
        let slowest = samples.iter().map(part).fold(0.0, f64::max);
        let most = if samples.len() == 1 { shown } else { f64::INFINITY };
        let noise = 1e-6 * shown + 1e-3;
        let is_plausible = shown - noise <= slowest && slowest <= most + noise;
        // Sums of absurd durations saturate.
        let is_absurd = shown > 1e18;
        assert!(samples.is_empty() || is_absurd || is_plausible, "{samples:?} {shown}");
    }
}

#[track_caller]
fn check(trace: TraceBuilder, records: Records<'_>, end_ns: i64, expected: Expect) {
    let profile = attribute(&recording(trace, records, end_ns)).expect("a profile");
    expected.assert_eq(&render_lines(&profile));
    assert_conserved(&profile);
}

/// A loop on line 30 that calls the network on 31, `backward` on 32 and `step` on 33. The network
/// calls its module a on line 21 and b on line 22.
pub(super) const LOOP: Records<'_> = &[
    (0, PUSH, 0, 1),
    (0, LINE, 0, 30),
    (0, PHASE_ENTER, 0, 0),
    (50, PHASE_EXIT, 0, 0),
    (100, LINE, 0, 31),
    (110, PHASE_ENTER, 1, 0),
    (110, MODULE_ENTER, 0, 0),
    (120, PUSH, 1, 20),
    (120, LINE, 1, 21),
    (130, MODULE_ENTER, 1, 0),
    (190, MODULE_EXIT, 1, 0),
    (200, LINE, 1, 22),
    (210, MODULE_ENTER, 2, 0),
    (290, MODULE_EXIT, 2, 0),
    (295, POP, 1, 0),
    (300, MODULE_EXIT, 0, 0),
    (300, PHASE_EXIT, 1, 0),
    (300, LINE, 0, 32),
    (310, PHASE_ENTER, 2, 0),
    (600, PHASE_EXIT, 2, 0),
    (600, LINE, 0, 33),
    (610, PHASE_ENTER, 3, 0),
    (700, PHASE_EXIT, 3, 0),
    (700, LINE, 0, 34),
];

/// The operators of [`LOOP`].
pub(super) fn operators() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    trace.op("aten::linear", 140, 50).sequence(1);
    trace.op("aten::linear", 220, 60).sequence(2);
    trace.node("AddmmBackward0", 330, 100).sequence(2).forward_thread(1);
    trace.node("torch::autograd::AccumulateGrad", 430, 10);
    trace.node("AddmmBackward0", 450, 100).sequence(1).forward_thread(1);
    trace.op("aten::mm", 460, 50);
    trace.op("aten::add_", 620, 50);
    trace
}

#[test]
fn backward_belongs_to_the_forward_lines() {
    check(
        operators(),
        LOOP,
        800,
        expect![[r#"
        21: forward 80 backward 100 | total forward 80 backward 100
        22: forward 95 backward 110 | total forward 95 backward 110
        30: data 50 other 50 | total data 50 other 50
        31: forward 15 other 10 | total forward 190 backward 210 other 10
        32: backward 80 other 10 | total backward 290 other 10
        33: optimizer 90 other 10 | total optimizer 90 other 10
        34: other 100 | total other 100
    "#]],
    );
}

#[test]
fn a_generator_is_a_loader() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::randint", 20, 30);
    trace.op("aten::add", 120, 30);
    let records = &[
        (0, PUSH, 0, 1),
        (0, LINE, 0, 30),
        (10, PUSH, 1, 20),
        (60, POP, 1, 0),
        (100, LINE, 0, 31),
    ];
    let mut recording = recording(trace, records, 200);
    let manifest = recording.manifest.as_mut().expect("the fixture has one");
    manifest.training_loop = Some(Location { file: 0, line: 30 });
    let profile = attribute(&recording).expect("a profile");
    expect![[r#"
        20: data 50 | total data 50
        30: data 50 | total data 100
        31: other 100 | total other 100
    "#]]
    .assert_eq(&render_lines(&profile));
}

#[test]
fn modules_include_their_calls_and_derivatives() {
    let profile = attribute(&recording(operators(), LOOP, 800)).expect("a profile");
    expect![[r#"
        "" calls 1: forward 190 backward 210
        "a" calls 1: forward 60 backward 100
        "b" calls 1: forward 80 backward 110
    "#]]
    .assert_eq(&render_modules(&profile));
}

#[test]
fn recursion_counts_once() {
    let records: Records<'_> = &[
        (0, PUSH, 0, 1),
        (0, LINE, 0, 30),
        (10, PUSH, 2, 40),
        (10, LINE, 2, 41),
        (20, PUSH, 2, 40),
        (20, LINE, 2, 41),
        (90, POP, 2, 0),
        (95, POP, 2, 0),
    ];
    check(
        TraceBuilder::new(),
        records,
        100,
        expect![[r#"
        30: other 15 | total other 100
        41: other 85 | total other 85
    "#]],
    );
}

#[test]
fn time_without_a_line_is_named() {
    let records: Records<'_> = &[(40, PUSH, 0, 1), (40, LINE, 0, 30), (60, POP, 0, 0)];
    check(
        TraceBuilder::new(),
        records,
        100,
        expect![[r#"
        30: other 20 | total other 20
        outside the project's code: 80
    "#]],
    );
}

#[test]
fn operations_of_unlisted_operators_count() {
    let mut trace = TraceBuilder::new();
    for at in 1..=12_i64 {
        trace.op("aten::mm", at * 10, 5);
        trace.inputs(&format!("[[{at},1],[1,1]]"), r#"["float","float"]"#, "[]");
    }
    let records = [(0, PUSH, 0, 1), (0, LINE, 0, 31)];
    let profile = attribute(&recording(trace, &records, 200)).expect("a profile");
    let line = profile.lines[0].iter().find(|cost| cost.line == 31).expect("it ran");
    assert_eq!(line.operators.len(), ridgeline_profile::OPERATORS_PER_LINE);
    // Two for each of 1 + 2 + … + 12 multiplications.
    assert_eq!(line.flops, 156.0);
}

#[test]
fn self_time_of_operators_counts_once() {
    let profile = attribute(&recording(operators(), LOOP, 800)).expect("a profile");
    let listed = profile
        .lines
        .iter()
        .flatten()
        .flat_map(|line| line.operators.iter().map(move |operator| (line.line, operator)));
    let linear: Vec<(u32, f64, f64)> = listed
        .filter(|(_, operator)| operator.name == "aten::linear")
        .map(|(line, operator)| (line, operator.time_ns, operator.self_time_ns))
        .collect();
    // Line 31 calls the lines 21 and 22.
    assert_eq!(linear, [(21, 50.0, 50.0), (22, 60.0, 60.0), (31, 110.0, 0.0)]);
}

#[test]
fn a_run_without_an_iteration_has_no_costs() {
    let mut recording = recording(TraceBuilder::new(), &[], 100);
    if let Some(manifest) = &mut recording.manifest {
        manifest.iterations.profiled.clear();
    }
    let error = attribute(&recording).expect_err("no iteration");
    assert!(error.to_string().contains("no profiled iteration"));
}

#[test]
fn an_empty_trace_has_an_empty_profile() {
    let profile = attribute(&Recording::default()).expect("a profile");
    assert_eq!(profile.lines, Vec::<Vec<_>>::new());
}

/// Arbitrary operators, nodes, kernels and allocations, with an arbitrary line log.
fn any_recording() -> impl Strategy<Value = Recording> {
    let time = prop_oneof![4 => 0..1000i64, 1 => any::<i64>()];
    let duration = prop_oneof![4 => 0..500i64, 1 => Just(i64::MAX)];
    let operator = (
        time.clone(),
        duration.clone(),
        prop::option::of(0u64..6),
        prop::option::of(0u64..3),
        0u32..3,
        prop::sample::select(vec![
            "aten::mm",
            "MmBackward0",
            "autograd::engine::evaluate_function: MmBackward0",
            "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
            "Torch-Compiled Region: 0/0",
        ]),
    );
    let kernel = (time.clone(), time.clone(), duration.clone(), any::<bool>());
    let event = (time.clone(), 0u64..8, any::<i64>());
    let record = (time.clone(), 0u8..12, 0u16..3, 0u32..5, prop_oneof![0u32..50, Just(u32::MAX)]);
    let window = (time.clone(), time);
    (
        prop::collection::vec(operator, 0..40),
        prop::collection::vec(kernel, 0..20),
        prop::collection::vec(event, 0..30),
        prop::collection::vec(record, 0..120),
        prop::collection::vec(window, 1..4),
        prop::collection::vec(any::<u64>(), 0..3),
    )
        .prop_map(|(operators, kernels, events, records, windows, timed)| {
            let mut trace = TraceBuilder::new();
            for (start_ns, duration_ns, sequence, forward, thread, name) in operators {
                trace.op(name, start_ns, duration_ns.min(i64::MAX.saturating_sub(start_ns)));
                trace.thread(thread);
                if let Some(sequence) = sequence {
                    trace.sequence(sequence);
                }
                if let Some(forward) = forward {
                    trace.forward_thread(forward);
                }
                trace.inputs("[[2,3],[3,4]]", r#"["float","float"]"#, "[]");
            }
            for (launch_ns, start_ns, duration_ns, leaked) in kernels {
                let duration_ns = duration_ns.min(i64::MAX.saturating_sub(start_ns));
                if leaked {
                    trace.leaked_kernel("gemm", start_ns, duration_ns);
                } else {
                    trace.kernel("gemm", launch_ns, start_ns, duration_ns);
                }
            }
            for (time_ns, address, bytes) in events {
                trace.memory(time_ns, address, bytes);
            }
            let mut made = recording(trace, &[], 1);
            let mut log = LineLogBuilder::new(&[(100, true), (101, false)]);
            for (time_ns, kind, thread, a, b) in records {
                log.record(Record { time_ns, kind, thread, a, b });
            }
            made.lines = Some(log.finish());
            if let Some(manifest) = &mut made.manifest {
                manifest.iterations.profiled = windows;
                manifest.iterations.timed_ns = timed;
                let expression = |code| Expression { code, range: [code, 1, code, u32::MAX] };
                manifest.expressions = (0..4).map(expression).collect();
                manifest.memory = Some(Memory {
                    baseline: vec![Block { ptr: 1, bytes: u64::MAX, ..Block::default() }; 2],
                    gradients: vec![Block {
                        ptr: 3,
                        bytes: 4,
                        module: Some(9),
                        ..Block::default()
                    }],
                    ..Memory::default()
                });
            }
            made
        })
}

proptest! {
    #[test]
    fn arbitrary_recordings_are_conserved(recording in any_recording()) {
        if let Ok(profile) = attribute(&recording) {
            let own: f64 = profile.lines.iter().flatten().map(|line| line.self_time.total()).sum();
            let untracked: f64 = profile.untracked.iter().map(|part| part.time_ns).sum();
            let time_ns = profile.iteration.time_ns;
            prop_assert!((own + untracked - time_ns).abs() <= 1e-6 * time_ns + 1e-3);
            assert_no_double_counting(&profile);
        }
        if let Ok(profile) = super::attribute_compiled(&recording, &recording) {
            assert_no_double_counting(&profile);
        }
        if let Some(iteration) = recorded_iteration(&recording) {
            spans::tests::assert_in_order(&iteration);
        }
    }
}
