//! The largest batch that fits.

use super::memory::Memory;
use super::{Estimate, Run};

/// The memory available to an iteration on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes of device memory, or the user's limit.
    pub bytes: u64,
    /// Bytes used by others: other programs and the device's own context.
    pub taken: u64,
}

impl Capacity {
    /// Returns the bytes left for the iteration.
    pub fn available_bytes(self) -> u64 {
        self.bytes.saturating_sub(self.taken)
    }
}

/// A whole number with its 80% interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegerRange {
    /// The lower end.
    pub low: u64,
    /// The most likely value.
    pub value: u64,
    /// The upper end.
    pub high: u64,
}

/// The largest batch considered: larger ones do not occur in practice.
pub(super) const MAX_BATCH: u64 = 1 << 30;

/// Returns the largest batch whose peak fits the capacity. `value` is 0 if not even one sample
/// fits. `None` if the peak does not grow, so that there is no largest batch.
pub(super) fn largest(memory: &Memory, capacity: Capacity) -> Option<IntegerRange> {
    let left = capacity.available_bytes() as f64;
    let value = last_fitting(|batch| memory.at(batch).value <= left)?;
    let low = last_fitting(|batch| memory.at(batch).high <= left).unwrap_or(value);
    let high = last_fitting(|batch| memory.at(batch).low <= left).unwrap_or(value);
    Some(IntegerRange { low: low.min(value), value, high: high.max(value) })
}

/// Fits peak memory and returns the largest batch that fits. `None` if runs and estimates do not show
/// how the peak grows.
pub(crate) fn largest_fitting(
    runs: &[Run],
    estimates: &[Estimate],
    capacity: Capacity,
) -> Option<IntegerRange> {
    largest(&Memory::fit(runs, estimates)?, capacity)
}

/// Returns the largest batch that fits, 0 if none does. The peak grows with the batch, so the
/// result is between the largest power of two that fits and the next one.
fn last_fitting(fits: impl Fn(u64) -> bool) -> Option<u64> {
    let mut too_many = 1;
    while fits(too_many) {
        too_many *= 2;
        if too_many > MAX_BATCH {
            return None;
        }
    }
    let mut fitting = too_many / 2;
    while too_many - fitting > 1 {
        let middle = fitting + (too_many - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            too_many = middle;
        }
    }
    Some(fitting)
}
