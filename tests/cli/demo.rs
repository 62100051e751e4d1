//! `ridgeline demo`, in a sandbox.

use crate::sandbox::{Sandbox, python_with_torch, run_to_end};

#[test]
fn the_demo_shows_its_source_and_writes_a_report() {
    let sandbox = Sandbox::new();
    let Some(python) = python_with_torch() else { return };
    let mut command = sandbox.ridgeline();
    command.args(["demo", "--device", "cpu", "--python"]).arg(python);
    let result = run_to_end(&mut command).exits_with(0);
    let result = result.stdout_contains("loss.backward()").stdout_contains("Report: ");
    let report = result.stdout.lines().find_map(|line| line.strip_prefix("Report: "));
    let page = std::fs::read_to_string(report.expect("it says where")).expect("the report");
    assert!(page.contains("model.py"));
}

#[test]
fn the_demo_without_python_says_what_it_needs() {
    Sandbox::new().run_without_python(&["demo"]).exits_with(4).stderr_contains("no Python");
}
