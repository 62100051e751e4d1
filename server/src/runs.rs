//! From a requested run to its measurement: consent, the run, its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ridgeline_analysis::present::failure::run::Reader;
use ridgeline_analysis::present::failure::{self, FailureFrame, RunFailure};
use tokio::sync::{mpsc, oneshot};

use crate::batch::SweepEffort;
use crate::consent::{Cause, Kind, Permit};
use crate::diagnostics::Failure;
use crate::event::{Event, WorkspaceEvent};
use crate::jobs::{self, Outcome};
use crate::lsp::client::Importance;
use crate::notebook;
use crate::profiler::{ProfileOutcome, ProfileRequest, ProgressEvent};
use crate::progress;
use crate::scheduler::{Job, JobId, Reason, Work, WorkspaceId};
use crate::state::GlobalState;
use crate::trust::Decision;

/// The minimum time between statuses within one stage of a run.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);

impl GlobalState {
    /// Requests a run. If the user has not decided about the workspace yet, asks them first.
    pub(crate) fn request_run(&mut self, id: WorkspaceId, reason: Reason) {
        if self.gate.is_paused(id) && !reason.is_requested() {
            return;
        }
        match self.gate.decision(id) {
            Decision::Allowed => {
                self.scheduler.enqueue(id, Work::Run(reason));
            }
            Decision::Refused if reason.is_requested() => {
                let message = "You chose never to run code of this workspace. Use the command \
                    ridgeline.trust to allow it.";
                self.to_client.show_message(Importance::Info, message);
            }
            Decision::Refused => {}
            Decision::Unknown => self.ask_for_trust(id, reason),
        }
        self.send_status(id);
    }

    /// Stops everything of a workspace that runs or waits, including scheduled estimates. Returns
    /// whether there was anything.
    pub(crate) fn end_work(&mut self, id: WorkspaceId) -> bool {
        // The scheduler comes first: its jobs no longer count as busy once their permits are
        // withdrawn.
        let had_work = self.scheduler.stop_all_of(id);
        let was_busy = self.gate.stop(id);
        self.workspaces[id].live.cancel_scheduled();
        had_work || was_busy
    }

    /// Pauses runs on save, and stops those that saves and the server started.
    pub(crate) fn pause(&mut self, id: WorkspaceId) {
        self.gate.pause(id);
        let workspace = &mut self.workspaces[id];
        workspace.live.cancel_scheduled();
        self.scheduler.pause(id);
    }

    /// Resumes runs on save.
    pub(crate) fn resume(&mut self, id: WorkspaceId) {
        self.gate.resume(id);
        self.prepare(id);
    }

    /// Ends the waiting processes of earlier runs.
    pub(crate) fn forget_processes(&self, id: WorkspaceId) {
        tokio::spawn(self.profiler.forget(self.workspaces[id].root.clone()));
    }

    /// Starts the zygote of a trusted workspace, so that its first run starts sooner.
    pub(crate) fn prepare(&mut self, id: WorkspaceId) {
        if self.workspaces[id].prepared || !self.settings.run_on_save {
            return;
        }
        let what = "importing the project's packages";
        let permit = self.gate.permit(id, Cause::Automatic, Kind::Preparing, what);
        let Some(permit) = permit else { return };
        let request = self.request(id, None);
        let workspace = &mut self.workspaces[id];
        workspace.prepared = true;
        workspace.preparing = true;
        let prepared = self.profiler.prepare(request, permit.clone());
        let events = self.events.clone();
        let event = Event::Workspace(id, WorkspaceEvent::Prepared);
        tokio::spawn(async move {
            // The panic hook has logged it if this panicked; the next run reports what is wrong.
            let _ = tokio::spawn(async move { permit.bound(prepared).await }).await;
            let _ = events.send(event).await;
        });
        self.send_status(id);
    }

    /// Handles that the workspace's zygote is ready or failed to start.
    pub(crate) fn prepared(&mut self, id: WorkspaceId) {
        self.workspaces[id].preparing = false;
        self.send_status(id);
        self.estimate_when_idle(id);
    }

    /// Describes what to run in a workspace. `changed` is the file that was saved, if any.
    pub(crate) fn request(&self, id: WorkspaceId, changed: Option<&Path>) -> ProfileRequest {
        let workspace = &self.workspaces[id];
        ProfileRequest {
            root: workspace.root.clone(),
            changed: changed.map(notebook::file_of),
            script: workspace.script.clone(),
            interpreter: self.settings.interpreter.clone(),
            device: self.settings.device.clone(),
            without_sandbox: self.settings.live_without_sandbox,
        }
    }

    /// Starts a run.
    pub(crate) fn begin_run(&mut self, job: &Job, reason: &Reason) -> Option<()> {
        let id = job.owner;
        let permit = job.permit.clone()?;
        let request = self.request(id, reason.file());
        let (progress_sender, mut received) = mpsc::channel::<ProgressEvent>(16);
        let (shown, to_show) = mpsc::channel(16);
        let (ended, has_ended) = oneshot::channel();
        let progress = self.client.shows_progress.then(|| {
            tokio::spawn(progress::show(
                self.to_client.clone(),
                job.progress_token(),
                "Ridgeline: profiling".to_owned(),
                reason.to_string(),
                to_show,
                has_ended,
            ))
        });
        let profile = match reason {
            Reason::WhatIf(name, _) => self.what_if_run(id, name, request, progress_sender, permit),
            _ => self.profiler.profile(request, progress_sender, permit),
        };
        let mut run = jobs::spawn(job, profile);
        let (events, job) = (self.events.clone(), job.id);
        tokio::spawn(async move {
            // The end of the run counts, even if something still holds the progress channel.
            let outcome = loop {
                tokio::select! {
                    Some(event) = received.recv() => {
                        // Progress that is not received in time is dropped.
                        let _ = shown.try_send(event.clone());
                        let _ = events.try_send(Event::RunProgressed(job, event));
                    }
                    outcome = &mut run => break outcome,
                }
            };
            let outcome = match outcome {
                Ok(outcome) => Outcome::Run(outcome.unwrap_or(ProfileOutcome::Cancelled)),
                Err(error) => Outcome::Defect(error.to_string()),
            };
            let _ = ended.send(end_message(&outcome).to_owned());
            // The progress ends before the status changes: an editor that redraws its mode line
            // only for the status (lsp-mode) would keep showing the finished run.
            if let Some(progress) = progress {
                let _ = progress.await;
            }
            let _ = events.send(Event::JobEnded(job, Box::new(outcome))).await;
        });
        Some(())
    }

    /// Handles the progress of a run.
    pub(crate) fn run_progressed(&mut self, job: JobId, event: ProgressEvent) {
        let running = self.scheduler.running().filter(|running| running.id == job);
        let Some(id) = running.map(|running| running.owner) else { return };
        if !self.workspaces.contains(id) {
            return;
        }
        let workspace = &mut self.workspaces[id];
        // A new stage is sent immediately, progress within a stage only at intervals.
        if let Some((before, sent_at)) = &workspace.progress
            && before.stage == event.stage
            && sent_at.elapsed() < STATUS_INTERVAL
        {
            return;
        }
        workspace.progress = Some((event, Instant::now()));
        self.send_status(id);
    }

    pub(crate) fn run_ended(&mut self, job: &Job, reason: &Reason, outcome: ProfileOutcome) {
        let (id, Some(permit)) = (job.owner, &job.permit) else { return };
        self.workspaces[id].progress = None;
        // A stopped run may still have finished. Its result is not wanted any more.
        let outcome = if job.is_stopped() { ProfileOutcome::Cancelled } else { outcome };
        let is_requested = reason.is_requested();
        let mut measured = None;
        match outcome {
            ProfileOutcome::Measured(profiled) => {
                self.record_success(id, profiled.log.clone());
                measured = Some(profiled.profile.device.clone());
                self.add_profile(id, profiled);
            }
            ProfileOutcome::Failed { failure, root: project, log } => {
                let failure = failure_of(project, failure);
                self.record_failure(id, failure, log, is_requested);
            }
            ProfileOutcome::Compared { pair, not_kept } => {
                self.report_comparison(id, &pair, not_kept)
            }
            ProfileOutcome::NotCompared { message } => self.report_failed_comparison(id, message),
            other => self.nothing_ran(id, reason, other, Some(permit)),
        }
        if permit.is_once() && self.gate.decision(id) != Decision::Allowed {
            // That was the only run that was allowed, so no process of the workspace stays in
            // memory.
            self.forget_processes(id);
        }
        if let Some(device) = &measured {
            self.workspaces[id].batch.about = reason.file().map(Path::to_owned);
            self.scheduler.measured(job.owner);
            self.find_batch_site(id);
            if self.settings.measure_batches {
                self.sweep_batch_sizes(id, SweepEffort::ShortRuns);
            }
            self.consider_measuring(id, device);
        }
        self.study_what_ifs(measured.is_some().then_some(job.owner));
        let is_worth_an_estimate = self.is_worth_an_estimate(id);
        // A user who stopped the run does not want anything else to start.
        if is_worth_an_estimate && !permit.is_withdrawn() {
            self.estimate_when_idle(id);
        }
        if measured.is_some() && !is_worth_an_estimate {
            self.text_has_run(id);
        }
    }

    /// Handles that a run has no result, or that nothing was run. `within` is the run's permit.
    pub(crate) fn nothing_ran(
        &mut self,
        id: WorkspaceId,
        reason: &Reason,
        outcome: ProfileOutcome,
        within: Option<&Permit>,
    ) {
        let is_requested = reason.is_requested();
        match outcome {
            ProfileOutcome::Cancelled if matches!(reason, Reason::WhatIf(..)) => {
                self.what_if_changed(id, None);
            }
            ProfileOutcome::Cancelled => {}
            ProfileOutcome::Choose { runs } => {
                let question = self.gate.question(id, within);
                self.ask_for_script(id, question, runs, reason.clone());
            }
            ProfileOutcome::NothingToRun { message } => {
                match self.syntax_error_in_saved_file(id, reason) {
                    Some(failure) => self.record_failure(id, failure, None, is_requested),
                    None => {
                        // Saving a file in a workspace without training code is normal.
                        self.record_success(id, None);
                        if is_requested {
                            self.to_client.show_message(Importance::Info, &message);
                        }
                    }
                }
            }
            ProfileOutcome::Problem { message, log } => {
                self.record_problem(id, message, log, is_requested)
            }
            // These are results.
            ProfileOutcome::Measured(_)
            | ProfileOutcome::Failed { .. }
            | ProfileOutcome::Compared { .. }
            | ProfileOutcome::NotCompared { .. } => {}
        }
    }

    /// Returns the syntax error of the saved file, if it has one. Such a file is not found to be a
    /// training script, so the error is the reason that there is nothing to run.
    fn syntax_error_in_saved_file(&self, id: WorkspaceId, reason: &Reason) -> Option<Failure> {
        let root = &self.workspaces[id].root;
        let file = reason.file()?;
        let open = self.documents.iter().find(|(_, open)| open.real.as_deref() == Some(file));
        let line = open?.1.index.as_ref()?.first_syntax_error()?;
        let path = file.strip_prefix(root).ok()?.to_string_lossy().replace('\\', "/");
        let failure = RunFailure {
            error_type: "SyntaxError".to_owned(),
            message: "syntax error: no training script was found because this file cannot be \
                parsed from here on"
                .to_owned(),
            kind: "syntax".to_owned(),
            frames: vec![FailureFrame { path, line, name: "<module>".to_owned() }],
            ..RunFailure::default()
        };
        Some(failure_of(root.clone(), failure))
    }

    fn record_success(&mut self, id: WorkspaceId, log: Option<PathBuf>) {
        self.forget_failure(id);
        let workspace = &mut self.workspaces[id];
        workspace.problem = None;
        workspace.last_message = None;
        workspace.log = log.or(workspace.log.take());
    }

    fn record_failure(
        &mut self,
        id: WorkspaceId,
        failure: Failure,
        log: Option<PathBuf>,
        is_requested: bool,
    ) {
        if failure.report.at.is_none() {
            return self.record_problem(id, failure.report.message, log, is_requested);
        }
        let first_line = failure.report.message.lines().next().unwrap_or_default().to_owned();
        let workspace = &mut self.workspaces[id];
        workspace.failure = Some(Arc::new(failure));
        workspace.problem = Some(first_line);
        workspace.log = log.or(workspace.log.take());
        self.show_diagnostics(id);
    }

    fn record_problem(
        &mut self,
        id: WorkspaceId,
        message: String,
        log: Option<PathBuf>,
        is_requested: bool,
    ) {
        self.forget_failure(id);
        let workspace = &mut self.workspaces[id];
        workspace.problem = message.lines().next().map(str::to_owned);
        workspace.log = log.or(workspace.log.take());
        self.show_message_once(id, Importance::Error, &message, is_requested);
    }

    /// Stops the job whose progress the user cancelled.
    pub(crate) fn progress_cancelled(&mut self, wanted: &str) {
        self.scheduler.stop_progress(wanted);
    }
}

fn failure_of(root: PathBuf, failure: RunFailure) -> Failure {
    let report = failure::report(&failure, Reader::Editor);
    Failure { root, kind: failure.kind, report }
}

fn end_message(outcome: &Outcome) -> &'static str {
    let Outcome::Run(outcome) = outcome else { return "not measured" };
    match outcome {
        ProfileOutcome::Measured(_) | ProfileOutcome::Compared { .. } => "measured",
        ProfileOutcome::NotCompared { .. } => "not measured",
        ProfileOutcome::Failed { .. } => "the program failed",
        ProfileOutcome::Cancelled => "stopped",
        ProfileOutcome::Choose { .. } => "which script?",
        ProfileOutcome::NothingToRun { .. } => "nothing to run",
        ProfileOutcome::Problem { .. } => "not measured",
    }
}
