//! What is known of each workspace.

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

/// Folders that are looked after at once.
const LIMIT: usize = 64;

/// The workspaces of a session, by their IDs. Events of a workspace that is gone are dropped before they
/// are handled, so whoever handles an event can index by its ID.
#[derive(Debug, Default)]
pub(crate) struct Workspaces {
    all: Vec<Workspace>,
    next: u32,
}

impl Workspaces {
    /// Adds a workspace with this root, which is absolute and without links. `None` if there are too many.
    pub(crate) fn add(&mut self, root: &Path) -> Option<WorkspaceId> {
        if self.all.len() >= LIMIT {
            return None;
        }
        let id = WorkspaceId(self.next);
        self.next += 1;
        self.all.push(Workspace { id, root: root.to_owned(), ..Workspace::default() });
        Some(id)
    }

    /// Removes a workspace.
    pub(crate) fn remove(&mut self, id: WorkspaceId) {
        self.all.retain(|workspace| workspace.id != id);
    }

    /// A workspace that may be gone. Named `find`, because clippy refuses `[id]` on types with a `get`.
    pub(crate) fn find(&self, id: WorkspaceId) -> Option<&Workspace> {
        self.all.iter().find(|workspace| workspace.id == id)
    }

    /// Whether a workspace is not gone.
    pub(crate) fn contains(&self, id: WorkspaceId) -> bool {
        self.find(id).is_some()
    }

    /// The workspace with this root.
    pub(crate) fn at(&self, root: &Path) -> Option<WorkspaceId> {
        self.all.iter().find(|workspace| workspace.root == root).map(|workspace| workspace.id)
    }

    /// The workspace that a file belongs to: the innermost one around it.
    pub(crate) fn around(&self, file: &Path) -> Option<WorkspaceId> {
        let around = self.all.iter().filter(|workspace| file.starts_with(&workspace.root));
        let innermost = around.max_by_key(|workspace| workspace.root.components().count());
        innermost.map(|workspace| workspace.id)
    }

    /// All of them, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Workspace> {
        self.all.iter()
    }

    /// The same, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Workspace> {
        self.all.iter_mut()
    }

    /// Their IDs.
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

/// A folder with what was measured in it.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// Names it in events, jobs and the panel.
    pub id: WorkspaceId,
    /// Absolute, without links.
    pub root: PathBuf,
    /// Its profiles, one for each project, newest first.
    pub measured: Vec<(u64, Arc<Profiled>)>,
    /// The recording that was taken in last; one that the person cleared does not come back.
    pub taken_in: Option<PathBuf>,
    /// Why the last run failed, where it did at a line.
    pub failure: Option<Arc<Failure>>,
    /// The diagnostics that the client shows.
    pub published: Published,
    /// The number of the placement of diagnostics that was begun last.
    pub placing: u64,
    /// The pause before diagnostics are placed.
    pub placing_soon: Debouncer,
    /// A run that waits for the person to allow it.
    pub waiting: Option<Reason>,
    /// The question whether it may run is on the screen.
    pub trust_asked: bool,
    /// The person closed that question without an answer: a save does not ask again.
    pub dismissed: bool,
    /// The question which script is meant is on the screen.
    pub script_asked: bool,
    /// What the person chose to run in this session: a script's path relative to the root, or a command.
    pub script: Option<String>,
    /// Its zygote is being made ready.
    pub preparing: bool,
    /// It was made ready, or that was tried.
    pub prepared: bool,
    /// How far the run is that goes on, and when that was told.
    pub progress: Option<(ProgressEvent, Instant)>,
    /// Why the last run did not measure anything.
    pub problem: Option<String>,
    /// The last message about it, which is not said again on every save.
    pub said: Option<String>,
    /// What the program printed last.
    pub log: Option<PathBuf>,
    /// The last status that was sent.
    pub status: Option<StatusParams>,
    /// Estimates while somebody types.
    pub live: Live,
    /// What is known of other batch sizes.
    pub batch: Batch,
    /// What optimizations would bring.
    pub what_if: WhatIf,
    /// What was found to be slow or wasteful.
    pub findings: Findings,
}

impl Workspace {
    /// Waits no more for events that may never come, because a turn that was to bring them about did not come
    /// to its end. An event that comes all the same does no harm.
    pub(crate) fn forget_pending(&mut self) {
        self.preparing = false;
        self.trust_asked = false;
        self.script_asked = false;
        self.placing_soon = Debouncer::default();
        self.live.forget_pending();
        self.findings.forget_pending();
    }

    /// What is shown: the newest measurement, or the estimate of a text that is newer.
    pub(crate) fn newest(&self) -> Option<&(u64, Arc<Profiled>)> {
        let both = self.measured.first().into_iter().chain(self.live.estimates.first());
        both.max_by_key(|(generation, _)| *generation)
    }

    /// What the client is told of it now.
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
