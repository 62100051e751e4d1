//! Finds where throughput saturates: the smallest batch that reaches 95% of the best predicted
//! throughput of all batches up to the largest that fits.

use super::largest::IntegerRange;
use super::time::Time;
use ridgeline_operators::range::Range;

/// The share of the best throughput that counts as saturated.
const SATURATED_SHARE: f64 = 0.95;
/// From this share of the largest batch on, throughput is considered limited by memory, not
/// saturated.
const STILL_GROWING: f64 = 0.9;
/// Without a largest batch, batches up to this multiple of the largest known one are considered.
const MAX_FACTOR: u64 = 64;

/// Returns the saturation point. `None` if throughput still grows at the largest batch.
pub(super) fn saturation(time: &Time, known: u64, largest: Option<u64>) -> Option<IntegerRange> {
    let max_batch =
        largest.unwrap_or(known.saturating_mul(MAX_FACTOR)).clamp(1, super::largest::MAX_BATCH);
    // The range follows from that of the time: the larger the fixed part of an iteration may be,
    // the later it saturates.
    let ends: [fn(&Range) -> f64; 3] = [|time| time.high, |time| time.value, |time| time.low];
    let value = first_saturated(time, max_batch, ends[1])?;
    let all: Vec<u64> =
        ends.iter().filter_map(|end| first_saturated(time, max_batch, end)).collect();
    let low = all.iter().copied().min().unwrap_or(value);
    let high = all.iter().copied().max().unwrap_or(value);
    Some(IntegerRange { low: low.min(value), value, high: high.max(value) })
}

fn first_saturated(time: &Time, max_batch: u64, end: impl Fn(&Range) -> f64) -> Option<u64> {
    let throughput = |batch: u64| batch as f64 / end(&time.at(batch));
    let batches = candidates(max_batch);
    let best = batches.iter().map(|batch| throughput(*batch)).fold(0.0, f64::max);
    let first = batches.into_iter().find(|batch| throughput(*batch) >= SATURATED_SHARE * best)?;
    // Saturation next to the largest batch does not count, unless that is 1.
    let still_growing = max_batch > 1 && first as f64 > STILL_GROWING * max_batch as f64;
    (!still_growing).then_some(first)
}

/// Returns all batches up to 128, and then steps of 1/64, which is finer than any displayed number.
fn candidates(max_batch: u64) -> Vec<u64> {
    let mut batches: Vec<u64> = Vec::new();
    let mut batch = 1;
    while batch < max_batch {
        batches.push(batch);
        batch += (batch / 64).max(1);
    }
    batches.push(max_batch);
    batches
}
