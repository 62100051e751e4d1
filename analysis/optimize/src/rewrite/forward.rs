//! The training step: the calls of `backward()`, and the statements that lead to each loss.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeSet;

use tree_sitter::Node;

use super::Refusal;
use super::frameworks;
use super::models::Models;
use super::program::{Program, Scope};
use super::syntax::{callee, calls_in, object_of, reads, statement_of, targets, writes};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::last_name;

/// One `loss.backward()`.
#[derive(Clone, Debug)]
pub struct Backward<'a> {
    pub scope: Scope,
    pub call: Node<'a>,
    /// The loss expression.
    pub loss: Node<'a>,
    pub statement: Node<'a>,
}

/// Objects whose `backward` takes the loss as an argument.
const ENGINES: [&str; 4] = ["accelerator", "fabric", "engine", "model_engine"];

/// Finds the calls of `backward()` in code that runs.
///
/// # Errors
/// Fails if there are none.
pub fn backwards<'a>(program: &Program<'a>) -> Result<Vec<Backward<'a>>, Refusal> {
    let mut found = Vec::new();
    for (module, call) in program.calls().filter(|(_, call)| call.name() == "backward") {
        let text = program.module(module);
        let Some(node) = program.node(module, call) else { continue };
        let (Some(loss), Some(statement)) = (object_of(text, node, "backward"), statement_of(node))
        else {
            continue;
        };
        let owner = text.text(&loss.byte_range());
        // `accelerator.backward(loss)`
        let given = program.arguments(module, node).and_then(|one| one.positional.first().copied());
        let is_engine = ENGINES.contains(&last_name(owner));
        let loss = given.filter(|_| is_engine).unwrap_or(loss);
        if program.absolute(module, owner).starts_with("torch.") {
            let why = "calls torch.autograd.backward, which is not supported by this edit";
            return Err(program.refuse(module, call.span.start, why));
        }
        found.push(Backward { scope: (module, call.function), call: node, loss, statement });
    }
    if found.is_empty() {
        let why = frameworks::loop_of(program)
            .unwrap_or_else(|| "no training loop with a backward() call was found".to_owned());
        return Err(Refusal::NotUnderstood(why));
    }
    Ok(found)
}

/// The statements of the forward pass and the loss.
#[derive(Debug, Default)]
pub struct Forward<'a> {
    /// Runs of consecutive statements.
    pub runs: Vec<Run<'a>>,
    /// Backward passes whose loss is computed in the same expression.
    pub inline: Vec<Backward<'a>>,
}

/// Consecutive statements of one block.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    pub scope: Scope,
    pub first: Node<'a>,
    pub last: Node<'a>,
}

/// Finds the forward pass and the loss of every backward pass.
///
/// # Errors
/// Fails if the statements that lead to a loss are not in the function of its `backward()`.
pub fn forward<'a>(
    program: &Program<'a>,
    models: &Models,
    backwards: &[Backward<'a>],
) -> Result<Forward<'a>, Refusal> {
    let mut forward = Forward::default();
    let mut statements: Vec<(Scope, Node<'a>)> = Vec::new();
    for backward in backwards {
        let module = backward.scope.0;
        let own = leading_to(program, models, backward);
        for one in &own {
            if !statements.iter().any(|(_, known)| known.id() == one.id()) {
                statements.push((backward.scope, *one));
            }
        }
        if models.are_used_by(program, module, backward.loss) {
            forward.inline.push(backward.clone());
        } else if own.is_empty() {
            let why = "calls backward() on a loss computed in another function";
            return Err(program.refuse(module, backward.call.start_byte(), why));
        }
        check_complete(program, models, backward, &own)?;
    }
    statements.sort_by_key(|(scope, one)| (scope.0, one.start_byte()));
    for (scope, one) in statements {
        match forward.runs.last_mut().filter(|run| continues(program, run, one)) {
            Some(run) => run.last = one,
            None => forward.runs.push(Run { scope, first: one, last: one }),
        }
    }
    Ok(forward)
}

/// Whether a statement can join the block of those before it: there is no optimizer call and no
/// backward pass in between.
fn continues(program: &Program<'_>, run: &Run<'_>, next: Node<'_>) -> bool {
    let same_block = run.last.parent().map(|one| one.id()) == next.parent().map(|one| one.id());
    if !same_block || next.start_byte() < run.last.end_byte() {
        return false;
    }
    let mut between = run.last.next_named_sibling();
    while let Some(one) = between.filter(|one| one.id() != next.id()) {
        if is_of_the_optimizer(program, run.scope.0, one) {
            return false;
        }
        between = one.next_named_sibling();
    }
    true
}

/// Whether a statement runs a backward pass, steps, or clears gradients.
pub fn is_of_the_optimizer(program: &Program<'_>, module: usize, node: Node<'_>) -> bool {
    let text = program.module(module);
    calls_in(node).into_iter().any(|call| {
        let name = callee(text, call);
        ["backward", "step", "zero_grad"]
            .iter()
            .any(|method| name.rsplit_once('.').is_some_and(|(_, last)| last == *method))
    })
}

/// Returns the statements of its function that a loss depends on, in text order, without those
/// before the loop in which the model is called.
pub fn needed_by<'a>(
    program: &Program<'a>,
    models: &Models,
    backward: &Backward<'a>,
) -> Vec<Node<'a>> {
    let module = backward.scope.0;
    let text = program.module(module);
    let mut needed: BTreeSet<String> = reads(text, backward.loss);
    let mut slice: Vec<Node<'a>> = Vec::new();
    let mut at = backward.statement;
    while let Some(block) = at.parent() {
        let before: Vec<Node<'a>> = named_children(block)
            .into_iter()
            .take_while(|one| one.start_byte() < at.start_byte())
            .collect();
        for one in before.into_iter().rev() {
            let written = writes(text, one);
            if written.is_disjoint(&needed) || is_definition(one) {
                continue;
            }
            if is_of_the_optimizer(program, module, one) {
                // Another step, which has its own forward pass.
                continue;
            }
            if let Some(plain) = plain_assignment(one) {
                let left = plain.field(Field::Left);
                for name in left.map(|left| targets(text, left)).unwrap_or_default() {
                    needed.remove(&name);
                }
            }
            needed.extend(reads(text, one));
            slice.push(one);
        }
        let has_model = slice.iter().any(|one| models.are_used_by(program, module, *one));
        let Some(around) = block.parent().and_then(|_| statement_of(block)) else { break };
        let is_end = matches!(
            Kind::of(&around),
            Kind::FunctionDefinition | Kind::DecoratedDefinition | Kind::ClassDefinition
        ) || block.parent().is_some_and(|parent| parent.is(Kind::FunctionDefinition));
        let is_loop = matches!(Kind::of(&around), Kind::ForStatement | Kind::WhileStatement);
        if is_end || (is_loop && has_model) {
            break;
        }
        at = around;
    }
    slice.reverse();
    slice.sort_by_key(|one| one.start_byte());
    slice
}

/// Returns the statements from the first model call to the loss, in text order.
fn leading_to<'a>(
    program: &Program<'a>,
    models: &Models,
    backward: &Backward<'a>,
) -> Vec<Node<'a>> {
    let module = backward.scope.0;
    let text = program.module(module);
    // Variables that depend on a model's output.
    let mut from_models: BTreeSet<String> = BTreeSet::new();
    let mut found = Vec::new();
    for one in needed_by(program, models, backward) {
        let uses = models.are_used_by(program, module, one);
        if uses || !reads(text, one).is_disjoint(&from_models) {
            from_models.extend(writes(text, one));
            found.push(one);
        }
    }
    // Statements that only wrap a model, such as `model = torch.compile(model)`, are not part of
    // the forward pass.
    let first = found.iter().position(|one| !assigns_a_model(models, program, module, *one));
    found.split_off(first.unwrap_or(found.len()))
}

/// Whether a statement is `model = wrap(model)`.
fn assigns_a_model(models: &Models, program: &Program<'_>, module: usize, node: Node<'_>) -> bool {
    let text = program.module(module);
    let Some(plain) = plain_assignment(node) else { return false };
    let left = plain.field(Field::Left).map(|left| super::syntax::written(text, left));
    left.is_some_and(|left| models.is_one(&left))
}

/// Fails if a part of the forward pass is in another method, such as the computation of
/// `self.fake`.
fn check_complete(
    program: &Program<'_>,
    models: &Models,
    backward: &Backward<'_>,
    own: &[Node<'_>],
) -> Result<(), Refusal> {
    let (module, function) = backward.scope;
    let text = program.module(module);
    let class = program.class_of(backward.scope);
    let mut read = reads(text, backward.loss);
    for one in own {
        read.extend(reads(text, *one));
    }
    let given: BTreeSet<String> = own.iter().flat_map(|one| writes(text, *one)).collect();
    for name in read.iter().filter(|name| name.starts_with("self.") && !given.contains(*name)) {
        let elsewhere = text.assignments.iter().find(|one| {
            one.target == **name
                && one.function != function
                && program.class_of((module, one.function)) == class
                && one.function.is_some_and(|at| text.functions[at].name != "__init__")
                && text
                    .node(&one.value)
                    .is_some_and(|value| models.are_used_by(program, module, value))
        });
        if let Some(one) = elsewhere {
            let what = format!("computes `{name}`, which the loss depends on, in another function");
            return Err(program.refuse(module, one.at.start, &what));
        }
    }
    Ok(())
}

/// Returns the assignment of a statement if it replaces the whole value of its target.
fn plain_assignment(statement: Node<'_>) -> Option<Node<'_>> {
    let inner = statement.named_child(0).filter(|_| statement.is(Kind::ExpressionStatement))?;
    let left = inner.field(Field::Left).filter(|_| inner.is(Kind::Assignment))?;
    (!left.is(Kind::Subscript)).then_some(inner)
}

fn is_definition(node: Node<'_>) -> bool {
    matches!(
        Kind::of(&node),
        Kind::FunctionDefinition | Kind::ClassDefinition | Kind::DecoratedDefinition
    )
}
