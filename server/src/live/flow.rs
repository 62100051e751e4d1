//! From a keystroke to what is shown: the pause, the estimate, its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ridgeline_analysis::present::failure::{self, FailureFrame, RunFailure};
use tokio::time::{Instant, sleep_until};

use super::{EstimateOutcome, EstimateRequest, Estimated, Running, Told};
use crate::consent::{Cause, Kind};
use crate::documents::DocumentId;
use crate::event::Event;
use crate::settings::Settings;
use crate::state::{GlobalState, Saved};

/// After a run or an opening: the editor asks for its hints first.
const IDLE: Duration = Duration::from_secs(1);

/// Places that are told of at once; a model of a hundred such operators would fill the screen.
const GAP_LIMIT: usize = 16;

impl GlobalState {
    /// A text of a workspace is another one now: what is being estimated is out of date, and the
    /// newest text is estimated after a pause.
    pub fn text_changed(&mut self, file: &Path) {
        let Some(root) = self.root_of(file) else { return };
        let is_measured = self.is_as_saved(&root);
        let Some(workspace) = self.workspace(&root) else { return };
        workspace.live.stop();
        let told = workspace.live.told.as_mut();
        let gone = told.and_then(|told| Arc::make_mut(told).would_fail.take());
        // An undone edit shows what was measured again, and waits for nothing.
        let undone = is_measured && workspace.live.drop_scaled();
        if gone.is_some() {
            self.show_diagnostics(&root);
        }
        if undone {
            self.live_changed(&root);
        }
        self.estimate_after(&root, self.settings.live_delay);
    }

    /// Estimates a workspace when nothing was typed for some time.
    fn estimate_after(&mut self, root: &Path, pause: Duration) {
        if !self.settings.live {
            return;
        }
        let due = Instant::now() + pause;
        let Some(workspace) = self.workspace(root) else { return };
        workspace.live.due = Some(due);
        self.await_estimate(root, due);
    }

    /// Estimates a workspace when its editor has got what it asks for first.
    pub fn estimate_when_idle(&mut self, root: &Path) {
        let pause = self.settings.live_delay.max(IDLE);
        self.estimate_after(root, pause);
    }

    /// One task waits, however often somebody types.
    fn await_estimate(&mut self, root: &Path, due: Instant) {
        let events = self.events.clone();
        let Some(workspace) = self.workspace(root) else { return };
        if workspace.live.is_awaited {
            return;
        }
        workspace.live.is_awaited = true;
        let root = root.to_owned();
        tokio::spawn(async move {
            sleep_until(due).await;
            // Where the event loop is over, nobody wants it.
            let _ = events.send(Event::EstimateDue(root)).await;
        });
    }

    /// The pause is over, unless somebody typed meanwhile.
    pub fn estimate_due(&mut self, root: &Path) {
        let Some(workspace) = self.workspace(root) else { return };
        workspace.live.is_awaited = false;
        match workspace.live.due {
            Some(due) if due > Instant::now() => self.await_estimate(root, due),
            Some(_) => self.begin_estimate(root),
            None => {}
        }
    }

    /// Estimates that are not wanted any more go, and those for another GPU come.
    pub fn live_settings_changed(&mut self, root: &Path, before: &Settings) {
        let now = self.settings.clone();
        let of_estimates = |settings: &Settings| {
            (settings.live, settings.live_without_sandbox, settings.target_gpu.clone())
        };
        if of_estimates(&now) == of_estimates(before) {
            return;
        }
        let Some(workspace) = self.workspace(root) else { return };
        let cleared = workspace.live.cleared;
        workspace.live.clear();
        workspace.live.cleared = cleared;
        self.live_changed(root);
        self.estimate_when_idle(root);
    }

    fn begin_estimate(&mut self, root: &Path) {
        // A run tells more, and estimates follow it.
        let is_busy = self.queue.running().is_some();
        let is_cleared = self.workspace(root).is_none_or(|workspace| workspace.live.cleared);
        if !self.settings.live || is_busy || is_cleared {
            return;
        }
        let ids: Vec<DocumentId> = self.python_in(root).map(|(id, _)| id.clone()).collect();
        ids.iter().for_each(|id| self.documents.catch_up(id));
        // What is no Python at the moment keeps the last picture.
        if ids.iter().any(|id| self.is_unfinished(id)) {
            return;
        }
        let texts = ids.iter().filter_map(|id| {
            let real = self.documents.get(id)?.real.clone()?;
            Some((real, self.documents.snapshot(id)?.index))
        });
        let texts = texts.collect();
        let touched = self.last_touched.clone().filter(|file| file.starts_with(root));
        let profile = self.request(root, touched.as_deref());
        let target = self.target_gpu(root);
        let number = self.next_number();
        let (events, machine) = (self.events.clone(), self.machine.clone());
        let profiler = self.profiler.clone();
        let what = "estimating the text";
        let permit = self.gate.permit(root, Cause::Unasked, Kind::Background, what);
        let Some(permit) = permit else { return };
        let Some(workspace) = self.workspace(root) else { return };
        workspace.live.stop();
        workspace.live.due = None;
        workspace.live.running = Some(Running { number, cancel: permit.token().clone() });
        let measured = workspace.measured.iter().map(|(_, profiled)| profiled.clone()).collect();
        let request = EstimateRequest { profile, texts, measured, target };
        let root = root.to_owned();
        tokio::spawn(async move {
            let work = async {
                let _alone = tokio::select! {
                    held = machine.lock() => held,
                    () = permit.token().cancelled() => return EstimateOutcome::Cancelled,
                };
                profiler.estimate(request, permit.clone()).await
            };
            let outcome = permit.bound(work).await.unwrap_or(EstimateOutcome::Cancelled);
            drop(permit);
            let _ = events.send(Event::EstimateEnded(root, number, Box::new(outcome))).await;
        });
    }

    /// Stops the estimates of all workspaces: something is to be measured.
    pub fn stop_estimates(&mut self) {
        for workspace in &mut self.workspaces {
            workspace.live.stop();
        }
    }

    /// An estimate ended. One that was stopped, or is of an older text, is not wanted any more.
    pub fn estimate_ended(&mut self, root: &Path, number: u64, outcome: EstimateOutcome) {
        let generation = self.next_number();
        let Some(workspace) = self.workspace(root) else { return };
        let live = &mut workspace.live;
        if live.running.take_if(|running| running.number == number).is_none() {
            return;
        }
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
                self.live_changed(root);
                self.tell_at_lines(root, told);
            }
            EstimateOutcome::Unchanged { root: project } => {
                let shown = live.estimates.len();
                live.estimates.retain(|(_, older)| older.root != project);
                if live.estimates.len() < shown {
                    self.live_changed(root);
                }
                self.tell_at_lines(root, Told { root: project, ..Told::default() });
            }
            EstimateOutcome::Failed { failure, root: project } => {
                if let Some((at, message)) = would_fail(&failure) {
                    self.tell_of_failure(root, project, at, message);
                }
            }
            EstimateOutcome::Endless { at, root: project, seconds } => {
                let message = format!(
                    "No estimate: the unsaved text did not come to the end of an iteration in \
                     {seconds} s"
                );
                match at {
                    Some(at) => {
                        let message = format!("{message}; it came as far as here");
                        self.tell_of_failure(root, project, at, message);
                    }
                    None => live.problem = Some(message),
                }
            }
            EstimateOutcome::Unavailable { message } => live.problem = Some(message),
            EstimateOutcome::Nothing | EstimateOutcome::Cancelled => {}
        }
        self.send_status(root);
    }

    /// Tells that the newest text would fail. What else was told stays.
    fn tell_of_failure(
        &mut self,
        root: &Path,
        project: PathBuf,
        at: FailureFrame,
        message: String,
    ) {
        let Some(workspace) = self.workspace(root) else { return };
        let before = workspace.live.told.as_deref().filter(|told| told.root == project);
        let told = before.cloned().unwrap_or(Told { root: project, ..Told::default() });
        self.tell_at_lines(root, Told { would_fail: Some((at, message)), ..told });
    }

    fn tell_at_lines(&mut self, root: &Path, told: Told) {
        let Some(workspace) = self.workspace(root) else { return };
        let before = workspace.live.told.as_deref();
        if before.is_some_and(Told::says) || told.says() {
            workspace.live.told = Some(Arc::new(told));
            self.show_diagnostics(root);
        }
    }

    /// Other numbers are shown.
    fn live_changed(&mut self, root: &Path) {
        self.mark_stale();
        self.send_status(root);
        if self.settings.remarks {
            self.show_diagnostics(root);
        }
    }

    /// The GPU that estimates of a workspace are for, where this machine has none.
    pub fn target_gpu(&mut self, root: &Path) -> Option<String> {
        let chosen = self.workspace(root).and_then(|workspace| workspace.live.target.clone());
        chosen.or_else(|| self.settings.target_gpu.clone())
    }

    /// Whether all open texts of a workspace are what was saved last.
    fn is_as_saved(&self, root: &Path) -> bool {
        let workspace = self.workspaces.iter().find(|workspace| workspace.root == root);
        // It is asked with each key, and has an answer only where something would change by it.
        workspace.is_some_and(|workspace| !workspace.live.estimates.is_empty())
            && self.python_in(root).all(|(id, document)| {
                self.saved.get(id).is_some_and(|saved| saved.is_same(&Saved::of(document, false)))
            })
    }

    /// The text has run as it is, so that nothing is told of it that was only estimated.
    pub fn text_has_run(&mut self, root: &Path) {
        let Some(workspace) = self.workspace(root) else { return };
        workspace.live.put_off();
        if workspace.live.told.take().is_some_and(|told| told.says()) {
            self.show_diagnostics(root);
        }
    }

    /// Whether an estimate would say more than the run that has just ended: a text is not saved, or it is
    /// for another device.
    pub fn is_worth_an_estimate(&mut self, root: &Path) -> bool {
        self.target_gpu(root).is_some()
            || self.python_in(root).any(|(id, document)| {
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

    fn python_in<'a>(
        &'a self,
        root: &'a Path,
    ) -> impl Iterator<Item = (&'a DocumentId, &'a crate::documents::Document)> {
        self.documents.iter().filter(move |(_, document)| {
            document.real.as_deref().is_some_and(|file| {
                let is_python = file.extension().is_some_and(|ending| ending == "py");
                is_python && self.root_of(file).as_deref() == Some(root)
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
    let report = failure::report(failure);
    Some((report.at?, format!("This edit would fail: {}", report.message)))
}
