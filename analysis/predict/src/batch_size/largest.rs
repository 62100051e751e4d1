//! The largest batch that fits.

use super::memory::Memory;

/// What an iteration may hold on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes of the device, or the limit that the person set.
    pub bytes: u64,
    /// Bytes of it that others hold: other programs, the device's own context.
    pub taken: u64,
}

impl Capacity {
    /// What is left for the iteration, in bytes.
    pub fn left(self) -> u64 {
        self.bytes.saturating_sub(self.taken)
    }
}

/// A whole number with its range: four of five cases lie within `low` and `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The lower end.
    pub low: u64,
    /// The likeliest.
    pub value: u64,
    /// The upper end.
    pub high: u64,
}

/// Larger batches are not looked at: nothing that a person writes has them.
pub(super) const MOST: u64 = 1 << 30;

/// The largest batch whose peak is within the capacity. `value` is 0 where not even one sample fits;
/// nothing where the peak does not grow, so that there is no largest.
pub(super) fn largest(memory: &Memory, capacity: Capacity) -> Option<Whole> {
    let left = capacity.left() as f64;
    let value = last_that(|batch| memory.at(batch).value <= left)?;
    let low = last_that(|batch| memory.at(batch).high <= left).unwrap_or(value);
    let high = last_that(|batch| memory.at(batch).low <= left).unwrap_or(value);
    Some(Whole { low: low.min(value), value, high: high.max(value) })
}

/// The last batch that fits, 0 where none does. The peak grows with the batch, so that it is between
/// the last power of two that fits and the next.
fn last_that(fits: impl Fn(u64) -> bool) -> Option<u64> {
    let mut too_many = 1;
    while fits(too_many) {
        too_many *= 2;
        if too_many > MOST {
            return None;
        }
    }
    let mut enough = too_many / 2;
    while too_many - enough > 1 {
        let between = enough + (too_many - enough) / 2;
        if fits(between) {
            enough = between;
        } else {
            too_many = between;
        }
    }
    Some(enough)
}
