//! `repeated-casts`: the same tensor cast to another dtype again and again in one iteration.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeSet;

use tree_sitter::Node;

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::line_sums::{Line, work_of_line};
use crate::rule::Rule;
use ridgeline_graph::memory::{Block, Changes, Memory};
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::{object_of, targets, within, writes, written};
use ridgeline_profile::Phase;
use ridgeline_python::semantics::module::{Call, Module};

/// The minimum share of the iteration time.
const MIN_SHARE: f64 = 0.01;
/// The minimum number of casts on a line.
const MIN_CASTS: u32 = 4;
/// Methods whose name determines the dtype.
const CASTS: [&str; 4] = ["float", "half", "double", "bfloat16"];

pub(super) struct RepeatedCasts;

impl Rule for RepeatedCasts {
    fn name(&self) -> &'static str {
        "repeated-casts"
    }

    fn title(&self) -> &'static str {
        "Repeated cast of the same tensor"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let mut seen: BTreeSet<Line> = BTreeSet::new();
        let mut found = Vec::new();
        for (module, call) in evidence.program.calls() {
            let Some(name) = repeated_cast(evidence.program, module, call) else { continue };
            let line = evidence.program.module(module).line(call.span.end.saturating_sub(1));
            let Some(line) = evidence.recorded_line(module, line).filter(|line| seen.insert(*line))
            else {
                continue;
            };
            found.extend(finding(evidence, line, &name));
        }
        found
    }
}

fn finding(evidence: &Evidence<'_>, line: Line, name: &str) -> Option<Finding> {
    let (mut time_ns, mut calls) = (0.0, 0);
    for (key, work) in work_of_line(evidence, line) {
        let operator = evidence.operator(key).and_then(|it| it.base_name());
        if operator == Some("_to_copy") && work.calls >= MIN_CASTS {
            // One of them is needed.
            time_ns += work.time_ns() * (1.0 - 1.0 / f64::from(work.calls));
            calls = calls.max(work.calls);
        }
    }
    (evidence.share(time_ns) >= MIN_SHARE).then(|| Finding {
        rule: "repeated-casts",
        at: evidence.place(line.0, line.1),
        message: format!("`{name}` is cast to another dtype {calls} times per iteration"),
        why:
            "The tensor is the same each time. Cast it once before the loop or where the model is \
            created."
                .to_owned(),
        cost: Some(Cost { bytes: retained_bytes(evidence, line), ..Cost::time(time_ns) }),
        ..Finding::default()
    })
}

/// By how many bytes peak memory drops if only the first result exists: in training the backward
/// pass keeps each of them alive.
fn retained_bytes(evidence: &Evidence<'_>, line: Line) -> f64 {
    let recorded = &evidence.run.recorded;
    let (graph, schedule) = (&recorded.graph, &recorded.schedule);
    if !graph.memory.is_known {
        return 0.0;
    }
    let tasks = graph.tasks.iter().filter(|task| task.line == Some(line));
    let casts = tasks.filter(|task| {
        let operator = graph.operator_of(task).and_then(|it| it.base_name());
        task.phase != Phase::Backward && operator == Some("_to_copy")
    });
    let casts: BTreeSet<u32> = casts.filter_map(|task| task.call).collect();
    let mut once = graph.memory.clone();
    let is_made = |block: &&mut Block| {
        block.allocated.is_some() && block.call.is_some_and(|call| casts.contains(&call))
    };
    once.blocks.iter_mut().filter(is_made).skip(1).for_each(|block| block.bytes = 0.0);
    let modifies = Changes::new(graph, schedule);
    let peak = |memory: &Memory| modifies.peak(memory, |block| block.bytes);
    (peak(&graph.memory) - peak(&once)).max(0.0)
}

/// What a call casts, if it is the same in each iteration of the loop around it. Returns `None` for
/// other calls.
fn repeated_cast(program: &Program<'_>, module: usize, call: &Call) -> Option<String> {
    let text = program.module(module);
    let name = call.name();
    if name != "to" && !CASTS.contains(&name) {
        return None;
    }
    let node = program.node(module, call)?;
    let arguments = program.arguments(module, node)?;
    let object = object_of(text, node, name)?;
    let is_plain = match name {
        "to" => {
            let given = arguments.positional.first().copied().or(arguments.named("dtype"))?;
            is_type(&written(text, given)) || arguments.named("dtype").is_some()
        }
        _ => arguments.positional.is_empty() && arguments.by_name.is_empty(),
    };
    let is_name = matches!(Kind::of(&object), Kind::Identifier | Kind::Attribute);
    if !is_plain || !is_name {
        return None;
    }
    let whole = written(text, object);
    let around = innermost_loop(node)?;
    (!modifies(text, around, &whole)).then_some(whole)
}

/// `torch.float16`, `x.dtype`, `dtype`.
fn is_type(value: &str) -> bool {
    let last = value.rsplit('.').next().unwrap_or(value);
    last == "dtype" || (value.starts_with("torch.") && (last.contains("float") || last == "half"))
}

/// The loop around a node, in the same function.
fn innermost_loop(node: Node<'_>) -> Option<Node<'_>> {
    let mut at = node;
    while let Some(parent) = at.parent() {
        if matches!(
            Kind::of(&parent),
            Kind::FunctionDefinition | Kind::Lambda | Kind::ClassDefinition
        ) {
            return None;
        }
        // The iterable is evaluated only once.
        let is_body = parent.field(Field::Body) == Some(at);
        if matches!(Kind::of(&parent), Kind::ForStatement | Kind::WhileStatement) && is_body {
            return Some(parent);
        }
        at = parent;
    }
    None
}

/// Whether a loop assigns a name or a part of it, or modifies it in place.
fn modifies(text: &Module, around: Node<'_>, name: &str) -> bool {
    let mut given = writes(text, around);
    if let Some(left) = around.field(Field::Left) {
        given.extend(targets(text, left));
    }
    let root = name.split('.').next().unwrap_or(name);
    let is_given = given.iter().any(|one| one == name || one == root);
    let in_place = within(around).into_iter().filter(|it| it.is(Kind::Attribute)).any(|it| {
        let method = it.field(Field::Attribute).map(|it| written(text, it));
        let object = it.field(Field::Object).map(|it| written(text, it));
        object.as_deref() == Some(name) && method.is_some_and(|method| method.ends_with('_'))
    });
    // A trained weight changes in the optimizer step.
    let trains = ridgeline_optimize::rewrite::syntax::calls_in(around)
        .into_iter()
        .any(|call| ridgeline_optimize::rewrite::syntax::callee(text, call).ends_with(".step"));
    is_given || in_place || trains
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, operator};

    fn example(body: &str, calls: u32, cast_us: f64) -> Case {
        let text = format!(
            "import torch\n\ndef f(x, mask, table):\n    for t in range(9):\n        {body}\n    return x\n\nf(1, 2, 3)\n"
        );
        let cast = operator("_to_copy", &[&[512, 512], &[512, 512]]);
        let other = operator("mm", &[&[64, 64], &[64, 64], &[64, 64]]);
        Case::new(&text).call(8, Phase::Forward, &other, 1000.0).calls(
            calls,
            5,
            Phase::Forward,
            &cast,
            cast_us,
        )
    }

    #[test]
    fn cost_is_all_casts_but_one() {
        for body in
            ["x = x * mask.float()", "x = x * mask.to(torch.float16)", "x = x @ table.to(x.dtype)"]
        {
            let found = example(body, 9, 100.0).measured(&RepeatedCasts);
            assert_eq!(found.len(), 1, "{body}");
            assert_eq!(found[0].at.line, 5);
            let cost = found[0].cost.expect("a cost");
            assert!((cost.time_ns - 800e3).abs() < 1.0 && !cost.is_predicted, "{cost:?}");
        }
    }

    #[test]
    fn results_saved_for_backward_cost_memory() {
        let cast = operator("_to_copy", &[&[512, 512], &[512, 512]]);
        let mut case = example("x = x * mask.float()", 3, 100.0);
        case = case.allocates(1e6).call(5, Phase::Forward, &cast, 100.0).allocates(1e6);
        case = case.call(5, Phase::Forward, &cast, 100.0).allocates(1e6);
        let found = case.measured(&RepeatedCasts);
        assert_eq!(found[0].cost.map(|cost| cost.bytes), Some(2e6));
    }

    #[test]
    fn changing_tensors_are_not_reported() {
        for body in [
            "x = x.float()",
            "y = x[t].float()",
            "mask.add_(1); y = mask.float()",
            "mask = table; y = mask.float()",
            "y = t.float()",
            "y = mask.to(device)",
            "y = mask.float(1)",
        ] {
            assert!(example(body, 9, 100.0).measured(&RepeatedCasts).is_empty(), "{body}");
        }
    }

    #[test]
    fn few_casts_and_small_costs_are_not_reported() {
        assert!(example("x = x * mask.float()", 2, 100.0).measured(&RepeatedCasts).is_empty());
        assert!(example("x = x * mask.float()", 9, 0.5).measured(&RepeatedCasts).is_empty());
    }
}
