//! What a run wrote that was kept from the disk.

use serde::{Deserialize, Serialize};

/// What became of what a run wrote, as the agent reports it at the run's end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SideEffects {
    /// `redirect` or `deny`.
    pub mode: String,
    /// What held the program: `kernel`, `landlock`, `python` or `nothing`.
    pub held_by: String,
    /// Places that nothing could be put over, each with the reason. What was written there may be on
    /// the disk.
    pub open: Vec<String>,
    /// What is not on the disk, at most some hundreds.
    pub changes: Vec<Change>,
    /// How many changes there are.
    pub count: u64,
    /// The size of what was created and changed, in bytes.
    pub bytes: u64,
    /// Whether everything was looked at: programs that write very many files are looked at in part.
    pub is_whole: bool,
}

/// One file or empty folder that is not on the disk, or still is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Change {
    /// Relative to the project's root; of one outside, from the home folder (`~/…`) or the root of the
    /// file system.
    pub path: String,
    /// What the program did.
    pub change: ChangeKind,
    /// The size of what was written, or of what was removed.
    #[serde(default)]
    pub bytes: u64,
    /// Whether it is outside of the project.
    #[serde(default, skip_serializing)]
    pub outside: bool,
}

/// What the program did to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It was not there before.
    Created,
    /// It was there before.
    Changed,
    /// The program removed it, and it is still there.
    Removed,
}
