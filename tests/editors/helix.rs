//! Helix, as `docs/editors/helix.md` configures it.

use crate::editors::documentation::blocks;
use crate::editors::editor::Editor;
use crate::editors::fixes::{FixesFindings, fix_finding};
use crate::editors::installed::Installed;
use crate::editors::journey::{has_cost, travel};
use crate::editors::sandbox::Sandbox;
use crate::editors::terminal::{Screen, Terminal};

#[test]
fn helix_stable() {
    travel(&Helix { part: "helix-stable", is_new: false });
}

#[test]
fn helix_newest() {
    travel(&Helix { part: "helix-newest", is_new: true });
}

#[test]
fn helix_stable_fixes_a_finding() {
    fix_finding(&Helix { part: "helix-stable", is_new: false });
}

#[test]
fn helix_newest_fixes_a_finding() {
    fix_finding(&Helix { part: "helix-newest", is_new: true });
}

struct Helix {
    /// Path in the editors' folder.
    part: &'static str,
    /// Whether it supports `window/showMessageRequest` and `window/showDocument` (since 25.07).
    is_new: bool,
}

impl Helix {
    fn shows_questions(&self) -> bool {
        self.is_new
    }
}

impl Editor for Helix {
    fn name(&self) -> &str {
        self.part
    }

    fn needs(&self) -> Vec<String> {
        vec![format!("{}/hx", self.part)]
    }

    fn set_up(&self, installed: &Installed, sandbox: &Sandbox) -> Vec<String> {
        let blocks = blocks("helix.md", "Configuration", "toml");
        let [languages, configuration] = blocks.as_slice() else { panic!("{blocks:?}") };
        sandbox.write("home/.config/helix/languages.toml", languages);
        sandbox.write("home/.config/helix/config.toml", configuration);
        vec![
            installed.path(&format!("{}/hx", self.part)).display().to_string(),
            "train.py".to_owned(),
        ]
    }

    fn save(&self, terminal: &Terminal) {
        typed(terminal, "write");
    }

    fn wait_for_question(&self, terminal: &Terminal) -> Screen {
        let question =
            if self.shows_questions() { "Run a few training" } else { "ridgeline.trust" };
        terminal.wait_for(question)
    }

    fn allow(&self, terminal: &Terminal) {
        if self.shows_questions() {
            terminal.press(&["Down", "Enter"]);
        } else {
            terminal.press(&["Space", "m", "a"]);
        }
    }

    fn go_to(&self, terminal: &Terminal, line: u32) {
        typed(terminal, &line.to_string());
        terminal.press(&["g", "s"]);
    }

    fn insert_below(&self, terminal: &Terminal, line: u32, text: &str) {
        typed(terminal, &line.to_string());
        terminal.press(&["o"]);
        terminal.write(text);
        terminal.press(&["Escape"]);
    }

    fn delete(&self, terminal: &Terminal, line: u32) {
        typed(terminal, &line.to_string());
        terminal.press(&["x", "d"]);
    }

    fn hover(&self, terminal: &Terminal) {
        terminal.press(&["Space", "k"]);
    }

    fn close_hover(&self, terminal: &Terminal) {
        terminal.press(&["Escape"]);
    }

    fn command(&self, terminal: &Terminal, name: &str) {
        let key = match name {
            "stop" => "s",
            "openPanel" => "o",
            other => panic!("the page has no key for {other}"),
        };
        terminal.press(&["Space", "m", key]);
    }

    fn at(&self, line: u32) -> String {
        format!(" {line}:")
    }

    fn quit(&self, terminal: &Terminal) {
        typed(terminal, "quit-all!");
    }

    fn is_running(&self, screen: &Screen) -> bool {
        // Its last line shows the progress of a run, and keeps the last message.
        let last = screen.lines().pop().unwrap_or_default();
        let end_messages = ["measured", "stopped", "the program failed"];
        let is_progress = last.starts_with("ridgeline: ") || last.starts_with("[ridgeline/run/");
        is_progress && !end_messages.iter().any(|word| last.ends_with(word))
    }

    fn shows_lenses(&self) -> bool {
        false
    }

    fn refreshes_hints(&self) -> bool {
        false
    }

    fn ask_again(&self, terminal: &Terminal) {
        // A response that arrives while the user types is drawn over the newer text and not
        // requested again. The page's workaround is to turn hints off and on.
        // A line without a diagnostic that shows a time.
        let costly = "loss.backward()";
        let is_drawn = |screen: &Screen| screen.line(costly).is_some_and(|line| has_cost(&line));
        terminal.wait_until("hints", is_drawn);
        terminal.press(&["Space", "m", "h"]);
        terminal.wait_until("no hints", |screen| !is_drawn(screen));
        terminal.press(&["Space", "m", "h"]);
    }

    fn shows_documents(&self) -> bool {
        self.is_new
    }
}

impl FixesFindings for Helix {
    fn quick_fix_among(&self, terminal: &Terminal, title: &str, other: &str) {
        terminal.press(&["Space", "a"]);
        let choice =
            terminal.wait_until("the actions", |screen| screen.shows(title) && screen.shows(other));
        terminal.keep("11-fixes", &choice);
        // It is the first entry and already selected.
        terminal.press(&["Enter"]);
    }
}

fn typed(terminal: &Terminal, command: &str) {
    terminal.write(&format!(":{command}"));
    terminal.press(&["Enter"]);
}
