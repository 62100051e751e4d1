//! Talk between ranks: how much of it there is, and how much of it nothing hides.
//!
//! On a GPU an operation is a kernel of its own, and what no computing kernel runs beside is exposed.
//! gloo's operations are ranges of the trace (`gloo:all_reduce`), from the request to the end, while
//! threads of gloo's own work. There the loop's thread waits for an operation in the gap between two
//! of its operators: of the gap in which an operation ends, or which ended right before, the part while
//! it was under way was a wait, and so is asking for it right before.

use std::collections::BTreeMap;

use super::contexts::{ContextId, Contexts};
use super::device::Launches;
use super::join::Join;
use super::scale::Scale;
use super::steps::Steps;
use super::timeline::Piece;
use crate::metrics::activity::communicating;
use crate::metrics::intervals::union_ns;
use crate::profile::exchange::{Exchange, ExposedLine};
use crate::profile::{FileId, Phase};
use crate::recording::manifest::Manifest;
use crate::recording::trace::ActivityKind;

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

/// A stretch of time.
pub(super) type Stretch = (i64, i64);

/// The operations of the windows, and what waits for them.
#[derive(Debug, Default)]
pub(super) struct Operations {
    on_gpu: bool,
    all: Vec<Stretch>,
    /// Exposed stretches by what waits.
    exposed: BTreeMap<Option<ContextId>, Vec<Stretch>>,
}

impl Operations {
    pub fn new(join: &Join<'_>, pieces: &[Piece], launches: &Launches) -> Operations {
        let communicates = communicating(join.trace);
        let on_gpu = gpu_operations(join, &communicates);
        let mut found = Operations { on_gpu: !on_gpu.is_empty(), ..Operations::default() };
        if found.on_gpu {
            found.on_gpu(join, launches, &on_gpu, &communicates);
            found.all = on_gpu.into_iter().map(|(_, stretch)| stretch).collect();
        } else {
            found.all = host_operations(join);
            found.on_host(join, pieces);
        }
        found
    }

    /// Where the loop's thread waits for operations on the host: sorted, without overlaps. Nothing where
    /// GPUs exchange.
    pub fn host_waits(&self) -> Vec<Stretch> {
        if self.on_gpu { Vec::new() } else { self.exposed_stretches() }
    }

    fn exposed_stretches(&self) -> Vec<Stretch> {
        merged(self.exposed.values().flatten().copied().collect())
    }

    /// What they are in an iteration; nothing where nothing was exchanged.
    pub fn exchange(
        &self,
        join: &Join<'_>,
        contexts: &Contexts<'_>,
        scale: &Scale,
        steps: &Steps,
        manifest: Option<&Manifest>,
    ) -> Option<Exchange> {
        if self.all.is_empty() {
            return None;
        }
        // The profiler makes an iteration longer, and the others wait for that, too.
        let iterations = steps.iterations_in_sum();
        let factor_of = |id: Option<ContextId>| {
            let of_waits = id.and_then(|id| scale.of_waits.get(id.0 as usize)).copied();
            of_waits.filter(|_| !self.on_gpu).unwrap_or(1.0 / iterations)
        };
        let mut all = Exposed::default();
        let mut by_line: BTreeMap<(FileId, u32, bool), Exposed> = BTreeMap::new();
        for (id, stretches) in &self.exposed {
            all.add(stretches, factor_of(*id));
            let Some(context) = id.and_then(|id| contexts.get(id)) else { continue };
            let frame = join.places.log.stacks.top(context.line);
            let place = frame.and_then(|frame| {
                let code = manifest?.codes.get(frame.code as usize)?;
                Some((FileId(code.file), frame.line, context.phase == Phase::Backward))
            });
            if let Some(place) = place {
                by_line.entry(place).or_default().add(stretches, factor_of(*id));
            }
        }
        let lines = by_line.into_iter().map(|((file, line, in_backward), own)| ExposedLine {
            file,
            line,
            exposed_ns: own.scaled_ns(),
            in_backward,
        });
        let mut lines: Vec<ExposedLine> = lines.collect();
        lines.sort_by(|one, other| other.exposed_ns.total_cmp(&one.exposed_ns));
        let exposed_ns = all.scaled_ns();
        let hidden_ns = union_ns(self.all.clone()).saturating_sub(union_ns(all.stretches)) as f64;
        // An iteration with a profiler may have hidden more than one without has time for.
        let hidden_ns = (hidden_ns / iterations).min((steps.iteration_ns() - exposed_ns).max(0.0));
        Some(Exchange {
            total_ns: exposed_ns + hidden_ns,
            exposed_ns,
            copying_ns: union_ns(operators(join, &OF_REDUCER).collect()) as f64 / iterations,
            lines,
        })
    }

    fn on_gpu(
        &mut self,
        join: &Join<'_>,
        launches: &Launches,
        operations: &[(usize, Stretch)],
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
        for &(start_ns, end_ns) in &self.all {
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

/// Stretches that nothing hides, of which several may be the same time.
#[derive(Debug, Default)]
struct Exposed {
    stretches: Vec<Stretch>,
    /// Nanoseconds of the profiled iterations, those of each context apart.
    recorded_ns: f64,
    /// The same of an iteration without a profiler.
    of_iteration_ns: f64,
}

impl Exposed {
    /// Adds those of one context, which a factor makes those of an iteration.
    fn add(&mut self, stretches: &[Stretch], factor: f64) {
        let recorded_ns = union_ns(stretches.to_vec()) as f64;
        self.recorded_ns += recorded_ns;
        self.of_iteration_ns += recorded_ns * factor;
        self.stretches.extend(stretches);
    }

    /// Nanoseconds of an iteration; what several wait for at once is waited for once.
    fn scaled_ns(&self) -> f64 {
        let once_ns = union_ns(self.stretches.clone()) as f64;
        if self.recorded_ns > 0.0 { once_ns * self.of_iteration_ns / self.recorded_ns } else { 0.0 }
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
    fn within(&self, (start_ns, end_ns): Stretch) -> i64 {
        self.end_ns().min(end_ns).saturating_sub(self.start_ns().max(start_ns))
    }

    /// The pieces during a stretch.
    fn during(&self, (start_ns, end_ns): Stretch) -> &[Piece] {
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
fn gpu_operations(join: &Join<'_>, communicates: &[bool]) -> Vec<(usize, Stretch)> {
    let activities = join.trace.activities.iter().enumerate().zip(communicates);
    let kernels = activities.filter(|(_, is_one)| **is_one).map(|(activity, _)| activity);
    let within = kernels.flat_map(|(index, kernel)| {
        let stretch = (kernel.start_ns, kernel.end_ns());
        clipped(stretch, join.windows).into_iter().map(move |part| (index, part))
    });
    within.collect()
}

/// The ranges of operations on the host, as far as they are within the windows.
fn host_operations(join: &Join<'_>) -> Vec<Stretch> {
    let annotations = join.trace.annotations.iter();
    let annotations = annotations
        .filter(|range| begins(join.trace.text(range.name), &ON_THE_HOST))
        .flat_map(|range| clipped((range.start_ns, range.end_ns()), join.windows));
    // Older traces have them among the operators.
    annotations.chain(operators(join, &ON_THE_HOST)).collect()
}

/// The host's operators with such names, as far as they are within the windows.
fn operators(join: &Join<'_>, names: &[&str]) -> impl Iterator<Item = Stretch> {
    let all = join.trace.operators.iter();
    all.filter(|operator| begins(join.trace.text(operator.name), names))
        .flat_map(|operator| clipped((operator.start_ns, operator.end_ns()), join.windows))
}

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|one| name.starts_with(one))
}

/// The parts of a stretch within the windows, which are sorted and do not overlap.
fn clipped((start_ns, end_ns): Stretch, windows: &[Stretch]) -> Vec<Stretch> {
    let first = windows.partition_point(|(_, window_end)| *window_end <= start_ns);
    let within = windows.get(first..).unwrap_or_default().iter();
    within
        .take_while(|(from, _)| *from < end_ns)
        .map(|(from, to)| (start_ns.max(*from), end_ns.min(*to)))
        .filter(|(from, to)| from < to)
        .collect()
}

/// The union of stretches: sorted, without overlaps.
fn merged(mut stretches: Vec<Stretch>) -> Vec<Stretch> {
    stretches.sort_unstable();
    let mut union: Vec<Stretch> = Vec::with_capacity(stretches.len());
    for (start, end) in stretches {
        match union.last_mut().filter(|(_, last)| *last >= start) {
            Some((_, last)) => *last = end.max(*last),
            None => union.push((start, end)),
        }
    }
    union
}

/// A stretch without those of a union.
fn without((start, end): Stretch, union: &[Stretch]) -> Vec<Stretch> {
    let (mut left, mut now) = (Vec::new(), start);
    let first = union.partition_point(|(_, to)| *to <= start);
    for &(from, to) in union.get(first..).unwrap_or_default() {
        if from >= end {
            break;
        }
        if from > now {
            left.push((now, from));
        }
        now = now.max(to);
    }
    if now < end {
        left.push((now, end));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::attribute;
    use crate::attribution::fixture::{TraceBuilder, recording};
    use crate::profile::Profile;
    use crate::profile::bound::Bottleneck;
    use crate::recording::line_log::{LINE, PHASE_ENTER, PHASE_EXIT, PUSH};
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    /// Line 31 runs forward until 100 µs, line 32 backward until 400, line 33 asks for something until
    /// 500 and computes until 600.
    fn profile(trace: TraceBuilder) -> Profile {
        profile_timed(trace, &[])
    }

    /// The same, where iterations without a profiler took so many microseconds.
    fn profile_timed(trace: TraceBuilder, timed_us: &[u64]) -> Profile {
        profile_split(trace, timed_us, &[(0, 600)])
    }

    /// The same, where iterations with a profiler ran from and until so many microseconds.
    fn profile_split(
        mut trace: TraceBuilder,
        timed_us: &[u64],
        profiled_us: &[(i64, i64)],
    ) -> Profile {
        const US: i64 = 1_000;
        trace.op("aten::linear", 10 * US, 80 * US);
        trace.node("AddmmBackward0", 110 * US, 90 * US);
        trace.op("aten::mm", 120 * US, 70 * US);
        trace.op("aten::copy_", 350 * US, 20 * US);
        trace.op("aten::add_", 510 * US, 80 * US);
        let records = [
            (0, PUSH, 0, 1),
            (0, LINE, 0, 31),
            (100 * US, LINE, 0, 32),
            (100 * US, PHASE_ENTER, 2, 0),
            (400 * US, PHASE_EXIT, 2, 0),
            (400 * US, LINE, 0, 33),
        ];
        let mut recording = recording(trace, &records, 600 * US);
        if let Some(manifest) = recording.manifest.as_mut() {
            let profiled = profiled_us.iter().map(|(start, end)| (start * US, end * US));
            manifest.iterations.profiled = profiled.collect();
            manifest.iterations.timed_ns = timed_us.iter().map(|us| us * 1_000).collect();
        }
        attribute(&recording).expect("a profile")
    }

    #[track_caller]
    fn check(trace: TraceBuilder, expected: Expect) {
        let us = |ns: f64| ns / 1e3;
        let said = profile(trace).exchange.map(|it| {
            let lines = it.lines.iter().map(|line| {
                let backward = if line.in_backward { " backward" } else { "" };
                format!(" | {}: {}{backward}", line.line, us(line.exposed_ns))
            });
            let lines: String = lines.collect();
            let copying = us(it.copying_ns);
            let copying =
                if copying > 0.0 { format!(" | copying {copying}") } else { String::new() };
            format!("{} exposed {}{copying}{lines}", us(it.total_ns), us(it.exposed_ns))
        });
        expected.assert_eq(said.as_deref().unwrap_or("nothing"));
    }

    fn with(ranges: &[(&str, i64, i64)]) -> TraceBuilder {
        let mut trace = TraceBuilder::new();
        for (name, start_us, end_us) in ranges {
            trace.annotation(name, start_us * 1_000, (end_us - start_us) * 1_000);
        }
        trace
    }

    #[test]
    fn what_runs_beside_operators_is_hidden() {
        check(with(&[("gloo:all_reduce", 120, 190)]), expect!["70 exposed 0"]);
        check(with(&[("Optimizer.step#SGD", 120, 190)]), expect!["nothing"]);
        // It ends in a gap that is too short to be a wait.
        check(with(&[("gloo:all_reduce", 20, 105)]), expect!["85 exposed 0"]);
    }

    #[test]
    fn the_gap_in_which_an_operation_ends_is_a_wait_until_then() {
        check(
            with(&[("gloo:all_reduce", 130, 340)]),
            expect!["210 exposed 140 | 32: 140 backward"],
        );
        // From when it is asked for, where nothing is computed in between.
        let mut trace = with(&[("gloo:all_reduce", 420, 500)]);
        trace.op("c10d::allreduce_", 405_000, 30_000);
        check(trace, expect!["95 exposed 95 | 33: 95"]);
        // Two at once wait no longer than the longer of them.
        check(
            with(&[("gloo:all_reduce", 130, 340), ("gloo:all_reduce", 180, 330)]),
            expect!["210 exposed 140 | 32: 140 backward"],
        );
        check(with(&[("gloo:broadcast", 410, 500)]), expect!["90 exposed 90 | 33: 90"]);
    }

    #[test]
    fn waits_are_those_of_iterations_without_a_profiler() {
        let exposed_us = |timed_us: &[u64]| {
            let profile = profile_timed(with(&[("gloo:broadcast", 410, 500)]), timed_us);
            profile.exchange.map(|it| (it.exposed_ns / 1e3).round())
        };
        assert_eq!(exposed_us(&[]), Some(90.0));
        assert_eq!(exposed_us(&[600]), Some(90.0));
        assert_eq!(exposed_us(&[900]), Some(221.0));
        // Of 40 less, 17 are what recording took of the operators and lines.
        assert_eq!(exposed_us(&[560]), Some(80.0));
        // They do not vanish where the iterations without a profiler were much shorter.
        assert_eq!(exposed_us(&[200]), Some(8.0));
    }

    #[test]
    fn what_is_hidden_fits_into_an_iteration() {
        let trace = with(&[("gloo:all_reduce", 0, 600), ("gloo:broadcast", 410, 500)]);
        let profile = profile_split(trace, &[300], &[(0, 300), (300, 600)]);
        let exchange = profile.exchange.expect("an exchange");
        assert_eq!((exchange.exposed_ns / 1e3).round(), 189.0);
        assert_eq!((exchange.total_ns / 1e3).round(), 300.0);
    }

    #[test]
    fn gradients_are_copied_to_where_they_are_exchanged() {
        let mut trace = with(&[("gloo:all_reduce", 130, 340)]);
        trace.op("torch::distributed::reducer::mul_out", 200_000, 30_000);
        trace.op("torch.distributed.ddp.reducer::copy_bucket_to_grad", 240_000, 10_000);
        check(trace, expect!["210 exposed 90 | copying 40 | 32: 90 backward"]);
    }

    #[test]
    fn a_wait_for_other_ranks_is_what_the_iteration_waits_for() {
        let profile = profile(with(&[("gloo:all_reduce", 130, 350), ("gloo:broadcast", 370, 510)]));
        let bound = profile.bound.as_deref().expect("what bounds it");
        let shares: Vec<_> = bound.shares.iter().map(|it| (it.by, it.time_ns.round())).collect();
        let [communication, operators, python] =
            [Bottleneck::Communication, Bottleneck::Operators, Bottleneck::HostCode];
        assert_eq!(
            shares,
            [(communication, 290_000.0), (operators, 270_000.0), (python, 40_000.0)]
        );
        let metrics = profile.metrics.as_deref().expect("what it gets out of its device");
        let whole = &metrics.whole;
        assert_eq!(whole.exposed_communication_ns.round(), 290_000.0);
        // The part beside an operator is communication that computing hides.
        assert_eq!(whole.communication_ns.round(), 360_000.0);
        let backward = metrics.phases[Phase::Backward as usize];
        assert_eq!(backward.exposed_communication_ns.round(), 180_000.0);
    }

    #[test]
    fn what_operators_hide_bounds_nothing() {
        let profile = profile(with(&[("gloo:all_reduce", 120, 190)]));
        let bound = profile.bound.as_deref().expect("what bounds it");
        assert_eq!(bound.share(Bottleneck::Communication), 0.0);
        let metrics = profile.metrics.as_deref().expect("what it gets out of its device");
        assert_eq!(metrics.whole.exposed_communication_ns, 0.0);
        assert_eq!(metrics.whole.communication_ns, 70_000.0);
    }

    #[test]
    fn only_kernels_that_compute_hide_those_that_communicate() {
        let mut trace = TraceBuilder::new();
        trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 150_000, 160_000, 100_000);
        trace.kernel("gemm", 155_000, 200_000, 20_000);
        // What gloo does beside it is the host's matter.
        trace.annotation("gloo:barrier", 130_000, 200_000);
        check(trace, expect!["100 exposed 80 | 32: 80 backward"]);
    }

    proptest! {
        #[test]
        fn what_is_left_is_what_no_other_stretch_covers(
            stretch in (0i64..50, 0i64..50),
            others in prop::collection::vec((0i64..50, 0i64..20), 0..8),
        ) {
            let stretch = (stretch.0, stretch.0 + stretch.1);
            let union = merged(others.iter().map(|(start, length)| (*start, start + length)).collect());
            prop_assert!(union.windows(2).all(|pair| pair[0].1 < pair[1].0));
            let left = without(stretch, &union);
            let holds = |of: &[Stretch], moment: i64| of.iter().any(|(a, b)| *a <= moment && moment < *b);
            for moment in 0..120 {
                let expected = holds(&[stretch], moment) && !holds(&union, moment);
                prop_assert_eq!(holds(&left, moment), expected, "{}", moment);
            }
        }
    }
}
