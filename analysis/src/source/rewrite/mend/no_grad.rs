//! Validation without gradients (PyTorch, "Performance Tuning Guide").

use tree_sitter::Node;

use super::super::super::batch_site::module::Module;
use super::super::edits::Edits;
use super::super::layout::Layout;
use super::super::program::Program;
use super::super::{Refusal, imports};
use super::Wanted;
use super::validation::{Validation, validations};

/// `@torch.no_grad()` at the function that validates, or `with torch.no_grad():` around the loop.
pub(super) fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &Wanted<'_>,
) -> Result<(), Refusal> {
    let mut done = None;
    let mut decorated = Vec::new();
    for validation in validations(program, at) {
        let module = validation.scope.0;
        let text = program.module(module);
        if is_without(program, &validation) {
            done.get_or_insert(program.at(module, validation.statement.start_byte()));
            continue;
        }
        let function = validation.scope.1.and_then(|at| text.functions.get(at));
        let torch = imports::torch(edits, module, text);
        match function.filter(|_| validation.has_own_function) {
            Some(function) if function.yields => {
                let why = "yields, and a generator would keep gradients off outside of it";
                return Err(program.refuse(module, function.span.start, why));
            }
            Some(function) => {
                // Two loops of one function need one decorator.
                if !decorated.contains(&(module, function.span.start)) {
                    decorated.push((module, function.span.start));
                    decorate(program, edits, module, function.span.start, &torch)?;
                }
            }
            None => {
                let header = format!("with {torch}.no_grad():");
                edits.wrap(program, module, validation.statement.byte_range(), &header)?;
            }
        }
    }
    match done {
        _ if !edits.is_empty() => Ok(()),
        Some(at) => Err(Refusal::done(format!("{at} validates without gradients already"))),
        None => Err(Refusal::not_understood("no loop that validates a model was found here")),
    }
}

/// Puts a decorator above a function, in front of those that it has.
fn decorate(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    module: usize,
    start: usize,
    torch: &str,
) -> Result<(), Refusal> {
    let text = program.module(module);
    let root = text.index.tree().map(|tree| tree.root_node());
    let node = root.and_then(|root| root.descendant_for_byte_range(start, start + 1));
    let definition = node.and_then(|node| {
        let around = std::iter::successors(Some(node), |node| node.parent()).take(8);
        around.into_iter().find(|node| node.kind() == "function_definition")
    });
    let definition = definition.ok_or_else(|| program.refuse(module, start, "is no function"))?;
    // Directly at the function: a decorator above may need the plain one.
    if Layout::of(text).indentation(definition.start_byte()).is_none() {
        return Err(program.refuse(module, start, "stands behind something else on its line"));
    }
    edits.before(module, definition, &[format!("@{torch}.no_grad()")]);
    Ok(())
}

/// Whether gradients are off: by a decorator, by a `with` around the loop or within it around all
/// calls, or for good.
fn is_without(program: &Program<'_>, validation: &Validation<'_>) -> bool {
    let (module, function) = validation.scope;
    let text = program.module(module);
    let decorators = function.and_then(|at| text.functions.get(at)).map(|one| &one.decorators);
    let is_off = |written: &str| {
        ["no_grad", "inference_mode", "set_grad_enabled"].iter().any(|name| written.contains(name))
    };
    let is_decorated = decorators.is_some_and(|all| all.iter().any(|one| is_off(text.text(one))));
    let within_with = std::iter::successors(Some(validation.statement), |node| node.parent())
        .take(64)
        .any(|node| is_off_with(text, node));
    let inside = text.text(&validation.statement.byte_range());
    is_decorated || within_with || is_off(inside)
}

fn is_off_with(text: &Module, node: Node<'_>) -> bool {
    let body = node.child_by_field_name("body").filter(|_| node.kind() == "with_statement");
    let header = body.map(|body| text.text(&(node.start_byte()..body.start_byte())));
    header.is_some_and(|header| {
        ["no_grad", "inference_mode", "set_grad_enabled"].iter().any(|name| header.contains(name))
    })
}
