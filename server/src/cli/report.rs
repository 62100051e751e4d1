//! `ridgeline report`.

use super::ReportArgs;
use super::exit::Failure;
use super::terminal::Terminal;

/// Runs the subcommand.
pub fn run(args: &ReportArgs, _terminal: &Terminal) -> Result<(), Failure> {
    Err(Failure::failed(format!("not there yet: {args:?}"), ""))
}
