//! The ranks of a distributed run: their times, and the lines that differ most between them.

use std::collections::HashMap;

use serde::Serialize;

use super::{Place, name, whole};
use crate::ranks::is_significant;
use ridgeline_profile::ranks::{LineSpread, RankCost, Ranks};
use ridgeline_profile::{FileId, Profile};

/// The maximum number of lines in the document.
const MAX_LINES: usize = 100;
/// Differences below this share of the iteration are left out.
const MIN_SHARE: f64 = 0.005;

/// The ranks. Times are nanoseconds per iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RanksEntry {
    world_size: u32,
    /// The measured ranks.
    ranks: Vec<RankEntry>,
    /// The lines that differ between ranks, largest difference first.
    lines: Vec<LineEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct RankEntry {
    rank: u32,
    time_ns: u64,
    computing_ns: u64,
    /// Time in communication. `None` if there was none.
    exchange_ns: Option<u64>,
    /// The exposed part of it.
    waiting_ns: Option<u64>,
    batch_size: Option<u64>,
    peak_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct LineEntry {
    /// `train.py:12`.
    name: String,
    place: Option<Place>,
    mean_ns: u64,
    least: RankTime,
    most: RankTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct RankTime {
    rank: u32,
    time_ns: u64,
}

/// Returns the ranks of a profile. `None` if there is only one.
pub(super) fn ranks_entry(profile: &Profile) -> Option<RanksEntry> {
    let ranks: &Ranks = profile.ranks.as_deref()?;
    let files: HashMap<&str, FileId> =
        profile.files.iter().map(|file| file.path.as_str()).zip((0..).map(FileId)).collect();
    let least_ns = MIN_SHARE * profile.iteration.time_ns;
    let differs =
        |line: &&LineSpread| line.total_ns.width() >= least_ns && is_significant(&line.total_ns);
    let line = |line: &LineSpread| LineEntry {
        name: format!("{}:{}", name(&line.path), line.line),
        place: files.get(line.path.as_str()).and_then(|file| Place::of(profile, *file, line.line)),
        mean_ns: whole(line.total_ns.mean),
        least: rank_time(line.total_ns.min),
        most: rank_time(line.total_ns.max),
    };
    Some(RanksEntry {
        world_size: ranks.world_size,
        ranks: ranks.ranks.iter().map(rank).collect(),
        lines: ranks.lines.iter().filter(differs).take(MAX_LINES).map(line).collect(),
    })
}

fn rank(rank: &RankCost) -> RankEntry {
    RankEntry {
        rank: rank.rank,
        time_ns: whole(rank.time_ns),
        computing_ns: whole(rank.computing_ns),
        exchange_ns: rank.exchange_ns.map(|(total_ns, _)| whole(total_ns)),
        waiting_ns: rank.exchange_ns.map(|(_, exposed_ns)| whole(exposed_ns)),
        batch_size: rank.batch_size,
        peak_bytes: rank.peak_bytes,
    }
}

fn rank_time((rank, time_ns): (u32, f64)) -> RankTime {
    RankTime { rank, time_ns: whole(time_ns) }
}

#[cfg(test)]
mod tests {
    use ridgeline_attribution::ranks::side_by_side;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use ridgeline_profile::FileFacts;
    use ridgeline_profile::ranks::LineOfRank;

    fn rank(rank: u32, lines: &[(u32, f64)]) -> RankCost {
        let cost = |total_ns: f64| LineOfRank { total_ns, ..LineOfRank::default() };
        let lines = lines.iter().map(|&(line, ns)| (("train.py".to_owned(), line), cost(ns)));
        let (time_ns, computing_ns) = (1000.0, 700.0);
        let exchange_ns = Some((400.0, 300.0));
        RankCost {
            rank,
            time_ns,
            computing_ns,
            exchange_ns,
            peak_bytes: 5,
            lines: lines.collect(),
            ..RankCost::default()
        }
    }

    #[test]
    fn a_row_for_each_rank_and_for_lines_that_differ() {
        // Line 7 differs by little, and line 8 by a small share of the iteration.
        let both = [
            rank(0, &[(5, 100.0), (7, 100.0), (8, 1.0)]),
            rank(1, &[(5, 300.0), (7, 102.0), (8, 2.0)]),
        ];
        let mut profile = Profile {
            ranks: side_by_side(2, both.to_vec()).map(Arc::new),
            files: vec![FileFacts { path: "train.py".to_owned(), fingerprint: vec![] }],
            ..Profile::default()
        };
        profile.iteration.time_ns = 1000.0;
        let shown = serde_json::to_value(ranks_entry(&profile).expect("ranks")).expect("JSON");
        assert_eq!(shown["world_size"], 2);
        assert_eq!(
            shown["ranks"][1],
            json!({"rank": 1, "time_ns": 1000, "computing_ns": 700, "exchange_ns": 400,
                   "waiting_ns": 300, "batch_size": null, "peak_bytes": 5})
        );
        assert_eq!(
            shown["lines"],
            json!([{"name": "train.py:5", "place": {"file": 0, "line": 5}, "mean_ns": 200,
                    "least": {"rank": 0, "time_ns": 100}, "most": {"rank": 1, "time_ns": 300}}])
        );
    }

    #[test]
    fn a_single_rank_is_not_listed() {
        assert_eq!(ranks_entry(&Profile::default()), None);
    }
}
