//! PyTorch's own ranges: of optimizers, and of loaders.

use std::collections::HashMap;

use crate::attribution::recorded_step::{annotated, is_during};
use crate::profile::Phase;
use crate::recording::trace::Trace;

/// What PyTorch calls the range in which a loop takes its next batch; the loader's class follows.
const LOADING: &str = "enumerate(DataLoader)#";
/// The class of loaders with worker processes.
const WITH_WORKERS: &str = "MultiProcessing";

/// PyTorch's own ranges, which tell phases where the recording has no marks of ours.
pub(super) struct OwnRanges {
    updates: Vec<(i64, i64)>,
    loading: Vec<(i64, i64)>,
    /// Where one of them begins or ends, in order.
    borders: Vec<i64>,
}

impl OwnRanges {
    pub fn new(trace: &Trace) -> OwnRanges {
        let updates = annotated(trace, "Optimizer.");
        let mut loading = annotated(trace, LOADING);
        if loading.is_empty() {
            loading = loading_of_2021(trace);
        }
        let both = updates.iter().chain(&loading);
        let mut borders: Vec<i64> = both.flat_map(|(start, end)| [*start, *end]).collect();
        borders.sort_unstable();
        OwnRanges { updates, loading, borders }
    }

    pub fn phase_at(&self, time_ns: i64) -> Option<Phase> {
        if is_during(&self.loading, time_ns) {
            Some(Phase::Data)
        } else {
            is_during(&self.updates, time_ns).then_some(Phase::Optimizer)
        }
    }

    pub fn next_border(&self, after_ns: i64) -> Option<i64> {
        self.borders.get(self.borders.partition_point(|border| *border <= after_ns)).copied()
    }
}

/// Traces of 2021 have the ranges of loaders among operators.
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

/// Whether the loaders have worker processes; nothing where no loader was seen.
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
