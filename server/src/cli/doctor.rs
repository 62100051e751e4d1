//! `ridgeline doctor`.

use super::DoctorArgs;
use super::exit::Failure;
use super::terminal::Terminal;

/// Runs the subcommand.
pub fn run(args: &DoctorArgs, _terminal: &Terminal) -> Result<(), Failure> {
    Err(Failure::failed(format!("not there yet: {args:?}"), ""))
}
