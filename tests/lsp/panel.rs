//! Misbehaving connections to the panel: they get an error or are closed, the server's memory stays
//! small, and pages are still served.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::lsp::process::Server;
use ridgeline_test_client::http::{Panel, read_to_end, request};

/// A server with an open panel.
async fn opened() -> (Server, Panel) {
    let capabilities = json!({"experimental": {"ridgeline": {"panel": true}}});
    let mut server = Server::greeted(capabilities, json!({})).await;
    server.client.command("ridgeline.openPanel", json!([])).await.expect("done");
    let params = server.client.notification("ridgeline/openPanel").await;
    (server, Panel::at(params["uri"].as_str().expect("an address")))
}

/// Sends bytes, and expects this status or a closed connection, and a panel that still responds.
async fn check(server: &Server, panel: &Panel, bytes: &[u8], expected: &[u16]) {
    let answer = panel.send(bytes).await;
    let request = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
    assert!(expected.contains(&answer.status), "{request}: {answer:?}");
    assert_eq!(panel.get("/").await.status, 200, "{request}");
    if let Some(resident) = server.resident_bytes() {
        assert!(resident < 100_000_000, "{request}: {resident} bytes");
    }
}

/// The connection was closed without a response.
const CLOSED: u16 = 0;

#[tokio::test]
async fn heads_that_cannot_be() {
    let (server, panel) = opened().await;
    let at = &panel.base;
    let host = &panel.authority;
    let long = "x".repeat(1 << 20);
    let many: String = (0..10_000).map(|number| format!("x-{number}: y\r\n")).collect();
    for bytes in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"\r\n\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        format!("GET {at}/ HTTP/9.9\r\nhost: {host}\r\n\r\n").into_bytes(),
        format!("GET {at}/{long} HTTP/1.1\r\nhost: {host}\r\n\r\n").into_bytes(),
        format!("GET {at}/ HTTP/1.1\r\nhost: {host}\r\nx: {long}\r\n\r\n").into_bytes(),
        format!("GET {at}/ HTTP/1.1\r\nhost: {host}\r\n{many}\r\n").into_bytes(),
        format!("GET {at}/ HTTP/1.1\r\nhost: {host}\r\nx\x00y: z\r\n\r\n").into_bytes(),
        format!("{long} {at}/ HTTP/1.1\r\nhost: {host}\r\n\r\n").into_bytes(),
    ] {
        check(&server, &panel, &bytes, &[CLOSED, 400, 414, 431]).await;
    }
    for headers in [&[][..], &[("host", "a"), ("host", "localhost")]] {
        let mut head = format!("GET {at}/ HTTP/1.1\r\nconnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        check(&server, &panel, format!("{head}\r\n").as_bytes(), &[403]).await;
    }
    let old = format!("GET {at}/ HTTP/1.0\r\n\r\n");
    check(&server, &panel, old.as_bytes(), &[403]).await;
    server.goodbye().await;
}

#[tokio::test]
async fn bodies_that_cannot_be() {
    let (server, panel) = opened().await;
    let path = format!("{}/api/jump", panel.base);
    let json = ("content-type", "application/json");
    let post = |headers: &[(&str, &str)], body: &str| {
        request("POST", &path, &panel.authority, headers, body)
    };
    let huge = format!("[\"{}\"]", "x".repeat(1 << 20));
    check(&server, &panel, &post(&[json], &huge), &[413]).await;
    check(&server, &panel, &post(&[json], "{"), &[400]).await;
    check(&server, &panel, &post(&[json], "\u{0}"), &[400]).await;
    check(&server, &panel, &post(&[json], &"[".repeat(15_000)), &[400, 422]).await;
    check(&server, &panel, &post(&[json], "{\"workspace\":1e99}"), &[400, 422]).await;
    check(&server, &panel, &post(&[], "{}"), &[415]).await;
    let lie = [json, ("content-length", "99999999999")];
    check(&server, &panel, &post(&lie, ""), &[413]).await;
    let both = [json, ("content-length", "5"), ("transfer-encoding", "chunked")];
    let both = [post(&both, ""), b"0\r\n\r\n".to_vec()].concat();
    check(&server, &panel, &both, &[CLOSED, 400]).await;
    let chunked = [json, ("transfer-encoding", "chunked")];
    let mut endless = post(&chunked, "");
    for _ in 0..100 {
        endless.extend_from_slice(format!("4000\r\n{}\r\n", " ".repeat(0x4000)).as_bytes());
    }
    check(&server, &panel, &endless, &[413]).await;
    server.goodbye().await;
}

#[tokio::test]
async fn queries_that_cannot_be() {
    let (server, panel) = opened().await;
    for path in [
        "/api/panel",
        "/api/panel?workspace=",
        "/api/panel?workspace=-1",
        "/api/panel?workspace=99999999999",
        "/api/timeline?workspace=0",
        "/api/timeline?workspace=0&generation=x",
        "/api/events",
    ] {
        assert_eq!(panel.get(path).await.status, 400, "{path}");
    }
    for path in [
        "/api/panel?workspace=4294967295",
        "/api/timeline?workspace=0&generation=18446744073709551615",
        "/api/events?workspace=9",
        "/api/nothing",
        "/index.html",
        "/%2e%2e/etc/passwd",
        "",
    ] {
        assert_eq!(panel.get(path).await.status, 404, "{path}");
    }
    server.goodbye().await;
}

/// Silent and slow connections are closed after a timeout, so others need not wait longer.
#[tokio::test]
async fn connections_that_never_come_to_the_point() {
    let (server, panel) = opened().await;
    let mut silent = panel.connect().await;
    let mut slow = panel.connect().await;
    slow.write_all(b"GET / HTTP/1.1\r\nx: ").await.expect("written");
    let mut idle = panel.connect().await;
    let first = format!("GET {}/ HTTP/1.1\r\nhost: {}\r\n\r\n", panel.base, panel.authority);
    idle.write_all(first.as_bytes()).await.expect("written");
    // Sending an occasional byte does not keep it open.
    let (mut slow_half, mut slow_rest) = slow.into_split();
    let dripping = tokio::spawn(async move {
        while slow_rest.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let mut dripped = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut slow_half, &mut dripped);
    // Closed or reset.
    let _ = tokio::time::timeout(Duration::from_secs(60), read).await.expect("it is closed");
    dripping.abort();
    read_to_end(&mut silent).await;
    let answer = String::from_utf8_lossy(&read_to_end(&mut idle).await).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.goodbye().await;
}

#[tokio::test]
async fn a_thousand_connections() {
    #[cfg(unix)]
    if !may_open(4_000) {
        println!("skipped: this user may not open enough files");
        return;
    }
    let (server, panel) = opened().await;
    let mut open: Vec<TcpStream> = Vec::new();
    for number in 0..1000 {
        let connected = TcpStream::connect(&panel.authority);
        // The system queues pending connections up to its own limit.
        match tokio::time::timeout(Duration::from_secs(1), connected).await {
            Ok(Ok(stream)) => open.push(stream),
            _ => assert!(number > 100, "only {number} connections"),
        }
    }
    if let Some(resident) = server.resident_bytes() {
        assert!(resident < 100_000_000, "{resident} bytes");
    }
    // The server closes its ends one by one, and then serves the page.
    drop(open);
    assert_eq!(panel.get("/").await.status, 200);
    server.goodbye().await;
}

/// Raises this process's limit on open files.
#[cfg(unix)]
fn may_open(count: u64) -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let enough = |of: Option<u64>| of.is_none_or(|of| of >= count);
    if enough(limit.current) {
        return true;
    }
    let more = Rlimit { current: Some(count), maximum: limit.maximum };
    enough(limit.maximum) && setrlimit(Resource::Nofile, more).is_ok()
}

/// Nothing is buffered for pages that listen but never read, and their number is limited.
#[tokio::test]
async fn event_streams_that_nobody_reads() {
    let (mut server, panel) = opened().await;
    let path = format!("{}/api/events?workspace=0", panel.base);
    let listen = request("GET", &path, &panel.authority, &[], "");
    let mut unread = Vec::new();
    for _ in 0..5 {
        let mut stream = panel.connect().await;
        stream.write_all(&listen).await.expect("written");
        // The first byte shows that the connection was accepted.
        stream.readable().await.expect("an answer");
        unread.push(stream);
    }
    assert_eq!(panel.get("/api/events?workspace=0").await.status, 503);
    let before = server.resident_bytes();
    for _ in 0..2_000 {
        for command in ["ridgeline.pause", "ridgeline.resume"] {
            server.client.command(command, json!([])).await.expect("done");
        }
    }
    if let (Some(before), Some(after)) = (before, server.resident_bytes()) {
        assert!(after < before + 20_000_000, "{before} and then {after} bytes");
    }
    let document: Value = panel.document().await;
    assert_eq!(document["status"]["state"], "idle");
    drop(unread);
    // The server notices their disconnect with some delay.
    loop {
        let mut events = panel.listen().await;
        if events.next().await.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.goodbye().await;
}
