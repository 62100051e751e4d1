//! Gradient synchronization once per step with gradient accumulation (PyTorch
//! `DistributedDataParallel.no_sync`).

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::edits::Edits;
use super::forward::{Backward, Forward, backwards, forward};
use super::models::Models;
use super::optimizers::is_optimizer;
use super::program::{Program, Scope};
use super::syntax::{callee, calls_in, reads, statement_of, writes};
use super::{Refusal, imports};
use ridgeline_python::semantics::module::{Assignment, last_name};

/// Adds `with nullcontext() if … else model.no_sync():` around the forward and backward pass, with
/// the condition under which the optimizer steps.
pub(super) fn rewrite<'a>(program: &Program<'a>, edits: &mut Edits<'a>) -> Result<(), Refusal> {
    let present = program.calls().find(|(_, call)| call.name() == "no_sync");
    if let Some((module, call)) = present {
        let at = program.at(module, call.span.start);
        return Err(Refusal::done(format!("{at} already synchronizes gradients once per step")));
    }
    let models = Models::of(program);
    let backwards = backwards(program)?;
    let [backward] = &backwards[..] else {
        return Err(Refusal::not_understood("the program calls backward() in several places"));
    };
    let (model, class) = ddp_model(program, &models, backward)?;
    let condition = condition(program, backward)?;
    let unless = class.map(|class| format!("not isinstance({model}, {class})"));
    wrap_step(program, edits, backward, condition, &model, unless.as_deref())
}

/// Adds the block around the forward and backward pass of a model. `unless` is a condition under which the model is not
/// wrapped.
pub(super) fn wrap_step<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    backward: &Backward<'a>,
    condition: Node<'a>,
    model: &str,
    unless: Option<&str>,
) -> Result<(), Refusal> {
    let models = Models::of(program);
    let (module, _) = backward.scope;
    let text = program.module(module);
    let backwards = std::slice::from_ref(backward);
    let Forward { runs, inline } = forward(program, &models, backwards)?;
    // A loss computed in the same expression starts at its `backward()`.
    let first = match runs.first() {
        Some(run) => run.first,
        None if !inline.is_empty() => backward.statement,
        None => {
            return Err(Refusal::not_understood(
                "no call of a model that produces the loss was \
            found",
            ));
        }
    };
    let block = |node: Node<'_>| node.parent().map(|parent| parent.id());
    if block(first) != block(backward.statement)
        || first.start_byte() > backward.statement.start_byte()
    {
        let why = "calls backward() in a different block than the forward pass";
        return Err(program.refuse(module, backward.call.start_byte(), why));
    }
    if matches!(Kind::of(&condition), Kind::True | Kind::Integer) {
        let why = "steps under a condition that is always true";
        return Err(program.refuse(module, condition.start_byte(), why));
    }
    // The condition is evaluated earlier now, so it must not change in between.
    let condition_names = reads(text, condition);
    let mut between = Some(first);
    while let Some(one) = between.filter(|one| one.end_byte() <= condition.start_byte()) {
        if let Some(name) = writes(text, one).intersection(&condition_names).next() {
            let what = format!("reassigns `{name}` before the optimizer's condition uses it");
            return Err(program.refuse(module, one.start_byte(), &what));
        }
        between = one.next_named_sibling();
    }
    if !calls_in(condition).is_empty()
        && calls_in(condition).iter().any(|call| !is_plain(program, module, *call))
    {
        let why = "steps under a condition with a call, which would run twice";
        return Err(program.refuse(module, condition.start_byte(), why));
    }
    let null = imports::imported(edits, module, text, "contextlib", "nullcontext");
    let Some(null) = null else {
        return Err(program.refuse(module, 0, "uses the name `nullcontext` for something else"));
    };
    let written = text.text(&condition.byte_range());
    if written.contains(['\n', '\r']) {
        let why = "steps under a multi-line condition";
        return Err(program.refuse(module, condition.start_byte(), why));
    }
    let binds_weakly = matches!(Kind::of(&condition), Kind::ConditionalExpression | Kind::Lambda);
    let condition = match unless {
        Some(unless) if binds_weakly => format!("({written}) or {unless}"),
        Some(unless) => format!("{written} or {unless}"),
        None => written.to_owned(),
    };
    let header = format!("with {null}() if {condition} else {model}.no_sync():");
    let statements = first.start_byte()..backward.statement.end_byte();
    edits.wrap(program, module, statements, &header)
}

/// Whether a call can be evaluated twice, such as `len(loader)`.
fn is_plain(program: &Program<'_>, module: usize, call: Node<'_>) -> bool {
    matches!(callee(program.module(module), call).as_str(), "len" | "int" | "min" | "max")
}

/// Returns the variable of the model wrapped in `DistributedDataParallel`, and the class if the model is only wrapped
/// under a condition.
fn ddp_model(
    program: &Program<'_>,
    models: &Models,
    backward: &Backward<'_>,
) -> Result<(String, Option<String>), Refusal> {
    let (module, _) = backward.scope;
    let made = program.modules().iter().enumerate().flat_map(|(at, text)| {
        let made = text.assignments.iter().filter(move |one| {
            text.node(&one.value).filter(|node| node.is(Kind::Call)).is_some_and(|call| {
                let qualified = program.absolute(at, &callee(text, call));
                matches!(last_name(&qualified), "DistributedDataParallel" | "DDP")
            })
        });
        made.map(move |one| (at, one))
    });
    let own: Vec<&Assignment> = made
        .filter(|(at, one)| *at == module && models.is_one(&one.target))
        .map(|(_, one)| one)
        .collect();
    let [one] = &own[..] else {
        return Err(Refusal::not_understood(match own.is_empty() {
            true => "no DistributedDataParallel model was found here",
            false => "several models use DistributedDataParallel",
        }));
    };
    let text = program.module(module);
    let made = text.node(&one.value).filter(|_| !one.branches.is_empty());
    Ok((one.target.clone(), made.map(|made| callee(text, made))))
}

/// Returns the condition of the `if` in which the optimizer steps.
pub(super) fn condition<'a>(
    program: &Program<'a>,
    backward: &Backward<'a>,
) -> Result<Node<'a>, Refusal> {
    let scope: Scope = backward.scope;
    let (module, function) = scope;
    let block = backward.statement.parent().map(|block| block.id());
    let mut found = None;
    for (at, call) in
        program.calls().filter(|(at, call)| *at == module && call.function == function)
    {
        let owner = call.callee.strip_suffix(".step");
        if !owner.is_some_and(|owner| is_optimizer(program, owner)) {
            continue;
        }
        let node = program.node(at, call);
        let around =
            node.and_then(statement_of).and_then(|one| one.parent()).and_then(|one| one.parent());
        let branch = around.filter(|one| {
            one.is(Kind::IfStatement) && one.parent().map(|block| block.id()) == block
        });
        match branch.and_then(|branch| branch.field(Field::Condition)) {
            Some(condition) if found.is_none() => found = Some(condition),
            _ => {
                let why = "steps the optimizer for every batch, or in code that could not be \
                    followed";
                return Err(program.refuse(module, call.span.start, why));
            }
        }
    }
    found.ok_or_else(|| Refusal::not_understood("no optimizer step was found next to the loss"))
}
