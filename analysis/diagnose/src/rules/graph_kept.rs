//! A loss that is added up over iterations with its graph (PyTorch, "Frequently Asked Questions: my
//! model reports out of memory").

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::ops::RangeInclusive;

use tree_sitter::Node;

use crate::carried::{Carried, base_of};
use crate::evidence::{Evidence, Left};
use crate::finding::{Cost, Finding, Place};
use crate::reading::{callers, is_without_gradients, lines_of, loops_around, place};
use crate::rule::Rule;
use ridgeline_base::units::bytes;
use ridgeline_graph::memory::Block;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::rewrite::mend::accumulated_loss::holds_tensors;
use ridgeline_optimize::rewrite::mend::sums::{added, metered};
use ridgeline_optimize::rewrite::models::Models;
use ridgeline_optimize::rewrite::program::{Program, Scope};
use ridgeline_optimize::rewrite::syntax::{mentions, object_of, within, written};
use ridgeline_profile::Phase;
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Assignment, Module};

/// Bytes of an iteration that are worth telling: a sum of losses is a few bytes, and its graph is not
/// in the recording.
const LEAST_BYTES: f64 = 1024.0;

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
        let kept = kept(evidence.program).into_iter();
        let found = kept.filter_map(|kept| {
            let (file, line) = evidence.ran(kept.module, kept.lines.0)?;
            evidence.line(file, line).filter(|cost| cost.calls > 0.0)?;
            let ran = |(first, last): (u32, u32)| {
                let (_, line) = evidence.ran(kept.module, first)?;
                Some(line..=line.saturating_add(last.saturating_sub(first)))
            };
            let lines = kept.made.iter().chain([&kept.lines]).copied().filter_map(ran);
            let lines: Vec<RangeInclusive<u32>> = lines.collect();
            let is_on_them = |block: &Block| {
                let on = block.line.filter(|at| at.0 == file);
                on.is_some_and(|at| lines.iter().any(|lines| lines.contains(&at.1)))
            };
            let is_worth = |left: &Left| left.each >= LEAST_BYTES;
            let left = evidence.left_behind(is_on_them).filter(is_worth).or_else(|| {
                let by_model = || evidence.left_behind(|block| is_left_by_model(evidence, block));
                kept.is_of_a_model.then(by_model).flatten().filter(is_worth)
            });
            let at = |(module, line): (usize, u32)| {
                let (file, line) = evidence.ran(module, line)?;
                Some(evidence.place(file, line))
            };
            let related = kept.summed.and_then(at);
            Some(finding(evidence.place(file, line), &kept, related, left))
        });
        found.collect()
    }

    fn unmeasured(&self, program: &Program<'_>) -> Vec<Finding> {
        let found = kept(program).into_iter().map(|kept| {
            let related = kept.summed.map(|(module, line)| place(program, module, line));
            finding(place(program, kept.module, kept.lines.0), &kept, related, None)
        });
        found.collect()
    }

    fn measurement_decides(&self) -> bool {
        // A line that did not run in the measured iteration may run in others.
        false
    }
}

/// Whether a model made a block in the iteration, as it did in at least two before, of which the blocks are
/// still there: a variable alone holds one of them until the next takes its place.
fn is_left_by_model(evidence: &Evidence<'_>, block: &Block) -> bool {
    let graph = evidence.graph();
    let made = block.allocated.and_then(|made| graph.task(made.task));
    let is_older =
        |one: &&Block| one.allocated.is_none() && one.freed.is_none() && one.bytes == block.bytes;
    block.module.is_some()
        && block.bytes >= LEAST_BYTES
        && made.is_some_and(|task| task.phase == Phase::Forward)
        && graph.memory.blocks.iter().filter(is_older).nth(1).is_some()
}

fn finding(at: Place, kept: &Kept, summed: Option<Place>, left: Option<Left>) -> Finding {
    let grows = left.map_or("Memory grows every iteration.".to_owned(), |left| {
        format!("Memory grows by {} every iteration.", bytes(left.each))
    });
    let of = if kept.is_part { "the value" } else { "it" };
    Finding {
        rule: "graph-kept",
        at,
        related: summed.map(|at| (at, "accumulated here".to_owned())).into_iter().collect(),
        message: format!("`{}` retains the autograd graph of every iteration", kept.what),
        why: format!(
            "The value holds a reference to its autograd graph and the tensors saved in it, for as \
            long as the sum or list exists. {grows} Accumulate `.item()` or `.detach()` of {of} \
            instead."
        ),
        cost: left.map(|left| Cost::bytes(left.all)),
        fix: (!kept.is_part).then_some(EditKind::DetachAccumulated),
        ..Finding::default()
    }
}

/// A value that is added to something that outlives the iteration.
struct Kept {
    module: usize,
    lines: (u32, u32),
    /// The lines of the statements that made it, where it is a variable.
    made: Vec<(u32, u32)>,
    /// Whether one of them calls a model, whose own lines make it.
    is_of_a_model: bool,
    /// What it is added to: `total`.
    what: String,
    /// It is in a tuple, a list, a dictionary or another object that is added.
    is_part: bool,
    /// Where a method adds it up: the text and the line.
    summed: Option<(usize, u32)>,
}

fn kept(program: &Program<'_>) -> Vec<Kept> {
    let models = Models::of(program);
    let mut found = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        let outside = std::iter::once(None);
        let functions = outside.chain((0..text.functions.len()).map(Some));
        for function in functions.filter(|function| program.is_reached((module, *function))) {
            let carried = Carried::new(program, &models, module, function);
            for (target, whole) in additions(program, module, function) {
                let keeps = |value: &Node<'_>| {
                    let around = keeps(program, &carried, (module, function), &target, *value)?;
                    // Of what goes back itself nothing is left but nodes.
                    let made = carried.made(*value, around);
                    let made = made.filter(|one| !carried.goes_back_from(&one.target));
                    Some(made.and_then(|one| text.node(&one.value)))
                };
                let parts = parts(whole);
                let kept: Vec<Option<Node<'_>>> = parts.iter().filter_map(keeps).collect();
                if kept.is_empty() {
                    continue;
                }
                let made = || kept.iter().flatten();
                found.push(Kept {
                    module,
                    lines: lines_of(whole),
                    is_of_a_model: made().any(|made| models.are_used_by(program, module, *made)),
                    made: made().map(|made| lines_of(*made)).collect(),
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

/// What is kept with a value: itself, or what a tuple, a list or a dictionary of it holds.
fn parts(value: Node<'_>) -> Vec<Node<'_>> {
    let held = named_children(value).into_iter();
    match Kind::of(&value) {
        Kind::Tuple | Kind::List => held.collect(),
        Kind::Dictionary => held.filter_map(|pair| pair.field(Field::Value)).collect(),
        _ => vec![value],
    }
}

/// What a function adds to variables: `x += value`, `x = x + value`, `x.append(value)`, and
/// `meter.update(value)` of a class that adds it up.
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
        let begins = if is_list { Begins::Empty } else { Begins::Zero };
        Some((Target { name: one.target.clone(), begins, summed: None }, added(text, one)?))
    });
    let calls = || text.calls.iter().filter(|call| call.function == function);
    let lists = calls().filter_map(|call| {
        let name = call.callee.strip_suffix(".append")?.replace('\'', "\"");
        let node = program.node(module, call)?;
        object_of(text, node, "append")?;
        let value = program.arguments(module, node)?.positional.first().copied()?;
        Some((Target { name, begins: Begins::Empty, summed: None }, value))
    });
    let meters = calls().filter_map(|call| {
        let found = metered(program, module, program.node(module, call)?)?;
        let (there, sum) = found.sum;
        let summed = (there, program.module(there).line(sum.start_byte()));
        // A method that has the graphs taken off around it adds none.
        let keeps = !is_without_gradients(program, there, sum);
        let target = Target { name: found.object, begins: Begins::Known, summed: Some(summed) };
        keeps.then_some((target, found.value))
    });
    sums.chain(lists).chain(meters).collect()
}

/// What something is added to.
struct Target {
    /// As it is written: `total`, `metrics["loss"]`, `self.losses`.
    name: String,
    begins: Begins,
    /// Where a method adds it up.
    summed: Option<(usize, u32)>,
}

/// What has to be seen of how something begins that values are added to.
#[derive(Clone, Copy, PartialEq)]
enum Begins {
    /// It is a number.
    Zero,
    /// It is an empty list.
    Empty,
    /// Nothing: its class was looked at.
    Known,
}

/// The loop over whose iterations a value that is added to something is kept with its graph.
fn keeps<'a>(
    program: &Program<'a>,
    carried: &Carried<'a, '_>,
    (module, function): (usize, Option<usize>),
    target: &Target,
    value: Node<'a>,
) -> Option<Node<'a>> {
    let text = program.module(module);
    let loops = loops_around(value);
    let inner: Vec<usize> = carried
        .roots
        .iter()
        .filter_map(|root| loops_around(root.call).first().map(Node::id))
        .collect();
    let mut trained = loops.iter().copied().filter(|one| inner.contains(&one.id()));
    // The loop that goes backward in each of its iterations; or one that calls a training step.
    let carries = match trained.next() {
        Some(around) if carried.carries(value, around) => Some(around),
        Some(_) => None,
        None => {
            let gives = value.is(Kind::Call) && carried.gives_its_loss(value);
            let of_step = || step(program, carried, (module, function), target, value);
            loops.first().copied().filter(|_| gives).or_else(of_step)
        }
    };
    let is_kept = |around: &Node<'_>| {
        !carried.leads_to_a_backward(&target.name)
            && !goes_back_twice(text, *around)
            && !is_without_gradients(program, module, value)
            && outlives(text, function, target, *around)
            && begins_empty(text, function, target, *around)
    };
    carries.filter(is_kept)
}

/// The body of a method that goes backward and is called in a loop: what it adds to its object is still
/// there when it is called again.
fn step<'a>(
    program: &Program<'a>,
    carried: &Carried<'a, '_>,
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
    let is_step = loops_around(value).is_empty() && !carried.roots.is_empty() && !is_emptied;
    let body = text.node(&method.body).filter(|_| is_step && is_called())?;
    carried.carries(value, body).then_some(body)
}

/// Whether a loop keeps graphs on purpose: `backward(retain_graph=True)`.
fn goes_back_twice(text: &Module, around: Node<'_>) -> bool {
    let whole = text.text(&around.byte_range());
    mentions(whole, "retain_graph") || mentions(whole, "create_graph")
}

/// Whether nothing in a loop gives a variable a new value or takes something out of it.
fn outlives(text: &Module, function: Option<usize>, target: &Target, around: Node<'_>) -> bool {
    let base = base_of(&target.name);
    let inside = around.byte_range();
    let is_set = text.assignments.iter().any(|one| {
        // `recent[:] = recent[-10:]` as well.
        let rest = one.target.strip_prefix(base).unwrap_or_default();
        let is_slice = rest.starts_with('[') && rest.contains(':');
        let is_it = one.target == target.name || one.target == base || is_slice;
        let is_sum = one.is_augmented || added(text, one).is_some();
        is_it && one.function == function && inside.contains(&one.at.start) && !is_sum
    });
    let takes = |node: &Node<'_>| match Kind::of(node) {
        Kind::Call => ["clear", "pop", "popleft", "detach_", "reset"].iter().any(|method| {
            object_of(text, *node, method).is_some_and(|of| base_of(&written(text, of)) == base)
        }),
        Kind::ForStatement => node
            .field(Field::Left)
            .is_some_and(|left| mentions(text.text(&left.byte_range()), base)),
        Kind::DeleteStatement => mentions(text.text(&node.byte_range()), base),
        _ => false,
    };
    !is_set && !within(around).iter().any(takes)
}

/// Whether a variable is seen to begin as a number, an empty list or a dictionary before a loop: what
/// else adds things up may do so without their graphs.
fn begins_empty(text: &Module, function: Option<usize>, target: &Target, around: Node<'_>) -> bool {
    if target.begins == Begins::Known {
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
    let begins: Vec<&Assignment> = own.collect();
    // An attribute that other methods set anew is not followed.
    let is_plain = !is_attribute || begins.len() == 1;
    let is_in_dictionary = base != target.name;
    let is_empty = |one: &&Assignment| {
        let written: String = text.text(&one.value).split_whitespace().collect();
        let is_dictionary = written.starts_with('{')
            || written.starts_with("dict(")
            || written.starts_with("defaultdict(")
            || written.starts_with("collections.defaultdict(")
            || written.starts_with("Counter(");
        match (is_in_dictionary, target.begins == Begins::Empty) {
            (true, _) => is_dictionary,
            (false, true) => matches!(written.as_str(), "[]" | "list()"),
            (false, false) => {
                written.parse::<f64>().is_ok()
                    || written.starts_with("torch.zeros(")
                    || written.starts_with("torch.tensor(0")
            }
        }
    };
    is_plain && begins.last().is_some_and(is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, lines_in};
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_graph::memory::BlockKind;

    /// A training loop whose body ends so, with `total` and `losses` to add to.
    fn program(end: &str) -> String {
        let end = end.replace('\n', "\n        ");
        format!(
            "\
import torch
from torch import nn
model = nn.Linear(4, 4)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, history = [], {{'loss': 0.0}}
for epoch in range(3):
    total = 0.0
    for step, (x, y) in enumerate(loader):
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {end}
print(total)
"
        )
    }

    #[track_caller]
    fn check(end: &str, expected: &[u32]) {
        assert_eq!(lines_in(&GraphKept, &program(end)), expected, "{end}");
    }

    #[test]
    fn what_is_added_up_with_its_graph() {
        check("total += loss", &[15]);
        check("total = total + loss / 4", &[15]);
        check("losses.append(loss)", &[15]);
        check("history['loss'] += loss", &[15]);
        check("total += out.softmax(dim=-1).max(dim=-1).values.mean()", &[15]);
        check("if step % 10 == 0:\n    losses.append(loss)", &[16]);
        check("extra = criterion(out, y)\ntotal += extra", &[16]);
        check("losses.append((step, loss))", &[15]);
        check("losses.append({'step': step, 'loss': loss})", &[15]);
        check("losses += [loss]", &[15]);
        check("total = 0.9 * total + 0.1 * loss", &[15]);
        check("total = 0.1 * loss + total * 0.9", &[15]);
    }

    #[test]
    fn what_holds_tensors_is_told_and_not_detached() {
        let found = |loss: &str| {
            let text = program("losses.append(out)").replace("loss.backward()", loss);
            Case::new(&text).unmeasured(&GraphKept).into_iter().map(|one| one.fix).next()
        };
        assert_eq!(found("out.mean().backward()"), Some(Some(EditKind::DetachAccumulated)));
        assert_eq!(found("out[\"loss\"].backward()"), Some(None));
        assert_eq!(found("(out.loss / 2).backward()"), Some(None));
        let text = "def train(loader):\n    outputs = []\n    for batch in loader:\n        \
                    out = model(batch)\n        (out['loss'] / 2).backward()\n        \
                    outputs.append(out)\n\ntrain(data)\n";
        let found = Case::new(text).unmeasured(&GraphKept);
        assert_eq!(found.iter().map(|one| one.fix).collect::<Vec<_>>(), [None]);
    }

    #[test]
    fn what_is_added_up_without_it() {
        for right in [
            "total += loss.item()",
            "total += loss.detach()",
            "total += float(loss)",
            "total += loss.data",
            "total += len(x)",
            "total += (out.argmax(1) == y).sum()",
            "losses.append(loss.item())",
            "losses.append(loss.detach().cpu())",
            "losses.append(step)",
            "losses.append((step, loss.item()))",
            "losses.append({'loss': loss.detach(), 'step': step})",
            "losses += [float(loss)]",
            "with torch.no_grad():\n    total += loss",
            "loss = loss.item()\ntotal += loss",
            "mean = loss.detach()\ntotal += mean",
            "total += f(loss)",
            "total = 0.9 * total + 0.1 * loss.item()",
            "total = 0.9 * loss",
        ] {
            check(right, &[]);
        }
    }

    #[test]
    fn what_is_emptied_in_each_iteration_or_gone_back_from_is_kept_for_a_reason() {
        check("total = 0.0\ntotal += loss", &[]);
        check("losses.append(loss)\nlosses.clear()", &[]);
        check("losses.append(loss)\nif len(losses) > 9:\n    losses.pop(0)", &[]);
        check("losses.append(loss)\nlosses[:] = losses[-9:]", &[]);
        check("losses.append(loss)\ndel losses[:-9]", &[]);
        check("total += loss\nif step % 4 == 0:\n    total.backward()", &[]);
        check("total += loss\nmean = total / 4\nmean.backward()", &[]);
        let text = "\
for x, y in loader:
    losses = []
    for t in range(8):
        losses.append(criterion(model(x[t]), y[t]))
    loss = torch.stack(losses).mean()
    loss.backward()
";
        assert_eq!(lines_in(&GraphKept, text), [0; 0]);
    }

    #[test]
    fn a_list_of_bounded_length_or_one_that_is_not_seen_is_left_alone() {
        let text = program("window.append(loss)");
        let bounded = text.replace("losses, history", "window = deque(maxlen=9)\nlosses, history");
        assert_eq!(lines_in(&GraphKept, &bounded), [0; 0]);
        assert_eq!(lines_in(&GraphKept, &text), [0; 0]);
    }

    /// A training loop that gives its losses to a meter whose method `update` is this.
    fn with_meter(update: &str, call: &str) -> String {
        let update = update.replace('\n', "\n        ");
        let meter = format!(
            "class Meter:\n    def __init__(self):\n        self.reset()\n    def reset(self):\n        \
             self.sum, self.count, self.all = 0, 0, []\n    def update(self, value, n=1):\n        {update}\n"
        );
        let text = program(call).replace("total = 0.0", "meter = Meter()");
        format!("{meter}{text}")
    }

    #[test]
    fn what_a_meter_adds_up() {
        let check = |update: &str, call: &str, expected: &[u32]| {
            let text = with_meter(update, call);
            let line =
                |wanted: &str| 1 + text.lines().take_while(|one| !one.contains(wanted)).count();
            let found = Case::new(&text).unmeasured(&GraphKept);
            let lines: Vec<u32> = found.iter().map(|one| one.at.line).collect();
            let shift = line("import torch") as u32 - 1;
            assert_eq!(lines, expected.iter().map(|at| at + shift).collect::<Vec<_>>(), "{text}");
            for one in found {
                assert_eq!(one.related[0].0.line, line("value * n") as u32, "{text}");
            }
        };
        let sum = "self.sum += value * n\nself.count += n\nself.avg = self.sum / self.count";
        check(sum, "meter.update(loss, x.size(0))", &[15]);
        check(sum, "meter.update(value=loss)", &[15]);
        check("self.all.append(value * n)", "meter.update(loss)", &[15]);
        check("self.sum = 0.9 * self.sum + value * n", "meter.update(loss)", &[15]);
        for right in ["loss.item()", "loss.detach()", "float(loss)", "len(x)"] {
            check(sum, &format!("meter.update({right}, len(x))"), &[]);
        }
        check(sum, "meter.update(loss)\nmeter.reset()", &[]);
        check(sum, "meter = Meter()\nmeter.update(loss)", &[]);
        check(&format!("value = float(value)\n{sum}"), "meter.update(loss)", &[]);
        check("with torch.no_grad():\n    self.sum += value * n", "meter.update(loss)", &[]);
        check("self.sum += value.item() * n", "meter.update(loss)", &[]);
        check("self.sum += value.data * n", "meter.update(loss)", &[]);
        check("self.last = value * n", "meter.update(loss)", &[]);
        check("self.all.append(value)\nself.all = self.all[-9:]", "meter.update(loss)", &[]);
    }

    #[test]
    fn a_meter_of_a_library_is_not_known() {
        let text = with_meter("self.sum += value * n", "meter.update(loss)");
        let text = text.replace("class Meter:", "class Other:");
        assert_eq!(lines_in(&GraphKept, &format!("from metrics import Meter\n{text}")), [0; 0]);
    }

    #[test]
    fn a_method_that_trains_and_is_called_in_a_loop() {
        let check = |end: &str, other: &str, expected: &[u32]| {
            let text = format!(
                "class Trainer:\n    def __init__(self):\n        self.losses, self.mean = [], 0.0\n    \
                 def step(self, x, y):\n        loss = criterion(model(x), y)\n        loss.backward()\n        \
                 {end}\n    def fit(self):\n        {other}\n\nTrainer().fit()\n"
            );
            assert_eq!(lines_in(&GraphKept, &text), expected, "{text}");
        };
        let fit = "for x, y in loader:\n            self.step(x, y)";
        check("self.losses.append(loss)", fit, &[7]);
        check("self.mean = 0.9 * self.mean + 0.1 * loss", fit, &[7]);
        check("self.losses.append(loss.item())", fit, &[]);
        check("self.losses.append(loss)", "self.step(1, 2)", &[]);
        check("self.losses = [loss]", fit, &[]);
        let emptied = format!("{fit}\n            self.losses.clear()");
        check("self.losses.append(loss)", &emptied, &[]);
    }

    #[test]
    fn a_training_step_that_gives_its_loss_back() {
        let text = |given: &str| {
            format!(
                "\
def step(model, x, y):
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return {given}

def train(model, loader):
    total = 0.0
    for x, y in loader:
        total += step(model, x, y)
    return total

train(model, loader)
"
            )
        };
        assert_eq!(lines_in(&GraphKept, &text("loss")), [10]);
        assert_eq!(lines_in(&GraphKept, &text("loss.item()")), [0; 0]);
    }

    #[test]
    fn a_variable_s_cost_is_what_made_it_leaves_behind() {
        let text = program("losses.append((step, out))  # kept");
        let text = text.replace("out = model(x)", "out = model(x)  # made");
        let mut case = Case::new(&text);
        let at = case.line("made");
        let made = case.host(TaskKind::HostOperator, 1e6, Phase::Forward, Some(at));
        let after = case.host(TaskKind::HostOperator, 1e6, Phase::Backward, None);
        case.block(4e6, BlockKind::Activations, Some(made), None);
        case.block(8e6, BlockKind::Activations, Some(made), Some(after));
        case.block(4e6, BlockKind::Other, None, None);
        case.ran("kept", 1.0);
        let found = case.finds(&GraphKept, "kept");
        assert_eq!((found.cost, found.fix), (Some(Cost::bytes(8e6)), None));
    }

    #[test]
    fn a_model_s_own_lines_leave_behind_what_earlier_iterations_left_too() {
        let found = |before: u32| {
            let text = program("losses.append(out)  # kept");
            let mut case = Case::new(&text);
            let elsewhere = case.line("kept");
            case.ran("kept", 1.0);
            case = case.module("", "Net", 3);
            let at = Some((elsewhere.0, 3));
            let made = case.host(TaskKind::HostOperator, 1e6, Phase::Forward, at);
            case.block(4e6, BlockKind::Activations, Some(made), None);
            case.graph.memory.blocks[0].module = Some(0);
            (0..before).for_each(|_| case.block(4e6, BlockKind::Other, None, None));
            case.finds(&GraphKept, "kept").cost
        };
        assert_eq!(found(3), Some(Cost::bytes(16e6)));
        // The variable holds the last one until the next is made.
        assert_eq!(found(1), None);
    }

    #[test]
    fn what_the_line_leaves_behind_is_its_cost() {
        let text = program("total += out.softmax(dim=-1).mean()  # kept");
        let mut case = Case::new(&text);
        let at = case.line("kept");
        let softmax = case.host(TaskKind::HostOperator, 1e6, Phase::Forward, Some(at));
        let after = case.host(TaskKind::HostOperator, 1e6, Phase::Optimizer, None);
        case.block(4e6, BlockKind::Activations, Some(softmax), None);
        case.block(8e6, BlockKind::Activations, Some(softmax), Some(after));
        case.block(16e6, BlockKind::Weights, None, None);
        // Of two iterations before.
        case.block(4e6, BlockKind::Other, None, None);
        case.block(4e6, BlockKind::Other, None, None);
        case.block(5e6, BlockKind::Other, None, None);
        // The model's output, which is as large, and that of the iteration before.
        let forward = case.host(TaskKind::HostOperator, 1e6, Phase::Forward, None);
        case.block(4e6, BlockKind::Activations, Some(forward), None);
        case.block(4e6, BlockKind::Other, None, None);
        assert_eq!(case.measured(&GraphKept), [], "it did not run");
        case.ran("kept", 1.0);
        let found = case.finds(&GraphKept, "kept");
        assert_eq!(found.cost, Some(Cost::bytes(12e6)));
        assert!(found.why.contains("grows by 4.0 MB"), "{}", found.why);
        assert!(found.message.starts_with("`total` retains"), "{}", found.message);
    }
}
