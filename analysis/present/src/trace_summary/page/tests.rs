use expect_test::{Expect, expect};

use super::*;
use crate::trace_summary::summarize;
use ridgeline_recording::chrome_trace::Options;
use ridgeline_recording::trace::Trace;

#[track_caller]
fn check(trace: &str, top: usize, expected: Expect) {
    let trace = Trace::read(trace.as_bytes(), &Options::default()).expect("it is a trace");
    let style = Style { color: false, width: 80 };
    expected.assert_eq(&page(&summarize(&trace), top, style));
}

const GPU: &str = r#"{"baseTimeNanoseconds": 1700000000000000000,
     "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132, "computeMajor": 9,
       "computeMinor": 0, "totalGlobalMem": 80000000000}],
     "traceEvents": [
     {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 100.5, "dur": 50.25},
     {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 110,
       "dur": 5, "args": {"correlation": 7}},
     {"ph": "X", "cat": "kernel", "name": "void gemm<float, 128, 128, 32, some, other, things>(int)",
       "pid": 0, "tid": 7, "ts": 120, "dur": 10.5, "args": {"device": 0, "stream": 7,
       "correlation": 7}},
     {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 140,
       "dur": 1, "args": {"device": 0, "stream": 8, "correlation": 8, "bytes": 1000}}
     ]}"#;

#[test]
fn hardware_counters_have_their_own_section() {
    let range = |values: &str| {
        format!(
            r#"{{"ph": "X", "cat": "cuda_profiler_range", "name": "gemm", "pid": 0, "tid": 0,
                    "ts": 1, "dur": 2, "args": {{{values}}}}}"#
        )
    };
    let fused = r#""smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 1000000.0"#;
    let single = r#""smsp__sass_thread_inst_executed_op_hadd_pred_on.sum": 5"#;
    let both = format!("{fused}, {single}, \"smsp__cycles_active.avg\": 77");
    let trace =
        format!(r#"{{"schemaVersion": 1, "traceEvents": [{}, {}]}}"#, range(&both), range(fused));
    check(
        &trace,
        10,
        expect![[r#"
            unknown device (cuda)

            Hardware counters (CUPTI)
            kernels                                   2
            FLOP outside tensor cores       4.0 million
            tensor core instructions           not read

            note: the trace has no GPU activities, so the bottleneck is unknown: the profiler records no kernels while it reads hardware counters
        "#]],
    );
}

#[test]
fn a_trace_with_a_gpu() {
    check(
        GPU,
        10,
        expect![[r#"
                NVIDIA H100 · 132 multiprocessors · compute capability 9.0

                GPU
                span                         21 µs          from the first to the last activity
                busy                       11.5 µs    55%
                  computing                10.5 µs    50%
                  copying                   1.0 µs     5%
                idle                        9.5 µs    45%
                kernels                    10.5 µs          sum of 1 kernel
                leaked in                   1.0 µs          1 activity from before the recording
                launch to start              10 µs          median; 95% within 10 µs
                launching                   5.0 µs          of the host in 1 launch, median 5.0 µs
                  stream 7                 10.5 µs    50%   1 activity
                  stream 8                  1.0 µs     5%   1 activity

                Kernels, copies and fills
                      time      share      calls  occupancy  name
                   10.5 µs        91%          1             void gemm<float, 128, 128, 32, som…
                    1.0 µs         9%          1             Memcpy HtoD

                Operators
                       GPU       host      calls  name
                   10.5 µs    50.2 µs          1  aten::mm

                note: 1 of 2 GPU activities have no launch in the trace: they were launched before the recording and belong to no operator
            "#]],
    );
}

#[test]
fn an_amd_gpu_has_compute_units_and_no_compute_capability() {
    let trace = GPU.replace("NVIDIA H100", "AMD Instinct MI300X").replace("132", "304");
    let trace = Trace::read(trace.as_bytes(), &Options::default()).expect("it is a trace");
    let text = page(&summarize(&trace), 1, Style { color: false, width: 80 });
    assert_eq!(text.lines().next(), Some("AMD Instinct MI300X · 304 compute units"));
}

#[test]
fn one_row_of_each_list() {
    check(
        GPU,
        1,
        expect![[r#"
                NVIDIA H100 · 132 multiprocessors · compute capability 9.0

                GPU
                span                         21 µs          from the first to the last activity
                busy                       11.5 µs    55%
                  computing                10.5 µs    50%
                  copying                   1.0 µs     5%
                idle                        9.5 µs    45%
                kernels                    10.5 µs          sum of 1 kernel
                leaked in                   1.0 µs          1 activity from before the recording
                launch to start              10 µs          median; 95% within 10 µs
                launching                   5.0 µs          of the host in 1 launch, median 5.0 µs
                  stream 7                 10.5 µs    50%   1 activity
                  stream 8                  1.0 µs     5%   1 activity

                Kernels, copies and fills
                      time      share      calls  occupancy  name
                   10.5 µs        91%          1             void gemm<float, 128, 128, 32, som…
                           and 1 more names

                Operators
                       GPU       host      calls  name
                   10.5 µs    50.2 µs          1  aten::mm

                note: 1 of 2 GPU activities have no launch in the trace: they were launched before the recording and belong to no operator
            "#]],
    );
}

#[test]
fn a_trace_without_a_gpu() {
    let cpu = r#"[{"ph": "X", "cat": "cpu_op", "name": "aten::\u001b[31mmm", "pid": 1, "tid": 1,
            "ts": 1, "dur": 2}]"#;
    check(
        cpu,
        10,
        expect![[r#"
                unknown device (cpu)

                Operators
                      time      calls  name
                    2.0 µs          1  aten::�[31mmm
            "#]],
    );
}

#[test]
fn a_trace_with_call_stacks() {
    let stacks = r#"[
            {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2,
             "args": {"Call stack": "model.py(12): forward;train.py(31): main"}},
            {"ph": "X", "cat": "Operator", "name": "aten::add", "pid": 1, "tid": 1, "ts": 5, "dur": 9,
             "args": {"Call stack": "model.py(13): forward;train.py(31): main"}}]"#;
    check(
        stacks,
        10,
        expect![[r#"
            unknown device (cpu)

            Operators
                  time      calls  name
                9.0 µs          1  aten::add
                2.0 µs          1  aten::mm

            Lines
                  time with calls  place
                9.0 µs     9.0 µs  model.py:13 forward
                2.0 µs     2.0 µs  model.py:12 forward
                  0 ns      11 µs  train.py:31 main
        "#]],
    );
}

#[test]
fn a_trace_that_ends_early() {
    check(
        &GPU[..GPU.len() - 150],
        0,
        expect![[r#"
            NVIDIA H100 · 132 multiprocessors · compute capability 9.0

            GPU
            span                       10.5 µs          from the first to the last activity
            busy                       10.5 µs   100%
              computing                10.5 µs   100%
            idle                          0 ns   0.0%
            kernels                    10.5 µs          sum of 1 kernel
            launch to start              10 µs          median; 95% within 10 µs
            launching                   5.0 µs          of the host in 1 launch, median 5.0 µs

            note: the file is truncated after 716 bytes of JSON: everything before that is counted. PyTorch writes kernels last, so kernels may be missing and the bottleneck is unknown
        "#]],
    );
}

#[test]
fn streams_of_several_gpus_have_their_number() {
    let kernel = |device: u32, start: u32| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "gemm", "pid": {device}, "tid": 7,
                "ts": {start}, "dur": 10, "args": {{"device": {device}, "stream": 7}}}}"#
        )
    };
    let step = r#"{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 9,
        "tid": 9, "ts": 0, "dur": 50}"#;
    let operator = r#"{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9,
        "ts": 1, "dur": 2}"#;
    let events = [step.to_owned(), operator.to_owned(), kernel(0, 10), kernel(1, 30)].join(",");
    let trace = format!(r#"{{"traceEvents": [{events}]}}"#);
    let trace = Trace::read(trace.as_bytes(), &Options::default()).expect("it is a trace");
    let text = page(&summarize(&trace), 0, Style { color: false, width: 80 });
    assert!(text.contains("  GPU 0 stream 7"), "{text}");
    assert!(text.contains("  GPU 1 stream 7"), "{text}");
    assert!(text.contains("   1 profiler step, on the host"), "{text}");
}

#[test]
fn numbers_have_thousands_separators() {
    assert_eq!(grouped(0), "0");
    assert_eq!(grouped(999), "999");
    assert_eq!(grouped(1_000), "1,000");
    assert_eq!(grouped(22_290_123), "22,290,123");
}
