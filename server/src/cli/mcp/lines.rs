//! The lines of standard input and output, each a message. rmcp ignores messages that it cannot
//! parse, and a client would wait for the answers to such requests. So lone surrogate escapes, which
//! JavaScript and Python write, are replaced here, and other unreadable requests are refused.

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader,
    DuplexStream,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::transport::screen::with_repaired_strings;

/// The maximum length of a line in bytes. rmcp has the same limit.
const LINE_LIMIT: usize = 16 * 1024 * 1024;
/// The size of the buffers between this layer and rmcp, in bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// The maximum number of lines that wait for the client to read.
const QUEUE_LIMIT: usize = 16;

/// The client's messages and the way back, for rmcp.
pub(super) struct Lines {
    pub input: DuplexStream,
    pub output: DuplexStream,
    /// Ends when everything is written.
    pub written: JoinHandle<()>,
}

/// Passes lines between the client and rmcp.
pub(super) fn lines(
    client_input: impl AsyncRead + Unpin + Send + 'static,
    client_output: impl AsyncWrite + Unpin + Send + 'static,
) -> Lines {
    let (to_service, input) = tokio::io::duplex(BUFFER_BYTES);
    let (output, from_service) = tokio::io::duplex(BUFFER_BYTES);
    let (queue, queued) = mpsc::channel(QUEUE_LIMIT);
    tokio::spawn(read(BufReader::new(client_input), to_service, queue.clone()));
    tokio::spawn(relay(BufReader::new(from_service), queue));
    Lines { input, output, written: tokio::spawn(write(queued, client_output)) }
}

/// Passes on the client's lines until it closes its end.
async fn read(
    mut client: impl AsyncBufRead + Unpin,
    mut to_service: DuplexStream,
    queue: mpsc::Sender<Vec<u8>>,
) {
    while let Some(line) = next_line(&mut client).await {
        // Fails only if the other side has ended.
        let passed = match screen(line) {
            Ok(line) => to_service.write_all(&line).await.is_ok(),
            Err(Some(refusal)) => queue.send(format!("{refusal}\n").into_bytes()).await.is_ok(),
            Err(None) => true,
        };
        if !passed {
            return;
        }
    }
}

/// Passes on the service's lines.
async fn relay(mut service: impl AsyncBufRead + Unpin, queue: mpsc::Sender<Vec<u8>>) {
    let mut line = Vec::new();
    while service.read_until(b'\n', &mut line).await.is_ok_and(|count| count > 0) {
        if queue.send(std::mem::take(&mut line)).await.is_err() {
            return;
        }
    }
}

async fn write(mut queued: mpsc::Receiver<Vec<u8>>, mut client: impl AsyncWrite + Unpin) {
    while let Some(line) = queued.recv().await {
        if client.write_all(&line).await.is_err() || client.flush().await.is_err() {
            return;
        }
    }
}

/// Returns the next line with its line end, or `None` at the end. Longer lines than the limit are
/// skipped.
async fn next_line(client: &mut (impl AsyncBufRead + Unpin)) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let available = client.fill_buf().await.ok().filter(|available| !available.is_empty())?;
        let end = available.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let piece = available.get(..end.unwrap_or(available.len())).unwrap_or_default();
        is_too_long |= line.len() + piece.len() > LINE_LIMIT;
        if is_too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(piece);
        }
        let count = piece.len();
        client.consume(count);
        if end.is_some() && std::mem::take(&mut is_too_long) {
            tracing::warn!("ignored a message of more than {LINE_LIMIT} bytes");
        } else if end.is_some() {
            return Some(line);
        }
    }
}

/// What identifies a message. The rest is skipped without recursion, at any depth.
#[derive(Deserialize)]
struct Head {
    id: Option<Value>,
    method: Option<Value>,
}

/// Returns the line for rmcp.
///
/// # Errors
/// The answer to a request that rmcp would ignore; `None` if there is nothing to answer.
fn screen(line: Vec<u8>) -> Result<Vec<u8>, Option<Value>> {
    let Some((text, is_too_much)) = with_repaired_strings(line) else { return Err(None) };
    let Ok(Head { id, method }) = serde_json::from_str(&text) else {
        // Not a message, so that nobody waits for an answer. rmcp decides.
        return if is_too_much { Err(None) } else { Ok(text.into_bytes()) };
    };
    let (Some(method), Some(id)) = (method, id.filter(|id| id.is_string() || id.is_i64())) else {
        return if is_too_much { Err(None) } else { Ok(text.into_bytes()) };
    };
    if is_too_much {
        return Err(Some(error(&id, -32600, "this message has too many values")));
    }
    let (code, why) = match serde_json::from_str::<Value>(&text) {
        _ if !method.is_string() => (-32600, "a method must be a string"),
        Ok(message) => match message.get("params") {
            None | Some(Value::Null | Value::Object(_)) => return Ok(text.into_bytes()),
            Some(_) => (-32602, "the parameters must be an object"),
        },
        // Nested too deeply, or a number that is too large.
        Err(_) => (-32700, "the parameters are not valid JSON"),
    };
    Err(Some(error(&id, code, why)))
}

fn error(id: &Value, code: i32, why: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::screen::VALUES_LIMIT;

    #[track_caller]
    fn check(line: &str, expected: Result<&str, Option<i64>>) {
        let screened = screen(line.as_bytes().to_vec());
        let screened = screened.map(|line| String::from_utf8(line).expect("text"));
        let code = |refusal: Option<Value>| refusal.and_then(|json| json["error"]["code"].as_i64());
        assert_eq!(screened.map_err(code), expected.map(str::to_owned), "{line}");
    }

    #[test]
    fn readable_messages_are_passed_on() {
        for line in ["", "nonsense\n", "[]", "{\"method\":\"m\"}", "{\"id\":1,\"result\":[]}"] {
            check(line, Ok(line));
        }
        check(r#"{"id":1,"method":"\ud800"}"#, Ok(r#"{"id":1,"method":"\ufffd"}"#));
    }

    #[test]
    fn unreadable_requests_are_refused() {
        check(r#"{"id":1,"method":2}"#, Err(Some(-32600)));
        check(r#"{"id":1,"method":"m","params":[]}"#, Err(Some(-32602)));
        check(r#"{"id":1,"method":"m","params":{"a":1e999}}"#, Err(Some(-32700)));
        let many = "0,".repeat(VALUES_LIMIT);
        check(&format!(r#"{{"id":"x","method":"m","params":[{many}0]}}"#), Err(Some(-32600)));
        check(&format!(r#"{{"method":"m","params":[{many}0]}}"#), Err(None));
        let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
        check(&format!(r#"{{"id":"x","method":"m","params":{deep}}}"#), Err(Some(-32700)));
    }

    #[tokio::test]
    async fn long_lines_are_skipped() {
        let text = format!("{}\na\n{}\nb", "x".repeat(LINE_LIMIT), "y".repeat(LINE_LIMIT + 1));
        let mut client = text.as_bytes();
        assert_eq!(next_line(&mut client).await.as_deref(), Some(b"a\n".as_slice()));
        assert_eq!(next_line(&mut client).await, None);
    }
}
