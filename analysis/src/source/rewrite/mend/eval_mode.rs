//! Validation in evaluation mode: dropout off, and batch norm by its running statistics.

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::program::Program;
use super::super::syntax::within;
use super::Wanted;
use super::validation::validations;

/// `model.eval()` in front of the loop that validates, `model.train()` behind it.
pub(super) fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &Wanted<'_>,
) -> Result<(), Refusal> {
    let mut done = None;
    for validation in validations(program, at) {
        let module = validation.scope.0;
        let statement = validation.statement;
        let missing: Vec<&String> =
            validation.models.iter().filter(|model| !is_evaluated(program, model)).collect();
        if missing.is_empty() {
            done.get_or_insert(program.at(module, statement.start_byte()));
            continue;
        }
        if within(statement).into_iter().any(|node| node.kind() == "return_statement") {
            let why = "returns from the loop, so that nothing behind it would run";
            return Err(program.refuse(module, statement.start_byte(), why));
        }
        let before: Vec<String> = missing.iter().map(|model| format!("{model}.eval()")).collect();
        let after: Vec<String> = missing.iter().map(|model| format!("{model}.train()")).collect();
        edits.before(module, statement, &before);
        edits.after(module, statement, &after);
    }
    match done {
        _ if !edits.is_empty() => Ok(()),
        Some(at) => Err(Refusal::done(format!("the model of {at} is put into evaluation mode"))),
        None => Err(Refusal::not_understood("no loop that validates a model was found here")),
    }
}

/// Whether something in the program puts a model into evaluation mode: the function, or who calls it,
/// perhaps by another name.
fn is_evaluated(program: &Program<'_>, model: &str) -> bool {
    let last = model.rsplit('.').next().unwrap_or(model);
    program.calls().any(|(_, call)| {
        let owner =
            call.callee.strip_suffix(".eval").or_else(|| call.callee.strip_suffix(".train"));
        let is_off = call.callee.ends_with(".eval");
        is_off && owner.is_some_and(|owner| owner.rsplit('.').next() == Some(last))
    })
}
