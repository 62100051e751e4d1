//! Where Ridgeline stores data on this machine: a cache folder that may be deleted at any time, and
//! a state folder with the user's decisions.
//!
//! A workspace's folders are named after the last component of its path and a hash of the whole
//! path, so they do not reveal where the workspace is.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::Hasher as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ignore::{DirEntry, WalkBuilder};

/// Overrides the cache folder.
pub(crate) const CACHE_VARIABLE: &str = "RIDGELINE_CACHE_DIR";
/// Overrides the state folder.
pub(crate) const STATE_VARIABLE: &str = "RIDGELINE_STATE_DIR";
/// The number of recordings kept of a workspace, besides the one in progress. The same number of
/// failed runs is kept for their output, separately, so that they do not push out measurements.
const RECORDINGS_KEPT: usize = 4;
/// The last file that a recording with a measurement gets.
const MANIFEST: &str = "manifest.json";
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
/// The prefix of folders for trying batch sizes.
const BATCH: &str = "batch-";
/// The prefix of folders of estimates, and of files that are being written.
const TEMPORARY: &str = ".tmp";
/// Leftovers of a process that cannot be checked are removed after this time.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 60 * 60);

/// The cache folder and the state folder.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    cache: PathBuf,
    state: PathBuf,
}

/// An error with one of our folders or files.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// There is no home folder to put them in.
    #[error(
        "no user folder was found on this machine; set {CACHE_VARIABLE} and {STATE_VARIABLE} to \
        writable folders"
    )]
    NoHome,
    #[error("the disk is full: {} could not be written; free some space, or set {CACHE_VARIABLE} to a folder on another disk", path.display())]
    DiskFull {
        /// The file or folder that could not be written.
        path: PathBuf,
    },
    #[error("{} could not be written: {source}", path.display())]
    Io {
        /// The file or folder that could not be written.
        path: PathBuf,
        source: io::Error,
    },
}

impl StoreError {
    /// Adds the path to an I/O error, and gives a full disk its own message.
    pub(crate) fn at(path: &Path, source: io::Error) -> StoreError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StoreError::DiskFull { path: path.to_owned() }
            }
            _ => StoreError::Io { path: path.to_owned(), source },
        }
    }
}

impl Store {
    /// The user's folders, or those set in the environment.
    ///
    /// # Errors
    /// If the user has no home folder and the environment sets none.
    pub(crate) fn open() -> Result<Store, StoreError> {
        let project = directories::ProjectDirs::from("", "", "ridgeline");
        let folder = |variable: &str, own: Option<PathBuf>| {
            let named = std::env::var_os(variable).filter(|value| !value.is_empty());
            // A relative path would change its meaning with the working directory.
            let named = named.map(|value| std::path::absolute(&value).unwrap_or(value.into()));
            named.or(own).ok_or(StoreError::NoHome)
        };
        let state = project.as_ref().map(|dirs| dirs.state_dir().unwrap_or(dirs.data_local_dir()));
        Ok(Store {
            cache: folder(
                CACHE_VARIABLE,
                project.as_ref().map(|dirs| dirs.cache_dir().to_owned()),
            )?,
            state: folder(STATE_VARIABLE, state.map(Path::to_owned))?,
        })
    }

    /// A store in the given folders.
    #[cfg(test)]
    pub(crate) fn at(cache: PathBuf, state: PathBuf) -> Store {
        Store { cache, state }
    }

    /// The cache folder. Everything in it can be recreated.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// The state folder, with the user's decisions.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// The folder of a workspace's recordings.
    pub(crate) fn recordings(&self, root: &Path) -> PathBuf {
        self.cache.join("recordings").join(workspace_key(root))
    }

    /// The folder of a workspace's state.
    pub(crate) fn workspace_state(&self, root: &Path) -> PathBuf {
        self.state.join("workspaces").join(workspace_key(root))
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

    /// Creates a folder for an estimate. It is removed when it is dropped.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub(crate) fn new_estimate(&self, root: &Path) -> Result<tempfile::TempDir, StoreError> {
        // Not among the recordings, because those are pruned by number.
        let parent = self.cache.join("estimates").join(workspace_key(root));
        create_private(&parent)?;
        temporary_folder(TEMPORARY, &parent)
    }

    /// Creates a folder for trying batch sizes. It is removed when it is dropped.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub(crate) fn new_batch_folder(&self) -> Result<tempfile::TempDir, StoreError> {
        create_private(&self.cache)?;
        temporary_folder(BATCH, &self.cache)
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
    fn bound_recordings(&self, limit: u64, current: &Path) {
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

    /// When the newest finished recording of any project was written.
    pub(crate) fn last_recorded(&self) -> Option<SystemTime> {
        let projects = by_age(&self.cache.join("recordings")).into_iter();
        let recordings = projects.flat_map(|(_, project)| by_age(&project));
        let finished = recordings.filter(|(_, recording)| is_measurement(recording));
        finished.map(|(modified, _)| modified).max()
    }

    /// The projects with recordings among `folder` and the folders below it. Recordings are filed
    /// by a hash of their project's path, so each folder's hash is looked up.
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
            .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_dir()));
        below
            .map(DirEntry::into_path)
            .filter(|root| names.contains(OsStr::new(&workspace_key(root))))
            .collect()
    }

    /// What the user chose to run in this workspace: a script's path relative to its root, or a
    /// command as it was shown to them.
    pub(crate) fn remembered_run(&self, root: &Path) -> Option<String> {
        const LONGEST: u64 = 4096;
        let file = self.workspace_state(root).join("script");
        if file.metadata().ok()?.len() > LONGEST {
            return None;
        }
        let text = fs::read_to_string(file).ok()?;
        let text = text.trim();
        (!text.is_empty() && Path::new(text).is_relative()).then(|| text.to_owned())
    }

    /// Remembers what to run in this workspace.
    ///
    /// # Errors
    /// If the state folder cannot be written.
    pub(crate) fn remember_run(&self, root: &Path, run: &str) -> Result<(), StoreError> {
        let folder = self.workspace_state(root);
        create_private(&folder)?;
        let text = format!("{run}\n");
        write_atomic(&folder.join("script"), text.as_bytes())
    }

    /// Forgets the choice for this workspace, so that the user is asked again.
    ///
    /// # Errors
    /// If the state folder cannot be written.
    pub(crate) fn forget_script(&self, root: &Path) -> Result<(), StoreError> {
        let file = self.workspace_state(root).join("script");
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::at(&file, error))
            }
            _ => Ok(()),
        }
    }
}

/// Writes a file atomically: readers see either the old content or the new one.
///
/// # Errors
/// If the folder cannot be written, or the disk is full. The old file stays then.
pub(crate) fn write_atomic(file: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let failed = |error| StoreError::at(file, error);
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut draft = tempfile::Builder::new()
        .prefix(&format!("{TEMPORARY}-{}-", Owner::this()))
        .tempfile_in(folder)
        .map_err(failed)?;
    draft.write_all(bytes).and_then(|()| draft.as_file().sync_data()).map_err(failed)?;
    draft.persist(file).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Creates a folder and its parents with access for this user only: a recording's log has the
/// program's output.
///
/// # Errors
/// If it cannot be created.
pub(crate) fn create_private(folder: &Path) -> Result<(), StoreError> {
    let mut builder = private_folders();
    builder.recursive(true);
    builder.create(folder).map_err(|error| StoreError::at(folder, error))
}

fn private_folders() -> fs::DirBuilder {
    #[allow(unused_mut, reason = "only UNIX has modes")]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Removes other users' access to one of our files or folders.
fn make_private(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let Ok(facts) = fs::symlink_metadata(path) else { return };
        let mode = facts.permissions().mode();
        if !facts.is_symlink() && mode & 0o077 != 0 {
            let private = fs::Permissions::from_mode(mode & 0o700);
            if let Err(error) = fs::set_permissions(path, private) {
                tracing::debug!("others can read {}: {error}", path.display());
            }
        }
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// Removes other users' access to a recording: the agent writes with the umask of the user's
/// program.
pub(crate) fn make_recording_private(recording: &Path) {
    fn below(folder: &Path, depth: usize) {
        make_private(folder);
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth > 0 => below(&entry.path(), depth - 1),
                Ok(kind) if kind.is_file() => make_private(&entry.path()),
                _ => {}
            }
        }
    }
    below(recording, DEPTH_OF_A_RECORDING);
}

/// The maximum depth of folders in a recording: ranks and passes have their own.
const DEPTH_OF_A_RECORDING: usize = 4;

fn temporary_folder(prefix: &str, parent: &Path) -> Result<tempfile::TempDir, StoreError> {
    let prefix = format!("{}-{}-", prefix.trim_end_matches('-'), Owner::this());
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    builder.tempdir_in(parent).map_err(|error| StoreError::at(parent, error))
}

/// The owner of a temporary file or folder, as encoded in its name: `1a2b3c4d-4242`. Machines and
/// containers may share a home folder and use the same process IDs, so the machine is part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    machine: u32,
    process: u32,
}

impl Owner {
    fn this() -> Owner {
        Owner { machine: machine().unwrap_or(0), process: std::process::id() }
    }

    /// The owner of `.tmp-1a2b3c4d-4242-x1y2z3`, or of `batch-…`.
    fn of(name: &str) -> Option<Owner> {
        let mut parts = name.split('-').skip(1);
        let machine = u32::from_str_radix(parts.next()?, 16).ok()?;
        Some(Owner { machine, process: parts.next()?.parse().ok()? })
    }

    /// Whether the process is alive; `None` if that cannot be determined from here.
    fn is_alive(self) -> Option<bool> {
        (machine() == Some(self.machine)).then(|| is_alive(self.process)).flatten()
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}-{}", self.machine, self.process)
    }
}

/// A hash that identifies this machine and PID namespace; `None` if unknown, as on systems other
/// than Linux.
fn machine() -> Option<u32> {
    let name = fs::read("/proc/sys/kernel/hostname").ok()?;
    let processes = fs::read_link("/proc/self/ns/pid").ok()?;
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(&name);
    hasher.write(processes.as_os_str().as_encoded_bytes());
    Some(hasher.finish() as u32)
}

#[cfg(unix)]
fn is_alive(process: u32) -> Option<bool> {
    let process = rustix::process::Pid::from_raw(i32::try_from(process).ok()?)?;
    // A process that we may not signal is alive.
    let result = rustix::process::test_kill_process(process);
    Some(result != Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
fn is_alive(_process: u32) -> Option<bool> {
    None
}

/// Whether a recording is unfinished and its process is alive. Its name starts with the process ID.
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

/// The total size in bytes of the files in a folder and its subfolders.
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

fn set_modified(folder: &Path, moment: SystemTime) -> io::Result<()> {
    fs::File::open(folder)?.set_modified(moment)
}

/// The prefix of the folders of ranks other than the first, inside the recording of the first.
pub(crate) const RANK: &str = "rank-";

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
    let of_ranks = folders.filter(|entry| entry.file_name().to_string_lossy().starts_with(RANK));
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

/// The name of a workspace's folders: readable, and unique.
fn workspace_key(root: &Path) -> String {
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(root.as_os_str().as_encoded_bytes());
    let name: String = root
        .file_name()
        .unwrap_or(OsStr::new("root"))
        .to_string_lossy()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' })
        .take(40)
        .collect();
    format!("{name}-{:016x}", hasher.finish())
}

/// The folders in `parent`, newest first.
fn by_age(parent: &Path) -> Vec<(SystemTime, PathBuf)> {
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
    let old = |folders: Vec<PathBuf>| folders.into_iter().skip(RECORDINGS_KEPT);
    for folder in old(measured).chain(old(others)) {
        if let Err(error) = fs::remove_dir_all(&folder) {
            tracing::debug!("an old recording stays: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
