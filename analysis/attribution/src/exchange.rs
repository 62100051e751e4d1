//! How much ranks exchange in an iteration, and how much of it nothing hides: on which lines.

use std::collections::BTreeMap;

use super::communication::Communication;
use super::contexts::{ContextId, Contexts};
use super::join::Join;
use super::scale::Scale;
use super::steps::Steps;
use ridgeline_base::intervals::{Stretch, union_ns};
use ridgeline_profile::exchange::{Exchange, ExposedLine};
use ridgeline_profile::{FileId, Phase};
use ridgeline_recording::manifest::Manifest;

/// What ranks exchange in an iteration; nothing where there was nothing.
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
    // The profiler makes an iteration longer, and the others wait for that, too.
    let iterations = steps.iterations_in_sum();
    let factor_of = |id: Option<ContextId>| {
        let of_waits = id.and_then(|id| scale.of_waits.get(id.0 as usize)).copied();
        of_waits.filter(|_| !communication.on_gpu).unwrap_or(1.0 / iterations)
    };
    let mut all = Exposed::default();
    let mut by_line: BTreeMap<(FileId, u32, bool), Exposed> = BTreeMap::new();
    for (id, stretches) in &communication.exposed {
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
    let hidden_ns =
        union_ns(communication.operations.clone()).saturating_sub(union_ns(all.stretches)) as f64;
    // An iteration with a profiler may have hidden more than one without has time for.
    let hidden_ns = (hidden_ns / iterations).min((steps.iteration_ns() - exposed_ns).max(0.0));
    Some(Exchange {
        total_ns: exposed_ns + hidden_ns,
        exposed_ns,
        copying_ns: union_ns(communication.copies.clone()) as f64 / iterations,
        lines,
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute;
    use crate::fixture::{TraceBuilder, recording};
    use expect_test::{Expect, expect};
    use ridgeline_profile::Profile;
    use ridgeline_profile::bottleneck::Cause;
    use ridgeline_recording::line_log::{LINE, PHASE_ENTER, PHASE_EXIT, PUSH};

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
        let found = profile.bottleneck.as_deref().expect("a bottleneck");
        let savings: Vec<_> =
            found.savings.iter().map(|it| (it.cause, it.time_ns.round())).collect();
        let [communication, operators, python] =
            [Cause::Communication, Cause::Operators, Cause::HostCode];
        assert_eq!(
            savings,
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
        let found = profile.bottleneck.as_deref().expect("a bottleneck");
        assert_eq!(found.share(Cause::Communication), 0.0);
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
}
