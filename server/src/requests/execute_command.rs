//! `workspace/executeCommand`: what a person can tell the server to do.

use std::path::{Path, PathBuf};

use ridgeline_analysis::present::panel;
use serde_json::Value;
use tower_lsp::ls_types::ExecuteCommandParams;

use super::CommandReply;
use crate::batch::Effort;
use crate::documents::{real_path, texts_on_disk};
use crate::event::Event;
use crate::findings::Kept;
use crate::live::target_gpu;
use crate::lsp::client::Importance;
use crate::lsp::ext::command;
use crate::lsp::from_proto::path_argument;
use crate::lsp::to_proto::uri_text;
use crate::panel::answer::unmended;
use crate::pool::{RequestError, guarded};
use crate::profiler::Profiled;
use crate::report;
use crate::run_queue::Reason;
use crate::state::{GlobalState, Workspace};
use crate::stopping;
use crate::store::{Store, create_private, write_atomic};
use crate::what_if::Found;

/// Does what a command says. Its answer is sent when it has been begun, a client that waits for it
/// would have to wait for a training run; and behind what it asks or shows at once, see
/// [`Outbox::request`](crate::outbox::Outbox::request).
pub fn execute(state: &mut GlobalState, params: ExecuteCommandParams, reply: CommandReply) {
    let argument = path_argument(&params.arguments);
    let known = command::ALL.iter().any(|(name, _)| *name == params.command);
    let answer = if !known {
        Err(RequestError::Invalid(format!("there is no command {}", params.command)))
    } else {
        match state.meant(argument.clone()) {
            Some(root) if params.command == command::SET_BATCH_SIZE => {
                let batch = params.arguments.first().and_then(|first| first.get("batch"));
                return state.set_batch_by_command(&root, batch.and_then(Value::as_u64), reply);
            }
            Some(root) if params.command == command::MEASURE_WHAT_IF => {
                let name = params.arguments.first().and_then(|first| first.get("name"));
                state.measure_by_command(&root, name);
                Ok(None)
            }
            Some(root) if params.command == command::APPLY_WHAT_IF => {
                let name = params.arguments.first().and_then(|first| first.get("name"));
                let file = argument.map(|path| real_path(&path));
                let name = name.and_then(Value::as_str);
                return state.apply_by_command(&root, file.as_deref(), name, reply);
            }
            Some(root) if params.command == command::STOP => {
                return stop_by_command(state, &root, reply);
            }
            Some(root) => {
                match params.command.as_str() {
                    command::SELECT_TARGET_GPU => {
                        state.select_target(&root, target_gpu::argument(&params.arguments));
                        state.send_status(&root);
                    }
                    name => run(state, name, &root, argument),
                }
                Ok(None)
            }
            None => {
                let message =
                    "No workspace folder or Python file is open, so there is nothing to do.";
                state.to_client.show_message(Importance::Info, message);
                Ok(None)
            }
        }
    };
    // The client may have cancelled.
    let _ = reply.send(answer);
}

/// Does what a command says in the workspace at `root`.
pub fn run(state: &mut GlobalState, name: &str, root: &Path, argument: Option<PathBuf>) {
    match name {
        command::PROFILE => {
            let file = argument.filter(|path| path.is_file()).or(state.last_touched.clone());
            let file = file.filter(|file| file.starts_with(root));
            state.want_run(root, Reason::Asked(file));
        }
        command::STOP => drop(stop(state, root)),
        command::PAUSE => state.pause(root),
        command::RESUME => state.resume(root),
        command::CLEAR => clear(state, root),
        command::SHOW_OUTPUT => show_output(state, root),
        command::SHOW_REPORT => show_report(state, root),
        command::OPEN_PANEL => state.open_panel(root),
        command::TRUST => state.allow(root),
        command::REVOKE_TRUST => state.revoke(root),
        command::EXPLORE_BATCH_SIZE => explore_batch_size(state, root),
        command::SELECT_SCRIPT => select_script(state, root, argument),
        _ => {}
    }
    state.send_status(root);
}

fn with(state: &mut GlobalState, root: &Path, change: impl FnOnce(&mut Workspace)) {
    if let Some(workspace) = state.workspace(root) {
        change(workspace);
    }
}

/// Stops what runs or waits in a workspace; whether there was anything. A run has a progress, which ends
/// for all to see; of everything else the person is told.
fn stop(state: &mut GlobalState, root: &Path) -> bool {
    let has_run = state.queue.running().is_some_and(|running| running.root == root);
    let was_busy = state.end_work(root);
    match (was_busy, has_run) {
        (true, true) => {}
        (true, false) => state.to_client.show_message(Importance::Info, "Stopped."),
        (false, _) => state.to_client.show_message(Importance::Info, "Nothing is running."),
    }
    was_busy
}

/// Does the same, and answers when it has ended, or after [`stopping::LIMIT`].
fn stop_by_command(state: &mut GlobalState, root: &Path, reply: CommandReply) {
    stop(state, root);
    state.send_status(root);
    let number = state.next_number();
    // Where nothing runs it is answered at the end of this turn.
    if state.stopping.wait(root.to_owned(), number, reply) {
        let events = state.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(stopping::LIMIT).await;
            // Where the event loop is over, nobody waits.
            let _ = events.send(Event::StopOverdue(number)).await;
        });
    }
}

fn clear(state: &mut GlobalState, root: &Path) {
    let feed = state.feed.clone();
    with(state, root, |workspace| {
        workspace.measured.clear();
        workspace.live.clear();
        workspace.findings.clear();
        feed.changed(workspace.number);
        workspace.problem = None;
        workspace.said = None;
    });
    state.forget_failure(root);
    state.mark_stale();
}

fn explore_batch_size(state: &mut GlobalState, root: &Path) {
    let measured = state.workspace(root).is_some_and(|workspace| !workspace.measured.is_empty());
    if !measured {
        let message = "Nothing of this workspace was measured yet: profile it first.";
        state.to_client.show_message(Importance::Info, message);
    }
    state.explore_batch(root, Effort::Runs);
}

fn show_output(state: &mut GlobalState, root: &Path) {
    let log = state.workspace(root).and_then(|workspace| workspace.log.clone());
    match log.filter(|log| log.is_file()) {
        Some(log) => {
            let told = format!("What the program printed is in {}", log.display());
            let can_show = state.client.shows_documents;
            state.to_client.show_or_tell(&uri_text(&log), false, can_show, told);
        }
        None => {
            let message = "There is no output: no run of this workspace has printed anything yet.";
            state.to_client.show_message(Importance::Info, message);
        }
    }
}

fn show_report(state: &mut GlobalState, root: &Path) {
    let newest = state.workspace(root).and_then(|workspace| {
        let (generation, profiled) = workspace.measured.first().cloned()?;
        let what_ifs = workspace.what_if.of(generation).cloned();
        Some((workspace.findings.of(generation).cloned(), what_ifs, profiled))
    });
    let (Some((kept, what_ifs, profiled)), Some(store)) = (newest, state.store.clone()) else {
        let message = "There is no report: nothing of this workspace was measured yet.";
        return state.to_client.show_message(Importance::Info, message);
    };
    let (to_client, can_show) = (state.to_client.clone(), state.client.shows_documents);
    tokio::spawn(async move {
        let written = tokio::task::spawn_blocking(move || {
            guarded(|| write_report(&store, &profiled, kept.as_deref(), what_ifs.as_ref()))
        });
        let why = match written.await {
            Ok(Ok(file)) => {
                let told = format!("The report is in {}", file.display());
                return to_client.show_or_tell(&uri_text(&file), true, can_show, told);
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        to_client.show_message(Importance::Error, &format!("The report was not written: {why}"));
    });
}

/// Writes the report of a profile into the cache; gives its path.
fn write_report(
    store: &Store,
    profiled: &Profiled,
    kept: Option<&Kept>,
    what_ifs: Option<&Found>,
) -> Result<PathBuf, RequestError> {
    let texts = texts_on_disk(&profiled.files);
    let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
    let found = kept.map(|kept| panel::Findings { found: unmended(&kept.findings), message: None });
    let page = report::page(profiled, &texts, found.as_ref(), what_ifs, store)
        .map_err(|error| RequestError::Internal(format!("{error:#}")))?;
    let folder = store.recordings(&profiled.root);
    let file = folder.join("report.html");
    create_private(&folder)
        .and_then(|()| write_atomic(&file, page.as_bytes()))
        .map_err(|error| RequestError::Internal(error.to_string()))?;
    Ok(file)
}

fn select_script(state: &mut GlobalState, root: &Path, argument: Option<PathBuf>) {
    let script = argument.filter(|path| path.is_file() && path.starts_with(root));
    match script {
        Some(script) => state.remember_script(root, script),
        None => {
            if let Some(Err(error)) = state.store.as_ref().map(|store| store.forget_script(root)) {
                let message = format!("The choice of before was not forgotten: {error}");
                state.to_client.show_message(Importance::Warning, &message);
            }
            with(state, root, |workspace| workspace.script = None);
        }
    }
    state.want_run(root, Reason::Asked(None));
}
