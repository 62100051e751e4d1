//! Reads stored recordings without running anything.

use std::path::{Path, PathBuf};

use super::recording::{self, read};
use crate::history;
use crate::profiler::Profiled;
use crate::store::{Store, make_recording_private};

/// Reads the newest finished recording of a project, or of the projects in a folder, without
/// running anything.
///
/// # Errors
/// If there is none, or it cannot be read.
pub(crate) fn newest(store: &Store, folder: &Path) -> Result<Profiled, String> {
    let (root, folder) = newest_recording(store, folder)
        .ok_or_else(|| format!("{} has not been profiled yet", folder.display()))?;
    measured(&root, &folder).map(|profiled| history::with_changes(store, profiled))
}

/// Reads the newest recording like [`newest`]. Returns `None` if there is none, or if it is the
/// `known` one.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn newer(
    store: &Store,
    folder: &Path,
    known: Option<&Path>,
) -> Result<Option<Profiled>, String> {
    let newest = newest_recording(store, folder);
    let newer = newest.filter(|(_, recording)| Some(recording.as_path()) != known);
    let newer = newer.map(|(root, recording)| measured(&root, &recording)).transpose()?;
    Ok(newer.map(|profiled| history::with_changes(store, profiled)))
}

/// Reads a new recording that another process wrote into the store, and adds it to the history of
/// the project at `root`.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn add(store: &Store, root: &Path, folder: &Path) -> Result<Profiled, String> {
    make_recording_private(folder);
    Ok(history::add(store, measured(root, folder)?))
}

/// Returns the newest finished recording of the project at `folder` and those below it, with its
/// project's root.
fn newest_recording(store: &Store, folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let found = store.recorded_projects(folder).into_iter().filter_map(|root| {
        let recording = store.newest_recording(&root)?;
        let when = recording.metadata().and_then(|metadata| metadata.modified()).ok()?;
        Some((when, root, recording))
    });
    found.max().map(|(_, root, recording)| (root, recording))
}

/// Reads a trace, or a recording of which only the folder is known.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn open(path: &Path) -> Result<Profiled, String> {
    // With the recording itself as the root, its lines lead to no file.
    measured(path, path)
}

/// Reads and attributes a finished recording of the project at `root`.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn measured(root: &Path, folder: &Path) -> Result<Profiled, String> {
    let eager = Some(folder.join("eager")).filter(|eager| eager.is_dir());
    let read = read(folder, eager.as_deref(), root).map_err(|error| error.to_string())?;
    Ok(recording::locate(read, root, None, folder))
}
