//! No workspace code runs before the user allowed it.

use std::time::Duration;

use serde_json::{Value, json};

use super::fake::{Session, uri};
use crate::trust::{Decision, Trust};

/// Waits until a refusal is stored. A response is handled by a task of its own, so a command sent
/// behind it may overtake it.
async fn wait_for_refusal(session: &Session) {
    let refused = async {
        while Trust::new(Some(session.store()), false).decision(&session.root).0
            != Decision::Refused
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), refused).await.expect("no refusal was stored");
}

async fn wait_for_consent_question(session: &mut Session) -> Value {
    let (id, params) = session.client.wait_for_request("window/showMessageRequest").await;
    let titles: Vec<&str> = params["actions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|a| a["title"].as_str())
        .collect();
    assert_eq!(titles, ["Run once", "Always for this workspace", "Never"]);
    id
}

#[tokio::test]
async fn run_once_runs_once_and_the_next_save_asks_again() {
    let mut session = Session::initialized(json!({}), false).await;
    session.open_and_save().await;
    let id = wait_for_consent_question(&mut session).await;
    session.client.status("waiting_for_trust").await;
    assert!(!session.has_run().await);
    assert_eq!(session.prepared(), 0);
    session.client.reply(&id, json!({"title": "Run once"})).await;
    let run = session.next_run().await;
    run.end.send(session.measured()).expect("waiting");
    session.client.status("idle").await;
    let script = session.uri("train.py");
    session.client.save(&script).await;
    let id = wait_for_consent_question(&mut session).await;
    session.client.reply(&id, Value::Null).await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn always_is_stored_until_revoked() {
    let mut session = Session::initialized(json!({}), false).await;
    session.open_and_save().await;
    let id = wait_for_consent_question(&mut session).await;
    session.client.reply(&id, json!({"title": "Always for this workspace"})).await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    session.client.status("idle").await;
    let mut session = session.restart().await;
    session.initialize(json!({}), false).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    session.client.command("ridgeline.revokeTrust", json!([])).await.expect("done");
    let mut session = session.restart().await;
    session.initialize(json!({}), false).await;
    session.open_and_save().await;
    let id = wait_for_consent_question(&mut session).await;
    session.client.reply(&id, Value::Null).await;
    session.client.goodbye().await;
}

async fn actions(session: &mut Session, line: u32, context: Value) -> Vec<(String, String)> {
    let found = session.code_actions(line, context).await;
    let text = |action: &Value, key: &str| action[key].as_str().unwrap_or_default().to_owned();
    found.iter().map(|action| (text(action, "title"), text(action, "command"))).collect()
}

/// For editors without questions and commands.
#[tokio::test]
async fn a_code_action_allows_a_run_that_waits() {
    let mut session = Session::initialized(json!({}), false).await;
    session.open_and_save().await;
    let id = wait_for_consent_question(&mut session).await;
    session.client.status("waiting_for_trust").await;
    let plain = json!({"diagnostics": []});
    let allow = ("Ridgeline: trust this workspace".to_owned(), "ridgeline.trust".to_owned());
    assert_eq!(actions(&mut session, 0, plain.clone()).await, [allow]);
    // Automatic requests of the editor, including those on save.
    for unasked in [
        json!({"diagnostics": [], "triggerKind": 2}),
        json!({"diagnostics": [], "only": ["source"]}),
    ] {
        assert_eq!(actions(&mut session, 0, unasked).await, []);
    }
    session.client.command("ridgeline.trust", json!([])).await.expect("done");
    session.next_run().await.end.send(session.measured()).expect("waiting");
    session.client.status("idle").await;
    // Edits are not commands.
    let at_import = actions(&mut session, 0, plain.clone()).await;
    assert!(at_import.iter().all(|(_, command)| command.is_empty()), "{at_import:?}");
    let at_loop = actions(&mut session, 1, plain).await;
    let commands = at_loop.iter().map(|(_, command)| command.as_str());
    let commands: Vec<&str> = commands.filter(|command| !command.is_empty()).collect();
    assert_eq!(commands, ["ridgeline.profile", "ridgeline.openPanel"]);
    session.client.reply(&id, Value::Null).await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn never_is_final_and_a_command_explains_what_to_do() {
    let mut session = Session::initialized(json!({}), false).await;
    session.open_and_save().await;
    let id = wait_for_consent_question(&mut session).await;
    session.client.reply(&id, json!({"title": "Never"})).await;
    session.client.status("idle").await;
    let script = session.uri("train.py");
    session.client.save(&script).await;
    session.client.command("ridgeline.profile", json!([])).await.expect("done");
    let message = session.client.notification("window/showMessage").await;
    assert!(
        message["message"].as_str().unwrap_or_default().contains("ridgeline.trust"),
        "{message}"
    );
    assert!(!session.has_run().await);
    session.client.command("ridgeline.trust", json!([])).await.expect("done");
    session.client.command("ridgeline.profile", json!([])).await.expect("done");
    session.next_run().await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn never_counts_after_the_folder_was_closed() {
    for is_open_again in [false, true] {
        let mut session = Session::initialized(json!({}), false).await;
        session.open_and_save().await;
        let id = wait_for_consent_question(&mut session).await;
        let folder = json!([{"uri": uri(&session.root), "name": "project"}]);
        let closed = json!({"event": {"added": [], "removed": folder}});
        let opened = json!({"event": {"added": folder, "removed": []}});
        session.client.notify("workspace/didChangeWorkspaceFolders", closed).await;
        if is_open_again {
            session.client.notify("workspace/didChangeWorkspaceFolders", opened).await;
            session.client.command("ridgeline.trust", json!([])).await.expect("done");
            session.client.reply(&id, json!({"title": "Never"})).await;
            wait_for_refusal(&session).await;
        } else {
            session.client.reply(&id, json!({"title": "Never"})).await;
            wait_for_refusal(&session).await;
            session.client.notify("workspace/didChangeWorkspaceFolders", opened).await;
        }
        session.client.command("ridgeline.profile", json!([])).await.expect("done");
        let message = session.client.notification("window/showMessage").await;
        let text = message["message"].as_str().unwrap_or_default();
        assert!(text.contains("ridgeline.trust"), "{message}");
        assert!(!session.has_run().await);
        session.client.goodbye().await;
    }
}

#[tokio::test]
async fn a_client_that_never_answers_runs_nothing_and_is_asked_once() {
    let mut session = Session::initialized(json!({}), false).await;
    session.open_and_save().await;
    wait_for_consent_question(&mut session).await;
    let script = session.uri("train.py");
    for _ in 0..20 {
        session.client.save(&script).await;
    }
    session
        .client
        .request("textDocument/codeLens", json!({"textDocument": {"uri": script}}))
        .await
        .expect("alive");
    assert!(!session.has_run().await);
    assert!(!session.client.has_unread("window/showMessageRequest").await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_forged_response_is_not_consent() {
    let mut session = Session::initialized(json!({}), false).await;
    session.open_and_save().await;
    let id = wait_for_consent_question(&mut session).await;
    session.client.reply(&id, json!({"title": "Yes"})).await;
    // A second response, and a response to a request that was never sent.
    session.client.reply(&id, json!({"title": "Always for this workspace"})).await;
    session.client.reply(&json!("ridgeline-999"), json!({"title": "Run once"})).await;
    session.client.command("ridgeline.stop", json!([])).await.expect("done");
    session.client.notification("window/showMessage").await;
    assert!(!session.has_run().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn an_editor_that_vouches_is_not_asked() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    assert_eq!(session.prepared(), 1);
    session.client.goodbye().await;
}

#[tokio::test]
async fn revoking_stops_what_runs() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    let run = session.next_run().await;
    session.client.command("ridgeline.revokeTrust", json!([])).await.expect("done");
    run.cancel.cancelled().await;
    let script = session.uri("train.py");
    session.client.save(&script).await;
    let id = wait_for_consent_question(&mut session).await;
    session.client.reply(&id, Value::Null).await;
    session.client.goodbye().await;
}
