//! The operations that a test needs from a terminal editor, and a session in one.

use std::path::{Path, PathBuf};

use crate::editors::installed::Installed;
use crate::editors::sandbox::Sandbox;
use crate::editors::terminal::{Screen, Terminal};

/// A terminal editor, driven by key presses.
pub(super) trait Editor {
    /// The name, also used for screenshots.
    fn name(&self) -> &str;
    /// The files in the editors' folder that it needs.
    fn needs(&self) -> Vec<String>;
    /// Writes its configuration. Returns the command that opens `train.py`.
    fn set_up(&self, installed: &Installed, sandbox: &Sandbox) -> Vec<String>;
    /// Waits for the editor to start and show the text.
    fn begin(&self, _terminal: &Terminal) {}
    /// Saves the text.
    fn save(&self, terminal: &Terminal);
    /// Waits until it asks for permission to run. Returns the screen.
    fn wait_for_question(&self, terminal: &Terminal) -> Screen {
        terminal.wait_for("Run a few training")
    }
    /// Trusts the workspace.
    fn allow(&self, terminal: &Terminal);
    /// Moves the cursor to the first non-blank character of a line.
    fn go_to(&self, terminal: &Terminal, line: u32);
    /// Inserts a line below another one, with the same indentation.
    fn insert_below(&self, terminal: &Terminal, line: u32, text: &str);
    /// Deletes a line.
    fn delete(&self, terminal: &Terminal, line: u32);
    /// Shows the hover of the cursor's line.
    fn hover(&self, terminal: &Terminal);
    /// Lets go of that.
    fn close_hover(&self, terminal: &Terminal);
    /// Shows the diagnostic at the cursor's line, if the editor does not do so by itself.
    fn show_failure(&self, _terminal: &Terminal) {}
    /// Lets go of that.
    fn close_failure(&self, _terminal: &Terminal) {}
    /// Runs a Ridgeline command.
    fn command(&self, terminal: &Terminal, name: &str);
    /// Returns how its status line shows the cursor's line number.
    fn at(&self, line: u32) -> String;
    /// Quits without saving.
    fn quit(&self, terminal: &Terminal);

    /// Whether it shows the progress of a run.
    fn is_running(&self, screen: &Screen) -> bool {
        screen.shows("profiling")
    }
    /// Whether it shows code lenses.
    fn shows_lenses(&self) -> bool;
    /// Makes it request hints again, in case it missed the last edit.
    fn ask_again(&self, _terminal: &Terminal) {}
    /// Whether it refreshes hints after a run, without an edit.
    fn refreshes_hints(&self) -> bool;
    /// Whether it supports `window/showDocument`.
    fn shows_documents(&self) -> bool {
        true
    }
}

/// Runs a session in an editor with a copy of a project of this repository. Afterwards quits without
/// saving, and asserts that no process is left running.
pub(super) fn in_terminal(
    editor: &dyn Editor,
    project: &str,
    session: impl FnOnce(&Terminal, &Sandbox),
) {
    let mut needed = editor.needs();
    needed.push("tools/tmux".to_owned());
    let Some(installed) = Installed::with(&needed) else { return };
    let sandbox = Sandbox::with_project(&repository(project), &installed.environment);
    let program = editor.set_up(&installed, &sandbox);
    let tmux = installed.path("tools/tmux");
    let terminal = Terminal::start(tmux, &sandbox, editor.name(), &program);
    session(&terminal, &sandbox);
    editor.quit(&terminal);
    terminal.wait_for_end();
    sandbox.assert_everything_ended();
}

/// Returns a folder of this repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}
