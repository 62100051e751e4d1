//! Many ranks: what one iteration costs on each of them, and how that differs.
//!
//! The profile that is shown is the first rank's: one iteration as it was measured, which adds up.
//! [`Ranks`] puts beside it what the others took. Ranks that train together take the same time for an
//! iteration, because the faster ones wait; so what tells them apart is the time in which they
//! compute, which is all but the exposed part of their [`exchange`].

pub mod exchange;
#[cfg(test)]
mod tests;
pub mod uneven;

use std::collections::{BTreeMap, BTreeSet};

use crate::profile::{FileId, PhaseTimes, Profile};

/// Lines whose spread is kept, those first that differ most.
const MOST_LINES: usize = 2_000;

/// What one rank's iteration costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankCost {
    /// Its number.
    pub rank: u32,
    /// Nanoseconds of one iteration without a profiler.
    pub time_ns: f64,
    /// Nanoseconds by which its own unprofiled iterations differed at most.
    pub varies_ns: f64,
    /// The time by phase.
    pub phases: PhaseTimes,
    /// Nanoseconds in which it computed, and did not wait for others.
    pub computing_ns: f64,
    /// Nanoseconds in which it communicated, and those of them that nothing hid; nothing where it
    /// exchanged nothing.
    pub exchange_ns: Option<(f64, f64)>,
    /// Samples in a batch.
    pub batch_size: Option<u64>,
    /// Bytes alive at the peak.
    pub peak_bytes: u64,
    /// Floating-point operations of those operators for which they are known.
    pub flops: f64,
    lines: BTreeMap<(String, u32), LineOfRank>,
}

/// What one line costs one rank in an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LineOfRank {
    /// Nanoseconds with calls from it.
    pub total_ns: f64,
    /// Nanoseconds of its own in which it computed.
    pub computing_ns: f64,
    /// How often it ran.
    pub calls: f64,
    /// Floating-point operations of its operators, as far as they are known.
    pub flops: f64,
}

impl RankCost {
    /// What the profile of a rank says.
    pub fn new(rank: u32, profile: &Profile) -> RankCost {
        let exchange = profile.exchange.as_deref();
        let timed = &profile.iteration.timed_ns;
        let least = timed.iter().copied().fold(f64::INFINITY, f64::min);
        let most = timed.iter().copied().fold(0.0, f64::max);
        let mut lines = BTreeMap::new();
        let files = (0_u32..).map(FileId).zip(&profile.files).zip(&profile.lines);
        for ((file, facts), costs) in files {
            for cost in costs {
                let waits = exchange.map_or(0.0, |it| it.exposed_of(file, cost.line));
                let line = LineOfRank {
                    total_ns: cost.total_time.total(),
                    computing_ns: (cost.self_time.total() - waits).max(0.0),
                    calls: cost.calls,
                    flops: cost.operators.iter().filter_map(|operator| operator.flops).sum(),
                };
                lines.insert((facts.path.clone(), cost.line), line);
            }
        }
        let time_ns = profile.iteration.time_ns;
        RankCost {
            rank,
            time_ns,
            varies_ns: (most - least).max(0.0),
            phases: profile.iteration.phases,
            computing_ns: (time_ns - exchange.map_or(0.0, |it| it.exposed_ns)).max(0.0),
            exchange_ns: exchange.map(|it| (it.total_ns, it.exposed_ns)),
            batch_size: profile.iteration.batch_size,
            peak_bytes: profile.memory.peak_bytes,
            flops: lines.values().map(|line| line.flops).sum(),
            lines,
        }
    }

    /// What a line costs it; nothing where the line did not run.
    pub fn line(&self, path: &str, line: u32) -> Option<LineOfRank> {
        self.lines.get(&(path.to_owned(), line)).copied()
    }
}

/// A value's mean over ranks, and those that have the least and the most of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Over all ranks that were measured; one that has none counts as 0.
    pub mean: f64,
    /// The least, and the first rank that has it.
    pub least: (u32, f64),
    /// The most, and the first rank that has it.
    pub most: (u32, f64),
}

impl Spread {
    /// Of values by rank; nothing where there is none.
    pub fn of(values: impl Iterator<Item = (u32, f64)> + Clone) -> Option<Spread> {
        let count = values.clone().count();
        let least =
            values.clone().reduce(|one, other| if other.1 < one.1 { other } else { one })?;
        let most = values.clone().reduce(|one, other| if other.1 > one.1 { other } else { one })?;
        let sum: f64 = values.map(|(_, value)| value).sum();
        Some(Spread { mean: sum / count as f64, least, most })
    }

    /// From the least to the most.
    pub fn width(&self) -> f64 {
        self.most.1 - self.least.1
    }
}

/// How a line's cost differs between ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineSpread {
    /// Relative to the project's root.
    pub path: String,
    /// Counted from 1, in the text that ran.
    pub line: u32,
    /// Nanoseconds with calls from it.
    pub total_ns: Spread,
    /// Nanoseconds of its own in which it computed.
    pub computing_ns: Spread,
}

/// The ranks of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranks {
    /// How many there were.
    pub world_size: u32,
    /// Those that were measured, by their number.
    pub ranks: Vec<RankCost>,
    /// The lines, those first that differ most.
    pub lines: Vec<LineSpread>,
}

impl Ranks {
    /// Puts the ranks beside each other. Nothing where fewer than two were measured.
    pub fn new(world_size: u32, mut ranks: Vec<RankCost>) -> Option<Ranks> {
        if ranks.len() < 2 {
            return None;
        }
        ranks.sort_by_key(|rank| rank.rank);
        let places: BTreeSet<&(String, u32)> =
            ranks.iter().flat_map(|rank| rank.lines.keys()).collect();
        let mut lines: Vec<LineSpread> = places
            .into_iter()
            .filter_map(|place| {
                let of = |value: fn(&LineOfRank) -> f64| {
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

    /// How a line differs.
    pub fn line(&self, path: &str, line: u32) -> Option<&LineSpread> {
        self.lines.iter().find(|spread| spread.line == line && spread.path == path)
    }

    /// A value of each rank.
    pub fn spread(&self, value: impl Fn(&RankCost) -> f64 + Copy) -> Spread {
        Spread::of(self.ranks.iter().map(|rank| (rank.rank, value(rank)))).unwrap_or_default()
    }
}
