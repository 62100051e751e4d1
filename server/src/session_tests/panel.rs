//! The panel: how clients open it, what it shows of a session, and its actions in the editor.

use std::fs;

use serde_json::{Value, json};

use super::fake::{SCRIPT, Session};
use crate::profiler::{ProfileOutcome, Profiled, ProgressEvent};
use ridgeline_test_client::http::{Events, Panel, request};

/// A client with support for the panel and highlights, and optionally for showing documents.
fn with_panel(shows_documents: bool) -> Value {
    json!({
        "experimental": {"ridgeline": {"panel": true, "highlight": true}},
        "window": {"showDocument": {"support": shows_documents}},
    })
}

/// Opens the panel in a client with panel support.
async fn opened(session: &mut Session) -> Panel {
    session.client.command("ridgeline.openPanel", json!([])).await.expect("done");
    let params = session.client.notification("ridgeline/openPanel").await;
    Panel::at(params["uri"].as_str().expect("an address"))
}

/// A session with a measurement and an open panel.
async fn measured(shows_documents: bool) -> (Session, Panel) {
    let mut session = Session::initialized(with_panel(shows_documents), true).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    let panel = opened(&mut session).await;
    (session, panel)
}

/// Waits for a status event.
async fn status_that(events: &mut Events, is_it: impl Fn(&Value) -> bool) -> Value {
    loop {
        let status = serde_json::from_str(&events.wait_for("status").await).expect("JSON");
        if is_it(&status) {
            return status;
        }
    }
}

fn line(line: u32) -> Value {
    json!({"workspace": 0, "file": 0, "line": line})
}

#[tokio::test]
async fn a_client_that_shows_it_gets_the_address() {
    let mut session = Session::initialized(with_panel(true), true).await;
    let panel = opened(&mut session).await;
    assert!(panel.authority.starts_with("127.0.0.1:"), "{panel:?}");
    let page = panel.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.text().starts_with("<!doctype html>"), "{}", page.text());
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("cross-origin-embedder-policy", "require-corp"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    for (file, kind) in [("/panel.js", "text/javascript"), ("/panel.css", "text/css")] {
        let found = panel.get(file).await;
        assert!(found.header("content-type").is_some_and(|is| is.starts_with(kind)), "{found:?}");
        assert_eq!(found.header("cross-origin-resource-policy"), Some("same-origin"), "{file}");
    }
    // It is started only once, so the address stays the same.
    assert_eq!(opened(&mut session).await.base, panel.base);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_browser_opens_it_for_other_clients() {
    let capabilities = json!({"window": {"showDocument": {"support": true}}});
    let mut session = Session::initialized(capabilities, true).await;
    session.client.command("ridgeline.openPanel", json!([])).await.expect("done");
    let (id, params) = session.client.wait_for_request("window/showDocument").await;
    assert_eq!(params["external"], true);
    let panel = Panel::at(params["uri"].as_str().expect("an address"));
    assert_eq!(panel.get("/").await.status, 200);
    session.client.reply(&id, json!({"success": true})).await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_client_that_opens_nothing_gets_the_address() {
    let refused = json!({"result": {"success": false}});
    let wrong = json!({"error": {"code": 1, "message": "no"}});
    for answer in [Some(refused), Some(wrong), None] {
        let support = json!({"window": {"showDocument": {"support": answer.is_some()}}});
        let mut session = Session::initialized(support, true).await;
        session.client.command("ridgeline.openPanel", json!([])).await.expect("done");
        if let Some(mut answer) = answer {
            let (id, _) = session.client.wait_for_request("window/showDocument").await;
            answer["jsonrpc"] = json!("2.0");
            answer["id"] = id;
            session.client.send(&answer).await;
        }
        let shown_message = session.client.notification("window/showMessage").await;
        let shown_message = shown_message["message"].as_str().expect("a text");
        let panel = Panel::at(shown_message.strip_prefix("The panel is at ").expect("an address"));
        assert_eq!(panel.document().await["recording"], Value::Null);
        session.client.goodbye().await;
    }
}

#[tokio::test]
async fn requests_without_the_token_see_and_do_nothing() {
    let (session, panel) = measured(true).await;
    let unauthenticated =
        Panel { base: "/00000000000000000000000000000000".to_owned(), ..panel.clone() };
    for path in ["/", "/panel.js", "/api/panel?workspace=0", "/api/events?workspace=0"] {
        assert_eq!(unauthenticated.get(path).await.status, 404, "{path}");
        let rebound = request("GET", &format!("{}{path}", panel.base), "evil.example", &[], "");
        assert_eq!(panel.send(&rebound).await.status, 403, "{path}");
        let foreign = [("origin", "https://evil.example")];
        assert_eq!(panel.get_with(path, &foreign).await.status, 403, "{path}");
    }
    assert_eq!(unauthenticated.post("/api/jump", &line(3)).await.status, 404);
    let jump = line(3).to_string();
    let path = format!("{}/api/jump", panel.base);
    for header in [("origin", "null"), ("sec-fetch-site", "same-site")] {
        let headers = [("content-type", "application/json"), header];
        let sent = request("POST", &path, &panel.authority, &headers, &jump);
        assert_eq!(panel.send(&sent).await.status, 403, "{header:?}");
    }
    // The content types of HTML forms are refused from every origin.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let sent = request("POST", &path, &panel.authority, &[("content-type", kind)], &jump);
        assert_eq!(panel.send(&sent).await.status, 415, "{kind}");
    }
    assert_eq!(panel.get("/api/jump").await.status, 405);
    assert_eq!(panel.get("/../secret").await.status, 404);
    // An unexpected request to the client would be left unread.
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_document_is_of_the_newest_measurement() {
    let (mut session, panel) = measured(true).await;
    let before = panel.document().await;
    assert_eq!(before["project"], "project");
    assert_eq!((&before["can_jump"], &before["can_highlight"]), (&json!(true), &json!(true)));
    assert_eq!(before["recording"]["duration_ns"], 100_000_000);
    assert_eq!(before["recording"]["files"], json!([{"path": "train.py"}]));
    assert_eq!(before["history"][0]["generation"], before["generation"]);
    assert_eq!(before["status"]["state"], "idle");
    let script = session.uri("train.py");
    session.client.save(&script).await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    session.client.status("running").await;
    session.client.status("idle").await;
    let after = panel.document().await;
    assert!(after["generation"].as_u64() > before["generation"].as_u64());
    session.client.command("ridgeline.clear", json!([])).await.expect("done");
    assert_eq!(panel.document().await["recording"], Value::Null);
    // The fake's measurement has no recording.
    let path = format!("/api/timeline?workspace=0&generation={}", after["generation"]);
    assert_eq!(panel.get(&path).await.status, 404);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_page_receives_the_progress_of_a_run() {
    let mut session = Session::initialized(with_panel(true), true).await;
    let panel = opened(&mut session).await;
    let mut events = panel.listen().await;
    events.wait_for("status").await;
    session.open_and_save().await;
    let run = session.next_run().await;
    let status = status_that(&mut events, |status| status["state"] == "running").await;
    assert_eq!(status["run"]["reason"], "train.py was saved");
    let warm = ProgressEvent { stage: "warming up".to_owned(), share: Some(0.25) };
    run.progress.send(warm).await.expect("listening");
    let status = status_that(&mut events, |status| status["run"]["stage"] == "warming up").await;
    assert_eq!(panel.document().await["status"], status);
    run.end.send(session.measured()).expect("waiting");
    events.wait_for("panel").await;
    assert_ne!(panel.document().await["recording"], Value::Null);
    session.client.goodbye().await;
    events.end().await;
}

#[tokio::test]
async fn a_reconnecting_page_receives_what_it_missed() {
    let (session, panel) = measured(true).await;
    let mut events = panel.listen().await;
    events.wait_for("status").await;
    let known = [("last-event-id", "0"), ("accept", "text/event-stream")];
    let mut back = panel.listen_with(&known).await;
    back.wait_for("panel").await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_click_moves_the_editor_to_the_current_line() {
    let (mut session, panel) = measured(true).await;
    let script = session.uri("train.py");
    let text = format!("# one\n# two\n{SCRIPT}");
    session.client.change(&script, 2, json!([{"text": text}])).await;
    session.client.command("ridgeline.resume", json!([])).await.expect("it was changed");
    let clicked = tokio::spawn(async move { panel.post("/api/jump", &line(3)).await });
    let (id, params) = session.client.wait_for_request("window/showDocument").await;
    let at = json!({"line": 4, "character": 4});
    let selection = json!({"start": at, "end": at});
    let expected =
        json!({"uri": script, "external": false, "takeFocus": true, "selection": selection});
    assert_eq!(params, expected);
    session.client.reply(&id, json!({"success": true})).await;
    assert_eq!(clicked.await.expect("an answer").json(), json!({"done": true}));
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_click_finds_a_line_in_a_file_that_is_not_open() {
    let (mut session, panel) = measured(true).await;
    let script = session.uri("train.py");
    let closed = json!({"textDocument": {"uri": script}});
    session.client.notify("textDocument/didClose", closed).await;
    session.client.command("ridgeline.resume", json!([])).await.expect("it was closed");
    fs::write(session.root.join("train.py"), format!("\n{SCRIPT}")).expect("written");
    let clicked = tokio::spawn(async move { panel.post("/api/jump", &line(4)).await });
    let (id, params) = session.client.wait_for_request("window/showDocument").await;
    assert_eq!(params["uri"], script);
    assert_eq!(params["selection"]["start"]["line"], 4);
    session.client.reply(&id, json!({"success": true})).await;
    assert_eq!(clicked.await.expect("an answer").json(), json!({"done": true}));
    session.client.goodbye().await;
}

#[tokio::test]
async fn without_document_support_the_page_gets_the_place() {
    for shows_documents in [false, true] {
        let (mut session, panel) = measured(shows_documents).await;
        let clicked = tokio::spawn(async move { panel.post("/api/jump", &line(3)).await });
        if shows_documents {
            let (id, _) = session.client.wait_for_request("window/showDocument").await;
            session.client.reply(&id, json!({"success": false})).await;
        }
        let shown_message = session.client.notification("window/showMessage").await;
        assert_eq!(shown_message["message"], "train.py:3");
        let answer = clicked.await.expect("an answer").json();
        assert_eq!(answer["done"], false);
        assert!(answer["message"].as_str().is_some_and(|why| why.contains("train.py:3")));
        session.client.goodbye().await;
    }
}

#[tokio::test]
async fn an_editor_that_never_answers_does_not_keep_the_page_waiting() {
    let (mut session, panel) = measured(true).await;
    let clicked = tokio::spawn(async move { panel.post("/api/jump", &line(3)).await });
    session.client.wait_for_request("window/showDocument").await;
    let shown_message = session.client.notification("window/showMessage").await;
    assert_eq!(shown_message["message"], "train.py:3");
    assert_eq!(clicked.await.expect("an answer").json()["done"], false);
    session.client.goodbye().await;
}

#[tokio::test]
async fn invalid_places() {
    let (mut session, panel) = measured(true).await;
    let generation = panel.document().await["generation"].as_u64().expect("a number");
    for (body, why) in [
        (json!({"workspace": 0, "file": 1, "line": 3}), "not on this machine"),
        (json!({"workspace": 0, "file": u32::MAX, "line": u32::MAX}), "not on this machine"),
        (json!({"workspace": 0, "file": 0, "line": 99}), "not in the current code"),
        (json!({"workspace": 0, "file": 0, "line": 0}), "not in the current code"),
        (json!({"workspace": 0, "file": 0, "line": 3, "generation": generation + 1}), "older"),
    ] {
        let answer = panel.post("/api/jump", &body).await.json();
        assert_eq!(answer["done"], false);
        let shown_message = answer["message"].as_str().unwrap_or_default();
        assert!(shown_message.contains(why), "{body}: {shown_message}");
    }
    let script = session.uri("train.py");
    let without = SCRIPT.replace("    loss = model(batch)\n", "");
    session.client.change(&script, 2, json!([{"text": without}])).await;
    session.client.command("ridgeline.resume", json!([])).await.expect("it was changed");
    let answer = panel.post("/api/jump", &line(3)).await.json();
    assert_eq!(answer["message"], "Line 3 of train.py is not in the current code.");
    for body in [json!({}), json!([]), json!({"workspace": 0}), json!({"workspace": -1})] {
        assert_eq!(panel.post("/api/jump", &body).await.status, 422, "{body}");
    }
    assert_eq!(
        panel.post("/api/jump", &json!({"workspace": 7, "file": 0, "line": 3})).await.status,
        404
    );
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_line_under_the_pointer_is_highlighted() {
    let (mut session, panel) = measured(true).await;
    let script = session.uri("train.py");
    // The default position encoding is UTF-16.
    let text = SCRIPT.replace("model(batch)", "'é𝄞'");
    session.client.change(&script, 2, json!([{"text": text}])).await;
    session.client.command("ridgeline.resume", json!([])).await.expect("it was changed");
    assert_eq!(panel.post("/api/highlight", &line(3)).await.json(), json!({"done": true}));
    let marked = session.client.notification("ridgeline/highlight").await;
    let (start, end) = (json!({"line": 2, "character": 4}), json!({"line": 2, "character": 16}));
    assert_eq!(marked, json!({"uri": script, "range": {"start": start, "end": end}}));
    let nothing = json!({"workspace": 0, "file": null});
    assert_eq!(panel.post("/api/highlight", &nothing).await.json(), json!({"done": true}));
    let marked = session.client.notification("ridgeline/highlight").await;
    assert_eq!(marked, json!({"uri": null}));
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_client_without_highlights_receives_none() {
    let capabilities = json!({"experimental": {"ridgeline": {"panel": true}}});
    let mut session = Session::initialized(capabilities, true).await;
    let panel = opened(&mut session).await;
    assert_eq!(panel.document().await["can_highlight"], false);
    assert_eq!(panel.post("/api/highlight", &line(3)).await.json()["done"], false);
    session.client.goodbye().await;
}

#[tokio::test]
async fn commands_do_what_the_editors_do() {
    let mut session = Session::initialized(with_panel(true), true).await;
    let panel = opened(&mut session).await;
    let command = |name: &str| json!({"workspace": 0, "command": name});
    let done = json!({"done": true});
    assert_eq!(panel.post("/api/command", &command("profile")).await.json(), done);
    let run = session.next_run().await;
    assert_eq!(panel.post("/api/command", &command("stop")).await.json(), done);
    run.cancel.cancelled().await;
    session.client.status("idle").await;
    assert_eq!(panel.post("/api/command", &command("stop")).await.json()["done"], false);
    assert_eq!(panel.post("/api/command", &command("pause")).await.json(), done);
    session.client.status("paused").await;
    assert_eq!(panel.post("/api/command", &command("resume")).await.json(), done);
    session.client.status("idle").await;
    for name in ["trust", "clear", "ridgeline.profile", "selectScript", ""] {
        assert_eq!(panel.post("/api/command", &command(name)).await.status, 422, "{name}");
    }
    session.client.goodbye().await;
}

#[tokio::test]
async fn nothing_runs_from_the_panel_without_consent() {
    let mut session = Session::initialized(with_panel(true), false).await;
    let panel = opened(&mut session).await;
    let profile = json!({"workspace": 0, "command": "profile"});
    let answer = panel.post("/api/command", &profile).await.json();
    assert_eq!(answer["done"], false);
    let (id, params) = session.client.wait_for_request("window/showMessageRequest").await;
    assert!(!session.has_run().await);
    let never = params["actions"].as_array().and_then(|actions| actions.last());
    session.client.reply(&id, never.cloned().expect("a way to say no")).await;
    session.client.status("idle").await;
    let answer = panel.post("/api/command", &profile).await.json();
    assert_eq!(answer["message"], "You chose never to run code of this workspace.");
    session.client.notification("window/showMessage").await;
    assert!(!session.has_run().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn workspaces_have_separate_panels() {
    let (mut session, panel) = measured(true).await;
    let other = session.root.join("other");
    fs::create_dir(&other).expect("created");
    let added = json!([{"uri": super::fake::uri(&other), "name": "other"}]);
    let event = json!({"event": {"added": added, "removed": []}});
    session.client.notify("workspace/didChangeWorkspaceFolders", event).await;
    let argument = json!([{"uri": super::fake::uri(&other)}]);
    session.client.command("ridgeline.openPanel", argument).await.expect("done");
    let params = session.client.notification("ridgeline/openPanel").await;
    let second = Panel::at(params["uri"].as_str().expect("an address"));
    assert_eq!(second.base, panel.base);
    assert_ne!(second.workspace, panel.workspace);
    assert_eq!(second.document().await["project"], "other");
    assert_eq!(second.document().await["recording"], Value::Null);
    assert_ne!(panel.document().await["recording"], Value::Null);
    let mut events = second.listen().await;
    events.wait_for("status").await;
    let event = json!({"event": {"added": [], "removed": added}});
    session.client.notify("workspace/didChangeWorkspaceFolders", event).await;
    events.end().await;
    let gone = second.get(&format!("/api/panel?workspace={}", second.workspace)).await;
    assert_eq!(gone.status, 404);
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_port_is_closed_with_the_session() {
    let (session, panel) = measured(true).await;
    let mut open = panel.connect().await;
    let mut events = panel.listen().await;
    events.wait_for("status").await;
    session.client.goodbye().await;
    assert_eq!(ridgeline_test_client::http::read_to_end(&mut open).await, Vec::<u8>::new());
    events.end().await;
    assert!(tokio::net::TcpStream::connect(&panel.authority).await.is_err());
}

/// Measures the project outside the session, like `ridgeline profile` in a terminal.
fn measure_outside_the_session(session: &Session, when_unix_ms: u64) {
    let ProfileOutcome::Measured(profiled) = session.measured() else { return };
    let recording = session.store().new_recording(&session.root).expect("a folder");
    let profiled = Profiled {
        recording: Some(recording.clone()),
        when_unix_ms: Some(when_unix_ms),
        ..profiled
    };
    *session.profiler.outside_measurement.lock().expect("no test panics with it") = Some(profiled);
    for name in ["trace.json", "manifest.json"] {
        fs::write(recording.join(name), "{}").expect("written");
    }
}

#[tokio::test]
async fn measurements_from_a_terminal_are_shown() {
    let (session, panel) = measured(true).await;
    let before = panel.document().await["generation"].as_u64().expect("a number");
    let mut events = panel.listen().await;
    events.wait_for("status").await;
    measure_outside_the_session(&session, 5);
    // Results derived from the first measurement change the panel as well.
    let mut document = panel.document().await;
    while document["generation"].as_u64() <= Some(before) {
        events.wait_for("panel").await;
        document = panel.document().await;
    }
    assert_eq!(document["recording"]["when_unix_ms"], 5);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_failed_run_keeps_the_measurement() {
    let (mut session, panel) = measured(true).await;
    let script = session.uri("train.py");
    session.client.save(&script).await;
    let problem = ProfileOutcome::Problem { message: "no torch here".to_owned(), log: None };
    session.next_run().await.end.send(problem).expect("waiting");
    session.client.notification("window/showMessage").await;
    session.client.status("failed").await;
    let document = panel.document().await;
    assert_eq!(document["status"]["message"], "no torch here");
    assert_ne!(document["recording"], Value::Null);
    session.client.goodbye().await;
}
