//! Identifies the folder at a path, so that a decision about one project does not apply to another
//! one that replaced it.

use std::fmt;
use std::fs::Metadata;
use std::path::Path;
use std::str::FromStr;

use crate::git;

/// A folder, identified by what does not change during normal work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Device and inode; on Windows, the creation time.
    numbers: [u64; 2],
    /// The first commit of its repository, if any.
    commit: Option<String>,
}

impl Identity {
    /// Returns the folder at `root`, or `None` if there is none.
    pub(crate) fn of(root: &Path) -> Option<Identity> {
        Some(Identity { numbers: numbers(root)?, commit: git::first_commit(root) })
    }

    /// Identifies the folder only. Its repository is not read.
    pub(crate) fn of_folder(root: &Path) -> Option<Identity> {
        Some(Identity { numbers: numbers(root)?, commit: None })
    }

    /// Returns whether the folder at `root` is this one. A repository that was added later is fine;
    /// one that was replaced or removed means another project.
    pub(crate) fn is_of(&self, root: &Path) -> bool {
        // The repository of a folder that is not allowed is never read.
        self.is_same_folder(root)
            && self
                .commit
                .as_ref()
                .is_none_or(|commit| git::first_commit(root).as_ref() == Some(commit))
    }

    /// Compares the folder only, with a single query.
    pub(crate) fn is_same_folder(&self, root: &Path) -> bool {
        numbers(root) == Some(self.numbers)
    }
}

fn numbers(root: &Path) -> Option<[u64; 2]> {
    let metadata = root.metadata().ok().filter(Metadata::is_dir)?;
    Some(numbers_of(&metadata))
}

#[cfg(unix)]
fn numbers_of(metadata: &Metadata) -> [u64; 2] {
    use std::os::unix::fs::MetadataExt as _;
    [metadata.dev(), metadata.ino()]
}

#[cfg(windows)]
fn numbers_of(metadata: &Metadata) -> [u64; 2] {
    use std::os::windows::fs::MetadataExt as _;
    [0, metadata.creation_time()]
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [device, number] = self.numbers;
        write!(f, "folder {device} {number} {}", self.commit.as_deref().unwrap_or("-"))
    }
}

impl FromStr for Identity {
    type Err = ();

    fn from_str(text: &str) -> Result<Identity, ()> {
        let mut words = text.split(' ');
        let mut next = || words.next().ok_or(());
        if next()? != "folder" {
            return Err(());
        }
        let device = next()?.parse().map_err(|_| ())?;
        let number = next()?.parse().map_err(|_| ())?;
        let commit = Some(next()?.to_owned()).filter(|commit| commit != "-");
        if words.next().is_some() {
            return Err(());
        }
        Ok(Identity { numbers: [device, number], commit })
    }
}
