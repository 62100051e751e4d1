//! Hints follow their statements through edits, in every encoding and in order.

use serde_json::{Value, json};

use super::fake::{SCRIPT, Session, quiet};

async fn profiled(capabilities: Value) -> Session {
    let mut session = Session::initialized(capabilities, true).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    session
}

fn insert(line: u32, character: u32, text: &str) -> Value {
    let at = json!({"line": line, "character": character});
    json!({"range": {"start": at, "end": at}, "text": text})
}

#[tokio::test]
async fn hints_show_the_measurement() {
    let mut session = profiled(json!({})).await;
    assert_eq!(session.hints("train.py").await, ["2: 40 ms · 40%", "3: 60 ms · 60%"]);
    session.client.goodbye().await;
}

#[tokio::test]
async fn hints_move_with_their_statements_and_fade_where_they_changed() {
    let mut session = profiled(json!({})).await;
    let script = session.uri("train.py");
    session.client.change(&script, 2, json!([insert(0, 0, "# a comment\n\n")])).await;
    assert_eq!(session.hints("train.py").await, ["4: 40 ms · 40%", "5: 60 ms · 60%"]);
    session.client.change(&script, 3, json!([insert(4, 4, "my_")])).await;
    let hints = session.hints("train.py").await;
    assert!(hints.iter().any(|hint| hint == "4: was 40 ms"), "{hints:?}");
    session.client.goodbye().await;
}

#[tokio::test]
async fn heat_lists_the_hottest_statements() {
    let mut session = profiled(json!({})).await;
    let script = session.uri("train.py");
    let edit = json!([insert(0, 0, "# a comment\n"), insert(3, 4, "my_")]);
    session.client.change(&script, 2, edit).await;
    let params = json!({"textDocument": {"uri": script}});
    let heat = session.client.request("ridgeline/heat", params).await.expect("heat");
    let statements: Vec<String> = heat
        .as_array()
        .into_iter()
        .flatten()
        .map(|hot| {
            format!("{} {} {}", hot["range"]["start"]["line"], hot["share"], hot["provenance"])
        })
        .collect();
    assert_eq!(statements, ["4 0.6 \"measured\"", "3 0.4 \"stale\""]);

    let other = json!({"textDocument": {"uri": session.uri("other.py")}});
    assert_eq!(session.client.request("ridgeline/heat", other).await, Ok(json!([])));
    session.client.goodbye().await;
}

/// Thousands of edits without a pause. A lost or misplaced edit would leave a hint on the wrong
/// line.
#[tokio::test]
async fn edits_keep_their_order_under_load() {
    let mut session = profiled(json!({})).await;
    let script = session.uri("train.py");
    let position = json!({"line": 0, "character": 0});
    let mut ids = Vec::new();
    for edit in 0..1000 {
        session.client.change(&script, edit + 2, json!([insert(0, 0, "xy\n")])).await;
        if edit % 10 == 0 {
            let params = json!({"textDocument": {"uri": script}, "position": position});
            ids.push(session.client.begin("textDocument/hover", params).await);
        }
        let undo =
            json!({"start": {"line": 0, "character": 1}, "end": {"line": 0, "character": 2}});
        session.client.change(&script, edit + 2, json!([{"range": undo, "text": ""}])).await;
    }
    assert_eq!(session.hints("train.py").await, ["1002: 40 ms · 40%", "1003: 60 ms · 60%"]);
    for id in ids {
        // A response for an outdated text is refused, and each request gets one response.
        if let Err(error) = session.client.answer(&json!(id)).await {
            assert_eq!(error["code"], -32801);
        }
    }
    session.client.goodbye().await;
}

#[tokio::test]
async fn encodings_are_negotiated() {
    for (offered, agreed, character) in [
        (json!(["utf-8", "utf-16"]), "utf-8", 11),
        (json!(["utf-16"]), "utf-16", 9),
        (json!(["utf-32"]), "utf-32", 8),
        (json!(null), "utf-16", 9),
    ] {
        let mut session = Session::start();
        let capabilities = json!({"general": {"positionEncodings": offered}});
        let hello = session.initialize_with(capabilities, quiet()).await;
        assert_eq!(hello["capabilities"]["positionEncoding"], agreed);
        session.open_and_save().await;
        session.next_run().await.end.send(session.measured()).expect("waiting");
        while session.client.status("idle").await["headline"].is_null() {}
        let script = session.uri("train.py");
        // `x = '😀'`, then an insertion after it in the client's units.
        session.client.change(&script, 2, json!([insert(0, 0, "x = '😀'\n")])).await;
        session.client.change(&script, 3, json!([insert(0, character, "#\n")])).await;
        assert_eq!(
            session.hints("train.py").await,
            ["4: 40 ms · 40%", "5: 60 ms · 60%"],
            "{agreed}"
        );
        session.client.goodbye().await;
    }
}

#[tokio::test]
async fn absurd_edits_change_the_text_and_break_nothing() {
    let mut session = profiled(json!({})).await;
    let script = session.uri("train.py");
    let huge = json!({"line": 4_294_967_295_u32, "character": 1.7976931348623157e308});
    let negative = json!({"line": -3, "character": -1});
    let reversed = json!({"range": {"start": huge, "end": negative}, "text": SCRIPT});
    session.client.change(&script, 2, json!([reversed])).await;
    assert_eq!(session.hints("train.py").await, ["2: 40 ms · 40%", "3: 60 ms · 60%"]);
    let end = json!({"range": {"start": huge, "end": huge}, "text": "# end"});
    session.client.change(&script, -7, json!([end, {"text": "whole"}, {"text": SCRIPT}])).await;
    assert_eq!(session.hints("train.py").await, ["2: 40 ms · 40%", "3: 60 ms · 60%"]);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_lone_surrogate_does_not_lose_an_edit() {
    let mut session = profiled(json!({})).await;
    let script = session.uri("train.py");
    let body = format!(
        r##"{{"jsonrpc":"2.0","method":"textDocument/didChange","params":{{"textDocument":{{"uri":"{script}","version":2}},"contentChanges":[{{"range":{{"start":{{"line":0,"character":0}},"end":{{"line":0,"character":0}}}},"text":"# \ud83d\n"}}]}}}}"##
    );
    let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    session.client.send_raw(frame.as_bytes()).await;
    assert_eq!(session.hints("train.py").await, ["3: 40 ms · 40%", "4: 60 ms · 60%"]);
    session.client.goodbye().await;
}

#[tokio::test]
async fn all_line_endings_and_byte_order_marks() {
    let mut session = profiled(json!({})).await;
    let script = session.uri("train.py");
    for text in
        [SCRIPT.replace('\n', "\r\n"), format!("\u{feff}{SCRIPT}"), SCRIPT.replace('\n', "\r")]
    {
        session.client.change(&script, 2, json!([{"text": text}])).await;
        assert_eq!(
            session.hints("train.py").await,
            ["2: 40 ms · 40%", "3: 60 ms · 60%"],
            "{text:?}"
        );
    }
    session.client.goodbye().await;
}

#[tokio::test]
async fn cells_outside_of_notebooks_and_other_languages_are_ignored() {
    let mut session = Session::initialized(json!({}), true).await;
    for (uri, language) in [
        (session.uri("a.ipynb"), "python"),
        ("vscode-notebook-cell:/w/a.ipynb#W0".to_owned(), "python"),
        (session.uri("a.md"), "markdown"),
    ] {
        let document = json!({"uri": uri, "languageId": language, "version": 1, "text": SCRIPT});
        session.client.notify("textDocument/didOpen", json!({"textDocument": document})).await;
        session.client.change(&uri, 2, json!([insert(0, 0, "x")])).await;
        session.client.save(&uri).await;
        let params = json!({"textDocument": {"uri": uri}});
        let lenses = session.client.request("textDocument/codeLens", params.clone()).await;
        assert_eq!(lenses, Ok(Value::Null));
        session.client.notify("textDocument/didClose", params).await;
    }
    assert!(!session.has_run().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn texts_without_files_and_files_over_the_limit() {
    let mut session = Session::initialized(json!({}), true).await;
    session.client.open("untitled:Untitled-1", SCRIPT).await;
    let params = json!({"textDocument": {"uri": "untitled:Untitled-1"}});
    assert!(session.client.request("textDocument/codeLens", params).await.is_ok());
    let large = "x = 1\n".repeat(50_000_000 / 6);
    let script = session.uri("train.py");
    session.client.open(&script, &large).await;
    let message = session.client.notification("window/showMessage").await;
    assert!(
        message["message"].as_str().unwrap_or_default().contains("larger than 16 MB"),
        "{message}"
    );
    assert_eq!(session.hints("train.py").await, Vec::<String>::new());
    session.client.goodbye().await;
}
