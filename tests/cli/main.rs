//! Drives the built `ridgeline` from outside, as a person at a terminal or a script does.

use std::process::Command;

fn ridgeline() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ridgeline"))
}

#[test]
fn help_names_the_exit_codes() {
    let output = ridgeline().arg("--help").output().expect("ridgeline starts");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("Exit codes:"));
}
