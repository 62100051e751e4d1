//! [`Measure`]: a value before and after, with a verdict.

use serde::Serialize;

/// The verdict on a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Less time, beyond noise.
    Faster,
    /// More time, beyond noise.
    Slower,
    /// Less memory.
    Smaller,
    /// More memory.
    Larger,
    /// The difference is within the noise between runs of the same program.
    WithinNoise,
    /// Only the later run has it.
    New,
    /// Only the earlier run has it.
    Gone,
    /// Unknown: there is not enough data to decide.
    #[default]
    Unknown,
}

impl Verdict {
    /// Returns the name for display: `within noise`.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Smaller => "smaller",
            Verdict::Larger => "larger",
            Verdict::WithinNoise => "within noise",
            Verdict::New => "new",
            Verdict::Gone => "gone",
            Verdict::Unknown => "unknown",
        }
    }

    /// Whether there is a change beyond noise.
    pub fn is_change(self) -> bool {
        !matches!(self, Verdict::WithinNoise | Verdict::Unknown)
    }

    /// Whether the change is for the worse.
    pub fn is_worse(self) -> bool {
        matches!(self, Verdict::Slower | Verdict::Larger)
    }

    /// Returns the verdict in the terms of the quantity: smaller and larger for memory.
    pub(super) fn for_quantity(self, quantity: Quantity) -> Verdict {
        match (quantity, self) {
            (Quantity::Memory, Verdict::Faster) => Verdict::Smaller,
            (Quantity::Memory, Verdict::Slower) => Verdict::Larger,
            (_, verdict) => verdict,
        }
    }
}

/// The measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Time,
    Memory,
}

/// A value in both runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measure {
    /// Value in the earlier run; `None` if unknown or absent.
    pub before: Option<f64>,
    /// Value in the later run; `None` if unknown or absent.
    pub after: Option<f64>,
    /// `after` divided by `before`.
    pub ratio: Option<f64>,
    pub verdict: Verdict,
}

impl Measure {
    /// Creates a measure from two values and a verdict.
    pub(super) fn with_verdict(values: (Option<f64>, Option<f64>), verdict: Verdict) -> Measure {
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        let (before, after) = (finite(values.0), finite(values.1));
        let ratio = before.zip(after).filter(|(before, _)| *before > 0.0);
        let ratio = ratio.map(|(before, after)| after / before).filter(|ratio| ratio.is_finite());
        Measure { before, after, ratio, verdict }
    }

    /// Creates a measure with an unknown verdict.
    pub(super) fn unknown(before: Option<f64>, after: Option<f64>) -> Measure {
        Measure::with_verdict((before, after), Verdict::Unknown)
    }

    /// Returns `after` minus `before`; an absent value counts as 0.
    pub fn difference(&self) -> f64 {
        self.after.unwrap_or_default() - self.before.unwrap_or_default()
    }
}
