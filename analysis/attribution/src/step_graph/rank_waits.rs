//! The host's waits for other ranks.

use ridgeline_base::intervals::Interval;
use ridgeline_graph::graph::TaskKind;

/// The waits of the loop's thread, sorted and without overlaps.
pub(super) struct RankWaits<'a>(pub &'a [Interval]);

impl RankWaits<'_> {
    /// Returns the kind of the host's task from a time on, which is `kind` unless it waits for
    /// other ranks, and the end of the task, which is at most `to`.
    pub(super) fn part(&self, (from, to): Interval, kind: TaskKind) -> (TaskKind, i64) {
        let next = self.0.partition_point(|(_, end)| *end <= from);
        match self.0.get(next) {
            Some((start, end)) if *start <= from => (TaskKind::RankWait, to.min(*end)),
            Some((start, _)) => (kind, to.min(*start)),
            None => (kind, to),
        }
    }
}
