//! The statements of one block that compute a variable, read backwards.

use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::Module;
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::syntax::{mentions, writes, written};

/// The maximum number of statements read.
const MAX_STATEMENTS: usize = 64;

/// A change of a variable by one statement.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    /// `x = value`
    Assigned(Node<'a>),
    /// `x *= value`, with the operator
    Augmented(Node<'a>, Node<'a>),
    /// `x.masked_fill_(…)`: the call
    InPlace(Node<'a>),
}

/// The last change of a variable before a statement.
pub(super) struct LastChange<'a> {
    pub change: Change<'a>,
    /// The statement, a sibling of the one that follows.
    pub statement: Node<'a>,
    /// The condition, if the change is all that an `if` does.
    pub condition: Option<Node<'a>>,
}

/// Finds the last change of a variable before a statement, in the same block.
pub(super) fn last_change<'a>(
    text: &Module,
    name: &str,
    before: Node<'a>,
) -> Option<LastChange<'a>> {
    let mut next = before.prev_named_sibling();
    for _ in 0..MAX_STATEMENTS {
        let statement = next?;
        next = statement.prev_named_sibling();
        if let Some(change) = change(text, name, statement) {
            return Some(LastChange { change, statement, condition: None });
        }
        if let Some((condition, inner)) = only_statement(statement)
            && let Some(change) = change(text, name, inner)
        {
            return Some(LastChange { change, statement, condition: Some(condition) });
        }
        if writes(text, statement).contains(name) {
            return None;
        }
    }
    None
}

/// The change that a statement makes, if that is all it does.
fn change<'a>(text: &Module, name: &str, statement: Node<'a>) -> Option<Change<'a>> {
    let inner = Some(statement).filter(|one| one.is(Kind::ExpressionStatement))?.named_child(0)?;
    let is_it = |node: Node<'a>| node.is(Kind::Identifier) && written(text, node) == name;
    match Kind::of(&inner) {
        Kind::Assignment => {
            let value = inner.field(Field::Right).filter(|value| !value.is(Kind::Assignment))?;
            inner.field(Field::Left).filter(|left| is_it(*left))?;
            Some(Change::Assigned(value))
        }
        Kind::AugmentedAssignment => {
            inner.field(Field::Left).filter(|left| is_it(*left))?;
            Some(Change::Augmented(inner.field(Field::Operator)?, inner.field(Field::Right)?))
        }
        Kind::Call => {
            let function = inner.field(Field::Function)?;
            function.field(Field::Object).filter(|object| is_it(*object))?;
            let method = function.field(Field::Attribute)?;
            text.text(&method.byte_range()).ends_with('_').then_some(Change::InPlace(inner))
        }
        _ => None,
    }
}

/// The condition of an `if` without `else`, and its only statement.
fn only_statement(statement: Node<'_>) -> Option<(Node<'_>, Node<'_>)> {
    let statement = Some(statement).filter(|one| one.is(Kind::IfStatement))?;
    if statement.child_by_field_name("alternative").is_some() {
        return None;
    }
    let block = named_children(statement.field(Field::Consequence)?);
    let mut inner = block.into_iter().filter(|one| !one.is(Kind::Comment));
    let only = inner.next().filter(|_| inner.next().is_none())?;
    Some((statement.field(Field::Condition)?, only))
}

/// Whether a node mentions one of the names.
pub(super) fn mentions_any<'n>(
    text: &Module,
    node: Node<'_>,
    names: impl IntoIterator<Item = &'n String>,
) -> bool {
    let written_out = text.text(&node.byte_range());
    names.into_iter().any(|name| mentions(written_out, name))
}
