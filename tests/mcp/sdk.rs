//! The Model Context Protocol's own Python SDK as a client (`loop.py`): it lists and calls every tool, and takes
//! planted projects from faulty to clean. RIDGELINE_MCP_PYTHON names a Python that has the package `mcp`; `tests/run`
//! makes one.

use std::path::Path;
use std::process::Command;

use super::client::planted;
use crate::sandbox::{Sandbox, python_with_torch, repository, run_to_end};

/// Planted faults that a patch of the tool `findings` fixes.
const FIXABLE: [&str; 2] = ["unfused-optimizer", "bias-before-batch-norm"];

#[test]
fn an_agent_fixes_planted_projects_with_the_tools_only() {
    let Some(sdk) = std::env::var_os("RIDGELINE_MCP_PYTHON") else {
        println!("skipped: no Python with the package `mcp` (set RIDGELINE_MCP_PYTHON)");
        return;
    };
    let Some(python) = python_with_torch() else { return };
    for rule in FIXABLE {
        let sandbox: Sandbox = planted(rule);
        let mut command = Command::new(&sdk);
        command
            .arg(repository().join("tests/mcp/loop.py"))
            .args([env!("CARGO_BIN_EXE_ridgeline"), rule])
            .current_dir(sandbox.project())
            .env("RIDGELINE_CACHE_DIR", sandbox.path("cache"))
            .env("RIDGELINE_STATE_DIR", sandbox.path("state"))
            .env("VIRTUAL_ENV", python.parent().and_then(Path::parent).expect("an environment"));
        run_to_end(&mut command).exits_with(0).stdout_contains("clean after 1 patch");
    }
}
