//! Fitted factors on the parts of operators, and what a whole step becomes by them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::parts::Part;

/// Factors of one optimization, with where they come from.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Factors {
    /// What they were fitted on, and their errors on what the fit had not seen.
    pub source: String,
    /// By the kind of part: what its modelled time after the change is multiplied by.
    pub factors: BTreeMap<String, f64>,
    /// What becomes of the measured time that the modelled parts do not explain.
    pub rest: f64,
    /// By which factor a step's prediction may be off, nine times in ten.
    pub range: f64,
}

impl Factors {
    /// Of one kind; 1 for what was not fitted.
    pub fn of(&self, kind: &str) -> f64 {
        self.factors.get(kind).copied().unwrap_or(1.0)
    }

    /// What an operator's time is multiplied by. `None` of parts without a time.
    pub fn operator_ratio(&self, parts: &[Part]) -> Option<f64> {
        let (before, after) = self.sums(parts);
        (before > 0.0).then(|| after / before)
    }

    /// What becomes of a step that was measured to take so many nanoseconds.
    pub fn step_ns(&self, measured_ns: f64, parts: &[Part]) -> Option<f64> {
        let (before, after) = self.sums(parts);
        let rest = (measured_ns - before).max(0.0);
        let then = after + rest * self.rest;
        (before > 0.0 && then > 0.0).then(|| measured_ns * then / (before + rest))
    }

    fn sums(&self, parts: &[Part]) -> (f64, f64) {
        let before = parts.iter().map(|part| part.before_ns).sum();
        let after = parts.iter().map(|part| part.after_ns * self.of(part.kind)).sum();
        (before, after)
    }
}

static COMPILED: LazyLock<Factors> = LazyLock::new(|| read(include_str!("compiled.json")));
static CHANNELS_LAST: LazyLock<Factors> =
    LazyLock::new(|| read(include_str!("channels_last.json")));

/// Of `torch.compile`.
pub fn compiled() -> &'static Factors {
    &COMPILED
}

/// Of channels-last order.
pub fn channels_last() -> &'static Factors {
    &CHANNELS_LAST
}

fn read(text: &str) -> Factors {
    // A test holds the files to this.
    serde_json::from_str(text).unwrap_or_default()
}
