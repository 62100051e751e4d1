//! Settings, refreshes, and commands that show something.

use serde_json::{Value, json};

use super::fake::Session;

#[tokio::test]
async fn settings_are_fetched_and_fetched_again_when_they_change() {
    let mut session =
        Session::initialized(json!({"workspace": {"configuration": true}}), true).await;
    let (id, params) = session.client.wait_for_request("workspace/configuration").await;
    assert_eq!(params["items"], json!([{"section": "ridgeline"}]));
    session.client.reply(&id, json!([{"runOnSave": false, "watchFiles": false}])).await;
    session.open_and_save().await;
    session.client.notify("workspace/didChangeConfiguration", json!({"settings": {}})).await;
    let (id, _) = session.client.wait_for_request("workspace/configuration").await;
    session.client.reply(&id, json!([{"watchFiles": false, "hover": {"enable": 3}}])).await;
    let complaint = session.client.notification("window/showMessage").await;
    assert!(complaint["message"].as_str().unwrap_or_default().contains("ridgeline.hover.enable"));
    assert!(!session.has_run().await);
    let script = session.uri("train.py");
    session.client.save(&script).await;
    session.next_run().await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn clients_that_push_settings() {
    let mut session = Session::initialized(json!({}), true).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    let off =
        json!({"settings": {"ridgeline": {"inlayHints": {"enable": false}, "watchFiles": false}}});
    session.client.notify("workspace/didChangeConfiguration", off).await;
    assert_eq!(session.hints("train.py").await, Vec::<String>::new());
    session.client.goodbye().await;
}

#[tokio::test]
async fn refreshes_go_to_clients_that_announced_them_one_at_a_time() {
    let capabilities = json!({"workspace": {"inlayHint": {"refreshSupport": true}}});
    let mut session = Session::initialized(capabilities, true).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    let (id, _) = session.client.wait_for_request("workspace/inlayHint/refresh").await;
    for _ in 0..5 {
        session.client.command("ridgeline.clear", json!([])).await.expect("done");
    }
    assert!(!session.client.has_unread("workspace/inlayHint/refresh").await);
    session.client.reply(&id, Value::Null).await;
    let (id, _) = session.client.wait_for_request("workspace/inlayHint/refresh").await;
    session.client.reply(&id, Value::Null).await;
    assert_eq!(session.hints("train.py").await, Vec::<String>::new());
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_report_is_shown_or_said() {
    let mut session =
        Session::initialized(json!({"window": {"showDocument": {"support": true}}}), true).await;
    session.client.command("ridgeline.showReport", json!([])).await.expect("done");
    let message = session.client.notification("window/showMessage").await;
    assert!(message["message"].as_str().unwrap_or_default().contains("No report"));
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    session.client.command("ridgeline.showReport", json!([])).await.expect("done");
    let (id, params) = session.client.wait_for_request("window/showDocument").await;
    let shown = params["uri"].as_str().unwrap_or_default().to_owned();
    assert!(shown.ends_with("report.html"), "{shown}");
    session.client.reply(&id, json!({"success": false})).await;
    let message = session.client.notification("window/showMessage").await;
    assert!(message["message"].as_str().unwrap_or_default().ends_with("report.html"), "{message}");
    session.client.goodbye().await;
}

#[tokio::test]
async fn unknown_commands_are_refused_and_the_rest_needs_no_workspace() {
    let mut session = Session::start();
    session.client.hello(json!({}), json!({})).await;
    let error = session.client.command("ridgeline.nonsense", json!([])).await;
    assert_eq!(error.expect_err("refused")["code"], -32602);
    session.client.command("ridgeline.profile", json!([{"deep": [1]}])).await.expect("done");
    session.client.notification("window/showMessage").await;
    session.client.goodbye().await;
}
