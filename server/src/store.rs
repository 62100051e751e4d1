//! Where Ridgeline stores data on this machine: a cache folder that may be deleted at any time, and
//! a state folder with the user's decisions.
//!
//! A workspace's folders are named after the last component of its path and a hash of the whole
//! path, so they do not reveal where the workspace is.

mod owner;
mod private_files;
mod recordings;

use std::ffi::OsStr;
use std::fs;
use std::hash::Hasher as _;
use std::io;
use std::path::{Path, PathBuf};

use private_files::temporary_folder;
pub(crate) use private_files::{create_private, make_recording_private, write_atomic};
pub(crate) use recordings::{RANK_PREFIX, discard_data};

/// Overrides the cache folder.
pub(crate) const CACHE_VARIABLE: &str = "RIDGELINE_CACHE_DIR";
/// Overrides the state folder.
pub(crate) const STATE_VARIABLE: &str = "RIDGELINE_STATE_DIR";

/// The prefix of folders for trying batch sizes.
const BATCH: &str = "batch-";
/// The prefix of folders of estimates, and of files that are being written.
const TEMPORARY: &str = ".tmp";

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
    /// Opens the user's folders, or those set in the environment.
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

    /// Opens a store in the given folders.
    #[cfg(test)]
    pub(crate) fn at(cache: PathBuf, state: PathBuf) -> Store {
        Store { cache, state }
    }

    /// Returns the cache folder. Everything in it can be recreated.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// Returns the state folder, with the user's decisions.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// Returns the folder of a workspace's state.
    pub(crate) fn workspace_state(&self, root: &Path) -> PathBuf {
        self.state.join("workspaces").join(workspace_key(root))
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

    /// Returns what the user chose to run in this workspace: a script's path relative to its root,
    /// or a command as it was shown to them.
    pub(crate) fn remembered_run(&self, root: &Path) -> Option<String> {
        const SIZE_LIMIT: u64 = 4096;
        let file = self.workspace_state(root).join("script");
        if file.metadata().ok()?.len() > SIZE_LIMIT {
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

/// Returns the name of a workspace's folders: readable, and unique.
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

#[cfg(test)]
mod tests;
