//! The panel: who may open it and ask, what it shows of a session, and what it does in the editor.

use serde_json::{Value, json};

use super::fake::Session;
use super::http::Panel;

fn with_panel() -> Value {
    json!({"experimental": {"ridgeline": {"panel": true, "highlight": true}}})
}

fn with_documents() -> Value {
    json!({"window": {"showDocument": {"support": true}}})
}

/// Opens the panel in a client that shows it itself.
async fn opened(session: &mut Session) -> Panel {
    session.client.command("ridgeline.openPanel", json!([])).await.expect("done");
    let params = session.client.notification("ridgeline/openPanel").await;
    Panel::at(params["uri"].as_str().expect("an address"))
}

#[tokio::test]
async fn a_client_that_shows_it_gets_the_address() {
    let mut session = Session::greeted(with_panel(), true).await;
    let panel = opened(&mut session).await;
    assert!(panel.authority.starts_with("127.0.0.1:"), "{panel:?}");
    let page = panel.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.text().starts_with("<!doctype html>"), "{}", page.text());
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    // It is opened once: the address stays what it was.
    assert_eq!(opened(&mut session).await.base, panel.base);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_browser_opens_it_for_other_clients() {
    let mut session = Session::greeted(with_documents(), true).await;
    session.client.command("ridgeline.openPanel", json!([])).await.expect("done");
    let (id, params) = session.client.asked("window/showDocument").await;
    assert_eq!(params["external"], true);
    let panel = Panel::at(params["uri"].as_str().expect("an address"));
    assert_eq!(panel.get("/").await.status, 200);
    session.client.reply(&id, json!({"success": true})).await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_client_that_opens_nothing_is_told_the_address() {
    for refused in
        [json!({"result": {"success": false}}), json!({"error": {"code": 1, "message": "no"}})]
    {
        let mut session = Session::greeted(with_documents(), true).await;
        session.client.command("ridgeline.openPanel", json!([])).await.expect("done");
        let (id, params) = session.client.asked("window/showDocument").await;
        let mut answer = refused.clone();
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = id;
        session.client.send(&answer).await;
        let said = session.client.notification("window/showMessage").await;
        let expected = format!("The panel is at {}", params["uri"].as_str().expect("an address"));
        assert_eq!(said["message"], expected);
        session.client.goodbye().await;
    }
    let mut session = Session::greeted(json!({}), true).await;
    session.client.command("ridgeline.openPanel", json!([])).await.expect("done");
    let said = session.client.notification("window/showMessage").await;
    let said = said["message"].as_str().expect("a text");
    let panel = Panel::at(said.strip_prefix("The panel is at ").expect("an address"));
    assert_eq!(panel.document().await["recording"], Value::Null);
    session.client.goodbye().await;
}
