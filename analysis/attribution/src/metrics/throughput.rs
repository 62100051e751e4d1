//! The throughput of the loop and its variation.

use ridgeline_base::statistics::median;
use ridgeline_profile::IterationCost;

/// The headline numbers of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throughput {
    /// Nanoseconds per iteration.
    pub iteration_ns: f64,
    /// Samples per second, if the batch size is known.
    pub samples_per_second: Option<f64>,
    /// The median absolute deviation of the unprofiled iterations as a share of their median, which
    /// one slow iteration does not change. `None` for fewer than three.
    pub spread: Option<f64>,
}

/// Computes the throughput of an iteration.
pub fn throughput(iteration: &IterationCost) -> Throughput {
    Throughput {
        iteration_ns: iteration.time_ns,
        samples_per_second: iteration.samples_per_second(),
        spread: spread(&iteration.timed_ns),
    }
}

/// Returns the median absolute deviation as a share of the median; `None` for fewer than three
/// values.
pub(crate) fn spread(timed_ns: &[f64]) -> Option<f64> {
    if timed_ns.len() < 3 {
        return None;
    }
    let middle = median(timed_ns).filter(|middle| *middle > 0.0)?;
    let deviations: Vec<f64> = timed_ns.iter().map(|time_ns| (time_ns - middle).abs()).collect();
    Some(median(&deviations)? / middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_iteration_does_not_change_the_spread() {
        let iteration = IterationCost {
            time_ns: 1e9,
            timed_ns: vec![1e9, 1e9, 5e9],
            batch_size: Some(32),
            ..IterationCost::default()
        };
        let found = throughput(&iteration);
        assert_eq!((found.samples_per_second, found.spread), (Some(32.0), Some(0.0)));
    }
}
