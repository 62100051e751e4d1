//! `straggler`: a rank that takes longer than the others for the same work, or that does something
//! the others do not: every collective waits for it. Stragglers in production are found by
//! comparing the compute time of ranks (Wu et al., "FALCON", 2024); here this goes down to the
//! line.

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, SourceLine};
use crate::rule::Rule;
use ridgeline_attribution::ranks::uneven::{Cause, SlowLine, Uneven, is_of_one_line, uneven};
use ridgeline_base::units;

pub(crate) struct Straggler;

impl Rule for Straggler {
    fn name(&self) -> &'static str {
        "straggler"
    }

    fn title(&self) -> &'static str {
        "Straggler rank"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(ranks) = evidence.profile().ranks.as_deref() else { return Vec::new() };
        let Some(found) = uneven(ranks) else { return Vec::new() };
        // Ranks on CPUs share them with each other and with everything else on the machine. Which
        // rank is slower at all of the same work differs from run to run.
        if found.cause == Cause::Slower && !evidence.on_gpu() && !is_of_one_line(ranks, &found) {
            return Vec::new();
        }
        let rank = found.rank;
        let (message, why) = match found.cause {
            Cause::Alone => (
                format!("Only rank {rank} runs this, and the other ranks wait for it"),
                "The other ranks finish earlier and wait in the next collective. Do this less \
                often, distribute it over all ranks, or move it to a background thread or after \
                the loop.",
            ),
            Cause::Slower if found.lines.is_empty() => (
                format!("Rank {rank} is slower than the others on all lines"),
                "It does the same work, so the cause is not in the code: its CPU or GPU may be \
                shared, throttled, or attached to slower memory. The other ranks wait for it in \
                every collective.",
            ),
            Cause::Slower => (
                format!("Rank {rank} is slower here, and the other ranks wait for it"),
                "The rank does the same work more slowly, for example because of slower storage or \
                a shared CPU. The other ranks wait for it in the next collective.",
            ),
            Cause::LargerBatch(..) | Cause::MoreCalls(..) | Cause::MoreOperations(..) => {
                return Vec::new();
            }
        };
        let cost = Cost::time(found.surplus_ns);
        finding(evidence, self.name(), &found, cost, message, why).into_iter().collect()
    }
}

/// The finding for an uneven rank, at the line with most of the surplus, or else at the loop.
/// Returns `None` if neither is known.
pub(super) fn finding(
    evidence: &Evidence<'_>,
    rule: &'static str,
    found: &Uneven,
    cost: Cost,
    message: String,
    why: &str,
) -> Option<Finding> {
    let mut lines = found.lines.iter();
    let at = match lines.next() {
        Some(first) => place(first),
        None => {
            let (file, line) = evidence.profile().iteration.loop_line?;
            evidence.place(file, line)
        }
    };
    let related = lines.map(|line| {
        let more = units::duration(line.surplus_ns);
        (place(line), format!("{more} longer on rank {}", found.rank))
    });
    Some(Finding {
        rule,
        related: related.collect(),
        at,
        message,
        why: why.to_owned(),
        cost: Some(cost),
        fix: None,
        ..Finding::default()
    })
}

fn place(line: &SlowLine) -> SourceLine {
    SourceLine { path: line.path.clone(), line: line.line }
}

#[cfg(test)]
mod tests {
    use ridgeline_attribution::ranks::{rank_cost, side_by_side};
    use std::sync::Arc;

    use super::*;
    use crate::harness::Case;
    use crate::rules::imbalance::Imbalance;
    use ridgeline_profile::exchange::{Exchange, ExposedLine};

    use ridgeline_profile::{FileId, LineCost, PhaseTimes, Profile};

    const TEXT: &str = "\
for step in steps:  # loop
    loss = model(batch)  # forward
    loss.backward()  # backward
    if rank == 0:
        log(model)  # alone
";

    /// The profile of a rank with iterations of 100 ms: marks with calls, time in ms, and
    /// operations. It waits for the rest of the time.
    fn rank(case: &Case, ran: &[(&str, f64, f64, f64)]) -> Profile {
        let mut profile = case.profile.clone();
        let mut left = 100.0;
        for &(mark, calls, ms, flops) in ran {
            let (file, line) = case.line(mark);
            let time = PhaseTimes { forward: ms * 1e6, ..PhaseTimes::default() };
            profile.lines[file.0 as usize].push(LineCost {
                line,
                calls,
                self_time: time,
                total_time: time,
                flops,
                ..LineCost::default()
            });
            left -= ms;
        }
        let (file, line) = case.line("backward");
        let waits = ExposedLine { file, line, exposed_ns: left * 1e6, in_backward: true };
        let exchange = Exchange {
            total_ns: 1e8,
            exposed_ns: left * 1e6,
            lines: vec![waits],
            ..Exchange::default()
        };
        profile.exchange = Some(Arc::new(exchange));
        profile.iteration.time_ns = 1e8;
        profile.iteration.timed_ns = vec![1e8; 3];
        profile.iteration.loop_line = Some((FileId(0), case.line("loop").1));
        profile
    }

    fn case(ranks: &[&[(&str, f64, f64, f64)]]) -> Case {
        let mut case = Case::new(TEXT);
        let profiles: Vec<Profile> = ranks.iter().map(|ran| rank(&case, ran)).collect();
        let costs = (0..).zip(&profiles).map(|(rank, profile)| rank_cost(rank, profile));
        let ranks = side_by_side(0, costs.collect()).map(Arc::new);
        case.profile = profiles[0].clone();
        case.profile.ranks = ranks;
        case
    }

    #[test]
    fn work_of_only_one_rank() {
        let both = ("forward", 1.0, 40.0, 1e9);
        let case = case(&[&[both, ("alone", 1.0, 30.0, 0.0)], &[both]]);
        let found = case.finds(&Straggler, "alone");
        assert_eq!(found.message, "Only rank 0 runs this, and the other ranks wait for it");
        assert_eq!(found.cost, Some(Cost::time(30e6)));
        case.finds_nothing(&Imbalance);
    }

    #[test]
    fn slower_rank_is_reported_at_the_loop() {
        let at = |ms: f64| {
            [("loop", 1.0, ms, 0.0), ("forward", 1.0, ms, 1e9), ("backward", 1.0, ms, 0.0)]
        };
        let case = case(&[&at(15.0), &at(25.0)]);
        // CPUs are shared.
        case.finds_nothing(&Straggler);
        let case = case.on_gpu();
        let found = case.finds(&Straggler, "loop");
        assert_eq!(found.message, "Rank 1 is slower than the others on all lines");
        case.finds_nothing(&Imbalance);
    }

    #[test]
    fn one_much_slower_line_is_also_reported_on_cpus() {
        let at = |ms: f64| [("loop", 1.0, ms, 0.0), ("forward", 1.0, 5.0, 1e9)];
        let found = case(&[&at(1.0), &at(51.0)]).finds(&Straggler, "loop");
        assert_eq!(found.message, "Rank 1 is slower here, and the other ranks wait for it");
        assert_eq!(found.cost, Some(Cost::time(50e6)));
    }

    #[test]
    fn shared_cpu_is_not_a_straggler() {
        let at = |forward: f64, backward: f64| {
            [("forward", 1.0, forward, 1e9), ("backward", 1.0, backward, 0.0)]
        };
        // Most of the surplus is on the line that takes most of the time.
        case(&[&at(20.0, 1.0), &at(80.0, 4.0)]).finds_nothing(&Straggler);
        // Twice the time, or a fifth of the iteration, is normal variation between machines.
        case(&[&at(30.0, 5.0), &at(70.0, 5.0)]).finds_nothing(&Straggler);
        case(&[&at(2.0, 30.0), &at(20.0, 30.0)]).finds_nothing(&Straggler);
        // So is the variation between iterations.
        let mut varies = case(&[&at(1.0, 5.0), &at(51.0, 5.0)]);
        let mut ranks = varies.profile.ranks.as_deref().cloned().expect("ranks");
        ranks.ranks[1].varies_ns = 20e6;
        varies.profile.ranks = Some(Arc::new(ranks));
        varies.finds_nothing(&Straggler);
    }

    #[test]
    fn more_work_is_an_imbalance() {
        let case = case(&[&[("forward", 1.0, 30.0, 1e9)], &[("forward", 1.0, 70.0, 2e9)]]);
        let found = case.finds(&Imbalance, "loop");
        assert_eq!(found.message, "Rank 1 computes 100% more than the others");
        // Divided evenly, both would take 50 ms.
        assert_eq!(found.cost, Some(Cost::time(20e6)));
        assert_eq!(found.related[0].1, "40 ms longer on rank 1");
        case.finds_nothing(&Straggler);
    }

    #[test]
    fn more_loop_iterations_are_reported_in_the_loop() {
        let case = case(&[&[("forward", 2.0, 30.0, 1e9)], &[("forward", 4.0, 70.0, 2e9)]]);
        let found = case.finds(&Imbalance, "forward");
        assert_eq!(found.message, "Rank 1 runs this 4 times per iteration, the others 2 times");
    }

    #[test]
    fn even_ranks_and_single_rank_are_not_reported() {
        let even = case(&[&[("forward", 1.0, 40.0, 1e9)], &[("forward", 1.0, 42.0, 1e9)]]);
        even.finds_nothing(&Straggler);
        even.finds_nothing(&Imbalance);
        let alone = case(&[&[("forward", 1.0, 40.0, 1e9)]]);
        alone.finds_nothing(&Straggler);
    }
}
