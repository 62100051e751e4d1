//! The loops around the training step: over batches and over epochs.

use ridgeline_python::semantics::call_sites::calls_of;
use ridgeline_python::semantics::module::{Assignment, Branch, Module, last_name};
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeSet;
use tree_sitter::Node;

use super::super::Refusal;
use super::super::forward::Backward;
use super::super::models::Models;
use super::super::origins::origins;
use super::super::program::{Program, Scope};
use super::super::syntax::{callee, calls_in, everything, reads, statement_of, targets, written};
use super::sampler::Sharded;

/// The maximum number of callers followed from the training step.
const MAX_DEPTH: u32 = 4;

/// The loop over epochs.
pub(super) struct EpochLoop<'a> {
    pub module: usize,
    pub node: Node<'a>,
    /// The variable of the loader in it.
    pub loader: String,
}

/// The loops around the training step.
pub(super) struct Loops<'a> {
    /// `None` if the program goes through the loader once.
    pub epochs: Option<EpochLoop<'a>>,
}

impl<'a> Loops<'a> {
    /// Finds the loops. Each process has to take the same number of steps.
    pub(super) fn around(
        program: &Program<'a>,
        backward: &Backward<'a>,
        sharded: &Sharded<'a>,
    ) -> Result<Loops<'a>, Refusal> {
        let (module, _) = backward.scope;
        let mut scope = backward.scope;
        let mut at = backward.call;
        let mut loader: Option<String> = None;
        for _ in 0..MAX_DEPTH {
            let around = loops_around(at);
            if let Some(outermost) = around.last() {
                check_same_steps(program, scope.0, *outermost, at)?;
            }
            let mut around = around.into_iter();
            if loader.is_none() {
                loader = around.find_map(|one| iterated(program, scope, one, sharded));
            }
            if let (Some(loader), Some(node)) = (&loader, around.next()) {
                let epochs = EpochLoop { module: scope.0, node, loader: loader.clone() };
                return Ok(Loops { epochs: Some(epochs) });
            }
            let Some((caller, call, name)) = caller(program, scope, loader.as_deref())? else {
                break;
            };
            (scope, at, loader) = (caller, call, name);
        }
        match loader {
            Some(_) => Ok(Loops { epochs: None }),
            None => {
                let what = "is not in a `for` loop over the DataLoader";
                Err(program.refuse(module, backward.call.start_byte(), what))
            }
        }
    }
}

/// Whether a call is in a loop that another one after it is not in.
pub(super) fn is_in_inner_loop(call: Node<'_>, other: Node<'_>) -> bool {
    let is_comprehension = |node: &Node<'_>| {
        matches!(
            Kind::of(node),
            Kind::ListComprehension
                | Kind::GeneratorExpression
                | Kind::DictionaryComprehension
                | Kind::SetComprehension
        )
    };
    let mut at = call.parent();
    while let Some(node) = at.filter(|node| !node.byte_range().contains(&other.start_byte())) {
        if is_loop(node) || is_comprehension(&node) {
            return true;
        }
        at = node.parent();
    }
    false
}

fn is_loop(node: Node<'_>) -> bool {
    matches!(Kind::of(&node), Kind::ForStatement | Kind::WhileStatement)
}

/// Returns the loops around a node in its function, innermost first.
fn loops_around(node: Node<'_>) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    let mut at = node.parent();
    while let Some(node) = at.filter(|node| !node.is(Kind::FunctionDefinition)) {
        if is_loop(node) {
            found.push(node);
        }
        at = node.parent();
    }
    found
}

/// Returns the loader's variable if a loop goes through its batches.
fn iterated<'a>(
    program: &Program<'a>,
    scope: Scope,
    node: Node<'a>,
    sharded: &Sharded<'a>,
) -> Option<String> {
    let text = program.module(scope.0);
    let iterable = node.field(Field::Right).filter(|_| node.is(Kind::ForStatement))?;
    reads(text, iterable).into_iter().find(|name| {
        let found = origins(program, scope, name, node.start_byte()).unwrap_or_default();
        found.iter().any(|origin| sharded.is_made_by(program, origin))
    })
}

/// The call of a function, and the name of its loader there.
type Caller<'a> = (Scope, Node<'a>, Option<String>);

/// Finds the only call of a function.
fn caller<'a>(
    program: &Program<'a>,
    (module, function): Scope,
    loader: Option<&str>,
) -> Result<Option<Caller<'a>>, Refusal> {
    let text = program.module(module);
    let Some(function) = function.and_then(|at| text.functions.lookup(at)) else { return Ok(None) };
    let sites = calls_of(&program.tracer, module, &function.name);
    let mut sites = sites.iter().filter(|site| {
        let there = program.module(site.place.module).function_at(site.place.span.start);
        program.is_reached((site.place.module, there))
    });
    let Some(site) = sites.next() else { return Ok(None) };
    if sites.next().is_some() {
        let what = format!("calls `{}` in several places", function.name);
        return Err(program.refuse(site.place.module, site.place.span.start, &what));
    }
    let there = site.place.module;
    let Some(call) = program.module(there).node(&site.place.span) else { return Ok(None) };
    let scope = (there, program.module(there).function_at(call.start_byte()));
    let Some(loader) = loader else { return Ok(Some((scope, call, None))) };
    let position = function.parameters.iter().position(|one| one.name == loader);
    let Some(position) = position else {
        // An attribute of the same class, or a variable of the module.
        let is_same = match loader.starts_with("self.") {
            true => program.class_of(scope) == function.class,
            false => there == module,
        };
        return match is_same {
            true => Ok(Some((scope, call, Some(loader.to_owned())))),
            false => Ok(None),
        };
    };
    let given = program.arguments(there, call).and_then(|arguments| {
        let skipped = usize::from(function.class.is_some());
        let by_place = || arguments.positional.get(position.checked_sub(skipped)?).copied();
        arguments.named(loader).or_else(by_place)
    });
    let given = given.filter(|one| matches!(Kind::of(one), Kind::Identifier | Kind::Attribute));
    match given {
        Some(given) => Ok(Some((scope, call, Some(written(program.module(there), given))))),
        None if loops_around(call).is_empty() => Ok(None),
        None => {
            Err(program.refuse(there, call.start_byte(), "passes the DataLoader in another form"))
        }
    }
}

/// Rejects loops that end, or skip a step, by a value that may differ between the processes: the others would wait.
fn check_same_steps(
    program: &Program<'_>,
    module: usize,
    outermost: Node<'_>,
    step: Node<'_>,
) -> Result<(), Refusal> {
    let text = program.module(module);
    let models = Models::of(program);
    for node in everything(outermost) {
        let kind = Kind::of(&node);
        let leaves =
            matches!(kind, Kind::BreakStatement | Kind::ContinueStatement | Kind::ReturnStatement);
        let is_step = node.id() == step.id()
            || (kind == Kind::Call && last_name(&callee(text, node)) == "step");
        // A call of the model waits for the other processes, too: they synchronize its buffers.
        let calls_model = || kind == Kind::Call && calls_a_model(program, &models, module, node);
        if !(leaves || is_step || calls_model()) {
            continue;
        }
        let mut around = node.parent();
        while let Some(one) = around.filter(|one| one.id() != outermost.id()) {
            let condition = one.field(Field::Condition);
            if condition.is_some_and(|condition| !is_same_for_all(text, outermost, condition, 0)) {
                let what = "depends on a value that may differ between processes, and the others would wait";
                return Err(program.refuse(module, node.start_byte(), what));
            }
            if one.is(Kind::TryStatement) {
                let what =
                    "is in a `try` block: a process that skips a step would make the others wait";
                return Err(program.refuse(module, node.start_byte(), what));
            }
            around = one.parent();
        }
    }
    Ok(())
}

/// Whether a call is one of a model, or of a function that calls one.
fn calls_a_model(program: &Program<'_>, models: &Models, module: usize, node: Node<'_>) -> bool {
    let calls = models.calls(program, module, node);
    calls.into_iter().any(|(there, call)| models.is_one(&callee(program.module(there), call)))
}

/// Whether a condition only reads loop counters and values from before the loop.
fn is_same_for_all(text: &Module, outermost: Node<'_>, condition: Node<'_>, depth: u32) -> bool {
    let span = outermost.byte_range();
    let names = reads(text, condition);
    let is_inside = |branch: &&Branch| span.contains(&branch.condition.start);
    // A counter, which all processes count under the same conditions.
    let is_counted = |one: &Assignment| {
        let is_number = text.node(&one.value).is_some_and(|value| value.is(Kind::Integer));
        is_number
            && depth < MAX_DEPTH
            && one.branches.iter().filter(is_inside).all(|branch| {
                let around = text.node(&branch.condition);
                around.is_some_and(|around| is_same_for_all(text, outermost, around, depth + 1))
            })
    };
    let is_changed = text
        .assignments
        .iter()
        .any(|one| span.contains(&one.at.start) && names.contains(&one.target) && !is_counted(one));
    let only_plain = calls_in(condition).iter().all(|call| callee(text, *call) == "len");
    !is_changed && only_plain && names.is_disjoint(&elements(text, outermost))
}

/// Returns the loop variables that are not counters.
fn elements(text: &Module, outermost: Node<'_>) -> BTreeSet<String> {
    let loops = everything(outermost).into_iter().filter(|node| node.is(Kind::ForStatement));
    let mut found = BTreeSet::new();
    for one in loops {
        let (Some(left), Some(right)) = (one.field(Field::Left), one.field(Field::Right)) else {
            continue;
        };
        let iterable = written(text, right);
        let variables = targets(text, left);
        if iterable.starts_with("enumerate(") {
            let counter = left.named_child(0).map(|first| written(text, first));
            found.extend(variables.into_iter().filter(|name| Some(name) != counter.as_ref()));
        } else if !counts(&iterable) {
            found.extend(variables);
        }
    }
    found
}

/// Whether an iterable counts: `range(3)`, `tqdm(range(3))`.
pub(super) fn counts(iterable: &str) -> bool {
    iterable.contains("range(") || iterable.contains("count(")
}

/// Returns the statement at which a block begins.
pub(super) fn first_statement(block: Node<'_>) -> Option<Node<'_>> {
    let mut walk = block.walk();
    let mut children = block.named_children(&mut walk);
    children.find(|one| !one.is(Kind::Comment)).and_then(|one| statement_of(one).or(Some(one)))
}
