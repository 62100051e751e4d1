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
use std::time::SystemTime;

use ignore::{DirEntry, WalkBuilder};

/// Overrides the cache folder.
pub const CACHE_VARIABLE: &str = "RIDGELINE_CACHE_DIR";
/// Overrides the state folder.
pub const STATE_VARIABLE: &str = "RIDGELINE_STATE_DIR";
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

/// The two folders.
#[derive(Clone, Debug)]
pub struct Store {
    cache: PathBuf,
    state: PathBuf,
}

/// What went wrong with a folder or file of ours.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no home folder to put ours under.
    #[error(
        "no folder of the user is known on this machine; set {CACHE_VARIABLE} and {STATE_VARIABLE} \
         to folders that may be written"
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
    pub fn at(path: &Path, source: io::Error) -> StoreError {
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
    pub fn open() -> Result<Store, StoreError> {
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
    pub fn at(cache: PathBuf, state: PathBuf) -> Store {
        Store { cache, state }
    }

    /// The cache folder: everything in it can be made again.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The state folder: what the person decided.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Where a workspace's recordings lie.
    pub fn recordings(&self, root: &Path) -> PathBuf {
        self.cache.join("recordings").join(workspace_key(root))
    }

    /// Where what was remembered about a workspace lies.
    pub fn workspace_state(&self, root: &Path) -> PathBuf {
        self.state.join("workspaces").join(workspace_key(root))
    }

    /// Makes the folder of a new recording and removes the oldest ones.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new_recording(&self, root: &Path) -> Result<PathBuf, StoreError> {
        let parent = self.recordings(root);
        create_private(&parent)?;
        prune(&parent);
        // Two servers may profile one workspace: the process and a number keep their names apart.
        let process = std::process::id();
        for number in 0_u32..10_000 {
            let folder = parent.join(format!("{process}-{number}"));
            match fs::create_dir(&folder) {
                Ok(()) => return Ok(folder),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(StoreError::at(&folder, error)),
            }
        }
        let taken = io::Error::other("every name for a new folder is taken");
        Err(StoreError::at(&parent, taken))
    }

    /// Makes a folder for what an estimate leaves; it goes when it is let go of.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new_estimate(&self, root: &Path) -> Result<tempfile::TempDir, StoreError> {
        // Beside the recordings, which are pruned by their number.
        let parent = self.cache.join("estimates").join(workspace_key(root));
        create_private(&parent)?;
        tempfile::TempDir::new_in(&parent).map_err(|error| StoreError::at(&parent, error))
    }

    /// The newest finished recording of a workspace.
    pub fn newest_recording(&self, root: &Path) -> Option<PathBuf> {
        by_age(&self.recordings(root))
            .into_iter()
            .map(|(_, folder)| folder)
            .find(|folder| is_measurement(folder))
    }

    /// When the newest finished recording of any project was made.
    pub fn last_recorded(&self) -> Option<SystemTime> {
        let projects = by_age(&self.cache.join("recordings")).into_iter();
        let recordings = projects.flat_map(|(_, project)| by_age(&project));
        let finished = recordings.filter(|(_, recording)| is_measurement(recording));
        finished.map(|(made, _)| made).max()
    }

    /// The projects that have recordings, of `folder` itself and the folders below it. Recordings are
    /// filed by a hash of their project's path, so that the folders are asked for theirs.
    pub fn recorded_projects(&self, folder: &Path) -> Vec<PathBuf> {
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

    /// The script that the person chose for this workspace, relative to its root.
    pub fn remembered_script(&self, root: &Path) -> Option<PathBuf> {
        const LONGEST: u64 = 4096;
        let file = self.workspace_state(root).join("script");
        if file.metadata().ok()?.len() > LONGEST {
            return None;
        }
        let text = fs::read_to_string(file).ok()?;
        let path = Path::new(text.trim());
        (!text.trim().is_empty() && path.is_relative()).then(|| path.to_owned())
    }

    /// Remembers a script (relative to the root) for this workspace.
    ///
    /// # Errors
    /// When the state folder cannot be written.
    pub fn remember_script(&self, root: &Path, script: &Path) -> Result<(), StoreError> {
        let folder = self.workspace_state(root);
        create_private(&folder)?;
        let text = format!("{}\n", script.display());
        write_atomic(&folder.join("script"), text.as_bytes())
    }

    /// Forgets the script of this workspace, so that the person is asked again.
    ///
    /// # Errors
    /// When the state folder cannot be written.
    pub fn forget_script(&self, root: &Path) -> Result<(), StoreError> {
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
pub fn write_atomic(file: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let wrong = |error| StoreError::at(file, error);
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut draft = tempfile::NamedTempFile::new_in(folder).map_err(wrong)?;
    draft.write_all(bytes).and_then(|()| draft.as_file().sync_data()).map_err(wrong)?;
    draft.persist(file).map_err(|error| wrong(error.error))?;
    Ok(())
}

/// Makes a folder, and those above it, that only this user can read: a recording's log holds what
/// the program printed.
///
/// # Errors
/// When it cannot be made.
pub fn create_private(folder: &Path) -> Result<(), StoreError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| StoreError::at(folder, error))
}

/// How the folders of the ranks after the first begin, within the first one's.
pub const RANK: &str = "rank-";

/// Leaves of a run without a measurement what a person reads: its output, and why it failed.
pub fn discard_data(recording: &Path) {
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
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::at(folder.path().join("cache"), folder.path().join("state"));
        (folder, store)
    }

    #[test]
    fn recordings_are_bounded() {
        let (_folder, store) = store();
        let root = Path::new("/some/where/résumé project");
        for _ in 0..12 {
            store.new_recording(root).expect("a folder");
        }
        assert_eq!(by_age(&store.recordings(root)).len(), RECORDINGS_KEPT + 1);
    }

    #[test]
    fn runs_that_failed_do_not_push_a_measurement_out() {
        let (_folder, store) = store();
        let root = Path::new("/p");
        assert_eq!(store.newest_recording(root), None);
        let finished = store.new_recording(root).expect("a folder");
        for name in [MANIFEST, "trace.json"] {
            fs::write(finished.join(name), "{}").expect("written");
        }
        for _ in 0..12 {
            let failed = store.new_recording(root).expect("a folder");
            for name in [MANIFEST, "trace.json", "log.txt"] {
                fs::write(failed.join(name), "{}").expect("written");
            }
            discard_data(&failed);
            assert!(failed.join("log.txt").is_file());
        }
        assert_eq!(store.newest_recording(root), Some(finished));
    }

    #[test]
    fn workspaces_are_kept_apart_and_paths_are_not_told() {
        assert_ne!(workspace_key(Path::new("/a/train")), workspace_key(Path::new("/b/train")));
        let key = workspace_key(Path::new("/home/somebody/träin"));
        assert!(key.starts_with("tr_in-") && !key.contains("somebody"), "{key}");
        // The name must be the same tomorrow, or nothing is found again.
        assert_eq!(workspace_key(Path::new("/p")), "p-07d65607b49cbc4a");
    }

    #[test]
    fn projects_below_a_workspace_are_found_by_their_recordings() {
        let (folder, store) = store();
        let workspace = folder.path().join("workspace");
        let project = workspace.join("experiments/first");
        fs::create_dir_all(&project).expect("made");
        assert_eq!(store.recorded_projects(&workspace), Vec::<PathBuf>::new());
        store.new_recording(&project).expect("a folder");
        store.new_recording(&workspace).expect("a folder");
        store.new_recording(folder.path()).expect("a folder");
        let mut found = store.recorded_projects(&workspace);
        found.sort();
        assert_eq!(found, [workspace, project]);
    }

    #[test]
    fn a_choice_is_remembered_and_forgotten() {
        let (_folder, store) = store();
        let root = Path::new("/p");
        assert_eq!(store.remembered_script(root), None);
        store.remember_script(root, Path::new("src/train.py")).expect("written");
        assert_eq!(store.remembered_script(root), Some("src/train.py".into()));
        store.forget_script(root).expect("removed");
        store.forget_script(root).expect("twice is fine");
        assert_eq!(store.remembered_script(root), None);
    }

    #[test]
    fn a_full_disk_says_what_to_do() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            println!("skipped: this machine has no /dev/full");
            return;
        }
        let error = fs::write(full, "x").expect_err("it is full");
        let message = StoreError::at(Path::new("cache/trace.json"), error).to_string();
        assert!(message.starts_with("the disk is full: cache/trace.json"), "{message}");
        assert!(message.contains(CACHE_VARIABLE), "{message}");
    }
}
