//! Iterations that are slower than the others: an evaluation every 100 steps, a rollout before
//! every 16th update.

use super::FileId;

/// The slow iterations of a loop, compared with the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlowIterations {
    /// Iterations from one slow iteration to the next; `None` if the distances are irregular.
    pub period: Option<u32>,
    /// The number of slow iterations among the [`Self::of`] timed ones.
    pub count: u32,
    /// The number of timed iterations.
    pub of: u32,
    /// Median nanoseconds of the iterations that are not slow.
    pub typical_ns: f64,
    /// Median nanoseconds of the slow iterations.
    pub slow_ns: f64,
    /// Mean nanoseconds per iteration, over whole periods if there is a period.
    pub mean_ns: f64,
    /// The lines that make them slow, most expensive first; empty if unknown.
    pub lines: Vec<SlowLine>,
    /// Whether whole periods were profiled. If so, the costs of lines add up to the mean, otherwise
    /// to the typical iteration.
    pub are_whole_periods: bool,
}

/// A line that runs only in slow iterations, or takes longer in them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowLine {
    pub file: FileId,
    /// Line number, counted from 1.
    pub line: u32,
    /// Its share of the additional time of slow iterations.
    pub share: f64,
}

impl SlowIterations {
    /// Returns the sum of the costs of lines, in nanoseconds.
    pub fn time_ns(&self) -> f64 {
        if self.are_whole_periods { self.mean_ns } else { self.typical_ns }
    }
}
