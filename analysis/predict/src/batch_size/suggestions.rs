//! Suggested batch sizes, best first.

use super::curve::Curve;
use super::largest::Capacity;

/// Sizes above this are rounded to multiples of it, which suit tensor cores and caches.
const STEP: u64 = 8;

/// A curve says little about the throughput of batches that are more times as large as the current one.
const MAX_GROWTH: u64 = 64;

/// A suggested batch size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suggestion {
    /// At least 1, and different from the current one.
    pub batch: u64,
    pub reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// A larger batch would hardly be faster.
    Saturation,
    /// Throughput grows up to the limit of this memory.
    Largest(Capacity),
    /// Half, double, or a nearby power of two.
    Near,
}

/// Returns the sizes that the curve and the memory suggest, followed by neighbors of the current
/// size. If the largest batch is known, none is larger.
pub fn suggestions(
    curve: Option<&Curve>,
    capacity: Option<Capacity>,
    current: u64,
) -> Vec<Suggestion> {
    let mut found: Vec<Suggestion> = Vec::new();
    let mut add = |batch: u64, reason: Reason| {
        let is_new = batch != current && !found.iter().any(|known| known.batch == batch);
        if is_new && batch > 0 {
            found.push(Suggestion { batch, reason });
        }
    };
    let largest = curve.zip(capacity).and_then(|(curve, capacity)| {
        curve.largest(capacity).map(|largest| (largest.value, capacity))
    });
    let max_batch = largest.map(|(largest, _)| largest);
    let fits = |batch: &u64| max_batch.is_none_or(|max_batch| *batch <= max_batch);
    let saturation = curve.and_then(|curve| curve.saturation(max_batch)).map(|found| found.value);
    match (saturation, largest) {
        (Some(saturation), _) => {
            let rounded = Some(rounded_up(saturation)).filter(fits);
            add(rounded.unwrap_or(saturation), Reason::Saturation);
        }
        (None, Some((largest, capacity))) if largest / MAX_GROWTH <= current => {
            add(rounded_down(largest), Reason::Largest(capacity));
        }
        (None, _) => {}
    }
    let power_below = current.checked_ilog2().map(|power| 1_u64 << power);
    let power_above = current.checked_next_power_of_two();
    let near = [Some(current.saturating_mul(2)), Some(current / 2), power_below, power_above];
    for batch in near.into_iter().flatten().filter(fits) {
        add(batch, Reason::Near);
    }
    found
}

fn rounded_down(batch: u64) -> u64 {
    if batch > STEP { batch - batch % STEP } else { batch }
}

fn rounded_up(batch: u64) -> u64 {
    if batch > STEP { batch.next_multiple_of(STEP) } else { batch.next_power_of_two() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_curve_there_are_neighbors() {
        let batches = |current| -> Vec<u64> {
            suggestions(None, None, current).iter().map(|one| one.batch).collect()
        };
        assert_eq!(batches(64), [128, 32]);
        assert_eq!(batches(48), [96, 24, 32, 64]);
        assert_eq!(batches(1), [2]);
        assert!(batches(u64::MAX).iter().all(|batch| *batch > 0 && *batch != u64::MAX));
    }

    #[test]
    fn large_sizes_are_multiples_of_eight() {
        assert_eq!([1, 3, 8, 9, 247].map(rounded_up), [1, 4, 8, 16, 248]);
        assert_eq!([0, 3, 8, 9, 247].map(rounded_down), [0, 3, 8, 8, 240]);
    }
}
