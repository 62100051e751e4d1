//! The modes that models are put into: `model.eval()`, `model.train(False)`.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::HashSet;

use tree_sitter::Node;

use super::super::models::{Models, body_of, is_module_class};
use super::super::program::Program;
use super::super::syntax::{callee, calls_in, targets, written};
use ridgeline_python::semantics::module::{Call, last_name};

/// The maximum depth of callers followed.
const MAX_DEPTH: u32 = 4;
/// The maximum number of functions followed from one call.
const MAX_FUNCTIONS: usize = 64;
/// Libraries whose models contain no layers of the program.
const LIBRARIES: [&str; 4] = ["torchvision.", "timm.", "transformers.", "torch.hub."];

/// Returns the object that a call puts into evaluation mode.
pub(super) fn evaluated<'c>(
    program: &Program<'_>,
    module: usize,
    call: &'c Call,
) -> Option<&'c str> {
    let text = program.module(module);
    let by_train = call.callee.strip_suffix(".train");
    let by_train = by_train.filter(|_| text.text(&call.span).contains("False"));
    call.callee.strip_suffix(".eval").or(by_train)
}

/// Returns where a part of a model is put into evaluation mode while the rest may train: module and
/// offset.
pub(super) fn part_in_evaluation(program: &Program<'_>, models: &Models) -> Option<(usize, usize)> {
    let is_part = |(module, call): &(usize, &Call)| {
        let Some(owner) = evaluated(program, *module, call) else { return false };
        let text = program.module(*module);
        // `model.backbone.eval()`, `self.backbone.eval()` in a model.
        let is_part_of_model = owner.rsplit_once('.').is_some_and(|(model, part)| {
            let class = program.class_of((*module, call.function));
            let in_a_model = || class.is_some_and(|at| is_module_class(program, *module, at, 0));
            part != "module" && (models.is_one(model) || (model == "self" && in_a_model()))
        });
        is_part_of_model
            || text.node(&call.span).is_some_and(|node| is_selected(program, *module, node, owner))
    };
    program.calls().find(is_part).map(|(module, call)| (module, call.span.start))
}

/// Returns where a whole model of the program is put into evaluation mode and stays in it during
/// training, as in fine-tuning: module and offset.
pub(super) fn left_in_evaluation(program: &Program<'_>) -> Option<(usize, usize)> {
    let is_left = |(module, call): &(usize, &Call)| {
        let Some(owner) = evaluated(program, *module, call) else { return false };
        !is_of_a_library(program, *module, owner)
            && stays_in_evaluation(program, *module, call, owner, 0)
    };
    program.calls().find(is_left).map(|(module, call)| (module, call.span.start))
}

/// Whether the program trains after a call that puts `owner` into evaluation mode, without
/// resetting it.
fn stays_in_evaluation(
    program: &Program<'_>,
    module: usize,
    call: &Call,
    owner: &str,
    depth: u32,
) -> bool {
    if is_reset(program, owner) {
        return false;
    }
    let text = program.module(module);
    let all = text.calls.iter().filter(|one| one.function == call.function);
    let runs_backward = |one: &&Call| {
        let node = program.node(module, one);
        node.is_some_and(|node| trains(program, module, node, &mut HashSet::new()))
    };
    let trains: Vec<usize> = all.filter(runs_backward).map(|one| one.span.start).collect();
    let around = text.loops.iter().filter(|one| one.span.contains(&call.span.start));
    let in_loop = around.map(|one| &one.span).any(|span| trains.iter().any(|at| span.contains(at)));
    if in_loop || trains.iter().any(|at| *at > call.span.start) {
        return true;
    }
    let function = call.function.and_then(|at| text.functions.lookup(at));
    let Some(function) = function.filter(|_| trains.is_empty() && depth < MAX_DEPTH) else {
        return false;
    };
    let mut callers = program.calls().filter(|(_, one)| one.name() == function.name).take(32);
    callers.any(|(at, caller)| {
        let given = argument_for(program, (at, caller), module, call.function, owner);
        stays_in_evaluation(program, at, caller, given.as_deref().unwrap_or(owner), depth + 1)
    })
}

/// Whether a call runs a backward pass, directly or in functions of the program. Functions in
/// `seen` are skipped.
fn trains(
    program: &Program<'_>,
    module: usize,
    call: Node<'_>,
    seen: &mut HashSet<(usize, usize)>,
) -> bool {
    let name = callee(program.module(module), call);
    if matches!(last_name(&name), "backward" | "fit") {
        return true;
    }
    let inner = body_of(program, module, call);
    inner.is_some_and(|(inner, body)| {
        seen.len() < MAX_FUNCTIONS
            && seen.insert((inner, body.start_byte()))
            && calls_in(body).into_iter().any(|one| trains(program, inner, one, seen))
    })
}

/// Whether `owner` is put into training mode, by its name or by a parameter's name in a function.
fn is_reset(program: &Program<'_>, owner: &str) -> bool {
    program.calls().any(|(module, call)| {
        let Some(trained) = call.callee.strip_suffix(".train") else { return false };
        if evaluated(program, module, call).is_some() {
            return false;
        }
        let function = call.function.and_then(|at| program.module(module).functions.lookup(at));
        let mut callers = program
            .calls()
            .filter(|(_, one)| function.is_some_and(|function| one.name() == function.name));
        trained == owner
            || callers.any(|caller| {
                argument_for(program, caller, module, call.function, trained).as_deref()
                    == Some(owner)
            })
    })
}

/// Returns the argument of a call for the parameter `name` of a function.
fn argument_for(
    program: &Program<'_>,
    (at, call): (usize, &Call),
    module: usize,
    function: Option<usize>,
    name: &str,
) -> Option<String> {
    let function = program.module(module).functions.lookup(function?)?;
    let skipped = usize::from(function.class.is_some());
    let mut parameters = function.parameters.iter().skip(skipped);
    let place = parameters.position(|one| one.name == name)?;
    let arguments = program.arguments(at, program.node(at, call)?)?;
    let given = arguments.named(name).or(arguments.positional.get(place).copied())?;
    Some(written(program.module(at), given))
}

/// Whether a model comes from a library and contains no layers of the program.
fn is_of_a_library(program: &Program<'_>, module: usize, owner: &str) -> bool {
    let text = program.module(module);
    let is_one = |name: &str| {
        let qualified = program.absolute(module, name);
        LIBRARIES.iter().any(|library| qualified.starts_with(library))
    };
    let mut made = text.assignments.iter().filter(|one| one.target == owner).peekable();
    is_one(owner)
        || (made.peek().is_some() && made.all(|one| is_one(text.text(&one.value).trim_start())))
}

/// Whether single modules are selected: `for m in model.modules(): m.eval()`, or `if isinstance(m,
/// nn.BatchNorm2d): m.eval()`.
fn is_selected(program: &Program<'_>, module: usize, call: Node<'_>, owner: &str) -> bool {
    let text = program.module(module);
    let around = std::iter::successors(call.parent(), |one| one.parent()).take(64);
    let mut around = around.take_while(|one| !one.is(Kind::FunctionDefinition));
    around.any(|one| match Kind::of(&one) {
        Kind::ForStatement | Kind::ForInClause | Kind::ListComprehension => {
            let clause = match one.field(Field::Left) {
                Some(_) => Some(one),
                None => one.named_child(1),
            };
            let field = |name: Field| clause.and_then(|clause| clause.field(name));
            let parts = ["modules()", "children()", "layers"];
            let over = field(Field::Right).map(|over| written(text, over)).unwrap_or_default();
            field(Field::Left).is_some_and(|left| targets(text, left).contains(owner))
                && parts.iter().any(|part| over.contains(part))
        }
        Kind::IfStatement | Kind::ElifClause => {
            let condition = one.field(Field::Condition).map(|one| written(text, one));
            condition.is_some_and(|condition| {
                condition.contains("isinstance(") || condition.contains("Norm")
            })
        }
        _ => false,
    })
}
