//! Runs: one at a time, with progress, working cancellation, and a message if nothing was measured.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::fake::{Session, StartedRun, measured_in};
use crate::profiler::{ProfileOutcome, ProgressEvent, RunChoice};
use crate::scheduler::Reason;

fn with_progress() -> Value {
    json!({"window": {"workDoneProgress": true}})
}

#[tokio::test]
async fn fifty_saves_are_two_runs() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    let script = session.uri("train.py");
    for _ in 1..50 {
        session.client.save(&script).await;
    }
    let first = session.next_run().await;
    session.client.command("ridgeline.resume", json!([])).await.expect("every save has arrived");
    assert!(!session.has_run().await);
    first.end.send(session.measured()).expect("waiting");
    let second = session.next_run().await;
    second.end.send(session.measured()).expect("waiting");
    session.client.status("idle").await;
    session.client.command("ridgeline.resume", json!([])).await.expect("done");
    assert!(!session.has_run().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_run_shows_progress_and_its_end() {
    let mut session = Session::initialized(with_progress(), true).await;
    session.open_and_save().await;
    let run = session.next_run().await;
    let (id, params) = session.client.wait_for_request("window/workDoneProgress/create").await;
    session.client.reply(&id, Value::Null).await;
    let begin = session.client.notification("$/progress").await;
    assert_eq!(begin["token"], params["token"]);
    assert_eq!(begin["value"]["message"], "train.py was saved");
    assert_eq!(begin["value"]["cancellable"], true);
    let warm = ProgressEvent { stage: "warming up".to_owned(), share: Some(0.25) };
    run.progress.send(warm).await.expect("listening");
    let report = session.client.notification("$/progress").await;
    assert_eq!(report["value"]["percentage"], 25);
    run.end.send(session.measured()).expect("waiting");
    let end = session.client.notification("$/progress").await;
    assert_eq!(end["value"], json!({"kind": "end", "message": "measured"}));
    session.client.goodbye().await;
}

#[tokio::test]
async fn cancelling_the_progress_stops_the_run() {
    let mut session = Session::initialized(with_progress(), true).await;
    session.open_and_save().await;
    let run = session.next_run().await;
    let (id, params) = session.client.wait_for_request("window/workDoneProgress/create").await;
    session.client.reply(&id, Value::Null).await;
    session.client.notification("$/progress").await;
    let wrong = json!({"token": 4711});
    session.client.notify("window/workDoneProgress/cancel", wrong).await;
    let token = json!({"token": params["token"]});
    session.client.notify("window/workDoneProgress/cancel", token).await;
    run.cancel.cancelled().await;
    let end = session.client.notification("$/progress").await;
    assert_eq!(end["value"]["message"], "stopped");
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_client_that_refuses_progress_gets_none() {
    let mut session = Session::initialized(with_progress(), true).await;
    session.open_and_save().await;
    let run = session.next_run().await;
    let (id, _) = session.client.wait_for_request("window/workDoneProgress/create").await;
    let error = json!({"code": -32600, "message": "no"});
    session.client.send(&json!({"jsonrpc": "2.0", "id": id, "error": error})).await;
    run.end.send(session.measured()).expect("waiting");
    session.client.status("idle").await;
    assert!(!session.client.has_unread("$/progress").await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn stop_ends_the_run_and_forgets_the_pending_one() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    let run = session.next_run().await;
    let script = session.uri("train.py");
    session.client.save(&script).await;
    session.client.command("ridgeline.stop", json!([])).await.expect("done");
    run.cancel.cancelled().await;
    session.client.status("idle").await;
    assert!(!session.has_run().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_paused_workspace_only_runs_on_command() {
    let mut session = Session::initialized(json!({}), true).await;
    session.client.command("ridgeline.pause", json!([])).await.expect("done");
    session.client.status("paused").await;
    session.open_and_save().await;
    let script = session.uri("train.py");
    session.client.command("ridgeline.profile", json!([script])).await.expect("done");
    let run = session.next_run().await;
    assert_eq!(run.request.changed, Some(session.root.join("train.py")));
    run.end.send(session.measured()).expect("waiting");
    session.client.status("paused").await;
    session.client.command("ridgeline.resume", json!([])).await.expect("done");
    session.client.save(&script).await;
    session.next_run().await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_problem_is_reported_once_and_again_on_command() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    let problem = || ProfileOutcome::Problem { message: "no torch here".to_owned(), log: None };
    session.next_run().await.end.send(problem()).expect("waiting");
    let message = session.client.notification("window/showMessage").await;
    assert_eq!(message, json!({"type": 1, "message": "no torch here"}));
    let status = session.client.status("failed").await;
    assert_eq!(status["message"], "no torch here");
    let script = session.uri("train.py");
    session.client.save(&script).await;
    session.next_run().await.end.send(problem()).expect("waiting");
    session.client.command("ridgeline.profile", json!([])).await.expect("done");
    session.next_run().await.end.send(problem()).expect("waiting");
    session.client.notification("window/showMessage").await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_choice_of_scripts_is_asked_once_and_remembered() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    let runs = vec![
        RunChoice { command: "train.py".to_owned(), why: "started in README.md".to_owned() },
        RunChoice { command: "other.py".to_owned(), why: String::new() },
    ];
    session.next_run().await.end.send(ProfileOutcome::Choose { runs }).expect("waiting");
    let (id, params) = session.client.wait_for_request("window/showMessageRequest").await;
    let message = params["message"].as_str().expect("a message");
    assert!(message.contains("train.py (started in README.md)"), "{message}");
    assert_eq!(params["actions"], json!([{"title": "train.py"}, {"title": "other.py"}]));
    session.client.reply(&id, json!({"title": "other.py"})).await;
    let run = session.next_run().await;
    assert_eq!(run.request.script.as_deref(), Some("other.py"));
    run.end.send(session.measured()).expect("waiting");
    session.client.status("idle").await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn several_roots_are_separate() {
    let mut session = Session::initialized(json!({}), true).await;
    let other = session.root.parent().expect("a parent").join("other");
    std::fs::create_dir(&other).expect("created");
    std::fs::write(other.join("train.py"), super::fake::SCRIPT).expect("written");
    let added = json!([{"uri": super::fake::uri(&other), "name": "other"}]);
    let event = json!({"event": {"added": added, "removed": []}});
    session.client.notify("workspace/didChangeWorkspaceFolders", event).await;
    session.open_and_save().await;
    let theirs = super::fake::uri(&other.join("train.py"));
    session.client.open(&theirs, super::fake::SCRIPT).await;
    session.client.save(&theirs).await;
    let first = session.next_run().await;
    assert_eq!(first.request.root, session.root);
    first.end.send(session.measured()).expect("waiting");
    let second = session.next_run().await;
    assert_eq!(second.request.root, other);
    second.end.send(measured_in(&other)).expect("waiting");
    let removed = json!([{"uri": super::fake::uri(&other), "name": "other"}]);
    let event = json!({"event": {"added": [], "removed": removed}});
    session.client.notify("workspace/didChangeWorkspaceFolders", event).await;
    assert_eq!(session.hints("train.py").await.len(), 2);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_run_that_panics_early_does_not_block_others() {
    let mut session = Session::initialized(json!({}), true).await;
    for is_first in [true, false] {
        session.profiler.panics.store(true, Ordering::Relaxed);
        session.client.command("ridgeline.profile", json!([])).await.expect("alive");
        if is_first {
            let message = session.client.notification("window/showMessage").await;
            let message = message["message"].as_str().expect("a text");
            assert!(
                message.starts_with("Ridgeline hit an internal error and recovered."),
                "{message}"
            );
        }
        session.client.command("ridgeline.profile", json!([])).await.expect("alive");
        let run = session.next_run().await;
        session.client.status("running").await;
        run.end.send(session.measured()).expect("waiting");
        session.client.status("idle").await;
    }
    // It is reported once.
    assert!(!session.client.has_unread("window/showMessage").await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_run_that_waits_begins_after_one_that_panicked() {
    let mut session = Session::initialized(json!({}), true).await;
    let first = {
        session.open_and_save().await;
        session.next_run().await
    };
    // One run is queued for each of two folders, and the first one panics.
    let other = session.root.with_file_name("other");
    std::fs::create_dir(&other).expect("created");
    std::fs::write(other.join("train.py"), super::fake::SCRIPT).expect("written");
    let script = super::fake::uri(&other.join("train.py"));
    session.client.open(&script, super::fake::SCRIPT).await;
    session.client.save(&session.uri("train.py")).await;
    session.client.save(&script).await;
    session.profiler.panics.store(true, Ordering::Relaxed);
    first.end.send(session.measured()).expect("waiting");
    assert_eq!(session.next_run().await.request.root, other);
    session.client.notification("window/showMessage").await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_run_ends_with_the_session() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    let run = session.next_run().await;
    session.client.hang_up().await;
    run.cancel.cancelled().await;
}

#[tokio::test]
async fn changes_from_outside_are_a_reason_and_the_editors_own_are_not_one_more() {
    let mut session = Session::start();
    let root = super::fake::uri(&session.root);
    let folder = json!([{"uri": root, "name": "project"}]);
    let more = json!({"workspaceFolders": folder, "initializationOptions": {"trusted": true}});
    session.client.hello(json!({}), more).await;
    // The watcher is ready when it reports something.
    let outside = session.root.join("outside.py");
    let first = loop {
        std::fs::write(&outside, "x = 1\n").expect("written");
        let run = tokio::time::timeout(std::time::Duration::from_secs(2), session.next_run());
        if let Ok(run) = run.await {
            break run;
        }
    };
    assert_eq!(first.request.changed.as_ref(), Some(&outside));
    first.end.send(session.measured()).expect("waiting");
    // The editor writes the file and sends a notification: one run, although the watcher reports it
    // as well.
    session.open_and_save().await;
    std::fs::write(session.root.join("train.py"), super::fake::SCRIPT).expect("written");
    let saved = begun_for_another(&session, &outside).await;
    assert_eq!(saved.request.changed, Some(session.root.join("train.py")));
    saved.end.send(session.measured()).expect("waiting");
    // The user may type before the watcher reports that save.
    let script = session.uri("train.py");
    let start = json!({"line": 0, "character": 0});
    let edit = json!([{"range": {"start": start, "end": start}, "text": "# more\n"}]);
    session.client.change(&script, 2, edit).await;
    session.hints("train.py").await;
    std::fs::write(session.root.join("train.py"), super::fake::SCRIPT).expect("written");
    let marker = session.root.join("marker.py");
    std::fs::write(&marker, "x = 1\n").expect("written");
    let next = begun_for_another(&session, &outside).await;
    assert_eq!(next.request.changed, Some(marker));
    session.client.goodbye().await;
}

/// The next run with a reason other than `known`, which may be reported more than once.
async fn begun_for_another(session: &Session, known: &std::path::Path) -> StartedRun {
    loop {
        let run = session.next_run().await;
        if run.request.changed.as_deref() != Some(known) {
            return run;
        }
        run.end.send(session.measured()).expect("waiting");
    }
}

#[tokio::test]
async fn a_client_that_answers_nothing_gets_its_hints() {
    let everything = json!({
        "window": {"workDoneProgress": true, "showDocument": {"support": true}},
        "workspace": {
            "configuration": true,
            "inlayHint": {"refreshSupport": true},
            "codeLens": {"refreshSupport": true},
        },
    });
    let mut session = Session::initialized(everything, true).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    assert_eq!(session.hints("train.py").await.len(), 2);
    for method in [
        "workspace/configuration",
        "workspace/inlayHint/refresh",
        "workspace/codeLens/refresh",
        "window/workDoneProgress/create",
    ] {
        session.client.wait_for_request(method).await;
    }
    session.client.goodbye().await;
}

#[test]
fn reasons_are_formatted() {
    assert_eq!(Reason::Saved("/w/a.py".into()).to_string(), "a.py was saved");
    assert_eq!(Reason::ChangedOutside("/w/a.py".into()).to_string(), "a.py changed on disk");
}
