//! The operations by which ranks talk, and what waits for them.
//!
//! On a GPU an operation is a kernel of its own, and what no computing kernel runs beside is exposed.
//! gloo's operations are ranges of the trace (`gloo:all_reduce`), from the request to the end, while
//! threads of gloo's own work. There the loop's thread waits for an operation in the gap between two
//! of its operators: of the gap in which an operation ends, or which ended right before, the part while
//! it was under way was a wait, and so is asking for it right before.

use std::collections::BTreeMap;

use super::contexts::ContextId;
use super::device::Launches;
use super::join::Join;
use super::timeline::Piece;
use crate::metrics::activity::communicating;
use ridgeline_base::intervals::{Interval, clipped, merged, without};
use ridgeline_recording::trace::ActivityKind;

/// How ranges of gloo's operations begin; MPI's and UCC's are named likewise.
const ON_THE_HOST: [&str; 3] = ["gloo:", "mpi:", "ucc:"];
/// How the operators begin by which `DistributedDataParallel` copies gradients into the memory that is
/// exchanged, and back (`torch/csrc/distributed/c10d/reducer.cpp`).
const OF_REDUCER: [&str; 2] = ["torch::distributed::reducer::", "torch.distributed.ddp.reducer::"];
/// A shorter gap is Python between two operators that an operation happened to end in.
const SHORTEST_WAIT_NS: i64 = 20_000;
/// gloo's thread wakes the one that waits, and then notes the operation's end: so much later at most.
const WOKEN_BEFORE_NS: i64 = 1_000_000;

/// So many pieces of Python lie at most between asking for an operation and its beginning.
const MOST_SINCE_ASKED: usize = 100;

/// The operations of the windows, and what waits for them.
#[derive(Debug, Default)]
pub(super) struct Communication {
    /// GPUs exchange.
    pub on_gpu: bool,
    /// The operations.
    pub operations: Vec<Interval>,
    /// Exposed stretches by what waits.
    pub exposed: BTreeMap<Option<ContextId>, Vec<Interval>>,
    /// When gradients are copied for operations.
    pub copies: Vec<Interval>,
}

impl Communication {
    pub(crate) fn new(join: &Join<'_>, pieces: &[Piece], launches: &Launches) -> Communication {
        let communicates = communicating(join.trace);
        let on_gpu = gpu_operations(join, &communicates);
        let mut found = Communication {
            on_gpu: !on_gpu.is_empty(),
            copies: operators(join, &OF_REDUCER).collect(),
            ..Communication::default()
        };
        if found.on_gpu {
            found.on_gpu(join, launches, &on_gpu, &communicates);
            found.operations = on_gpu.into_iter().map(|(_, stretch)| stretch).collect();
        } else {
            found.operations = host_operations(join);
            found.on_host(join, pieces);
        }
        found
    }

    /// Where the loop's thread waits for operations on the host: sorted, without overlaps. Nothing where
    /// GPUs exchange.
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
        for &(index, stretch) in operations {
            let exposed = without(stretch, &computing);
            self.exposed.entry(launches.context(index)).or_default().extend(exposed);
        }
    }

    fn on_host(&mut self, join: &Join<'_>, pieces: &[Piece]) {
        let gaps = gaps(join, pieces);
        for &(start_ns, end_ns) in &self.operations {
            let from = end_ns.saturating_sub(WOKEN_BEFORE_NS);
            let first = gaps.partition_point(|gap| gap.end_ns() <= from);
            let near = gaps.get(first..).unwrap_or_default().iter();
            let near = near.take_while(|gap| gap.start_ns() < end_ns);
            let Some(gap) = near.max_by_key(|gap| gap.within((start_ns, end_ns))) else { continue };
            if gap.within((start_ns, end_ns)) < SHORTEST_WAIT_NS {
                continue;
            }
            let start_ns = gap.asked_ns(start_ns).unwrap_or(start_ns);
            let during = gap.during((start_ns, end_ns));
            // The line that waits is the one on which most of the operation goes by: the gap goes on
            // to the next operator, which may be another line's.
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

/// Time between two operators of the loop's thread.
struct Gap<'a> {
    /// One after the other, at least one.
    pieces: &'a [Piece],
}

impl Gap<'_> {
    fn start_ns(&self) -> i64 {
        self.pieces.first().map_or(i64::MIN, |piece| piece.start_ns)
    }

    fn end_ns(&self) -> i64 {
        self.pieces.last().map_or(i64::MIN, |piece| piece.end_ns)
    }

    /// Nanoseconds of a stretch that are within it.
    fn within(&self, (start_ns, end_ns): Interval) -> i64 {
        self.end_ns().min(end_ns).saturating_sub(self.start_ns().max(start_ns))
    }

    /// The pieces during a stretch.
    fn during(&self, (start_ns, end_ns): Interval) -> &[Piece] {
        let first = self.pieces.partition_point(|piece| piece.end_ns <= start_ns);
        let rest = self.pieces.get(first..).unwrap_or_default();
        let count = rest.partition_point(|piece| piece.start_ns < end_ns);
        rest.get(..count).unwrap_or_default()
    }

    /// When the operator began that asked for what began at a time, where that is in the gap: nothing
    /// was computed since.
    fn asked_ns(&self, start_ns: i64) -> Option<i64> {
        let until = self.pieces.partition_point(|piece| piece.start_ns <= start_ns);
        let before = self.pieces.get(..until).unwrap_or_default();
        let asks = before.iter().rev().take(MOST_SINCE_ASKED).find(|it| it.operator.is_some())?;
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

/// Operators that ask for an operation and may wait for it: they compute nothing.
fn is_waiting(join: &Join<'_>, operator: u32) -> bool {
    let name = join.trace.operators.get(operator as usize).map(|it| join.trace.text(it.name));
    name.is_some_and(|name| name.starts_with("c10d::"))
}

/// The kernels that communicate, as far as they are within the windows.
fn gpu_operations(join: &Join<'_>, communicates: &[bool]) -> Vec<(usize, Interval)> {
    let activities = join.trace.activities.iter().enumerate().zip(communicates);
    let kernels = activities.filter(|(_, is_one)| **is_one).map(|(activity, _)| activity);
    let within = kernels.flat_map(|(index, kernel)| {
        let stretch = (kernel.start_ns, kernel.end_ns());
        clipped(stretch, join.windows).into_iter().map(move |part| (index, part))
    });
    within.collect()
}

/// The ranges of operations on the host, as far as they are within the windows.
fn host_operations(join: &Join<'_>) -> Vec<Interval> {
    let annotations = join.trace.annotations.iter();
    let annotations = annotations
        .filter(|range| begins(join.trace.text(range.name), &ON_THE_HOST))
        .flat_map(|range| clipped((range.start_ns, range.end_ns()), join.windows));
    // Older traces have them among the operators.
    annotations.chain(operators(join, &ON_THE_HOST)).collect()
}

/// The host's operators with such names, as far as they are within the windows.
fn operators(join: &Join<'_>, names: &[&str]) -> impl Iterator<Item = Interval> {
    let all = join.trace.operators.iter();
    all.filter(|operator| begins(join.trace.text(operator.name), names))
        .flat_map(|operator| clipped((operator.start_ns, operator.end_ns()), join.windows))
}

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|one| name.starts_with(one))
}
