//! What changed on each line since an earlier run: for hints.

use std::collections::HashMap;

use super::compare;
use super::run::Run;
use crate::profile::{FileId, Profile};

/// What changed since the runs that an editor can show hints against.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Since {
    /// Since the run before.
    pub last: Option<Changes>,
    /// Since the newest run of exactly the commit that HEAD was.
    pub head: Option<Changes>,
}

/// By how many nanoseconds a line takes longer, with everything that it calls. Lines of which that
/// cannot be told from noise are not in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes(HashMap<(FileId, u32), f64>);

impl Changes {
    /// What changed from an earlier run to this measurement.
    pub fn of(before: &Run, profile: &Profile) -> Changes {
        let places = profile.files.iter().zip(0_u32..);
        // Paths are kept as they are shown.
        let files: HashMap<String, FileId> =
            places.map(|(file, at)| (crate::printable::name(&file.path), FileId(at))).collect();
        let rows = compare(before, &Run::of(profile)).lines;
        let told = rows.iter().filter_map(|row| {
            let is_told = row.total.verdict.is_change() && row.line_before.is_some();
            let place = (*files.get(&row.file)?, row.line_after.filter(|_| is_told)?);
            Some((place, row.total.difference()))
        });
        Changes(told.collect())
    }

    /// By how much the line takes longer; nothing where that cannot be told from noise.
    pub fn line(&self, file: FileId, line: u32) -> Option<f64> {
        self.0.get(&(file, line)).copied()
    }
}
