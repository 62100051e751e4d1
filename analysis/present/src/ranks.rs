//! The ranks of a run, as text and as JSON.

use serde::Serialize;

use ridgeline_base::units;
use ridgeline_profile::ranks::{RankCost, Ranks, Spread};
use ridgeline_profile::{FileId, LineCost, Profile};

/// The maximum number of ranks listed in the terminal. With more, only the fastest and slowest are
/// also shown.
const MAX_LISTED: usize = 16;
/// Spreads below this share of the value are within the noise of measuring one rank twice.
const MIN_SPREAD: f64 = 0.05;
/// The maximum number of lines in the document.
const MAX_LINES: usize = 500;

/// `12 ms on rank 0, 19 ms on rank 1`. `None` if the lines take the same time on all ranks, or
/// there is only one rank.
pub fn of_lines<'a>(
    profile: &Profile,
    file: FileId,
    lines: impl Iterator<Item = &'a LineCost>,
) -> Option<String> {
    let ranks = profile.ranks.as_deref()?;
    let path = &profile.files.get(file.0 as usize)?.path;
    let lines: Vec<u32> = lines.map(|line| line.line).collect();
    let longest_line = |rank: &RankCost| {
        // Lines of one statement may call each other, so the longest is the time of the statement.
        let costs = lines.iter().filter_map(|line| rank.line(path, *line));
        costs.map(|cost| cost.total_ns).fold(0.0, f64::max)
    };
    let spread = ranks.spread(longest_line);
    is_significant(&spread).then(|| spread_text(&spread, ranks.ranks.len()))
}

/// Returns whether ranks differ by more than two measurements of one rank.
pub(super) fn is_significant(spread: &Spread) -> bool {
    spread.width() > MIN_SPREAD * spread.max.1
}

fn spread_text(spread: &Spread, ranks: usize) -> String {
    let mut ends = [spread.min, spread.max];
    ends.sort_by_key(|(rank, _)| *rank);
    let ends = ends.map(|(rank, value)| format!("{} on rank {rank}", units::duration(value)));
    let mean = if ranks > 2 {
        format!(" ({} on average over {ranks} ranks)", units::duration(spread.mean))
    } else {
        String::new()
    };
    format!("{}{mean}", ends.join(", "))
}

/// Returns the terminal's rows, one for each rank: its time and the part spent waiting.
pub fn rows(ranks: &Ranks) -> Vec<String> {
    let mut rows: Vec<String> = ranks
        .ranks
        .iter()
        .take(MAX_LISTED)
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
    if ranks.ranks.len() > MAX_LISTED {
        let computing = ranks.spread(|rank| rank.computing_ns);
        rows.push(format!("  computing: {}", spread_text(&computing, ranks.ranks.len())));
    }
    rows
}

/// The `ranks` section of the document.
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

/// Returns the ranks, and the lines that differ most.
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
    let lines = ranks.lines.iter().take(MAX_LINES).map(|line| SpreadEntry {
        file: line.path.clone(),
        line: line.line,
        mean_ms: milliseconds(line.total_ns.mean),
        least_ms: milliseconds(line.total_ns.min.1),
        least_rank: line.total_ns.min.0,
        most_ms: milliseconds(line.total_ns.max.1),
        most_rank: line.total_ns.max.0,
    });
    RanksEntry {
        world_size: ranks.world_size,
        ranks: ranks.ranks.iter().map(rank).collect(),
        lines: lines.collect(),
    }
}

/// Converts to milliseconds with six decimals, as everywhere in the document.
fn milliseconds(time_ns: f64) -> f64 {
    time_ns.round() / 1e6
}
