//! `ridgeline demo`.

use super::DemoArgs;
use super::exit::Failure;
use super::terminal::Terminal;

/// Runs the subcommand.
pub fn run(args: &DemoArgs, _terminal: &Terminal) -> Result<(), Failure> {
    Err(Failure::failed(format!("not there yet: {args:?}"), ""))
}
