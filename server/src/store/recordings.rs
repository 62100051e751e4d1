//! The recordings of all projects: creates, finds, limits and removes them.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ignore::{DirEntry, WalkBuilder};

use super::owner::{Owner, is_alive};
use super::private_files::{DEPTH_OF_A_RECORDING, create_private, make_private, private_folders};
use super::{BATCH, Store, StoreError, TEMPORARY, workspace_key};

/// The number of recordings kept of a workspace, besides the one in progress. The same number of
/// failed runs is kept for their output, separately, so that they do not push out measurements.
pub(super) const MAX_RECORDINGS: usize = 4;
/// The last file that a recording with a measurement gets.
pub(super) const MANIFEST: &str = "manifest.json";
/// The large files of a recording. A failed run has none of them.
const DATA: [&str; 4] = ["trace.json", "trace.json.gz", "lines.bin", "lines.bin.gz"];
/// The maximum depth below a workspace at which projects are found.
const PROJECT_DEPTH: usize = 5;
/// The maximum number of files and folders searched for projects; a workspace may be the user's
/// home folder.
const ENTRY_LIMIT: usize = 50_000;
/// The maximum total size of all recordings in bytes. Beyond it, the oldest recordings of any
/// project are removed. A recording of a small model has a few megabytes, one of a large model some
/// hundreds.
const RECORDINGS_BYTES: u64 = 8 << 30;
/// Leftovers of a process that cannot be checked are removed after this time.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 60 * 60);

impl Store {
    /// Returns the folder of a workspace's recordings.
    pub(crate) fn recordings(&self, root: &Path) -> PathBuf {
        self.cache.join("recordings").join(workspace_key(root))
    }

    /// Creates the folder of a new recording and removes the oldest ones.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub(crate) fn new_recording(&self, root: &Path) -> Result<PathBuf, StoreError> {
        let parent = self.recordings(root);
        create_private(&parent)?;
        fix_future_times(&parent, SystemTime::now());
        prune(&parent);
        self.bound_recordings(RECORDINGS_BYTES, &parent);
        // Two servers may profile the same workspace: the process ID and a number keep the names
        // unique.
        let process = std::process::id();
        for number in 0_u32..10_000 {
            let folder = parent.join(format!("{process}-{number}"));
            match private_folders().create(&folder) {
                Ok(()) => return Ok(folder),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(StoreError::at(&folder, error)),
            }
        }
        let taken = io::Error::other("no free name for a new folder");
        Err(StoreError::at(&parent, taken))
    }

    /// Removes leftovers of dead processes, and recordings beyond the size limit. Another Ridgeline
    /// may be running on this machine: files of live processes stay.
    pub(crate) fn sweep(&self, now: SystemTime) {
        let recordings = self.cache.join("recordings");
        let estimates = self.cache.join("estimates");
        let workspaces = self.state.join("workspaces");
        for folder in [&recordings, &estimates, &workspaces] {
            // Earlier versions created some of them with the umask's permissions.
            make_private(folder);
        }
        sweep_folder(&self.cache, BATCH, now);
        for folder in [&self.cache, &self.state] {
            sweep_folder(folder, TEMPORARY, now);
            for below in folders_in(folder) {
                sweep_folder(&below, TEMPORARY, now);
                for below in folders_in(&below) {
                    sweep_folder(&below, TEMPORARY, now);
                }
            }
        }
        for project in folders_in(&recordings) {
            fix_future_times(&project, now);
        }
        self.bound_recordings(RECORDINGS_BYTES, Path::new(""));
    }

    /// Removes the oldest recordings if all together have more than `limit` bytes. The newest
    /// measurement of each project goes last, and that of `current` stays, as do recordings that a
    /// live process is still writing.
    pub(super) fn bound_recordings(&self, limit: u64, current: &Path) {
        let mut all = Vec::new();
        for project in folders_in(&self.cache.join("recordings")) {
            let folders = by_age(&project);
            let newest = folders.iter().position(|(_, folder)| is_measurement(folder));
            for (index, (modified, folder)) in folders.into_iter().enumerate() {
                let is_newest = newest == Some(index);
                all.push((is_newest, modified, folder, is_newest && project == current));
            }
        }
        let mut total = 0_u64;
        // The newest come first, and are kept while their sum is within the limit.
        all.sort_by(|(a_newest, a, ..), (b_newest, b, ..)| (b_newest, b).cmp(&(a_newest, a)));
        for (_, _, folder, is_needed) in all {
            let bytes = bytes_in(&folder, DEPTH_OF_A_RECORDING);
            let fits = total.saturating_add(bytes) <= limit;
            if fits || is_needed || is_being_recorded(&folder) {
                total = total.saturating_add(bytes);
            } else if let Err(error) = fs::remove_dir_all(&folder) {
                tracing::debug!("a recording beyond the cache's bound stays: {error}");
            }
        }
    }

    pub(crate) fn newest_recording(&self, root: &Path) -> Option<PathBuf> {
        by_age(&self.recordings(root))
            .into_iter()
            .map(|(_, folder)| folder)
            .find(|folder| is_measurement(folder))
    }

    /// Returns when the newest finished recording of any project was written.
    pub(crate) fn last_recorded(&self) -> Option<SystemTime> {
        let projects = by_age(&self.cache.join("recordings")).into_iter();
        let recordings = projects.flat_map(|(_, project)| by_age(&project));
        let finished = recordings.filter(|(_, recording)| is_measurement(recording));
        finished.map(|(modified, _)| modified).max()
    }

    /// Returns the projects with recordings among `folder` and the folders below it. Recordings are
    /// filed by a hash of their project's path, so each folder's hash is looked up.
    pub(crate) fn recorded_projects(&self, folder: &Path) -> Vec<PathBuf> {
        let recordings = self.cache.join("recordings");
        let names = fs::read_dir(recordings).into_iter().flatten().flatten();
        let names: HashSet<OsString> = names.map(|entry| entry.file_name()).collect();
        if names.is_empty() {
            return Vec::new();
        }
        let below = WalkBuilder::new(folder)
            .max_depth(Some(PROJECT_DEPTH))
            .require_git(false)
            .build()
            .take(ENTRY_LIMIT)
            .flatten()
            .filter(|entry| {
                // The folder itself may be named by a link.
                let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
                entry.depth() == 0 || is_folder
            });
        below
            .map(DirEntry::into_path)
            .filter(|root| names.contains(OsStr::new(&workspace_key(root))))
            .collect()
    }
}

/// Returns whether a recording is unfinished and its process is alive. Its name starts with the
/// process ID.
fn is_being_recorded(recording: &Path) -> bool {
    let name = recording.file_name().unwrap_or_default().to_string_lossy();
    let process = name.split('-').next().and_then(|process| process.parse().ok());
    !recording.join(MANIFEST).is_file() && process.and_then(is_alive).unwrap_or(false)
}

/// Removes the entries with this prefix that are no longer needed.
fn sweep_folder(folder: &Path, prefix: &str, now: SystemTime) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(prefix) {
            continue;
        }
        let is_left = match Owner::of(&name).and_then(Owner::is_alive) {
            Some(alive) => !alive,
            // If the clock was set, times may lie on either side of now.
            None => entry.metadata().and_then(|facts| facts.modified()).is_ok_and(|modified| {
                now.duration_since(modified).unwrap_or_else(|error| error.duration()) > LEFT_BEHIND
            }),
        };
        if !is_left {
            continue;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let path = entry.path();
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        if let Err(error) = removed {
            tracing::debug!("what was left behind stays: {error}");
        }
    }
}

fn folders_in(parent: &Path) -> Vec<PathBuf> {
    by_age(parent).into_iter().map(|(_, folder)| folder).collect()
}

/// Returns the total size in bytes of the files in a folder and its subfolders.
fn bytes_in(folder: &Path, depth: usize) -> u64 {
    let mut bytes = 0_u64;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(facts) = entry.metadata() else { continue };
        bytes = bytes.saturating_add(match facts.is_dir() {
            true if depth > 0 => bytes_in(&entry.path(), depth - 1),
            true => 0,
            false => facts.len(),
        });
    }
    bytes
}

/// Sets modification times from the future to just before now, in the same order. They appear when
/// the clock was set back, and would otherwise make these recordings the newest until that time.
fn fix_future_times(parent: &Path, now: SystemTime) {
    // Some file systems only have times in milliseconds.
    const STEP: Duration = Duration::from_millis(10);
    let future = by_age(parent).into_iter().filter(|(modified, _)| *modified > now + LEEWAY);
    let mut moment = now;
    for (_, folder) in future {
        moment -= STEP;
        if let Err(error) = set_modified(&folder, moment) {
            tracing::debug!("the time of a recording stays: {error}");
        }
    }
}

/// Tolerance for the clocks of other machines' file systems.
const LEEWAY: Duration = Duration::from_secs(60);

pub(super) fn set_modified(folder: &Path, moment: SystemTime) -> io::Result<()> {
    fs::File::open(folder)?.set_modified(moment)
}

/// The prefix of the folders of ranks other than the first, inside the recording of the first.
pub(crate) const RANK_PREFIX: &str = "rank-";

/// Removes the data of a run without a measurement. Its output and the reason of its failure stay.
pub(crate) fn discard_data(recording: &Path) {
    for name in DATA {
        match fs::remove_file(recording.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!("{name} of a failed run stays: {error}");
            }
            _ => {}
        }
    }
    // The recordings of other ranks.
    let folders = fs::read_dir(recording).into_iter().flatten().flatten();
    let of_ranks =
        folders.filter(|entry| entry.file_name().to_string_lossy().starts_with(RANK_PREFIX));
    for folder in of_ranks {
        if let Err(error) = fs::remove_dir_all(folder.path()) {
            tracing::debug!("a rank's part of a failed run stays: {error}");
        }
    }
}

fn is_measurement(recording: &Path) -> bool {
    let has = |name: &str| recording.join(name).is_file();
    has(MANIFEST) && DATA.iter().any(|name| has(name))
}

/// Returns the folders in `parent`, newest first.
pub(super) fn by_age(parent: &Path) -> Vec<(SystemTime, PathBuf)> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    let mut folders: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            (modified.unwrap_or(SystemTime::UNIX_EPOCH), entry.path())
        })
        .collect();
    folders.sort_by(|a, b| b.cmp(a));
    folders
}

/// Removes all but the newest recordings. If one cannot be removed, perhaps because another process
/// is reading it, the next run tries again.
fn prune(parent: &Path) {
    let (measured, others): (Vec<PathBuf>, Vec<PathBuf>) =
        by_age(parent).into_iter().map(|(_, folder)| folder).partition(|path| is_measurement(path));
    let old = |folders: Vec<PathBuf>| folders.into_iter().skip(MAX_RECORDINGS);
    for folder in old(measured).chain(old(others)) {
        if let Err(error) = fs::remove_dir_all(&folder) {
            tracing::debug!("an old recording stays: {error}");
        }
    }
}
