//! One argument of a call that is on or off: `pin_memory=True`.

use tree_sitter::Node;

use super::Refusal;
use super::edits::Edits;
use super::program::Program;
use super::syntax::written;

/// What became of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    /// It is as wanted now.
    Set,
    /// It was so before.
    There,
    /// It is given as this, and left so.
    Given(String),
}

/// Gives a call `name=value`: adds it, or puts it in the place of the plain opposite. `given` is what
/// the call gives now, by name or by place.
///
/// # Errors
/// Where the call's arguments are not written one by one.
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
    let now = written(program.module(module), given);
    if now == opposite {
        edits.replace(module, given.byte_range(), value);
        return Ok(Argument::Set);
    }
    Ok(if now == value { Argument::There } else { Argument::Given(now) })
}
