//! `torch.compile` (Ansel et al., ASPLOS 2024), where the model is created.

use ridgeline_python::syntax::kind::{Kind, TypedNode as _};
use tree_sitter::Node;

use super::Refusal;
use super::edits::Edits;
use super::forward::{Forward, backwards, forward};
use super::imports;
use super::layout::Layout;
use super::models::{Models, keeps_states};
use super::origins::{Origin, origins};
use super::program::{Program, Scope};
use super::syntax::{callee, written};

/// Adds `model = torch.compile(model)` after the model's last assignment.
pub(super) fn rewrite<'a>(program: &Program<'a>, edits: &mut Edits<'a>) -> Result<(), Refusal> {
    check_not_compiled(program)?;
    compile(program, edits, "")
}

/// Compiles the model with these arguments of `torch.compile`.
pub(super) fn compile<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    arguments: &str,
) -> Result<(), Refusal> {
    let more = if arguments.is_empty() { String::new() } else { format!(", {arguments}") };
    let origins = model_origins(program)?;
    for origin in origins {
        match origin {
            Origin::Assigned { module, statement, variable, .. } => {
                // `torch.compile` renames parameters, which would break existing checkpoints.
                let line = if keeps_states(program) {
                    format!("{variable}.compile({arguments})")
                } else {
                    let torch = imports::torch(edits, module, program.module(module));
                    format!("{variable} = {torch}.compile({variable}{more})")
                };
                let last = last_setup_statement(program, module, statement, &variable);
                edits.after(module, last, &[line]);
            }
            Origin::Expression { module, value } => {
                let torch = imports::torch(edits, module, program.module(module));
                edits.insert(module, value.start_byte(), format!("{torch}.compile("));
                edits.insert(module, value.end_byte(), format!("{more})"));
            }
        }
    }
    Ok(())
}

/// Returns the last of the statements directly after a model's creation that call its methods.
fn last_setup_statement<'a>(
    program: &Program<'a>,
    module: usize,
    statement: Node<'a>,
    variable: &str,
) -> Node<'a> {
    let text = program.module(module);
    let mut last = statement;
    while let Some(next) = last.next_named_sibling() {
        let call = next.named_child(0).filter(|one| {
            next.is(Kind::ExpressionStatement)
                && one.is(Kind::Call)
                && one.byte_range() == next.byte_range()
        });
        let calls_its_method =
            call.is_some_and(|call| callee(text, call).starts_with(&format!("{variable}.")));
        if !calls_its_method || Layout::of(text).indentation(next.start_byte()).is_none() {
            break;
        }
        last = next;
    }
    last
}

fn check_not_compiled(program: &Program<'_>) -> Result<(), Refusal> {
    check_not_scripted(program)?;
    first_compiled(program).map_or(Ok(()), |(module, at)| {
        Err(Refusal::done(format!("{} is already compiled", program.at(module, at))))
    })
}

/// Returns the module and the offset of the first place that compiles something.
pub(super) fn first_compiled(program: &Program<'_>) -> Option<(usize, usize)> {
    let calls = compiling_calls(program).into_iter();
    let calls = calls.map(|(module, call)| (module, call.start_byte()));
    calls.chain(compiling_decorators(program)).next()
}

fn check_not_scripted(program: &Program<'_>) -> Result<(), Refusal> {
    let scripted = program
        .calls()
        .find(|(module, call)| program.called(*module, call).starts_with("torch.jit."));
    scripted.map_or(Ok(()), |(module, call)| {
        let why = "runs the model with TorchScript, which torch.compile does not support";
        Err(program.refuse(module, call.span.start, why))
    })
}

/// Returns the calls that compile the model of the program.
///
/// # Errors
/// Fails if something else is compiled, or the model in a way that has no arguments.
pub(super) fn compiled_models<'a>(
    program: &Program<'a>,
) -> Result<Vec<(usize, Node<'a>)>, Refusal> {
    check_not_scripted(program)?;
    if let Some((module, at)) = compiling_decorators(program).first() {
        let why = "compiles with a decorator: set the mode there";
        return Err(program.refuse(*module, *at, why));
    }
    let models = Models::of(program);
    let calls = compiling_calls(program);
    for (module, call) in &calls {
        let text = program.module(*module);
        let is_method = !program.absolute(*module, &callee(text, *call)).starts_with("torch.");
        let first =
            program.arguments(*module, *call).and_then(|one| one.positional.first().copied());
        let compiles_model = first.is_some_and(|first| models.is_one(&written(text, first)));
        let makes_model = || {
            let target = text.assignments.iter().find(|one| one.value == call.byte_range());
            target.is_some_and(|one| models.is_one(&one.target))
        };
        if !(is_method || compiles_model || makes_model()) {
            let why = "compiles something other than the model";
            return Err(program.refuse(*module, call.start_byte(), why));
        }
    }
    Ok(calls)
}

/// Returns the calls of `torch.compile` and of a model's `compile` method.
fn compiling_calls<'a>(program: &Program<'a>) -> Vec<(usize, Node<'a>)> {
    let models = Models::of(program);
    let calls = program.calls().filter(|(module, call)| {
        let is_model_method =
            call.callee.strip_suffix(".compile").is_some_and(|object| models.is_one(object));
        is_model_method || program.called(*module, call) == "torch.compile"
    });
    calls.filter_map(|(module, call)| Some((module, program.node(module, call)?))).collect()
}

/// Returns the modules and offsets of decorators that compile a function.
fn compiling_decorators(program: &Program<'_>) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        let decorators = text.functions.iter().flat_map(|function| &function.decorators);
        let compiling = decorators.filter(|one| {
            let name = text.text(one).split('(').next().unwrap_or_default();
            program.absolute(module, name.trim()) == "torch.compile"
        });
        found.extend(compiling.map(|one| (module, one.start)));
    }
    found
}

/// A model call in the training step, with its scope and variable.
pub(super) struct ModelCall<'a> {
    pub scope: Scope,
    pub call: Node<'a>,
    pub variable: String,
}

/// Returns the model calls in the training step.
///
/// # Errors
/// Fails if there is no training step, or no model in it.
pub(super) fn model_calls<'a>(program: &Program<'a>) -> Result<Vec<ModelCall<'a>>, Refusal> {
    let models = Models::of(program);
    let backwards = backwards(program)?;
    let Forward { runs, inline } = forward(program, &models, &backwards)?;
    let mut found: Vec<(usize, Node<'a>)> = Vec::new();
    for run in &runs {
        let mut at = Some(run.first);
        while let Some(statement) = at {
            found.extend(models.calls(program, run.scope.0, statement));
            at = statement.next_named_sibling().filter(|_| statement.id() != run.last.id());
        }
    }
    for backward in &inline {
        found.extend(models.calls(program, backward.scope.0, backward.loss));
    }
    let calls: Vec<ModelCall<'a>> = found
        .into_iter()
        .map(|(module, call)| {
            let text = program.module(module);
            let name = callee(text, call);
            let variable = match models.is_one(&name) {
                true => name,
                false => name.rsplit_once('.').map(|(owner, _)| owner.to_owned()).unwrap_or(name),
            };
            let scope = (module, text.function_at(call.start_byte()));
            ModelCall { scope, call, variable }
        })
        .collect();
    match calls.is_empty() {
        true => Err(Refusal::not_understood("no call of a model that produces the loss was found")),
        false => Ok(calls),
    }
}

/// Returns where the models of the training step are created, without duplicates.
///
/// # Errors
/// Fails if the origin of a model cannot be found.
pub(super) fn model_origins<'a>(program: &Program<'a>) -> Result<Vec<Origin<'a>>, Refusal> {
    let mut distinct: Vec<Origin<'a>> = Vec::new();
    for one in model_calls(program)? {
        for origin in origins(program, one.scope, &one.variable, one.call.start_byte())? {
            let place = |origin: &Origin<'_>| match origin {
                Origin::Assigned { module, statement, .. } => (*module, statement.byte_range()),
                Origin::Expression { module, value } => (*module, value.byte_range()),
            };
            if !distinct.iter().any(|known| place(known) == place(&origin)) {
                distinct.push(origin);
            }
        }
    }
    Ok(distinct)
}
