//! The kinds of work, and the table of what each of them may do.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::batch::SweepEffort;
use crate::consent::{Cause, Kind};

/// Why a run was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The editor saved this file.
    Saved(PathBuf),
    /// Another program wrote this file.
    ChangedOutside(PathBuf),
    /// The user requested it, with this file open if the editor sent it.
    Requested(Option<PathBuf>),
    /// The user wants to measure the speedup of an optimization (by name) for this file's project.
    WhatIf(String, Option<PathBuf>),
}

impl Reason {
    /// Returns the file that it is about.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Reason::Saved(file) | Reason::ChangedOutside(file) => Some(file),
            Reason::Requested(file) | Reason::WhatIf(_, file) => file.as_deref(),
        }
    }

    /// Returns whether the user requested it, and so expects an answer even if it repeats the
    /// previous one.
    pub(crate) fn is_requested(&self) -> bool {
        matches!(self, Reason::Requested(_) | Reason::WhatIf(..))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |path: &Path| {
            path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
        };
        match self {
            Reason::Saved(file) => write!(f, "{} was saved", name(file)),
            Reason::ChangedOutside(file) => write!(f, "{} changed on disk", name(file)),
            Reason::Requested(_) => f.write_str("on request"),
            Reason::WhatIf(name, _) => write!(f, "measuring the speedup of {name}"),
        }
    }
}

/// A piece of work for a workspace. Only one runs at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Run the program: profile it, or compare it with an optimized version.
    Run(Reason),
    /// Estimate unsaved text. The key identifies the texts and the basis of the estimate.
    Estimate(u64),
    /// Compute the findings in the measurement with this generation.
    Findings(u64),
    /// Time single operators of that measurement in the workspace's Python.
    Probes(u64),
    /// Simulate optimizations for that measurement.
    WhatIfs(u64),
    /// Estimate or run other batch sizes. The key identifies the measured program.
    BatchSizes(SweepEffort, u64),
    /// Measure the rates of this machine's GPU.
    MeasureGpu(Cause),
}

/// Newer work replaces older work of the same slot and workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Slot {
    /// [`Work::Run`]
    Run,
    /// [`Work::Estimate`]
    Estimate,
    /// Work on a measurement: [`Work::Findings`], [`Work::Probes`], [`Work::WhatIfs`].
    Study,
    /// [`Work::BatchSizes`]
    BatchSizes,
    /// [`Work::MeasureGpu`]
    MeasureGpu,
}

/// What happens while something else, such as a training run of the user's, needs the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnBusyMachine {
    /// The work starts anyway.
    Start,
    /// The work waits.
    Wait,
    /// The work is skipped.
    Skip,
}

/// How work counts against the background budget of a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    /// It does not count.
    Free,
    /// It counts but is not interrupted: the user sees its results, and it takes seconds at most.
    Counted,
    /// It counts, and ends when the budget is used up.
    Limited,
}

/// What work may do, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Lower ranks start first.
    pub rank: u8,
    /// Whether a key press in any document stops it.
    pub yields_to_typing: bool,
    /// Whether it starts while something else needs the machine.
    pub on_busy_machine: OnBusyMachine,
    /// How it counts against the background budget.
    pub budget: Budget,
}

impl Work {
    /// Returns what may run while the user types, saves, or uses the machine for something else.
    /// Two rules apply to all: only one piece of work runs at a time, and a run stops everything
    /// else.
    pub(crate) fn rules(&self) -> Rules {
        use {Budget::*, OnBusyMachine::*};
        let (rank, yields_to_typing, on_busy_machine, budget) = match self {
            Work::Run(_) => (0, false, Start, Free),
            Work::BatchSizes(SweepEffort::Runs, _) => (1, true, Start, Free),
            Work::MeasureGpu(Cause::User) => (1, false, Start, Free),
            // A key press stops the estimate of its own workspace, see `Scheduler::edited`.
            Work::Estimate(_) => (2, false, Start, Free),
            Work::Findings(_) => (3, false, Start, Counted),
            Work::WhatIfs(_) => (4, false, Start, Counted),
            // Once for each GPU and driver.
            Work::MeasureGpu(Cause::Automatic) => (5, false, Wait, Free),
            // What-ifs follow the probes, and also run without their results.
            Work::Probes(_) => (6, true, Skip, Limited),
            Work::BatchSizes(SweepEffort::Estimates | SweepEffort::ShortRuns, _) => {
                (7, true, Wait, Limited)
            }
        };
        Rules { rank, yields_to_typing, on_busy_machine, budget }
    }

    /// Returns the slot in which newer work replaces it.
    pub(crate) fn slot(&self) -> Slot {
        match self {
            Work::Run(_) => Slot::Run,
            Work::Estimate(_) => Slot::Estimate,
            Work::Findings(_) | Work::Probes(_) | Work::WhatIfs(_) => Slot::Study,
            Work::BatchSizes(..) => Slot::BatchSizes,
            Work::MeasureGpu(_) => Slot::MeasureGpu,
        }
    }

    /// Returns who requested it.
    pub(crate) fn cause(&self) -> Cause {
        match self {
            Work::Run(reason) if reason.is_requested() => Cause::User,
            Work::BatchSizes(SweepEffort::Runs, _) => Cause::User,
            Work::MeasureGpu(cause) => *cause,
            _ => Cause::Automatic,
        }
    }

    /// Returns the kind of permit it needs, or `None` if it runs no code of the workspace.
    pub(crate) fn needs_permit(&self) -> Option<Kind> {
        match self {
            Work::Run(_) => Some(Kind::Run),
            Work::Findings(_) | Work::WhatIfs(_) => None,
            Work::Estimate(_) | Work::Probes(_) | Work::BatchSizes(..) | Work::MeasureGpu(_) => {
                Some(Kind::Background)
            }
        }
    }

    /// Returns whether its result also answers `other`.
    pub(super) fn answers(&self, other: &Work) -> bool {
        match (self, other) {
            (Work::Estimate(key), Work::Estimate(other)) => key == other,
            (Work::BatchSizes(effort, key), Work::BatchSizes(less, other)) => {
                key == other && less <= effort
            }
            _ => false,
        }
    }
}

impl fmt::Display for Work {
    /// Returns the text in the status.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Work::Run(reason) => return reason.fmt(f),
            Work::Estimate(_) => "estimating unsaved code",
            Work::Findings(_) => "looking for findings",
            Work::Probes(_) => "timing single operators",
            Work::WhatIfs(_) => "predicting speedups",
            Work::BatchSizes(SweepEffort::Estimates, _) => "estimating other batch sizes",
            Work::BatchSizes(..) => "running other batch sizes",
            Work::MeasureGpu(_) => "measuring the GPU",
        })
    }
}
