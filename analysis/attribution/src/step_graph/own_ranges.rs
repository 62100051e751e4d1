//! PyTorch's annotations of optimizers and loaders.

use std::collections::HashMap;

use crate::recorded_step::{annotated, is_during};
use ridgeline_profile::Phase;
use ridgeline_recording::trace::Trace;

/// Name prefix of PyTorch's range in which a loop takes its next batch, followed by the loader's
/// class.
const LOADING: &str = "enumerate(DataLoader)#";
/// Prefix of the class of loaders with worker processes.
const WITH_WORKERS: &str = "MultiProcessing";

/// PyTorch's annotations, which give phases if the recording has no markers of ours.
pub(super) struct OwnRanges {
    has_marks: bool,
    updates: Vec<(i64, i64)>,
    loading: Vec<(i64, i64)>,
    /// Start and end times of the ranges, sorted.
    borders: Vec<i64>,
}

impl OwnRanges {
    /// `has_marks` is whether the recording has a line log with phases and modules.
    pub(super) fn new(trace: &Trace, has_marks: bool) -> OwnRanges {
        let updates = annotated(trace, "Optimizer.");
        let mut loading = annotated(trace, LOADING);
        if loading.is_empty() {
            loading = loading_of_2021(trace);
        }
        let both = updates.iter().chain(&loading);
        let mut borders: Vec<i64> = both.flat_map(|(start, end)| [*start, *end]).collect();
        borders.sort_unstable();
        OwnRanges { has_marks, updates, loading, borders }
    }

    /// Returns the phase at a moment, given the phase of its context. Frameworks run forward and
    /// backward passes within `optimizer.step(closure)`, which is not part of the update.
    pub(super) fn phase_at(&self, time_ns: i64, of_context: Phase) -> Phase {
        if is_during(&self.loading, time_ns) {
            return Phase::Data;
        }
        let is_closure =
            of_context == Phase::Backward || (self.has_marks && of_context == Phase::Forward);
        if !is_closure && is_during(&self.updates, time_ns) {
            return Phase::Optimizer;
        }
        of_context
    }

    pub(super) fn next_border(&self, after_ns: i64) -> Option<i64> {
        self.borders.get(self.borders.partition_point(|border| *border <= after_ns)).copied()
    }
}

/// Returns the loader ranges of traces of 2021, which have them among the operators.
fn loading_of_2021(trace: &Trace) -> Vec<(i64, i64)> {
    let mut is_loading: HashMap<_, bool> = HashMap::new();
    let ranges = trace.operators.iter().filter(|operator| {
        *is_loading
            .entry(operator.name)
            .or_insert_with(|| trace.text(operator.name).starts_with(LOADING))
    });
    let mut ranges: Vec<_> = ranges.map(|one| (one.start_ns, one.end_ns())).collect();
    ranges.sort_unstable();
    ranges
}

/// Returns whether the loaders have worker processes; `None` if there was no loader.
pub(super) fn loader_has_workers(trace: &Trace) -> Option<bool> {
    let mut names = trace
        .annotations
        .iter()
        .map(|annotation| trace.text(annotation.name))
        .filter(|name| name.starts_with(LOADING))
        .peekable();
    names.peek()?;
    Some(names.any(|name| name.contains(WITH_WORKERS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closure_is_not_part_of_the_update() {
        let ranges = |has_marks| OwnRanges {
            has_marks,
            updates: vec![(100, 200)],
            loading: vec![(0, 50)],
            borders: vec![0, 50, 100, 200],
        };
        assert_eq!(ranges(true).phase_at(150, Phase::Other), Phase::Optimizer);
        assert_eq!(ranges(true).phase_at(150, Phase::Forward), Phase::Forward);
        assert_eq!(ranges(true).phase_at(250, Phase::Other), Phase::Other);
        // The loader's transforms may be modules.
        assert_eq!(ranges(true).phase_at(20, Phase::Forward), Phase::Data);
        // Without marks, everything except the backward pass counts as forward pass.
        assert_eq!(ranges(false).phase_at(150, Phase::Forward), Phase::Optimizer);
        assert_eq!(ranges(false).phase_at(150, Phase::Backward), Phase::Backward);
    }
}
