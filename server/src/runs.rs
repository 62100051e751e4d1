//! From a wish for a run to what it measured: consent, the queue, the run, its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ridgeline_analysis::present::failure::{self, FailureFrame, RunFailure};
use ridgeline_analysis::source::training_script;
use tokio::sync::{mpsc, oneshot};

use crate::batch::Effort;
use crate::config;
use crate::consent::{Cause, Kind, Question};
use crate::event::Event;
use crate::lsp::client::{Asked, Importance};
use crate::profiler::{ProfileOutcome, ProfileRequest, ProgressEvent};
use crate::progress;
use crate::requests::diagnostic::Failure;
use crate::run_queue::{Reason, RunId};
use crate::state::GlobalState;
use crate::store::StoreError;
use crate::trust::{Answer, Decision};

/// Scripts that are offered to choose from. A message with more buttons cannot be read.
const CHOICE_LIMIT: usize = 8;

/// What is said to an answer that comes too late.
const OLD_QUESTION: &str =
    "That question is out of date, so nothing runs. Save, or profile, to be asked again.";

/// Statuses are not sent more often while a run goes on.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);

impl GlobalState {
    /// Wants a run, and asks the person first where they have not decided.
    pub fn want_run(&mut self, root: &Path, reason: Reason) {
        if self.workspace(root).is_none() || (self.gate.is_paused(root) && !reason.is_asked()) {
            return;
        }
        match self.gate.decision(root) {
            Decision::Allowed => {
                self.queue.ask(root, reason);
                self.start_run();
            }
            Decision::Refused if reason.is_asked() => {
                let message = "You said that nothing of this workspace may run. The command \
                               ridgeline.trust allows it.";
                self.to_client.show_message(Importance::Info, message);
            }
            Decision::Refused => {}
            Decision::Unknown => self.ask_for_trust(root, reason),
        }
        self.send_status(root);
    }

    fn ask_for_trust(&mut self, root: &Path, reason: Reason) {
        let (to_client, events) = (self.to_client.clone(), self.events.clone());
        let question = self.gate.question(root, None);
        let what = self.what_would_run(root, reason.file());
        let Some(workspace) = self.workspace(root) else { return };
        let asked = reason.is_asked();
        workspace.waiting = Some(reason);
        // Who asks for a run while the question is open does not see it: it is put again.
        if (workspace.trust_asked || workspace.dismissed) && !asked {
            return;
        }
        workspace.trust_asked = true;
        let root = root.to_owned();
        // A launcher may reach other machines, so that it is named.
        let launcher = config::load(&root).ok().and_then(|loaded| loaded.config.launcher);
        let launcher = launcher.map(|it| format!(" with `{}`", it.shown()));
        let message = format!(
            "Run a few training steps of {what}{} to profile it? \"{}\" runs a few steps again each time \
             you save. While you type, unsaved text is only simulated in a sandbox: nothing is written. \
             Folder: {}",
            launcher.unwrap_or_default(),
            Answer::Always.title(),
            root.display(),
        );
        let answer = to_client.ask(&message, &Answer::ALL.map(|it| it.title().to_owned()));
        tokio::spawn(async move {
            let answer = match answer.await {
                Asked::Chosen(title) => Answer::of_title(&title),
                Asked::Closed => None,
                Asked::NotShown => {
                    let message = "To let Ridgeline run this project: a code action, or the \
                                   command ridgeline.trust";
                    to_client.show_message(Importance::Info, message);
                    None
                }
            };
            let _ = events.send(Event::TrustAnswered(root, question, answer)).await;
        });
    }

    /// What the question calls the program: the script where it is known without looking for it.
    fn what_would_run(&self, root: &Path, file: Option<&Path>) -> String {
        let project = root.file_name().unwrap_or(root.as_os_str()).to_string_lossy();
        let workspace = self.workspaces.iter().find(|workspace| workspace.root == root);
        let chosen = workspace.and_then(|workspace| workspace.script.clone());
        let remembered = || Some(root.join(self.store.as_ref()?.remembered_script(root)?));
        let saved = || {
            let file = file?;
            let open = self.documents.iter().find(|(_, open)| open.real.as_deref() == Some(file));
            let index = open?.1.index.as_ref()?;
            training_script(index).loop_line.map(|_| file.to_owned())
        };
        let script = chosen.or_else(remembered).or_else(saved);
        let inside = script.as_deref().and_then(|script| script.strip_prefix(root).ok());
        match inside {
            Some(inside) => format!("{project}/{}", inside.display()).replace('\\', "/"),
            None => format!("the training script of {project}"),
        }
    }

    /// The person answered, or closed the question.
    pub fn trust_answered(&mut self, root: &Path, question: Question, answer: Option<Answer>) {
        if self.workspace(root).is_none() {
            return;
        }
        let Some(answer) = answer else {
            if self.gate.is_current(root, question)
                && let Some(workspace) = self.workspace(root)
            {
                workspace.trust_asked = false;
                workspace.dismissed = true;
            }
            return self.send_status(root);
        };
        let counts = match self.gate.answer(root, question, answer) {
            Ok(counts) => counts,
            Err(error) => {
                self.tell_if_not_kept(Err(error));
                true
            }
        };
        if !counts {
            return self.to_client.show_message(Importance::Info, OLD_QUESTION);
        }
        let Some(workspace) = self.workspace(root) else { return };
        workspace.trust_asked = false;
        workspace.dismissed = false;
        let waiting = workspace.waiting.take();
        match (answer, waiting) {
            (Answer::Never, _) => {
                self.end_work(root);
                tokio::spawn(self.profiler.forget(root.to_owned()));
            }
            (_, Some(reason)) => {
                self.queue.ask(root, reason);
                self.start_run();
            }
            (_, None) => {}
        }
        self.send_status(root);
    }

    /// Ends everything of a workspace that runs or is about to, and what would begin by itself. Whether there
    /// was anything.
    pub fn end_work(&mut self, root: &Path) -> bool {
        let had_run = self.queue.stop(root);
        let was_busy = self.gate.stop(root);
        self.forget_measuring_in(root);
        if let Some(workspace) = self.workspace(root) {
            workspace.live.put_off();
            workspace.batch.stop();
            workspace.what_if.stop_probing();
        }
        had_run || was_busy
    }

    /// Lets saves start no run, and ends what they and the server started.
    pub fn pause(&mut self, root: &Path) {
        self.gate.pause(root);
        self.queue.pause(root);
        if let Some(workspace) = self.workspace(root) {
            workspace.live.put_off();
        }
    }

    /// Lets saves start runs again.
    pub fn resume(&mut self, root: &Path) {
        self.gate.resume(root);
        self.prepare(root);
    }

    /// Allows a workspace by command.
    pub fn allow(&mut self, root: &Path) {
        let kept = self.gate.allow(root);
        self.tell_if_not_kept(kept);
        let waiting = self.workspace(root).and_then(|workspace| workspace.waiting.take());
        if let Some(reason) = waiting {
            self.want_run(root, reason);
        }
        self.prepare(root);
        self.estimate_when_idle(root);
        self.send_status(root);
    }

    /// Takes every decision about a workspace back, and stops what it does.
    pub fn revoke(&mut self, root: &Path) {
        let removed = self.gate.revoke(root);
        self.tell_if_not_kept(removed);
        self.end_work(root);
        tokio::spawn(self.profiler.forget(root.to_owned()));
        if let Some(workspace) = self.workspace(root) {
            // Questions that are still open are old ones from now on.
            workspace.trust_asked = false;
            workspace.script_asked = false;
            workspace.waiting = None;
            workspace.dismissed = false;
            workspace.prepared = false;
            workspace.live.clear();
        }
        self.mark_stale();
        self.show_diagnostics(root);
        self.send_status(root);
    }

    fn tell_if_not_kept(&self, kept: Result<(), StoreError>) {
        if let Err(error) = kept {
            let message = format!("Your answer holds for this session, and was not kept: {error}");
            self.to_client.show_message(Importance::Warning, &message);
        }
    }

    /// Makes the first run of a trusted workspace start sooner.
    pub fn prepare(&mut self, root: &Path) {
        let is_prepared = self.workspace(root).is_none_or(|workspace| workspace.prepared);
        if is_prepared || !self.settings.run_on_save {
            return;
        }
        let what = "importing what the project imports";
        let permit = self.gate.permit(root, Cause::Unasked, Kind::Preparing, what);
        let Some(permit) = permit else { return };
        let request = self.request(root, None);
        let Some(workspace) = self.workspace(root) else { return };
        workspace.prepared = true;
        workspace.preparing = true;
        let prepared = self.profiler.prepare(request, permit.clone());
        let events = self.events.clone();
        let root = root.to_owned();
        let event = Event::Prepared(root.clone());
        tokio::spawn(async move {
            // A panic in there has been logged by the hook; the next run tells what is wrong.
            let _ = tokio::spawn(async move { permit.bound(prepared).await }).await;
            let _ = events.send(event).await;
        });
        self.send_status(&root);
    }

    /// The workspace's zygote is there, or is not to be had.
    pub fn prepared(&mut self, root: &Path) {
        if let Some(workspace) = self.workspace(root) {
            workspace.preparing = false;
        }
        self.send_status(root);
        self.estimate_when_idle(root);
    }

    /// What to run in a workspace.
    pub fn request(&self, root: &Path, changed: Option<&Path>) -> ProfileRequest {
        let mut workspaces = self.workspaces.iter();
        let workspace = workspaces.find(|workspace| workspace.root == root);
        ProfileRequest {
            root: root.to_owned(),
            changed: changed.map(Path::to_owned),
            script: workspace.and_then(|workspace| workspace.script.clone()),
            interpreter: self.settings.interpreter.clone(),
            device: self.settings.device.clone(),
            without_sandbox: self.settings.live_without_sandbox,
        }
    }

    /// Starts the next run where none is going.
    pub fn start_run(&mut self) {
        let gate = &mut self.gate;
        let permitted = |root: &Path, reason: &Reason| {
            gate.permit_run(root, reason.cause(), reason.to_string())
        };
        let Some(running) = self.queue.start(permitted) else { return };
        // What somebody types now is estimated when the run is over.
        let machine = self.machine.clone();
        let (id, root, reason) = (running.id, running.root.clone(), running.reason.clone());
        let permit = running.permit.clone();
        self.stop_exploring();
        self.stop_what_ifs();
        self.stop_measuring();
        let request = self.request(&root, reason.file());
        let (news, mut received) = mpsc::channel::<ProgressEvent>(16);
        let (shown, to_show) = mpsc::channel(16);
        let (ended, has_ended) = oneshot::channel();
        let progress = self.client.shows_progress.then(|| {
            tokio::spawn(progress::show(
                self.to_client.clone(),
                token(id),
                "Ridgeline: profiling".to_owned(),
                reason.to_string(),
                to_show,
                has_ended,
            ))
        });
        self.stop_estimates();
        let profile = match &reason {
            Reason::WhatIf(name, _) => self.what_if_run(&root, name, request, news, permit.clone()),
            _ => self.profiler.profile(request, news, permit.clone()),
        };
        let mut run = tokio::spawn(async move {
            let work = async {
                // Estimates let go of it as soon as they are stopped.
                let _alone = tokio::select! {
                    held = machine.lock() => held,
                    () = permit.token().cancelled() => return ProfileOutcome::Cancelled,
                };
                profile.await
            };
            permit.bound(work).await.unwrap_or(ProfileOutcome::Cancelled)
        });
        let events = self.events.clone();
        tokio::spawn(async move {
            // The run's end counts, also where somebody still holds the way for its news.
            let outcome = loop {
                tokio::select! {
                    Some(event) = received.recv() => {
                        // News that nobody takes in time are old news.
                        let _ = shown.try_send(event.clone());
                        let _ = events.try_send(Event::RunProgressed(id, event));
                    }
                    outcome = &mut run => break outcome,
                }
            };
            let outcome = outcome.unwrap_or_else(|error| ProfileOutcome::Problem {
                message: format!("a defect of Ridgeline ended the run: {error}"),
                log: None,
            });
            let _ = ended.send(end_message(&outcome).to_owned());
            // First the progress ends and then the status tells of it: an editor that draws its mode line
            // for the status alone (lsp-mode) would show a run that is over.
            if let Some(progress) = progress {
                let _ = progress.await;
            }
            let _ = events.send(Event::RunEnded(id, Box::new(outcome))).await;
        });
        self.send_status(&root);
    }

    /// A run goes on.
    pub fn run_progressed(&mut self, id: RunId, event: ProgressEvent) {
        let running = self.queue.running().filter(|running| running.id == id);
        let Some(root) = running.map(|running| running.root.clone()) else { return };
        let Some(workspace) = self.workspace(&root) else { return };
        // A new stage is told at once, steps within one now and then.
        if let Some((before, told)) = &workspace.progress
            && before.stage == event.stage
            && told.elapsed() < STATUS_INTERVAL
        {
            return;
        }
        workspace.progress = Some((event, Instant::now()));
        self.send_status(&root);
    }

    /// A run ended. The next one starts.
    pub fn run_ended(&mut self, id: RunId, outcome: ProfileOutcome) {
        let Some(run) = self.queue.finish(id) else { return };
        let root = run.root;
        if let Some(workspace) = self.workspace(&root) {
            workspace.progress = None;
        }
        let was_withdrawn = run.permit.is_withdrawn();
        // What was stopped may all the same have come to its end; nobody wants it any more.
        let outcome = if run.permit.is_valid() { outcome } else { ProfileOutcome::Cancelled };
        let is_once = run.permit.is_once();
        let asked = run.reason.is_asked();
        let (mut measured, about) = (None, run.reason.file().map(Path::to_owned));
        match outcome {
            ProfileOutcome::Measured(profiled) => {
                self.succeeded(&root, profiled.log.clone());
                measured = Some(profiled.profile.device.clone());
                self.take_in(&root, profiled);
            }
            ProfileOutcome::Failed { failure, root: project, log } => {
                let failure = failure_of(project, failure);
                self.failed(&root, failure, log, asked);
            }
            ProfileOutcome::Compared { pair, not_kept } => self.compared(&root, &pair, not_kept),
            ProfileOutcome::NotCompared { message } => self.not_compared(&root, message),
            ProfileOutcome::Cancelled if matches!(run.reason, Reason::WhatIf(..)) => {
                self.what_if_changed(&root, None);
            }
            ProfileOutcome::Cancelled => {}
            ProfileOutcome::Choose { scripts } => {
                let question = self.gate.question(&root, Some(&run.permit));
                self.ask_for_script(&root, question, scripts, run.reason);
            }
            ProfileOutcome::NothingToRun { message } => {
                match self.broken_text(&root, &run.reason) {
                    Some(failure) => self.failed(&root, failure, None, asked),
                    None => {
                        // A save in a workspace that trains nothing is an everyday thing.
                        self.succeeded(&root, None);
                        if asked {
                            self.to_client.show_message(Importance::Info, &message);
                        }
                    }
                }
            }
            ProfileOutcome::Problem { message, log } => {
                self.has_problem(&root, message, log, asked)
            }
        }
        if is_once && self.gate.decision(&root) != Decision::Allowed {
            // That was the one run: nothing of the workspace stays behind in memory.
            tokio::spawn(self.profiler.forget(root.clone()));
        }
        self.start_run();
        if let Some(device) = &measured {
            if let Some(workspace) = self.workspace(&root) {
                workspace.batch.about = about;
            }
            self.look_at_batch(&root);
            if self.settings.measure_batches {
                self.explore_batch(&root, Effort::ShortRuns);
            }
            self.consider_measuring(&root, device);
        }
        self.measure_when_idle();
        self.study_what_ifs(measured.is_some().then_some(root.as_path()));
        self.send_status(&root);
        let is_worth_an_estimate = self.is_worth_an_estimate(&root);
        // Who stopped it wants nothing to begin by itself.
        if is_worth_an_estimate && !was_withdrawn {
            self.estimate_when_idle(&root);
        }
        if measured.is_some() && !is_worth_an_estimate {
            self.text_has_run(&root);
        }
    }

    /// A training script that is no Python at the moment is not found. Where the file that was to be
    /// profiled is such a text, that is what is in the way.
    fn broken_text(&self, root: &Path, reason: &Reason) -> Option<Failure> {
        let file = reason.file()?;
        let open = self.documents.iter().find(|(_, open)| open.real.as_deref() == Some(file));
        let line = open?.1.index.as_ref()?.first_syntax_error()?;
        let path = file.strip_prefix(root).ok()?.to_string_lossy().replace('\\', "/");
        let failure = RunFailure {
            error_type: "SyntaxError".to_owned(),
            message: "from here on this is no Python, so no training script was found".to_owned(),
            kind: "syntax".to_owned(),
            frames: vec![FailureFrame { path, line, name: "<module>".to_owned() }],
            requested_bytes: None,
            memory: None,
        };
        Some(failure_of(root.to_owned(), failure))
    }

    fn succeeded(&mut self, root: &Path, log: Option<PathBuf>) {
        self.forget_failure(root);
        if let Some(workspace) = self.workspace(root) {
            workspace.problem = None;
            workspace.said = None;
            workspace.log = log.or(workspace.log.take());
        }
    }

    fn failed(&mut self, root: &Path, failure: Failure, log: Option<PathBuf>, asked: bool) {
        if failure.report.at.is_none() {
            return self.has_problem(root, failure.report.message, log, asked);
        }
        let first_line = failure.report.message.lines().next().unwrap_or_default().to_owned();
        if let Some(workspace) = self.workspace(root) {
            workspace.failure = Some(Arc::new(failure));
            workspace.problem = Some(first_line);
            workspace.log = log.or(workspace.log.take());
        }
        self.show_diagnostics(root);
    }

    fn has_problem(&mut self, root: &Path, message: String, log: Option<PathBuf>, asked: bool) {
        self.forget_failure(root);
        if let Some(workspace) = self.workspace(root) {
            workspace.problem = message.lines().next().map(str::to_owned);
            workspace.log = log.or(workspace.log.take());
        }
        self.say_once(root, Importance::Error, &message, asked);
    }

    fn ask_for_script(
        &mut self,
        root: &Path,
        question: Question,
        scripts: Vec<PathBuf>,
        reason: Reason,
    ) {
        let (to_client, events) = (self.to_client.clone(), self.events.clone());
        let Some(workspace) = self.workspace(root) else { return };
        if workspace.script_asked || scripts.is_empty() {
            return;
        }
        workspace.script_asked = true;
        let root = root.to_owned();
        let titled: Vec<(String, PathBuf)> = scripts
            .into_iter()
            .take(CHOICE_LIMIT)
            .map(|script| {
                let inside = script.strip_prefix(&root).unwrap_or(&script);
                (inside.display().to_string(), script)
            })
            .collect();
        let titles: Vec<String> = titled.iter().map(|(title, _)| title.clone()).collect();
        let message = "Several scripts train a model here. Which one is to be measured?";
        let answer = to_client.ask(message, &titles);
        tokio::spawn(async move {
            let script = match answer.await {
                Asked::Chosen(chosen) => titled.into_iter().find(|(title, _)| *title == chosen),
                Asked::Closed => None,
                Asked::NotShown => {
                    let message = "Several scripts train a model: name one in ridgeline.toml";
                    to_client.show_message(Importance::Info, message);
                    None
                }
            };
            let script = script.map(|(_, script)| script);
            let _ = events.send(Event::ScriptChosen(root, question, script, reason)).await;
        });
    }

    /// The person said which script is meant, or closed the question. It was asked within a run that
    /// they allowed, and the run goes on with the answer, unless they have taken that back.
    pub fn script_chosen(
        &mut self,
        root: &Path,
        question: Question,
        script: Option<PathBuf>,
        reason: Reason,
    ) {
        if self.workspace(root).is_none() {
            return;
        }
        if !self.gate.is_current(root, question) {
            if script.is_some() {
                self.to_client.show_message(Importance::Info, OLD_QUESTION);
            }
            return;
        }
        let Some(workspace) = self.workspace(root) else { return };
        workspace.script_asked = false;
        let Some(script) = script else { return };
        self.remember_script(root, script);
        if self.gate.go_on(root, question) {
            self.queue.ask(root, reason);
            self.start_run();
        }
        self.send_status(root);
    }

    /// Keeps a choice of script.
    pub fn remember_script(&mut self, root: &Path, script: PathBuf) {
        if let (Some(store), Ok(inside)) = (&self.store, script.strip_prefix(root)) {
            let kept = store.remember_script(root, inside);
            self.tell_if_not_kept(kept);
        }
        if let Some(workspace) = self.workspace(root) {
            workspace.script = Some(script);
        }
    }

    /// The person pressed cancel at a progress.
    pub fn progress_cancelled(&mut self, wanted: &str) {
        let running = self.queue.running().filter(|running| token(running.id) == wanted);
        if let Some(running) = running {
            running.permit.end();
        }
        for workspace in &mut self.workspaces {
            workspace.batch.cancel_progress(wanted);
        }
    }
}

fn failure_of(root: PathBuf, failure: RunFailure) -> Failure {
    let report = failure::report(&failure);
    Failure { root, kind: failure.kind, report }
}

fn token(id: RunId) -> String {
    format!("ridgeline/run/{}", id.0)
}

fn end_message(outcome: &ProfileOutcome) -> &'static str {
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
