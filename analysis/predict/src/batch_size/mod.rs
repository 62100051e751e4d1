//! Throughput and peak memory as functions of the batch size.
//!
//! Skyline (Yu et al., UIST 2020, section 4.2) runs a few batch sizes near the current one and fits
//! two straight lines: to the iteration time and to the peak memory. This module joins runs in the
//! same way and adds two things. *Estimates* on fake tensors give the peak memory of any batch
//! without running it, so nothing has to run out of memory, and the shape of the time where an
//! operator's time has kinks (tiles, waves). *Ranges* say how reliable each number is: they widen
//! with the distance from the batches that ran.
//!
//! [`Curve::fit`] joins the evidence, and [`explore`] decides what to measure next. Neither runs
//! anything.

mod curve;
mod explore;
mod largest;
mod line;
mod memory;
mod rounds;
mod saturation;
mod suggestions;
mod time;

pub use curve::{Curve, CurvePoint, Unknown};
pub use explore::{Bounds, Question, max_runs_left, next_question, probes};
pub(crate) use largest::largest_fitting;
pub use largest::{Capacity, IntegerRange};
pub use suggestions::{Reason, Suggestion, suggestions};

use ridgeline_profile::MemoryByKind;

/// The measurements and estimates of an iteration at some batch sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Runs in any order, except that the measurement comes first. Several runs of one batch are
    /// combined.
    pub runs: Vec<Run>,
    /// Runs in which several batches took turns. If there are any, they determine how the time
    /// depends on the batch.
    pub in_turns: Vec<Vec<Round>>,
    /// Estimates on fake tensors, in any order.
    pub estimates: Vec<Estimate>,
    /// Runs and estimates that failed and must not be repeated.
    pub failed: Vec<Failed>,
}

impl Evidence {
    /// Samples of an iteration divided by the batch size in the text: 1, or more with gradient
    /// accumulation.
    pub fn multiple(&self) -> f64 {
        let known = self.runs.iter().find(|run| run.batch > 0 && run.samples > 0);
        known.map_or(1.0, |run| run.samples as f64 / run.batch as f64)
    }

    /// Returns whether a batch ran.
    pub fn ran(&self, batch: u64) -> bool {
        self.runs.iter().any(|run| run.batch == batch)
    }

    /// Returns whether a batch was estimated.
    pub fn estimated(&self, batch: u64) -> bool {
        self.estimates.iter().any(|estimate| estimate.batch == batch)
    }

    /// Returns whether a question failed before.
    pub fn failed(&self, question: Question) -> bool {
        self.failed.iter().any(|failed| failed.question == question)
    }
}

/// Batches that took turns of a few iterations: `(batch, nanoseconds)` of each turn's median
/// iteration. A slow machine slows all of them down.
pub type Round = Vec<(u64, f64)>;

/// One run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The batch size in the text.
    pub batch: u64,
    /// Samples of an iteration, as found by the run: the batch, or a multiple of it with gradient
    /// accumulation.
    pub samples: u64,
    /// The times of the iterations without a profiler, in nanoseconds.
    pub timed_ns: Vec<f64>,
    /// Bytes alive at the peak, if memory was recorded.
    pub peak_bytes: Option<u64>,
    /// The same bytes by kind; all zero if unknown.
    pub at_peak: MemoryByKind,
}

/// One estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The batch size in the text.
    pub batch: u64,
    /// Bytes alive at the peak.
    pub peak_bytes: u64,
    /// The total cost of the iteration's operators in nanoseconds, if the device's costs are known.
    /// Only its shape over the batch matters, not its absolute value.
    pub cost_ns: Option<f64>,
}

/// A run or estimate that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The run or estimate.
    pub question: Question,
    /// The reason, as a sentence.
    pub reason: String,
}

#[cfg(test)]
mod tests;
