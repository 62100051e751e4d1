//! Phases and lines of unusual forward and backward passes.

use super::*;

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
fn a_loss_without_modules_within_the_optimizers_step_is_forward() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::mse_loss", 20, 20).sequence(1);
    trace.op("aten::add_", 45, 5);
    trace.node("MseLossBackward0", 60, 20).sequence(1).forward_thread(1);
    let records: Records<'_> = &[
        (0, PUSH, 0, 1),
        (0, LINE, 0, 33),
        (5, PHASE_ENTER, 3, 0),
        (10, PUSH, 2, 40),
        (10, LINE, 2, 41),
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
        33: optimizer 10 other 10 | total forward 20 backward 40 optimizer 30 other 10
        41: forward 20 backward 20 optimizer 20 | total forward 20 backward 20 optimizer 20
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
