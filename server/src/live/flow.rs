//! The estimate of unsaved text: pause after a keystroke, start, end.

use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ridgeline_analysis::present::failure::run::Reader;
use ridgeline_analysis::present::failure::{self, RunFailure};

use super::{EstimateOutcome, EstimateRequest, Estimated, LineReports, Obstacle};
use crate::debounce::Wake;
use crate::documents::{Document, DocumentId};
use crate::event::WorkspaceEvent;
use crate::jobs::Outcome;
use crate::notebook;
use crate::scheduler::{Job, Slot, Work, WorkspaceId};
use crate::settings::Settings;
use crate::state::{GlobalState, Saved};

/// The delay after a run or after a document is opened. The editor requests its hints first.
const IDLE: Duration = Duration::from_secs(1);

/// The maximum number of gaps shown at once. A model may have hundreds.
const GAP_LIMIT: usize = 16;

impl GlobalState {
    /// Handles an edit: cancels the running estimate, which is out of date, and schedules one of
    /// the newest text.
    pub(crate) fn text_changed(&mut self, file: &Path) {
        let Some(id) = self.workspaces.around(file) else { return };
        let is_measured = self.is_as_saved(id);
        self.scheduler.stop(id, Slot::Estimate);
        let workspace = &mut self.workspaces[id];
        let reports = workspace.live.reports.as_mut();
        let gone = reports.and_then(|reports| Arc::make_mut(reports).obstacle.take());
        // Undoing an edit shows the measurement again, without a pause.
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

    /// Schedules an estimate after a pause without edits.
    fn estimate_after(&mut self, id: WorkspaceId, pause: Duration) {
        if self.settings.live {
            let wake = Wake { events: &self.events, id, event: || WorkspaceEvent::EstimateDue };
            self.workspaces[id].live.pause.restart(pause, &wake);
        }
    }

    /// Schedules an estimate once the editor has received its first answers.
    pub(crate) fn estimate_when_idle(&mut self, id: WorkspaceId) {
        let pause = self.settings.live_delay.max(IDLE);
        self.estimate_after(id, pause);
    }

    /// Requests the estimate when the pause has ended, unless another edit restarted it.
    pub(crate) fn estimate_due(&mut self, id: WorkspaceId) {
        let wake = Wake { events: &self.events, id, event: || WorkspaceEvent::EstimateDue };
        if self.workspaces[id].live.pause.is_over(&wake) {
            self.enqueue_estimate(id);
        }
    }

    /// Applies changed settings: drops unwanted estimates, and requests those for another GPU.
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

    /// Drops all estimates of a workspace and stops the running one.
    pub(crate) fn clear_estimates(&mut self, id: WorkspaceId) {
        self.workspaces[id].live.clear();
        self.scheduler.stop(id, Slot::Estimate);
        self.scheduler.forget_result(id, Slot::Estimate);
    }

    fn enqueue_estimate(&mut self, id: WorkspaceId) {
        if !self.settings.live || self.workspaces[id].live.cleared {
            return;
        }
        let texts: Vec<DocumentId> = self.python_in(id).map(|(text, _)| text.clone()).collect();
        texts.iter().for_each(|text| self.documents.catch_up(text));
        // While the text does not parse, the last estimate stays.
        if !texts.iter().any(|text| self.is_unfinished(text)) {
            let key = self.estimate_key(id);
            self.scheduler.enqueue(id, Work::Estimate(key));
        }
    }

    /// A hash of everything in the editor that an estimate depends on.
    fn estimate_key(&self, id: WorkspaceId) -> u64 {
        let target = self.target_gpu(id);
        let mut texts: Vec<_> = self
            .python_in(id)
            .map(|(text, document)| (text.path(), Saved::of(document, false).mark()))
            .collect();
        texts.sort();
        let mut hasher = fnv::FnvHasher::default();
        texts.hash(&mut hasher);
        self.last_edited_in(id).hash(&mut hasher);
        target.hash(&mut hasher);
        let settings = &self.settings;
        (&settings.interpreter, &settings.device).hash(&mut hasher);
        let workspace = &self.workspaces[id];
        workspace.script.hash(&mut hasher);
        workspace.measured.iter().for_each(|(generation, _)| generation.hash(&mut hasher));
        hasher.finish()
    }

    /// The most recently edited document, if it is in this workspace.
    pub(crate) fn last_edited_in(&self, id: WorkspaceId) -> Option<PathBuf> {
        self.last_touched.clone().filter(|file| file.starts_with(&self.workspaces[id].root))
    }

    /// Starts an estimate of the current texts.
    pub(crate) fn begin_estimate(&mut self, job: &Job) -> Option<()> {
        let id = job.owner;
        let permit = job.permit.clone()?;
        let ids: Vec<DocumentId> = self.python_in(id).map(|(id, _)| id.clone()).collect();
        let texts = ids.iter().filter_map(|id| {
            let real = self.documents.get(id)?.real.clone()?;
            Some((real, self.documents.snapshot(id)?.index))
        });
        let texts = texts.collect();
        let profile = self.request(id, self.last_edited_in(id).as_deref());
        let target = self.target_gpu(id);
        let workspace = &mut self.workspaces[id];
        let measured = workspace.measured.iter().map(|(_, profiled)| profiled.clone()).collect();
        let machine_costs = workspace.newest_study().map(|study| study.machine_costs.clone());
        let machine_costs = machine_costs.unwrap_or_default();
        let request = EstimateRequest { profile, texts, measured, target, machine_costs };
        let estimate = self.profiler.estimate(request, permit);
        self.spawn_job(job, async move { Outcome::Estimate(estimate.await) });
        Some(())
    }

    /// Handles the end of an estimate. The result of a stopped one is discarded, because its text
    /// is outdated.
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
                let reports =
                    LineReports { root: profiled.root.clone(), obstacle: None, gaps, fingerprints };
                live.estimates.retain(|(_, older)| older.root != profiled.root);
                live.estimates.insert(0, (generation, Arc::new(profiled)));
                self.live_changed(id);
                self.report_at_lines(id, reports);
            }
            EstimateOutcome::Unchanged { root: project } => {
                let shown = live.estimates.len();
                live.estimates.retain(|(_, older)| older.root != project);
                if live.estimates.len() < shown {
                    self.live_changed(id);
                }
                self.report_at_lines(id, LineReports { root: project, ..LineReports::default() });
            }
            EstimateOutcome::Failed { failure, root: project } => {
                if let Some(obstacle) = exception(&failure) {
                    self.report_obstacle(id, project, obstacle);
                }
            }
            EstimateOutcome::Endless { at, root: project, seconds } => {
                let message = format!(
                    "No estimate: the unsaved code did not complete an iteration in {seconds} s"
                );
                match at {
                    Some(at) => {
                        let message = format!("{message}; it got as far as here");
                        let obstacle = Obstacle { at, message, raises: false };
                        self.report_obstacle(id, project, obstacle);
                    }
                    None => live.problem = Some(message),
                }
            }
            EstimateOutcome::Unavailable { message } => live.problem = Some(message),
            EstimateOutcome::Nothing | EstimateOutcome::Cancelled => {}
        }
    }

    /// Reports why the newest text has no estimate. Other reports stay.
    fn report_obstacle(&mut self, id: WorkspaceId, project: PathBuf, obstacle: Obstacle) {
        let workspace = &mut self.workspaces[id];
        let before = workspace.live.reports.as_deref().filter(|reports| reports.root == project);
        let reports =
            before.cloned().unwrap_or(LineReports { root: project, ..LineReports::default() });
        self.report_at_lines(id, LineReports { obstacle: Some(obstacle), ..reports });
    }

    fn report_at_lines(&mut self, id: WorkspaceId, reports: LineReports) {
        let workspace = &mut self.workspaces[id];
        let before = workspace.live.reports.as_deref();
        if before.is_some_and(LineReports::has_reports) || reports.has_reports() {
            workspace.live.reports = Some(Arc::new(reports));
            self.show_diagnostics(id);
        }
    }

    /// Updates the editor and the panel after the estimates changed.
    fn live_changed(&mut self, id: WorkspaceId) {
        self.mark_stale();
        self.send_status(id);
        if self.settings.remarks {
            self.show_diagnostics(id);
        }
    }

    /// The target GPU of a workspace's estimates if this machine has no GPU.
    pub(crate) fn target_gpu(&self, id: WorkspaceId) -> Option<String> {
        let chosen = self.workspaces[id].live.target.clone();
        chosen.or_else(|| self.settings.target_gpu.clone())
    }

    /// Whether all open texts of a workspace are saved.
    fn is_as_saved(&self, id: WorkspaceId) -> bool {
        // Called on every keystroke. The texts are compared only if the result matters.
        !self.workspaces[id].live.estimates.is_empty()
            && self.python_in(id).all(|(id, document)| {
                self.saved.get(id).is_some_and(|saved| saved.is_same(&Saved::of(document, false)))
            })
    }

    /// The current text has run, so reports from estimates are removed.
    pub(crate) fn text_has_run(&mut self, id: WorkspaceId) {
        let workspace = &mut self.workspaces[id];
        workspace.live.cancel_scheduled();
        if workspace.live.reports.take().is_some_and(|reports| reports.has_reports()) {
            self.show_diagnostics(id);
        }
    }

    /// Whether an estimate adds anything to the run that just ended: a text is unsaved, or the
    /// target is another device.
    pub(crate) fn is_worth_an_estimate(&mut self, id: WorkspaceId) -> bool {
        self.target_gpu(id).is_some()
            || self.python_in(id).any(|(id, document)| {
                let saved = self.saved.get(id);
                saved.is_none_or(|saved| !saved.is_same(&Saved::of(document, false)))
            })
    }

    /// Whether a text is unsaved and does not parse.
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
                notebook::is_python(file) && self.workspaces.around(file) == Some(id)
            })
        })
    }
}

impl super::Live {
    /// Drops estimates that were scaled from a measurement, so that the measurement is shown again.
    /// Estimates for another device have no measurement.
    fn drop_scaled(&mut self) -> bool {
        let before = self.estimates.len();
        self.estimates.retain(|(_, profiled)| {
            let estimate = profiled.profile.estimate.as_ref();
            estimate.is_none_or(|estimate| estimate.target.is_some() || estimate.before.is_none())
        });
        self.estimates.len() < before
    }
}

/// The exception that the unsaved text would raise.
fn exception(failure: &RunFailure) -> Option<Obstacle> {
    let report = failure::report(failure, Reader::Editor);
    let message = format!("This edit would fail: {}", report.message);
    Some(Obstacle { at: report.at?, message, raises: true })
}
