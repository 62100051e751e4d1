//! Costs of GPU work, and of autograd's own thread.

use super::*;

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
