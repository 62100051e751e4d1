//! A minimal HTTP client, which can also send requests that no library would.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Fails tests that hang. Not a performance limit.
const HANG: Duration = Duration::from_secs(60);

/// A served panel, parsed from its URL.
#[derive(Clone, Debug)]
pub struct Panel {
    /// `127.0.0.1:4711`.
    pub authority: String,
    /// `/` and the token.
    pub base: String,
    /// The workspace id in the URL.
    pub workspace: String,
}

/// A response.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub status: u16,
    /// The raw headers, without the status line.
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

impl Panel {
    /// Parses a URL such as `http://127.0.0.1:4711/token/?workspace=0`.
    pub fn at(uri: &str) -> Panel {
        let rest = uri.strip_prefix("http://").expect("HTTP");
        let (authority, path) = rest.split_once('/').expect("a path");
        let (token, query) = path.split_once("/?workspace=").expect("a token and a workspace");
        Panel {
            authority: authority.to_owned(),
            base: format!("/{token}"),
            workspace: query.to_owned(),
        }
    }

    /// Opens a connection without sending anything.
    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.authority).await.expect("a port that is open")
    }

    /// Sends a GET request for `path` below the token.
    pub async fn get(&self, path: &str) -> Answer {
        self.get_with(path, &[]).await
    }

    /// The same with more headers.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let path = format!("{}{path}", self.base);
        self.send(&request("GET", &path, &self.authority, headers, "")).await
    }

    /// Fetches the document of the panel's workspace.
    pub async fn document(&self) -> Value {
        let answer = self.get(&format!("/api/panel?workspace={}", self.workspace)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Posts JSON to `path` below the token.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        let path = format!("{}{path}", self.base);
        let headers = [("content-type", "application/json")];
        self.send(&request("POST", &path, &self.authority, &headers, &body.to_string())).await
    }

    /// Sends bytes and reads the response until the server closes the connection.
    pub async fn send(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        // The server may respond and close before it has read everything.
        let _ = stream.write_all(bytes).await;
        parse(&read_to_end(&mut stream).await)
    }

    /// Opens the event stream.
    pub async fn listen(&self) -> Events {
        self.listen_with(&[]).await
    }

    /// The same with more headers.
    pub async fn listen_with(&self, headers: &[(&str, &str)]) -> Events {
        let path = format!("{}/api/events?workspace={}", self.base, self.workspace);
        let mut stream = self.connect().await;
        let get = request("GET", &path, &self.authority, headers, "");
        stream.write_all(&get).await.expect("written");
        Events { stream, seen: String::new() }
    }
}

/// Formats a request with `Connection: close`.
pub fn request(
    method: &str,
    path: &str,
    host: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        text += &format!("content-length: {}\r\n", body.len());
    }
    (text + "\r\n" + body).into_bytes()
}

/// Reads until the peer closes the connection.
pub async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        let read = tokio::time::timeout(HANG, stream.read(&mut chunk)).await;
        match read.expect("the connection stays open") {
            // A server that rejects the rest of a request resets the connection.
            Ok(0) | Err(_) => return bytes,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

fn parse(bytes: &[u8]) -> Answer {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Answer::default();
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let (status, head) = head.split_once("\r\n").unwrap_or((&head, ""));
    let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer {
        status: status.expect("a status"),
        head: head.to_owned(),
        body: bytes[end + 4..].to_vec(),
    }
}

/// An event stream.
pub struct Events {
    stream: TcpStream,
    seen: String,
}

impl Events {
    /// Returns the name and data of the next event, or `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<(String, String)> {
        loop {
            if let Some(event) = self.take() {
                return Some(event);
            }
            let mut chunk = vec![0; 4096];
            let read = tokio::time::timeout(HANG, self.stream.read(&mut chunk)).await;
            match read.expect("an event") {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.seen += &String::from_utf8_lossy(&chunk[..count]),
            }
        }
    }

    /// Skips pending events and waits for the end of the stream.
    pub async fn end(&mut self) {
        while self.next().await.is_some() {}
    }

    /// Waits for an event of this name and returns its data.
    pub async fn wait_for(&mut self, event: &str) -> String {
        loop {
            let (name, data) = self.next().await.expect("a stream that goes on");
            if name == event {
                return data;
            }
        }
    }

    /// Takes a complete event from the received data.
    fn take(&mut self) -> Option<(String, String)> {
        let start = self.seen.find("event: ")?;
        let end = start + self.seen[start..].find("\n\n")?;
        let event = self.seen[start..end].to_owned();
        self.seen.drain(..end);
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
        Some((
            field("event: ").unwrap_or_default().to_owned(),
            field("data: ").unwrap_or_default().to_owned(),
        ))
    }
}
