//! Where the host waits for other ranks.

use ridgeline_base::intervals::Interval;
use ridgeline_graph::graph::TaskKind;

/// The waits of the loop's thread, in order, without overlaps.
pub(super) struct RankWaits<'a>(pub &'a [Interval]);

impl RankWaits<'_> {
    /// What the host does from a time on, where it does `kind` if it doesn't wait for other ranks; and
    /// until when, which is `to` at the latest.
    pub(super) fn part(&self, (from, to): Interval, kind: TaskKind) -> (TaskKind, i64) {
        let next = self.0.partition_point(|(_, end)| *end <= from);
        match self.0.get(next) {
            Some((start, end)) if *start <= from => (TaskKind::RankWait, to.min(*end)),
            Some((start, _)) => (kind, to.min(*start)),
            None => (kind, to),
        }
    }
}
