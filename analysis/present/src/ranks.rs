//! What a person and a program are told of a run's ranks.

use serde::Serialize;

use ridgeline_base::units;
use ridgeline_profile::ranks::{RankCost, Ranks, Spread};
use ridgeline_profile::{FileId, LineCost, Profile};

/// Ranks that the terminal lists; beyond, those with the least and the most are told.
const MOST_LISTED: usize = 16;
/// A spread below this share of the value is what two measurements of one rank differ by.
const WORTH_TELLING: f64 = 0.05;
/// Lines in the document.
const MOST_LINES: usize = 500;

/// `12 ms on rank 0, 19 ms on rank 1`; nothing where the ranks of the run take the same for the lines,
/// or there is one rank alone.
pub fn of_lines<'a>(
    profile: &Profile,
    file: FileId,
    lines: impl Iterator<Item = &'a LineCost>,
) -> Option<String> {
    let ranks = profile.ranks.as_deref()?;
    let path = &profile.files.get(file.0 as usize)?.path;
    let lines: Vec<u32> = lines.map(|line| line.line).collect();
    let of_rank = |rank: &RankCost| {
        // The lines of one statement, one of which may call another: the longest is the statement's.
        let costs = lines.iter().filter_map(|line| rank.line(path, *line));
        costs.map(|cost| cost.total_ns).fold(0.0, f64::max)
    };
    let spread = ranks.spread(of_rank);
    is_worth_telling(&spread).then(|| told(&spread, ranks.ranks.len()))
}

/// Whether ranks differ by more than two measurements of one do.
pub(super) fn is_worth_telling(spread: &Spread) -> bool {
    spread.width() > WORTH_TELLING * spread.most.1
}

fn told(spread: &Spread, ranks: usize) -> String {
    let mut ends = [spread.least, spread.most];
    ends.sort_by_key(|(rank, _)| *rank);
    let ends = ends.map(|(rank, value)| format!("{} on rank {rank}", units::duration(value)));
    let mean = if ranks > 2 {
        format!(" ({} on average over {ranks} ranks)", units::duration(spread.mean))
    } else {
        String::new()
    };
    format!("{}{mean}", ends.join(", "))
}

/// The terminal's rows, one for each rank: what it takes, of which it waits.
pub fn rows(ranks: &Ranks) -> Vec<String> {
    let mut rows: Vec<String> = ranks
        .ranks
        .iter()
        .take(MOST_LISTED)
        .map(|rank| {
            let mut row = format!(
                "  rank {:<4}{:>9}  computes {:>9}",
                rank.rank,
                units::duration(rank.time_ns),
                units::duration(rank.computing_ns)
            );
            if let Some((total_ns, exposed_ns)) = rank.exchange_ns {
                row += &format!(
                    "  exchanges {:>9}, waiting {:>9}",
                    units::duration(total_ns),
                    units::duration(exposed_ns)
                );
            }
            row
        })
        .collect();
    if ranks.ranks.len() > MOST_LISTED {
        let computing = ranks.spread(|rank| rank.computing_ns);
        rows.push(format!("  computing: {}", told(&computing, ranks.ranks.len())));
    }
    rows
}

/// `ranks` of the document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RanksEntry {
    world_size: u32,
    ranks: Vec<RankEntry>,
    lines: Vec<SpreadEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct RankEntry {
    rank: u32,
    time_ms: f64,
    computing_ms: f64,
    communication_ms: Option<f64>,
    exposed_ms: Option<f64>,
    batch_size: Option<u64>,
    peak_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct SpreadEntry {
    file: String,
    line: u32,
    mean_ms: f64,
    least_ms: f64,
    least_rank: u32,
    most_ms: f64,
    most_rank: u32,
}

/// The ranks, and the lines that differ most.
pub fn entry(ranks: &Ranks) -> RanksEntry {
    let rank = |rank: &RankCost| RankEntry {
        rank: rank.rank,
        time_ms: milliseconds(rank.time_ns),
        computing_ms: milliseconds(rank.computing_ns),
        communication_ms: rank.exchange_ns.map(|(total_ns, _)| milliseconds(total_ns)),
        exposed_ms: rank.exchange_ns.map(|(_, exposed_ns)| milliseconds(exposed_ns)),
        batch_size: rank.batch_size,
        peak_bytes: rank.peak_bytes,
    };
    let lines = ranks.lines.iter().take(MOST_LINES).map(|line| SpreadEntry {
        file: line.path.clone(),
        line: line.line,
        mean_ms: milliseconds(line.total_ns.mean),
        least_ms: milliseconds(line.total_ns.least.1),
        least_rank: line.total_ns.least.0,
        most_ms: milliseconds(line.total_ns.most.1),
        most_rank: line.total_ns.most.0,
    });
    RanksEntry {
        world_size: ranks.world_size,
        ranks: ranks.ranks.iter().map(rank).collect(),
        lines: lines.collect(),
    }
}

/// With six decimals, as everywhere in the document.
fn milliseconds(time_ns: f64) -> f64 {
    time_ns.round() / 1e6
}
