use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{TraceBuilder, recording};
use crate::tests::{LOOP, operators};

/// Checks that spans are sorted and within the iteration.
pub(crate) fn assert_in_order(iteration: &RecordedIteration) {
    let mut before = (0, i64::MIN);
    for span in &iteration.spans {
        assert!(span.track < iteration.tracks.len() && span.depth < MAX_DEPTH, "{span:?}");
        assert!(iteration.start_ns <= span.start_ns, "{span:?}");
        assert!(span.start_ns <= span.end_ns && span.end_ns <= iteration.end_ns, "{span:?}");
        assert!(before <= (span.track, span.start_ns), "{span:?} comes after {before:?}");
        before = (span.track, span.start_ns);
    }
}

#[track_caller]
fn check(trace: TraceBuilder, end_ns: i64, expected: Expect) {
    let recording = recording(trace, LOOP, end_ns);
    let iteration = recorded_iteration(&recording).expect("an iteration");
    assert_in_order(&iteration);
    let mut text = String::new();
    for (index, track) in iteration.tracks.iter().enumerate() {
        writeln!(text, "{track:?}").expect("a text");
        for span in iteration.spans.iter().filter(|span| span.track == index) {
            let what = match span.what {
                SpanKind::Named(id) => recording.trace.text(id),
                SpanKind::Phase => "",
                SpanKind::Idle => "idle",
            };
            let what = what.rsplit(' ').next().unwrap_or_default();
            let indent = "  ".repeat(span.depth + 1);
            let line = span.line.map(|(_, line)| format!(" line {line}")).unwrap_or_default();
            let (from, to) = (span.start_ns, span.end_ns);
            let phase = span.phase.name();
            writeln!(text, "{indent}{from}..{to} {what} {phase}{line}").expect("a text");
        }
    }
    expected.assert_eq(&text);
}

#[test]
fn operators_nest_and_have_lines() {
    check(
        operators(),
        800,
        expect![[r#"
        Phases
          0..50  data
          50..110  other
          110..300  forward
          300..310  other
          310..600  backward
          600..610  other
          610..700  optimizer
          700..800  other
        MainThread
          140..190 aten::linear forward line 21
          220..280 aten::linear forward line 22
          330..430 AddmmBackward0 backward line 22
          430..440 torch::autograd::AccumulateGrad backward line 22
          450..550 AddmmBackward0 backward line 21
            460..510 aten::mm backward line 21
          620..670 aten::add_ optimizer line 33
    "#]],
    );
}

#[test]
fn spans_are_clipped_to_the_iteration() {
    check(
        operators(),
        480,
        expect![[r#"
        Phases
          0..50  data
          50..110  other
          110..300  forward
          300..310  other
          310..480  backward
        MainThread
          140..190 aten::linear forward line 21
          220..280 aten::linear forward line 22
          330..430 AddmmBackward0 backward line 22
          430..440 torch::autograd::AccumulateGrad backward line 22
          450..480 AddmmBackward0 backward line 21
            460..480 aten::mm backward line 21
    "#]],
    );
}

#[test]
fn a_gpu_has_tracks_for_streams_and_idle_time() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::linear", 140, 50).sequence(1);
    trace.node("AddmmBackward0", 330, 100).sequence(1).forward_thread(1).thread(1);
    trace.kernel("gemm", 150, 200, 100);
    trace.kernel("dgemm", 340, 350, 400);
    trace.launch_thread(1);
    trace.leaked_kernel("gemm", -20, 30);
    check(
        trace,
        800,
        expect![[r#"
            Phases
              0..50  data
              50..110  other
              110..300  forward
              300..310  other
              310..600  backward
              600..610  other
              610..700  optimizer
              700..800  other
            MainThread
              140..190 aten::linear forward line 21
                150..152 cudaLaunchKernel forward line 21
            AutogradThread(1)
              330..430 AddmmBackward0 backward line 21
                340..342 cudaLaunchKernel backward line 21
            Stream { device: 0, stream: 7 }
              0..10 gemm other
              200..300 gemm forward line 21
              350..750 dgemm backward line 21
            Idle { device: 0 }
              10..200 idle forward line 21
              300..350 idle backward line 21
              750..800 idle other line 34
        "#]],
    );
}

#[test]
fn a_kernel_refers_to_its_launch() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::linear", 140, 50);
    trace.kernel("gemm", 150, 200, 100);
    trace.leaked_kernel("gemm", 0, 30);
    let recording = recording(trace, LOOP, 800);
    let iteration = recorded_iteration(&recording).expect("an iteration");
    let calls = |is_stream: bool| -> Vec<Option<u32>> {
        let is_wanted = |span: &&Span| match iteration.tracks[span.track] {
            Track::Stream { .. } => is_stream,
            Track::MainThread => !is_stream,
            _ => false,
        };
        iteration.spans.iter().filter(is_wanted).map(|span| span.call).collect()
    };
    // The operator, and the launch within it.
    assert_eq!(calls(false), [None, Some(0)]);
    assert_eq!(calls(true), [None, Some(0)]);
}

#[test]
fn overlapping_kernels_get_different_depths() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::linear", 140, 50);
    for kernel in 0..4 {
        trace.kernel("gemm", 150, 200 + 90 * kernel, 100);
    }
    let recording = recording(trace, LOOP, 800);
    let iteration = recorded_iteration(&recording).expect("an iteration");
    let of_stream = |span: &&Span| matches!(iteration.tracks[span.track], Track::Stream { .. });
    let depths = iteration.spans.iter().filter(of_stream).map(|span| span.depth);
    assert_eq!(depths.collect::<Vec<_>>(), [0, 1, 0, 1]);
}

#[test]
fn omitted_deep_spans_are_counted() {
    let mut trace = TraceBuilder::new();
    for depth in 0..100 {
        trace.op("aten::deep", depth, 300 - 2 * depth);
    }
    let recording = recording(trace, LOOP, 800);
    let iteration = recorded_iteration(&recording).expect("an iteration");
    let deepest = iteration.spans.iter().map(|span| span.depth).max();
    assert_eq!((deepest, iteration.left_out), (Some(63), 36));
}
