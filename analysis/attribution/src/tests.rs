//! What attribution says about small hand-made recordings, line by line.

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
use ridgeline_recording::manifest::{Block, BlockKind, Location, Memory};

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
    assert_eq!(profile.memory.made.total(), profile.memory.peak_bytes);
    for line in profile.lines.iter().flatten() {
        assert_eq!(line.self_memory_made.total(), line.self_memory.total(), "{}", line.line);
        assert_samples(&line.samples, line.total_time.total(), line.self_time.total());
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
        assert!(samples.is_empty() || is_plausible, "{samples:?} {shown}");
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
fn autograds_thread_is_attributed_to_the_waiting_line() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::linear", 140, 50).sequence(1);
    trace.op("aten::linear", 220, 60).sequence(2);
    trace.node("AddmmBackward0", 330, 100).sequence(2).forward_thread(1).thread(1);
    trace.node("AddmmBackward0", 450, 100).sequence(1).forward_thread(1).thread(1);
    trace.op("aten::mm", 460, 50).thread(1);
    check(
        trace,
        LOOP,
        800,
        expect![[r#"
        21: forward 80 backward 100 | total forward 80 backward 100
        22: forward 95 backward 100 | total forward 95 backward 100
        30: data 50 other 50 | total data 50 other 50
        31: forward 15 other 10 | total forward 190 backward 200 other 10
        32: backward 90 other 10 | total backward 290 other 10
        33: optimizer 90 other 10 | total optimizer 90 other 10
        34: other 100 | total other 100
    "#]],
    );
}

#[test]
fn callbacks_after_autograds_nodes_are_backward() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::linear", 140, 50).sequence(1);
    trace.node("AddmmBackward0", 330, 50).sequence(1).forward_thread(1).thread(1);
    trace.op("c10d::_reduce_scatter_base_", 400, 100).thread(1);
    trace.op("aten::cat", 410, 5).thread(2);
    trace.kernel("ncclDevKernel_ReduceScatter", 420, 430, 300);
    trace.launch_thread(1);
    trace.kernel("of another thread", 412, 740, 20);
    trace.launch_thread(2);
    check(
        trace,
        LOOP,
        800,
        expect![[r#"
        21: forward 80 backward 50 | total forward 80 backward 50
        22: forward 95 | total forward 95
        30: data 50 other 50 | total data 50 other 50
        31: forward 15 other 10 | total forward 190 backward 50 other 10
        32: backward 370 other 10 | total backward 420 other 10
        34: other 50 | total other 50
        outside the project's code: 20
    "#]],
    );
}

#[test]
fn a_distributed_tensor_has_the_work_of_this_rank() {
    let mut trace = TraceBuilder::new();
    let whole = r"[[64], [32, 16], [16, 64], [], []]";
    let part = r"[[32], [32, 16], [16, 32], [], []]";
    let types = r#"["float", "float", "float", "Scalar", "Scalar"]"#;
    trace.op("aten::addmm", 140, 50).inputs(whole, types, "");
    trace.op("PythonSubclass", 142, 46).inputs(whole, types, "");
    trace.op("aten::addmm", 170, 10).inputs(part, types, "");
    trace.kernel("gemm", 175, 200, 100);
    let profile = attribute(&recording(trace, LOOP, 800)).expect("a profile");
    let line = profile.lines.iter().flatten().find(|line| line.line == 21).expect("the line");
    assert_eq!(line.flops, 2.0 * 32.0 * 16.0 * 32.0);
}

#[test]
fn kernels_take_their_instants_and_the_host_the_rest() {
    let mut trace = operators();
    trace.kernel("gemm", 150, 200, 300);
    trace.kernel("gemm", 230, 400, 300);
    trace.leaked_kernel("gemm", 0, 30);
    check(
        trace,
        LOOP,
        800,
        expect![[r#"
        21: forward 330 | total forward 330
        22: forward 250 | total forward 250
        30: data 20 other 50 | total data 20 other 50
        31: forward 10 other 10 | total forward 590 other 10
        34: other 100 | total other 100
        kernels launched before the recording: 30
    "#]],
    );
}

#[test]
fn kernels_of_autograds_thread_reach_the_forward_line() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::linear", 140, 50).sequence(1);
    trace.node("AddmmBackward0", 330, 100).sequence(1).forward_thread(1).thread(1);
    trace.kernel("dgemm", 340, 350, 400);
    trace.launch_thread(1);
    check(
        trace,
        LOOP,
        800,
        expect![[r#"
        21: forward 80 backward 420 | total forward 80 backward 420
        22: forward 95 | total forward 95
        30: data 50 other 50 | total data 50 other 50
        31: forward 15 other 10 | total forward 190 backward 420 other 10
        32: backward 20 other 10 | total backward 440 other 10
        34: other 50 | total other 50
    "#]],
    );
}

#[test]
fn a_line_has_device_time() {
    let mut trace = operators();
    trace.kernel("gemm", 150, 200, 300);
    let profile = attribute(&recording(trace, LOOP, 800)).expect("a profile");
    let line = profile.lines.iter().flatten().find(|line| line.line == 21).expect("the line");
    let device = line.device_time.expect("a GPU");
    assert_eq!((device.kernel_ns, device.launch_ns), (300.0, 2.0));
    assert_eq!(line.operators.first().expect("an operator").kernels.len(), 1);
    assert_eq!(profile.kernels.first().map(|kernel| kernel.time_ns), Some(300.0));
    assert_eq!(profile.gpu.expect("a GPU").busy_ns, 300);
}

#[test]
fn a_custom_functions_backward_has_its_own_line() {
    let mut trace = TraceBuilder::new();
    trace.op("Custom", 140, 50).sequence(1);
    trace.node("CustomBackward", 330, 200).sequence(1).forward_thread(1);
    trace.op("aten::mul", 420, 60);
    let mut records = LOOP.to_vec();
    let within = [(400, PUSH, 2, 40), (400, LINE, 2, 41), (500, POP, 2, 0)];
    let at = records.iter().position(|record| record.0 == 600).expect("it");
    records.splice(at..at, within);
    check(
        trace,
        &records,
        800,
        expect![[r#"
        21: forward 80 backward 100 | total forward 80 backward 200
        22: forward 95 | total forward 95
        30: data 50 other 50 | total data 50 other 50
        31: forward 15 other 10 | total forward 190 backward 200 other 10
        32: backward 90 other 10 | total backward 290 other 10
        33: optimizer 90 other 10 | total optimizer 90 other 10
        34: other 100 | total other 100
        41: backward 100 | total backward 100
    "#]],
    );
}

#[test]
fn a_checkpoints_second_forward_pass_is_backward_on_its_own_line() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::linear", 140, 50).sequence(1);
    trace.node("AddmmBackward0", 330, 200).sequence(1).forward_thread(1);
    trace.op("aten::linear", 420, 60).sequence(2);
    let mut records = LOOP.to_vec();
    let within = [
        (400, MODULE_ENTER, 0, 0),
        (400, PUSH, 1, 20),
        (400, LINE, 1, 21),
        (410, MODULE_ENTER, 1, 0),
        (490, MODULE_EXIT, 1, 0),
        (500, POP, 1, 0),
        (500, MODULE_EXIT, 0, 0),
    ];
    let at = records.iter().position(|record| record.0 == 600).expect("it");
    records.splice(at..at, within);
    check(
        trace,
        &records,
        800,
        expect![[r#"
        21: forward 80 backward 200 | total forward 80 backward 200
        22: forward 95 | total forward 95
        30: data 50 other 50 | total data 50 other 50
        31: forward 15 other 10 | total forward 190 backward 200 other 10
        32: backward 90 other 10 | total backward 290 other 10
        33: optimizer 90 other 10 | total optimizer 90 other 10
        34: other 100 | total other 100
    "#]],
    );
}

#[test]
fn second_derivatives_reach_the_first_forward_line() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::pow", 140, 50).sequence(1);
    trace.node("PowBackward0", 330, 100).sequence(1).forward_thread(1);
    trace.op("aten::mul", 340, 50).sequence(2);
    trace.node("MulBackward0", 450, 100).sequence(2).forward_thread(1);
    check(
        trace,
        LOOP,
        800,
        expect![[r#"
        21: forward 80 backward 200 | total forward 80 backward 200
        22: forward 95 | total forward 95
        30: data 50 other 50 | total data 50 other 50
        31: forward 15 other 10 | total forward 190 backward 200 other 10
        32: backward 90 other 10 | total backward 290 other 10
        33: optimizer 90 other 10 | total optimizer 90 other 10
        34: other 100 | total other 100
    "#]],
    );
}

#[test]
fn a_forward_pass_within_the_optimizers_step_is_forward() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::linear", 30, 20).sequence(1);
    trace.node("AddmmBackward0", 60, 20).sequence(1).forward_thread(1);
    let records: Records<'_> = &[
        (0, PUSH, 0, 1),
        (0, LINE, 0, 33),
        (5, PHASE_ENTER, 3, 0),
        (10, PUSH, 2, 40),
        (10, LINE, 2, 41),
        (20, PHASE_ENTER, 1, 0),
        (20, MODULE_ENTER, 1, 0),
        (50, MODULE_EXIT, 1, 0),
        (50, PHASE_EXIT, 1, 0),
        (50, LINE, 2, 42),
        (50, PHASE_ENTER, 2, 0),
        (90, PHASE_EXIT, 2, 0),
        (90, POP, 2, 0),
        (95, PHASE_EXIT, 3, 0),
    ];
    check(
        trace,
        records,
        100,
        expect![[r#"
        33: optimizer 10 other 10 | total forward 30 backward 40 optimizer 20 other 10
        41: forward 30 backward 20 optimizer 10 | total forward 30 backward 20 optimizer 10
        42: backward 20 | total backward 40
    "#]],
    );
}

#[test]
fn transforms_that_are_modules_belong_to_loading() {
    let records: Records<'_> = &[
        (0, PUSH, 0, 1),
        (0, LINE, 0, 30),
        (0, PHASE_ENTER, 0, 0),
        (10, PUSH, 2, 40),
        (10, LINE, 2, 41),
        (10, MODULE_ENTER, 1, 0),
        (60, MODULE_EXIT, 1, 0),
        (60, POP, 2, 0),
        (80, PHASE_EXIT, 0, 0),
    ];
    check(
        TraceBuilder::new(),
        records,
        100,
        expect![[r#"
        30: data 30 other 20 | total data 80 other 20
        41: data 50 | total data 50
    "#]],
    );
}

#[test]
fn a_loss_outside_of_every_module_is_forward() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::mse_loss", 10, 20).sequence(1);
    trace.op("aten::sub", 12, 5).sequence(1);
    trace.op("aten::item", 40, 10);
    trace.node("MseLossBackward0", 70, 20).sequence(1).forward_thread(1);
    let records: Records<'_> =
        &[(0, PUSH, 0, 1), (0, LINE, 0, 30), (35, LINE, 0, 31), (60, LINE, 0, 32)];
    check(
        trace,
        records,
        100,
        expect![[r#"
        30: forward 20 backward 20 other 15 | total forward 20 backward 20 other 15
        31: other 25 | total other 25
        32: other 20 | total backward 20 other 20
    "#]],
    );
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
fn a_profiled_iteration_is_scaled_to_an_unprofiled_one() {
    let mut recording = recording(operators(), LOOP, 800);
    if let Some(manifest) = &mut recording.manifest {
        manifest.iterations.timed_ns = vec![390, 400, 9000];
    }
    let profile = attribute(&recording).expect("a profile");
    assert!((profile.iteration.time_ns - 400.0).abs() < 1e-9);
    assert_conserved(&profile);
}

#[test]
fn several_iterations_give_a_typical_one() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::mm", 10, 20);
    trace.op("aten::mm", 110, 40);
    let records: Records<'_> = &[
        (0, PUSH, 0, 1),
        (0, LINE, 0, 30),
        (50, LINE, 0, 31),
        (100, LINE, 0, 30),
        (160, LINE, 0, 31),
    ];
    let mut recording = recording(trace, records, 0);
    if let Some(manifest) = &mut recording.manifest {
        manifest.iterations.profiled = vec![(0, 100), (100, 200)];
        manifest.iterations.timed_ns = vec![];
    }
    let profile = attribute(&recording).expect("a profile");
    expect![[r#"
        30: other 56 | total other 56
        31: other 44 | total other 44
    "#]]
    .assert_eq(&render_lines(&profile));
    assert!(profile.notes.iter().any(|note| note.contains("without the profiler")));
    // Of two iterations, the faster one is typical for each line.
    let samples = profile.lines[0].iter().map(|line| {
        let own = line.samples.iter().map(|sample| sample.own_ns.round());
        own.collect::<Vec<_>>()
    });
    assert_eq!(samples.collect::<Vec<_>>(), [[56.0, 67.0], [56.0, 44.0]]);
}

/// Three iterations: line 30 runs in each for 100 ns, and line 31 also runs in the last for 700 ns.
fn with_an_evaluation(profiled: &[(i64, i64)]) -> Recording {
    let records: Records<'_> =
        &[(0, PUSH, 0, 1), (0, LINE, 0, 30), (300, LINE, 0, 31), (1000, LINE, 0, 30)];
    let mut trace = TraceBuilder::new();
    [10, 110, 210].iter().for_each(|&start| {
        trace.op("aten::mm", start, 50);
    });
    trace.op("aten::mm", 400, 500);
    let mut recording = recording(trace, records, 0);
    if let Some(manifest) = &mut recording.manifest {
        let iterations = &mut manifest.iterations;
        iterations.profiled = profiled.to_vec();
        iterations.measured = Some(0);
        iterations.timed_ns = vec![100, 100, 800, 100, 100, 800, 100];
        iterations.slow = vec![2, 5];
        iterations.period = Some(3);
    }
    recording
}

#[test]
fn lines_of_whole_periods_add_up_to_the_mean() {
    let recording = with_an_evaluation(&[(0, 100), (100, 200), (200, 1000)]);
    let profile = attribute(&recording).expect("a profile");
    let slow = profile.iteration.slow.expect("one is slow");
    assert_eq!((slow.typical_ns, slow.slow_ns, slow.count, slow.of), (100.0, 800.0, 2, 7));
    assert!((slow.mean_ns - 2000.0 / 6.0).abs() < 1e-9, "{slow:?}");
    assert_eq!((slow.line, slow.are_in_lines), (Some((FileId(0), 31)), true));
    assert!((profile.iteration.time_ns - slow.mean_ns).abs() < 1e-9);
    expect![[r#"
        30: other 100 | total other 100
        31: other 233 | total other 233
    "#]]
    .assert_eq(&render_lines(&profile));
    // The last six of seven iterations are two periods.
    let periods = profile.iteration.comparable_times();
    assert!(periods.iter().all(|time_ns| (time_ns - slow.mean_ns).abs() < 1e-9), "{periods:?}");
    let graph = step_graph::step_graph(&recording, &profile).expect("a graph");
    assert!((graph.measured_ns - 100.0).abs() < 1e-9);
}

#[test]
fn without_whole_periods_lines_add_up_to_a_typical_iteration() {
    let recording = with_an_evaluation(&[(0, 100), (200, 1000)]);
    let profile = attribute(&recording).expect("a profile");
    let slow = profile.iteration.slow.expect("one is slow");
    assert_eq!((slow.line, slow.are_in_lines), (None, false));
    assert!((profile.iteration.time_ns - 100.0).abs() < 1e-9);
    assert!(profile.iteration.samples_per_second().is_none());
    // The slow profiled iteration does not count.
    expect![[r#"
        30: other 100 | total other 100
    "#]]
    .assert_eq(&render_lines(&profile));
}

#[test]
fn invalid_slow_iterations_are_harmless() {
    for (slow, period) in [
        (vec![0, 1, 2, 3, 4, 5, 6], Some(3)),
        (vec![usize::MAX, 2, 5], Some(u32::MAX)),
        (vec![2, 5], Some(0)),
        (vec![2, 5], Some(1)),
        (vec![0, 1], None),
    ] {
        let mut recording = with_an_evaluation(&[(0, 100), (100, 200), (200, 1000)]);
        if let Some(manifest) = &mut recording.manifest {
            manifest.iterations.slow = slow;
            manifest.iterations.period = period;
        }
        let profile = attribute(&recording).expect("a profile");
        assert!(profile.iteration.time_ns > 0.0);
        assert_conserved(&profile);
    }
}

/// The loader's batch, two activations, a workspace of the first one, a gradient, a temporary of
/// the backward pass, and the optimizer's allocations.
#[track_caller]
fn check_memory(workspace: i64, state: i64, expected: Expect) {
    let mut trace = operators();
    trace.memory(20, 0x10, 100).memory(150, 0x20, 1000).memory(160, 0x30, workspace);
    trace.memory(170, 0x30, -workspace).memory(230, 0x40, 2000).memory(340, 0x50, 300);
    trace.memory(350, 0x60, 50).memory(390, 0x60, -50).memory(400, 0x40, -2000);
    trace.memory(500, 0x20, -1000).memory(630, 0x70, state);
    let mut recording = recording(trace, LOOP, 800);
    let block = |ptr, bytes, kind, module| Block { ptr, bytes, kind, module, name: None };
    let weights = block(1, 700, BlockKind::Weight, Some(1));
    let dataset = block(2, 9, BlockKind::Other, None);
    if let Some(manifest) = &mut recording.manifest {
        manifest.memory = Some(Memory {
            device: Some("cpu".to_owned()),
            baseline: vec![weights, dataset],
            gradients: vec![block(0x50, 300, BlockKind::Gradient, Some(2))],
            batch: vec![block(0x10, 100, BlockKind::Batch, None)],
            ..Memory::default()
        });
    }
    let profile = attribute(&recording).expect("a profile");
    assert_conserved(&profile);
    let kinds = |memory: &MemoryByKind| {
        let kinds = memory.named().into_iter().filter(|(_, bytes)| *bytes > 0);
        kinds.map(|(kind, bytes)| format!(" {kind} {bytes}")).collect::<String>()
    };
    let mut text =
        format!("peak {}:{}\n", profile.memory.peak_bytes, kinds(&profile.memory.at_peak));
    for line in profile.lines.iter().flatten() {
        if line.self_memory.total() > 0 {
            writeln!(text, "{}:{}", line.line, kinds(&line.self_memory)).expect("a string");
        }
    }
    expected.assert_eq(&text);
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
fn memory_that_peaks_within_a_forward_operator() {
    check_memory(
        5000,
        10,
        expect![[r#"
        peak 6809: weights 700 activations 1000 batch 100 temporaries 5000 other 9
        11: weights 700
        21: activations 1000 temporaries 5000
        30: batch 100
    "#]],
    );
}

#[test]
fn memory_that_peaks_in_the_backward_pass() {
    check_memory(
        10,
        10,
        expect![[r#"
        peak 4159: weights 700 gradients 300 activations 3000 batch 100 temporaries 50 other 9
        11: weights 700
        12: gradients 300
        21: activations 1000
        22: activations 2000 temporaries 50
        30: batch 100
    "#]],
    );
}

#[test]
fn memory_that_peaks_in_the_optimizer() {
    check_memory(
        10,
        5000,
        expect![[r#"
        peak 6109: weights 700 gradients 300 optimizer state 5000 batch 100 other 9
        11: weights 700
        12: gradients 300
        30: batch 100
        33: optimizer state 5000
    "#]],
    );
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
fn hostile() -> impl Strategy<Value = Recording> {
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
    let record = (time.clone(), 0u8..9, 0u16..3, 0u32..5, prop_oneof![0u32..50, Just(u32::MAX)]);
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
    fn no_recording_is_too_strange(recording in hostile()) {
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
