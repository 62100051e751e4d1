//! The communication of ranks in an iteration, and the exposed part of it by line.

use std::collections::BTreeMap;

use super::communication::Communication;
use super::contexts::{ContextId, Contexts};
use super::join::Join;
use super::scale::Scale;
use super::steps::Steps;
use ridgeline_base::intervals::{Interval, union_ns};
use ridgeline_profile::exchange::{Exchange, ExposedLine};
use ridgeline_profile::{FileId, Phase};
use ridgeline_recording::manifest::Manifest;

/// Computes the communication of an iteration; `None` if there was none.
pub(super) fn exchange(
    communication: &Communication,
    join: &Join<'_>,
    contexts: &Contexts<'_>,
    scale: &Scale,
    steps: &Steps,
    manifest: Option<&Manifest>,
) -> Option<Exchange> {
    if communication.operations.is_empty() {
        return None;
    }
    // The profiler makes an iteration longer, and the other ranks wait for that, too.
    let iterations = steps.iterations_in_sum();
    let factor_of = |id: Option<ContextId>| {
        let of_waits = id.and_then(|id| scale.of_waits.get(id.0 as usize)).copied();
        of_waits.filter(|_| !communication.on_gpu).unwrap_or(1.0 / iterations)
    };
    let mut all = Exposed::default();
    let mut by_line: BTreeMap<(FileId, u32, bool), Exposed> = BTreeMap::new();
    for (id, intervals) in &communication.exposed {
        all.add(intervals, factor_of(*id));
        let Some(context) = id.and_then(|id| contexts.get(id)) else { continue };
        let frame = join.places.log.stacks.top(context.line);
        let place = frame.and_then(|frame| {
            let code = manifest?.codes.get(frame.code as usize)?;
            Some((FileId(code.file), frame.line, context.phase == Phase::Backward))
        });
        if let Some(place) = place {
            by_line.entry(place).or_default().add(intervals, factor_of(*id));
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
    let hidden_ns =
        union_ns(communication.operations.clone()).saturating_sub(union_ns(all.intervals)) as f64;
    // A profiled iteration may have hidden more than fits in one without the profiler.
    let hidden_ns = (hidden_ns / iterations).min((steps.iteration_ns() - exposed_ns).max(0.0));
    Some(Exchange {
        total_ns: exposed_ns + hidden_ns,
        exposed_ns,
        copying_ns: union_ns(communication.copies.clone()) as f64 / iterations,
        lines,
    })
}

/// Exposed intervals, some of which may overlap.
#[derive(Debug, Default)]
struct Exposed {
    intervals: Vec<Interval>,
    /// Sum over contexts in the profiled iterations, in nanoseconds.
    recorded_ns: f64,
    /// Sum over contexts in an iteration without the profiler, in nanoseconds.
    of_iteration_ns: f64,
}

impl Exposed {
    /// Adds the intervals of one context, with the factor to an iteration without the profiler.
    fn add(&mut self, intervals: &[Interval], factor: f64) {
        let recorded_ns = union_ns(intervals.to_vec()) as f64;
        self.recorded_ns += recorded_ns;
        self.of_iteration_ns += recorded_ns * factor;
        self.intervals.extend(intervals);
    }

    /// Returns the exposed nanoseconds per iteration, with overlapping waits counted once.
    fn scaled_ns(&self) -> f64 {
        let once_ns = union_ns(self.intervals.clone()) as f64;
        if self.recorded_ns > 0.0 { once_ns * self.of_iteration_ns / self.recorded_ns } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute;
    use crate::fixture::{TraceBuilder, recording};
    use expect_test::{Expect, expect};
    use ridgeline_profile::Profile;
    use ridgeline_profile::bottleneck::Cause;
    use ridgeline_recording::line_log::{LINE, PHASE_ENTER, PHASE_EXIT, PUSH};

    /// Line 31 runs forward until 100 µs, line 32 backward until 400, line 33 starts communication
    /// until 500 and computes until 600.
    fn profile(trace: TraceBuilder) -> Profile {
        profile_timed(trace, &[])
    }

    /// Like [`profile`], with the times of unprofiled iterations in microseconds.
    fn profile_timed(trace: TraceBuilder, timed_us: &[u64]) -> Profile {
        profile_split(trace, timed_us, &[(0, 600)])
    }

    /// Like [`profile_timed`], with the start and end of profiled iterations in microseconds.
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
        let formatted = profile(trace).exchange.map(|it| {
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
        expected.assert_eq(formatted.as_deref().unwrap_or("nothing"));
    }

    fn with(ranges: &[(&str, i64, i64)]) -> TraceBuilder {
        let mut trace = TraceBuilder::new();
        for (name, start_us, end_us) in ranges {
            trace.annotation(name, start_us * 1_000, (end_us - start_us) * 1_000);
        }
        trace
    }

    #[test]
    fn communication_during_operators_is_hidden() {
        check(with(&[("gloo:all_reduce", 120, 190)]), expect!["70 exposed 0"]);
        check(with(&[("Optimizer.step#SGD", 120, 190)]), expect!["nothing"]);
        // It ends in a gap that is too short to be a wait.
        check(with(&[("gloo:all_reduce", 20, 105)]), expect!["85 exposed 0"]);
    }

    #[test]
    fn a_gap_until_the_end_of_a_collective_is_a_wait() {
        check(
            with(&[("gloo:all_reduce", 130, 340)]),
            expect!["210 exposed 140 | 32: 140 backward"],
        );
        // From the call on, if nothing is computed in between.
        let mut trace = with(&[("gloo:all_reduce", 420, 500)]);
        trace.op("c10d::allreduce_", 405_000, 30_000);
        check(trace, expect!["95 exposed 95 | 33: 95"]);
        // Two concurrent collectives wait no longer than the longer one.
        check(
            with(&[("gloo:all_reduce", 130, 340), ("gloo:all_reduce", 180, 330)]),
            expect!["210 exposed 140 | 32: 140 backward"],
        );
        check(with(&[("gloo:broadcast", 410, 500)]), expect!["90 exposed 90 | 33: 90"]);
    }

    #[test]
    fn waits_are_scaled_to_unprofiled_iterations() {
        let exposed_us = |timed_us: &[u64]| {
            let profile = profile_timed(with(&[("gloo:broadcast", 410, 500)]), timed_us);
            profile.exchange.map(|it| (it.exposed_ns / 1e3).round())
        };
        assert_eq!(exposed_us(&[]), Some(90.0));
        assert_eq!(exposed_us(&[600]), Some(90.0));
        assert_eq!(exposed_us(&[900]), Some(221.0));
        // Of the 40 µs less, 17 are the overhead of recording operators and lines.
        assert_eq!(exposed_us(&[560]), Some(80.0));
        // Waits do not vanish if the unprofiled iterations were much shorter.
        assert_eq!(exposed_us(&[200]), Some(8.0));
    }

    #[test]
    fn hidden_time_fits_into_an_iteration() {
        let trace = with(&[("gloo:all_reduce", 0, 600), ("gloo:broadcast", 410, 500)]);
        let profile = profile_split(trace, &[300], &[(0, 300), (300, 600)]);
        let exchange = profile.exchange.expect("an exchange");
        assert_eq!((exchange.exposed_ns / 1e3).round(), 189.0);
        assert_eq!((exchange.total_ns / 1e3).round(), 300.0);
    }

    #[test]
    fn bucket_copies_are_counted() {
        let mut trace = with(&[("gloo:all_reduce", 130, 340)]);
        trace.op("torch::distributed::reducer::mul_out", 200_000, 30_000);
        trace.op("torch.distributed.ddp.reducer::copy_bucket_to_grad", 240_000, 10_000);
        check(trace, expect!["210 exposed 90 | copying 40 | 32: 90 backward"]);
    }

    #[test]
    fn a_wait_for_other_ranks_is_the_bottleneck() {
        let profile = profile(with(&[("gloo:all_reduce", 130, 350), ("gloo:broadcast", 370, 510)]));
        let found = profile.bottleneck.as_deref().expect("a bottleneck");
        let savings: Vec<_> =
            found.savings.iter().map(|it| (it.cause, it.time_ns.round())).collect();
        let [communication, unknown, overhead, python] =
            [Cause::Communication, Cause::Kernels, Cause::Operators, Cause::HostCode];
        // The long operators have no shapes.
        let expected = [
            (communication, 290_000.0),
            (unknown, 250_000.0),
            (python, 40_000.0),
            (overhead, 20_000.0),
        ];
        assert_eq!(savings, expected);
        let metrics = profile.metrics.as_deref().expect("what it gets out of its device");
        let whole = &metrics.whole;
        assert_eq!(whole.exposed_communication_ns.round(), 290_000.0);
        // Communication that overlaps with an operator is hidden by computing.
        assert_eq!(whole.communication_ns.round(), 360_000.0);
        let backward = metrics.phases[Phase::Backward as usize];
        assert_eq!(backward.exposed_communication_ns.round(), 180_000.0);
    }

    #[test]
    fn hidden_communication_is_no_bottleneck() {
        let profile = profile(with(&[("gloo:all_reduce", 120, 190)]));
        let found = profile.bottleneck.as_deref().expect("a bottleneck");
        assert_eq!(found.share(Cause::Communication), 0.0);
        let metrics = profile.metrics.as_deref().expect("what it gets out of its device");
        assert_eq!(metrics.whole.exposed_communication_ns, 0.0);
        assert_eq!(metrics.whole.communication_ns, 70_000.0);
    }

    #[test]
    fn only_compute_kernels_hide_communication() {
        let mut trace = TraceBuilder::new();
        trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 150_000, 160_000, 100_000);
        trace.kernel("gemm", 155_000, 200_000, 20_000);
        // Concurrent gloo collectives on the host do not count.
        trace.annotation("gloo:barrier", 130_000, 200_000);
        check(trace, expect!["100 exposed 80 | 32: 80 backward"]);
    }
}
