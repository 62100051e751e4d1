//! What attribution says about small hand-made recordings, line by line.

use std::fmt::Write;

use expect_test::{Expect, expect};

use super::attribute;
use super::fixture::{TraceBuilder, recording};
use crate::profile::{Phase, PhaseTimes, Profile};
use crate::recording::line_log::{
    LINE, MODULE_ENTER, MODULE_EXIT, PHASE_ENTER, PHASE_EXIT, POP, PUSH,
};

/// One line a line of code: its own time, its total, both by phase.
fn render(profile: &Profile) -> String {
    let times = |times: &PhaseTimes| {
        Phase::ALL
            .iter()
            .filter(|&&phase| times.get(phase) != 0.0)
            .map(|&phase| format!(" {} {:.0}", phase.name(), times.get(phase)))
            .collect::<String>()
    };
    let mut text = String::new();
    for line in profile.lines.iter().flatten() {
        let own = times(&line.self_time);
        let total = times(&line.total_time);
        if !total.is_empty() {
            writeln!(text, "{}:{own} | total{total}", line.line).expect("a string");
        }
    }
    for untracked in &profile.untracked {
        writeln!(text, "{}: {:.0}", untracked.name, untracked.time_ns).expect("a string");
    }
    text
}

#[track_caller]
fn check(trace: TraceBuilder, records: &[(i64, u8, u32, u32)], end_ns: i64, expected: Expect) {
    let profile = attribute(&recording(trace, records, end_ns)).expect("a profile");
    expected.assert_eq(&render(&profile));
    let own: f64 = profile.lines.iter().flatten().map(|line| line.self_time.total()).sum();
    let untracked: f64 = profile.untracked.iter().map(|part| part.time_ns).sum();
    let time_ns = profile.iteration.time_ns;
    assert!((own + untracked - time_ns).abs() < 1e-6 * time_ns, "{own} + {untracked} != {time_ns}");
    assert!((profile.iteration.phases.total() - time_ns).abs() < 1e-6 * time_ns);
}

/// A loop on line 30 that calls the network on 31, `backward` on 32 and `step` on 33; the network
/// calls its module a on line 21 and b on line 22.
const LOOP: &[(i64, u8, u32, u32)] = &[
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

#[test]
fn backward_belongs_to_the_forward_lines() {
    let mut trace = TraceBuilder::new();
    trace.op("aten::linear", 140, 50).sequence(1);
    trace.op("aten::linear", 220, 60).sequence(2);
    trace.node("AddmmBackward0", 330, 100).sequence(2).forward_thread(1);
    trace.node("torch::autograd::AccumulateGrad", 430, 10);
    trace.node("AddmmBackward0", 450, 100).sequence(1).forward_thread(1);
    trace.op("aten::mm", 460, 50);
    trace.op("aten::add_", 620, 50);
    check(
        trace,
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
