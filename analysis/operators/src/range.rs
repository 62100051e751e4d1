//! An estimate with an uncertainty range.

use serde::Serialize;

/// An estimate with its range: at least four of five measured values lie between `low` and `high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Range {
    /// Lower bound.
    pub low: f64,
    /// Most likely value.
    pub value: f64,
    /// Upper bound.
    pub high: f64,
}

impl Range {
    /// Creates a range for a value that is known exactly.
    pub fn exact(value: f64) -> Range {
        Range { low: value, value, high: value }
    }

    /// Creates a range for a value that may be off by a factor: 1.2 means from a sixth less to a
    /// fifth more.
    pub fn within_factor(value: f64, factor: f64) -> Range {
        let factor = factor.max(1.0);
        Range { low: value / factor, value, high: value * factor }
    }

    /// Adds two estimates. Their errors are assumed to be correlated, which is the conservative
    /// assumption.
    pub fn plus(self, other: Range) -> Range {
        Range {
            low: self.low + other.low,
            value: self.value + other.value,
            high: self.high + other.high,
        }
    }

    /// Multiplies the estimate by a count.
    pub fn times(self, count: f64) -> Range {
        Range { low: self.low * count, value: self.value * count, high: self.high * count }
    }
}
