//! Predictions held against measurements: what this project's own what-ifs were worth.
//!
//! Machines have faster and slower hours. So the unedited text runs again beside the edited one, in turns
//! where that can be, and ratios are compared.
//!
//! A measured what-if also corrects later predictions of the same optimization in the same project on the
//! same device ([`correction`]).

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
            after_ns: prediction.uncorrected_ns(),
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

/// How measured pairs change the predicted time of the same optimization.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correction {
    /// What the predicted time is multiplied by.
    pub factor: f64,
    /// How many measurements it rests on.
    pub pairs: usize,
}

impl Correction {
    /// `corrected by -8% from 3 measurements`.
    pub fn words(self) -> String {
        let percent = (self.factor - 1.0) * 100.0;
        let measurements = if self.pairs == 1 { "measurement" } else { "measurements" };
        format!("corrected by {percent:+.0}% from {} {measurements}", self.pairs)
    }

    /// Both, of two optimizations that are applied together.
    pub fn and(self, other: Correction) -> Correction {
        Correction { factor: self.factor * other.factor, pairs: self.pairs + other.pairs }
    }
}

/// A correction counts as if so many measurements had confirmed the prediction: a single measurement
/// corrects by half of what it was off.
const CONFIRMING_PAIRS: f64 = 1.0;
/// Older measurements of the same optimization are left out: the program has changed since.
const NEWEST_PAIRS: usize = 5;
/// Measurements that drifted by more say more about the machine than about the optimization.
const MOST_DRIFT: f64 = 0.1;
/// No correction is larger than this factor either way.
const MOST_FACTOR: f64 = 2.0;

/// The correction of an optimization by the pairs of a project on one device, newest first: the mean of
/// the errors' logarithms, shrunk towards none. `None` where it was not measured.
pub fn correction(pairs: &[Pair], name: &str) -> Option<Correction> {
    let own = pairs.iter().filter(|pair| pair.name == name && pair.drift.abs() <= MOST_DRIFT);
    let errors: Vec<f64> = own
        .filter_map(|pair| Some((pair.measured.ratio()? / pair.predicted.ratio()?).ln()))
        .filter(|error| error.is_finite())
        .take(NEWEST_PAIRS)
        .collect();
    if errors.is_empty() {
        return None;
    }
    let mean = errors.iter().sum::<f64>() / (errors.len() as f64 + CONFIRMING_PAIRS);
    let factor = mean.exp().clamp(1.0 / MOST_FACTOR, MOST_FACTOR);
    Some(Correction { factor, pairs: errors.len() })
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

    #[test]
    fn measurements_correct_later_predictions_more_the_more_there_are() {
        let compile = |measured: f64, drift: f64| Pair {
            name: "compile".to_owned(),
            drift,
            ..pair((100.0, 100.0), (100.0, measured))
        };
        let of = |pairs: &[Pair]| correction(pairs, "compile").map(|one| (one.pairs, one.factor));
        assert_eq!(of(&[]), None);
        assert_eq!(correction(&[compile(81.0, 0.0)], "amp-bf16"), None);
        // Half of a single one's logarithm: 0.9 squared is 0.81.
        let (pairs, factor) = of(&[compile(81.0, 0.0)]).expect("a correction");
        assert!(pairs == 1 && (factor - 0.9).abs() < 1e-9, "{factor}");
        let (pairs, many) = of(&vec![compile(81.0, 0.0); 9]).expect("a correction");
        assert!(pairs == NEWEST_PAIRS && many < factor && many > 0.81, "{many}");
        // The machine was busy with something else.
        assert_eq!(of(&[compile(81.0, 0.5)]), None);
        let (_, most) = of(&vec![compile(1.0, 0.0); 5]).expect("a correction");
        assert_eq!(most, 1.0 / MOST_FACTOR);
    }

    #[test]
    fn a_corrected_prediction_says_so_and_is_kept_as_it_was_predicted() {
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
