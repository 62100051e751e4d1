//! Finds validation code: code that calls a model and runs no backward pass.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::{BTreeMap, HashSet};

use tree_sitter::Node;

use super::super::Refusal;
use super::super::models::{Models, body_of};
use super::super::program::{Program, Scope};
use super::super::syntax::{callee, calls_in, mentions, within, written};
use super::TargetLines;
use super::losses::Losses;
use ridgeline_python::semantics::batch_names::is_for_validation;
use ridgeline_python::semantics::module::{Function, last_name};

/// Validation statements.
pub struct Validation<'a> {
    pub scope: Scope,
    /// The first and last of the statements, which are consecutive in a block.
    pub first: Node<'a>,
    pub last: Node<'a>,
    /// The names of the models called there. `None` for one that a called function knows by another
    /// name, or by none here.
    pub models: Vec<Option<String>>,
    /// Whether the function around it runs no backward pass and no optimizer step.
    pub has_own_function: bool,
}

impl<'a> Validation<'a> {
    /// Returns the statements.
    pub fn statements(&self) -> impl Iterator<Item = Node<'a>> {
        let end = self.last.end_byte();
        let all = std::iter::successors(Some(self.first), |one| one.next_named_sibling());
        all.take_while(move |one| one.end_byte() <= end)
    }

    pub fn bytes(&self) -> std::ops::Range<usize> {
        self.first.start_byte()..self.last.end_byte()
    }
}

/// A call of a model or of a function that calls one. `statements` has the enclosing statements,
/// one per block, outermost first. Blocks inside a loop are not included.
struct Run<'a> {
    model: Option<String>,
    statements: Vec<Node<'a>>,
    /// The loops around it in its function, outermost first.
    loops: Vec<Node<'a>>,
    /// The innermost statement that contains the call.
    own: Node<'a>,
}

/// Finds the requested validation code: at one of the lines, or by its name.
///
/// # Errors
/// Fails if the requested code is part of a training step.
pub fn validations<'a>(
    program: &Program<'a>,
    at: &TargetLines<'_>,
) -> Result<Vec<Validation<'a>>, Refusal> {
    let models = Models::of(program);
    let losses = Losses::of(program, &models)?;
    let mut by_scope: BTreeMap<Scope, Vec<Run<'a>>> = BTreeMap::new();
    for (module, call) in program.calls() {
        let Some(node) = program.node(module, call) else { continue };
        // A function that is also used for training counts as validation only at requested lines
        // that call it.
        let is_requested = !at.is_empty() && at.includes(program, module, node);
        let called = match models.is_one(&call.callee) {
            true => vec![Some(call.callee.clone())],
            false if is_requested => called_by(program, &models, module, node, &mut HashSet::new()),
            false => Vec::new(),
        };
        let runs = called.into_iter().filter_map(|model| run(node, model));
        by_scope.entry((module, call.function)).or_default().extend(runs);
    }
    by_scope.retain(|_, runs| !runs.is_empty());
    let (mut found, mut refused) = (Vec::new(), None);
    for (scope, runs) in by_scope {
        let (module, function) = scope;
        let text = program.module(module);
        let function = function.and_then(|at| text.functions.lookup(at));
        let body = function.and_then(|function| text.node(&function.body));
        let has_own_function = body.is_some_and(|body| !trains(program, module, body));
        let has_validation_name = function.is_some_and(|one| is_validation_name(&one.name));
        let is_over = |one: &&Node<'a>| goes_over_validation(program, module, **one);
        let is_target = |run: &Run<'a>| {
            if at.is_empty() {
                return has_validation_name || run.loops.iter().any(|one| is_over(&one));
            }
            // A requested line inside a training loop does not mean the whole loop.
            let loops = run.loops.iter().filter(|one| has_own_function || is_over(one));
            loops.chain([&run.own]).any(|one| at.includes(program, module, *one))
                || touches_def(program, at, scope)
        };
        let mut targets = runs.iter().filter(|run| is_target(run)).peekable();
        if targets.peek().is_none() {
            continue;
        }
        let results = if has_own_function {
            combined(scope, &runs).into_iter().collect()
        } else {
            separate(program, scope, targets)
        };
        let name = function.map(|function| function.name.as_str());
        for one in results {
            if one.statements().any(|one| losses.are_made_of(program, scope, one))
                || name.is_some_and(|name| losses.come_from(name))
            {
                let why = "appears to contribute to a loss, so it needs its gradients";
                refused.get_or_insert(program.refuse(module, one.first.start_byte(), why));
            } else {
                found.push(one);
            }
        }
    }
    match refused.filter(|_| found.is_empty()) {
        Some(refusal) => Err(refusal),
        None => Ok(found),
    }
}

/// Returns the models that a function of the program calls, directly or through others, by their
/// names at `call`. Functions in `seen` are skipped.
fn called_by<'a>(
    program: &Program<'a>,
    models: &Models,
    module: usize,
    call: Node<'a>,
    seen: &mut HashSet<(usize, usize)>,
) -> Vec<Option<String>> {
    let body = body_of(program, module, call);
    let Some((inner, body)) = body.filter(|(inner, body)| seen.insert((*inner, body.id()))) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for one in calls_in(body) {
        let name = callee(program.module(inner), one);
        let model_names = match models.is_one(&name) {
            true => vec![Some(name)],
            false => called_by(program, models, inner, one, seen),
        };
        for model in model_names {
            let model =
                model.and_then(|model| outside(program, (module, call), (inner, body), &model));
            if !found.contains(&model) {
                found.push(model);
            }
        }
    }
    found
}

/// Returns the name at `call` of a variable of the called function: its argument, or a variable
/// visible to both.
fn outside(
    program: &Program<'_>,
    (module, call): (usize, Node<'_>),
    (inner, body): (usize, Node<'_>),
    name: &str,
) -> Option<String> {
    let text = program.module(inner);
    let function = text.functions.iter().find(|one| one.body == body.byte_range())?;
    let (root, rest) = name.split_at(name.find('.').unwrap_or(name.len()));
    let place = |one: &Function| one.parameters.iter().position(|one| one.name == root);
    let Some(at) = place(function) else {
        // The name has to be unique.
        let mut set = text.assignments.iter().filter(|one| one.target == root);
        let is_one = set.all(|one| one.function == function.outer)
            && text.functions.iter().all(|one| place(one).is_none());
        return (module == inner && is_one).then(|| name.to_owned());
    };
    let callee = callee(program.module(module), call);
    let owner = callee.rsplit_once('.').map(|(owner, _)| owner.to_owned());
    let arguments = program.arguments(module, call)?;
    let given = |at: usize| {
        let given = arguments.named(root).or(arguments.positional.get(at).copied())?;
        let is_name = matches!(Kind::of(&given), Kind::Identifier | Kind::Attribute);
        is_name.then(|| written(program.module(module), given))
    };
    let given = match (function.class, owner) {
        (None, None) => given(at),
        // A decorator may change the method's arguments, and `Trainer.step(trainer, x)` passes
        // `self` explicitly.
        (Some(_), Some(owner))
            if function.decorators.is_empty() && !owner.starts_with(char::is_uppercase) =>
        {
            at.checked_sub(1).map_or(Some(owner), given)
        }
        _ => None,
    };
    Some(given? + rest)
}

fn run(call: Node<'_>, model: Option<String>) -> Option<Run<'_>> {
    let (mut statements, mut loops) = (Vec::new(), Vec::new());
    let mut at = call;
    let mut own = None;
    while let Some(parent) = at.parent() {
        match Kind::of(&at) {
            Kind::Lambda | Kind::Decorator | Kind::Parameters => return None,
            Kind::FunctionDefinition | Kind::ClassDefinition => break,
            _ => {}
        }
        if matches!(Kind::of(&parent), Kind::Block | Kind::Module) {
            own.get_or_insert(at);
            if matches!(Kind::of(&at), Kind::ForStatement | Kind::WhileStatement) {
                loops.push(at);
                statements.clear();
            }
            statements.push(at);
        }
        at = parent;
    }
    statements.reverse();
    loops.reverse();
    Some(Run { model, statements, loops, own: own? })
}

/// Combines the calls of a function that only validates: the statements of the innermost block that
/// contains all of them.
fn combined<'a>(scope: Scope, runs: &[Run<'a>]) -> Option<Validation<'a>> {
    let mut depth = 0;
    let block = |run: &Run<'a>, depth: usize| {
        let statement = run.statements.get(depth)?;
        Some(statement.parent()?.id())
    };
    let first = runs.first()?;
    while let Some(inner) = block(first, depth + 1)
        && runs.iter().all(|run| block(run, depth + 1) == Some(inner))
    {
        depth += 1;
    }
    let statements = || runs.iter().filter_map(|run| run.statements.get(depth).copied());
    let mut models: Vec<Option<String>> = Vec::new();
    for run in runs {
        if !models.contains(&run.model) {
            models.push(run.model.clone());
        }
    }
    Some(Validation {
        scope,
        first: statements().min_by_key(|one| one.start_byte())?,
        last: statements().max_by_key(|one| one.end_byte())?,
        models,
        has_own_function: true,
    })
}

/// Returns the calls in code that also trains, separately: the loop over validation data, or the
/// call's own statement.
fn separate<'a, 'r>(
    program: &Program<'a>,
    scope: Scope,
    runs: impl Iterator<Item = &'r Run<'a>>,
) -> Vec<Validation<'a>>
where
    'a: 'r,
{
    let mut found: Vec<Validation<'a>> = Vec::new();
    for run in runs {
        let mut loops = run.loops.iter().copied();
        let over = loops.find(|one| goes_over_validation(program, scope.0, *one));
        let statement = over.unwrap_or(run.own);
        if trains(program, scope.0, statement) {
            continue;
        }
        match found.iter_mut().find(|one| one.first.id() == statement.id()) {
            Some(known) if known.models.contains(&run.model) => {}
            Some(known) => known.models.push(run.model.clone()),
            None => found.push(Validation {
                scope,
                first: statement,
                last: statement,
                models: vec![run.model.clone()],
                has_own_function: false,
            }),
        }
    }
    found
}

/// Whether a statement is a loop over validation data: `for x, y in val_loader:`.
fn goes_over_validation(program: &Program<'_>, module: usize, statement: Node<'_>) -> bool {
    let over = statement.field(Field::Right);
    over.is_some_and(|over| is_validation_name(&written(program.module(module), over)))
}

/// Whether a name indicates validation: `validate`, `evaluate_model`, `val_loader`.
fn is_validation_name(name: &str) -> bool {
    let lower = name.to_lowercase();
    is_for_validation(name) || ["validat", "evaluat"].iter().any(|part| lower.contains(part))
}

/// Whether the line of a function's `def` is requested.
fn touches_def(program: &Program<'_>, at: &TargetLines<'_>, (module, function): Scope) -> bool {
    let text = program.module(module);
    let function = function.and_then(|at| text.functions.lookup(at));
    let node = function.and_then(|function| text.node(&function.span));
    let name = node.and_then(|node| node.field(Field::Name));
    name.is_some_and(|name| at.includes(program, module, name))
}

/// Calls that need gradients or step with them.
const NEEDS_GRADIENTS: [&str; 13] = [
    "backward",
    "manual_backward",
    "step",
    "zero_grad",
    "grad",
    "enable_grad",
    "requires_grad_",
    "jacobian",
    "hessian",
    "jvp",
    "vjp",
    "hvp",
    "fit",
];

/// Returns the `forward` of a model that requests gradients itself, for example for forces from an
/// energy: module and offset. It also needs them during validation.
pub fn forward_that_goes_back(program: &Program<'_>) -> Option<(usize, usize)> {
    let asks = ["backward", "grad", "enable_grad", "requires_grad_", "jacobian", "hessian", "vjp"];
    program.modules().iter().enumerate().find_map(|(module, text)| {
        let mut forwards = text.functions.iter().filter(|one| one.name == "forward");
        let found = forwards.find(|one| {
            let calls = text.calls.iter().filter(|call| one.span.contains(&call.span.start));
            calls.into_iter().any(|call| asks.contains(&call.name()))
        });
        Some((module, found?.span.start))
    })
}

/// Whether a node runs a backward pass or an optimizer step, directly or in functions of the
/// program that it calls.
pub fn trains<'a>(program: &Program<'a>, module: usize, node: Node<'a>) -> bool {
    let mut seen = HashSet::new();
    let mut waiting = vec![(module, node)];
    while let Some((module, node)) = waiting.pop() {
        let text = program.module(module);
        if !seen.insert((module, node.id())) {
            continue;
        }
        let is_switched = |one: Node<'_>| {
            let left = one.field(Field::Left).filter(|_| one.is(Kind::Assignment));
            left.is_some_and(|left| written(text, left).ends_with(".requires_grad"))
        };
        if within(node).into_iter().any(is_switched) {
            return true;
        }
        for call in calls_in(node) {
            let name = callee(text, call);
            let last = last_name(&name);
            let body = body_of(program, module, call);
            // A `step` function of the program may only compute the loss of a batch.
            let is_followed = last == "step"
                && body.is_some_and(|(inner, body)| {
                    !mentions(program.module(inner).text(&body.byte_range()), "grad")
                });
            if (NEEDS_GRADIENTS.contains(&last) && !is_followed) || last.starts_with("train_") {
                return true;
            }
            waiting.extend(body);
        }
    }
    false
}
