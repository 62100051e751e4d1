//! Many ranks: what one iteration costs on each of them, and how that differs.
//!
//! The profile that is shown is the first rank's: one iteration as it was measured, which adds up.
//! [`Ranks`] puts beside it what the others took. Ranks that train together take the same time for an
//! iteration, because the faster ones wait; so what tells them apart is the time in which they
//! compute, which is all but the exposed part of their [`exchange`](ridgeline_profile::exchange).

#[cfg(test)]
mod tests;
pub mod uneven;

use std::collections::{BTreeMap, BTreeSet};

use ridgeline_profile::ranks::{LineOfRank, LineSpread, RankCost, Ranks, Spread};
use ridgeline_profile::{FileId, Profile};

/// Lines whose spread is kept, those first that differ most.
const MOST_LINES: usize = 2_000;
/// Of so many iterations one may be slow, and one quick, for a reason that is not the program's.
const ONE_IS_ODD_OF: usize = 6;

/// What the profile of a rank says.
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

/// What most iterations lie within: the more there are, the more odd ones every machine has among them.
fn spread_ns(timed: &[f64]) -> f64 {
    let mut sorted = timed.to_vec();
    sorted.sort_by(f64::total_cmp);
    let odd = sorted.len() / ONE_IS_ODD_OF;
    let within = sorted.get(odd..sorted.len() - odd).unwrap_or_default();
    within.last().zip(within.first()).map_or(0.0, |(most, least)| most - least)
}

/// Puts the ranks beside each other. Nothing where fewer than two were measured.
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
    lines.truncate(MOST_LINES);
    let world_size = world_size.max(u32::try_from(ranks.len()).unwrap_or(u32::MAX));
    Some(Ranks { world_size, ranks, lines })
}
