use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use ridgeline_profile::{FileFacts, ModuleCost};
use ridgeline_python::{TextEdit, fingerprint};

/// Builds a profile of `text` with a cost for each of `lines`: (line, function, milliseconds).
fn profile(text: &str, lines: &[(u32, &str, f64)]) -> Profile {
    let mut profile = Profile::default();
    profile.files.push(FileFacts { path: "a.py".into(), fingerprint: fingerprint(text) });
    profile.iteration.time_ns = 100e6;
    profile.iteration.phases.forward = 100e6;
    profile.memory.peak_bytes = 1_000;
    profile.memory.at_peak.activations = 1_000;
    let line = |&(line, scope, time): &(u32, &str, f64)| {
        let time = PhaseTimes { forward: time * 1e6, ..PhaseTimes::default() };
        let memory = MemoryByKind { activations: 10, ..MemoryByKind::default() };
        LineCost {
            line,
            scope: scope.into(),
            self_time: time,
            total_time: time,
            calls: 1.0,
            self_memory: memory,
            total_memory: memory,
            ..LineCost::default()
        }
    };
    profile.lines.push(lines.iter().map(line).collect());
    profile
}

fn format_costs(costs: &CostMap, index: &SourceIndex) -> String {
    let mut text = String::new();
    for cost in &costs.statements {
        let code = &index.text()[cost.span.clone()];
        let (time, memory) = (cost.total_time.total() / 1e6, cost.total_memory.total());
        let own = cost.self_time.total() / 1e6;
        text += &format!(
            "{}-{} {own}/{time} ms {memory} B {:?} {code:?}\n",
            cost.first_line, cost.last_line, cost.provenance
        );
    }
    for cost in &costs.scopes {
        let (name, time) = (index.scope_name(cost.scope), cost.total_time.total() / 1e6);
        text += &format!("{name}: {time} ms {:?}\n", cost.provenance);
    }
    text
}

#[track_caller]
fn check(ran: &str, today: &str, lines: &[(u32, &str, f64)], expected: Expect) {
    let index = SourceIndex::new(today);
    let costs = CostMap::build(&profile(ran, lines), FileId(0), &index);
    expected.assert_eq(&format_costs(&costs, &index));
}

const CALL: &str = "def f(x):\n    y = g(\n        a(x),\n        b(x),\n    )\n    return y\n";

#[test]
fn lines_of_one_statement_are_added() {
    check(
        CALL,
        CALL,
        &[(2, "f", 1.0), (3, "f", 2.0), (4, "f", 4.0)],
        expect![[r#"
        2-5 7/7 ms 30 B Measured "y = g(\n        a(x),\n        b(x),\n    )"
        f: 7 ms Measured
    "#]],
    );
}

#[test]
fn a_comprehension_is_not_counted_twice() {
    let text = "y = [\n    f(i)\n    for i in x\n]\n";
    let nested = "<module>.<locals>.<listcomp>";
    check(
        text,
        text,
        &[(1, "<module>", 9.0), (2, nested, 5.0), (3, nested, 3.0)],
        expect![[r#"
            1-4 17/9 ms 20 B Measured "y = [\n    f(i)\n    for i in x\n]"
        "#]],
    );
}

#[test]
fn a_recursive_statement_takes_at_most_the_iteration_time() {
    check(
        "f(\n g(),\n)\n",
        "f(\n g(),\n)\n",
        &[(1, "f", 80.0), (2, "f", 70.0)],
        expect![[r#"
        1-3 150/100 ms 20 B Measured "f(\n g(),\n)"
    "#]],
    );
}

#[test]
fn a_changed_argument_makes_the_statement_stale() {
    check(
        CALL,
        &CALL.replace("b(x)", "b(x, 1)"),
        &[(2, "f", 1.0), (6, "f", 2.0)],
        expect![[r#"
            2-5 1/1 ms 10 B Stale "y = g(\n        a(x),\n        b(x, 1),\n    )"
            6-6 2/2 ms 10 B Measured "return y"
            f: 3 ms Stale
        "#]],
    );
}

#[test]
fn adding_or_deleting_a_line_of_a_statement_makes_it_stale() {
    let costs = [(2, "f", 1.0), (6, "f", 2.0)];
    let longer = CALL.replace("b(x),\n", "b(x),\n        c(x),\n");
    check(
        CALL,
        &longer,
        &costs,
        expect![[r#"
        2-6 1/1 ms 10 B Stale "y = g(\n        a(x),\n        b(x),\n        c(x),\n    )"
        7-7 2/2 ms 10 B Measured "return y"
        f: 3 ms Stale
    "#]],
    );
    check(
        CALL,
        &CALL.replace("        a(x),\n", ""),
        &costs,
        expect![[r#"
        2-4 1/1 ms 10 B Stale "y = g(\n        b(x),\n    )"
        5-5 2/2 ms 10 B Measured "return y"
        f: 3 ms Stale
    "#]],
    );
}

#[test]
fn blank_lines_and_comments_keep_costs_fresh() {
    let today = CALL.replace("b(x),\n", "b(x),\n\n        # c\n").replace("def", "\n# d\ndef");
    check(
        CALL,
        &today,
        &[(2, "f", 1.0), (4, "f", 2.0)],
        expect![[r#"
        4-9 3/3 ms 20 B Measured "y = g(\n        a(x),\n        b(x),\n\n        # c\n    )"
        f: 3 ms Measured
    "#]],
    );
}

#[test]
fn a_deleted_statement_has_no_cost() {
    check(
        "a()\nb()\nc()\n",
        "a()\nc()\n",
        &[(2, "", 1.0), (3, "", 2.0)],
        expect![[r#"
        2-2 2/2 ms 10 B Measured "c()"
    "#]],
    );
}

#[test]
fn an_unclosed_bracket_does_not_affect_other_statements() {
    let ran = "def f(x):\n    a(x)\n    b(x)\n    c(x)\n";
    let today = ran.replace("    b(x)\n", "    d(\n    b(x)\n");
    check(
        ran,
        &today,
        &[(2, "f", 1.0), (3, "f", 2.0), (4, "f", 4.0)],
        expect![[r#"
        2-2 1/1 ms 10 B Measured "a(x)"
        4-4 2/2 ms 10 B Measured "b(x)"
        5-5 4/4 ms 10 B Measured "c(x)"
        f: 7 ms Stale
    "#]],
    );
}

#[test]
fn an_unclosed_quote_does_not_affect_other_statements() {
    let ran = "def f(x):\n    a(x)\n    b(x)\n\ndef g():\n    \"\"\"Text.\"\"\"\n    c(x)\n";
    let today = ran.replace("    b(x)\n", "    \"\"\"\n    b(x)\n");
    check(
        ran,
        &today,
        &[(2, "f", 1.0), (3, "f", 2.0), (7, "f", 4.0)],
        expect![[r#"
        2-2 1/1 ms 10 B Measured "a(x)"
        4-4 2/2 ms 10 B Measured "b(x)"
        8-8 4/4 ms 10 B Measured "c(x)"
        f: 7 ms Stale
    "#]],
    );
}

#[test]
fn several_statements_on_a_line_share_one_cost() {
    check(
        "a(); b()\n",
        "a(); b()\n",
        &[(1, "", 3.0)],
        expect![[r#"
        1-1 3/3 ms 10 B Measured "a()"
    "#]],
    );
}

#[test]
fn nested_modules_count_once_where_they_are_created() {
    let text = "net = Net()\nblock = Block()\n";
    let mut profile = profile(text, &[]);
    let module = |path: &str, parent: Option<u32>, lines: &[u32]| ModuleCost {
        path: path.into(),
        parent: parent.map(ModuleId),
        definition: lines.iter().map(|&line| (FileId(0), line)).collect(),
        total_time: PhaseTimes { forward: 1e6, ..PhaseTimes::default() },
        ..ModuleCost::default()
    };
    profile.modules = vec![
        module("", None, &[1]),
        module("a", Some(0), &[1, 1]),
        module("a.b", Some(1), &[2, 1]),
        module("c", Some(0), &[2]),
    ];
    let costs = CostMap::build(&profile, FileId(0), &SourceIndex::new(text));
    let created: Vec<_> =
        costs.definitions.iter().map(|cost| (cost.first_line, cost.modules.as_slice())).collect();
    assert_eq!(created, [(1, &[ModuleId(0)][..]), (2, &[ModuleId(2), ModuleId(3)])]);
}

#[test]
fn the_loop_is_stale_when_its_body_changed() {
    let ran = "for x in y:\n    a(x)\nb()\n";
    let mut profile = profile(ran, &[(2, "", 1.0)]);
    profile.iteration.loop_line = Some((FileId(0), 1));
    let provenance = |today: &str| {
        let index = SourceIndex::new(today);
        CostMap::build(&profile, FileId(0), &index).training_loop.map(|found| found.provenance)
    };
    assert_eq!(provenance(ran), Some(Provenance::Measured));
    assert_eq!(provenance("for x in y:\n    a(x)\n"), Some(Provenance::Measured));
    assert_eq!(provenance("for x in y:\n    c(x)\nb()\n"), Some(Provenance::Stale));
    assert_eq!(provenance("b()\n"), None);
}

proptest! {
    #[test]
    fn arbitrary_input_does_not_panic(
        ran in "[af(:)x\\n\\r é🙂\"]{0,60}",
        today in "[af(:)x\\n\\r é🙂\"]{0,60}",
        edit in ("[a(\\n]{0,4}", 0usize..80, 0usize..10),
        lines in proptest::collection::vec((any::<u32>(), any::<f64>()), 0..6),
        modules in proptest::collection::vec((any::<u32>(), any::<u32>(), 0u32..9), 0..6),
        near_lines in proptest::collection::vec((0u32..12, any::<f64>()), 0..6),
        file in 0u32..3,
    ) {
        let lines: Vec<(u32, &str, f64)> =
            lines.iter().chain(&near_lines).map(|(line, time)| (*line, "f", *time)).collect();
        let mut profile = profile(&ran, &lines);
        profile.iteration.loop_line = near_lines.first().map(|(line, _)| (FileId(0), *line));
        profile.memory.peak_bytes = u64::MAX;
        for (parent, at, line) in modules {
            profile.modules.push(ModuleCost {
                parent: Some(ModuleId(parent % 7)),
                definition: vec![(FileId(0), line), (FileId(at), at)],
                memory: MemoryByKind { weights: u64::MAX, activations: u64::MAX, ..MemoryByKind::default() },
                ..ModuleCost::default()
            });
        }
        let mut index = SourceIndex::new(today);
        let (text, at, cut) = edit;
        index.edit(&[TextEdit { range: at..at + cut, text }]);
        let costs = CostMap::build(&profile, FileId(file), &index);
        let text = index.text();
        for span in costs.statements.iter().map(|cost| &cost.span)
            .chain(costs.definitions.iter().map(|cost| &cost.span))
            .chain(costs.scopes.iter().flat_map(|cost| [&cost.span, &cost.name]))
            .chain(costs.training_loop.iter().flat_map(|found| [&found.span, &found.header]))
        {
            prop_assert!(text.get(span.clone()).is_some());
        }
        let offsets = crate::present_everything(&profile, &costs, &index);
        prop_assert!(offsets.iter().all(|offset| text.is_char_boundary(*offset)));
    }
}
