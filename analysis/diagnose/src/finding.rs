//! [`Finding`]: a problem, its location, its cost, and its fix.

use ridgeline_optimize::rewrite::EditKind;

/// A line of a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLine {
    /// Relative to the project's root, with `/` as separator.
    pub path: String,
    /// 1-based. For a measured finding, the line in the text that ran.
    pub line: u32,
}

/// The cost of a finding in one iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Time that a fix would save, in nanoseconds per iteration, as far as it was measured.
    pub time_ns: f64,
    /// Peak memory that a fix would save, in bytes.
    pub bytes: f64,
    /// Whether a what-if simulated it. Such a cost is shown with a `~`.
    pub is_predicted: bool,
}

impl Cost {
    /// A measured time, in nanoseconds.
    pub fn time(time_ns: f64) -> Cost {
        Cost { time_ns, ..Cost::default() }
    }

    /// Measured memory, in bytes.
    pub fn bytes(bytes: f64) -> Cost {
        Cost { bytes, ..Cost::default() }
    }

    /// Marks the cost as simulated by a what-if.
    pub fn predicted(self) -> Cost {
        Cost { is_predicted: true, ..self }
    }
}

/// A problem that a rule found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finding {
    /// The rule's name: `hidden-sync`.
    pub rule: &'static str,
    pub at: SourceLine,
    /// Other lines that belong to it, each with its role: `the validation loop`.
    pub related: Vec<(SourceLine, String)>,
    /// The lines of the loop that begins at `at`, whose time is part of the cost.
    pub loop_lines: Vec<SourceLine>,
    /// The problem in one sentence, without its cost and without a full stop: `.item() waits for
    /// the GPU`.
    pub message: String,
    /// Why it has a cost and what to do about it: one to three sentences that a non-expert
    /// understands.
    pub why: String,
    /// `None` if the cost is unknown.
    pub cost: Option<Cost>,
    /// Whether a recording shows it, rather than only the source text.
    pub is_measured: bool,
    /// The edit that fixes it, if there is a small, safe one. The server applies it to the current
    /// text, where it may be refused.
    pub fix: Option<EditKind>,
}
