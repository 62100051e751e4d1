//! The binary `ridgeline`: all of it is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ridgeline_server::main()
}
