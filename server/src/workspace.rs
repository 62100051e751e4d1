//! The state of each workspace.

use std::ops::{Index, IndexMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ridgeline_analysis::present::headline::headline as headline_text;
use ridgeline_analysis::profile::Provenance;

use crate::batch::Batch;
use crate::debounce::Debouncer;
use crate::diagnostics::{Failure, Published};
use crate::findings::Findings;
use crate::live::Live;
use crate::lsp::ext::{Headline, RunStatus, State, StatusParams};
use crate::lsp::to_proto::uri_text;
use crate::profiler::{Profiled, ProgressEvent};
use crate::scheduler::{Reason, WorkspaceId};
use crate::what_if::WhatIf;

/// The maximum number of workspaces.
const LIMIT: usize = 64;

/// The workspaces of a session, by ID. Events of a workspace that no longer exists are dropped
/// before they are handled, so event handlers can index by its ID.
#[derive(Debug, Default)]
pub(crate) struct Workspaces {
    all: Vec<Workspace>,
    next: u32,
}

impl Workspaces {
    /// Adds a workspace with this root, which is absolute and has no symbolic links. Returns `None`
    /// if there are too many.
    pub(crate) fn add(&mut self, root: &Path) -> Option<WorkspaceId> {
        if self.all.len() >= LIMIT {
            return None;
        }
        let id = WorkspaceId(self.next);
        self.next += 1;
        self.all.push(Workspace { id, root: root.to_owned(), ..Workspace::default() });
        Some(id)
    }

    pub(crate) fn remove(&mut self, id: WorkspaceId) {
        self.all.retain(|workspace| workspace.id != id);
    }

    /// Returns the workspace with this ID, if it still exists. Named `find`, because clippy rejects
    /// `[id]` on types with a `get`.
    pub(crate) fn find(&self, id: WorkspaceId) -> Option<&Workspace> {
        self.all.iter().find(|workspace| workspace.id == id)
    }

    /// Returns whether the workspace still exists.
    pub(crate) fn contains(&self, id: WorkspaceId) -> bool {
        self.find(id).is_some()
    }

    /// Returns the workspace with this root.
    pub(crate) fn at(&self, root: &Path) -> Option<WorkspaceId> {
        self.all.iter().find(|workspace| workspace.root == root).map(|workspace| workspace.id)
    }

    /// Returns the innermost workspace that contains a file.
    pub(crate) fn around(&self, file: &Path) -> Option<WorkspaceId> {
        let around = self.all.iter().filter(|workspace| file.starts_with(&workspace.root));
        let innermost = around.max_by_key(|workspace| workspace.root.components().count());
        innermost.map(|workspace| workspace.id)
    }

    /// Iterates over all workspaces, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Workspace> {
        self.all.iter()
    }

    /// Iterates over all workspaces mutably.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Workspace> {
        self.all.iter_mut()
    }

    pub(crate) fn ids(&self) -> Vec<WorkspaceId> {
        self.all.iter().map(|workspace| workspace.id).collect()
    }
}

impl Index<WorkspaceId> for Workspaces {
    type Output = Workspace;

    #[expect(
        clippy::expect_used,
        reason = "the event loop drops events of a workspace that is gone"
    )]
    fn index(&self, id: WorkspaceId) -> &Workspace {
        self.find(id).expect("its events are dropped when it is gone")
    }
}

impl IndexMut<WorkspaceId> for Workspaces {
    #[expect(
        clippy::expect_used,
        reason = "the event loop drops events of a workspace that is gone"
    )]
    fn index_mut(&mut self, id: WorkspaceId) -> &mut Workspace {
        let found = self.all.iter_mut().find(|workspace| workspace.id == id);
        found.expect("its events are dropped when it is gone")
    }
}

/// A folder and what was measured in it.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// Identifies it in events, jobs and the panel.
    pub id: WorkspaceId,
    /// Absolute, without symbolic links.
    pub root: PathBuf,
    /// Profiles with their generations, one for each project, newest first.
    pub measured: Vec<(u64, Arc<Profiled>)>,
    /// The recording that was loaded last. If the user clears its results, it is not loaded again.
    pub last_loaded: Option<PathBuf>,
    /// Why the last run failed, if it failed at a line.
    pub failure: Option<Arc<Failure>>,
    /// The diagnostics that the client shows.
    pub published: Published,
    /// The number of the last placement of diagnostics that was started.
    pub placement: u64,
    /// Delays the placement of diagnostics.
    pub placement_delay: Debouncer,
    /// A run that waits for the user's permission.
    pub waiting: Option<Reason>,
    /// Whether the trust question is open, or about to be asked.
    pub trust_asked: bool,
    /// The number of searches for the program that the trust question names.
    pub searches: u32,
    /// Whether the user closed that question without an answer. A save does not ask again.
    pub dismissed: bool,
    /// Whether the question for the training script is open.
    pub script_asked: bool,
    /// What the user chose to run in this session: a script's path relative to the root, or a
    /// command.
    pub script: Option<String>,
    /// Whether its zygote is starting.
    pub preparing: bool,
    /// Whether starting the zygote was attempted.
    pub prepared: bool,
    /// The progress of the current run, and when it was last sent.
    pub progress: Option<(ProgressEvent, Instant)>,
    /// Why the last run has no measurement.
    pub problem: Option<String>,
    /// The last message about it, which is not repeated on every save.
    pub last_message: Option<String>,
    /// The output of the last run.
    pub log: Option<PathBuf>,
    /// The last status that was sent.
    pub status: Option<StatusParams>,
    /// Estimates of unsaved code.
    pub live: Live,
    /// Results for other batch sizes.
    pub batch: Batch,
    /// Estimated speedups of optimizations.
    pub what_if: WhatIf,
    /// Performance problems.
    pub findings: Findings,
}

impl Workspace {
    /// Stops waiting for events that may never come, because a panic interrupted the turn that
    /// would have caused them. If such an event comes later, it does no harm.
    pub(crate) fn forget_pending(&mut self) {
        self.preparing = false;
        self.trust_asked = false;
        self.searches = 0;
        self.script_asked = false;
        self.placement_delay = Debouncer::default();
        self.live.forget_pending();
        self.findings.forget_pending();
    }

    /// Returns the profile on display: the newest measurement, or an estimate of newer text.
    pub(crate) fn newest(&self) -> Option<&(u64, Arc<Profiled>)> {
        let both = self.measured.first().into_iter().chain(self.live.estimates.first());
        both.max_by_key(|(generation, _)| *generation)
    }

    /// Returns the current status for the client.
    pub(crate) fn status_now(
        &self,
        running: Option<String>,
        busy: Option<String>,
        is_paused: bool,
    ) -> StatusParams {
        let (state, message) = if running.is_some() {
            (State::Running, None)
        } else if self.preparing {
            (State::Preparing, None)
        } else if self.waiting.is_some() {
            (State::WaitingForTrust, Some("a run is waiting for your permission".to_owned()))
        } else if let Some(problem) = &self.problem {
            (State::Failed, Some(problem.clone()))
        } else if busy.is_some() {
            (State::Background, busy)
        } else if is_paused {
            (State::Paused, None)
        } else {
            (State::Idle, self.live.problem.clone())
        };
        StatusParams {
            root: uri_text(&self.root),
            state,
            message,
            run: running.map(|reason| RunStatus {
                reason,
                stage: self.progress.as_ref().map(|(progress, _)| progress.stage.clone()),
                share: self.progress.as_ref().and_then(|(progress, _)| progress.share),
            }),
            headline: self.newest().map(|(_, profiled)| headline(profiled)),
        }
    }
}

fn headline(profiled: &Profiled) -> Headline {
    let profile = &profiled.profile;
    Headline {
        text: headline_text(profile, Provenance::Measured),
        time_ms: profile.iteration.time_ns / 1e6,
        samples_per_second: profile.iteration.samples_per_second(),
        peak_bytes: profile.memory.peak_bytes,
        capacity_bytes: profile.memory.capacity_bytes,
        device: profile.device.display_name().into_owned(),
        is_estimate: profile.estimate.is_some(),
    }
}
