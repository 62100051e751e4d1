//! Iterations that are slow among others: an evaluation every hundredth step, a rollout before every
//! sixteenth update.

use super::FileId;

/// How the slow iterations of a loop stand among the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SlowIterations {
    /// Every so many iterations one is slow; nothing where they are slow at unequal distances.
    pub period: Option<u32>,
    /// How many of [`Self::of`] timed iterations were slow.
    pub count: u32,
    /// How many iterations were timed.
    pub of: u32,
    /// Nanoseconds of one that is not slow: the median.
    pub typical_ns: f64,
    /// Nanoseconds of a slow one: the median.
    pub slow_ns: f64,
    /// Nanoseconds of an iteration on average: over whole periods, where there is one.
    pub mean_ns: f64,
    /// The line that runs, or takes longer, in the slow ones; where that is known.
    pub line: Option<(FileId, u32)>,
    /// Whether whole periods were profiled, so that the costs of lines are parts of the mean. They are
    /// parts of the typical iteration otherwise.
    pub are_in_lines: bool,
}

impl SlowIterations {
    /// What the costs of lines add up to, in nanoseconds.
    pub fn time_ns(&self) -> f64 {
        if self.are_in_lines { self.mean_ns } else { self.typical_ns }
    }
}
