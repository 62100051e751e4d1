//! `ridgeline analyze`.
use super::AnalyzeArgs;
use super::exit::Failure;
use super::terminal::Terminal;
pub fn run(args: &AnalyzeArgs, _terminal: &Terminal) -> Result<(), Failure> {
    Err(Failure::failed(format!("{}: not read yet", args.trace.display()), ""))
}
