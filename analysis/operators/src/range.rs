//! An estimate with its limits.

use serde::Serialize;

/// An estimate with its limits: at least four of five measured values lie between `low` and `high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Range {
    /// The lower limit.
    pub low: f64,
    /// The likeliest value.
    pub value: f64,
    /// The upper limit.
    pub high: f64,
}

impl Range {
    /// A value that is known exactly.
    pub fn exact(value: f64) -> Range {
        Range { low: value, value, high: value }
    }

    /// A value that may be off by a factor: 1.2 means from a sixth less to a fifth more.
    pub fn within_factor(value: f64, factor: f64) -> Range {
        let factor = factor.max(1.0);
        Range { low: value / factor, value, high: value * factor }
    }

    /// The sum of two estimates that err together, which is the careful assumption.
    pub fn plus(self, other: Range) -> Range {
        Range {
            low: self.low + other.low,
            value: self.value + other.value,
            high: self.high + other.high,
        }
    }

    /// So many of it.
    pub fn times(self, count: f64) -> Range {
        Range { low: self.low * count, value: self.value * count, high: self.high * count }
    }
}
