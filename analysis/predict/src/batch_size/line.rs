//! A straight line through a few points, with its uncertainty.

/// `intercept + slope * x`, fitted by least squares of the *relative* errors, because the variation
/// of an iteration is proportional to its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub intercept: f64,
    pub slope: f64,
    /// The standard deviation of one point's relative error.
    pub scatter: f64,
    /// The weighted mean of `x`.
    mean: f64,
    /// The weighted sum of squares of `x`, which divides the variance of the slope.
    spread: f64,
    weight: f64,
}

impl Line {
    /// Fits a line through points with at least two different `x` and `y > 0`. Neither the
    /// intercept nor the slope is negative: an iteration cannot take negative time, or less time
    /// for more samples.
    pub(super) fn fit(points: &[(f64, f64)]) -> Option<Line> {
        let weigh = |y: f64| 1.0 / (y * y);
        let usable =
            |&(x, y): &(f64, f64)| x.is_finite() && y.is_finite() && y > 0.0 && weigh(y) > 0.0;
        let points: Vec<(f64, f64)> = points.iter().copied().filter(usable).collect();
        let weight: f64 = points.iter().map(|&(_, y)| weigh(y)).sum();
        let mean = points.iter().map(|&(x, y)| weigh(y) * x).sum::<f64>() / weight;
        let height = points.iter().map(|&(_, y)| weigh(y) * y).sum::<f64>() / weight;
        let spread: f64 = points.iter().map(|&(x, y)| weigh(y) * (x - mean).powi(2)).sum();
        // Points with nearly the same `x` have no slope.
        let is_spread = spread > 1e-12 * weight * mean * mean;
        if points.len() < 2 || !is_spread {
            return None;
        }
        let covariance: f64 =
            points.iter().map(|&(x, y)| weigh(y) * (x - mean) * (y - height)).sum();
        let mut slope = covariance / spread;
        let mut intercept = height - slope * mean;
        if slope < 0.0 {
            (slope, intercept) = (0.0, height);
        } else if intercept < 0.0 {
            let squares: f64 = points.iter().map(|&(x, y)| weigh(y) * x * x).sum();
            let products: f64 = points.iter().map(|&(x, y)| weigh(y) * x * y).sum();
            (slope, intercept) = (products / squares, 0.0);
        }
        let error = |&(x, y): &(f64, f64)| ((intercept + slope * x) / y - 1.0).powi(2);
        let degrees_of_freedom = points.len().saturating_sub(2).max(1) as f64;
        let scatter = (points.iter().map(error).sum::<f64>() / degrees_of_freedom).sqrt();
        Some(Line { intercept, slope, scatter, mean, spread, weight })
    }

    /// Returns the value of the line at `x`.
    pub(super) fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// Returns the standard deviation of the value at `x`, as a share of it, if single points vary
    /// by `scatter`.
    pub(super) fn deviation(&self, x: f64, scatter: f64) -> f64 {
        let variance = 1.0 / self.weight + (x - self.mean).powi(2) / self.spread;
        scatter * variance.max(0.0).sqrt() / self.at(x).max(f64::MIN_POSITIVE)
    }
}
