//! Validation without gradients (PyTorch, "Performance Tuning Guide").

use super::super::edits::Edits;
use super::super::layout::Layout;
use super::super::program::Program;
use super::super::syntax::within;
use super::super::{Refusal, imports};
use super::TargetLines;
use super::validation::{Validation, forward_that_goes_back, validations};
use ridgeline_python::semantics::module::{Function, Module};
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};

/// Adds `@torch.no_grad()` to the validation function, or `with torch.no_grad():` around the loop
/// or the statement.
pub(super) fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &TargetLines<'_>,
) -> Result<(), Refusal> {
    let mut done = None;
    for validation in validations(program, at)? {
        let (module, function) = validation.scope;
        let text = program.module(module);
        if is_already_disabled(program, &validation) {
            done.get_or_insert(program.at(module, validation.first.start_byte()));
            continue;
        }
        if let Some((module, offset)) = forward_that_goes_back(program) {
            let why = "requests gradients itself and needs them during validation";
            return Err(program.refuse(module, offset, why));
        }
        let function = function.and_then(|at| text.functions.lookup(at));
        match function.filter(|_| validation.has_own_function) {
            Some(function) => decorate(program, edits, module, function)?,
            None => {
                if yields(&validation) || function.is_some_and(|one| is_asynchronous(text, one)) {
                    let why =
                        "runs other code in between, and gradients would be disabled there too";
                    return Err(program.refuse(module, validation.first.start_byte(), why));
                }
                let torch = imports::torch(edits, module, text);
                let header = format!("with {torch}.no_grad():");
                edits.wrap(program, module, validation.bytes(), &header)?;
            }
        }
    }
    match done {
        _ if !edits.is_empty() => Ok(()),
        Some(at) => Err(Refusal::done(format!("{at} already validates without gradients"))),
        None => Err(Refusal::not_understood("no validation code was found here")),
    }
}

fn yields(validation: &Validation<'_>) -> bool {
    let mut nodes = validation.statements().flat_map(within);
    nodes.any(|node| matches!(Kind::of(&node), Kind::Yield | Kind::Await))
}

fn is_asynchronous(text: &Module, function: &Function) -> bool {
    text.text(&function.span).starts_with("async")
}

/// Adds a decorator to a function, below existing ones.
fn decorate<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    module: usize,
    function: &Function,
) -> Result<(), Refusal> {
    let start = function.span.start;
    let text = program.module(module);
    if function.yields {
        let why = "yields, and a generator would keep gradients disabled outside of it";
        return Err(program.refuse(module, start, why));
    }
    if is_asynchronous(text, function) {
        let why = "is async, and a decorator would re-enable gradients before it runs";
        return Err(program.refuse(module, start, why));
    }
    if function.decorators.iter().any(|one| text.text(one).contains("jit")) {
        return Err(program.refuse(module, start, "is compiled and cannot take this decorator"));
    }
    let root = text.index.tree().map(|tree| tree.root_node());
    let node = root.and_then(|root| root.descendant_for_byte_range(start, start + 1));
    let definition = node.and_then(|node| {
        let around = std::iter::successors(Some(node), |node| node.parent()).take(8);
        around.into_iter().find(|node| node.is(Kind::FunctionDefinition))
    });
    let definition =
        definition.ok_or_else(|| program.refuse(module, start, "is not a function"))?;
    // Directly above the function: an outer decorator may need the undecorated one.
    if Layout::of(text).indentation(definition.start_byte()).is_none() {
        return Err(program.refuse(module, start, "follows another statement on its line"));
    }
    let torch = imports::torch(edits, module, text);
    edits.before(module, definition, &[format!("@{torch}.no_grad()")]);
    Ok(())
}

/// Whether gradients are already disabled: by a decorator, by a `with` around the statements or
/// inside them around all calls, or permanently before them.
fn is_already_disabled(program: &Program<'_>, validation: &Validation<'_>) -> bool {
    let (module, function) = validation.scope;
    let text = program.module(module);
    let function = function.and_then(|at| text.functions.lookup(at));
    let is_off = |written: &str| {
        ["no_grad", "inference_mode", "set_grad_enabled"].iter().any(|name| written.contains(name))
    };
    let is_decorated =
        function.is_some_and(|one| one.decorators.iter().any(|one| is_off(text.text(one))));
    let mut around = std::iter::successors(Some(validation.first), |node| node.parent()).take(64);
    let within_with = around.any(|node| {
        let body = node.field(Field::Body).filter(|_| node.is(Kind::WithStatement));
        body.is_some_and(|body| is_off(text.text(&(node.start_byte()..body.start_byte()))))
    });
    let before = function.map(|one| one.body.start..validation.first.start_byte());
    let permanently =
        before.is_some_and(|span| text.text(&span).contains("set_grad_enabled(False)"));
    is_decorated || within_with || permanently || is_off(text.text(&validation.bytes()))
}
