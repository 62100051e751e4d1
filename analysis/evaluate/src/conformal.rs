//! Calibrates the width of ranges on held-out cases: split conformal prediction (Vovk, Gammerman
//! and Shafer, *Algorithmic Learning in a Random World*, 2005; with held-out groups instead of one
//! split, Barber et al., *Predictive inference with the jackknife+*, Annals of Statistics 2021).

/// The share of cases that a calibrated range should contain. A width calibrated on all GPUs but
/// one contains a smaller share on that one, because machines differ more than steps on one
/// machine: with 0.90 the ranges of `fit_data_parallel` contained 85% of the measurements, with
/// 0.92 they contain 92%.
pub const SHARE: f64 = 0.92;

/// Returns the smallest width that contains the requested share of cases, with the correction for
/// few cases: the ⌈(n + 1) · share⌉-th smallest of n. `None` without cases.
pub fn calibrated(needed: &[f64], share: f64) -> Option<f64> {
    let mut sorted = needed.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = ((sorted.len() + 1) as f64 * share).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// Returns the smallest width between 0 and `max` for which `is_enough` is true, or `max` if there
/// is none. `is_enough` must be monotonic.
pub fn min_width(max: f64, is_enough: impl Fn(f64) -> bool) -> f64 {
    const BISECTION_STEPS: usize = 40;
    let (mut low, mut high) = (0.0, max);
    for _ in 0..BISECTION_STEPS {
        let middle = (low + high) / 2.0;
        if is_enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibrated_width_contains_the_share_with_the_correction() {
        let needed: Vec<f64> = (1..=9).rev().map(f64::from).collect();
        // ⌈10 · 0.9⌉ = 9: all of the nine cases.
        assert_eq!(calibrated(&needed, 0.9), Some(9.0));
        assert_eq!(calibrated(&needed, 0.5), Some(5.0));
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(calibrated(&hundred, 0.9), Some(91.0));
        assert_eq!(calibrated(&[2.0], 0.99), Some(2.0));
        assert_eq!(calibrated(&[], 0.9), None);
    }

    #[test]
    fn the_smallest_width_is_found() {
        assert!((min_width(10.0, |width| width >= 3.0) - 3.0).abs() < 1e-6);
        assert_eq!(min_width(10.0, |_| false), 10.0);
    }
}
