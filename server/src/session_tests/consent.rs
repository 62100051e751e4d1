//! Revoking consent ends everything that runs by it, whoever started it. An old question grants
//! nothing. One save starts one run.

use std::time::Duration;

use serde_json::{Value, json};

use super::fake::{Session, StartedSweep, quiet, uri};
use crate::profiler::{ProfileOutcome, RunChoice};

/// Waits for a message that must not arrive: events are handled in order, so it would arrive before
/// one more response.
async fn quiet_moment(session: &mut Session) {
    let script = session.uri("train.py");
    let params = json!({"textDocument": {"uri": script}});
    for _ in 0..3 {
        session.client.request("textDocument/codeLens", params.clone()).await.expect("alive");
    }
}

/// A session with consent for every run, and a sweep in progress.
async fn exploring(by_command: bool) -> (Session, StartedSweep) {
    let mut session = Session::start();
    let mut options = quiet();
    options["batchSize.measureInBackground"] = (!by_command).into();
    session.initialize_with(json!({}), options).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    if by_command {
        session.client.status("idle").await;
        session.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
    }
    let exploring = session.exploring().await;
    assert!(!exploring.cancel.is_cancelled());
    (session, exploring)
}

#[track_caller]
fn assert_ended(exploring: &StartedSweep) {
    assert!(exploring.cancel.is_cancelled(), "other batch sizes are tried on");
}

#[tokio::test]
async fn revoking_ends_a_background_sweep() {
    for by_command in [false, true] {
        let (mut session, exploring) = exploring(by_command).await;
        session.client.command("ridgeline.revokeTrust", json!([])).await.expect("done");
        assert_ended(&exploring);
        session.client.goodbye().await;
    }
}

#[tokio::test]
async fn revoking_and_never_end_it() {
    let (mut session, exploring) = exploring(true).await;
    session.client.command("ridgeline.revokeTrust", json!([])).await.expect("done");
    let script = session.uri("train.py");
    session.client.save(&script).await;
    let (id, _) = session.client.wait_for_request("window/showMessageRequest").await;
    session.client.reply(&id, json!({"title": "Never"})).await;
    quiet_moment(&mut session).await;
    assert_ended(&exploring);
    assert!(!session.has_run().await && !session.is_exploring().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn closing_the_folder_ends_it() {
    let (mut session, exploring) = exploring(true).await;
    let removed = json!([{"uri": uri(&session.root), "name": "project"}]);
    let event = json!({"event": {"added": [], "removed": removed}});
    session.client.notify("workspace/didChangeWorkspaceFolders", event).await;
    quiet_moment(&mut session).await;
    assert_ended(&exploring);
    session.client.goodbye().await;
}

#[tokio::test]
async fn stop_ends_it_with_a_message() {
    let (mut session, exploring) = exploring(false).await;
    let stop = session
        .client
        .begin("workspace/executeCommand", json!({"command": "ridgeline.stop"}))
        .await;
    exploring.cancel.cancelled().await;
    let message = session.client.notification("window/showMessage").await;
    assert_eq!(message["message"], "Stopped.");
    drop(exploring);
    session.client.answer(&json!(stop)).await.expect("done");
    // The decision remains, and nothing starts by itself.
    assert!(!session.has_run().await && !session.is_exploring().await);
    session.client.command("ridgeline.stop", json!([])).await.expect("done");
    let message = session.client.notification("window/showMessage").await;
    assert_eq!(message["message"], "Nothing is running.");
    session.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
    let exploring = session.exploring().await;
    assert!(!exploring.cancel.is_cancelled());
    drop(exploring);
    session.client.goodbye().await;
}

#[tokio::test]
async fn stop_is_answered_after_the_end_of_the_run() {
    let mut session =
        Session::initialized(json!({"window": {"workDoneProgress": true}}), true).await;
    session.open_and_save().await;
    let run = session.next_run().await;
    let (id, _) = session.client.wait_for_request("window/workDoneProgress/create").await;
    session.client.reply(&id, Value::Null).await;
    assert_eq!(session.client.notification("$/progress").await["value"]["kind"], "begin");
    session.client.status("running").await;
    session.client.command("ridgeline.stop", json!([])).await.expect("done");
    assert!(session.client.has_passed("$/progress"), "the answer came before the progress ended");
    let end = session.client.notification("$/progress").await;
    assert_eq!(end["value"], json!({"kind": "end", "message": "stopped"}));
    assert!(session.client.has_passed("ridgeline/status"), "the answer came before the status");
    assert!(run.cancel.is_cancelled());
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_pause_ends_unrequested_jobs() {
    let (mut session, exploring) = exploring(false).await;
    session.client.command("ridgeline.pause", json!([])).await.expect("done");
    assert_ended(&exploring);
    drop(exploring);
    let script = session.uri("train.py");
    session.client.save(&script).await;
    quiet_moment(&mut session).await;
    assert!(!session.has_run().await && !session.is_exploring().await);
    // Requested jobs continue.
    session.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
    let exploring = session.exploring().await;
    session.client.command("ridgeline.pause", json!([])).await.expect("done");
    assert!(!exploring.cancel.is_cancelled());
    drop(exploring);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_pause_ends_the_run_of_a_save() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    let run = session.next_run().await;
    session.client.command("ridgeline.pause", json!([])).await.expect("done");
    run.cancel.cancelled().await;
    session.client.status("paused").await;
    session.client.command("ridgeline.profile", json!([])).await.expect("done");
    let run = session.next_run().await;
    session.client.command("ridgeline.pause", json!([])).await.expect("done");
    assert!(!run.cancel.is_cancelled());
    run.end.send(session.measured()).expect("waiting");
    session.client.goodbye().await;
}

/// The question which of several scripts to run, within a permitted run.
async fn which_script(session: &mut Session) -> Value {
    let choice = |command: &str| RunChoice { command: command.to_owned(), why: String::new() };
    let runs = vec![choice("train.py"), choice("other.py")];
    let run = session.next_run().await;
    run.end.send(ProfileOutcome::Choose { runs }).expect("waiting");
    let (id, params) = session.client.wait_for_request("window/showMessageRequest").await;
    assert!(params["message"].as_str().is_some_and(|text| text.starts_with("Several scripts")));
    id
}

#[tokio::test]
async fn an_answer_to_an_old_script_question_runs_nothing() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    let id = which_script(&mut session).await;
    session.client.command("ridgeline.revokeTrust", json!([])).await.expect("done");
    session.client.reply(&id, json!({"title": "train.py"})).await;
    let message = session.client.notification("window/showMessage").await;
    assert!(message["message"].as_str().is_some_and(|text| text.contains("outdated")));
    assert!(!session.has_run().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn an_answer_to_an_old_consent_question_grants_nothing() {
    for title in ["Run once", "Always for this workspace"] {
        let mut session = Session::initialized(json!({}), false).await;
        session.open_and_save().await;
        let (old, _) = session.client.wait_for_request("window/showMessageRequest").await;
        session.client.command("ridgeline.revokeTrust", json!([])).await.expect("done");
        let script = session.uri("train.py");
        session.client.save(&script).await;
        let (new, _) = session.client.wait_for_request("window/showMessageRequest").await;
        session.client.reply(&old, json!({"title": title})).await;
        session.client.notification("window/showMessage").await;
        assert!(!session.has_run().await);
        // The current question can be answered.
        session.client.reply(&new, json!({"title": "Run once"})).await;
        session.next_run().await;
        session.client.goodbye().await;
    }
}

#[tokio::test]
async fn a_script_choice_belongs_to_the_permitted_run() {
    let mut session = Session::initialized(json!({}), false).await;
    session.open_and_save().await;
    let (id, _) = session.client.wait_for_request("window/showMessageRequest").await;
    session.client.reply(&id, json!({"title": "Run once"})).await;
    let id = which_script(&mut session).await;
    session.client.reply(&id, json!({"title": "train.py"})).await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    session.client.status("idle").await;
    // The permitted run is used up.
    let script = session.uri("train.py");
    session.client.save(&script).await;
    let (id, _) = session.client.wait_for_request("window/showMessageRequest").await;
    session.client.reply(&id, Value::Null).await;
    quiet_moment(&mut session).await;
    assert!(!session.has_run().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn nothing_is_asked_where_nothing_trains() {
    let mut session = Session::initialized(json!({}), false).await;
    let nothing = || ProfileOutcome::NothingToRun { message: "No training script.".to_owned() };
    session.finds(Err(nothing()));
    session.open_and_save().await;
    quiet_moment(&mut session).await;
    assert!(!session.client.has_unread("window/showMessageRequest").await);
    // A user who asks gets an answer.
    session.finds(Err(nothing()));
    session.client.command("ridgeline.profile", json!([])).await.expect("done");
    let message = session.client.notification("window/showMessage").await;
    assert_eq!(message["message"], "No training script.");
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_script_is_chosen_before_the_user_is_asked_for_trust() {
    let mut session = Session::initialized(json!({}), false).await;
    let choice = |command: &str| RunChoice { command: command.to_owned(), why: String::new() };
    let runs = vec![choice("train.py"), choice("other.py")];
    session.finds(Err(ProfileOutcome::Choose { runs }));
    session.open_and_save().await;
    let (id, params) = session.client.wait_for_request("window/showMessageRequest").await;
    assert!(params["message"].as_str().is_some_and(|text| text.starts_with("Several scripts")));
    session.client.reply(&id, json!({"title": "other.py"})).await;
    let (id, params) = session.client.wait_for_request("window/showMessageRequest").await;
    let text = params["message"].as_str().expect("a message").to_owned();
    assert!(text.starts_with("Run a few training steps of train.py in project"), "{text}");
    assert!(!session.has_run().await);
    session.client.reply(&id, json!({"title": "Run once"})).await;
    assert_eq!(session.next_run().await.request.script.as_deref(), Some("other.py"));
    session.client.goodbye().await;
}

#[tokio::test]
async fn once_permits_only_one_run() {
    let mut session = Session::start();
    let mut options = quiet();
    options["trusted"] = false.into();
    options["live.enable"] = true.into();
    options["live.delayMilliseconds"] = 0.into();
    options["batchSize.measureInBackground"] = true.into();
    session.initialize_with(json!({}), options).await;
    session.open_and_save().await;
    let (id, _) = session.client.wait_for_request("window/showMessageRequest").await;
    session.client.reply(&id, json!({"title": "Run once"})).await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    let script = session.uri("train.py");
    let start = json!({"line": 0, "character": 0});
    let edit = json!([{"range": {"start": start, "end": start}, "text": "# more\n"}]);
    session.client.change(&script, 2, edit).await;
    session.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
    // Longer than the pause before an estimate.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    quiet_moment(&mut session).await;
    assert_eq!(session.prepared(), 0);
    assert!(!session.has_run().await);
    assert!(!session.is_estimating().await && !session.is_exploring().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn one_save_is_one_run() {
    let mut session = Session::start();
    let mut options = quiet();
    options["live.enable"] = true.into();
    options["live.delayMilliseconds"] = 0.into();
    session.initialize_with(json!({}), options).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    // Longer than the pause before an estimate.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    quiet_moment(&mut session).await;
    assert!(!session.has_run().await, "a second run");
    assert!(!session.is_estimating().await, "an estimate of what has just run");
    assert!(!session.is_exploring().await, "other batch sizes");
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_status_shows_background_jobs() {
    for (capabilities, state) in [
        (json!({"experimental": {"ridgeline": {"background": true}}}), "background"),
        // A client that does not support that state.
        (json!({}), "running"),
    ] {
        let mut session = Session::initialized(capabilities, true).await;
        session.open_and_save().await;
        session.next_run().await.end.send(session.measured()).expect("waiting");
        while session.client.status("idle").await["headline"].is_null() {}
        session.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
        let exploring = session.exploring().await;
        loop {
            let status = session.client.status(state).await;
            let activity =
                if state == "running" { &status["run"]["reason"] } else { &status["message"] };
            if activity == "running other batch sizes" {
                break;
            }
        }
        drop(exploring);
        session.client.status("idle").await;
        session.client.goodbye().await;
    }
}

#[tokio::test]
async fn runs_at_other_batch_sizes_show_progress_that_can_be_cancelled() {
    let progress = json!({"window": {"workDoneProgress": true}});
    let mut session = Session::initialized(progress, true).await;
    session.open_and_save().await;
    let run = session.next_run().await;
    session.client.status("running").await;
    let (id, _) = session.client.wait_for_request("window/workDoneProgress/create").await;
    session.client.reply(&id, Value::Null).await;
    run.end.send(session.measured()).expect("waiting");
    session.client.status("idle").await;
    session.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
    let exploring = session.exploring().await;
    let (id, params) = session.client.wait_for_request("window/workDoneProgress/create").await;
    session.client.reply(&id, Value::Null).await;
    let stage = "running batch size 64 (up to 5 runs left)".to_owned();
    let event = crate::profiler::ProgressEvent { stage: stage.clone(), share: None };
    exploring.progress.send(event).await.expect("shown");
    loop {
        let progress = session.client.notification("$/progress").await;
        if progress["token"] == params["token"] && progress["value"]["message"] == stage.as_str() {
            break;
        }
    }
    let token = json!({"token": params["token"]});
    session.client.notify("window/workDoneProgress/cancel", token).await;
    exploring.cancel.cancelled().await;
    drop(exploring);
    loop {
        let progress = session.client.notification("$/progress").await;
        if progress["token"] == params["token"] && progress["value"]["kind"] == "end" {
            break;
        }
    }
    session.client.goodbye().await;
}

#[tokio::test]
async fn another_project_at_an_allowed_path_needs_consent() {
    let mut session = Session::initialized(json!({}), false).await;
    session.client.command("ridgeline.trust", json!([])).await.expect("done");
    session.open_and_save().await;
    let run = session.next_run().await;
    // The folder is replaced during the session.
    let before = session.root.with_file_name("before");
    std::fs::rename(&session.root, &before).expect("moved");
    std::fs::create_dir(&session.root).expect("created");
    std::fs::copy(before.join("train.py"), session.root.join("train.py")).expect("copied");
    let script = session.uri("train.py");
    session.client.save(&script).await;
    let (id, params) = session.client.wait_for_request("window/showMessageRequest").await;
    assert!(params["message"].as_str().is_some_and(|text| text.starts_with("Run a few training")));
    run.cancel.cancelled().await;
    session.client.reply(&id, Value::Null).await;
    assert!(!session.has_run().await);
    session.client.goodbye().await;
}
