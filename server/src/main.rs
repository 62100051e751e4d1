//! The binary `ridgeline`. All of its code is in this package's library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ridgeline_server::main()
}
