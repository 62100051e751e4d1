//! The diagnostic of a failed run at the failing line.

use ridgeline_analysis::present::failure::{FailureFrame, RunFailure};
use ridgeline_analysis::recording::manifest::RaisedIn;
use serde_json::{Value, json};

use super::fake::Session;
use crate::profiler::ProfileOutcome;

pub(super) fn failed(session: &Session, kind: &str, lines: &[u32]) -> ProfileOutcome {
    let frame = |line: &u32| FailureFrame {
        path: "train.py".to_owned(),
        line: *line,
        name: "train".to_owned(),
    };
    ProfileOutcome::Failed {
        failure: RunFailure {
            error_type: "RuntimeError".to_owned(),
            message: "shapes cannot be multiplied".to_owned(),
            kind: kind.to_owned(),
            frames: lines.iter().map(frame).collect(),
            ..RunFailure::default()
        },
        root: session.root.clone(),
        log: None,
    }
}

fn related() -> Value {
    json!({"textDocument": {"publishDiagnostics": {"relatedInformation": true}}})
}

#[tokio::test]
async fn a_failure_is_shown_and_removed() {
    let mut session = Session::initialized(related(), true).await;
    session.open_and_save().await;
    let outcome = failed(&session, "exception", &[2, 3]);
    session.next_run().await.end.send(outcome).expect("waiting");
    let shown = session.client.notification("textDocument/publishDiagnostics").await;
    let diagnostic = &shown["diagnostics"][0];
    assert_eq!(diagnostic["range"]["start"], json!({"line": 2, "character": 4}));
    assert_eq!(diagnostic["severity"], 1);
    assert!(diagnostic["message"].as_str().unwrap_or_default().starts_with("RuntimeError: shapes"));
    assert_eq!(diagnostic["relatedInformation"][0]["location"]["range"]["start"]["line"], 1);
    let status = session.client.status("failed").await;
    assert!(status["message"].as_str().unwrap_or_default().contains("shapes"), "{status}");
    let script = session.uri("train.py");
    session.client.save(&script).await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    let cleared = session.client.notification("textDocument/publishDiagnostics").await;
    assert_eq!(cleared["diagnostics"], json!([]));
    session.client.goodbye().await;
}

#[tokio::test]
async fn clients_without_related_information_get_the_traceback_as_text() {
    let mut session =
        Session::initialized(json!({"textDocument": {"publishDiagnostics": {}}}), true).await;
    session.open_and_save().await;
    let outcome = failed(&session, "exception", &[2, 3]);
    session.next_run().await.end.send(outcome).expect("waiting");
    let shown = session.client.notification("textDocument/publishDiagnostics").await;
    let message = shown["diagnostics"][0]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("\ntrain.py:2: "), "{message}");
    session.client.goodbye().await;
}

/// The diagnostic contains the likely cause, and names editor settings.
#[tokio::test]
async fn advice_is_shown_at_the_line() {
    let mut session = Session::initialized(related(), true).await;
    session.open_and_save().await;
    let ProfileOutcome::Failed { mut failure, root, log } = failed(&session, "exit", &[2]) else {
        unreachable!("it failed");
    };
    failure.error_type = "SystemExit".to_owned();
    failure.message = "the program exited with code 2".to_owned();
    failure.run.error.exit_code = Some(2);
    failure.run.error.raised_in =
        Some(RaisedIn { path: "argparse.py".to_owned(), name: "exit".to_owned() });
    failure.run.output =
        vec!["train.py: error: the following arguments are required: --data".to_owned()];
    session
        .next_run()
        .await
        .end
        .send(ProfileOutcome::Failed { failure, root, log })
        .expect("waiting");
    let shown = session.client.notification("textDocument/publishDiagnostics").await;
    let message = shown["diagnostics"][0]["message"].as_str().unwrap_or_default().to_owned();
    assert!(
        message.starts_with("the program exited with code 2: the following arguments"),
        "{message}"
    );
    assert!(message.contains("`arguments = [\"--data\", \"…\"]`"), "{message}");
    assert!(!message.contains("ridgeline profile"), "{message}");
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_text_that_does_not_parse() {
    let mut session = Session::initialized(json!({}), true).await;
    let script = session.uri("train.py");
    session.client.open(&script, "import torch\nloss.backward(\n").await;
    session.client.save(&script).await;
    let nothing = ProfileOutcome::NothingToRun { message: "nothing trains here".to_owned() };
    session.next_run().await.end.send(nothing).expect("waiting");
    let shown = session.client.notification("textDocument/publishDiagnostics").await;
    assert_eq!(shown["diagnostics"][0]["range"]["start"]["line"], 1);
    assert_eq!(shown["diagnostics"][0]["code"], "syntax-error");
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_failure_without_a_line_is_a_message() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    let outcome = failed(&session, "exit", &[]);
    session.next_run().await.end.send(outcome).expect("waiting");
    session.client.notification("window/showMessage").await;
    session.client.status("failed").await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_file_is_gone_when_the_run_ends() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    let run = session.next_run().await;
    let script = session.uri("train.py");
    let closed = json!({"textDocument": {"uri": script}});
    session.client.notify("textDocument/didClose", closed.clone()).await;
    session.client.request("textDocument/codeLens", closed).await.expect("it is closed");
    std::fs::remove_file(session.root.join("train.py")).expect("removed");
    run.end.send(failed(&session, "exception", &[3])).expect("waiting");
    let message = session.client.notification("window/showMessage").await;
    assert!(message["message"].as_str().unwrap_or_default().contains("shapes"), "{message}");
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_failure_in_a_text_that_was_edited_meanwhile() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    let run = session.next_run().await;
    let script = session.uri("train.py");
    let at = json!({"line": 0, "character": 0});
    let change = json!([{"range": {"start": at, "end": at}, "text": "# new\n"}]);
    session.client.change(&script, 2, change).await;
    session.hints("train.py").await;
    run.end.send(failed(&session, "exception", &[3])).expect("waiting");
    let shown = session.client.notification("textDocument/publishDiagnostics").await;
    assert_eq!(shown["diagnostics"][0]["range"]["start"]["line"], 3);
    session.client.goodbye().await;
}

#[tokio::test]
async fn clients_that_pull_are_not_pushed_to() {
    let capabilities = json!({
        "textDocument": {"diagnostic": {}},
        "workspace": {"diagnostics": {"refreshSupport": true}},
    });
    let mut session = Session::initialized(capabilities, true).await;
    session.open_and_save().await;
    let outcome = failed(&session, "memory", &[3]);
    session.next_run().await.end.send(outcome).expect("waiting");
    let (id, _) = session.client.wait_for_request("workspace/diagnostic/refresh").await;
    session.client.reply(&id, Value::Null).await;
    let params = json!({"textDocument": {"uri": session.uri("train.py")}});
    let report = session.client.request("textDocument/diagnostic", params).await.expect("a report");
    assert_eq!(report["kind"], "full");
    assert_eq!(report["items"][0]["code"], "out-of-memory");
    session.client.goodbye().await;
}
