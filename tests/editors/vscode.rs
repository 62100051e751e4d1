//! VS Code: in its extension host, through its window, and installed from a package. The drivers in
//! `vscode/` start its server and a Chromium, and report failures.

use std::path::Path;
use std::process::Command;

use crate::editors::installed::Installed;

const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/editors/vscode");

#[test]
fn vscode_extension_host() {
    drive("exthost.mjs");
}

#[test]
fn vscode_window() {
    drive("window.mjs");
}

#[test]
fn vscode_behind_a_proxy() {
    drive("proxied.mjs");
}

#[test]
fn vscode_notebook() {
    drive("notebook.mjs");
}

#[test]
fn vscode_package() {
    drive("package.mjs");
}

/// Runs a driver to its end. Drivers have their own deadlines and end the processes they started.
fn drive(driver: &str) {
    let node = "node/bin/node";
    let needed = [
        node,
        "code-server/node_modules",
        "code-server/lib/vscode/out/server-main.js",
        "playwright/node_modules/playwright-core",
        "tools/chromium",
    ];
    let Some(installed) = Installed::with(&needed) else { return };
    let output = Command::new(installed.path(node))
        .arg(Path::new(DRIVERS).join(driver))
        .env("RIDGELINE_BINARY", env!("CARGO_BIN_EXE_ridgeline"))
        .env("RIDGELINE_TEST_PYTHON", installed.environment.join("bin/python"))
        .output()
        .expect("node runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    // A driver that ran no checks is a failure.
    assert!(stdout.contains("ok     "), "{stdout}{stderr}");
}
