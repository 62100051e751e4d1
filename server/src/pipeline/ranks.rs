//! The ranks of a launched run: each has a recording of its own, those after the first within the
//! first one's folder.

use std::path::{Path, PathBuf};

use ridgeline_analysis::attribution;
use ridgeline_analysis::attribution::ranks::{rank_cost, side_by_side};
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::profile::ranks::Ranks;
use ridgeline_analysis::recording::Recording;

use super::recording::load;
use crate::store::RANK;

/// So many are read; a run of thousands of ranks has as many traces.
const MOST_READ: usize = 64;

/// What the ranks cost of which `profile` is the first, and what a person should know about it. No ranks
/// where it is the only one that can be read. It reads files and computes; it can take seconds.
pub(super) fn read(
    folder: &Path,
    recording: &Recording,
    profile: &Profile,
) -> (Option<Ranks>, Vec<String>) {
    let mut others = folders(folder);
    let mut notes = Vec::new();
    let last = others.last().map_or(0, |(rank, _)| *rank);
    // The last of them may have left nothing.
    let world_size = world_size(recording).max(last.saturating_add(1));
    let recorded = others.len().saturating_add(1);
    // Of ranks that the program starts itself, one is recorded (docs/ranks.md).
    let is_child =
        recording.manifest.as_ref().is_some_and(|manifest| manifest.child_processes.is_some());
    if (recorded as u64) < u64::from(world_size) && !is_child {
        notes.push(format!("{recorded} of {world_size} ranks left a recording"));
    }
    if others.len() >= MOST_READ {
        notes.push(format!("only the first {MOST_READ} of {world_size} ranks were read"));
        others.truncate(MOST_READ - 1);
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

/// How many ranks there were, as the first one saw it; 0 where it did not.
fn world_size(recording: &Recording) -> u32 {
    let manifest = recording.manifest.as_ref();
    let distributed = manifest.and_then(|manifest| manifest.observed.distributed.as_ref());
    distributed.map_or(0, |distributed| distributed.world_size)
}

/// The folders of the ranks after the first, by their numbers and in that order.
pub(super) fn folders(folder: &Path) -> Vec<(u32, PathBuf)> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(RANK)?.parse().ok()?;
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
    use crate::pipeline::recording::iterations_seen;

    /// A run's folder with these manifests.
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
    fn no_rank_is_missing_of_those_that_a_program_starts_itself() {
        let distributed = Some(Distributed { world_size: 2, ..Distributed::default() });
        let observed = Observed { distributed, ..Observed::default() };
        let manifest = Manifest { observed, child_processes: Some(2), ..Manifest::default() };
        let recording = Recording { manifest: Some(manifest), ..Recording::default() };
        let folder = folder(&[("", "{}")]);
        let found = read(folder.path(), &recording, &Profile::default());
        assert_eq!(found, (None, Vec::new()));
    }

    #[test]
    fn ranks_that_are_missing_or_broken_are_told_of() {
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
        let of = |seen| format!(r#"{{"schema": 1, "iterations": {{"seen": {seen}}}}}"#);
        let (six, five) = (of(6), of(5));
        let both = folder(&[("", &six), ("rank-1", &five)]);
        assert_eq!(iterations_seen(both.path()), Some(5));
        // The first one waited for the other, and was ended.
        assert_eq!(iterations_seen(folder(&[("rank-1", &five)]).path()), Some(5));
        assert_eq!(iterations_seen(folder(&[("", &six)]).path()), Some(6));
        assert_eq!(iterations_seen(folder(&[]).path()), None);
    }
}
