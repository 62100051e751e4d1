//! Peak memory by batch.
//!
//! The memory alive at one moment of an iteration is a straight line over the batch: weights,
//! gradients and optimizer state are constant, activations and batches grow. The peak is the
//! maximum of these lines, so it consists of straight pieces that never become flatter (for
//! example, the moment of the peak moves from the optimizer step to the backward pass). Estimates
//! give it exactly, except for allocations that fake tensors do not see, such as workspaces of
//! convolutions; runs correct that.

use std::collections::BTreeMap;

use super::time::{along, doublings};
use super::{Estimate, Run};
use ridgeline_operators::range::Range;

/// Relative error of an uncorrected estimate: the accuracy required of estimates.
const UNCORRECTED_ERROR: f64 = 0.02;
/// Relative error of a corrected estimate, and of a line between runs.
const CORRECTED_ERROR: f64 = 0.003;
/// Additional error for each doubling away from the known batches, where the peak may move to
/// another moment.
const PER_DOUBLING: f64 = 0.01;
/// The same if only the kinds of memory in one run show what grows.
const PER_DOUBLING_OF_KINDS: f64 = 0.06;

/// The fitted peak.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Memory {
    /// `(batch, bytes)`, sorted by batch, at least two. The peak is straight between and beyond
    /// them.
    knots: Vec<(f64, f64)>,
    known: (u64, u64),
    per_doubling: f64,
    /// Relative error at a knot.
    error: f64,
}

impl Memory {
    /// Returns `None` if runs and estimates do not show how the peak depends on the batch.
    pub(super) fn fit(runs: &[Run], estimates: &[Estimate]) -> Option<Memory> {
        let mut measured: BTreeMap<u64, f64> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.batch > 0) {
            let peak = measured.entry(run.batch).or_default();
            *peak = peak.max(run.peak_bytes.unwrap_or(0) as f64);
        }
        measured.retain(|_, peak| *peak > 0.0);
        let estimated: BTreeMap<u64, f64> = estimates
            .iter()
            .filter(|estimate| estimate.batch > 0 && estimate.peak_bytes > 0)
            .map(|estimate| (estimate.batch, estimate.peak_bytes as f64))
            .collect();
        if estimated.len() >= 2 {
            return Some(Memory::from_estimates(&measured, &estimated));
        }
        if measured.len() >= 2 {
            return Some(Memory::from_runs(&measured));
        }
        Memory::from_single_run(runs)
    }

    fn from_estimates(measured: &BTreeMap<u64, f64>, estimated: &BTreeMap<u64, f64>) -> Memory {
        let shape: Vec<(f64, f64)> =
            estimated.iter().map(|(batch, bytes)| (*batch as f64, *bytes)).collect();
        // The peak may have a kink between two estimates, so prefer runs of estimated batches.
        let both = measured.iter().filter(|(batch, _)| estimated.contains_key(batch));
        let mut compared: Vec<(&u64, &f64)> = both.collect();
        if compared.is_empty() {
            compared = measured.iter().collect();
        }
        let corrections: Vec<(f64, f64)> = compared
            .into_iter()
            .map(|(batch, bytes)| (*batch as f64, bytes / along(&shape, *batch as f64)))
            .collect();
        let correct = |batch: f64| match corrections[..] {
            [] => 1.0,
            // With a single run, assume that estimates miss a constant share.
            [(_, ratio)] => ratio,
            [(first, _), .., (last, _)] => along(&corrections, batch.clamp(first, last)),
        };
        let mut knots: BTreeMap<u64, f64> = estimated
            .iter()
            .map(|(batch, bytes)| (*batch, bytes * correct(*batch as f64)))
            .collect();
        knots.extend(measured);
        let error = if measured.is_empty() { UNCORRECTED_ERROR } else { CORRECTED_ERROR };
        Memory::through(&knots, error, PER_DOUBLING)
    }

    fn from_runs(measured: &BTreeMap<u64, f64>) -> Memory {
        Memory::through(measured, CORRECTED_ERROR, 2.0 * PER_DOUBLING)
    }

    /// Fits the peak of a single run: memory of the model is constant, the rest grows.
    fn from_single_run(runs: &[Run]) -> Option<Memory> {
        let run = runs.iter().find(|run| run.batch > 0 && run.at_peak.total() > 0)?;
        let (kinds, batch) = (run.at_peak, run.batch as f64);
        let constant = [kinds.weights, kinds.gradients, kinds.optimizer_state];
        let constant: f64 = constant.iter().map(|bytes| *bytes as f64).sum();
        let growing = (kinds.total() as f64 - constant).max(0.0);
        let knots = vec![(0.0, constant), (batch, constant + growing)];
        let known = (run.batch, run.batch);
        Some(Memory { knots, known, per_doubling: PER_DOUBLING_OF_KINDS, error: CORRECTED_ERROR })
    }

    fn through(knots: &BTreeMap<u64, f64>, error: f64, per_doubling: f64) -> Memory {
        let known = match (knots.first_key_value(), knots.last_key_value()) {
            (Some((first, _)), Some((last, _))) => (*first, *last),
            _ => (1, 1),
        };
        let knots = knots.iter().map(|(batch, bytes)| (*batch as f64, *bytes)).collect();
        Memory { knots, known, per_doubling, error }
    }

    /// Returns the peak in bytes.
    pub(super) fn at(&self, batch: u64) -> Range {
        // Memory does not shrink with a larger batch, so a falling line between two estimates does
        // not continue.
        let value = along(&self.knots, batch as f64);
        let error = self.error + self.per_doubling * doublings(batch, self.known);
        Range { low: value * (1.0 - error).max(0.0), value, high: value * (1.0 + error) }
    }
}
