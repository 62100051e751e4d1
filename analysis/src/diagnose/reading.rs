//! Small questions to the text that several rules ask.

use tree_sitter::Node;

use super::finding::Place;
use crate::source::batch_site::gather::named_children;
use crate::source::batch_site::module::{Call, Module};
use crate::source::rewrite::program::{Program, Scope};
use crate::source::rewrite::syntax::{statement_of, within, written};

/// Functions that are followed from a callee to its callers.
const MOST_CALLERS: u32 = 4;

/// The loops that run a node again and again, innermost first: those of its own function whose body it
/// is in.
pub(crate) fn loops_around(node: Node<'_>) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    let mut at = node;
    while let Some(parent) = at.parent() {
        match parent.kind() {
            "function_definition" | "class_definition" | "lambda" => break,
            "for_statement" | "while_statement" => {
                let is_body = parent.child_by_field_name("body").map(|body| body.id());
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

/// The conditions of the `if`s that a node depends on within a loop, or within its function.
pub(crate) fn conditions_around<'t>(node: Node<'t>, until: Option<Node<'t>>) -> Vec<Node<'t>> {
    let mut found = Vec::new();
    let mut at = node;
    while let Some(parent) = at.parent() {
        let is_end = matches!(parent.kind(), "function_definition" | "class_definition" | "lambda");
        if is_end || until.is_some_and(|until| until.id() == parent.id()) {
            break;
        }
        if matches!(parent.kind(), "if_statement" | "elif_clause") {
            let condition = parent.child_by_field_name("condition");
            found.extend(condition.filter(|condition| condition.id() != at.id()));
        }
        at = parent;
    }
    found
}

/// The nodes of a line: those of the statement on it that reach the line, without the bodies of an
/// `if`, a loop or a `with`.
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
        node.kind(),
        "block" | "else_clause" | "elif_clause" | "except_clause" | "finally_clause"
    )
}

/// A line of today's text as findings name it.
pub(crate) fn place(program: &Program<'_>, module: usize, line: u32) -> Place {
    Place { path: program.module(module).path.clone(), line }
}

/// The first and the last line of the statement that a node is in.
pub(crate) fn lines_of(node: Node<'_>) -> (u32, u32) {
    let statement = statement_of(node).unwrap_or(node);
    let line = |row: usize| u32::try_from(row).unwrap_or(u32::MAX).saturating_add(1);
    (line(statement.start_position().row), line(statement.end_position().row))
}

/// Whether a name says that what it names is for validation or testing: `evaluate`, `val_loader`.
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
    let is_one = |word: &String| {
        word.starts_with("eval")
            || word.starts_with("valid")
            || matches!(word.as_str(), "val" | "test" | "testing")
    };
    words.iter().any(is_one)
}

/// Whether a node is in a function or a loop that a person named after validation.
pub(crate) fn is_in_validation(text: &Module, node: Node<'_>) -> bool {
    let function = text.function_at(node.start_byte()).and_then(|at| text.functions.get(at));
    function.is_some_and(|one| is_validation_name(&one.name))
        || loops_around(node).iter().any(|one| {
            let over = one.child_by_field_name("right");
            over.is_some_and(|over| is_validation_name(&written(text, over)))
        })
}

/// Whether a text turns the recording of graphs off: `torch.no_grad()`, `inference_mode`.
fn turns_off(text: &str) -> bool {
    ["no_grad", "inference_mode", "set_grad_enabled"].iter().any(|word| text.contains(word))
}

/// Whether the head of a `with` turns the recording of graphs off, or names something that may:
/// `ctx = torch.no_grad()`, or what a caller gives.
fn may_turn_off(text: &Module, clause: Node<'_>) -> bool {
    let unknown = |item: Node<'_>| {
        let name = item.named_child(0).filter(|one| one.kind() == "identifier");
        name.is_some_and(|name| {
            let name = written(text, name);
            let mut made = text.assignments.iter().filter(|one| one.target == name).peekable();
            made.peek().is_none() || made.any(|one| turns_off(text.text(&one.value)))
        })
    };
    turns_off(text.text(&clause.byte_range())) || named_children(clause).into_iter().any(unknown)
}

/// Whether a `with` around a node, or a decorator of its function, turns the recording of graphs off;
/// or it cannot be told.
pub(crate) fn is_without_gradients(text: &Module, node: Node<'_>) -> bool {
    let mut at = node;
    while let Some(parent) = at.parent() {
        if parent.kind() == "with_statement" {
            let clause = named_children(parent).into_iter().find(|one| one.kind() == "with_clause");
            if clause.is_some_and(|clause| may_turn_off(text, clause)) {
                return true;
            }
        }
        at = parent;
    }
    let mut function = text.function_at(node.start_byte());
    while let Some(one) = function.and_then(|at| text.functions.get(at)) {
        if one.decorators.iter().any(|decorator| turns_off(text.text(decorator))) {
            return true;
        }
        function = one.outer;
    }
    false
}

/// The calls of a function of the program by its name.
pub(crate) fn callers<'a>(program: &Program<'a>, name: &str) -> Vec<(usize, &'a Call, Node<'a>)> {
    let calls = program.calls().filter(|(_, call)| call.name() == name).take(32);
    calls.filter_map(|(at, call)| Some((at, call, program.node(at, call)?))).collect()
}

/// Whether some way to a function leads through what turns the recording of graphs off, or no call of
/// it is to be seen, as where a library calls it.
pub(crate) fn may_be_called_without_gradients(program: &Program<'_>, scope: Scope) -> bool {
    without_gradients(program, scope, 0)
}

fn without_gradients(program: &Program<'_>, (module, function): Scope, depth: u32) -> bool {
    let text = program.module(module);
    let Some(one) = function.and_then(|at| text.functions.get(at)) else { return false };
    let found = callers(program, &one.name);
    if found.is_empty() || depth >= MOST_CALLERS {
        return true;
    }
    found.into_iter().any(|(at, call, node)| {
        let is_itself = at == module && call.function == function;
        is_without_gradients(program.module(at), node)
            || (!is_itself && without_gradients(program, (at, call.function), depth + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_validation() {
        for name in ["evaluate", "val_loader", "validate", "testLoader", "run_test", "eval_one"] {
            assert!(is_validation_name(name), "{name}");
        }
        for name in ["value", "train", "contest", "invalidate", "latest", "retrieval", "interval"] {
            assert!(!is_validation_name(name), "{name}");
        }
    }

    #[test]
    fn a_line_has_its_own_nodes_alone() {
        let text = "for x in loader:\n    if loss > 2:\n        print(loss)\n    y = f(\n        x.item(),\n    )\n";
        let text = Module::new("train.py", text.into());
        let calls = |line: u32| -> Vec<String> {
            let nodes = nodes_of_line(&text, line).into_iter();
            let calls = nodes.filter(|node| node.kind() == "call");
            calls.map(|node| written(&text, node)).collect()
        };
        assert_eq!(calls(1), [""; 0]);
        assert_eq!(calls(2), [""; 0]);
        assert_eq!(calls(3), ["print(loss)"]);
        assert_eq!(calls(5), ["f(x.item(),)", "x.item()"]);
    }

    #[test]
    fn what_turns_graphs_off_is_around_or_above() {
        let text = "@torch.no_grad()\ndef a(x):\n    return f(x)\n\ndef b(x):\n    with torch.inference_mode():\n        return f(x)\n\ndef c(x):\n    return f(x)\n";
        let text = Module::new("train.py", text.into());
        let found: Vec<bool> = text
            .calls
            .iter()
            .filter(|call| call.callee == "f")
            .filter_map(|call| text.node(&call.span))
            .map(|node| is_without_gradients(&text, node))
            .collect();
        assert_eq!(found, [true, true, false]);
    }

    #[test]
    fn a_context_by_name_is_what_it_was_made() {
        let found = |before: &str| {
            let text = format!("{before}\ndef a(x):\n    with ctx:\n        f(x)\n");
            let text = Module::new("train.py", text.into());
            let call = text.calls.iter().find(|call| call.callee == "f").expect("a call");
            is_without_gradients(&text, text.node(&call.span).expect("a node"))
        };
        assert!(found("ctx = torch.no_grad()") && found("from elsewhere import ctx"));
        assert!(!found("ctx = torch.autocast('cuda')"));
    }
}
