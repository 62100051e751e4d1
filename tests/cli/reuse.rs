//! `predict` and `whatif` reuse the newest profile if running the program would measure the same.

use crate::sandbox::{CommandResult, Sandbox, python_with_torch};

const TRAIN: &str = "import torch\n\
    from settings import WIDTH\n\
    model = torch.nn.Linear(8, WIDTH)\n\
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n\
    for step in range(200):\n\
    \x20   loss = model(torch.ones(4, 8)).sum()\n\
    \x20   loss.backward()\n\
    \x20   optimizer.step()\n";
const REUSED: &str = "nothing has changed since";

/// A profiled project.
struct Profiled {
    sandbox: Sandbox,
    python: String,
}

impl Profiled {
    fn new() -> Option<Profiled> {
        let python = python_with_torch()?.to_str().expect("a path").to_owned();
        let sandbox = Sandbox::new();
        sandbox.write("train.py", TRAIN);
        sandbox.write("settings.py", "WIDTH = 4\n");
        let profiled = Profiled { sandbox, python };
        profiled.run("profile", &[]).exits_with(0);
        Some(profiled)
    }

    fn run(&self, command: &str, arguments: &[&str]) -> CommandResult {
        let common = [command, "train.py", "--python", &self.python, "--device", "cpu"];
        self.sandbox.run(&[&common[..], arguments].concat())
    }
}

#[test]
fn unchanged_programs_are_not_run_again() {
    let Some(project) = Profiled::new() else { return };
    let result = project.run("predict", &["--gpu", "a100-sxm4-40gb"]).exits_with(0);
    assert!(result.stderr.contains(REUSED), "{}", result.stderr);
    let result = project.run("whatif", &[]).exits_with(0);
    assert!(result.stderr.contains(REUSED), "{}", result.stderr);
    let result = project.run("predict", &["--fresh", "--gpu", "a100-sxm4-40gb"]).exits_with(0);
    assert!(!result.stderr.contains(REUSED), "{}", result.stderr);
}

#[test]
fn changed_text_arguments_or_configuration_are_run() {
    let Some(project) = Profiled::new() else { return };
    let is_run = |arguments: &[&str]| {
        let all = [&["--gpu", "a100-sxm4-40gb"], arguments].concat();
        let result = project.run("predict", &all).exits_with(0);
        assert!(!result.stderr.contains(REUSED), "{arguments:?}: {}", result.stderr);
    };
    is_run(&["--", "--rate", "2"]);
    // No line of it runs within an iteration.
    project.sandbox.write("settings.py", "WIDTH = 6\n");
    is_run(&[]);
    project.sandbox.write("ridgeline.toml", "[environment]\nRATE = \"3\"\n");
    is_run(&[]);
}
