//! Questions to the user about a run: whether it may run, and which script. Handles the answers.

use std::path::Path;

use crate::consent::Question;
use crate::event::{Event, WorkspaceEvent};
use crate::lsp::client::{Importance, QuestionResult};
use crate::profiler::{ProfileOutcome, Program, RunChoice};
use crate::scheduler::{Reason, Work, WorkspaceId};
use crate::state::GlobalState;
use crate::store::StoreError;
use crate::trust::{Answer, Decision};

/// The maximum number of scripts to choose from. A message with more buttons is unreadable.
const CHOICE_LIMIT: usize = 8;

/// The reply to an answer that comes too late.
const OLD_QUESTION: &str =
    "That question is outdated, so nothing was run. Save or profile to be asked again.";

impl GlobalState {
    /// Asks whether the workspace may run, unless there is nothing to run.
    pub(crate) fn ask_for_trust(&mut self, id: WorkspaceId, reason: Reason) {
        let workspace = &mut self.workspaces[id];
        // A user who asks for a run while the question is open does not see it, so it is shown
        // again.
        if (workspace.trust_asked || workspace.dismissed) && !reason.is_requested() {
            if workspace.waiting.is_some() {
                workspace.waiting = Some(reason);
            }
            return;
        }
        workspace.trust_asked = true;
        workspace.searches += 1;
        let question = self.gate.question(id, None);
        let finding = self.profiler.find_program(self.request(id, reason.file()));
        let events = self.events.clone();
        tokio::spawn(async move {
            let found = tokio::spawn(finding).await;
            // The panic hook has logged it if this panicked.
            let found = Box::new(found.unwrap_or(Err(ProfileOutcome::Cancelled)));
            let event = WorkspaceEvent::ProgramFound(question, found, reason);
            let _ = events.send(Event::Workspace(id, event)).await;
        });
    }

    /// Continues a request for trust when it is known what would run.
    pub(crate) fn program_found(
        &mut self,
        id: WorkspaceId,
        question: Question,
        found: Result<Program, ProfileOutcome>,
        reason: Reason,
    ) {
        let workspace = &mut self.workspaces[id];
        workspace.searches = workspace.searches.saturating_sub(1);
        if !self.gate.is_current(id, question) {
            return;
        }
        workspace.trust_asked = false;
        match (self.gate.decision(id), found) {
            (Decision::Unknown, Ok(program)) => self.ask_to_run(id, &program, reason),
            (Decision::Unknown, Err(outcome)) => self.nothing_ran(id, &reason, outcome, None),
            // The user has decided by command in the meantime.
            _ => self.request_run(id, reason),
        }
        self.send_status(id);
    }

    fn ask_to_run(&mut self, id: WorkspaceId, program: &Program, reason: Reason) {
        let (to_client, events) = (self.to_client.clone(), self.events.clone());
        let question = self.gate.question(id, None);
        let workspace = &mut self.workspaces[id];
        workspace.trust_asked = true;
        workspace.waiting = Some(reason);
        let root = workspace.root.clone();
        let message = format!(
            "Run a few training steps of {}{} in {} to profile it? \"{}\" also runs a few steps on \
            every save. While you type, unsaved code is only simulated in a sandbox and writes \
            nothing.",
            program.command,
            program.launcher.as_ref().map(|by| format!(" with `{by}`")).unwrap_or_default(),
            root.file_name().unwrap_or(root.as_os_str()).to_string_lossy(),
            Answer::Always.title(),
        );
        let answer = to_client.ask(&message, &Answer::ALL.map(|it| it.title().to_owned()));
        tokio::spawn(async move {
            let answer = match answer.await {
                QuestionResult::Chosen(title) => Answer::of_title(&title),
                QuestionResult::Closed => None,
                QuestionResult::NotShown => {
                    let message = "Allow Ridgeline to run this project with a code action or the \
                        command ridgeline.trust";
                    to_client.show_message(Importance::Info, message);
                    None
                }
            };
            let _ = events.send(Event::TrustAnswered(root, question, answer)).await;
        });
    }

    /// Handles the answer to the trust question, or that it was closed. The answer is about a
    /// folder, which may have been closed, or closed and opened again, since the question.
    pub(crate) fn trust_answered(
        &mut self,
        root: &Path,
        question: Question,
        answer: Option<Answer>,
    ) {
        let Some(id) = self.workspaces.at(root) else {
            if answer == Some(Answer::Never) {
                let saved = self.gate.refuse(root);
                self.report_unsaved_decision(saved);
            }
            return;
        };
        let Some(answer) = answer else {
            if self.gate.is_current(id, question) {
                let workspace = &mut self.workspaces[id];
                workspace.trust_asked = false;
                workspace.dismissed = true;
            }
            return self.send_status(id);
        };
        let counts = match self.gate.answer(id, question, answer) {
            Ok(counts) => counts,
            Err(error) => {
                self.report_unsaved_decision(Err(error));
                true
            }
        };
        if !counts {
            return self.to_client.show_message(Importance::Info, OLD_QUESTION);
        }
        let workspace = &mut self.workspaces[id];
        workspace.trust_asked = false;
        workspace.dismissed = false;
        let waiting = workspace.waiting.take();
        match (answer, waiting) {
            (Answer::Never, _) => {
                self.end_work(id);
                self.forget_processes(id);
            }
            (_, Some(reason)) => {
                self.scheduler.enqueue(id, Work::Run(reason));
            }
            (_, None) => {}
        }
        self.send_status(id);
    }

    /// Trusts a workspace by command.
    pub(crate) fn allow(&mut self, id: WorkspaceId) {
        let saved = self.gate.allow(id);
        self.report_unsaved_decision(saved);
        if let Some(reason) = self.workspaces[id].waiting.take() {
            self.request_run(id, reason);
        }
        self.prepare(id);
        self.estimate_when_idle(id);
        self.send_status(id);
    }

    /// Withdraws every decision about a workspace, and stops what it does.
    pub(crate) fn revoke(&mut self, id: WorkspaceId) {
        let removed = self.gate.revoke(id);
        self.report_unsaved_decision(removed);
        self.end_work(id);
        self.forget_processes(id);
        let workspace = &mut self.workspaces[id];
        // Questions that are still open are outdated from now on.
        workspace.trust_asked = false;
        workspace.script_asked = false;
        workspace.waiting = None;
        workspace.dismissed = false;
        workspace.prepared = false;
        self.clear_estimates(id);
        self.mark_stale();
        self.show_diagnostics(id);
        self.send_status(id);
    }

    fn report_unsaved_decision(&self, saved: Result<(), StoreError>) {
        if let Err(error) = saved {
            let message = format!(
                "Could not save your answer; it applies to this session only: \
                {error}"
            );
            self.to_client.show_message(Importance::Warning, &message);
        }
    }

    pub(crate) fn ask_for_script(
        &mut self,
        id: WorkspaceId,
        question: Question,
        runs: Vec<RunChoice>,
        reason: Reason,
    ) {
        let (to_client, events) = (self.to_client.clone(), self.events.clone());
        let workspace = &mut self.workspaces[id];
        if workspace.script_asked || runs.is_empty() {
            return;
        }
        workspace.script_asked = true;
        let titles: Vec<String> =
            runs.iter().take(CHOICE_LIMIT).map(|run| run.command.clone()).collect();
        let message = choice_message(&runs);
        let answer = to_client.ask(&message, &titles);
        tokio::spawn(async move {
            let script = match answer.await {
                QuestionResult::Chosen(chosen) => titles.into_iter().find(|title| *title == chosen),
                QuestionResult::Closed => None,
                QuestionResult::NotShown => {
                    let message = format!("{message} Set one in ridgeline.toml");
                    to_client.show_message(Importance::Info, &message);
                    None
                }
            };
            let _ = events
                .send(Event::Workspace(id, WorkspaceEvent::ScriptChosen(question, script, reason)))
                .await;
        });
    }

    /// Handles the choice of the training script, or that the question was closed. If it was asked
    /// during a run that the user allowed, the run continues with the answer unless they have
    /// withdrawn that.
    pub(crate) fn script_chosen(
        &mut self,
        id: WorkspaceId,
        question: Question,
        script: Option<String>,
        reason: Reason,
    ) {
        if !self.gate.is_current(id, question) {
            if script.is_some() {
                self.to_client.show_message(Importance::Info, OLD_QUESTION);
            }
            return;
        }
        let is_undecided = self.gate.decision(id) == Decision::Unknown;
        let workspace = &mut self.workspaces[id];
        workspace.script_asked = false;
        let Some(script) = script else {
            workspace.dismissed |= is_undecided;
            return;
        };
        self.remember_run(id, script);
        if self.gate.continue_run(id, question) {
            self.scheduler.enqueue(id, Work::Run(reason));
        } else {
            // The question came before the one for trust.
            self.request_run(id, reason);
        }
        self.send_status(id);
    }

    /// Remembers a choice: a script's path relative to the root, or a command.
    pub(crate) fn remember_run(&mut self, id: WorkspaceId, run: String) {
        if let Some(store) = &self.store {
            let (store, root, saved) =
                (store.clone(), self.workspaces[id].root.clone(), run.clone());
            let saved = self.disk.ask(move || store.remember_run(&root, &saved));
            // A slow write may still succeed.
            self.report_unsaved_decision(saved.unwrap_or(Ok(())));
        }
        self.workspaces[id].script = Some(run);
    }
}

/// Returns the question, with the reasons for the likeliest scripts, for which the editor's buttons
/// have no room.
fn choice_message(runs: &[RunChoice]) -> String {
    const EXPLAINED: usize = 3;
    let explained = runs.iter().take(EXPLAINED).filter(|run| !run.why.is_empty());
    let explained: Vec<String> =
        explained.map(|run| format!("{} ({})", run.command, run.why)).collect();
    let explained = explained.join("; ");
    format!(
        "Several scripts could be the training script: {explained}. Which one should be \
        profiled?"
    )
}
