//! Trivial predictions for the same cases: the baseline that a prediction has to beat.

use super::error_statistics::{ErrorStatistics, error_statistics, relative_error};

/// A trivial prediction for one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    /// The method: "bandwidth ratio".
    pub name: &'static str,
    /// In milliseconds, or proportional to them.
    pub value: f64,
    /// Whether `value` is only proportional. The best factor is then fitted *on the answers*, which
    /// makes it look better than it is.
    pub fitted: bool,
}

impl Guess {
    /// Returns a prediction in milliseconds.
    pub fn plain(name: &'static str, milliseconds: f64) -> Guess {
        Guess { name, value: milliseconds, fitted: false }
    }

    /// Returns a proportional prediction, which gets the best factor.
    pub fn fitted(name: &'static str, value: f64) -> Guess {
        Guess { name, value, fitted: true }
    }
}

/// Returns the errors of a trivial prediction over many cases: pairs of predicted and measured
/// values.
pub fn judge(cases: &[(f64, f64)], fitted: bool) -> Option<ErrorStatistics> {
    let is_valid = |(value, _): &&(f64, f64)| value.is_finite() && *value > 0.0;
    let cases: Vec<(f64, f64)> = cases.iter().filter(is_valid).copied().collect();
    let factor = if fitted { best_factor(&cases)? } else { 1.0 };
    let errors: Vec<f64> =
        cases.iter().map(|(value, measured)| relative_error(value * factor, *measured)).collect();
    error_statistics(&errors)
}

/// Returns the factor with the smallest mean relative error: sum |f * v / m - 1| is minimal at the
/// median of m / v, weighted by v / m.
fn best_factor(cases: &[(f64, f64)]) -> Option<f64> {
    let mut ratios: Vec<f64> = cases.iter().map(|(value, measured)| measured / value).collect();
    ratios.sort_by(f64::total_cmp);
    let half = ratios.iter().map(|ratio| 1.0 / ratio).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    for ratio in &ratios {
        sum += 1.0 / ratio;
        if sum >= half {
            return Some(*ratio);
        }
    }
    ratios.last().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_prediction_is_used_unchanged() {
        let found = judge(&[(90.0, 100.0), (110.0, 100.0)], false).expect("two cases");
        assert!((found.mean - 0.1).abs() < 1e-12);
    }

    #[test]
    fn a_proportional_prediction_gets_the_best_factor() {
        let found = judge(&[(1.0, 7.0), (2.0, 14.0), (3.0, 21.0)], true).expect("three cases");
        assert!(found.mean < 1e-12);
    }

    #[test]
    fn no_other_factor_is_better() {
        let cases = [(1.0, 2.0), (1.0, 3.0), (2.0, 7.0), (3.0, 7.5), (1.5, 9.0)];
        let best = judge(&cases, true).expect("cases").mean;
        for step in 1..1000 {
            let factor = f64::from(step) / 100.0;
            let scaled: Vec<(f64, f64)> =
                cases.iter().map(|(value, measured)| (value * factor, *measured)).collect();
            assert!(judge(&scaled, false).expect("cases").mean >= best - 1e-12);
        }
    }

    #[test]
    fn invalid_predictions_are_not_counted() {
        let cases = [(0.0, 1.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0), (1.0, 1.0)];
        assert_eq!(judge(&cases, false).map(|found| found.cases), Some(1));
        assert_eq!(judge(&cases[..1], true), None);
    }
}
