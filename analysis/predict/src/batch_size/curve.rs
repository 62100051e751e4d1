//! [`Curve`]: what is predicted of an iteration at any batch.

use std::collections::BTreeSet;

use super::Evidence;
use super::largest::{Capacity, Whole, largest};
use super::memory::Memory;
use super::saturation::saturation;
use super::time::Time;
use ridgeline_operators::range::Range;

/// An iteration at any batch. Either half may be unknown, not both.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    time: Option<Time>,
    memory: Option<Memory>,
    /// The batches that ran or were estimated.
    known: BTreeSet<u64>,
    ran: BTreeSet<u64>,
    /// Samples of an iteration for each of the batch: more than one where gradients are accumulated.
    multiple: f64,
}

/// Why there is no curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// There are no runs.
    #[error("nothing has been measured yet")]
    NothingRan,
    /// One batch alone says nothing of others.
    #[error("only one batch size was measured, which does not allow a prediction for others")]
    OneBatch,
}

/// One batch of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The batch size, as it is written.
    pub batch: u64,
    /// Nanoseconds of an iteration.
    pub time_ns: Option<Range>,
    /// Samples in a second.
    pub samples_per_second: Option<Range>,
    /// Bytes at the peak.
    pub peak_bytes: Option<Range>,
    /// This batch ran.
    pub measured: bool,
    /// Whether it is within the capacity; nothing where that is not known.
    pub fits: Option<bool>,
}

/// What a strange recording says may be no number.
fn known(range: Range) -> Option<Range> {
    let is_number = [range.low, range.value, range.high].iter().all(|end| end.is_finite());
    (is_number && range.value > 0.0).then_some(range)
}

/// How many points [`Curve::points`] gives at the most.
const POINTS: usize = 64;

impl Curve {
    /// Joins what is known.
    ///
    /// # Errors
    /// Where it says nothing of other batches than the one that ran.
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

    /// Nanoseconds of an iteration; nothing where the runs do not say how they depend on the batch.
    pub fn time_ns(&self, batch: u64) -> Option<Range> {
        known(self.time.as_ref().filter(|_| batch > 0)?.at(batch))
    }

    /// Samples in a second.
    pub fn samples_per_second(&self, batch: u64) -> Option<Range> {
        let time = self.time_ns(batch)?;
        let samples = batch as f64 * self.multiple;
        let rate = |ns: f64| samples * 1e9 / ns;
        Some(Range { low: rate(time.high), value: rate(time.value), high: rate(time.low) })
    }

    /// Bytes at the peak.
    pub fn peak_bytes(&self, batch: u64) -> Option<Range> {
        known(self.memory.as_ref().filter(|_| batch > 0)?.at(batch))
    }

    /// The largest batch within a capacity: 0 where not even one sample fits, nothing where the peak
    /// is not known or does not grow.
    pub fn largest(&self, capacity: Capacity) -> Option<Whole> {
        largest(self.memory.as_ref()?, capacity)
    }

    /// The smallest batch that reaches 95% of the best predicted throughput up to the largest batch;
    /// nothing where throughput still grows there, or is not known.
    pub fn saturation(&self, largest: Option<u64>) -> Option<Whole> {
        let last = *self.known.last()?;
        saturation(self.time.as_ref()?, last, largest.filter(|batch| *batch > 0))
    }

    /// One batch.
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
                .map(|(capacity, peak)| peak.value <= capacity.left() as f64),
        }
    }

    /// The curve as a picture needs it: what is known, and batches in between and beyond, up to the
    /// largest that fits and one that does not.
    pub fn points(&self, current: u64, capacity: Option<Capacity>) -> Vec<CurvePoint> {
        let mut batches: BTreeSet<u64> = self.known.clone();
        batches.insert(current.max(1));
        let largest = capacity.and_then(|capacity| self.largest(capacity));
        let saturation = self.saturation(largest.map(|largest| largest.value));
        let end = match largest {
            Some(largest) => largest.high.max(current).saturating_add(1),
            None => current.saturating_mul(8).max(8),
        };
        // Far beyond what a person would choose, the picture would show nothing of what they look at.
        let far = current.max(1).saturating_mul(4);
        let far = saturation.map_or(far, |saturation| far.max(saturation.high.saturating_mul(2)));
        let end = end.min(far.max(self.known.last().copied().unwrap_or(1)));
        batches
            .extend(largest.map(|largest| largest.value).filter(|batch| (1..=end).contains(batch)));
        batches.extend(saturation.map(|saturation| saturation.value));
        // Evenly by ratio.
        const STEPS: u32 = 40;
        for step in 0..=STEPS {
            let batch = (end as f64).powf(f64::from(step) / f64::from(STEPS)).round();
            if batches.len() < POINTS {
                batches.insert((batch as u64).clamp(1, end));
            }
        }
        let points = batches.into_iter().filter(|batch| *batch > 0).take(POINTS);
        points.map(|batch| self.point(batch, capacity)).collect()
    }
}
