//! Statistics of prediction errors: mean, median and 90th percentile.

use ridgeline_base::statistics::quantile;
use serde::Serialize;

/// Errors of a set of cases, as fractions: 0.07 is 7%.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ErrorStatistics {
    /// The number of cases.
    pub cases: usize,
    /// The mean error.
    pub mean: f64,
    /// The median error.
    pub median: f64,
    /// The 90th percentile of the error.
    pub p90: f64,
}

/// Returns |predicted / measured - 1|.
pub fn relative_error(predicted: f64, measured: f64) -> f64 {
    (predicted / measured - 1.0).abs()
}

/// Returns `None` without errors.
pub fn error_statistics(errors: &[f64]) -> Option<ErrorStatistics> {
    if errors.is_empty() {
        return None;
    }
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(ErrorStatistics {
        cases: sorted.len(),
        mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
        median: quantile(&sorted, 0.5)?,
        p90: quantile(&sorted, 0.9)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_measurement() {
        assert_eq!(relative_error(110.0, 100.0), 110.0 / 100.0 - 1.0);
        assert_eq!(relative_error(50.0, 100.0), 0.5);
    }

    #[test]
    fn no_case_has_no_statistics() {
        assert_eq!(error_statistics(&[]), None);
    }

    #[test]
    fn all_statistics_of_a_single_case_are_equal() {
        let one = ErrorStatistics { cases: 1, mean: 0.25, median: 0.25, p90: 0.25 };
        assert_eq!(error_statistics(&[0.25]), Some(one));
    }

    #[test]
    fn percentiles_are_interpolated() {
        // numpy.quantile([0, 1, 2, 3, 4], [0.5, 0.9]) is [2, 3.6].
        let found = error_statistics(&[4.0, 0.0, 3.0, 1.0, 2.0]).expect("there are cases");
        assert_eq!((found.mean, found.median), (2.0, 2.0));
        assert!((found.p90 - 3.6).abs() < 1e-12);
    }
}
