//! Throughput and peak memory as functions of the batch size.
//!
//! Skyline (Yu et al., UIST 2020, section 4.2) runs a few batch sizes near the current one and fits
//! two straight lines: the time of an iteration and its peak memory. That is kept as what runs are
//! joined by, and two things are added. *Estimates* under fake tensors give the peak memory of any
//! batch without running it, so that nothing has to run out of memory, and the shape of the time
//! where an operator's time has kinks (tiles, waves). *Ranges* say how far each number can be
//! trusted: they widen away from the batches that ran.
//!
//! [`Curve::fit`] joins what is known, [`explore`] says what to find out next. Neither runs anything.

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
pub use explore::{Bounds, Question, most_runs_left, next_question, probes};
pub use largest::{Capacity, Whole};
pub use suggestions::{Reason, Suggestion, suggestions};

use ridgeline_profile::MemoryByKind;

/// What is known of an iteration at some batch sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Runs, in any order but for the measurement, which is the first. Several of one batch are taken
    /// together.
    pub runs: Vec<Run>,
    /// Several batches in turns, by run. Where there are any, these say how the time depends on the
    /// batch.
    pub in_turns: Vec<Vec<Round>>,
    /// Estimates under fake tensors, in any order.
    pub estimates: Vec<Estimate>,
    /// Batches at which a run or an estimate came to nothing, so that it is not asked again.
    pub failed: Vec<Failed>,
}

impl Evidence {
    /// Samples of an iteration for each of the batch size as it is written: 1, or more where gradients
    /// are accumulated.
    pub fn multiple(&self) -> f64 {
        let known = self.runs.iter().find(|run| run.batch > 0 && run.samples > 0);
        known.map_or(1.0, |run| run.samples as f64 / run.batch as f64)
    }

    /// Whether a batch ran.
    pub fn ran(&self, batch: u64) -> bool {
        self.runs.iter().any(|run| run.batch == batch)
    }

    /// Whether a batch was estimated.
    pub fn estimated(&self, batch: u64) -> bool {
        self.estimates.iter().any(|estimate| estimate.batch == batch)
    }

    /// Whether a question came to nothing before.
    pub fn failed(&self, question: Question) -> bool {
        self.failed.iter().any(|failed| failed.question == question)
    }
}

/// Batches that ran side by side, in turns of a few iterations: `(batch, nanoseconds)` of each turn's
/// median iteration. What slows the machine slows them all.
pub type Round = Vec<(u64, f64)>;

/// One run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The batch size, as it is written.
    pub batch: u64,
    /// Samples of an iteration, as the run itself found them: the batch, or a multiple of it where
    /// gradients are accumulated.
    pub samples: u64,
    /// The iteration without a profiler, in nanoseconds: each of those that were timed.
    pub timed_ns: Vec<f64>,
    /// Bytes alive at the peak, where memory was recorded.
    pub peak_bytes: Option<u64>,
    /// What they hold; all zero where it is not known.
    pub at_peak: MemoryByKind,
}

/// One estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The batch size, as it is written.
    pub batch: u64,
    /// Bytes alive at the peak.
    pub peak_bytes: u64,
    /// What the operators of the iteration cost together, in nanoseconds, where the device's costs
    /// are known. Only its course over the batch counts, not its height.
    pub cost_ns: Option<f64>,
}

/// A question that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// What was asked.
    pub question: Question,
    /// Why, in a sentence.
    pub reason: String,
}

#[cfg(test)]
mod tests;
