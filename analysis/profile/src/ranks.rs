//! [`Ranks`]: what an iteration costs on each rank of a run, and how that differs. The folder `ranks` makes
//! it of their profiles.

use std::collections::BTreeMap;

use super::PhaseTimes;

/// What one rank's iteration costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankCost {
    /// Its number.
    pub rank: u32,
    /// Nanoseconds of one iteration without a profiler.
    pub time_ns: f64,
    /// Nanoseconds by which its own unprofiled iterations differed, odd ones left out.
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
    /// What each line costs it, by path and line.
    pub lines: BTreeMap<(String, u32), LineOfRank>,
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
    /// How a line differs.
    pub fn line(&self, path: &str, line: u32) -> Option<&LineSpread> {
        self.lines.iter().find(|spread| spread.line == line && spread.path == path)
    }

    /// The largest peak of memory, and the first rank that has it.
    pub fn peak(&self) -> Option<(u32, u64)> {
        let peaks = self.ranks.iter().map(|rank| (rank.rank, rank.peak_bytes));
        peaks.reduce(|one, other| if other.1 > one.1 { other } else { one })
    }

    /// Samples of all ranks in an iteration; nothing where not all were measured, or one of their batches
    /// is not known.
    pub fn samples(&self) -> Option<u64> {
        let is_all = u32::try_from(self.ranks.len()) == Ok(self.world_size);
        let batches = self.ranks.iter().map(|rank| rank.batch_size);
        let sum = |all: Option<u64>, batch: Option<u64>| Some(all?.saturating_add(batch?));
        batches.fold(is_all.then_some(0), sum)
    }

    /// A value of each rank.
    pub fn spread(&self, value: impl Fn(&RankCost) -> f64 + Copy) -> Spread {
        Spread::of(self.ranks.iter().map(|rank| (rank.rank, value(rank)))).unwrap_or_default()
    }
}
