//! `profiler-left-on`: a profiler or tracer of the program itself that is enabled during training
//! (PyTorch, "Performance Tuning Guide: Disable debugging APIs").

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use crate::evidence::Evidence;
use crate::finding::{Finding, SourceLine};
use crate::rule::Rule;
use crate::source_queries::{loops_around, place};
use crate::switched_off;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::{calls_in, object_of, within};
use ridgeline_profile::FileId;
use ridgeline_python::semantics::module::Module;

/// Profilers that are enabled within their `with`.
const PROFILERS: [&str; 4] = [
    "torch.profiler.profile",
    "torch.autograd.profiler.profile",
    "torch.autograd.profiler.emit_nvtx",
    "torch.autograd.profiler.emit_itt",
];

pub(super) struct ProfilerLeftOn;

impl Rule for ProfilerLeftOn {
    fn name(&self) -> &'static str {
        "profiler-left-on"
    }

    fn title(&self) -> &'static str {
        "Profiler left enabled during training"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(manifest) = evidence.manifest() else { return Vec::new() };
        let found = manifest.observed.profilers.iter().take(8).filter_map(|one| {
            let at = one.at.or(manifest.training_loop)?;
            let cost = switched_off::cost(evidence, &one.name);
            Some(Finding { cost, ..finding(evidence.place(FileId(at.file), at.line), &one.name) })
        });
        found.collect()
    }

    fn unmeasured(&self, program: &Program<'_>) -> Vec<Finding> {
        let found = program.calls().filter_map(|(module, call)| {
            let whole = program.called(module, call);
            let name = PROFILERS.iter().find(|name| **name == whole)?;
            let node = program.node(module, call).filter(|_| call.branches.is_empty())?;
            let arguments = program.arguments(module, node)?;
            let is_unlimited = arguments.positional.is_empty()
                && ["schedule", "enabled", "use_cuda"]
                    .iter()
                    .all(|key| arguments.named(key).is_none())
                && arguments.splats.is_empty();
            let text = program.module(module);
            let body = with_around(node).and_then(|with| with.field(Field::Body))?;
            let place = place(program, module, text.line(call.span.start));
            (is_unlimited && trains_without_limit(text, body)).then(|| finding(place, name))
        });
        found.collect()
    }
}

fn finding(at: SourceLine, name: &str) -> Finding {
    let name = if name.is_empty() { "A profiler" } else { name };
    Finding {
        rule: "profiler-left-on",
        at,
        message: format!("{name} is enabled during training"),
        why:
            "It records every op or line, which slows down each iteration, and keeps the recorded \
            events in memory. Limit it to a few iterations with a schedule, or remove it."
                .to_owned(),
        ..Finding::default()
    }
}

/// The `with` whose header contains a call.
fn with_around(call: Node<'_>) -> Option<Node<'_>> {
    let mut around = call.parent()?;
    while matches!(Kind::of(&around), Kind::WithItem | Kind::AsPattern | Kind::WithClause) {
        around = around.parent()?;
    }
    (around.is(Kind::WithStatement)).then_some(around)
}

/// Whether the body of a `with` has a training loop that nothing ends early: intentional profiling
/// covers a few iterations.
fn trains_without_limit(text: &Module, body: Node<'_>) -> bool {
    let ends_early = within(body).iter().any(|node| node.is(Kind::BreakStatement));
    let counts = |one: &Node<'_>| {
        let over = one.field(Field::Right).map(|over| text.text(&over.byte_range()));
        over.is_none_or(|over| over.starts_with("range(") || over.contains("islice"))
    };
    !ends_early
        && calls_in(body).into_iter().any(|call| {
            let loops = loops_around(call);
            let inside: Vec<&Node<'_>> =
                loops.iter().filter(|one| one.start_byte() >= body.start_byte()).collect();
            object_of(text, call, "backward").is_some()
                && inside.first().is_some_and(|innermost| !counts(innermost))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Cost;
    use crate::harness::{Case, lines_in};
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_profile::Phase;
    use ridgeline_recording::observed;

    #[track_caller]
    fn check(head: &str, body: &str, expected: &[u32]) {
        let text = format!(
            "import torch\nfrom torch.profiler import profile, schedule\n{head}\n    {body}\n        loss.backward()\n"
        );
        assert_eq!(lines_in(&ProfilerLeftOn, &text), expected, "{text}");
    }

    #[test]
    fn profiler_around_the_whole_loop() {
        check("with profile() as p:", "for x in loader:", &[3]);
        check("with torch.autograd.profiler.emit_nvtx():", "for x in loader:", &[3]);
    }

    #[test]
    fn profiler_of_a_few_iterations_is_not_reported() {
        check("with profile(schedule=schedule(1, 1, 3)) as p:", "for x in loader:", &[]);
        check(
            "with torch.autograd.profiler.emit_nvtx(enabled=args.nvtx):",
            "for x in loader:",
            &[],
        );
        check("with profile() as p:", "for i in range(5):", &[]);
        check("with profile() as p:", "for x in islice(loader, 5):", &[]);
        check("with open(path) as p:", "for x in loader:", &[]);
        check("with profile() as p:", "for x in loader:\n        if done: break", &[]);
    }

    #[test]
    fn recorded_profiler_is_reported_at_its_line_or_the_loop() {
        let mut case =
            Case::new("import cProfile\nstart()  # start\nfor x in y:  # loop\n    x()\n");
        case.host(TaskKind::HostGap, 1e6, Phase::Other, None);
        let name = "cProfile".to_owned();
        let at = Some(case.location("start"));
        case.manifest.training_loop = Some(case.location("loop"));
        case.manifest.observed.profilers = vec![observed::ProfilerLeftOn { name, at }];
        let found = case.finds(&ProfilerLeftOn, "start");
        assert_eq!(
            (found.cost, found.message.as_str()),
            (None, "cProfile is enabled during training")
        );
        case.manifest.observed.profilers[0].at = None;
        case.finds(&ProfilerLeftOn, "loop");
        let name = "cProfile".to_owned();
        let (with_ns, without_ns) = (vec![900_000; 4], vec![600_000; 4]);
        case.manifest.observed.switched_off =
            vec![observed::SwitchedOff { name, with_ns, without_ns }];
        assert_eq!(case.finds(&ProfilerLeftOn, "loop").cost, Some(Cost::time(3e5)));
    }
}
