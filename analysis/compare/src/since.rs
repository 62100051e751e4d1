//! The change of each line since an earlier run, for hints.

use std::collections::HashMap;

use super::compare;
use super::run::Run;
use ridgeline_profile::since::Changes;
use ridgeline_profile::{FileId, Profile};

/// Returns the changes of lines from an earlier run to this measurement.
pub fn changes_since(before: &Run, profile: &Profile) -> Changes {
    let places = profile.files.iter().zip(0_u32..);
    // Runs store paths in printable form.
    let files: HashMap<String, FileId> = places
        .map(|(file, at)| (ridgeline_base::printable::name(&file.path), FileId(at)))
        .collect();
    let rows = compare(before, &Run::of(profile)).lines;
    let changes = rows.iter().filter_map(|row| {
        let is_change = row.total.verdict.is_change() && row.line_before.is_some();
        let place = (*files.get(&row.file)?, row.line_after.filter(|_| is_change)?);
        Some((place, row.total.difference()))
    });
    changes.collect()
}
