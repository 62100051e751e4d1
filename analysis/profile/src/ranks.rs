//! [`Ranks`]: the cost of an iteration on each rank of a run, and how it differs between ranks.
//! `attribution::ranks` computes it from their profiles.

use std::collections::BTreeMap;

use super::PhaseTimes;

/// The cost of one iteration on one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankCost {
    pub rank: u32,
    /// Nanoseconds per iteration without the profiler.
    pub time_ns: f64,
    /// Spread of the rank's unprofiled iterations in nanoseconds, outliers excluded.
    pub varies_ns: f64,
    /// `time_ns` by phase.
    pub phases: PhaseTimes,
    /// Nanoseconds in which the rank computed and did not wait for others.
    pub computing_ns: f64,
    /// Communication time and its exposed part, in nanoseconds; `None` if the rank communicated
    /// nothing.
    pub exchange_ns: Option<(f64, f64)>,
    /// Samples in a batch.
    pub batch_size: Option<u64>,
    /// Peak memory in bytes.
    pub peak_bytes: u64,
    /// Floating-point operations of the operators whose count is known.
    pub flops: f64,
    /// The cost of each line, by path and line number.
    pub lines: BTreeMap<(String, u32), LineOfRank>,
}

/// The cost of one line on one rank, per iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LineOfRank {
    /// Total nanoseconds, calls included.
    pub total_ns: f64,
    /// Self nanoseconds in which the rank computed.
    pub computing_ns: f64,
    /// Executions per iteration.
    pub calls: f64,
    /// Floating-point operations of the line's operators whose count is known.
    pub flops: f64,
}

impl RankCost {
    /// Returns the cost of a line, or `None` if the line did not run.
    pub fn line(&self, path: &str, line: u32) -> Option<LineOfRank> {
        self.lines.get(&(path.to_owned(), line)).copied()
    }
}

/// The mean, minimum and maximum of a value over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Mean over all measured ranks; a rank without a value counts as 0.
    pub mean: f64,
    /// The first rank with the minimum, and the minimum.
    pub min: (u32, f64),
    /// The first rank with the maximum, and the maximum.
    pub max: (u32, f64),
}

impl Spread {
    /// Computes the spread of values by rank. Returns `None` if there are none.
    pub fn of(values: impl Iterator<Item = (u32, f64)> + Clone) -> Option<Spread> {
        let count = values.clone().count();
        let least =
            values.clone().reduce(|one, other| if other.1 < one.1 { other } else { one })?;
        let most = values.clone().reduce(|one, other| if other.1 > one.1 { other } else { one })?;
        let sum: f64 = values.map(|(_, value)| value).sum();
        Some(Spread { mean: sum / count as f64, min: least, max: most })
    }

    /// Returns the maximum minus the minimum.
    pub fn width(&self) -> f64 {
        self.max.1 - self.min.1
    }
}

/// How a line's cost differs between ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineSpread {
    /// Path relative to the project's root.
    pub path: String,
    /// Line number, counted from 1, in the text that ran.
    pub line: u32,
    /// Total nanoseconds, calls included.
    pub total_ns: Spread,
    /// Self nanoseconds in which the rank computed.
    pub computing_ns: Spread,
}

/// The ranks of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranks {
    /// The number of ranks in the run.
    pub world_size: u32,
    /// The measured ranks, by rank number.
    pub ranks: Vec<RankCost>,
    /// The lines, those that differ most first.
    pub lines: Vec<LineSpread>,
}

impl Ranks {
    /// Returns the spread of a line.
    pub fn line(&self, path: &str, line: u32) -> Option<&LineSpread> {
        self.lines.iter().find(|spread| spread.line == line && spread.path == path)
    }

    /// Returns the first rank with the largest peak memory, and the peak in bytes.
    pub fn peak(&self) -> Option<(u32, u64)> {
        let peaks = self.ranks.iter().map(|rank| (rank.rank, rank.peak_bytes));
        peaks.reduce(|one, other| if other.1 > one.1 { other } else { one })
    }

    /// Returns the samples of all ranks per iteration, or `None` if not all ranks were measured or
    /// a batch size is unknown.
    pub fn samples(&self) -> Option<u64> {
        let is_complete = u32::try_from(self.ranks.len()) == Ok(self.world_size);
        let batches = self.ranks.iter().map(|rank| rank.batch_size);
        let sum = |all: Option<u64>, batch: Option<u64>| Some(all?.saturating_add(batch?));
        batches.fold(is_complete.then_some(0), sum)
    }

    /// Returns the spread of a value over the measured ranks.
    pub fn spread(&self, value: impl Fn(&RankCost) -> f64 + Copy) -> Spread {
        Spread::of(self.ranks.iter().map(|rank| (rank.rank, value(rank)))).unwrap_or_default()
    }
}
