//! Small queries on the source text that several rules use.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::finding::SourceLine;
use ridgeline_optimize::rewrite::program::{Program, Scope};
use ridgeline_optimize::rewrite::syntax::{callee, statement_of, within, written};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Call, Function, Module, Parameter, last_name};

/// The maximum number of steps followed from a callee to its callers.
const MAX_CALL_DEPTH: u32 = 4;

/// The first node that begins on a line.
pub(crate) fn first_node(text: &Module, line: u32) -> Option<Node<'_>> {
    let trimmed = text.index.lines().trimmed(text.index.text(), line);
    let root = text.index.tree()?.root_node();
    let first = trimmed.start..trimmed.start.saturating_add(1);
    root.descendant_for_byte_range(first.start, first.end).filter(|_| !trimmed.is_empty())
}

/// The loops within the same function whose body contains the node, innermost first.
pub(crate) fn loops_around(node: Node<'_>) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    let mut at = node;
    while let Some(parent) = at.parent() {
        match Kind::of(&parent) {
            Kind::FunctionDefinition | Kind::ClassDefinition | Kind::Lambda => break,
            Kind::ForStatement | Kind::WhileStatement => {
                let is_body = parent.field(Field::Body).map(|body| body.id());
                if is_body == Some(at.id()) {
                    found.push(parent);
                }
            }
            _ => {}
        }
        at = parent;
    }
    found
}

/// The conditions of the `if` statements around a node, within the loop `until` or else within its
/// function.
pub(crate) fn conditions_around<'t>(node: Node<'t>, until: Option<Node<'t>>) -> Vec<Node<'t>> {
    let mut found = Vec::new();
    let mut at = node;
    while let Some(parent) = at.parent() {
        let is_end = matches!(
            Kind::of(&parent),
            Kind::FunctionDefinition | Kind::ClassDefinition | Kind::Lambda
        );
        if is_end || until.is_some_and(|until| until.id() == parent.id()) {
            break;
        }
        if matches!(Kind::of(&parent), Kind::IfStatement | Kind::ElifClause) {
            let condition = parent.field(Field::Condition);
            found.extend(condition.filter(|condition| condition.id() != at.id()));
        }
        at = parent;
    }
    found
}

/// The nodes of a line: the nodes of the statement on it that reach the line, without the bodies of
/// an `if`, a loop or a `with`.
pub(crate) fn nodes_of_line(text: &Module, line: u32) -> Vec<Node<'_>> {
    let lines = text.index.lines();
    let trimmed = lines.trimmed(text.index.text(), line);
    let root = text.index.tree().map(|tree| tree.root_node());
    let Some(root) = root.filter(|_| !trimmed.is_empty()) else { return Vec::new() };
    let first = root.descendant_for_byte_range(trimmed.start, trimmed.start.saturating_add(1));
    let Some(statement) = first.and_then(statement_of) else { return Vec::new() };
    let row = line.saturating_sub(1) as usize;
    let is_here = |node: &Node<'_>| {
        node.start_position().row <= row && row <= node.end_position().row && !is_body(*node)
    };
    let bodies: Vec<Node<'_>> =
        within(statement).into_iter().filter(|node| is_body(*node)).collect();
    within(statement)
        .into_iter()
        .filter(|node| is_here(node))
        .filter(|node| {
            let inside = |body: &Node<'_>| {
                body.start_byte() <= node.start_byte() && node.end_byte() <= body.end_byte()
            };
            !bodies.iter().any(inside)
        })
        .collect()
}

fn is_body(node: Node<'_>) -> bool {
    matches!(
        Kind::of(&node),
        Kind::Block
            | Kind::ElseClause
            | Kind::ElifClause
            | Kind::ExceptClause
            | Kind::FinallyClause
    )
}

/// Converts a line of the current text to the form that findings use.
pub(crate) fn place(program: &Program<'_>, module: usize, line: u32) -> SourceLine {
    let (path, line) = program.module(module).place_of_line(line);
    SourceLine { path, line }
}

/// The first and the last line of the statement that contains a node.
pub(crate) fn lines_of(node: Node<'_>) -> (u32, u32) {
    let statement = statement_of(node).unwrap_or(node);
    let line = |row: usize| u32::try_from(row).unwrap_or(u32::MAX).saturating_add(1);
    (line(statement.start_position().row), line(statement.end_position().row))
}

/// Whether a name is about validation or testing: `evaluate`, `val_loader`.
pub(crate) fn is_validation_name(name: &str) -> bool {
    let mut words: Vec<String> = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars().take(200) {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
    }
    let is_validation_word = |word: &String| {
        // `testloader`, `valset`
        let data = ["loader", "set", "data"].iter().find_map(|data| word.strip_suffix(data));
        word.starts_with("eval")
            || word.starts_with("valid")
            || matches!(data.unwrap_or(word), "val" | "test" | "dev")
            || matches!(word.as_str(), "testing" | "accuracy" | "infer" | "inference")
    };
    words.iter().any(is_validation_word)
}

/// Whether a node is in a function or a loop that is named after validation.
pub(crate) fn is_in_validation(program: &Program<'_>, module: usize, node: Node<'_>) -> bool {
    let text = program.module(module);
    let function = text.function_at(node.start_byte()).and_then(|at| text.functions.lookup(at));
    function.is_some_and(|one| is_validation_name(&one.name))
        || loops_around(node).into_iter().any(|one| iterates_over_validation(program, module, one))
}

/// Whether a `for` iterates over something that is named after validation, in the loop itself or
/// where its function is called: `check(model, val_loader)`.
pub(crate) fn iterates_over_validation(
    program: &Program<'_>,
    module: usize,
    one: Node<'_>,
) -> bool {
    let text = program.module(module);
    let Some(over) = one.field(Field::Right) else { return false };
    let names: Vec<&str> =
        iterated_names(text, over).map(|name| text.text(&name.byte_range())).collect();
    names.iter().any(|name| is_validation_name(name))
        || text.function_at(one.start_byte()).is_some_and(|function| {
            let Some(function) = text.functions.lookup(function) else { return false };
            let all = function.parameters.iter();
            all.filter(|one| names.contains(&one.name.as_str()))
                .any(|one| receives_validation(program, function, one))
        })
}

/// The names in what a loop iterates over, except in the arguments of `range`. The number of
/// iterations says nothing about the data: `range(eval_every)` are the training steps between two
/// validations.
fn iterated_names<'t>(text: &'t Module, over: Node<'t>) -> impl Iterator<Item = Node<'t>> {
    within(over).into_iter().filter(move |name| {
        let call = std::iter::successors(name.parent(), |node| node.parent())
            .take_while(|node| over.start_byte() <= node.start_byte())
            .find(|node| node.is(Kind::Call) && name.end_byte() < node.end_byte());
        matches!(Kind::of(name), Kind::Identifier | Kind::String)
            && !call.is_some_and(|call| callee(text, call).ends_with("range"))
    })
}

/// Whether all callers of a function pass something named after validation for this parameter.
fn receives_validation(program: &Program<'_>, function: &Function, given: &Parameter) -> bool {
    let own = function.parameters.iter().filter(|one| !matches!(one.name.as_str(), "self" | "cls"));
    let place = own.clone().position(|one| one.name == given.name);
    let found = callers(program, &function.name);
    !found.is_empty()
        && found.into_iter().all(|(at, _, call)| {
            let text = program.module(at);
            let arguments = program.arguments(at, call);
            let value = arguments.and_then(|arguments| {
                let named = arguments.by_name.iter().find(|(name, _)| *name == given.name);
                let by_name = named.map(|(_, value)| *value);
                by_name.or_else(|| arguments.positional.get(place?).copied())
            });
            value.is_some_and(|value| {
                let mut names = iterated_names(text, value);
                names.any(|name| is_validation_name(text.text(&name.byte_range())))
            })
        })
}

/// Whether a text disables gradients: `torch.no_grad()`, `inference_mode`.
fn disables_gradients(text: &str) -> bool {
    ["no_grad", "inference_mode", "set_grad_enabled"].iter().any(|word| text.contains(word))
}

/// Whether the header of a `with` disables gradients, or has something that may: a name (`ctx =
/// torch.no_grad()`, or a caller's argument), or an unknown context manager (`with
/// evaluating(model):`).
fn may_disable_gradients(program: &Program<'_>, module: usize, clause: Node<'_>) -> bool {
    let text = program.module(module);
    let unknown = |item: Node<'_>| {
        let value = item.named_child(0).unwrap_or(item);
        let value = value.named_child(0).filter(|_| value.is(Kind::AsPattern)).unwrap_or(value);
        if value.is(Kind::Call) {
            return !is_known_to_keep_gradients(&program.absolute(module, &callee(text, value)));
        }
        let name = written(text, value);
        let mut assignments = text.assignments.iter().filter(|one| one.target == name).peekable();
        assignments.peek().is_none()
            || assignments.any(|one| disables_gradients(text.text(&one.value)))
    };
    disables_gradients(text.text(&clause.byte_range()))
        || named_children(clause).into_iter().any(unknown)
}

/// Whether a context manager is known not to disable gradients: those of torch whose names do not
/// say otherwise, and what is common around a loop.
fn is_known_to_keep_gradients(name: &str) -> bool {
    let known = ["open", "contextlib.nullcontext", "contextlib.suppress"];
    known.contains(&name) || ["torch.", "tqdm", "warnings."].iter().any(|of| name.starts_with(of))
}

/// Whether a decorator disables gradients, by its name or as a function of the program.
fn decorator_disables_gradients(program: &Program<'_>, decorator: &str) -> bool {
    let name = decorator.trim_start_matches('@').split('(').next().unwrap_or_default().trim();
    let is_defined_to_disable = |text: &Module| {
        let named = text.functions.iter().filter(|one| one.name == last_name(name));
        named.into_iter().any(|one| disables_gradients(text.text(&one.span)))
    };
    disables_gradients(decorator) || program.modules().iter().any(is_defined_to_disable)
}

/// Whether a `with` around a node or a decorator of its function disables gradients, or may do so.
pub(crate) fn is_without_gradients(program: &Program<'_>, module: usize, node: Node<'_>) -> bool {
    let text = program.module(module);
    let mut at = node;
    while let Some(parent) = at.parent() {
        if parent.is(Kind::WithStatement) {
            let clause = named_children(parent).into_iter().find(|one| one.is(Kind::WithClause));
            if clause.is_some_and(|clause| may_disable_gradients(program, module, clause)) {
                return true;
            }
        }
        at = parent;
    }
    let mut function = text.function_at(node.start_byte());
    while let Some(one) = function.and_then(|at| text.functions.lookup(at)) {
        if one.decorators.iter().any(|one| decorator_disables_gradients(program, text.text(one))) {
            return true;
        }
        function = one.outer;
    }
    false
}

/// The calls of a function of the program, by its name.
pub(crate) fn callers<'a>(program: &Program<'a>, name: &str) -> Vec<(usize, &'a Call, Node<'a>)> {
    let calls = program.calls().filter(|(_, call)| call.name() == name).take(32);
    calls.filter_map(|(at, call)| Some((at, call, program.node(at, call)?))).collect()
}

/// Whether some call path to a function disables gradients. Also true if no call is found, because
/// a library may call it.
pub(crate) fn may_be_called_without_gradients(program: &Program<'_>, scope: Scope) -> bool {
    without_gradients(program, scope, 0)
}

fn without_gradients(program: &Program<'_>, (module, function): Scope, depth: u32) -> bool {
    let text = program.module(module);
    let Some(one) = function.and_then(|at| text.functions.lookup(at)) else { return false };
    let found = callers(program, &one.name);
    if found.is_empty() || depth >= MAX_CALL_DEPTH {
        return true;
    }
    found.into_iter().any(|(at, call, node)| {
        let is_itself = at == module && call.function == function;
        is_without_gradients(program, at, node)
            || (!is_itself && without_gradients(program, (at, call.function), depth + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::with_program;

    #[test]
    fn validation_names_are_recognized() {
        let validation_names =
            ["evaluate", "val_loader", "validate", "testLoader", "run_test", "eval_one"];
        let more = ["testloader", "valset", "dev_data", "check_accuracy", "inference"];
        for name in validation_names.into_iter().chain(more) {
            assert!(is_validation_name(name), "{name}");
        }
        let others = ["value", "train", "contest", "invalidate", "latest", "retrieval", "interval"];
        for name in others.into_iter().chain(["device", "dataloader", "dataset", "trainloader"]) {
            assert!(!is_validation_name(name), "{name}");
        }
    }

    #[test]
    fn nodes_of_a_line_exclude_bodies() {
        let text = "for x in loader:\n    if loss > 2:\n        print(loss)\n    y = f(\n        x.item(),\n    )\n";
        let text = Module::new("train.py", text.into());
        let calls = |line: u32| -> Vec<String> {
            let nodes = nodes_of_line(&text, line).into_iter();
            let calls = nodes.filter(|node| node.is(Kind::Call));
            calls.map(|node| written(&text, node)).collect()
        };
        assert_eq!(calls(1), [""; 0]);
        assert_eq!(calls(2), [""; 0]);
        assert_eq!(calls(3), ["print(loss)"]);
        assert_eq!(calls(5), ["f(x.item(),)", "x.item()"]);
    }

    /// For each call of `f`, whether gradients are disabled there.
    fn without_gradients_at_f(text: &str) -> Vec<bool> {
        with_program(text, |program| {
            let calls = program.module(0).calls.iter().filter(|call| call.callee == "f");
            let nodes = calls.filter_map(|call| program.node(0, call));
            nodes.map(|node| is_without_gradients(program, 0, node)).collect()
        })
    }

    #[test]
    fn gradients_are_disabled_by_with_and_decorator() {
        let text = "@torch.no_grad()\ndef a(x):\n    return f(x)\n\ndef b(x):\n    with torch.inference_mode():\n        return f(x)\n\ndef c(x):\n    return f(x)\n";
        assert_eq!(without_gradients_at_f(text), [true, true, false]);
    }

    #[test]
    fn a_context_variable_is_resolved_to_its_assignment() {
        let found = |before: &str| {
            let text = format!("{before}\ndef a(x):\n    with ctx:\n        f(x)\n");
            without_gradients_at_f(&text) == [true]
        };
        assert!(found("ctx = torch.no_grad()") && found("from elsewhere import ctx"));
        assert!(!found("ctx = torch.autocast('cuda')"));
    }

    #[test]
    fn an_unknown_context_manager_may_disable_gradients() {
        let with = |head: &str, before: &str| {
            let text = format!("{before}\ndef a(x):\n    with {head}:\n        f(x)\n");
            without_gradients_at_f(&text) == [true]
        };
        assert!(with("evaluating(model)", "from helpers import evaluating"));
        assert!(with("evaluating(model) as model", ""));
        assert!(with("self.evaluating", ""));
        assert!(!with("torch.autocast('cuda')", "import torch"));
        assert!(!with("autocast('cuda')", "from torch.amp import autocast"));
        assert!(!with("open('log') as log", ""));
    }

    #[test]
    fn a_decorator_of_the_program_may_disable_gradients() {
        let decorated = |body: &str| {
            let text = format!("def plain(f):\n    {body}\n@plain\ndef a(x):\n    f(x)\n");
            without_gradients_at_f(&text).last() == Some(&true)
        };
        assert!(decorated("return torch.no_grad()(f)"));
        assert!(!decorated("return f"));
    }
}
