//! Where Ridgeline keeps things on this machine: a cache folder that may be deleted at any time,
//! and a state folder with what a person decided.
//!
//! A workspace's own folders are named after its last component and a hash of its whole path, so
//! that nothing in them has to say where on the machine the workspace lies.

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
/// How many recordings of a workspace are kept, besides the one that is being made. As many runs
/// that failed are kept for their output: they must not push out the measurements.
const RECORDINGS_KEPT: usize = 4;
/// What a recording with a measurement has; the manifest is written last.
const MANIFEST: &str = "manifest.json";
/// What makes a recording large. A run that failed has none of it.
const DATA: [&str; 4] = ["trace.json", "trace.json.gz", "lines.bin", "lines.bin.gz"];

/// How deep below a workspace its projects are looked for.
const PROJECT_DEPTH: usize = 5;
/// Files and folders that are looked at for them; a workspace may be the person's home.
const ENTRY_LIMIT: usize = 50_000;

/// Bytes of all recordings together; beyond it the oldest go, whichever project they are of. A
/// recording of a small model has a few megabytes, a large one some hundred.
const RECORDINGS_BYTES: u64 = 8 << 30;
/// How a folder for batches that are tried begins.
const BATCH: &str = "batch-";
/// How a folder of an estimate, and a file that is being written, begin.
const TEMPORARY: &str = ".tmp";
/// What is left by a process of which nothing is known is removed after this time.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 60 * 60);

/// The two folders.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    cache: PathBuf,
    state: PathBuf,
}

/// What went wrong with a folder or file of ours.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// There is no home folder to put ours under.
    #[error(
        "no user folder was found on this machine; set {CACHE_VARIABLE} and {STATE_VARIABLE} to \
        writable folders"
    )]
    NoHome,
    /// The disk has no room.
    #[error("the disk is full: {} could not be written; free some space, or set {CACHE_VARIABLE} to a folder on another disk", path.display())]
    DiskFull {
        /// What was to be written.
        path: PathBuf,
    },
    /// Anything else.
    #[error("{} could not be written: {source}", path.display())]
    Io {
        /// What was to be written.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl StoreError {
    /// Gives an input/output error its path, and a full disk its own message.
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
    /// The user's folders, or those that the environment names.
    ///
    /// # Errors
    /// Where the user has no home folder and the environment names none.
    pub(crate) fn open() -> Result<Store, StoreError> {
        let project = directories::ProjectDirs::from("", "", "ridgeline");
        let folder = |variable: &str, own: Option<PathBuf>| {
            let named = std::env::var_os(variable).filter(|value| !value.is_empty());
            // A relative folder would be another one after the first change of directory.
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

    /// A store in given folders.
    #[cfg(test)]
    pub(crate) fn at(cache: PathBuf, state: PathBuf) -> Store {
        Store { cache, state }
    }

    /// The cache folder: everything in it can be made again.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// The state folder: what the person decided.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// Where a workspace's recordings lie.
    pub(crate) fn recordings(&self, root: &Path) -> PathBuf {
        self.cache.join("recordings").join(workspace_key(root))
    }

    /// Where what was remembered about a workspace lies.
    pub(crate) fn workspace_state(&self, root: &Path) -> PathBuf {
        self.state.join("workspaces").join(workspace_key(root))
    }

    /// Makes the folder of a new recording and removes the oldest ones.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub(crate) fn new_recording(&self, root: &Path) -> Result<PathBuf, StoreError> {
        let parent = self.recordings(root);
        create_private(&parent)?;
        put_right_future_times(&parent, SystemTime::now());
        prune(&parent);
        self.bound_recordings(RECORDINGS_BYTES, &parent);
        // Two servers may profile one workspace: the process and a number keep their names apart.
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

    /// Makes a folder for what an estimate leaves; it goes when it is let go of.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub(crate) fn new_estimate(&self, root: &Path) -> Result<tempfile::TempDir, StoreError> {
        // Beside the recordings, which are pruned by their number.
        let parent = self.cache.join("estimates").join(workspace_key(root));
        create_private(&parent)?;
        temporary_folder(TEMPORARY, &parent)
    }

    /// Makes a folder for batch sizes that are tried; it goes when it is let go of.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub(crate) fn new_batch_folder(&self) -> Result<tempfile::TempDir, StoreError> {
        create_private(&self.cache)?;
        temporary_folder(BATCH, &self.cache)
    }

    /// Removes what processes that are gone left behind, and what is beyond the bounds. Another
    /// Ridgeline may be at work on this machine: what belongs to a process that lives stays.
    pub(crate) fn sweep(&self, now: SystemTime) {
        let recordings = self.cache.join("recordings");
        let estimates = self.cache.join("estimates");
        let workspaces = self.state.join("workspaces");
        for folder in [&recordings, &estimates, &workspaces] {
            // Earlier versions left some of them to the umask.
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
            put_right_future_times(&project, now);
        }
        self.bound_recordings(RECORDINGS_BYTES, Path::new(""));
    }

    /// Removes the oldest recordings where all of them have more than so many bytes. The newest
    /// measurement of each project goes last, that of `current` not at all, and what a living process
    /// is still recording stays.
    fn bound_recordings(&self, limit: u64, current: &Path) {
        let mut all = Vec::new();
        for project in folders_in(&self.cache.join("recordings")) {
            let folders = by_age(&project);
            let newest = folders.iter().position(|(_, folder)| is_measurement(folder));
            for (index, (made, folder)) in folders.into_iter().enumerate() {
                let is_newest = newest == Some(index);
                all.push((is_newest, made, folder, is_newest && project == current));
            }
        }
        let mut total = 0_u64;
        // The newest first, of which the sum is within the limit.
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

    /// The newest finished recording of a workspace.
    pub(crate) fn newest_recording(&self, root: &Path) -> Option<PathBuf> {
        by_age(&self.recordings(root))
            .into_iter()
            .map(|(_, folder)| folder)
            .find(|folder| is_measurement(folder))
    }

    /// When the newest finished recording of any project was made.
    pub(crate) fn last_recorded(&self) -> Option<SystemTime> {
        let projects = by_age(&self.cache.join("recordings")).into_iter();
        let recordings = projects.flat_map(|(_, project)| by_age(&project));
        let finished = recordings.filter(|(_, recording)| is_measurement(recording));
        finished.map(|(made, _)| made).max()
    }

    /// The projects that have recordings, of `folder` itself and the folders below it. Recordings are
    /// filed by a hash of their project's path, so that the folders are asked for theirs.
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

    /// What the person chose to run in this workspace: a script's path relative to its root, or a command as
    /// they saw it.
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

    /// Remembers what is run in this workspace.
    ///
    /// # Errors
    /// When the state folder cannot be written.
    pub(crate) fn remember_run(&self, root: &Path, run: &str) -> Result<(), StoreError> {
        let folder = self.workspace_state(root);
        create_private(&folder)?;
        let text = format!("{run}\n");
        write_atomic(&folder.join("script"), text.as_bytes())
    }

    /// Forgets the choice of this workspace, so that the person is asked again.
    ///
    /// # Errors
    /// When the state folder cannot be written.
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

/// Writes a file as a whole or not at all: readers see the old text or the new one.
///
/// # Errors
/// When the folder cannot be written, or the disk is full; the old file then still stands.
pub(crate) fn write_atomic(file: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let wrong = |error| StoreError::at(file, error);
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut draft = tempfile::Builder::new()
        .prefix(&format!("{TEMPORARY}-{}-", Owner::this()))
        .tempfile_in(folder)
        .map_err(wrong)?;
    draft.write_all(bytes).and_then(|()| draft.as_file().sync_data()).map_err(wrong)?;
    draft.persist(file).map_err(|error| wrong(error.error))?;
    Ok(())
}

/// Makes a folder, and those above it, that only this user can read: a recording's log holds what
/// the program printed.
///
/// # Errors
/// When it cannot be made.
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

/// Takes a file or folder of ours away from everybody else.
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

/// Takes what a run left away from everybody else: the profiler writes with the umask of the user's
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

/// Ranks and passes have folders within a recording's.
const DEPTH_OF_A_RECORDING: usize = 4;

fn temporary_folder(prefix: &str, parent: &Path) -> Result<tempfile::TempDir, StoreError> {
    let prefix = format!("{}-{}-", prefix.trim_end_matches('-'), Owner::this());
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    builder.tempdir_in(parent).map_err(|error| StoreError::at(parent, error))
}

/// Whose a temporary file or folder is, as its name says: `1a2b3c4d-4242`. Homes are shared by
/// machines and containers, whose processes have the same numbers, so a machine is part of it.
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

    /// Whether it lives; nothing where that cannot be known from here.
    fn lives(self) -> Option<bool> {
        (machine() == Some(self.machine)).then(|| is_alive(self.process)).flatten()
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}-{}", self.machine, self.process)
    }
}

/// A number for this machine and, in a container, for its processes; nothing where that is unknown,
/// as it is outside of Linux.
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
    // One that may not be signalled is alive.
    let asked = rustix::process::test_kill_process(process);
    Some(asked != Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
fn is_alive(_process: u32) -> Option<bool> {
    None
}

/// Whether a recording, whose name begins with the process that makes it, is not yet finished.
fn is_being_recorded(recording: &Path) -> bool {
    let name = recording.file_name().unwrap_or_default().to_string_lossy();
    let process = name.split('-').next().and_then(|process| process.parse().ok());
    !recording.join(MANIFEST).is_file() && process.and_then(is_alive).unwrap_or(false)
}

/// Removes of a folder's entries with a prefix those that nobody needs any more.
fn sweep_folder(folder: &Path, prefix: &str, now: SystemTime) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(prefix) {
            continue;
        }
        let is_left = match Owner::of(&name).and_then(Owner::lives) {
            Some(lives) => !lives,
            // A clock that was set leaves times on either side of now.
            None => entry.metadata().and_then(|facts| facts.modified()).is_ok_and(|made| {
                now.duration_since(made).unwrap_or_else(|error| error.duration()) > LEFT_BEHIND
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

/// The bytes of the files in a folder and those below it.
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

/// A clock that was set back leaves recordings that seem to be of the future, and would stay the
/// newest until then. They were made before now, so that is what they say from now on, in the same
/// order.
fn put_right_future_times(parent: &Path, now: SystemTime) {
    // File systems keep times no finer than milliseconds, some of them.
    const STEP: Duration = Duration::from_millis(10);
    let future = by_age(parent).into_iter().filter(|(made, _)| *made > now + LEEWAY);
    let mut moment = now;
    for (_, folder) in future {
        moment -= STEP;
        if let Err(error) = set_modified(&folder, moment) {
            tracing::debug!("the time of a recording stays: {error}");
        }
    }
}

/// File systems of other machines have clocks of their own.
const LEEWAY: Duration = Duration::from_secs(60);

fn set_modified(folder: &Path, moment: SystemTime) -> io::Result<()> {
    fs::File::open(folder)?.set_modified(moment)
}

/// How the folders of the ranks after the first begin, within the first one's.
pub(crate) const RANK: &str = "rank-";

/// Leaves of a run without a measurement what a person reads: its output, and why it failed.
pub(crate) fn discard_data(recording: &Path) {
    for name in DATA {
        match fs::remove_file(recording.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!("{name} of a failed run stays: {error}");
            }
            _ => {}
        }
    }
    // What other ranks of the run recorded.
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

/// The name of a workspace's folders: readable, and not the same for two workspaces.
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

/// Removes all but the newest recordings. What cannot be removed (another process may just be
/// reading it) is tried again next time.
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
