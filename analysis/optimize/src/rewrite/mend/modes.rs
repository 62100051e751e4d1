//! Which mode models are put into: `model.eval()`, `model.train(False)`.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::HashSet;

use tree_sitter::Node;

use super::super::models::{Models, body_of, is_module_class};
use super::super::program::Program;
use super::super::syntax::{callee, calls_in, targets, written};
use ridgeline_python::semantics::module::{Call, last_name};

/// Functions that are followed from a callee to its callers.
const DEEPEST: u32 = 4;
/// Functions that one call is followed into.
const MOST_FUNCTIONS: usize = 64;
/// Where models come from whose layers are not the program's.
const LIBRARIES: [&str; 4] = ["torchvision.", "timm.", "transformers.", "torch.hub."];

/// The object that a call puts into evaluation mode.
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

/// Where a part of a model is put into evaluation mode while the rest may train: text and offset.
pub(super) fn part_in_evaluation(program: &Program<'_>, models: &Models) -> Option<(usize, usize)> {
    let is_part = |(module, call): &(usize, &Call)| {
        let Some(owner) = evaluated(program, *module, call) else { return false };
        let text = program.module(*module);
        // `model.backbone.eval()`, `self.backbone.eval()` in a model.
        let of_a_model = owner.rsplit_once('.').is_some_and(|(whole, part)| {
            let class = program.class_of((*module, call.function));
            let in_a_model = || class.is_some_and(|at| is_module_class(program, *module, at, 0));
            part != "module" && (models.is_one(whole) || (whole == "self" && in_a_model()))
        });
        of_a_model
            || text.node(&call.span).is_some_and(|node| is_picked(program, *module, node, owner))
    };
    program.calls().find(is_part).map(|(module, call)| (module, call.span.start))
}

/// Where a whole model of the program's is put into evaluation mode and stays in it while the program
/// trains, as is done in fine-tuning: text and offset.
pub(super) fn left_in_evaluation(program: &Program<'_>) -> Option<(usize, usize)> {
    let is_left = |(module, call): &(usize, &Call)| {
        let Some(owner) = evaluated(program, *module, call) else { return false };
        !is_of_a_library(program, *module, owner) && is_left_so(program, *module, call, owner, 0)
    };
    program.calls().find(is_left).map(|(module, call)| (module, call.span.start))
}

/// Whether the program trains behind a call that puts `owner` into evaluation mode, and does not put it
/// back.
fn is_left_so(program: &Program<'_>, module: usize, call: &Call, owner: &str, depth: u32) -> bool {
    if is_put_back(program, owner) {
        return false;
    }
    let text = program.module(module);
    let all = text.calls.iter().filter(|one| one.function == call.function);
    let goes_back = |one: &&Call| {
        let node = program.node(module, one);
        node.is_some_and(|node| trains(program, module, node, &mut HashSet::new()))
    };
    let trains: Vec<usize> = all.filter(goes_back).map(|one| one.span.start).collect();
    let around = text.loops.iter().filter(|one| one.span.contains(&call.span.start));
    let again = around.map(|one| &one.span).any(|span| trains.iter().any(|at| span.contains(at)));
    if again || trains.iter().any(|at| *at > call.span.start) {
        return true;
    }
    let function = call.function.and_then(|at| text.functions.lookup(at));
    let Some(function) = function.filter(|_| trains.is_empty() && depth < DEEPEST) else {
        return false;
    };
    let mut callers = program.calls().filter(|(_, one)| one.name() == function.name).take(32);
    callers.any(|(at, caller)| {
        let given = handed(program, (at, caller), module, call.function, owner);
        is_left_so(program, at, caller, given.as_deref().unwrap_or(owner), depth + 1)
    })
}

/// Whether a call goes backward, itself or in functions of the program; those in `seen` do not.
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
        seen.len() < MOST_FUNCTIONS
            && seen.insert((inner, body.start_byte()))
            && calls_in(body).into_iter().any(|one| trains(program, inner, one, seen))
    })
}

/// Whether something puts `owner` into training mode, by its name or by the one that a function has for
/// it.
fn is_put_back(program: &Program<'_>, owner: &str) -> bool {
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
                handed(program, caller, module, call.function, trained).as_deref() == Some(owner)
            })
    })
}

/// What a call hands over as the parameter `name` of a function.
fn handed(
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

/// Whether a model is a library's, in which the program makes no layers.
fn is_of_a_library(program: &Program<'_>, module: usize, owner: &str) -> bool {
    let text = program.module(module);
    let is_one = |name: &str| {
        let whole = program.absolute(module, name);
        LIBRARIES.iter().any(|library| whole.starts_with(library))
    };
    let mut made = text.assignments.iter().filter(|one| one.target == owner).peekable();
    is_one(owner)
        || (made.peek().is_some() && made.all(|one| is_one(text.text(&one.value).trim_start())))
}

/// `for m in model.modules(): m.eval()`, and `if isinstance(m, nn.BatchNorm2d): m.eval()`.
fn is_picked(program: &Program<'_>, module: usize, call: Node<'_>, owner: &str) -> bool {
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
            let asked = one.field(Field::Condition).map(|one| written(text, one));
            asked.is_some_and(|asked| asked.contains("isinstance(") || asked.contains("Norm"))
        }
        _ => false,
    })
}
