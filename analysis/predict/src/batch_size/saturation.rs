//! Where throughput saturates: the smallest batch that reaches 95% of the best predicted throughput
//! of all batches up to the largest that fits.

use super::largest::Whole;
use super::time::Time;
use ridgeline_operators::range::Range;

/// The share of the best throughput that counts as saturated.
const ENOUGH: f64 = 0.95;
/// A batch so close to the largest is no saturation: throughput grows as far as memory goes.
const STILL_GROWING: f64 = 0.9;
/// Without a largest batch, so many times the largest that ran or was estimated is looked at.
const FAR: u64 = 64;

/// Nothing where throughput still grows at the largest batch.
pub(super) fn saturation(time: &Time, known: u64, largest: Option<u64>) -> Option<Whole> {
    let most = largest.unwrap_or(known.saturating_mul(FAR)).clamp(1, super::largest::MOST);
    // The range of the answer comes from that of the time: the slower the fixed part of an
    // iteration might be, the later it saturates.
    let ends: [fn(&Range) -> f64; 3] = [|time| time.high, |time| time.value, |time| time.low];
    let value = first_that_is_enough(time, most, ends[1])?;
    let others: Vec<u64> =
        ends.iter().filter_map(|end| first_that_is_enough(time, most, end)).collect();
    let low = others.iter().copied().min().unwrap_or(value);
    let high = others.iter().copied().max().unwrap_or(value);
    Some(Whole { low: low.min(value), value, high: high.max(value) })
}

fn first_that_is_enough(time: &Time, most: u64, end: impl Fn(&Range) -> f64) -> Option<u64> {
    let throughput = |batch: u64| batch as f64 / end(&time.at(batch));
    let batches = looked_at(most);
    let best = batches.iter().map(|batch| throughput(*batch)).fold(0.0, f64::max);
    let first = batches.into_iter().find(|batch| throughput(*batch) >= ENOUGH * best)?;
    // One batch alone is no curve, and a saturation next to the end is none.
    let still_growing = most > 1 && first as f64 > STILL_GROWING * most as f64;
    (!still_growing).then_some(first)
}

/// All batches up to 128, and then those a 64th apart: what is told is not told more exactly.
fn looked_at(most: u64) -> Vec<u64> {
    let mut batches: Vec<u64> = Vec::new();
    let mut batch = 1;
    while batch < most {
        batches.push(batch);
        batch += (batch / 64).max(1);
    }
    batches.push(most);
    batches
}
