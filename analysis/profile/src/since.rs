//! [`Since`]: the change of each line since an earlier run. `compare` computes it from two runs.

use std::collections::HashMap;

use super::FileId;

/// Changes since the runs that a measurement is compared with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Since {
    /// Changes since the previous run.
    pub last: Option<Changes>,
    /// Time of the newest earlier run whose text equals the HEAD commit, in milliseconds since
    /// 1970.
    pub head_unix_ms: Option<u64>,
    /// Changes since that run.
    pub head: Option<Changes>,
}

/// The change of each line's total time (calls included) in nanoseconds. Lines whose change cannot
/// be distinguished from noise are not included.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes(HashMap<(FileId, u32), f64>);

impl Changes {
    /// Returns the change of a line in nanoseconds, or `None` if it cannot be distinguished from
    /// noise.
    pub fn line(&self, file: FileId, line: u32) -> Option<f64> {
        self.0.get(&(file, line)).copied()
    }
}

impl FromIterator<((FileId, u32), f64)> for Changes {
    fn from_iter<T: IntoIterator<Item = ((FileId, u32), f64)>>(lines: T) -> Changes {
        Changes(lines.into_iter().collect())
    }
}
