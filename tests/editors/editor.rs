//! What a test needs of an editor that runs in a terminal, and a session in one.

use std::path::{Path, PathBuf};

use crate::editors::installed::Installed;
use crate::editors::sandbox::Sandbox;
use crate::editors::terminal::{Screen, Terminal};

/// An editor, by what is pressed in it.
pub(super) trait Editor {
    /// Pictures are named after it.
    fn name(&self) -> &str;
    /// Files of the editors' folder that it needs.
    fn needs(&self) -> Vec<String>;
    /// Writes its configuration; gives the command that opens `train.py`.
    fn set_up(&self, installed: &Installed, sandbox: &Sandbox) -> Vec<String>;
    /// Leads the editor from its start to the text.
    fn begin(&self, _terminal: &Terminal) {}
    /// Saves the text.
    fn save(&self, terminal: &Terminal);
    /// Waits until it says that nothing runs without being allowed; gives the screen.
    fn asked(&self, terminal: &Terminal) -> Screen {
        terminal.wait_for("Run a few training")
    }
    /// Allows it, from now on.
    fn allow(&self, terminal: &Terminal);
    /// Moves the cursor to the first letter of a line.
    fn go_to(&self, terminal: &Terminal, line: u32);
    /// Writes a line below another one, indented like it.
    fn insert_below(&self, terminal: &Terminal, line: u32, text: &str);
    /// Deletes a line.
    fn delete(&self, terminal: &Terminal, line: u32);
    /// Shows what is known of the cursor's line.
    fn hover(&self, terminal: &Terminal);
    /// Lets go of that.
    fn close_hover(&self, terminal: &Terminal);
    /// Shows why the cursor's line failed, where the editor does not by itself.
    fn show_failure(&self, _terminal: &Terminal) {}
    /// Lets go of that.
    fn close_failure(&self, _terminal: &Terminal) {}
    /// Runs a command of Ridgeline's.
    fn command(&self, terminal: &Terminal, name: &str);
    /// How its status line tells that the cursor is on a line.
    fn at(&self, line: u32) -> String;
    /// Leaves it with everything unsaved.
    fn quit(&self, terminal: &Terminal);

    /// Whether it shows that a run goes on.
    fn is_running(&self, screen: &Screen) -> bool {
        screen.shows("profiling")
    }
    /// It shows lenses.
    fn shows_lenses(&self) -> bool;
    /// Has it ask for hints again, where it may have missed the last edit.
    fn ask_again(&self, _terminal: &Terminal) {}
    /// It draws hints anew when a run has ended, without an edit.
    fn refreshes_hints(&self) -> bool;
    /// It takes `window/showDocument`.
    fn shows_documents(&self) -> bool {
        true
    }
}

/// A session in an editor with a copy of a project of this repository. The editor is left afterwards with
/// everything unsaved, and nothing goes on then.
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

/// A folder of this repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}
