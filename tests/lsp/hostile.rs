//! Misbehaving clients: the session continues, and valid requests in between get responses.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::lsp::process::{Server, spawn, wait_for_exit};

/// Sends bytes, expects this many error responses without an id, and a server that still responds.
async fn check(bytes: &[u8], errors: usize) {
    let mut server = Server::start();
    server.client.hello(json!({}), json!({})).await;
    server.client.send_raw(bytes).await;
    let answer = server.client.request("ridgeline/nothing", Value::Null).await;
    assert_eq!(answer.expect_err("refused")["code"], -32601);
    for _ in 0..errors {
        let error = server.client.answer(&Value::Null).await.expect_err("an error");
        assert!(matches!(error["code"].as_i64(), Some(-32700 | -32600)), "{error}");
    }
    assert_eq!(server.goodbye().await.code(), Some(0));
}

fn framed(body: &str) -> Vec<u8> {
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// `initialize` as a notification has no response to wait for.
#[tokio::test]
async fn an_initialize_that_wants_no_answer() {
    let mut server = Server::start();
    let notified =
        framed(r#"{"jsonrpc":"2.0","method":"initialize","params":{"capabilities":{}}}"#);
    server.client.send_raw(&notified.repeat(3)).await;
    server.client.hello(json!({}), json!({})).await;
    assert_eq!(server.goodbye().await.code(), Some(0));
}

#[tokio::test]
async fn garbage() {
    check(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\x00\xff\xfe garbage", 1).await;
}

#[tokio::test]
async fn lengths_that_cannot_be() {
    check(b"Content-Length: 99999999999999999999\r\n\r\n", 1).await;
    check(b"Content-Length: -1\r\n\r\n", 1).await;
    check(b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 1).await;
    check(b"Content-Length: 0\r\n\r\n", 1).await;
}

#[tokio::test]
async fn a_length_that_swallows_the_next_message() {
    check(b"Content-Length: 60\r\n\r\n{\"jsonrpc\":\"2.0\"", 1).await;
}

#[tokio::test]
async fn bodies_that_are_no_messages() {
    for body in ["{", "", "17", "\"x\"", "null", "[]", "{}", "\u{0}", "{\"jsonrpc\":\"2.0\"}"] {
        check(&framed(body), 1).await;
    }
}

#[tokio::test]
async fn bytes_that_are_no_text() {
    check(b"Content-Length: 4\r\n\r\n\xff\xff\xff\xff", 1).await;
}

#[tokio::test]
async fn deep_nesting() {
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let body = format!(r#"{{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{deep}}}"#);
    check(&framed(&body), 0).await;
    check(&framed(&"[".repeat(100_000)), 1).await;
    check(&framed(&"{\"a\":".repeat(100_000)), 1).await;
}

#[tokio::test]
async fn a_deep_request_is_answered_by_its_id() {
    let mut server = Server::start();
    server.client.hello(json!({}), json!({})).await;
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":"deep","method":"textDocument/hover","params":{deep}}}"#);
    server.client.send_raw(&framed(&body)).await;
    let error = server.client.answer(&json!("deep")).await.expect_err("refused");
    assert_eq!(error["code"], -32600);
    server.goodbye().await;
}

#[tokio::test]
async fn every_request_is_answered_by_its_id() {
    let mut server = Server::start();
    server.client.hello(json!({}), json!({})).await;
    for (id, request, code) in [
        ("a", r#""method":"$/unknown""#, -32601),
        ("b", r#""method":"$/setTrace","params":{"value":"off"}"#, -32601),
        ("c", r#""method":["textDocument/hover"]"#, -32600),
        ("d", r#""method":"textDocument/hover","params":{"position":{"line":1e999}}"#, -32700),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":"{id}",{request}}}"#);
        server.client.send_raw(&framed(&body)).await;
        let error = server.client.answer(&json!(id)).await.expect_err("refused");
        assert_eq!(error["code"], code, "{request}");
    }
    server.goodbye().await;
}

/// VS Code sends the trace level `compact`. A newer client may announce what does not exist yet.
#[tokio::test]
async fn an_initialize_with_unknown_values() {
    let mut server = Server::start();
    let capabilities = json!({
        "textDocument": {"hover": {"contentFormat": ["html", "markdown"]}, "codeLens": 7},
        "general": {"positionEncodings": ["utf-8", 8]},
    });
    let more = json!({"trace": "compact", "clientInfo": {"name": 5}});
    let result = server.client.hello(capabilities, more).await;
    assert_eq!(result["capabilities"]["positionEncoding"], "utf-8");
    server.goodbye().await;
}

#[tokio::test]
async fn an_array_of_messages() {
    let mut server = Server::start();
    server.client.hello(json!({}), json!({})).await;
    let params = json!({"textDocument": {"uri": "file:///w/a.py"}});
    let ask = |id: &str| json!({"jsonrpc": "2.0", "id": id, "method": "textDocument/codeLens", "params": params});
    server.client.send(&json!([ask("a"), ask("b")])).await;
    for id in ["a", "b"] {
        assert_eq!(server.client.answer(&json!(id)).await, Ok(Value::Null));
    }
    server.goodbye().await;
}

#[tokio::test]
async fn parameters_of_the_wrong_kind() {
    let mut server = Server::start();
    server.client.hello(json!({}), json!({})).await;
    for params in
        [json!(null), json!(17), json!([]), json!({}), json!({"textDocument": {"uri": 3}})]
    {
        for method in ["didOpen", "didChange", "didSave", "didClose"] {
            server.client.notify(&format!("textDocument/{method}"), params.clone()).await;
        }
        for method in ["hover", "inlayHint", "codeLens", "diagnostic"] {
            let name = format!("textDocument/{method}");
            let error = server.client.request(&name, params.clone()).await.expect_err("refused");
            assert_eq!(error["code"], -32602, "{name} {params}");
        }
    }
    server.goodbye().await;
}

#[tokio::test]
async fn paths_that_cannot_be() {
    let mut server = Server::start();
    server.client.hello(json!({}), json!({})).await;
    for uri in [
        "file:///",
        "file:///%00",
        "file:///../..",
        "untitled:",
        "x",
        "",
        "file:///a b[é]\\",
        "%%%",
    ] {
        server.client.open(uri, "x = 1\n").await;
        let text = json!([{"text": "y = 2\n"}]);
        server.client.change(uri, 2, text).await;
        server.client.save(uri).await;
        // An invalid URI is rejected; the others have no hints.
        let params = json!({"textDocument": {"uri": uri}});
        let _ = server.client.request("textDocument/codeLens", params.clone()).await;
        server.client.notify("textDocument/didClose", params).await;
    }
    server.goodbye().await;
}

#[tokio::test]
async fn before_hello_and_hello_twice() {
    let mut server = Server::start();
    let early = server.client.request("shutdown", Value::Null).await;
    assert_eq!(early.expect_err("refused")["code"], -32002);
    server.client.hello(json!({}), json!({})).await;
    let again = server.client.request("initialize", json!({"capabilities": {}})).await;
    assert_eq!(again.expect_err("refused")["code"], -32600);
    assert_eq!(server.goodbye().await.code(), Some(0));
}

#[tokio::test]
async fn everything_at_once_without_waiting() {
    let mut server = Server::start();
    let hello = server.client.begin("initialize", json!({"capabilities": {}})).await;
    server.client.notify("initialized", json!({})).await;
    server.client.open("untitled:a", "x = 1\n").await;
    let params = json!({"textDocument": {"uri": "untitled:a"}});
    let lenses = server.client.begin("textDocument/codeLens", params).await;
    assert!(server.client.answer(&json!(hello)).await.is_ok());
    // A lost document would give null here.
    assert_eq!(server.client.answer(&json!(lenses)).await, Ok(json!([])));
    server.goodbye().await;
}

#[tokio::test]
async fn cancelled_and_made_up_requests() {
    let mut server = Server::start();
    server.client.hello(json!({}), json!({})).await;
    server.client.notify("$/cancelRequest", json!({"id": "never asked"})).await;
    server.client.notify("$/cancelRequest", json!({"id": {"a": 1}})).await;
    server.client.notify("$/setTrace", json!({"value": "verbose"})).await;
    server.client.send(&json!({"jsonrpc": "2.0", "id": "made up", "result": {}})).await;
    server.client.send(&json!({"jsonrpc": "2.0", "id": null, "error": {"x": []}})).await;
    let params = json!({"textDocument": {"uri": "file:///w/a.py"}});
    for _ in 0..50 {
        let id = server.client.begin("textDocument/codeLens", params.clone()).await;
        server.client.notify("$/cancelRequest", json!({"id": id})).await;
        match server.client.answer(&json!(id)).await {
            Ok(answer) => assert_eq!(answer, Value::Null),
            Err(error) => assert_eq!(error["code"], -32800),
        }
    }
    server.goodbye().await;
}

/// The queue to a client that reads nothing does not grow, and the server exits when such a client
/// disconnects.
#[tokio::test]
async fn a_client_that_reads_nothing() {
    let (_folder, mut process, _) = spawn(&[]);
    let mut input = process.stdin.take().expect("piped");
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{}}}"#;
    input.write_all(&framed(hello)).await.expect("written");
    let ask =
        framed(r#"{"jsonrpc":"2.0","id":1,"method":"nonsense/with a long name in its error"}"#);
    let flood = async {
        for _ in 0..1_000_000 {
            input.write_all(&ask).await.expect("written");
        }
    };
    // At some point the server stops reading, because the client does not read its responses.
    let flooded = tokio::time::timeout(Duration::from_secs(2), flood).await;
    assert!(flooded.is_err(), "a million responses were buffered");
    if let Ok(status) =
        std::fs::read_to_string(format!("/proc/{}/statm", process.id().unwrap_or(0)))
    {
        let pages: u64 = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        assert!(pages * 4096 < 100_000_000, "{pages} pages");
    }
    drop(input);
    drop(process.stdout.take());
    wait_for_exit(&mut process).await;
}

/// Nothing reads stderr. A full pipe must not block the server.
#[tokio::test]
async fn a_log_that_nobody_reads() {
    let mut server = Server::start_with(&[("RIDGELINE_LOG", "trace")]);
    server.client.hello(json!({}), json!({})).await;
    for number in 0..2000 {
        let text = format!("x = {number}\n");
        server.client.change("untitled:never-opened", number, json!([{"text": text}])).await;
    }
    let params = json!({"textDocument": {"uri": "file:///w/a.py"}});
    assert!(server.client.request("textDocument/codeLens", params).await.is_ok());
    server.goodbye().await;
}
