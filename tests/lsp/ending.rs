//! The server exits when its session ends, in whatever way.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::lsp::process::{Server, spawn, wait_for_exit};

#[tokio::test]
async fn in_order() {
    let mut server = Server::start();
    server.client.hello(json!({}), json!({})).await;
    assert_eq!(server.goodbye().await.code(), Some(0));
}

#[tokio::test]
async fn shutdown_and_exit_in_one_breath() {
    let mut server = Server::start();
    server.client.hello(json!({}), json!({})).await;
    let id = server.client.begin("shutdown", Value::Null).await;
    server.client.send(&json!({"jsonrpc": "2.0", "method": "exit"})).await;
    assert_eq!(server.client.answer(&json!(id)).await, Ok(Value::Null));
    assert_eq!(wait_for_exit(&mut server.process).await.code(), Some(0));
}

#[tokio::test]
async fn exit_without_shutdown_is_a_failure() {
    let mut server = Server::start();
    server.client.hello(json!({}), json!({})).await;
    server.client.send(&json!({"jsonrpc": "2.0", "method": "exit"})).await;
    assert_eq!(wait_for_exit(&mut server.process).await.code(), Some(1));
}

#[tokio::test]
async fn the_input_is_closed() {
    let mut server = Server::start();
    server.client.hello(json!({}), json!({})).await;
    let Server { client, mut process, .. } = server;
    client.hang_up().await;
    assert_eq!(wait_for_exit(&mut process).await.code(), Some(1));
}

#[tokio::test]
async fn the_input_is_closed_within_a_message_or_before_any() {
    for bytes in [&b""[..], b"Content-Le", b"Content-Length: 100\r\n\r\n{\"jsonrpc\":"] {
        let (_folder, mut process, _) = spawn(&[]);
        let mut input = process.stdin.take().expect("piped");
        input.write_all(bytes).await.expect("written");
        drop(input);
        assert_eq!(wait_for_exit(&mut process).await.code(), Some(1), "{bytes:?}");
    }
}

#[tokio::test]
async fn the_output_is_closed() {
    let (_folder, mut process, _) = spawn(&[]);
    drop(process.stdout.take());
    let mut input = process.stdin.take().expect("piped");
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}"#;
    let frame = format!("Content-Length: {}\r\n\r\n{hello}", hello.len());
    input.write_all(frame.as_bytes()).await.expect("written");
    assert_eq!(wait_for_exit(&mut process).await.code(), Some(1));
}

/// The editor was killed. A child of it may keep the pipes open, but the server still exits.
#[cfg(unix)]
#[tokio::test]
async fn the_parent_is_gone() {
    let mut editor = std::process::Command::new("sleep").arg("600").spawn().expect("sleep");
    let mut server = Server::start();
    server.client.hello(json!({}), json!({"processId": editor.id()})).await;
    editor.kill().expect("killed");
    editor.wait().expect("reaped");
    assert_eq!(wait_for_exit(&mut server.process).await.code(), Some(1));
}

#[tokio::test]
async fn at_rest_it_is_small() {
    let mut server = Server::start();
    server.client.hello(json!({}), json!({})).await;
    let Some(bytes) = server.resident_bytes() else {
        println!("skipped: the memory of a process is not available on this system");
        return;
    };
    assert!(bytes < 60_000_000, "{bytes}");
    server.goodbye().await;
}
