//! A tmux terminal that a test types into and reads.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::editors::picture::{self, Cell};
use crate::editors::sandbox::Sandbox;

/// Timeout of a wait. The first run of a training script imports torch, which takes most of this time
/// on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Total time limit of a test. Its run may wait for those of other tests.
const DEADLINE: Duration = Duration::from_secs(900);

const COLUMNS: u32 = 124;
const ROWS: u32 = 44;

pub(super) struct Terminal<'a> {
    tmux: PathBuf,
    sandbox: &'a Sandbox,
    /// The name, used for screenshots.
    name: String,
    ends: Instant,
}

/// A snapshot of the screen.
pub(super) struct Screen {
    cells: Vec<Vec<Cell>>,
}

impl Screen {
    /// Returns its lines without trailing blanks.
    pub(super) fn lines(&self) -> Vec<String> {
        self.cells.iter().map(|line| picture::text(line)).collect()
    }

    /// Returns the whole text.
    pub(super) fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// Whether it contains a text.
    pub(super) fn shows(&self, text: &str) -> bool {
        self.text().contains(text)
    }

    /// Returns the first line that contains `wanted`.
    pub(super) fn line(&self, text: &str) -> Option<String> {
        self.lines().into_iter().find(|line| line.contains(text))
    }

    /// Returns the line number that the editor shows for a line of text.
    #[track_caller]
    pub(super) fn number_of(&self, text: &str) -> u32 {
        let line = self.line(text).unwrap_or_else(|| panic!("no {text}:\n{}", self.text()));
        let digits = line.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().expect("a number")
    }
}

impl<'a> Terminal<'a> {
    /// Starts a program in a new terminal.
    pub(super) fn start(
        tmux: PathBuf,
        sandbox: &'a Sandbox,
        name: &str,
        program: &[String],
    ) -> Terminal<'a> {
        let ends = Instant::now() + DEADLINE;
        let terminal = Terminal { tmux, sandbox, name: name.to_owned(), ends };
        let size = [COLUMNS.to_string(), ROWS.to_string()];
        let mut command = terminal.tmux();
        command.args(["new-session", "-d", "-s", "editor", "-x", &size[0], "-y", &size[1]]);
        command.args(program);
        // No escape delay, and no status line of tmux.
        command.args([";", "set", "-g", "escape-time", "0", ";", "set", "-g", "status", "off"]);
        run(&mut command);
        terminal
    }

    fn tmux(&self) -> Command {
        let mut command = self.sandbox.command(&self.tmux);
        command.arg("-S").arg(self.sandbox.path("run/tmux")).args(["-f", "/dev/null"]);
        command
    }

    /// Presses keys: `Escape`, `Enter`, `C-x`, `M-x`, or a letter.
    pub(super) fn press(&self, keys: &[&str]) {
        for key in keys {
            run(self.tmux().args(["send-keys", "-t", "editor", "--", key]));
            // A key right after Escape would be interpreted as Alt plus that key.
            if *key == "Escape" {
                std::thread::sleep(Duration::from_millis(150));
            }
        }
    }

    /// Types text.
    pub(super) fn write(&self, text: &str) {
        run(self.tmux().args(["send-keys", "-t", "editor", "-l", "--", text]));
    }

    /// Captures the screen.
    pub(super) fn screen(&self) -> Screen {
        let output = run(self.tmux().args(["capture-pane", "-p", "-e", "-N", "-t", "editor"]));
        Screen { cells: picture::parse(&output) }
    }

    /// Waits until a line matches. Returns the screen.
    #[track_caller]
    pub(super) fn wait_for(&self, text: &str) -> Screen {
        self.wait_until(text, |screen| screen.shows(text))
    }

    /// Waits until the screen matches. Returns it.
    #[track_caller]
    pub(super) fn wait_until(&self, what: &str, is_so: impl Fn(&Screen) -> bool) -> Screen {
        let ends = self.ends.min(Instant::now() + TIMEOUT);
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            if Instant::now() > ends {
                self.keep("failed", &screen);
                panic!("{what} did not come on the screen:\n{}", screen.text());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Saves a screenshot.
    pub(super) fn keep(&self, moment: &str, screen: &Screen) {
        picture::keep(&format!("{}-{moment}", self.name), &screen.cells);
    }

    /// Waits until the program has ended.
    pub(super) fn wait_for_end(self) {
        let ends = Instant::now() + TIMEOUT;
        loop {
            let alive = self.tmux().args(["has-session", "-t", "editor"]).output();
            if !alive.expect("tmux").status.success() {
                return;
            }
            assert!(Instant::now() < ends, "the editor did not end:\n{}", self.screen().text());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        // It has already ended if all went well.
        let _ = self.tmux().arg("kill-server").output();
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("tmux starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tmux: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
