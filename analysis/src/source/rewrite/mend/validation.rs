//! Where a program validates: loops that call a model and never go back.

use tree_sitter::Node;

use super::super::super::batch_site::batch_names::is_for_validation;
use super::super::super::batch_site::module::Module;
use super::super::models::Models;
use super::super::program::{Program, Scope};
use super::super::syntax::{callee, calls_in, written};
use super::Wanted;

/// One loop that validates.
pub(super) struct Validation<'a> {
    pub scope: Scope,
    /// The `for` statement.
    pub statement: Node<'a>,
    /// The models that are called there, as they are written.
    pub models: Vec<String>,
    /// Nothing of the function around it goes back or steps.
    pub has_own_function: bool,
}

/// The loops that validate, of those that are wanted: at one of the lines, or by their names.
pub(super) fn validations<'a>(program: &Program<'a>, at: &Wanted<'_>) -> Vec<Validation<'a>> {
    let models = Models::of(program);
    let mut found: Vec<Validation<'a>> = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        for one in &text.loops {
            let scope = (module, one.function);
            let Some(statement) = statement(text, one.span.start)
                .filter(|node| node.kind() == "for_statement" && program.is_reached(scope))
            else {
                continue;
            };
            let function = one.function.and_then(|at| text.functions.get(at));
            let iterable = one.iterable.as_ref().map(|span| text.text(span)).unwrap_or_default();
            let is_named = speaks_of_it(iterable)
                || function.is_some_and(|function| speaks_of_it(&function.name));
            let is_within = found.iter().any(|outer| {
                outer.scope == scope && outer.statement.byte_range().contains(&one.span.start)
            });
            let is_wanted = match at.is_anywhere() {
                true => is_named,
                false => at.meets(program, module, statement) || touches_def(program, at, scope),
            };
            if !is_wanted || is_within || trains(text, statement) {
                continue;
            }
            let names = called_models(program, &models, module, statement);
            if names.is_empty() {
                continue;
            }
            let has_own_function = function
                .and_then(|function| text.node(&function.body))
                .is_some_and(|body| !trains(text, body));
            found.push(Validation { scope, statement, models: names, has_own_function });
        }
    }
    found
}

/// `validate`, `evaluate_model`, `val_loader`.
fn speaks_of_it(name: &str) -> bool {
    let lower = name.to_lowercase();
    is_for_validation(name) || ["validat", "evaluat"].iter().any(|part| lower.contains(part))
}

/// Whether the line of a function's `def` is one of those that are wanted.
fn touches_def(program: &Program<'_>, at: &Wanted<'_>, (module, function): Scope) -> bool {
    let text = program.module(module);
    let function = function.and_then(|at| text.functions.get(at));
    let node = function.and_then(|function| text.node(&function.span));
    let name = node.and_then(|node| node.child_by_field_name("name"));
    name.is_some_and(|name| at.meets(program, module, name))
}

fn statement(text: &Module, start: usize) -> Option<Node<'_>> {
    let root = text.index.tree()?.root_node();
    let node = root.descendant_for_byte_range(start, start.saturating_add(1))?;
    std::iter::successors(Some(node), |node| node.parent())
        .take(8)
        .find(|node| node.kind() == "for_statement" && node.start_byte() == start)
}

/// Whether something in a node goes back or steps.
fn trains(text: &Module, node: Node<'_>) -> bool {
    calls_in(node).into_iter().any(|call| {
        let name = callee(text, call);
        matches!(name.rsplit('.').next(), Some("backward" | "step" | "zero_grad"))
    })
}

/// The models that a loop calls by their names.
fn called_models(
    program: &Program<'_>,
    models: &Models,
    module: usize,
    statement: Node<'_>,
) -> Vec<String> {
    let text = program.module(module);
    let mut names: Vec<String> = Vec::new();
    for call in calls_in(statement) {
        let function = call.child_by_field_name("function");
        let name = function.map(|function| written(text, function)).unwrap_or_default();
        if models.is_one(&name) && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
