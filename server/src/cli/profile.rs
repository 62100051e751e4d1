//! `ridgeline profile`.

use super::ProfileArgs;
use super::exit::Failure;
use super::terminal::Terminal;

/// Runs the subcommand.
pub fn run(args: &ProfileArgs, _terminal: &Terminal) -> Result<(), Failure> {
    Err(Failure::failed(format!("not there yet: {args:?}"), ""))
}
