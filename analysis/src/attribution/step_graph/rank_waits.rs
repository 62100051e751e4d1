//! Where the host waits for other ranks.

use crate::attribution::exchange::{Stretch, host_waits};
use crate::attribution::join::Join;
use crate::attribution::timeline::Piece;
use crate::whatif::graph::TaskKind;

/// The waits of the loop's thread, in order.
pub(super) struct RankWaits(Vec<Stretch>);

impl RankWaits {
    pub fn new(join: &Join<'_>, pieces: &[Piece]) -> RankWaits {
        RankWaits(host_waits(join, pieces))
    }

    /// What the host does from a time on, where it does `kind` if it doesn't wait for other ranks; and
    /// until when, which is `to` at the latest.
    pub fn part(&self, (from, to): Stretch, kind: TaskKind) -> (TaskKind, i64) {
        let next = self.0.partition_point(|(_, end)| *end <= from);
        match self.0.get(next) {
            Some((start, end)) if *start <= from => (TaskKind::RankWait, to.min(*end)),
            Some((start, _)) => (kind, to.min(*start)),
            None => (kind, to),
        }
    }
}
