//! Exit codes, which scripts can rely on, and error messages with the problem, its place and the
//! next step.

use std::io::{self, Write as _};
use std::process::ExitCode;

use ridgeline_analysis::base::printable::printable;

use super::terminal::Terminal;

/// Success.
pub(super) const OK: u8 = 0;
/// The program failed, ran out of time or memory, a file could not be read or written, or a check
/// failed.
pub(super) const FAILED: u8 = 1;
/// The command line or the configuration is wrong. Clap uses the same number.
pub(super) const USAGE: u8 = 2;
/// There is no training script, or several and none was chosen.
pub(super) const NOTHING_TO_RUN: u8 = 3;
/// There is no Python with a usable torch.
pub(super) const NO_PYTHON: u8 = 4;
/// Ctrl-C, with the code that shells use.
pub(super) const INTERRUPTED: u8 = 130;

/// The last paragraph of `--help`. A test compares it with the constants above.
pub(super) const HELP: &str = "\
Exit codes:
  0    success
  1    the program failed or exceeded a limit, a file could not be read or written, or a check failed
  2    invalid command line or configuration
  3    nothing to run, or no script was chosen
  4    no Python with torch
  130  interrupted";

/// The failure of a command.
#[derive(Debug)]
pub(super) struct Failure {
    /// One of the constants above.
    pub code: u8,
    /// The problem and its place.
    pub what: String,
    /// The next step, or empty.
    pub next: String,
}

impl Failure {
    /// A failure of the run, a file or a trace.
    pub(super) fn failed(what: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure { code: FAILED, what: what.into(), next: next.into() }
    }

    /// A wrong command line or configuration.
    pub(super) fn usage(what: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure { code: USAGE, what: what.into(), next: next.into() }
    }

    /// Ctrl-C.
    pub(super) fn interrupted() -> Failure {
        Failure { code: INTERRUPTED, what: "interrupted".to_owned(), next: String::new() }
    }

    /// A failed write to standard output. A closed pipe (`ridgeline … | head`) is not an error and
    /// prints no message.
    pub(super) fn output(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { code: OK, what: String::new(), next: String::new() };
        }
        Failure::failed(format!("cannot write to standard output: {error}"), "")
    }

    /// Prints the message to standard error and returns the exit code.
    pub(super) fn print(&self, terminal: &Terminal) -> ExitCode {
        if !self.what.is_empty() {
            let paint = terminal.error_style();
            let mut text = format!("{paint}error{paint:#}: {}\n", printable(&self.what));
            if !self.next.is_empty() {
                text.push_str(&format!("{}\n", printable(&self.next)));
            }
            // Nothing can be reported if standard error is closed.
            let _ = io::stderr().lock().write_all(text.as_bytes());
        }
        self.code.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_matches_help() {
        let page = include_str!("../../../docs/command-line.md");
        for row in HELP.lines().skip(1) {
            let (code, meaning) = row.trim().split_once(' ').expect("a code and its meaning");
            let row = format!("| {code} | {} |", meaning.trim());
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn help_names_every_code() {
        for code in [OK, FAILED, USAGE, NOTHING_TO_RUN, NO_PYTHON, INTERRUPTED] {
            assert!(
                HELP.lines().any(|line| line.split_whitespace().next() == Some(&code.to_string())),
                "{code}"
            );
        }
    }
}
