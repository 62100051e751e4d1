//! [`Measure`]: one number then and now, and what to think of it.

use serde::Serialize;

/// What became of a number.
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
    /// The difference is within what two runs of one program differ by.
    WithinNoise,
    /// It is in the later run alone.
    New,
    /// It is in the earlier run alone.
    Gone,
    /// It cannot be told.
    #[default]
    Unknown,
}

impl Verdict {
    /// For a person: `within noise`.
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

    /// There is a change, and it was told from noise.
    pub fn is_change(self) -> bool {
        !matches!(self, Verdict::WithinNoise | Verdict::Unknown)
    }

    /// For the worse.
    pub fn is_worse(self) -> bool {
        matches!(self, Verdict::Slower | Verdict::Larger)
    }

    /// Less and more, in the words for what is measured.
    pub(super) fn towards(self, direction: Direction) -> Verdict {
        match (direction, self) {
            (Direction::Memory, Verdict::Faster) => Verdict::Smaller,
            (Direction::Memory, Verdict::Slower) => Verdict::Larger,
            (_, verdict) => verdict,
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Time,
    Memory,
}

/// One number of both runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measure {
    /// Then; nothing where it is unknown or was not there.
    pub before: Option<f64>,
    /// Now; nothing where it is unknown or is not there any more.
    pub after: Option<f64>,
    /// Now over then.
    pub ratio: Option<f64>,
    /// What to think of it.
    pub verdict: Verdict,
}

impl Measure {
    /// Two values and what was found about them.
    pub(super) fn judged(values: (Option<f64>, Option<f64>), verdict: Verdict) -> Measure {
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        let (before, after) = (finite(values.0), finite(values.1));
        let ratio = before.zip(after).filter(|(before, _)| *before > 0.0);
        let ratio = ratio.map(|(before, after)| after / before).filter(|ratio| ratio.is_finite());
        Measure { before, after, ratio, verdict }
    }

    /// Two values of which nothing can be told.
    pub(super) fn unknown(before: Option<f64>, after: Option<f64>) -> Measure {
        Measure::judged((before, after), Verdict::Unknown)
    }

    /// Now minus then; what is not there costs nothing.
    pub fn difference(&self) -> f64 {
        self.after.unwrap_or_default() - self.before.unwrap_or_default()
    }
}
