//! The cost of one iteration on several ranks, and how it differs.
//!
//! The displayed profile is that of the first rank: one measured iteration, which adds up.
//! [`Ranks`] adds the times of the others. Ranks that train together take the same time per
//! iteration, because the faster ones wait. What differs is the time in which they compute, which
//! is all except the exposed part of their [`exchange`](ridgeline_profile::exchange).

#[cfg(test)]
mod tests;
pub mod uneven;

use std::collections::{BTreeMap, BTreeSet};

use ridgeline_profile::ranks::{LineOfRank, LineSpread, RankCost, Ranks, Spread};
use ridgeline_profile::{FileId, Profile};

/// The maximum number of lines whose spread is stored, those that differ most.
const MAX_LINES: usize = 2_000;
/// The number of iterations per slow, and per fast, outlier that does not count.
const ITERATIONS_PER_OUTLIER: usize = 6;

/// Returns the cost of a rank from its profile.
pub fn rank_cost(rank: u32, profile: &Profile) -> RankCost {
    let exchange = profile.exchange.as_deref();
    let timed = &profile.iteration.timed_ns;
    let mut lines = BTreeMap::new();
    let files = (0_u32..).map(FileId).zip(&profile.files).zip(&profile.lines);
    for ((file, facts), costs) in files {
        for cost in costs {
            let waits = exchange.map_or(0.0, |it| it.exposed_of(file, cost.line));
            let line = LineOfRank {
                total_ns: cost.total_time.total(),
                computing_ns: (cost.self_time.total() - waits).max(0.0),
                calls: cost.calls,
                flops: cost.flops,
            };
            lines.insert((facts.path.clone(), cost.line), line);
        }
    }
    let time_ns = profile.iteration.time_ns;
    RankCost {
        rank,
        time_ns,
        varies_ns: spread_ns(timed),
        phases: profile.iteration.phases,
        computing_ns: (time_ns - exchange.map_or(0.0, |it| it.exposed_ns)).max(0.0),
        exchange_ns: exchange.map(|it| (it.total_ns, it.exposed_ns)),
        batch_size: profile.iteration.batch_size,
        peak_bytes: profile.memory.peak_bytes,
        flops: lines.values().map(|line| line.flops).sum(),
        lines,
    }
}

/// Returns the spread of iterations without outliers. More iterations have more outliers on every
/// machine.
fn spread_ns(timed: &[f64]) -> f64 {
    let mut sorted = timed.to_vec();
    sorted.sort_by(f64::total_cmp);
    let odd = sorted.len() / ITERATIONS_PER_OUTLIER;
    let within = sorted.get(odd..sorted.len() - odd).unwrap_or_default();
    within.last().zip(within.first()).map_or(0.0, |(most, least)| most - least)
}

/// Combines the costs of the ranks. Returns `None` if fewer than two were measured.
pub fn side_by_side(world_size: u32, mut ranks: Vec<RankCost>) -> Option<Ranks> {
    if ranks.len() < 2 {
        return None;
    }
    ranks.sort_by_key(|rank| rank.rank);
    let places: BTreeSet<&(String, u32)> =
        ranks.iter().flat_map(|rank| rank.lines.keys()).collect();
    let mut lines: Vec<LineSpread> = places
        .into_iter()
        .filter_map(|place| {
            let of =
                |value: fn(&LineOfRank) -> f64| {
                    Spread::of(ranks.iter().map(|rank| {
                        (rank.rank, rank.lines.get(place).map(value).unwrap_or_default())
                    }))
                };
            Some(LineSpread {
                path: place.0.clone(),
                line: place.1,
                total_ns: of(|line| line.total_ns)?,
                computing_ns: of(|line| line.computing_ns)?,
            })
        })
        .collect();
    lines.sort_by(|one, other| other.total_ns.width().total_cmp(&one.total_ns.width()));
    lines.truncate(MAX_LINES);
    let world_size = world_size.max(u32::try_from(ranks.len()).unwrap_or(u32::MAX));
    Some(Ranks { world_size, ranks, lines })
}
