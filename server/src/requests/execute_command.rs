//! `workspace/executeCommand`: the server's commands.

use std::path::PathBuf;

use ridgeline_analysis::base::printable::one_line;
use ridgeline_analysis::present::panel;
use serde_json::Value;
use tower_lsp::ls_types::ExecuteCommandParams;

use super::CommandReply;
use crate::batch::SweepEffort;
use crate::delayed_responses::{LIMIT, Until};
use crate::documents::texts_on_disk;
use crate::event::Event;
use crate::findings::FindingSet;
use crate::live::target_gpu;
use crate::lsp::client::Importance;
use crate::lsp::ext::command;
use crate::lsp::from_proto::path_argument;
use crate::lsp::to_proto::uri_text;
use crate::panel::answer::findings_without_edits;
use crate::pool::{RequestError, guarded};
use crate::profiler::Profiled;
use crate::report;
use crate::scheduler::{Reason, WorkspaceId};
use crate::state::GlobalState;
use crate::store::{Store, create_private, write_atomic};
use crate::what_if::StudyOutcome;

/// Executes a command. The response is sent once the command has started, because otherwise the
/// client would wait for a whole training run. It is sent after any question or message that the
/// command shows at once, see [`Outbox::request`](crate::outbox::Outbox::request).
pub(super) fn execute(state: &mut GlobalState, params: ExecuteCommandParams, reply: CommandReply) {
    let argument = path_argument(&params.arguments);
    let known = command::ALL.iter().any(|(name, _)| *name == params.command);
    let answer = if !known {
        Err(RequestError::Invalid(format!("unknown command {}", one_line(&params.command, 60))))
    } else {
        match state.target_workspace(argument.clone()) {
            Some(id) if params.command == command::SET_BATCH_SIZE => {
                let batch = params.arguments.first().and_then(|first| first.get("batch"));
                return state.set_batch_by_command(id, batch.and_then(Value::as_u64), reply);
            }
            Some(id) if params.command == command::MEASURE_WHAT_IF => {
                let name = params.arguments.first().and_then(|first| first.get("name"));
                state.measure_by_command(id, name);
                return respond(state, id, reply);
            }
            Some(id) if params.command == command::APPLY_WHAT_IF => {
                let name = params.arguments.first().and_then(|first| first.get("name"));
                let file = argument.map(|path| state.disk.real_path(&path));
                let name = name.and_then(Value::as_str);
                return state.apply_by_command(id, file.as_deref(), name, reply);
            }
            Some(id) if params.command == command::STOP => {
                return stop_by_command(state, id, reply);
            }
            Some(id) => {
                match params.command.as_str() {
                    command::SELECT_TARGET_GPU => {
                        state.select_target(id, target_gpu::argument(&params.arguments));
                        state.send_status(id);
                    }
                    name => run(state, name, id, argument),
                }
                return respond(state, id, reply);
            }
            None => {
                let message = "No workspace folder or Python file is open.";
                state.to_client.show_message(Importance::Info, message);
                Ok(None)
            }
        }
    };
    // Sending fails if the client has cancelled.
    let _ = reply.send(answer);
}

/// Responds to a command that has started, after the question that it may lead to.
fn respond(state: &mut GlobalState, id: WorkspaceId, reply: CommandReply) {
    if state.workspaces[id].searches > 0 {
        return respond_later(state, id, Until::ProgramFound, reply);
    }
    // Sending fails if the client has cancelled.
    let _ = reply.send(Ok(None));
}

/// Executes a command in a workspace.
pub(super) fn run(state: &mut GlobalState, name: &str, id: WorkspaceId, argument: Option<PathBuf>) {
    match name {
        command::PROFILE => {
            let file =
                argument.filter(|path| state.disk.is_file(path)).or(state.last_touched.clone());
            let file = file.filter(|file| file.starts_with(&state.workspaces[id].root));
            state.request_run(id, Reason::Requested(file));
        }
        command::STOP => drop(stop(state, id)),
        command::PAUSE => state.pause(id),
        command::RESUME => state.resume(id),
        command::CLEAR => clear(state, id),
        command::SHOW_OUTPUT => show_output(state, id),
        command::SHOW_REPORT => show_report(state, id),
        command::OPEN_PANEL => state.open_panel(id),
        command::TRUST => state.allow(id),
        command::REVOKE_TRUST => state.revoke(id),
        command::EXPLORE_BATCH_SIZE => explore_batch_size(state, id),
        command::SELECT_SCRIPT => select_script(state, id, argument),
        _ => {}
    }
    state.send_status(id);
}

/// Stops running and queued jobs of a workspace. Returns whether there were any. A run ends visibly
/// with its progress. For other jobs, a message is shown.
fn stop(state: &mut GlobalState, id: WorkspaceId) -> bool {
    let has_run = state.scheduler.run_of(id).is_some();
    let was_busy = state.end_work(id);
    match (was_busy, has_run) {
        (true, true) => {}
        (true, false) => state.to_client.show_message(Importance::Info, "Stopped."),
        (false, _) => state.to_client.show_message(Importance::Info, "Nothing is running."),
    }
    was_busy
}

/// Responds when it is time to, or after [`LIMIT`].
fn respond_later(state: &mut GlobalState, id: WorkspaceId, until: Until, reply: CommandReply) {
    let number = state.next_number();
    if state.delayed_responses.wait(id, until, number, reply) {
        let events = state.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LIMIT).await;
            // Sending fails only after the event loop has ended.
            let _ = events.send(Event::ResponseOverdue(number)).await;
        });
    }
}

/// Stops all jobs and responds when they have ended, or after [`LIMIT`].
fn stop_by_command(state: &mut GlobalState, id: WorkspaceId, reply: CommandReply) {
    stop(state, id);
    state.send_status(id);
    // If nothing runs, the response is sent at the end of this turn.
    respond_later(state, id, Until::Stopped, reply);
}

fn clear(state: &mut GlobalState, id: WorkspaceId) {
    state.clear_estimates(id);
    let workspace = &mut state.workspaces[id];
    workspace.measured.clear();
    workspace.findings.clear();
    workspace.problem = None;
    workspace.last_message = None;
    state.feed.changed(id);
    state.study_what_ifs(None);
    state.forget_failure(id);
    state.mark_stale();
}

fn explore_batch_size(state: &mut GlobalState, id: WorkspaceId) {
    if state.workspaces[id].measured.is_empty() {
        let message = match state.scheduler.run_of(id) {
            Some(_) => "The first run has not ended yet. Try again when it has.",
            None => "This workspace has not been profiled yet. Profile it first.",
        };
        state.to_client.show_message(Importance::Info, message);
    }
    state.sweep_batch_sizes(id, SweepEffort::Runs);
}

fn show_output(state: &mut GlobalState, id: WorkspaceId) {
    let log = state.workspaces[id].log.clone();
    match log.filter(|log| state.disk.is_file(log)) {
        Some(log) => {
            let message = format!("The program's output is in {}", log.display());
            let can_show = state.client.shows_documents;
            state.to_client.show_document(&uri_text(&log), false, can_show, message);
        }
        None => {
            let message = "No output yet: no run of this workspace has printed anything.";
            state.to_client.show_message(Importance::Info, message);
        }
    }
}

fn show_report(state: &mut GlobalState, id: WorkspaceId) {
    let workspace = &state.workspaces[id];
    let newest = workspace.measured.first().cloned().map(|(generation, profiled)| {
        let what_ifs = workspace.what_if.of(generation).cloned();
        (workspace.findings.of(generation).cloned(), what_ifs, profiled)
    });
    let (Some((findings, what_ifs, profiled)), Some(store)) = (newest, state.store.clone()) else {
        let message = "No report yet: this workspace has not been profiled.";
        return state.to_client.show_message(Importance::Info, message);
    };
    let (to_client, can_show) = (state.to_client.clone(), state.client.shows_documents);
    tokio::spawn(async move {
        let written = tokio::task::spawn_blocking(move || {
            guarded(|| write_report(&store, &profiled, findings.as_deref(), what_ifs.as_ref()))
        });
        let why = match written.await {
            Ok(Ok(file)) => {
                let message = format!("The report is in {}", file.display());
                return to_client.show_document(&uri_text(&file), true, can_show, message);
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        to_client.show_message(Importance::Error, &format!("Could not write the report: {why}"));
    });
}

/// Writes the report of a profile into the cache. Returns its path.
fn write_report(
    store: &Store,
    profiled: &Profiled,
    findings: Option<&FindingSet>,
    what_ifs: Option<&StudyOutcome>,
) -> Result<PathBuf, RequestError> {
    let texts = texts_on_disk(&profiled.files);
    let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
    let found = findings.map(|findings| panel::Findings {
        found: findings_without_edits(&findings.findings),
        message: None,
    });
    let page = report::page(profiled, &texts, found.as_ref(), what_ifs, store)
        .map_err(|error| RequestError::Internal(format!("{error:#}")))?;
    let folder = store.recordings(&profiled.root);
    let file = folder.join("report.html");
    create_private(&folder)
        .and_then(|()| write_atomic(&file, page.as_bytes()))
        .map_err(|error| RequestError::Internal(error.to_string()))?;
    Ok(file)
}

fn select_script(state: &mut GlobalState, id: WorkspaceId, argument: Option<PathBuf>) {
    let root = state.workspaces[id].root.clone();
    let script = argument.filter(|path| path.starts_with(&root) && state.disk.is_file(path));
    match script {
        Some(script) => {
            let inside = script.strip_prefix(&root).unwrap_or(&script);
            state.remember_run(id, inside.to_string_lossy().replace('\\', "/"));
        }
        None => {
            let (store, root) = (state.store.clone(), root.clone());
            let forgotten = state.disk.ask(move || store.map(|store| store.forget_script(&root)));
            if let Some(Some(Err(error))) = forgotten {
                let message = format!("Could not clear the saved choice: {error}");
                state.to_client.show_message(Importance::Warning, &message);
            }
            state.workspaces[id].script = None;
        }
    }
    state.request_run(id, Reason::Requested(None));
}
