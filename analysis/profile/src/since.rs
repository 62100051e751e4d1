//! [`Since`]: what changed on each line since an earlier run. `compare` makes it of two runs.

use std::collections::HashMap;

use super::FileId;

/// What changed since the runs that a measurement is shown against.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Since {
    /// Since the run before.
    pub last: Option<Changes>,
    /// When the newest earlier run was whose text is that of the commit that HEAD was, in milliseconds
    /// since 1970.
    pub head_unix_ms: Option<u64>,
    /// Since that run.
    pub head: Option<Changes>,
}

/// By how many nanoseconds a line takes longer, with everything that it calls. Lines of which that
/// cannot be told from noise are not in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes(HashMap<(FileId, u32), f64>);

impl Changes {
    /// By how much the line takes longer; nothing where that cannot be told from noise.
    pub fn line(&self, file: FileId, line: u32) -> Option<f64> {
        self.0.get(&(file, line)).copied()
    }
}

impl FromIterator<((FileId, u32), f64)> for Changes {
    fn from_iter<T: IntoIterator<Item = ((FileId, u32), f64)>>(lines: T) -> Changes {
        Changes(lines.into_iter().collect())
    }
}
