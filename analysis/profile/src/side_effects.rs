//! Writes of a run that were kept off the disk.

use serde::{Deserialize, Serialize};

/// What happened to the writes of a run, as the agent reports it at the end of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SideEffects {
    /// `redirect` or `deny`.
    pub mode: String,
    /// The mechanism that intercepted writes: `kernel`, `landlock`, `python` or `nothing`.
    pub held_by: String,
    /// Places that no overlay covers, each with the reason. Writes there may be on the disk.
    pub open: Vec<String>,
    /// The changes that were kept off the disk, at most a few hundred.
    pub changes: Vec<Change>,
    /// The total number of changes.
    pub count: u64,
    /// Total size of created and changed files, in bytes.
    pub bytes: u64,
    /// Whether the list was computed from all writes. Programs that write very many files are
    /// inspected only in part.
    pub is_whole: bool,
}

/// One file or empty folder that the program created, changed or removed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Change {
    /// Path relative to the project's root. Paths outside of it start at the home folder (`~/…`) or
    /// the root of the file system.
    pub path: String,
    pub change: ChangeKind,
    /// Size of the written or removed contents, in bytes.
    #[serde(default)]
    pub bytes: u64,
    /// Whether the path is outside of the project.
    #[serde(default, skip_serializing)]
    pub outside: bool,
}

/// What the program did to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// The file did not exist before.
    Created,
    /// The file existed before.
    Changed,
    /// The program removed the file; on the disk it still exists.
    Removed,
}
