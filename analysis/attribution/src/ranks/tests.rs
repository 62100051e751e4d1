use std::sync::Arc;

use crate::ranks::{rank_cost, side_by_side};
use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::uneven::{Uneven, uneven};
use ridgeline_profile::exchange::{Exchange, ExposedLine};
use ridgeline_profile::ranks::{RankCost, Ranks, Spread};
use ridgeline_profile::{FileFacts, FileId, LineCost, PhaseTimes, Profile};

const MS: f64 = 1e6;

/// Creates a rank whose iteration takes 100 ms. It waits on line 9 in the time in which it does not
/// compute on its lines. Lines are `(line, calls, milliseconds, operations)`.
fn rank(lines: &[(u32, f64, f64, f64)]) -> Profile {
    let line = |&(line, calls, ms, flops): &(u32, f64, f64, f64)| {
        let time = PhaseTimes { forward: ms * MS, ..PhaseTimes::default() };
        LineCost { line, calls, self_time: time, total_time: time, flops, ..LineCost::default() }
    };
    let mut costs: Vec<LineCost> = lines.iter().map(line).collect();
    let computing: f64 = lines.iter().map(|(_, _, ms, _)| ms).sum();
    let exposed_ns = (100.0 - computing) * MS;
    let time = PhaseTimes { backward: exposed_ns, ..PhaseTimes::default() };
    costs.push(LineCost {
        line: 9,
        calls: 1.0,
        self_time: time,
        total_time: time,
        ..LineCost::default()
    });
    let waits = ExposedLine { file: FileId(0), line: 9, exposed_ns, in_backward: true };
    let exchange =
        Exchange { total_ns: 100.0 * MS, exposed_ns, lines: vec![waits], ..Exchange::default() };
    let mut profile = Profile {
        files: vec![FileFacts { path: "train.py".to_owned(), fingerprint: vec![] }],
        lines: vec![costs],
        exchange: Some(Arc::new(exchange)),
        ..Profile::default()
    };
    profile.iteration.time_ns = 100.0 * MS;
    profile.iteration.timed_ns = vec![99.0 * MS, 100.0 * MS, 101.0 * MS];
    profile.iteration.batch_size = Some(8);
    profile
}

fn ranks(profiles: &[Profile]) -> Ranks {
    let costs = (0..).zip(profiles).map(|(rank, profile)| rank_cost(rank, profile));
    side_by_side(0, costs.collect()).expect("several ranks")
}

#[track_caller]
fn check(profiles: &[Profile], expected: Expect) {
    let found =
        uneven(&ranks(profiles)).map(|Uneven { rank, surplus_ns, cause, lines, .. }| {
            let line = |line: &super::uneven::SlowLine| {
                format!(" {}:{} {:.0}", line.path, line.line, line.surplus_ns / MS)
            };
            let lines: String = lines.iter().map(line).collect();
            format!("rank {rank}, {:.0} ms, {cause:?}:{lines}", surplus_ns / MS)
        });
    expected.assert_eq(&found.unwrap_or_else(|| "even".to_owned()));
}

#[test]
fn ranks_with_the_same_work_are_even() {
    check(&[rank(&[(5, 1.0, 80.0, 1.0)]), rank(&[(5, 1.0, 78.0, 1.0)])], expect!["even"]);
}

#[test]
fn a_line_that_takes_longer_is_found() {
    let fast = rank(&[(4, 1.0, 20.0, 1.0), (5, 1.0, 30.0, 1.0)]);
    let slow = rank(&[(4, 1.0, 20.0, 1.0), (5, 1.0, 60.0, 1.0)]);
    check(
        &[fast.clone(), slow.clone(), fast.clone()],
        expect!["rank 1, 30 ms, Slower: train.py:5 30"],
    );
    check(&[slow, fast], expect!["rank 0, 30 ms, Slower: train.py:5 30"]);
}

#[test]
fn a_rank_that_is_slower_everywhere_has_no_line() {
    let lines = |ms: f64| (1..=8).map(|line| (line, 1.0, ms, 1.0)).collect::<Vec<_>>();
    check(&[rank(&lines(5.0)), rank(&lines(10.0))], expect!["rank 1, 40 ms, Slower:"]);
}

#[test]
fn a_line_that_only_one_rank_runs_is_found() {
    let alone = rank(&[(4, 1.0, 40.0, 1.0), (6, 1.0, 30.0, 1.0)]);
    check(&[alone, rank(&[(4, 1.0, 40.0, 1.0)])], expect!["rank 0, 30 ms, Alone: train.py:6 30"]);
}

#[test]
fn more_work_is_distinguished_from_slower_work() {
    let few = rank(&[(4, 1.0, 20.0, 1e9)]);
    check(
        &[few.clone(), rank(&[(4, 1.0, 60.0, 3e9)])],
        expect!["rank 1, 40 ms, MoreOperations(3000000000.0, 1000000000.0): train.py:4 40"],
    );
    check(
        &[few.clone(), rank(&[(4, 3.0, 60.0, 3e9)])],
        expect!["rank 1, 40 ms, MoreCalls(3.0, 1.0): train.py:4 40"],
    );
    let mut larger = rank(&[(4, 1.0, 60.0, 3e9)]);
    larger.iteration.batch_size = Some(24);
    check(&[few, larger], expect!["rank 1, 40 ms, LargerBatch(24, 8): train.py:4 40"]);
}

#[test]
fn variation_of_iterations_is_not_a_difference() {
    let mut slow = rank(&[(5, 1.0, 60.0, 1.0)]);
    slow.iteration.timed_ns = vec![70.0 * MS, 100.0 * MS, 115.0 * MS];
    check(&[rank(&[(5, 1.0, 30.0, 1.0)]), slow], expect!["even"]);
}

#[test]
fn ranks_that_do_not_train_together_are_not_compared() {
    let mut apart = rank(&[(5, 1.0, 60.0, 1.0)]);
    apart.iteration.time_ns = 150.0 * MS;
    check(&[rank(&[(5, 1.0, 30.0, 1.0)]), apart], expect!["even"]);
    let mut silent = rank(&[(5, 1.0, 60.0, 1.0)]);
    silent.exchange = None;
    check(&[rank(&[(5, 1.0, 30.0, 1.0)]), silent], expect!["even"]);
}

#[test]
fn lines_have_their_spread() {
    let ranks = ranks(&[rank(&[(5, 1.0, 10.0, 1.0)]), rank(&[(5, 1.0, 40.0, 1.0)]), rank(&[])]);
    let line = ranks.line("train.py", 5).expect("it ran");
    assert_eq!((line.total_ns.min, line.total_ns.max), ((2, 0.0), (1, 40.0 * MS)));
    assert!((line.total_ns.mean - 50.0 * MS / 3.0).abs() < 1.0);
    assert_eq!(ranks.world_size, 3);
    assert_eq!(side_by_side(8, vec![RankCost::default()]), None);
}

proptest! {
    #[test]
    fn the_mean_is_between_minimum_and_maximum(values in prop::collection::vec(0.0..1e9f64, 1..20)) {
        let spread = Spread::of((0..).zip(values.iter().copied())).expect("a value");
        prop_assert!(spread.min.1 <= spread.mean * (1.0 + 1e-12));
        prop_assert!(spread.mean <= spread.max.1 * (1.0 + 1e-12));
        prop_assert_eq!(values[spread.max.0 as usize], spread.max.1);
        prop_assert_eq!(values[spread.min.0 as usize], spread.min.1);
    }

    #[test]
    fn any_ranks_can_be_compared(
        values in prop::collection::vec(prop::collection::vec((1u32..12, 0.0..4.0f64, 0.0..60.0f64, 0.0..1e12f64), 0..6), 2..6),
    ) {
        let profiles: Vec<Profile> = values.iter().map(|lines| rank(lines)).collect();
        let ranks = ranks(&profiles);
        if let Some(found) = uneven(&ranks) {
            prop_assert!(found.surplus_ns > 0.0);
            prop_assert!(found.beyond_mean_ns > 0.0);
            prop_assert!((found.rank as usize) < profiles.len());
        }
    }
}

#[test]
fn outliers_are_not_variation() {
    let varies_ms = |timed_ms: &[f64]| {
        let mut profile = rank(&[(1, 1.0, 40.0, 1.0)]);
        profile.iteration.timed_ns = timed_ms.iter().map(|ms| ms * MS).collect();
        rank_cost(0, &profile).varies_ns / MS
    };
    assert_eq!(varies_ms(&[50.0, 54.0, 70.0]), 20.0);
    assert_eq!(varies_ms(&[50.0, 54.0, 52.0, 51.0, 53.0, 90.0]), 3.0);
    assert_eq!(varies_ms(&[50.0]), 0.0);
    assert_eq!(varies_ms(&[]), 0.0);
}
