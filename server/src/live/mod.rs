//! Estimates while somebody types: what the unsaved text would cost.
//!
//! After a pause in typing the unsaved texts of a project run under fake tensors, in a child of the
//! agent's; what their operators cost is estimated from the last measurement. A keystroke stops it.
//! It runs code of the workspace, so it needs the same consent as a run, and it gives way to runs:
//! two children at once would make what one of them measures wrong.

mod flow;
pub mod target_gpu;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::present::failure::{FailureFrame, RunFailure};
use ridgeline_analysis::source::SourceIndex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::profiler::{ProfileRequest, Profiled};

/// What to estimate.
#[derive(Clone, Debug, Default)]
pub struct EstimateRequest {
    /// Which project, with the file that was typed in.
    pub profile: ProfileRequest,
    /// The texts that are open in the workspace, by path without links. Those that are what the disk
    /// holds need no overlay.
    pub texts: Vec<(PathBuf, SourceIndex)>,
    /// What was measured in the workspace, newest first.
    pub measured: Vec<Arc<Profiled>>,
    /// The GPU that estimates are for where this machine has none.
    pub target: Option<String>,
}

/// How an estimate ended.
#[derive(Clone, Debug)]
pub enum EstimateOutcome {
    /// It is there.
    Estimated(Box<Estimated>),
    /// The text is the one that was measured, so there is nothing to estimate.
    Unchanged {
        /// The project's root.
        root: PathBuf,
    },
    /// There is nothing that could be estimated, and no more to say: what is shown stays.
    Nothing,
    /// Somebody typed on, or a run came first.
    Cancelled,
    /// The unsaved text would fail.
    Failed {
        /// What it raised, with paths relative to `root`.
        failure: RunFailure,
        /// The project's root.
        root: PathBuf,
    },
    /// The unsaved text did not come to the end of an iteration in time.
    Endless {
        /// Where it stood, where that is known.
        at: Option<FailureFrame>,
        /// The project's root.
        root: PathBuf,
        /// The limit, in seconds.
        seconds: u64,
    },
    /// There is no estimate, and why: a sentence.
    Unavailable {
        /// The sentence.
        message: String,
    },
}

/// An estimate.
#[derive(Clone, Debug)]
pub struct Estimated {
    /// What the text costs.
    pub profiled: Profiled,
    /// What could not be estimated, by place.
    pub gaps: Vec<Gap>,
}

/// Code that fake tensors cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where.
    pub at: FailureFrame,
    /// What, as a sentence.
    pub message: String,
}

/// What is shown at lines of the text that was estimated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The project, which paths are relative to.
    pub root: PathBuf,
    /// That the edit would fail, or not end; of the newest text alone.
    pub would_fail: Option<(FailureFrame, String)>,
    /// What could not be estimated.
    pub gaps: Vec<Gap>,
    /// The files' texts then, by path: where lines of `gaps` are today follows from it.
    pub fingerprints: Vec<(String, Vec<u32>)>,
}

impl Told {
    /// Whether there is anything to show.
    pub fn says(&self) -> bool {
        self.would_fail.is_some() || !self.gaps.is_empty()
    }

    /// What is told in one file.
    pub fn of(&self, file: &Path) -> Told {
        let is_here = |at: &FailureFrame| self.root.join(&at.path) == file;
        Told {
            would_fail: self.would_fail.clone().filter(|(at, _)| is_here(at)),
            gaps: self.gaps.iter().filter(|gap| is_here(&gap.at)).cloned().collect(),
            ..self.clone()
        }
    }
}

/// The estimates of a workspace.
#[derive(Debug, Default)]
pub struct Live {
    /// When the pause is over.
    due: Option<Instant>,
    /// A task waits for that.
    is_awaited: bool,
    /// The estimate under way.
    running: Option<Running>,
    /// By project, with their numbers.
    pub estimates: Vec<(u64, Arc<Profiled>)>,
    /// What is shown at lines.
    pub told: Option<Arc<Told>>,
    /// Why there is no estimate, for a person.
    pub problem: Option<String>,
    /// The GPU that the person chose in this session, over the settings.
    pub target: Option<String>,
    /// The person had everything removed that was shown; nothing comes back before the next run.
    pub cleared: bool,
}

#[derive(Debug)]
struct Running {
    number: u64,
    cancel: CancellationToken,
}

impl Live {
    /// Stops the estimate under way. Says whether there was one.
    fn stop(&mut self) -> bool {
        let running = self.running.take();
        if let Some(running) = &running {
            running.cancel.cancel();
        }
        running.is_some()
    }

    /// Stops the estimate under way, and the one that was to come; the next key asks for another.
    pub fn put_off(&mut self) {
        self.stop();
        self.due = None;
    }

    /// Lets go of everything; what was to come does not come any more.
    pub fn clear(&mut self) {
        self.stop();
        self.cleared = true;
        self.due = None;
        self.estimates.clear();
        self.told = None;
        self.problem = None;
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop();
    }
}
