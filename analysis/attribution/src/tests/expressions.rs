//! The expressions within lines.

use super::*;
use ridgeline_recording::line_log::EXPRESSION;

/// Renders the expressions of each line as `line: columns: time in calls`.
fn render(profile: &Profile) -> String {
    let mut text = String::new();
    for line in profile.lines.iter().flatten() {
        for one in &line.expressions {
            let (at, time) = (one.range, times(&one.total_time));
            let place = format!("{}: {}..{}", line.line, at.column, at.end_column);
            writeln!(text, "{place}:{time} in {}", one.calls).expect("a string");
        }
    }
    text
}

/// Checks the expressions of a recording whose expression `n` has the columns `ranges[n]`.
#[track_caller]
fn check(trace: TraceBuilder, records: Records<'_>, ranges: &[[u32; 4]], expected: Expect) {
    let mut recording = recording(trace, records, 800);
    let manifest = recording.manifest.as_mut().expect("the fixture has one");
    manifest.expressions = ranges.iter().map(|&range| Expression { code: 1, range }).collect();
    let profile = attribute(&recording).expect("a profile");
    expected.assert_eq(&render(&profile));
    assert_conserved(&profile);
}

#[test]
fn calls_have_the_time_of_both_passes() {
    let mut records = LOOP.to_vec();
    // Both modules are called on line 21: `self.b(self.a(x))`.
    records.retain(|&(_, kind, a, b)| (kind, a, b) != (LINE, 1, 22));
    for (time_ns, number) in [(125, 0), (200, 1)] {
        let at = records.partition_point(|record| record.0 <= time_ns);
        records.insert(at, (time_ns, EXPRESSION, 1, number));
    }
    check(
        operators(),
        &records,
        &[[21, 7, 21, 16], [21, 0, 21, 17]],
        expect![[r#"
            21: 0..17: forward 95 backward 110 in 1
            21: 7..16: forward 75 backward 100 in 1
        "#]],
    );
}

#[test]
fn a_called_function_on_the_same_line_has_its_own_expressions() {
    // `apply(lambda x: f(x) + g(x), x)`.
    let records: Records<'_> = &[
        (0, PUSH, 1, 1),
        (0, LINE, 1, 21),
        (10, EXPRESSION, 1, 0),
        (20, PUSH, 2, 21),
        (20, LINE, 2, 21),
        (30, EXPRESSION, 2, 1),
        (130, EXPRESSION, 2, 2),
        (330, POP, 2, 0),
        (400, LINE, 1, 22),
    ];
    check(
        TraceBuilder::new(),
        records,
        &[[21, 0, 21, 30], [21, 16, 21, 20], [21, 23, 21, 27]],
        expect![[r#"
            21: 0..30: other 80 in 1
            21: 16..20: other 100 in 1
            21: 23..27: other 200 in 1
        "#]],
    );
}

#[test]
fn a_line_ends_the_expression_before_it() {
    // `f(` with an argument on the next line.
    let records: Records<'_> = &[
        (0, PUSH, 1, 1),
        (0, LINE, 1, 21),
        (10, LINE, 1, 22),
        (10, EXPRESSION, 1, 0),
        (110, EXPRESSION, 1, 1),
        (210, LINE, 1, 21),
        (210, EXPRESSION, 1, 2),
        (510, LINE, 1, 23),
    ];
    check(
        TraceBuilder::new(),
        records,
        &[[22, 0, 22, 4], [22, 6, 22, 10], [21, 0, 22, 11]],
        expect![[r#"
            21: 0..11: other 300 in 1
            22: 0..4: other 100 in 1
            22: 6..10: other 100 in 1
        "#]],
    );
}

#[test]
fn expressions_that_the_manifest_does_not_know_are_left_out() {
    let records: Records<'_> = &[
        (0, PUSH, 1, 1),
        (0, LINE, 1, 21),
        (10, EXPRESSION, 1, 7),
        (20, EXPRESSION, 9, 0),
        (30, EXPRESSION, 1, 0),
    ];
    check(TraceBuilder::new(), records, &[[0, 0, 0, 0], [21, 0, 21, 4]], expect![""]);
}
