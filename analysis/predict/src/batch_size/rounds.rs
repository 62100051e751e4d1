//! Batches that ran side by side: how many times as long as the current one each takes, and whether
//! that is known well enough.
//!
//! Where in memory a process has its tensors stays the same as long as it lives, and makes it faster
//! or slower than the next one by up to a tenth (`docs/numbers.md`, "Other batch sizes"). No number of
//! rounds tells that; other runs do.

use std::collections::BTreeMap;

use super::Round;
use ridgeline_base::statistics::median;

/// Fewer runs tell nothing of how far they lie apart.
const FEWEST: usize = 3;
/// The standard error of a ratio that is good enough: a third of the twentieth by which predictions
/// may be off.
const SURE: f64 = 0.015;

/// By batch and run: its time by the current batch's, the middle one of the run's rounds.
pub(super) fn ratios(in_turns: &[Vec<Round>], current: u64) -> BTreeMap<u64, Vec<f64>> {
    let mut ratios: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for rounds in in_turns {
        for (batch, of_run) in of_run(rounds, current) {
            ratios.entry(batch).or_default().extend(median(&of_run));
        }
    }
    ratios
}

/// By batch and round.
fn of_run(rounds: &[Round], current: u64) -> BTreeMap<u64, Vec<f64>> {
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

/// Whether more runs would tell little: the ratio of each batch is sure.
pub(super) fn are_enough(in_turns: &[Vec<Round>], current: u64) -> bool {
    let ratios = ratios(in_turns, current);
    let is_sure = |ratios: &Vec<f64>| ratios.len() >= FEWEST && error(ratios) <= SURE;
    ratios.len() > 1 && ratios.values().all(is_sure)
}

/// The standard error of the mean of several, as a share of it.
fn error(ratios: &[f64]) -> f64 {
    let count = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / count;
    let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
    (squares / (count - 1.0) / count).sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs in which the second batch takes twice as long, give or take a share, in turn.
    fn runs(count: usize, off: f64) -> Vec<Vec<Round>> {
        let off = |run: usize| if run.is_multiple_of(2) { off } else { -off };
        (0..count).map(|run| vec![vec![(8, 10.0), (16, 20.0 * (1.0 + off(run)))]; 4]).collect()
    }

    #[test]
    fn the_further_runs_lie_apart_the_more() {
        assert!(!are_enough(&runs(2, 0.0), 8));
        assert!(are_enough(&runs(3, 0.01), 8));
        assert!(!are_enough(&runs(3, 0.1), 8));
        assert!(!are_enough(&runs(6, 0.1), 8));
    }

    #[test]
    fn rounds_of_one_run_count_once() {
        let run: Vec<Round> = vec![vec![(8, 10.0), (16, 20.0)]; 100];
        assert!(!are_enough(std::slice::from_ref(&run), 8));
        let other = vec![vec![(8, 10.0), (16, 24.0)]; 2];
        assert_eq!(ratios(&[run, other], 8)[&16], [2.0, 2.4]);
    }

    #[test]
    fn without_the_current_batch_there_is_no_ratio() {
        assert!(ratios(&runs(3, 0.0), 32).is_empty());
        assert!(!are_enough(&runs(3, 0.0), 32));
        assert!(!are_enough(&[], 8));
        assert!(!are_enough(&vec![Vec::new(); 3], 8));
        let strange = vec![vec![vec![(0, 1.0), (8, 0.0), (16, f64::NAN)]]];
        assert!(ratios(&strange, 8).is_empty());
    }
}
