//! Batches that ran side by side: how many times as long as the current one each takes, and whether
//! that is known well enough.

use std::collections::BTreeMap;

use super::Round;
use crate::metrics::throughput::spread;

/// Fewer rounds tell nothing of how far they lie apart.
const FEWEST: usize = 8;
/// With more, what is left is no noise of the machine.
const MOST: usize = 96;
/// The standard error of a ratio that is good enough: a third of the twentieth by which predictions
/// may be off.
const SURE: f64 = 0.015;
/// A standard deviation by a [`spread`], for numbers that are normally distributed.
const DEVIATION: f64 = 1.4826;
/// The standard error of a median, by that of a mean (both for a normal distribution).
const OF_MEDIAN: f64 = 1.2533;

/// By batch and round: its time by the current batch's of the same round.
pub(super) fn ratios(rounds: &[Round], current: u64) -> BTreeMap<u64, Vec<f64>> {
    let mut ratios: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for round in rounds {
        let Some((_, of_current)) = round.iter().find(|(batch, _)| *batch == current) else {
            continue;
        };
        for (batch, time) in round {
            let ratio = time / of_current;
            if *batch > 0 && ratio.is_finite() && ratio > 0.0 {
                ratios.entry(*batch).or_default().push(ratio);
            }
        }
    }
    ratios
}

/// Whether more rounds would tell little: the middle ratio of each batch is sure.
pub(super) fn are_enough(rounds: &[Round], current: u64) -> bool {
    let ratios = ratios(rounds, current);
    let is_sure = |ratios: &Vec<f64>| {
        ratios.len() >= FEWEST && error(ratios).is_some_and(|error| error <= SURE)
    };
    rounds.len() >= MOST || (ratios.len() > 1 && ratios.values().all(is_sure))
}

/// The standard error of the middle one, as a share of it.
fn error(ratios: &[f64]) -> Option<f64> {
    Some(OF_MEDIAN * DEVIATION * spread(ratios)? / (ratios.len() as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds in which the second batch takes twice as long, give or take a share, in turn.
    fn rounds(count: usize, off: f64) -> Vec<Round> {
        let off = |round: usize| if round.is_multiple_of(2) { off } else { -off };
        (0..count).map(|round| vec![(8, 10.0), (16, 20.0 * (1.0 + off(round)))]).collect()
    }

    #[test]
    fn the_noisier_the_more() {
        assert!(!are_enough(&rounds(7, 0.0), 8));
        assert!(are_enough(&rounds(8, 0.02), 8));
        assert!(!are_enough(&rounds(8, 0.1), 8));
        assert!(!are_enough(&rounds(90, 0.1), 8));
        assert!(are_enough(&rounds(MOST, 0.5), 8));
    }

    #[test]
    fn without_the_current_batch_there_is_no_ratio() {
        assert!(ratios(&rounds(10, 0.0), 32).is_empty());
        assert!(!are_enough(&rounds(10, 0.0), 32));
        assert!(!are_enough(&[], 8));
        let strange = vec![vec![(0, 1.0), (8, 0.0), (16, f64::NAN)]];
        assert!(ratios(&strange, 8).is_empty());
    }
}
