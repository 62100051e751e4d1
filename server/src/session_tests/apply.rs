//! Edits that apply an optimization: code actions, the command, and messages if there is no edit.

use std::fs;

use serde_json::{Value, json};

use super::fake::Session;

const SCRIPT: &str = "\
import torch
from torch import nn

model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in batches:
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
";

/// A client that supports edits.
fn editing() -> Value {
    json!({"workspace": {"applyEdit": true, "workspaceEdit": {"documentChanges": true}}})
}

/// A session with an open, unmeasured script.
async fn opened(capabilities: Value) -> Session {
    let mut session = Session::start();
    fs::write(session.root.join("train.py"), SCRIPT).expect("written");
    session.initialize(capabilities, true).await;
    session.client.open(&session.uri("train.py"), SCRIPT).await;
    session
}

/// A session with an open, measured script.
async fn measured() -> Session {
    let mut session = opened(editing()).await;
    session.client.save(&session.uri("train.py")).await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    session
}

/// The titles and edits of the rewrites at a line, 0-based.
async fn rewrites(session: &mut Session, line: u32) -> Vec<(String, Value)> {
    let found = session.rewrites(line).await;
    found
        .into_iter()
        .map(|one| (one["title"].as_str().unwrap_or_default().to_owned(), one["edit"].clone()))
        .collect()
}

fn titles(found: &[(String, Value)]) -> Vec<&str> {
    found.iter().map(|(title, _)| title.as_str()).collect()
}

/// The new texts of an edit's only document.
fn new_texts(edit: &Value) -> Vec<&str> {
    let edits = edit["documentChanges"][0]["edits"].as_array();
    edits.into_iter().flatten().filter_map(|edit| edit["newText"].as_str()).collect()
}

/// Sends the command and returns the request to the editor.
async fn applied(session: &mut Session, name: &str) -> Value {
    let argument = json!([{"uri": session.uri("train.py"), "name": name}]);
    session.client.command("ridgeline.applyWhatIf", argument).await.expect("done");
    assert!(session.client.has_passed("workspace/applyEdit"), "it comes behind the answer");
    let (id, params) = session.client.wait_for_request("workspace/applyEdit").await;
    session.client.reply(&id, json!({"applied": true})).await;
    params
}

/// Sends the command and returns the message shown instead of an edit.
async fn refused(session: &mut Session, name: &str) -> String {
    let argument = json!([{"uri": session.uri("train.py"), "name": name}]);
    session.client.command("ridgeline.applyWhatIf", argument).await.expect("done");
    assert!(session.client.has_passed("window/showMessage"), "it comes behind the answer");
    let message = session.client.notification("window/showMessage").await;
    message["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn actions_at_the_loop_and_at_affected_lines() {
    let mut session = measured().await;
    let at_loop = rewrites(&mut session, 5).await;
    let at_loop = titles(&at_loop);
    assert!(at_loop.contains(&"Ridgeline: use mixed precision (bf16 autocast)"), "{at_loop:?}");
    assert!(at_loop.contains(&"Ridgeline: compile the model (torch.compile)"), "{at_loop:?}");
    // The program has no data loader and no images.
    assert!(!at_loop.iter().any(|title| title.contains("num_workers")), "{at_loop:?}");
    let at_optimizer = rewrites(&mut session, 4).await;
    let fused = at_optimizer.iter().find(|(title, _)| title.contains("fused=True"));
    let (_, edit) = fused.expect("it is offered at its line");
    assert_eq!(edit["documentChanges"][0]["textDocument"]["version"], 1);
    assert_eq!(new_texts(edit), [", fused=True"]);
    assert_eq!(
        titles(&rewrites(&mut session, 1).await),
        ["Ridgeline: use TF32 for float32 matrix multiplications"]
    );
    session.client.goodbye().await;
}

/// No actions before a measurement, for automatic requests (light bulb), or on save.
#[tokio::test]
async fn no_unrequested_actions() {
    let mut session = opened(editing()).await;
    assert_eq!(rewrites(&mut session, 5).await, []);
    let mut session = measured().await;
    let uri = session.uri("train.py");
    let at = json!({"line": 5, "character": 0});
    for context in [
        json!({"diagnostics": [], "triggerKind": 2}),
        json!({"diagnostics": [], "only": ["source.fixAll"], "triggerKind": 1}),
        json!({"diagnostics": [], "only": ["quickfix"]}),
    ] {
        let range = json!({"start": at, "end": at});
        let params = json!({"textDocument": {"uri": uri}, "range": range, "context": context});
        let found = session.client.request("textDocument/codeAction", params).await;
        assert_eq!(found, Ok(Value::Null), "{context}");
    }
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_command_edits_the_current_text() {
    let mut session = opened(editing()).await;
    let params = applied(&mut session, "foreach-optimizer").await;
    assert_eq!(params["label"], "Use the foreach optimizer (foreach=True)");
    assert_eq!(params["edit"]["documentChanges"][0]["textDocument"]["version"], 1);
    // An unsaved line is inserted above, so the edit is one line lower.
    let start = json!({"line": 0, "character": 0});
    let change = json!([{"range": {"start": start, "end": start}, "text": "# é\n"}]);
    session.client.change(&session.uri("train.py"), 2, change).await;
    let params = applied(&mut session, "foreach-optimizer").await;
    let change = &params["edit"]["documentChanges"][0];
    assert_eq!(change["textDocument"]["version"], 2);
    assert_eq!(change["edits"][0]["range"]["start"]["line"], 5);
    // One undo step, regardless of the number of places.
    let params = applied(&mut session, "amp-fp16").await;
    assert_eq!(params["edit"]["documentChanges"].as_array().map(Vec::len), Some(1));
    assert!(new_texts(&params["edit"]).len() > 3);
    session.client.goodbye().await;
}

#[tokio::test]
async fn notes_of_an_edit_are_shown() {
    let mut session = opened(editing()).await;
    let loading = SCRIPT.replace(
        "model = nn.Linear",
        "batches = torch.utils.data.DataLoader(data)\nmodel = nn.Linear",
    );
    let change = json!([{"text": loading}]);
    session.client.change(&session.uri("train.py"), 2, change).await;
    let params = applied(&mut session, "loader-workers").await;
    assert!(params.to_string().contains("num_workers"), "{params}");
    let message = session.client.notification("window/showMessage").await;
    assert_eq!(message["type"], 3);
    let message = message["message"].as_str().unwrap_or_default();
    assert!(
        message.starts_with("Edit applied; without `if __name__") && message.ends_with('.'),
        "{message}"
    );
    session.client.goodbye().await;
}

#[tokio::test]
async fn refused_edits_show_the_reason() {
    let mut session = opened(editing()).await;
    let message = refused(&mut session, "loader-workers").await;
    assert_eq!(message, "Could not apply the edit: no DataLoader was found in the program.");
    let message = refused(&mut session, "zero-grad-none").await;
    assert_eq!(message, "Already applied: train.py:7 already sets gradients to None.");
    let message = refused(&mut session, "p3").await;
    assert_eq!(message, "`p3` has no automatic edit.");
    session.client.command("ridgeline.applyWhatIf", json!([])).await.expect("done");
    let message = session.client.notification("window/showMessage").await;
    assert!(
        message["message"].as_str().is_some_and(|message| message.contains("`name`")),
        "{message}"
    );
    session.client.change(&session.uri("train.py"), 2, json!([{"text": "import torch\n"}])).await;
    let message = refused(&mut session, "tf32").await;
    assert!(message.starts_with("The training script is unknown"), "{message}");
    session.client.goodbye().await;
}

#[tokio::test]
async fn an_editor_without_edits_gets_a_message() {
    let mut session = opened(json!({})).await;
    let message = refused(&mut session, "tf32").await;
    assert_eq!(message, "This editor does not accept edits from the server.");
    session.client.goodbye().await;
}

/// The recording identifies the entry point, so the edit also works from the model's file.
#[tokio::test]
async fn the_measured_script_is_edited_from_another_file() {
    let mut session = opened(editing()).await;
    fs::write(session.root.join("other.py"), "import torch\n").expect("written");
    let mut measured = session.measured();
    let recording = session.root.join("recording");
    fs::create_dir(&recording).expect("created");
    let manifest = json!({"schema": 1, "entry": {"kind": "script", "path": "train.py"}});
    fs::write(recording.join("manifest.json"), manifest.to_string()).expect("written");
    if let crate::profiler::ProfileOutcome::Measured(profiled) = &mut measured {
        profiled.recording = Some(recording);
    }
    session.client.save(&session.uri("train.py")).await;
    session.next_run().await.end.send(measured).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    let argument = json!([{"uri": session.uri("other.py"), "name": "fused-optimizer"}]);
    session.client.command("ridgeline.applyWhatIf", argument).await.expect("done");
    let (id, params) = session.client.wait_for_request("workspace/applyEdit").await;
    session.client.reply(&id, json!({"applied": true})).await;
    let document = &params["edit"]["documentChanges"][0]["textDocument"];
    assert_eq!(document["uri"], session.uri("train.py"));
    session.client.goodbye().await;
}
