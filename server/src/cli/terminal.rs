//! Terminal output: colors only in terminals, and a temporary progress bar on standard error.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use ridgeline_analysis::base::printable::printable;

use super::Color;
use super::exit::Failure;

/// The capabilities of standard output and standard error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terminal {
    colors: bool,
    error_colors: bool,
}

impl Terminal {
    /// Inspects the two streams and the environment (NO_COLOR, CLICOLOR, CLICOLOR_FORCE, TERM),
    /// unless the user chose a mode.
    pub(super) fn new(color: Color) -> Terminal {
        match color {
            Color::Always => Terminal { colors: true, error_colors: true },
            Color::Never => Terminal { colors: false, error_colors: false },
            Color::Auto => Terminal {
                colors: AutoStream::choice(&io::stdout()) != ColorChoice::Never,
                error_colors: AutoStream::choice(&io::stderr()) != ColorChoice::Never,
            },
        }
    }

    /// Whether standard output shows colors.
    pub(super) fn colors(&self) -> bool {
        self.colors
    }

    /// The style of the word `error`.
    pub(super) fn error_style(&self) -> Style {
        if self.error_colors { AnsiColor::Red.on_default().bold() } else { Style::new() }
    }

    /// The style of headings on standard output.
    pub(super) fn heading(&self) -> Style {
        if self.colors { Style::new().bold() } else { Style::new() }
    }

    /// The width of standard output in columns: that of the terminal, or enough for code if there
    /// is none.
    pub(super) fn width(&self) -> usize {
        const WITHOUT_TERMINAL: usize = 160;
        let columns = console::Term::stdout().size_checked().map(|(_, columns)| columns);
        columns.map_or(WITHOUT_TERMINAL, |columns| usize::from(columns).clamp(40, 200))
    }

    /// Writes to standard output in one go.
    pub(super) fn print(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::output)
    }

    /// Prints a note to standard error, so that standard output contains only the result.
    pub(super) fn note(&self, text: &str) {
        // A closed standard error is ignored.
        let _ = writeln!(io::stderr().lock(), "{}", printable(text));
    }

    /// Asks a question that is answered with yes or no; no is the default.
    pub(super) fn asks(&self, question: &str) -> bool {
        let mut out = io::stderr().lock();
        // A closed standard error is ignored.
        let _ = write!(out, "{question} [y/N] ").and_then(|()| out.flush());
        let mut answer = String::new();
        let read = io::stdin().lock().take(100).read_line(&mut answer);
        read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
    }

    /// A spinner with a message for work of unknown length. Hidden if standard error is not a
    /// terminal.
    pub(super) fn spinner(&self, message: &str) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    }
}
