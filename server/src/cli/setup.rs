//! `ridgeline setup`.

use super::SetupArgs;
use super::exit::Failure;
use super::terminal::Terminal;

/// Runs the subcommand.
pub fn run(args: &SetupArgs, _terminal: &Terminal) -> Result<(), Failure> {
    Err(Failure::failed(format!("not there yet: {args:?}"), ""))
}
