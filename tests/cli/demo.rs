//! `ridgeline demo`, in a sandbox.

use crate::sandbox::{Sandbox, ended, python_with_torch};

#[test]
fn the_demo_shows_its_source_and_writes_a_report() {
    let sandbox = Sandbox::new();
    let Some(python) = python_with_torch() else { return };
    let mut command = sandbox.ridgeline();
    command.args(["demo", "--device", "cpu", "--python"]).arg(python);
    let ended = ended(&mut command).exits_with(0);
    let ended = ended.prints("loss.backward()").prints("Report: ");
    let report = ended.stdout.lines().find_map(|line| line.strip_prefix("Report: "));
    let page = std::fs::read_to_string(report.expect("it says where")).expect("the report");
    assert!(page.contains("model.py"));
}

#[test]
fn the_demo_without_python_says_what_it_needs() {
    Sandbox::new().run_without_python(&["demo"]).exits_with(4).says("no Python");
}
