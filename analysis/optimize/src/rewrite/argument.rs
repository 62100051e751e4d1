//! Sets a boolean argument of a call: `pin_memory=True`.

use tree_sitter::Node;

use super::Refusal;
use super::edits::Edits;
use super::program::Program;
use super::syntax::written;

/// The result of setting an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    /// The argument was set.
    Set,
    /// The argument already had the value.
    AlreadySet,
    /// The argument has another value, which was not changed.
    Other(String),
}

/// Sets `name=value` in a call: adds it, or replaces the opposite literal. `given` is the current
/// value, by keyword or position.
///
/// # Errors
/// Fails if the call's arguments are not an argument list.
pub(super) fn set(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    (module, call): (usize, Node<'_>),
    (name, value): (&str, &str),
    given: Option<Node<'_>>,
) -> Result<Argument, Refusal> {
    let Some(given) = given else {
        edits.add_arguments(program, module, call, &[&format!("{name}={value}")])?;
        return Ok(Argument::Set);
    };
    let opposite = if value == "False" { "True" } else { "False" };
    let current = written(program.module(module), given);
    if current == opposite {
        edits.replace(module, given.byte_range(), value);
        return Ok(Argument::Set);
    }
    Ok(if current == value { Argument::AlreadySet } else { Argument::Other(current) })
}
