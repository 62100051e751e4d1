//! [`Finding`]: what a rule found, where, what it costs, and what to do.

use ridgeline_optimize::rewrite::EditKind;

/// A line of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Relative to the project's root with `/` between.
    pub path: String,
    /// Counted from 1; of a measured finding in the text that ran.
    pub line: u32,
}

/// What a finding costs in one iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Nanoseconds of an iteration that would be saved, as far as was measured.
    pub time_ns: f64,
    /// Bytes of the peak that would be saved.
    pub bytes: f64,
    /// It was worked out by a what-if rather than read off: shown with a `~`.
    pub is_predicted: bool,
}

impl Cost {
    /// Nanoseconds that were measured.
    pub fn time(time_ns: f64) -> Cost {
        Cost { time_ns, ..Cost::default() }
    }

    /// Bytes that were measured.
    pub fn bytes(bytes: f64) -> Cost {
        Cost { bytes, ..Cost::default() }
    }

    /// The same, worked out by a what-if.
    pub fn predicted(self) -> Cost {
        Cost { is_predicted: true, ..self }
    }
}

/// What a rule found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finding {
    /// The rule's name: `hidden-sync`.
    pub rule: &'static str,
    /// Where it is.
    pub at: Place,
    /// Other lines that belong to it, each with what it has to do with it: `the validation loop`.
    pub related: Vec<(Place, String)>,
    /// What it is, in a sentence without its cost and without a full stop: `.item() waits for the GPU`.
    pub message: String,
    /// Why that costs something, and what to do: one to three sentences that a person understands who
    /// is no expert.
    pub why: String,
    /// What it costs; nothing where that is not known.
    pub cost: Option<Cost>,
    /// A recording shows it, and not the text alone.
    pub is_measured: bool,
    /// The edit that mends it, where a small one is safe. The server tries it on today's text; it may
    /// be refused there.
    pub fix: Option<EditKind>,
}
