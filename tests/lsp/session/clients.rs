//! What clients get that can show less than others.

use serde_json::{Value, json};

use super::diagnostics::failed;
use super::fake::Session;

async fn profiled(capabilities: Value) -> Session {
    let mut session = Session::start();
    session.greet_with(capabilities, json!({"trusted": true, "watchFiles": false})).await;
    session.open_and_save().await;
    session.begun().await.end.send(session.measured()).expect("waiting");
    session
}

/// The next diagnostics: severity, line and message of each.
async fn shown(session: &mut Session) -> Vec<String> {
    let params = session.client.notification("textDocument/publishDiagnostics").await;
    let told = |diagnostic: &Value| {
        let line = &diagnostic["range"]["start"]["line"];
        let message = diagnostic["message"].as_str().unwrap_or_default();
        format!("{} {line}: {message}", diagnostic["severity"])
    };
    params["diagnostics"].as_array().expect("a list").iter().map(told).collect()
}

/// Who can be told that hints are out of date needs no second copy of them.
#[tokio::test]
async fn costs_are_remarked_on_where_hints_are_not_refreshed() {
    let mut session = profiled(json!({"textDocument": {"publishDiagnostics": {}}})).await;
    let headline = "3 1: 320 samples/s · 100 ms";
    let costliest = "4 3: 60 ms · 60% · the costliest line";
    let second = "4 2: 40 ms · 40% · 2nd costliest line";
    assert_eq!(shown(&mut session).await, [headline, second, costliest]);

    let script = session.uri("train.py");
    let at = |line: u32, character: u32| {
        let at = json!({"line": line, "character": character});
        json!({"start": at, "end": at})
    };
    let edit = json!([
        {"range": at(3, 4), "text": "my_"},
        {"range": at(0, 0), "text": "# a comment\n"},
    ]);
    session.client.change(&script, 2, edit).await;
    let moved = shown(&mut session).await;
    assert_eq!(moved[1], "4 3: 40 ms · 40% · 2nd costliest line");
    assert_eq!(moved[2], "4 4: was 60 ms · 60% · the costliest line");

    session.client.command("ridgeline.clear", json!([])).await.expect("done");
    assert_eq!(shown(&mut session).await, Vec::<String>::new());
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_failure_and_remarks_stand_beside_each_other() {
    let mut session = profiled(json!({"textDocument": {"publishDiagnostics": {}}})).await;
    assert_eq!(shown(&mut session).await.len(), 3);
    let script = session.uri("train.py");
    session.client.save(&script).await;
    let failed = failed(&session, "exception", &[3]);
    session.begun().await.end.send(failed).expect("waiting");
    let both = shown(&mut session).await;
    assert!(both[0].starts_with("1 2: RuntimeError"), "{both:?}");
    assert_eq!(both.len(), 4);
    session.client.save(&script).await;
    session.begun().await.end.send(session.measured()).expect("waiting");
    while shown(&mut session).await.len() != 3 {}
    session.client.goodbye().await;
}

#[tokio::test]
async fn remarks_can_be_had_by_setting_and_go_with_it() {
    let refreshed = json!({
        "workspace": {"inlayHint": {"refreshSupport": true}},
        "textDocument": {"publishDiagnostics": {}},
    });
    let mut session = profiled(refreshed).await;
    let (id, _) = session.client.asked("workspace/inlayHint/refresh").await;
    session.client.reply(&id, Value::Null).await;
    assert!(!session.client.has_unread("textDocument/publishDiagnostics").await);
    for (costs, expected) in [("on", 3), ("off", 0)] {
        let settings = json!({"ridgeline": {"diagnostics": {"costs": costs}, "watchFiles": false}});
        let params = json!({"settings": settings});
        session.client.notify("workspace/didChangeConfiguration", params).await;
        assert_eq!(shown(&mut session).await.len(), expected, "{costs}");
        let (id, _) = session.client.asked("workspace/inlayHint/refresh").await;
        session.client.reply(&id, Value::Null).await;
    }
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_headline_is_a_hint_where_there_are_no_lenses() {
    for (capabilities, expected) in [
        (json!({}), true),
        (json!({"textDocument": {"codeLens": {}}}), false),
        // Emacs' lsp-mode announces the refresh alone.
        (json!({"workspace": {"codeLens": {"refreshSupport": false}}}), false),
    ] {
        let mut session = profiled(capabilities.clone()).await;
        while session.client.status("idle").await["headline"].is_null() {}
        let hints = session.hints("train.py").await;
        let headline = hints.iter().any(|hint| hint == "1: 100 ms · 320/s");
        assert_eq!(headline, expected, "{capabilities}: {hints:?}");
        session.client.goodbye().await;
    }
}
