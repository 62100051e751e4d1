//! The ranks of a launched run. Each has its own recording, and those of ranks other than the first
//! are inside the first one's folder.

use std::path::{Path, PathBuf};

use ridgeline_analysis::attribution;
use ridgeline_analysis::attribution::ranks::{rank_cost, side_by_side};
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::profile::ranks::Ranks;
use ridgeline_analysis::recording::Recording;

use super::recording::load;
use crate::store::RANK_PREFIX;

/// The maximum number of ranks read. A run with thousands of ranks has as many traces.
const READ_LIMIT: usize = 64;

/// Returns the costs of all ranks, of which `profile` is the first, and notes for the user. Returns
/// no ranks if only the first can be read. It reads files and computes, which can take seconds.
pub(super) fn read(
    folder: &Path,
    recording: &Recording,
    profile: &Profile,
) -> (Option<Ranks>, Vec<String>) {
    let mut others = folders(folder);
    let mut notes = Vec::new();
    let last = others.last().map_or(0, |(rank, _)| *rank);
    // The last rank may have left no recording.
    let world_size = world_size(recording).max(last.saturating_add(1));
    let recorded = others.len().saturating_add(1);
    // If the program starts the ranks itself, only one is recorded (docs/ranks.md).
    let is_child =
        recording.manifest.as_ref().is_some_and(|manifest| manifest.child_processes.is_some());
    if (recorded as u64) < u64::from(world_size) && !is_child {
        notes.push(format!("{recorded} of {world_size} ranks left a recording"));
    }
    if others.len() >= READ_LIMIT {
        notes.push(format!("only the first {READ_LIMIT} of {world_size} ranks were read"));
        others.truncate(READ_LIMIT - 1);
    }
    let mut ranks = vec![rank_cost(0, profile)];
    for (rank, folder) in others {
        let profile = load(&folder).map_err(|error| error.to_string()).and_then(|recording| {
            attribution::attribute(&recording).map_err(|error| error.to_string())
        });
        match profile {
            Ok(profile) => ranks.push(rank_cost(rank, &profile)),
            Err(why) => notes.push(format!("rank {rank} is ignored: {why}")),
        }
    }
    (side_by_side(world_size, ranks), notes)
}

/// Returns the number of ranks that the first rank saw, or 0 if unknown.
fn world_size(recording: &Recording) -> u32 {
    let manifest = recording.manifest.as_ref();
    let distributed = manifest.and_then(|manifest| manifest.observed.distributed.as_ref());
    distributed.map_or(0, |distributed| distributed.world_size)
}

/// Returns the folders of the ranks other than the first, sorted by rank.
pub(super) fn folders(folder: &Path) -> Vec<(u32, PathBuf)> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(RANK_PREFIX)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .filter(|(number, _)| *number > 0)
        .collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {

    use std::fs;

    use ridgeline_analysis::recording::manifest::Manifest;
    use ridgeline_analysis::recording::observed::{Distributed, Observed};

    use super::*;
    use crate::pipeline::recording::iteration_count;

    /// Returns the folder of a run with these manifests.
    fn folder(manifests: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (rank, manifest) in manifests {
            fs::create_dir_all(folder.path().join(rank)).expect("a folder");
            fs::write(folder.path().join(rank).join("manifest.json"), manifest).expect("written");
        }
        folder
    }

    #[track_caller]
    fn check(manifests: &[(&str, &str)], world_size: u32, expected: &[&str]) {
        let folder = folder(manifests);
        let distributed = Some(Distributed { world_size, ..Distributed::default() });
        let observed = Observed { distributed, ..Observed::default() };
        let manifest = Some(Manifest { observed, ..Manifest::default() });
        let recording = Recording { manifest, ..Recording::default() };
        let (ranks, notes) = read(folder.path(), &recording, &Profile::default());
        assert_eq!(ranks, None);
        assert_eq!(notes.len(), expected.len(), "{notes:?}");
        for (note, expected) in notes.iter().zip(expected) {
            assert!(note.starts_with(expected), "{note}");
        }
    }

    #[test]
    fn ranks_that_the_program_starts_are_not_reported_missing() {
        let distributed = Some(Distributed { world_size: 2, ..Distributed::default() });
        let observed = Observed { distributed, ..Observed::default() };
        let manifest = Manifest { observed, child_processes: Some(2), ..Manifest::default() };
        let recording = Recording { manifest: Some(manifest), ..Recording::default() };
        let folder = folder(&[("", "{}")]);
        let found = read(folder.path(), &recording, &Profile::default());
        assert_eq!(found, (None, Vec::new()));
    }

    #[test]
    fn missing_and_broken_ranks_are_reported() {
        check(&[("", "{}")], 0, &[]);
        check(&[("", "{}")], 1, &[]);
        check(&[("", "{}"), ("rank-1", "{")], 2, &["rank 1 is ignored: "]);
        check(
            &[("", "{}"), ("rank-1", "{")],
            3,
            &["2 of 3 ranks left a recording", "rank 1 is ignored: "],
        );
        check(&[("", "{}")], 2, &["1 of 2 ranks left a recording"]);
    }

    #[test]
    fn the_rank_with_the_fewest_iterations_counts() {
        let manifest = |seen| format!(r#"{{"schema": 1, "iterations": {{"seen": {seen}}}}}"#);
        let (six, five) = (manifest(6), manifest(5));
        let both = folder(&[("", &six), ("rank-1", &five)]);
        assert_eq!(iteration_count(both.path()), Some(5));
        // The first rank waited for the other, and was stopped.
        assert_eq!(iteration_count(folder(&[("rank-1", &five)]).path()), Some(5));
        assert_eq!(iteration_count(folder(&[("", &six)]).path()), Some(6));
        assert_eq!(iteration_count(folder(&[]).path()), None);
    }
}
