//! The peak of memory by batch.
//!
//! What lives at one moment of an iteration grows in a straight line with the batch: weights,
//! gradients and optimizer state stay, activations and batches grow. The peak is the highest of
//! these lines, so it is made of straight pieces that never become flatter (the moment of the peak
//! changes from the optimizer's step to the backward pass, say). Estimates give it exactly but for
//! what fake tensors do not see, such as workspaces of convolutions; runs correct that.

use std::collections::BTreeMap;

use super::time::{along, doublings};
use super::{Estimate, Run};
use ridgeline_operators::range::Range;

/// How far an estimate can be from the measured peak where nothing corrects it: the bar that estimates
/// are held to.
const UNCORRECTED: f64 = 0.02;
/// How far a corrected one can be, and a straight line between runs.
const CORRECTED: f64 = 0.003;
/// More for each doubling away from what is known, where the peak may move to another moment.
const PER_DOUBLING: f64 = 0.01;
/// The same where one run alone says which of its memory grows.
const PER_DOUBLING_OF_KINDS: f64 = 0.06;

/// The fitted peak.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Memory {
    /// `(batch, bytes)`, by batch, at least two. Between and beyond them the peak is straight.
    knots: Vec<(f64, f64)>,
    known: (u64, u64),
    per_doubling: f64,
    /// At a knot.
    share: f64,
}

impl Memory {
    /// Nothing where runs and estimates do not say how the peak depends on the batch.
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
            return Some(Memory::of_estimates(&measured, &estimated));
        }
        if measured.len() >= 2 {
            return Some(Memory::of_runs(&measured));
        }
        Memory::of_one(runs)
    }

    fn of_estimates(measured: &BTreeMap<u64, f64>, estimated: &BTreeMap<u64, f64>) -> Memory {
        let shape: Vec<(f64, f64)> =
            estimated.iter().map(|(batch, bytes)| (*batch as f64, *bytes)).collect();
        // Between two estimates the peak may have a kink, so runs of estimated batches count first.
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
            // What estimates miss is a share of what they see, as far as one run can tell.
            [(_, ratio)] => ratio,
            [(first, _), .., (last, _)] => along(&corrections, batch.clamp(first, last)),
        };
        let mut knots: BTreeMap<u64, f64> = estimated
            .iter()
            .map(|(batch, bytes)| (*batch, bytes * correct(*batch as f64)))
            .collect();
        knots.extend(measured);
        let share = if measured.is_empty() { UNCORRECTED } else { CORRECTED };
        Memory::through(&knots, share, PER_DOUBLING)
    }

    fn of_runs(measured: &BTreeMap<u64, f64>) -> Memory {
        Memory::through(measured, CORRECTED, 2.0 * PER_DOUBLING)
    }

    /// From what one run held at its peak: what belongs to the model stays, the rest grows.
    fn of_one(runs: &[Run]) -> Option<Memory> {
        let run = runs.iter().find(|run| run.batch > 0 && run.at_peak.total() > 0)?;
        let (kinds, batch) = (run.at_peak, run.batch as f64);
        let stays = [kinds.weights, kinds.gradients, kinds.optimizer_state];
        let stays: f64 = stays.iter().map(|bytes| *bytes as f64).sum();
        let grows = (kinds.total() as f64 - stays).max(0.0);
        let knots = vec![(0.0, stays), (batch, stays + grows)];
        let known = (run.batch, run.batch);
        Some(Memory { knots, known, per_doubling: PER_DOUBLING_OF_KINDS, share: CORRECTED })
    }

    fn through(knots: &BTreeMap<u64, f64>, share: f64, per_doubling: f64) -> Memory {
        let known = match (knots.first_key_value(), knots.last_key_value()) {
            (Some((first, _)), Some((last, _))) => (*first, *last),
            _ => (1, 1),
        };
        let knots = knots.iter().map(|(batch, bytes)| (*batch as f64, *bytes)).collect();
        Memory { knots, known, per_doubling, share }
    }

    /// Bytes at the peak.
    pub(super) fn at(&self, batch: u64) -> Range {
        // Memory does not shrink with a larger batch; two estimates that say so do not continue.
        let value = along(&self.knots, batch as f64);
        let share = self.share + self.per_doubling * doublings(batch, self.known);
        Range { low: value * (1.0 - share).max(0.0), value, high: value * (1.0 + share) }
    }
}
