//! A private Python environment with torch, under the user's cache: `ridgeline setup`.
//!
//! The user's own interpreter is never changed: it is only asked to make an environment elsewhere.

use std::path::{Path, PathBuf};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::interpreter::{Interpreter, Surroundings};

/// News of a setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupEvent {
    /// Another process makes the same environment; this one waits for it.
    WaitingForAnother,
    /// Looking for a Python to start from.
    LookingForPython,
    /// Making the empty environment.
    Creating {
        /// From this Python.
        base: PathBuf,
    },
    /// Downloading and installing torch.
    Installing {
        /// What the installer said last.
        line: String,
        /// Bytes of the environment so far.
        bytes: u64,
    },
    /// Importing torch for the first time.
    Checking,
}

/// Why the environment could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The person stopped it; the next setup goes on from there.
    #[error("setup was cancelled; run `ridgeline setup` to go on from there")]
    Cancelled,
    /// No Python to start from.
    #[error(
        "no Python 3.9 to 3.14 was found on PATH to make an environment from. Install one (or `uv`), then run `ridgeline setup` again{0}"
    )]
    NoPython(String),
    /// The disk is full.
    #[error(
        "the disk is full: torch needs up to {} GB in {folder}. Make room, then run `ridgeline setup` again",
        crate::environment::NEEDED_GB
    )]
    DiskFull {
        /// Where.
        folder: PathBuf,
    },
    /// A step failed.
    #[error("{step} failed: {reason}")]
    Failed {
        /// Which.
        step: String,
        /// The last lines of its output, or the system's error.
        reason: String,
    },
}

/// Gigabytes that an environment with torch and its libraries takes at most.
pub const NEEDED_GB: u32 = 8;

/// The Python of the finished private environment below `cache`, where there is one.
pub fn installed(_cache: &Path) -> Option<PathBuf> {
    todo!()
}

/// Makes the private environment below `cache`, or finds it finished. Safe to call from two
/// processes at once, and to call again after it was stopped.
///
/// # Errors
/// See [`SetupError`]; each message says what to do.
pub async fn setup(
    _cache: &Path,
    _surroundings: &Surroundings,
    _events: mpsc::Sender<SetupEvent>,
    _cancel: CancellationToken,
) -> Result<Interpreter, SetupError> {
    todo!()
}
