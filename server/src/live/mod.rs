//! Estimates while somebody types: what the unsaved text would cost.
//!
//! After a pause in typing the unsaved texts of a project run under fake tensors, in a child of the
//! agent's; what their operators cost is estimated from the last measurement. A keystroke stops it.
//! It runs code of the workspace, so it needs the same consent as a run, and it gives way to runs:
//! two children at once would make what one of them measures wrong.

mod flow;
pub(crate) mod target_gpu;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::present::failure::{FailureFrame, RunFailure};
use ridgeline_analysis::python::SourceIndex;

use crate::debounce::Debouncer;
use crate::profiler::{ProfileRequest, Profiled};

/// What to estimate.
#[derive(Clone, Debug, Default)]
pub(crate) struct EstimateRequest {
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
pub(crate) enum EstimateOutcome {
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
pub(crate) struct Estimated {
    /// What the text costs.
    pub profiled: Profiled,
    /// What could not be estimated, by place.
    pub gaps: Vec<Gap>,
}

/// Code that fake tensors cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Where.
    pub at: FailureFrame,
    /// What, as a sentence.
    pub message: String,
}

/// What is shown at lines of the text that was estimated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
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
    pub(crate) fn says(&self) -> bool {
        self.would_fail.is_some() || !self.gaps.is_empty()
    }

    /// What is told in one file.
    pub(crate) fn of(&self, file: &Path) -> Told {
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
pub(crate) struct Live {
    /// The pause before an estimate.
    pause: Debouncer,
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

impl Live {
    /// Calls the estimate off that was to come; the next key asks for another.
    pub(crate) fn put_off(&mut self) {
        self.pause.cancel();
    }

    /// Nobody waits for the pause any more.
    pub(crate) fn forget_pending(&mut self) {
        self.pause = Debouncer::default();
    }

    /// Lets go of everything; what was to come does not come any more.
    fn clear(&mut self) {
        self.cleared = true;
        self.pause.cancel();
        self.estimates.clear();
        self.told = None;
        self.problem = None;
    }
}
