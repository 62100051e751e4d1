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

/// A recorded run is shown before torch is installed.
#[test]
fn the_demo_without_python_shows_a_recorded_run_and_says_what_it_needs() {
    let sandbox = Sandbox::new();
    let result = sandbox.run_without_python(&["demo"]).exits_with(4).stderr_contains("no Python");
    let result = result.stdout_contains("A recorded run").stdout_contains("batch size 8");
    let report = result.stdout.lines().find_map(|line| line.strip_prefix("Report: "));
    let page = std::fs::read_to_string(report.expect("it says where")).expect("the report");
    assert!(page.contains("model.py"));
}

#[test]
fn an_installation_checks_itself_without_python() {
    let sandbox = Sandbox::new();
    let result = sandbox.run_without_python(&["self-check"]).exits_with(0);
    for part in ["Folders", "Agent", "Analysis", "Language server", "Panel"] {
        let line = result.stdout.lines().find(|line| line.starts_with(part));
        assert!(line.is_some_and(|line| line.contains(" ok: ")), "{part}: {}", result.stdout);
    }
    // A file where a folder should be.
    sandbox.write("not-a-folder", "");
    let mut command = sandbox.ridgeline();
    command.arg("self-check").env("RIDGELINE_STATE_DIR", sandbox.project().join("not-a-folder"));
    run_to_end(&mut command).exits_with(1).stderr_contains("Folders");
}
