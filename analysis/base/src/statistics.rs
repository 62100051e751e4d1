//! Statistics of measured values.

/// Returns the median, or `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns the index of the median; of an even number of values, that of the lower one.
pub fn median_index<T: Ord>(values: &[T]) -> Option<usize> {
    let mut by_value: Vec<(&T, usize)> = values.iter().zip(0..).collect();
    by_value.sort_unstable();
    by_value.get(values.len().checked_sub(1)? / 2).map(|(_, index)| *index)
}

/// Returns a quantile, linearly interpolated as in NumPy, or `None` if there are no values.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = share.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (below, above) =
        (sorted.get(position.floor() as usize)?, sorted.get(position.ceil() as usize)?);
    Some(below + (above - below) * position.fract())
}

/// Returns the probability that a standard normal value exceeds `z`.
pub fn upper_tail(z: f64) -> f64 {
    libm::erfc(z / std::f64::consts::SQRT_2) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 100.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn median_index_is_that_of_the_lower_median() {
        assert_eq!(median_index::<u64>(&[]), None);
        assert_eq!(median_index(&[3, 1, 100]), Some(0));
        assert_eq!(median_index(&[4, 1, 2, 100]), Some(2));
    }

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[10.0, 0.0], 0.25), Some(2.5));
        assert_eq!(quantile(&[7.0], 0.9), Some(7.0));
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 1.0), Some(3.0));
    }

    #[test]
    fn upper_tail_of_the_normal_distribution() {
        assert_eq!(upper_tail(0.0), 0.5);
        assert!((upper_tail(1.959_963_985) - 0.025).abs() < 1e-9);
        assert!((upper_tail(-1.959_963_985) - 0.975).abs() < 1e-9);
    }
}
