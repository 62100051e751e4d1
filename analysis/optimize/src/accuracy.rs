//! Compares predictions with measurements: the accuracy of this project's what-ifs.
//!
//! The speed of a machine changes over time. So the unedited text runs again together with the
//! edited one, in turns if possible, and ratios are compared.
//!
//! A measured what-if also corrects later predictions of the same optimization in the same project
//! on the same device ([`correction`]).

use serde::{Deserialize, Serialize};

use super::numerics::Check;
use super::optimization::Prediction;

/// The version of a stored pair.
pub const VERSION: u32 = 1;

/// A predicted and measured optimization. It contains no folder or file names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// [`VERSION`].
    pub version: u32,
    /// The optimization's name: `amp-bf16`.
    pub name: String,
    /// Time of the measurement, in milliseconds since 1970.
    pub when_unix_ms: u64,
    /// Device name, as given by its vendor.
    pub device: String,
    /// PyTorch version.
    pub torch: String,
    /// Samples per iteration.
    pub batch_size: Option<u64>,
    /// Predicted times and memory.
    pub predicted: Sides,
    /// Measured times and memory, from runs close together.
    pub measured: Sides,
    /// Drift of the machine during the measurement: the slowdown of the unedited text from before
    /// to after the edited run or, if they took turns, the change of their ratio from the earlier
    /// to the later half. 0.1 is 10%.
    pub drift: f64,
    /// Whether the edit changes what is trained. `None` in entries of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numerics: Option<Check>,
}

/// An iteration with and without an optimization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sides {
    /// Iteration time without it, in nanoseconds.
    pub before_ns: f64,
    /// Iteration time with it, in nanoseconds.
    pub after_ns: f64,
    /// Peak memory without it in bytes, if known.
    pub before_peak_bytes: Option<f64>,
    /// Peak memory with it in bytes, if known.
    pub after_peak_bytes: Option<f64>,
}

impl Sides {
    /// Creates the sides of a prediction.
    pub fn predicted(prediction: &Prediction) -> Sides {
        Sides {
            before_ns: prediction.before_ns,
            after_ns: prediction.uncorrected_ns(),
            before_peak_bytes: prediction.before_peak_bytes,
            after_peak_bytes: prediction.peak_bytes.map(|peak| peak.value),
        }
    }

    /// Returns the ratio of the times after and before, or `None` if one is unknown.
    pub fn ratio(&self) -> Option<f64> {
        let is_known = |value: f64| value.is_finite() && value > 0.0;
        (is_known(self.before_ns) && is_known(self.after_ns))
            .then(|| self.after_ns / self.before_ns)
    }

    /// Returns the speedup, the inverse of the ratio.
    pub fn speedup(&self) -> Option<f64> {
        Some(1.0 / self.ratio()?)
    }
}

impl Pair {
    /// Returns the relative error of the predicted time: 0.1 is 10% too long.
    pub fn error(&self) -> Option<f64> {
        Some(self.predicted.ratio()? / self.measured.ratio()? - 1.0)
    }
}

/// The correction of a predicted time by measured pairs of the same optimization.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correction {
    /// Factor on the predicted time.
    pub factor: f64,
    /// Number of measurements.
    pub pairs: usize,
}

impl Correction {
    /// Formats it: `corrected by -8% from 3 measurements`.
    pub fn words(self) -> String {
        let percent = (self.factor - 1.0) * 100.0;
        let measurements = if self.pairs == 1 { "measurement" } else { "measurements" };
        format!("corrected by {percent:+.0}% from {} {measurements}", self.pairs)
    }

    /// Combines the corrections of two optimizations that are applied together.
    pub fn and(self, other: Correction) -> Correction {
        Correction { factor: self.factor * other.factor, pairs: self.pairs + other.pairs }
    }
}

/// The number of imaginary measurements that confirm the prediction. With 1, a single measurement
/// corrects half of the error.
const CONFIRMING_PAIRS: f64 = 1.0;
/// The maximum number of measurements used. Older ones are ignored, since the program has changed
/// since.
const MAX_PAIRS: usize = 5;
/// The maximum drift of a measurement that is used. Beyond it, the machine changed more than the
/// program.
pub(crate) const MAX_DRIFT: f64 = 0.1;
/// The maximum correction factor in either direction.
const MAX_FACTOR: f64 = 2.0;

/// Computes the correction of an optimization from the pairs of a project on one device, newest
/// first: the mean of the logarithms of the errors, shrunk towards zero. Returns `None` if it was
/// not measured.
pub fn correction(pairs: &[Pair], name: &str) -> Option<Correction> {
    let relevant = pairs.iter().filter(|pair| pair.name == name && pair.drift.abs() <= MAX_DRIFT);
    let errors: Vec<f64> = relevant
        .filter_map(|pair| Some((pair.measured.ratio()? / pair.predicted.ratio()?).ln()))
        .filter(|error| error.is_finite())
        .take(MAX_PAIRS)
        .collect();
    if errors.is_empty() {
        return None;
    }
    let mean = errors.iter().sum::<f64>() / (errors.len() as f64 + CONFIRMING_PAIRS);
    let factor = mean.exp().clamp(1.0 / MAX_FACTOR, MAX_FACTOR);
    Some(Correction { factor, pairs: errors.len() })
}

/// The accuracy of predictions over all pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// Number of pairs.
    pub pairs: usize,
    /// Mean absolute error.
    pub mean_error: f64,
    /// Largest absolute error.
    pub largest_error: f64,
}

/// Computes the accuracy of pairs. Returns `None` if there are none.
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
        // The machine was twice as slow during both measured runs.
        check(&[pair((100.0, 50.0), (200.0, 100.0))], Some((1, 0.0, 0.0)));
        check(
            &[pair((100.0, 55.0), (100.0, 50.0)), pair((100.0, 40.0), (100.0, 50.0))],
            Some((2, 0.15, 0.2)),
        );
    }

    #[test]
    fn pairs_without_measurements_do_not_count() {
        check(&[], None);
        check(&[pair((0.0, 1.0), (1.0, 1.0)), pair((1.0, 1.0), (1.0, f64::NAN))], None);
    }

    #[test]
    fn more_measurements_correct_more() {
        let compile = |measured: f64, drift: f64| Pair {
            name: "compile".to_owned(),
            drift,
            ..pair((100.0, 100.0), (100.0, measured))
        };
        let of = |pairs: &[Pair]| correction(pairs, "compile").map(|one| (one.pairs, one.factor));
        assert_eq!(of(&[]), None);
        assert_eq!(correction(&[compile(81.0, 0.0)], "amp-bf16"), None);
        // Half of the logarithm of a single measurement: 0.9 squared is 0.81.
        let (pairs, factor) = of(&[compile(81.0, 0.0)]).expect("a correction");
        assert!(pairs == 1 && (factor - 0.9).abs() < 1e-9, "{factor}");
        let (pairs, many) = of(&vec![compile(81.0, 0.0); 9]).expect("a correction");
        assert!(pairs == MAX_PAIRS && many < factor && many > 0.81, "{many}");
        // The machine was busy with something else.
        assert_eq!(of(&[compile(81.0, 0.5)]), None);
        let (_, most) = of(&vec![compile(1.0, 0.0); 5]).expect("a correction");
        assert_eq!(most, 1.0 / MAX_FACTOR);
    }

    #[test]
    fn corrected_predictions_have_a_note_and_keep_the_original_value() {
        let mut prediction = Prediction {
            names: vec!["compile".to_owned()],
            before_ns: 100.0,
            time_ns: ridgeline_operators::range::Range::within_factor(80.0, 1.25),
            samples_factor: 1.0,
            ..Prediction::default()
        };
        prediction.correct(Correction { factor: 0.9, pairs: 3 });
        assert_eq!(prediction.time_ns.value, 72.0);
        assert_eq!(
            prediction.notes,
            ["time corrected by -10% from 3 measurements in this project"]
        );
        assert_eq!(Sides::predicted(&prediction).after_ns, 80.0);
    }
}
