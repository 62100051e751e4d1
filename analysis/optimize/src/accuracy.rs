//! Predictions held against measurements: what this project's own what-ifs were worth.
//!
//! Machines have faster and slower hours. So the unedited text runs again beside the edited one, in turns
//! where that can be, and ratios are compared.

use serde::{Deserialize, Serialize};

use super::optimization::Prediction;

/// The version of a kept pair.
pub const VERSION: u32 = 1;

/// One optimization as predicted and as measured. It names no folder and no file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// [`VERSION`].
    pub version: u32,
    /// The optimization's name: `amp-bf16`.
    pub name: String,
    /// When it was measured, in milliseconds since 1970.
    pub when_unix_ms: u64,
    /// What ran it, as its maker calls it.
    pub device: String,
    /// PyTorch's version.
    pub torch: String,
    /// Samples of an iteration.
    pub batch_size: Option<u64>,
    /// As predicted.
    pub predicted: Sides,
    /// As measured, one right beside the other.
    pub measured: Sides,
    /// What the machine did meanwhile: how much longer the unedited text took after the edited one ran
    /// than before it, or, where they took turns, the edited one beside the other in the later half than
    /// in the earlier: 0.1 is a tenth.
    pub drift: f64,
}

/// An iteration without an optimization and with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sides {
    /// Nanoseconds without it.
    pub before_ns: f64,
    /// Nanoseconds with it.
    pub after_ns: f64,
    /// Bytes at the peak without it, where that is known.
    pub before_peak_bytes: Option<f64>,
    /// Bytes at the peak with it, where that is known.
    pub after_peak_bytes: Option<f64>,
}

impl Sides {
    /// Of a prediction.
    pub fn predicted(prediction: &Prediction) -> Sides {
        Sides {
            before_ns: prediction.before_ns,
            after_ns: prediction.time_ns.value,
            before_peak_bytes: prediction.before_peak_bytes,
            after_peak_bytes: prediction.peak_bytes.map(|peak| peak.value),
        }
    }

    /// What the time is multiplied by; nothing where a side is unknown.
    pub fn ratio(&self) -> Option<f64> {
        let is_told = |value: f64| value.is_finite() && value > 0.0;
        (is_told(self.before_ns) && is_told(self.after_ns)).then(|| self.after_ns / self.before_ns)
    }

    /// How many times as fast.
    pub fn speedup(&self) -> Option<f64> {
        Some(1.0 / self.ratio()?)
    }
}

impl Pair {
    /// How far the predicted time was from the measured one: 0.1 is a tenth too long.
    pub fn error(&self) -> Option<f64> {
        Some(self.predicted.ratio()? / self.measured.ratio()? - 1.0)
    }
}

/// What predictions were worth, over all pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// How many.
    pub pairs: usize,
    /// The mean of the errors' sizes.
    pub mean_error: f64,
    /// The largest of them.
    pub largest_error: f64,
}

/// The accuracy of some pairs; nothing where there is none.
pub fn accuracy(pairs: &[Pair]) -> Option<Accuracy> {
    let errors: Vec<f64> = pairs.iter().filter_map(Pair::error).map(f64::abs).collect();
    if errors.is_empty() {
        return None;
    }
    Some(Accuracy {
        pairs: errors.len(),
        mean_error: errors.iter().sum::<f64>() / errors.len() as f64,
        largest_error: errors.iter().copied().fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(predicted: (f64, f64), measured: (f64, f64)) -> Pair {
        let sides = |(before_ns, after_ns)| Sides { before_ns, after_ns, ..Sides::default() };
        Pair { predicted: sides(predicted), measured: sides(measured), ..Pair::default() }
    }

    #[track_caller]
    fn check(pairs: &[Pair], expected: Option<(usize, f64, f64)>) {
        let found = accuracy(pairs).map(|it| (it.pairs, it.mean_error, it.largest_error));
        match (found, expected) {
            (Some(found), Some(expected)) => {
                assert_eq!(found.0, expected.0);
                assert!((found.1 - expected.1).abs() < 1e-9, "{found:?}");
                assert!((found.2 - expected.2).abs() < 1e-9, "{found:?}");
            }
            (found, expected) => assert_eq!(found, expected),
        }
    }

    #[test]
    fn ratios_are_compared() {
        // The machine was twice as slow when it was measured, in both runs.
        check(&[pair((100.0, 50.0), (200.0, 100.0))], Some((1, 0.0, 0.0)));
        check(
            &[pair((100.0, 55.0), (100.0, 50.0)), pair((100.0, 40.0), (100.0, 50.0))],
            Some((2, 0.15, 0.2)),
        );
    }

    #[test]
    fn what_was_not_measured_does_not_count() {
        check(&[], None);
        check(&[pair((0.0, 1.0), (1.0, 1.0)), pair((1.0, 1.0), (1.0, f64::NAN))], None);
    }
}
