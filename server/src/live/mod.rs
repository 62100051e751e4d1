//! Live estimates: the cost of unsaved text while the user types.
//!
//! After a pause in typing, the unsaved texts of a project run on fake tensors in a child process
//! of the agent. The cost of their operators is estimated from the last measurement. A keystroke
//! stops the estimate. It runs workspace code, so it needs the same consent as a run. It yields to
//! runs, because a second child process would distort what a run measures.

mod flow;
pub(crate) mod target_gpu;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::operators::machine_costs::MachineCosts;
use ridgeline_analysis::present::failure::{FailureFrame, RunFailure};
use ridgeline_analysis::python::SourceIndex;

use crate::debounce::Debouncer;
use crate::profiler::{ProfileRequest, Profiled};

/// Request for an estimate.
#[derive(Clone, Debug, Default)]
pub(crate) struct EstimateRequest {
    /// The project, with the edited file.
    pub profile: ProfileRequest,
    /// The open texts of the workspace, by path with links resolved. Those equal to the file on
    /// disk need no overlay.
    pub texts: Vec<(PathBuf, SourceIndex)>,
    /// The measurements of the workspace, newest first.
    pub measured: Vec<Arc<Profiled>>,
    /// The target GPU if this machine has no GPU.
    pub target: Option<String>,
    /// Times of operators in other types, from the what-ifs of the newest measurement.
    pub machine_costs: MachineCosts,
}

/// Result of an estimate.
#[derive(Clone, Debug)]
pub(crate) enum EstimateOutcome {
    /// The estimate succeeded.
    Estimated(Box<Estimated>),
    /// The text equals the measured one, so there is nothing to estimate.
    Unchanged {
        /// The project's root.
        root: PathBuf,
    },
    /// There is nothing to estimate or to report. The shown values stay.
    Nothing,
    /// Another edit or a run took precedence.
    Cancelled,
    /// The unsaved text would fail.
    Failed {
        /// The exception, with paths relative to `root`.
        failure: RunFailure,
        /// The project's root.
        root: PathBuf,
    },
    /// The unsaved text did not finish an iteration in time.
    Endless {
        /// Where it was stopped, if known.
        at: Option<FailureFrame>,
        /// The project's root.
        root: PathBuf,
        /// The limit, in seconds.
        seconds: u64,
    },
    /// There is no estimate, for a reason.
    Unavailable {
        /// The reason, as a sentence.
        message: String,
    },
}

/// An estimate.
#[derive(Clone, Debug)]
pub(crate) struct Estimated {
    /// The estimated profile.
    pub profiled: Profiled,
    /// Code that could not be estimated.
    pub gaps: Vec<Gap>,
}

/// Code that fake tensors cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub at: FailureFrame,
    /// The reason, as a sentence.
    pub message: String,
}

/// The line that keeps the newest text from being estimated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub at: FailureFrame,
    pub message: String,
    /// Whether the code raises an exception there. Otherwise it had reached this line at the time
    /// limit.
    pub raises: bool,
}

/// Reports at lines of the estimated text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineReports {
    /// The project's root. Paths are relative to it.
    pub root: PathBuf,
    /// Only for the newest text.
    pub obstacle: Option<Obstacle>,
    /// Code that could not be estimated.
    pub gaps: Vec<Gap>,
    /// The line checksums of the estimated texts, by path. They map lines of `gaps` to the current
    /// text.
    pub fingerprints: Vec<(String, Vec<u32>)>,
}

impl LineReports {
    /// Whether there is anything to show.
    pub(crate) fn has_reports(&self) -> bool {
        self.obstacle.is_some() || !self.gaps.is_empty()
    }

    /// The reports in one file.
    pub(crate) fn of(&self, file: &Path) -> LineReports {
        let is_here = |at: &FailureFrame| self.root.join(&at.path) == file;
        LineReports {
            obstacle: self.obstacle.clone().filter(|obstacle| is_here(&obstacle.at)),
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
    /// One estimate per project, with its generation.
    pub estimates: Vec<(u64, Arc<Profiled>)>,
    /// Reports at lines.
    pub reports: Option<Arc<LineReports>>,
    /// Why there is no estimate, for display.
    pub problem: Option<String>,
    /// The target GPU chosen in this session. It overrides the settings.
    pub target: Option<String>,
    /// The user cleared the results. Nothing is shown before the next run.
    pub cleared: bool,
}

impl Live {
    /// Cancels the scheduled estimate. The next edit schedules another.
    pub(crate) fn cancel_scheduled(&mut self) {
        self.pause.cancel();
    }

    /// Drops the pause.
    pub(crate) fn forget_pending(&mut self) {
        self.pause = Debouncer::default();
    }

    /// Drops everything, including a scheduled estimate.
    fn clear(&mut self) {
        self.cleared = true;
        self.pause.cancel();
        self.estimates.clear();
        self.reports = None;
        self.problem = None;
    }
}
