//! `ridgeline`: a language server and a command line that show what each line of PyTorch training
//! code costs.

use std::process::ExitCode;

mod cli;
mod config;
mod discover;
mod pipeline;
mod profiler;
mod store;

fn main() -> ExitCode {
    cli::main()
}
