//! `graph-retained`: a loss that is accumulated over iterations with its autograd graph (PyTorch,
//! "Frequently Asked Questions: my model reports out of memory").

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::ops::RangeInclusive;

use tree_sitter::Node;

use crate::autograd_flow::{AutogradFlow, base_of};
use crate::evidence::{Evidence, Retained};
use crate::finding::{Cost, Finding, SourceLine};
use crate::rule::Rule;
use crate::source_queries::{callers, is_without_gradients, lines_of, loops_around, place};
use ridgeline_base::units::bytes;
use ridgeline_graph::memory::Block;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::rewrite::fixes::accumulated_loss::holds_tensors;
use ridgeline_optimize::rewrite::fixes::sums::{added, metered};
use ridgeline_optimize::rewrite::models::Models;
use ridgeline_optimize::rewrite::program::{Program, Scope};
use ridgeline_optimize::rewrite::syntax::{mentions, object_of, within, written};
use ridgeline_profile::Phase;
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Assignment, Module};

/// The minimum number of bytes per iteration in a report: a sum of losses has a few bytes, and its
/// graph is not in the recording.
const MIN_BYTES: f64 = 1024.0;

pub(super) struct GraphKept;

impl Rule for GraphKept {
    fn name(&self) -> &'static str {
        "graph-kept"
    }

    fn title(&self) -> &'static str {
        "Autograd graph retained across iterations"
    }

    fn affects_correctness(&self) -> bool {
        true
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let retained = retained_values(evidence.program).into_iter();
        let found = retained.filter_map(|retained| {
            let (file, line) = evidence.recorded_line(retained.module, retained.lines.0)?;
            evidence.line(file, line).filter(|cost| cost.calls > 0.0)?;
            let ran = |(first, last): (u32, u32)| {
                let (_, line) = evidence.recorded_line(retained.module, first)?;
                Some(line..=line.saturating_add(last.saturating_sub(first)))
            };
            let lines = retained.assigned.iter().chain([&retained.lines]).copied().filter_map(ran);
            let lines: Vec<RangeInclusive<u32>> = lines.collect();
            let is_on_them = |block: &Block| {
                let on = block.line.filter(|at| at.0 == file);
                on.is_some_and(|at| lines.iter().any(|lines| lines.contains(&at.1)))
            };
            let is_worth = |retained_memory: &Retained| retained_memory.this_iteration >= MIN_BYTES;
            let retained_memory =
                evidence.retained_bytes(is_on_them).filter(is_worth).or_else(|| {
                    let by_model =
                        || evidence.retained_bytes(|block| is_retained_by_model(evidence, block));
                    retained.comes_from_model.then(by_model).flatten().filter(is_worth)
                });
            let at = |(module, line): (usize, u32)| {
                let (file, line) = evidence.recorded_line(module, line)?;
                Some(evidence.place(file, line))
            };
            let related = retained.summed.and_then(at);
            Some(finding(evidence.place(file, line), &retained, related, retained_memory))
        });
        found.collect()
    }

    fn unmeasured(&self, program: &Program<'_>) -> Vec<Finding> {
        let found = retained_values(program).into_iter().map(|retained| {
            let related = retained.summed.map(|(module, line)| place(program, module, line));
            finding(place(program, retained.module, retained.lines.0), &retained, related, None)
        });
        found.collect()
    }

    fn measurement_decides(&self) -> bool {
        // A line that did not run in the measured iteration may run in others.
        false
    }
}

/// Whether the model allocated a block in the iteration, as in at least two earlier ones whose
/// blocks are still there: a plain variable holds only one of them until it is assigned again.
fn is_retained_by_model(evidence: &Evidence<'_>, block: &Block) -> bool {
    let graph = evidence.graph();
    let allocated_in = block.allocated.and_then(|moment| graph.task(moment.task));
    let is_older =
        |one: &&Block| one.allocated.is_none() && one.freed.is_none() && one.bytes == block.bytes;
    block.module.is_some()
        && block.bytes >= MIN_BYTES
        && allocated_in.is_some_and(|task| task.phase == Phase::Forward)
        && graph.memory.blocks.iter().filter(is_older).nth(1).is_some()
}

fn finding(
    at: SourceLine,
    retained: &RetainedValue,
    summed: Option<SourceLine>,
    retained_memory: Option<Retained>,
) -> Finding {
    let grows =
        retained_memory.map_or("Memory grows every iteration.".to_owned(), |retained_memory| {
            format!("Memory grows by {} every iteration.", bytes(retained_memory.this_iteration))
        });
    let of = if retained.is_part { "the value" } else { "it" };
    Finding {
        rule: "graph-kept",
        at,
        related: summed.map(|at| (at, "accumulated here".to_owned())).into_iter().collect(),
        message: format!("`{}` retains the autograd graph of every iteration", retained.what),
        why: format!(
            "The value holds a reference to its autograd graph and the tensors saved in it, for as \
            long as the sum or list exists. {grows} Accumulate `.item()` or `.detach()` of {of} \
            instead."
        ),
        cost: retained_memory.map(|retained_memory| Cost::bytes(retained_memory.total)),
        fix: (!retained.is_part).then_some(EditKind::DetachAccumulated),
        ..Finding::default()
    }
}

/// A value that is added to something that outlives the iteration.
struct RetainedValue {
    module: usize,
    lines: (u32, u32),
    /// The lines of the statements that computed it, if it is a variable.
    assigned: Vec<(u32, u32)>,
    /// Whether one of them calls a model, so that the model's own lines computed it.
    comes_from_model: bool,
    /// What it is added to: `total`.
    what: String,
    /// Whether it is part of a tuple, a list, a dictionary or another object that is added.
    is_part: bool,
    /// Where a method accumulates it, as module index and line.
    summed: Option<(usize, u32)>,
}

fn retained_values(program: &Program<'_>) -> Vec<RetainedValue> {
    let models = Models::of(program);
    let mut found = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        let outside = std::iter::once(None);
        let functions = outside.chain((0..text.functions.len()).map(Some));
        for function in functions.filter(|function| program.is_reached((module, *function))) {
            let flow = AutogradFlow::new(program, &models, module, function);
            for (target, whole) in additions(program, module, function) {
                let keeps = |value: &Node<'_>| {
                    let around =
                        retaining_loop(program, &flow, (module, function), &target, *value)?;
                    // A value that is itself backpropagated retains only graph nodes.
                    let assignment = flow.assignment_of(*value, around);
                    let assignment = assignment.filter(|one| !flow.is_backward_root(&one.target));
                    Some(assignment.and_then(|one| text.node(&one.value)))
                };
                let parts = parts(whole);
                let retained: Vec<Option<Node<'_>>> = parts.iter().filter_map(keeps).collect();
                if retained.is_empty() {
                    continue;
                }
                let values = || retained.iter().flatten();
                found.push(RetainedValue {
                    module,
                    lines: lines_of(whole),
                    comes_from_model: values()
                        .any(|value| models.are_used_by(program, module, *value)),
                    assigned: values().map(|value| lines_of(*value)).collect(),
                    is_part: parts.iter().all(|part| part.id() != whole.id())
                        || holds_tensors(text, whole),
                    summed: target.summed,
                    what: target.name,
                });
            }
        }
    }
    found
}

/// The values that are retained: the value itself, or the elements of a tuple, a list or a
/// dictionary.
fn parts(value: Node<'_>) -> Vec<Node<'_>> {
    let held = named_children(value).into_iter();
    match Kind::of(&value) {
        Kind::Tuple | Kind::List => held.collect(),
        Kind::Dictionary => held.filter_map(|pair| pair.field(Field::Value)).collect(),
        _ => vec![value],
    }
}

/// What a function adds to variables: `x += value`, `x = x + value`, `x.append(value)`, and
/// `meter.update(value)` if its class accumulates it.
fn additions<'a>(
    program: &Program<'a>,
    module: usize,
    function: Option<usize>,
) -> Vec<(Target, Node<'a>)> {
    let text = program.module(module);
    let own = |one: &&Assignment| one.function == function && one.class.is_none();
    let sums = text.assignments.iter().filter(own).filter_map(|one| {
        let value = text.node(&one.value)?;
        // `losses += [loss]`
        let is_list = matches!(Kind::of(&value), Kind::List | Kind::Tuple);
        let initial = if is_list { InitialValue::Empty } else { InitialValue::Zero };
        Some((Target { name: one.target.clone(), initial, summed: None }, added(text, one)?))
    });
    let calls = || text.calls.iter().filter(|call| call.function == function);
    let lists = calls().filter_map(|call| {
        let name = call.callee.strip_suffix(".append")?.replace('\'', "\"");
        let node = program.node(module, call)?;
        object_of(text, node, "append")?;
        let value = program.arguments(module, node)?.positional.first().copied()?;
        Some((Target { name, initial: InitialValue::Empty, summed: None }, value))
    });
    let meters = calls().filter_map(|call| {
        let found = metered(program, module, program.node(module, call)?)?;
        let (there, sum) = found.sum;
        let summed = (there, program.module(there).line(sum.start_byte()));
        // A method that disables gradients around the sum retains no graph.
        let keeps = !is_without_gradients(program, there, sum);
        let target =
            Target { name: found.object, initial: InitialValue::Known, summed: Some(summed) };
        keeps.then_some((target, found.value))
    });
    sums.chain(lists).chain(meters).collect()
}

/// The variable that something is added to.
struct Target {
    /// As written: `total`, `metrics["loss"]`, `self.losses`.
    name: String,
    initial: InitialValue,
    /// Where a method accumulates it.
    summed: Option<(usize, u32)>,
}

/// The required initial value of something that values are added to.
#[derive(Clone, Copy, PartialEq)]
enum InitialValue {
    /// A number.
    Zero,
    /// An empty list.
    Empty,
    /// Not required: its class was analyzed.
    Known,
}

/// The loop across whose iterations an added value is retained with its graph.
fn retaining_loop<'a>(
    program: &Program<'a>,
    flow: &AutogradFlow<'a, '_>,
    (module, function): (usize, Option<usize>),
    target: &Target,
    value: Node<'a>,
) -> Option<Node<'a>> {
    let text = program.module(module);
    let loops = loops_around(value);
    let inner: Vec<usize> = flow
        .roots
        .iter()
        .filter_map(|root| loops_around(root.call).first().map(Node::id))
        .collect();
    let mut trained = loops.iter().copied().filter(|one| inner.contains(&one.id()));
    // The loop with a backward pass in each iteration, or one that calls a training step.
    let carries = match trained.next() {
        Some(around) if flow.carries_graph(value, around) => Some(around),
        Some(_) => None,
        None => {
            let returns_loss = value.is(Kind::Call) && flow.returns_its_loss(value);
            let in_method = || training_method(program, flow, (module, function), target, value);
            loops.first().copied().filter(|_| returns_loss).or_else(in_method)
        }
    };
    let is_retained = |around: &Node<'_>| {
        !flow.is_used_by_backward(&target.name)
            && !retains_on_purpose(text, *around)
            && !is_without_gradients(program, module, value)
            && outlives(text, function, target, *around)
            && has_known_initial_value(text, function, target, *around)
    };
    carries.filter(is_retained)
}

/// The body of a method that runs a backward pass and is called in a loop: what it adds to its
/// object is still there at the next call.
fn training_method<'a>(
    program: &Program<'a>,
    flow: &AutogradFlow<'a, '_>,
    (module, function): Scope,
    target: &Target,
    value: Node<'a>,
) -> Option<Node<'a>> {
    let text = program.module(module);
    let base = base_of(&target.name);
    let method = text.functions.lookup(function?).filter(|_| base.starts_with("self."))?;
    let class = text.text(&text.classes.lookup(method.class?)?.span);
    let others = ["clear(", "pop(", "popleft(", "detach_(", "reset(", "backward("];
    let is_emptied = others.iter().any(|other| class.contains(&format!("{base}.{other}")))
        || class.contains(&format!("del {base}"));
    let is_called = || {
        let calls = callers(program, &method.name).into_iter();
        calls.filter(|(_, _, call)| !loops_around(*call).is_empty()).count() > 0
    };
    let is_step = loops_around(value).is_empty() && !flow.roots.is_empty() && !is_emptied;
    let body = text.node(&method.body).filter(|_| is_step && is_called())?;
    flow.carries_graph(value, body).then_some(body)
}

/// Whether a loop retains graphs on purpose: `backward(retain_graph=True)`.
fn retains_on_purpose(text: &Module, around: Node<'_>) -> bool {
    let whole = text.text(&around.byte_range());
    mentions(whole, "retain_graph") || mentions(whole, "create_graph")
}

/// Whether nothing in a loop assigns a variable or removes elements from it.
fn outlives(text: &Module, function: Option<usize>, target: &Target, around: Node<'_>) -> bool {
    let base = base_of(&target.name);
    let inside = around.byte_range();
    let is_set = text.assignments.iter().any(|one| {
        // Also `recent[:] = recent[-10:]`.
        let rest = one.target.strip_prefix(base).unwrap_or_default();
        let is_slice = rest.starts_with('[') && rest.contains(':');
        let is_target = one.target == target.name || one.target == base || is_slice;
        let is_sum = one.is_augmented || added(text, one).is_some();
        is_target && one.function == function && inside.contains(&one.at.start) && !is_sum
    });
    let takes = |node: &Node<'_>| match Kind::of(node) {
        Kind::Call => ["clear", "pop", "popleft", "detach_", "reset"].iter().any(|method| {
            object_of(text, *node, method).is_some_and(|of| base_of(&written(text, of)) == base)
        }),
        Kind::ForStatement => node.field(Field::Left).is_some_and(|retained_memory| {
            mentions(text.text(&retained_memory.byte_range()), base)
        }),
        Kind::DeleteStatement => mentions(text.text(&node.byte_range()), base),
        _ => false,
    };
    !is_set && !within(around).iter().any(takes)
}

/// Whether a variable is visibly initialized as a number, an empty list or a dictionary before a
/// loop: other objects may accumulate values without their graphs.
fn has_known_initial_value(
    text: &Module,
    function: Option<usize>,
    target: &Target,
    around: Node<'_>,
) -> bool {
    if target.initial == InitialValue::Known {
        return true;
    }
    let base = base_of(&target.name);
    let is_attribute = base.starts_with("self.");
    let own = text.assignments.iter().filter(|one| {
        one.target == base
            && !one.is_augmented
            && !around.byte_range().contains(&one.at.start)
            && (is_attribute || one.function == function)
    });
    let initial: Vec<&Assignment> = own.collect();
    // An attribute that other methods assign is not followed.
    let is_plain = !is_attribute || initial.len() == 1;
    let is_in_dictionary = base != target.name;
    let is_empty = |one: &&Assignment| {
        let written: String = text.text(&one.value).split_whitespace().collect();
        let is_dictionary = written.starts_with('{')
            || written.starts_with("dict(")
            || written.starts_with("defaultdict(")
            || written.starts_with("collections.defaultdict(")
            || written.starts_with("Counter(");
        match (is_in_dictionary, target.initial == InitialValue::Empty) {
            (true, _) => is_dictionary,
            (false, true) => matches!(written.as_str(), "[]" | "list()"),
            (false, false) => {
                written.parse::<f64>().is_ok()
                    || written.starts_with("torch.zeros(")
                    || written.starts_with("torch.tensor(0")
            }
        }
    };
    is_plain && initial.last().is_some_and(is_empty)
}

#[cfg(test)]
mod tests;
