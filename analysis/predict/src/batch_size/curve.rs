//! [`Curve`]: the predicted iteration at any batch size.

use std::collections::BTreeSet;

use super::Evidence;
use super::largest::{Capacity, IntegerRange, largest};
use super::memory::Memory;
use super::saturation::saturation;
use super::time::Time;
use ridgeline_operators::range::Range;

/// The predicted iteration at any batch. Either half may be unknown, but not both.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    time: Option<Time>,
    memory: Option<Memory>,
    /// The batches that ran or were estimated.
    known: BTreeSet<u64>,
    ran: BTreeSet<u64>,
    /// Samples of an iteration divided by the batch: more than 1 with gradient accumulation.
    multiple: f64,
}

/// Why there is no curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// There are no runs.
    #[error("nothing has been measured yet")]
    NothingRan,
    /// A single batch says nothing about others.
    #[error("only one batch size was measured, which does not allow a prediction for others")]
    OneBatch,
}

/// The prediction for one batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The batch size in the text.
    pub batch: u64,
    /// Iteration time in nanoseconds.
    pub time_ns: Option<Range>,
    /// Throughput in samples per second.
    pub samples_per_second: Option<Range>,
    /// Peak memory in bytes.
    pub peak_bytes: Option<Range>,
    /// Whether this batch ran.
    pub measured: bool,
    /// Whether it fits the capacity. `None` if that is unknown.
    pub fits: Option<bool>,
}

/// Returns `None` if the range is not finite and positive, as from a damaged recording.
fn positive(range: Range) -> Option<Range> {
    let is_number = [range.low, range.value, range.high].iter().all(|end| end.is_finite());
    (is_number && range.value > 0.0).then_some(range)
}

/// The maximum number of points of [`Curve::points`].
const MAX_POINTS: usize = 64;

impl Curve {
    /// Fits a curve to the evidence.
    ///
    /// # Errors
    /// If the evidence does not allow a prediction for other batches.
    pub fn fit(evidence: &Evidence) -> Result<Curve, Unknown> {
        let time = Time::fit(evidence);
        let memory = Memory::fit(&evidence.runs, &evidence.estimates);
        if time.is_none() && memory.is_none() {
            let ran = evidence.runs.iter().any(|run| run.batch > 0);
            return Err(if ran { Unknown::OneBatch } else { Unknown::NothingRan });
        }
        let ran: BTreeSet<u64> = evidence.runs.iter().map(|run| run.batch).collect();
        let mut known = ran.clone();
        known.extend(evidence.estimates.iter().map(|estimate| estimate.batch));
        known.remove(&0);
        let multiple = evidence.multiple();
        Ok(Curve { time, memory, known, ran, multiple })
    }

    /// Returns the iteration time in nanoseconds. `None` if the runs do not show how it depends on
    /// the batch.
    pub fn time_ns(&self, batch: u64) -> Option<Range> {
        positive(self.time.as_ref().filter(|_| batch > 0)?.at(batch))
    }

    /// Throughput in samples per second.
    pub fn samples_per_second(&self, batch: u64) -> Option<Range> {
        let time = self.time_ns(batch)?;
        let samples = batch as f64 * self.multiple;
        let rate = |ns: f64| samples * 1e9 / ns;
        Some(Range { low: rate(time.high), value: rate(time.value), high: rate(time.low) })
    }

    /// Peak memory in bytes.
    pub fn peak_bytes(&self, batch: u64) -> Option<Range> {
        positive(self.memory.as_ref().filter(|_| batch > 0)?.at(batch))
    }

    /// Returns the largest batch that fits: 0 if not even one sample fits. `None` if the peak is
    /// unknown or does not grow.
    pub fn largest(&self, capacity: Capacity) -> Option<IntegerRange> {
        largest(self.memory.as_ref()?, capacity)
    }

    /// Returns the smallest batch that reaches 95% of the best predicted throughput up to the
    /// largest batch. `None` if throughput still grows there or is unknown.
    pub fn saturation(&self, largest: Option<u64>) -> Option<IntegerRange> {
        let last = *self.known.last()?;
        saturation(self.time.as_ref()?, last, largest.filter(|batch| *batch > 0))
    }

    /// Returns the prediction for one batch.
    pub fn point(&self, batch: u64, capacity: Option<Capacity>) -> CurvePoint {
        let peak_bytes = self.peak_bytes(batch);
        CurvePoint {
            batch,
            time_ns: self.time_ns(batch),
            samples_per_second: self.samples_per_second(batch),
            peak_bytes,
            measured: self.ran.contains(&batch),
            fits: capacity
                .zip(peak_bytes)
                .map(|(capacity, peak)| peak.value <= capacity.available_bytes() as f64),
        }
    }

    /// Returns points for plotting the curve: the known batches, and batches in between and beyond,
    /// up to the largest that fits and one that does not.
    pub fn points(&self, current: u64, capacity: Option<Capacity>) -> Vec<CurvePoint> {
        let mut batches: BTreeSet<u64> = self.known.clone();
        batches.insert(current.max(1));
        let largest = capacity.and_then(|capacity| self.largest(capacity));
        let saturation = self.saturation(largest.map(|largest| largest.value));
        let end = match largest {
            Some(largest) => largest.high.max(current).saturating_add(1),
            None => current.saturating_mul(8).max(8),
        };
        // A plot that extends far beyond useful batches would hide the relevant part.
        let far = current.max(1).saturating_mul(4);
        let far = saturation.map_or(far, |saturation| far.max(saturation.high.saturating_mul(2)));
        let end = end.min(far.max(self.known.last().copied().unwrap_or(1)));
        batches
            .extend(largest.map(|largest| largest.value).filter(|batch| (1..=end).contains(batch)));
        batches.extend(saturation.map(|saturation| saturation.value));
        // Evenly spaced on a logarithmic scale.
        const STEPS: u32 = 40;
        for step in 0..=STEPS {
            let batch = (end as f64).powf(f64::from(step) / f64::from(STEPS)).round();
            if batches.len() < MAX_POINTS {
                batches.insert((batch as u64).clamp(1, end));
            }
        }
        let points = batches.into_iter().filter(|batch| *batch > 0).take(MAX_POINTS);
        points.map(|batch| self.point(batch, capacity)).collect()
    }
}
