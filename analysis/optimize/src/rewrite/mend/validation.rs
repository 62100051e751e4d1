//! Where a program validates: what calls a model and never goes back.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::{BTreeMap, HashSet};

use tree_sitter::Node;

use super::super::Refusal;
use super::super::models::{Models, body_of};
use super::super::program::{Program, Scope};
use super::super::syntax::{callee, calls_in, mentions, within, written};
use super::Wanted;
use super::losses::Losses;
use ridgeline_python::semantics::batch_names::is_for_validation;
use ridgeline_python::semantics::module::{Function, last_name};

/// Statements that validate.
pub struct Validation<'a> {
    pub scope: Scope,
    /// The first and the last of the statements, which follow one another in a block.
    pub first: Node<'a>,
    pub last: Node<'a>,
    /// The models that are called there, as they are written; None for one that a function calls by a name
    /// that is another one here, or none.
    pub models: Vec<Option<String>>,
    /// Nothing of the function around it goes back or steps.
    pub has_own_function: bool,
}

impl<'a> Validation<'a> {
    /// The statements.
    pub fn statements(&self) -> impl Iterator<Item = Node<'a>> {
        let end = self.last.end_byte();
        let all = std::iter::successors(Some(self.first), |one| one.next_named_sibling());
        all.take_while(move |one| one.end_byte() <= end)
    }

    pub fn bytes(&self) -> std::ops::Range<usize> {
        self.first.start_byte()..self.last.end_byte()
    }
}

/// A call of a model, or of a function that calls one, and the blocks around it in its function, the
/// outermost first: the statement of each that the call is in. What a loop runs again and again is not
/// gone into.
struct Run<'a> {
    model: Option<String>,
    statements: Vec<Node<'a>>,
    /// The loops around it in its function, and its own statement, the outermost first.
    loops: Vec<Node<'a>>,
    own: Node<'a>,
}

/// What validates, of what is wanted: at one of the lines, or by its name.
///
/// # Errors
/// Where what is wanted is part of a training step.
pub fn validations<'a>(
    program: &Program<'a>,
    at: &Wanted<'_>,
) -> Result<Vec<Validation<'a>>, Refusal> {
    let models = Models::of(program);
    let losses = Losses::of(program, &models)?;
    let mut by_scope: BTreeMap<Scope, Vec<Run<'a>>> = BTreeMap::new();
    for (module, call) in program.calls() {
        let Some(node) = program.node(module, call) else { continue };
        // That a function validates which trains as well is told of the lines that call it alone.
        let is_asked = !at.is_anywhere() && at.meets(program, module, node);
        let called = match models.is_one(&call.callee) {
            true => vec![Some(call.callee.clone())],
            false if is_asked => called_by(program, &models, module, node, &mut HashSet::new()),
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
        let is_named = function.is_some_and(|one| speaks_of_it(&one.name));
        let is_over = |one: &&Node<'a>| goes_over_validation(program, module, **one);
        let is_wanted = |run: &Run<'a>| {
            if at.is_anywhere() {
                return is_named || run.loops.iter().any(|one| is_over(&one));
            }
            // A loop that trains is none that a line of it could mean.
            let loops = run.loops.iter().filter(|one| has_own_function || is_over(one));
            loops.chain([&run.own]).any(|one| at.meets(program, module, *one))
                || touches_def(program, at, scope)
        };
        let mut wanted = runs.iter().filter(|run| is_wanted(run)).peekable();
        if wanted.peek().is_none() {
            continue;
        }
        let made = if has_own_function {
            together(scope, &runs).into_iter().collect()
        } else {
            apart(program, scope, wanted)
        };
        let name = function.map(|function| function.name.as_str());
        for one in made {
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

/// The models that a function of the program calls, itself or through others, as they are written where
/// `call` calls it. Functions in `seen` are not gone into again.
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
        let called = match models.is_one(&name) {
            true => vec![Some(name)],
            false => called_by(program, models, inner, one, seen),
        };
        for model in called {
            let model =
                model.and_then(|model| outside(program, (module, call), (inner, body), &model));
            if !found.contains(&model) {
                found.push(model);
            }
        }
    }
    found
}

/// What a variable of a function is called where `call` calls this function: what it was given, or one of
/// what is around both.
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
        // Nothing else may go by that name.
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
        // A decorator may say that a method is none, and `Trainer.step(trainer, x)` gives all of them.
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

/// The calls of a function that only validates: the statements of the innermost block that all are in.
fn together<'a>(scope: Scope, runs: &[Run<'a>]) -> Option<Validation<'a>> {
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

/// The calls in code that trains as well, each by itself: the loop over data of validation, or the
/// call's own statement.
fn apart<'a, 'r>(
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

/// `for x, y in val_loader:`
fn goes_over_validation(program: &Program<'_>, module: usize, statement: Node<'_>) -> bool {
    let over = statement.field(Field::Right);
    over.is_some_and(|over| speaks_of_it(&written(program.module(module), over)))
}

/// `validate`, `evaluate_model`, `val_loader`.
fn speaks_of_it(name: &str) -> bool {
    let lower = name.to_lowercase();
    is_for_validation(name) || ["validat", "evaluat"].iter().any(|part| lower.contains(part))
}

/// Whether the line of a function's `def` is one of those that are wanted.
fn touches_def(program: &Program<'_>, at: &Wanted<'_>, (module, function): Scope) -> bool {
    let text = program.module(module);
    let function = function.and_then(|at| text.functions.lookup(at));
    let node = function.and_then(|function| text.node(&function.span));
    let name = node.and_then(|node| node.field(Field::Name));
    name.is_some_and(|name| at.meets(program, module, name))
}

/// What needs gradients, or steps by them.
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

/// The `forward` of a model that asks for gradients itself, as where forces are those of an energy: its
/// module and place. It needs them in validation, too.
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

/// Whether something in a node goes back or steps; also in functions of the program that it calls.
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
            // A `step` of the program's own may be that of a batch: the loss of it, and no more.
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
