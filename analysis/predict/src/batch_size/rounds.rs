//! Batches that took turns: the time of each relative to the current one, and whether that is known
//! accurately enough.
//!
//! The placement of tensors in memory is fixed for the lifetime of a process and makes it up to 10%
//! faster or slower than the next process (`docs/numbers.md`, "Other batch sizes"). More rounds do
//! not reveal that; more runs do.

use std::collections::BTreeMap;

use super::Round;
use ridgeline_base::statistics::median;

/// With fewer runs, their variance is unknown.
const MIN_RUNS: usize = 3;
/// A sufficient standard error of a ratio: a third of the 5% by which predictions may be off.
const MAX_ERROR: f64 = 0.015;

/// For each batch and run, the time relative to the current batch: the median of the run's rounds.
pub(super) fn ratios(in_turns: &[Vec<Round>], current: u64) -> BTreeMap<u64, Vec<f64>> {
    let mut ratios: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for rounds in in_turns {
        for (batch, of_run) in ratios_of_run(rounds, current) {
            ratios.entry(batch).or_default().extend(median(&of_run));
        }
    }
    ratios
}

/// The ratios of one run, by batch and round.
fn ratios_of_run(rounds: &[Round], current: u64) -> BTreeMap<u64, Vec<f64>> {
    let mut ratios: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for round in rounds {
        let Some((_, current_time)) = round.iter().find(|(batch, _)| *batch == current) else {
            continue;
        };
        for (batch, time) in round {
            let ratio = time / current_time;
            if *batch > 0 && ratio.is_finite() && ratio > 0.0 {
                ratios.entry(*batch).or_default().push(ratio);
            }
        }
    }
    ratios
}

/// Returns whether the ratio of each batch is accurate enough.
pub(super) fn are_enough(in_turns: &[Vec<Round>], current: u64) -> bool {
    let ratios = ratios(in_turns, current);
    let is_accurate =
        |ratios: &Vec<f64>| ratios.len() >= MIN_RUNS && standard_error(ratios) <= MAX_ERROR;
    ratios.len() > 1 && ratios.values().all(is_accurate)
}

/// The standard error of the mean, as a share of it.
fn standard_error(ratios: &[f64]) -> f64 {
    let count = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / count;
    let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
    (squares / (count - 1.0) / count).sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns runs in which the second batch takes twice as long, alternately plus and minus the
    /// share `off`.
    fn runs(count: usize, off: f64) -> Vec<Vec<Round>> {
        let off = |run: usize| if run.is_multiple_of(2) { off } else { -off };
        (0..count).map(|run| vec![vec![(8, 10.0), (16, 20.0 * (1.0 + off(run)))]; 4]).collect()
    }

    #[test]
    fn scattered_runs_need_more_runs() {
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
    fn no_ratio_without_the_current_batch() {
        assert!(ratios(&runs(3, 0.0), 32).is_empty());
        assert!(!are_enough(&runs(3, 0.0), 32));
        assert!(!are_enough(&[], 8));
        assert!(!are_enough(&vec![Vec::new(); 3], 8));
        let invalid = vec![vec![vec![(0, 1.0), (8, 0.0), (16, f64::NAN)]]];
        assert!(ratios(&invalid, 8).is_empty());
    }
}
