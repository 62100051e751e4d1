//! Validation in evaluation mode: without dropout, and with batch norm's running statistics.

use ridgeline_python::syntax::kind::{Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::layout::Layout;
use super::super::models::Models;
use super::super::program::Program;
use super::super::syntax::{mentions, within, writes};
use super::TargetLines;
use super::modes::{evaluated, part_in_evaluation};
use super::validation::{Validation, validations};

/// Adds `model.eval()` before the validation statements and `model.train()` after them.
pub(super) fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &TargetLines<'_>,
) -> Result<(), Refusal> {
    let mut done = None;
    for validation in validations(program, at)? {
        let module = validation.scope.0;
        let start = validation.first.start_byte();
        let models: Option<Vec<&String>> = validation.models.iter().map(Option::as_ref).collect();
        let Some(models) = models else {
            let why = "calls a function that knows the model by another name or not at all";
            return Err(program.refuse(module, start, why));
        };
        let missing = models.into_iter();
        let missing = missing.filter(|model| !is_evaluated(program, at, &validation, model));
        let missing: Vec<&String> = missing.collect();
        if missing.is_empty() {
            done.get_or_insert(program.at(module, start));
            continue;
        }
        if let Some((module, offset)) = part_in_evaluation(program, &Models::of(program)) {
            let why = "puts part of a model into evaluation mode, which `train()` would undo";
            return Err(program.refuse(module, offset, why));
        }
        surround(program, edits, &validation, &missing)?;
    }
    match done {
        _ if !edits.is_empty() => Ok(()),
        Some(at) => Err(Refusal::done(format!("the model of {at} is already in evaluation mode"))),
        None => Err(Refusal::not_understood("no validation code was found here")),
    }
}

fn surround<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    validation: &Validation<'a>,
    models: &[&String],
) -> Result<(), Refusal> {
    let module = validation.scope.0;
    let text = program.module(module);
    let (first, last) = (validation.first, validation.last);
    let refuse = |why: &str| Err(program.refuse(module, first.start_byte(), why));
    let returned = returned(last);
    let leaves = |node: &Node<'_>| {
        matches!(Kind::of(node), Kind::ReturnStatement | Kind::Yield | Kind::Await)
    };
    let mut inside = validation.statements().flat_map(within);
    if inside.any(|node| leaves(&node) && !(returned.is_some() && node.id() == last.id())) {
        return refuse("returns in between, so the code after it would not run");
    }
    if first.id() == last.id() && !validation.has_own_function && has_jump(first) {
        return refuse("may leave the surrounding loop, so the code after it would not run");
    }
    let assigned: Vec<String> =
        validation.statements().flat_map(|statement| writes(text, statement)).collect();
    let root = |model: &str| model.split('.').next().unwrap_or(model).to_owned();
    if models.iter().any(|model| assigned.contains(*model) || assigned.contains(&root(model))) {
        return refuse("assigns its model in between");
    }
    let mut before: Vec<String> = models.iter().map(|model| format!("{model}.eval()")).collect();
    let mut after: Vec<String> = models.iter().map(|model| format!("{model}.train()")).collect();
    // The program also evaluates it elsewhere and may call this code then: restore the previous
    // mode.
    let is_evaluated_elsewhere =
        program.calls().any(|(at, call)| evaluated(program, at, call).is_some());
    if is_evaluated_elsewhere {
        let [model] = models else {
            return refuse("calls several models, which may be in different modes");
        };
        if mentions(text.index.text(), "was_training") {
            return refuse("is in a program that already uses the name `was_training`");
        }
        before.insert(0, format!("was_training = {model}.training"));
        after = vec![format!("{model}.train(was_training)")];
    }
    if let Some(value) = returned {
        let layout = Layout::of(text);
        let is_alone =
            layout.indentation(last.start_byte()).is_some() && layout.ends_line(last.end_byte());
        let function = validation.scope.1.and_then(|at| text.functions.lookup(at));
        let is_free = function.is_some_and(|one| !mentions(text.text(&one.span), "result"));
        if !is_alone || !is_free {
            return refuse("returns the model's output directly: assign it to a variable first");
        }
        edits.replace(module, last.start_byte()..value.start_byte(), "result = ");
        after.push("return result".to_owned());
    }
    edits.before(module, first, &before);
    edits.after(module, last, &after);
    Ok(())
}

/// Returns the value of a `return` statement.
fn returned(statement: Node<'_>) -> Option<Node<'_>> {
    statement
        .named_child(0)
        .filter(|one| statement.is(Kind::ReturnStatement) && !one.is(Kind::Comment))
}

/// Whether a statement that is not a loop contains a `break` or `continue`, which belongs to a loop
/// around it.
fn has_jump(statement: Node<'_>) -> bool {
    let is_loop = matches!(Kind::of(&statement), Kind::ForStatement | Kind::WhileStatement);
    let is_jump =
        |node: &Node<'_>| matches!(Kind::of(node), Kind::BreakStatement | Kind::ContinueStatement);
    !is_loop && within(statement).iter().any(is_jump)
}

/// Whether a model is put into evaluation mode before validation. Without specified lines, this may
/// happen anywhere: in the function or in a caller, perhaps by another name.
fn is_evaluated(
    program: &Program<'_>,
    at: &TargetLines<'_>,
    validation: &Validation<'_>,
    model: &str,
) -> bool {
    let (module, function) = validation.scope;
    let last = model.rsplit('.').next().unwrap_or(model);
    if at.is_empty() {
        return program.calls().any(|(at, call)| {
            let owner = evaluated(program, at, call);
            owner.is_some_and(|owner| owner.rsplit('.').next() == Some(last))
        });
    }
    let text = program.module(module);
    let end = validation.last.end_byte();
    let own = text.calls.iter().filter(|call| {
        call.function == function
            && call.span.end <= end
            && [".eval", ".train"].iter().any(|name| call.callee == format!("{model}{name}"))
    });
    // The last one before it, or in it.
    let latest = own.max_by_key(|call| call.span.start);
    latest.is_some_and(|call| evaluated(program, module, call).is_some())
}
