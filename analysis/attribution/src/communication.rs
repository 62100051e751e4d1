//! The collectives of ranks, and the waits for them.
//!
//! On a GPU a collective is a kernel, and the part without a concurrent compute kernel is exposed.
//! gloo's collectives are ranges of the trace (`gloo:all_reduce`), from the request to the end,
//! while gloo's threads do the work. The loop's thread waits for one in the gap between two of its
//! operators: if a collective ends in a gap, or ended right before it, the part of the gap during
//! the collective was a wait, and so is the call right before it that started the collective.

use std::collections::BTreeMap;

use super::contexts::ContextId;
use super::device::Launches;
use super::join::Join;
use super::timeline::Piece;
use crate::metrics::activity::communicating;
use ridgeline_base::intervals::{Interval, clipped, merged, without};
use ridgeline_recording::trace::ActivityKind;

/// Name prefixes of gloo's ranges; those of MPI and UCC are analogous.
const HOST_COLLECTIVE_PREFIXES: [&str; 3] = ["gloo:", "mpi:", "ucc:"];
/// Name prefixes of the operators with which `DistributedDataParallel` copies gradients to its
/// communication buckets and back (`torch/csrc/distributed/c10d/reducer.cpp`).
const REDUCER_PREFIXES: [&str; 2] =
    ["torch::distributed::reducer::", "torch.distributed.ddp.reducer::"];
/// The minimum nanoseconds of a wait. A shorter gap is Python between two operators in which a
/// collective happened to end.
const MIN_WAIT_NS: i64 = 20_000;
/// The maximum nanoseconds by which gloo's thread records the end of a collective after it has
/// woken the waiting thread.
const MAX_WAKE_TO_END_NS: i64 = 1_000_000;

/// The maximum number of Python pieces between the call and the start of a collective.
const MAX_PIECES_SINCE_CALL: usize = 100;

/// The collectives in the windows, and the waits for them.
#[derive(Debug, Default)]
pub(super) struct Communication {
    /// Whether the collectives run on GPUs.
    pub on_gpu: bool,
    /// The intervals of collectives.
    pub operations: Vec<Interval>,
    /// Exposed intervals by the context that waits.
    pub exposed: BTreeMap<Option<ContextId>, Vec<Interval>>,
    /// Intervals in which gradients are copied for collectives.
    pub copies: Vec<Interval>,
}

impl Communication {
    pub(crate) fn new(join: &Join<'_>, pieces: &[Piece], launches: &Launches) -> Communication {
        let communicates = communicating(join.trace);
        let on_gpu = gpu_operations(join, &communicates);
        let mut found = Communication {
            on_gpu: !on_gpu.is_empty(),
            copies: operators(join, &REDUCER_PREFIXES).collect(),
            ..Communication::default()
        };
        if found.on_gpu {
            found.on_gpu(join, launches, &on_gpu, &communicates);
            found.operations = on_gpu.into_iter().map(|(_, interval)| interval).collect();
        } else {
            found.operations = host_operations(join);
            found.on_host(join, pieces);
        }
        found
    }

    /// Returns the intervals in which the loop's thread waits for collectives on the host, sorted
    /// and without overlaps. Empty if the collectives run on GPUs.
    pub(crate) fn host_waits(&self) -> Vec<Interval> {
        if self.on_gpu {
            return Vec::new();
        }
        merged(self.exposed.values().flatten().copied().collect())
    }

    fn on_gpu(
        &mut self,
        join: &Join<'_>,
        launches: &Launches,
        operations: &[(usize, Interval)],
        communicates: &[bool],
    ) {
        let activities = join.trace.activities.iter().zip(communicates);
        let computing = activities
            .filter(|(activity, is_one)| activity.kind == ActivityKind::Kernel && !**is_one)
            .map(|(kernel, _)| (kernel.start_ns, kernel.end_ns()));
        let computing = merged(computing.collect());
        for &(index, interval) in operations {
            let exposed = without(interval, &computing);
            self.exposed.entry(launches.context(index)).or_default().extend(exposed);
        }
    }

    fn on_host(&mut self, join: &Join<'_>, pieces: &[Piece]) {
        let gaps = gaps(join, pieces);
        for &(start_ns, end_ns) in &self.operations {
            let from = end_ns.saturating_sub(MAX_WAKE_TO_END_NS);
            let first = gaps.partition_point(|gap| gap.end_ns() <= from);
            let near = gaps.get(first..).unwrap_or_default().iter();
            let near = near.take_while(|gap| gap.start_ns() < end_ns);
            let Some(gap) = near.max_by_key(|gap| gap.within((start_ns, end_ns))) else { continue };
            if gap.within((start_ns, end_ns)) < MIN_WAIT_NS {
                continue;
            }
            let start_ns = gap.call_start_ns(start_ns).unwrap_or(start_ns);
            let during = gap.during((start_ns, end_ns));
            // The waiting line is the one during which most of the collective runs: the gap extends
            // to the next operator, which may be on another line.
            let part = |piece: &Piece| (piece.start_ns.max(start_ns), piece.end_ns.min(end_ns));
            let goes_by = |piece: &&Piece| {
                let (from, to) = part(piece);
                to.saturating_sub(from)
            };
            let Some(longest) = during.iter().max_by_key(goes_by) else { continue };
            let context = longest.context;
            let waits = during.iter().map(part).filter(|(from, to)| from < to);
            self.exposed.entry(Some(context)).or_default().extend(waits);
        }
    }
}

/// The time between two operators of the loop's thread.
struct Gap<'a> {
    /// Consecutive pieces, at least one.
    pieces: &'a [Piece],
}

impl Gap<'_> {
    fn start_ns(&self) -> i64 {
        self.pieces.first().map_or(i64::MIN, |piece| piece.start_ns)
    }

    fn end_ns(&self) -> i64 {
        self.pieces.last().map_or(i64::MIN, |piece| piece.end_ns)
    }

    /// Returns the nanoseconds of an interval within the gap.
    fn within(&self, (start_ns, end_ns): Interval) -> i64 {
        self.end_ns().min(end_ns).saturating_sub(self.start_ns().max(start_ns))
    }

    /// Returns the pieces during an interval.
    fn during(&self, (start_ns, end_ns): Interval) -> &[Piece] {
        let first = self.pieces.partition_point(|piece| piece.end_ns <= start_ns);
        let rest = self.pieces.get(first..).unwrap_or_default();
        let count = rest.partition_point(|piece| piece.start_ns < end_ns);
        rest.get(..count).unwrap_or_default()
    }

    /// Returns the start of the operator that started a collective, if it is in the gap: nothing
    /// was computed since.
    fn call_start_ns(&self, start_ns: i64) -> Option<i64> {
        let until = self.pieces.partition_point(|piece| piece.start_ns <= start_ns);
        let before = self.pieces.get(..until).unwrap_or_default();
        let asks =
            before.iter().rev().take(MAX_PIECES_SINCE_CALL).find(|it| it.operator.is_some())?;
        Some(asks.start_ns)
    }
}

fn gaps<'a>(join: &Join<'_>, pieces: &'a [Piece]) -> Vec<Gap<'a>> {
    let is_gap = |piece: &Piece| piece.operator.is_none_or(|operator| is_waiting(join, operator));
    let goes_on =
        |one: &Piece, next: &Piece| is_gap(one) == is_gap(next) && one.end_ns == next.start_ns;
    let groups = pieces.chunk_by(goes_on);
    groups.filter(|group| group.first().is_some_and(is_gap)).map(|pieces| Gap { pieces }).collect()
}

/// Whether an operator starts a collective and may wait for it. Such operators compute nothing.
fn is_waiting(join: &Join<'_>, operator: u32) -> bool {
    let name = join.trace.operators.get(operator as usize).map(|it| join.trace.text(it.name));
    name.is_some_and(|name| name.starts_with("c10d::"))
}

/// Returns the communication kernels, clipped to the windows.
fn gpu_operations(join: &Join<'_>, communicates: &[bool]) -> Vec<(usize, Interval)> {
    let activities = join.trace.activities.iter().enumerate().zip(communicates);
    let kernels = activities.filter(|(_, is_one)| **is_one).map(|(activity, _)| activity);
    let within = kernels.flat_map(|(index, kernel)| {
        let interval = (kernel.start_ns, kernel.end_ns());
        clipped(interval, join.windows).into_iter().map(move |part| (index, part))
    });
    within.collect()
}

/// Returns the ranges of collectives on the host, clipped to the windows.
fn host_operations(join: &Join<'_>) -> Vec<Interval> {
    let annotations = join.trace.annotations.iter();
    let annotations = annotations
        .filter(|range| begins(join.trace.text(range.name), &HOST_COLLECTIVE_PREFIXES))
        .flat_map(|range| clipped((range.start_ns, range.end_ns()), join.windows));
    // Older traces have them among the operators.
    annotations.chain(operators(join, &HOST_COLLECTIVE_PREFIXES)).collect()
}

/// Returns the host's operators with these name prefixes, clipped to the windows.
fn operators(join: &Join<'_>, names: &[&str]) -> impl Iterator<Item = Interval> {
    let all = join.trace.operators.iter();
    all.filter(|operator| begins(join.trace.text(operator.name), names))
        .flat_map(|operator| clipped((operator.start_ns, operator.end_ns()), join.windows))
}

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|one| name.starts_with(one))
}
