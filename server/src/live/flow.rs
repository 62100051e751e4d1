//! From a keystroke to what is shown: the pause, the estimate, its end.

use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ridgeline_analysis::present::failure::run::Reader;
use ridgeline_analysis::present::failure::{self, FailureFrame, RunFailure};

use super::{EstimateOutcome, EstimateRequest, Estimated, Told};
use crate::debounce::Wake;
use crate::documents::{Document, DocumentId};
use crate::event::WorkspaceEvent;
use crate::jobs::Outcome;
use crate::scheduler::{Job, Slot, Work, WorkspaceId};
use crate::settings::Settings;
use crate::state::{GlobalState, Saved};

/// After a run or an opening: the editor asks for its hints first.
const IDLE: Duration = Duration::from_secs(1);

/// Places that are told of at once; a model of a hundred such operators would fill the screen.
const GAP_LIMIT: usize = 16;

impl GlobalState {
    /// A text of a workspace is another one now: what is being estimated is out of date, and the
    /// newest text is estimated after a pause.
    pub(crate) fn text_changed(&mut self, file: &Path) {
        let Some(id) = self.workspaces.around(file) else { return };
        let is_measured = self.is_as_saved(id);
        self.scheduler.stop(id, Slot::Estimate);
        let workspace = &mut self.workspaces[id];
        let told = workspace.live.told.as_mut();
        let gone = told.and_then(|told| Arc::make_mut(told).would_fail.take());
        // An undone edit shows what was measured again, and waits for nothing.
        let undone = is_measured && workspace.live.drop_scaled();
        if gone.is_some() {
            self.show_diagnostics(id);
        }
        if gone.is_some() || undone {
            self.scheduler.forget_result(id, Slot::Estimate);
        }
        if undone {
            self.live_changed(id);
        }
        self.estimate_after(id, self.settings.live_delay);
    }

    /// Estimates a workspace when nothing was typed for some time.
    fn estimate_after(&mut self, id: WorkspaceId, pause: Duration) {
        if self.settings.live {
            let wake = Wake { events: &self.events, id, event: || WorkspaceEvent::EstimateDue };
            self.workspaces[id].live.pause.restart(pause, &wake);
        }
    }

    /// Estimates a workspace when its editor has got what it asks for first.
    pub(crate) fn estimate_when_idle(&mut self, id: WorkspaceId) {
        let pause = self.settings.live_delay.max(IDLE);
        self.estimate_after(id, pause);
    }

    /// The pause is over, unless somebody typed meanwhile.
    pub(crate) fn estimate_due(&mut self, id: WorkspaceId) {
        let wake = Wake { events: &self.events, id, event: || WorkspaceEvent::EstimateDue };
        if self.workspaces[id].live.pause.is_over(&wake) {
            self.want_estimate(id);
        }
    }

    /// Estimates that are not wanted any more go, and those for another GPU come.
    pub(crate) fn live_settings_changed(&mut self, id: WorkspaceId, before: &Settings) {
        let now = self.settings.clone();
        let of_estimates = |settings: &Settings| {
            (settings.live, settings.live_without_sandbox, settings.target_gpu.clone())
        };
        if of_estimates(&now) == of_estimates(before) {
            return;
        }
        let cleared = self.workspaces[id].live.cleared;
        self.clear_estimates(id);
        self.workspaces[id].live.cleared = cleared;
        self.live_changed(id);
        self.estimate_when_idle(id);
    }

    /// Lets go of all estimates of a workspace, and stops the one under way.
    pub(crate) fn clear_estimates(&mut self, id: WorkspaceId) {
        self.workspaces[id].live.clear();
        self.scheduler.stop(id, Slot::Estimate);
        self.scheduler.forget_result(id, Slot::Estimate);
    }

    fn want_estimate(&mut self, id: WorkspaceId) {
        if !self.settings.live || self.workspaces[id].live.cleared {
            return;
        }
        let texts: Vec<DocumentId> = self.python_in(id).map(|(text, _)| text.clone()).collect();
        texts.iter().for_each(|text| self.documents.catch_up(text));
        // What is no Python at the moment keeps the last estimate.
        if !texts.iter().any(|text| self.is_unfinished(text)) {
            let key = self.estimate_key(id);
            self.scheduler.want(id, Work::Estimate(key));
        }
    }

    /// Stands for everything that an estimate depends on, as far as it is in the editor.
    fn estimate_key(&self, id: WorkspaceId) -> u64 {
        let target = self.target_gpu(id);
        let mut texts: Vec<_> = self
            .python_in(id)
            .map(|(text, document)| (text.path(), Saved::of(document, false).mark()))
            .collect();
        texts.sort();
        let mut hasher = fnv::FnvHasher::default();
        texts.hash(&mut hasher);
        self.touched_in(id).hash(&mut hasher);
        target.hash(&mut hasher);
        let settings = &self.settings;
        (&settings.interpreter, &settings.device).hash(&mut hasher);
        let workspace = &self.workspaces[id];
        workspace.script.hash(&mut hasher);
        workspace.measured.iter().for_each(|(generation, _)| generation.hash(&mut hasher));
        hasher.finish()
    }

    /// The document that was touched last, if it is in this workspace.
    pub(crate) fn touched_in(&self, id: WorkspaceId) -> Option<PathBuf> {
        self.last_touched.clone().filter(|file| file.starts_with(&self.workspaces[id].root))
    }

    /// Begins an estimate of the texts as they are now.
    pub(crate) fn begin_estimate(&mut self, job: &Job) -> Option<()> {
        let id = job.owner;
        let permit = job.permit.clone()?;
        let ids: Vec<DocumentId> = self.python_in(id).map(|(id, _)| id.clone()).collect();
        let texts = ids.iter().filter_map(|id| {
            let real = self.documents.get(id)?.real.clone()?;
            Some((real, self.documents.snapshot(id)?.index))
        });
        let texts = texts.collect();
        let profile = self.request(id, self.touched_in(id).as_deref());
        let target = self.target_gpu(id);
        let workspace = &mut self.workspaces[id];
        let measured = workspace.measured.iter().map(|(_, profiled)| profiled.clone()).collect();
        let request = EstimateRequest { profile, texts, measured, target };
        let estimate = self.profiler.estimate(request, permit);
        self.carry_out(job, async move { Outcome::Estimate(estimate.await) });
        Some(())
    }

    /// An estimate ended. One that was stopped is of an older text, and not wanted any more.
    pub(crate) fn estimate_ended(&mut self, job: &Job, outcome: EstimateOutcome) {
        let generation = self.next_number();
        let id = job.owner;
        if job.is_stopped() {
            return;
        }
        if matches!(outcome, EstimateOutcome::Estimated(_) | EstimateOutcome::Unchanged { .. }) {
            self.scheduler.remember(job);
        }
        let workspace = &mut self.workspaces[id];
        let live = &mut workspace.live;
        live.problem = None;
        match outcome {
            EstimateOutcome::Estimated(estimated) => {
                let Estimated { profiled, mut gaps } = *estimated;
                gaps.truncate(GAP_LIMIT);
                let files = profiled.profile.files.iter();
                let fingerprints =
                    files.map(|file| (file.path.clone(), file.fingerprint.clone())).collect();
                let told =
                    Told { root: profiled.root.clone(), would_fail: None, gaps, fingerprints };
                live.estimates.retain(|(_, older)| older.root != profiled.root);
                live.estimates.insert(0, (generation, Arc::new(profiled)));
                self.live_changed(id);
                self.tell_at_lines(id, told);
            }
            EstimateOutcome::Unchanged { root: project } => {
                let shown = live.estimates.len();
                live.estimates.retain(|(_, older)| older.root != project);
                if live.estimates.len() < shown {
                    self.live_changed(id);
                }
                self.tell_at_lines(id, Told { root: project, ..Told::default() });
            }
            EstimateOutcome::Failed { failure, root: project } => {
                if let Some((at, message)) = would_fail(&failure) {
                    self.tell_of_failure(id, project, at, message);
                }
            }
            EstimateOutcome::Endless { at, root: project, seconds } => {
                let message = format!(
                    "No estimate: the unsaved code did not complete an iteration in {seconds} s"
                );
                match at {
                    Some(at) => {
                        let message = format!("{message}; it got as far as here");
                        self.tell_of_failure(id, project, at, message);
                    }
                    None => live.problem = Some(message),
                }
            }
            EstimateOutcome::Unavailable { message } => live.problem = Some(message),
            EstimateOutcome::Nothing | EstimateOutcome::Cancelled => {}
        }
    }

    /// Tells that the newest text would fail. What else was told stays.
    fn tell_of_failure(
        &mut self,
        id: WorkspaceId,
        project: PathBuf,
        at: FailureFrame,
        message: String,
    ) {
        let workspace = &mut self.workspaces[id];
        let before = workspace.live.told.as_deref().filter(|told| told.root == project);
        let told = before.cloned().unwrap_or(Told { root: project, ..Told::default() });
        self.tell_at_lines(id, Told { would_fail: Some((at, message)), ..told });
    }

    fn tell_at_lines(&mut self, id: WorkspaceId, told: Told) {
        let workspace = &mut self.workspaces[id];
        let before = workspace.live.told.as_deref();
        if before.is_some_and(Told::says) || told.says() {
            workspace.live.told = Some(Arc::new(told));
            self.show_diagnostics(id);
        }
    }

    /// Other numbers are shown.
    fn live_changed(&mut self, id: WorkspaceId) {
        self.mark_stale();
        self.send_status(id);
        if self.settings.remarks {
            self.show_diagnostics(id);
        }
    }

    /// The GPU that estimates of a workspace are for, where this machine has none.
    pub(crate) fn target_gpu(&self, id: WorkspaceId) -> Option<String> {
        let chosen = self.workspaces[id].live.target.clone();
        chosen.or_else(|| self.settings.target_gpu.clone())
    }

    /// Whether all open texts of a workspace are what was saved last.
    fn is_as_saved(&self, id: WorkspaceId) -> bool {
        // It is asked with each key, and has an answer only where something would change by it.
        !self.workspaces[id].live.estimates.is_empty()
            && self.python_in(id).all(|(id, document)| {
                self.saved.get(id).is_some_and(|saved| saved.is_same(&Saved::of(document, false)))
            })
    }

    /// The text has run as it is, so that nothing is told of it that was only estimated.
    pub(crate) fn text_has_run(&mut self, id: WorkspaceId) {
        let workspace = &mut self.workspaces[id];
        workspace.live.put_off();
        if workspace.live.told.take().is_some_and(|told| told.says()) {
            self.show_diagnostics(id);
        }
    }

    /// Whether an estimate would say more than the run that has just ended: a text is not saved, or it is
    /// for another device.
    pub(crate) fn is_worth_an_estimate(&mut self, id: WorkspaceId) -> bool {
        self.target_gpu(id).is_some()
            || self.python_in(id).any(|(id, document)| {
                let saved = self.saved.get(id);
                saved.is_none_or(|saved| !saved.is_same(&Saved::of(document, false)))
            })
    }

    /// Whether a text is not saved and no Python at the moment.
    fn is_unfinished(&self, id: &DocumentId) -> bool {
        let Some(document) = self.documents.get(id) else { return false };
        let now = Saved::of(document, false);
        let is_saved = self.saved.get(id).is_some_and(|saved| saved.is_same(&now));
        let error = || document.index.as_ref().and_then(|index| index.first_syntax_error());
        !is_saved && error().is_some()
    }

    fn python_in(&self, id: WorkspaceId) -> impl Iterator<Item = (&DocumentId, &Document)> {
        self.documents.iter().filter(move |(_, document)| {
            document.real.as_deref().is_some_and(|file| {
                let is_python = file.extension().is_some_and(|ending| ending == "py");
                is_python && self.workspaces.around(file) == Some(id)
            })
        })
    }
}

impl super::Live {
    /// Lets go of estimates that were scaled from a measurement, which is shown in their place. Those
    /// for another device have none.
    fn drop_scaled(&mut self) -> bool {
        let before = self.estimates.len();
        self.estimates.retain(|(_, profiled)| {
            let estimate = profiled.profile.estimate.as_ref();
            estimate.is_none_or(|estimate| estimate.target.is_some() || estimate.before.is_none())
        });
        self.estimates.len() < before
    }
}

/// Where and how the unsaved text would fail.
fn would_fail(failure: &RunFailure) -> Option<(FailureFrame, String)> {
    let report = failure::report(failure, Reader::Editor);
    Some((report.at?, format!("This edit would fail: {}", report.message)))
}
