//! An LSP client that waits for the messages a test expects, and fails tests that leave a message
//! unread. Statuses and progress may be left unread, because their timing varies.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

/// Fails tests that hang. Not a performance limit.
const HANG: Duration = Duration::from_secs(60);

const MAY_BE_LEFT: [&str; 2] = ["ridgeline/status", "$/progress"];

/// A client for one test.
pub struct StrictClient {
    input: Box<dyn AsyncWrite + Unpin + Send>,
    messages: mpsc::UnboundedReceiver<Value>,
    unread: VecDeque<Value>,
    last_id: i64,
}

impl StrictClient {
    /// Creates a client that writes to `input` and reads from `output`.
    pub fn new(
        input: impl AsyncWrite + Unpin + Send + 'static,
        output: impl AsyncRead + Unpin + Send + 'static,
    ) -> StrictClient {
        let (sender, messages) = mpsc::unbounded_channel();
        tokio::spawn(read_all(output, sender));
        StrictClient { input: Box::new(input), messages, unread: VecDeque::new(), last_id: 0 }
    }

    /// Sends `initialize` with `capabilities` and the fields of `more`. Returns the response.
    pub async fn hello(&mut self, capabilities: Value, more: Value) -> Value {
        let mut params = json!({"processId": null, "rootUri": null, "capabilities": capabilities});
        for (key, value) in more.as_object().into_iter().flatten() {
            params[key] = value.clone();
        }
        let result = self.request("initialize", params).await.expect("a server that answers");
        self.notify("initialized", json!({})).await;
        result
    }

    /// Opens a Python document.
    pub async fn open(&mut self, uri: &str, text: &str) {
        let document = json!({"uri": uri, "languageId": "python", "version": 1, "text": text});
        self.notify("textDocument/didOpen", json!({"textDocument": document})).await;
    }

    /// Saves a document.
    pub async fn save(&mut self, uri: &str) {
        self.notify("textDocument/didSave", json!({"textDocument": {"uri": uri}})).await;
    }

    /// Sends changes to a document.
    pub async fn change(&mut self, uri: &str, version: i32, changes: Value) {
        let params =
            json!({"textDocument": {"uri": uri, "version": version}, "contentChanges": changes});
        self.notify("textDocument/didChange", params).await;
    }

    /// Runs a command.
    pub async fn command(&mut self, name: &str, arguments: Value) -> Result<Value, Value> {
        self.request("workspace/executeCommand", json!({"command": name, "arguments": arguments}))
            .await
    }

    /// Sends a notification.
    pub async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Sends a request without waiting for its response. Returns its id.
    pub async fn begin(&mut self, method: &str, params: Value) -> i64 {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    /// Waits for the response to a request: its result or its error.
    pub async fn answer(&mut self, id: &Value) -> Result<Value, Value> {
        let answer = self
            .wait_for(&format!("an answer to {id}"), |message| {
                message.get("method").is_none() && message.get("id") == Some(id)
            })
            .await;
        match answer.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(answer["result"].clone()),
        }
    }

    /// Sends a request and waits for its response.
    pub async fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.begin(method, params).await;
        self.answer(&json!(id)).await
    }

    /// Waits for the next notification of this method and returns its parameters.
    pub async fn notification(&mut self, method: &str) -> Value {
        let message = self.wait_for(method, |message| message["method"] == method).await;
        assert!(message.get("id").is_none(), "{method} is no request");
        message["params"].clone()
    }

    /// Waits for a status with this state.
    pub async fn status(&mut self, state: &str) -> Value {
        let is_it = |message: &Value| is_status(message) && message["params"]["state"] == state;
        // Discard earlier statuses, so a later wait does not match an outdated one.
        if let Some(at) = self.unread.iter().position(is_it) {
            let mut index = 0..;
            self.unread.retain(|message| index.next() >= Some(at) || !is_status(message));
            return self.wait_for(&format!("status {state}"), is_it).await["params"].clone();
        }
        let found = self.wait_for(&format!("status {state}"), is_it).await["params"].clone();
        self.unread.retain(|message| !is_status(message));
        found
    }

    /// Returns the next status, or `None` if none arrives within this time.
    pub async fn next_status(&mut self, limit: Duration) -> Option<Value> {
        let next = tokio::time::timeout(limit, async {
            while !self.unread.iter().any(is_status) {
                let message = self.messages.recv().await.expect("a server that lives");
                self.unread.push_back(message);
            }
        });
        next.await.ok()?;
        let at = self.unread.iter().position(is_status)?;
        self.unread.remove(at).map(|message| message["params"].clone())
    }

    /// Waits for the next request of this method. Returns its id and parameters.
    pub async fn wait_for_request(&mut self, method: &str) -> (Value, Value) {
        let message = self.wait_for(method, |message| message["method"] == method).await;
        (message["id"].clone(), message["params"].clone())
    }

    /// Responds to a request of the server.
    pub async fn reply(&mut self, id: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
    }

    /// Whether an unread message of this method arrived before the last awaited message.
    pub fn has_passed(&self, method: &str) -> bool {
        self.unread.iter().any(|message| message["method"] == method)
    }

    /// Whether an unread message of this method has arrived.
    pub async fn has_unread(&mut self, method: &str) -> bool {
        while let Ok(message) = self.messages.try_recv() {
            self.unread.push_back(message);
        }
        self.has_passed(method)
    }

    /// Sends a message.
    pub async fn send(&mut self, message: &Value) {
        let body = message.to_string();
        self.send_raw(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await;
    }

    /// Sends bytes.
    pub async fn send_raw(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).await.expect("a server that reads");
        self.input.flush().await.expect("a server that reads");
    }

    /// Sends `shutdown` and `exit`, waits for the server to close its output, and asserts that no
    /// message was left unread.
    pub async fn goodbye(mut self) {
        self.request("shutdown", Value::Null).await.expect("shutdown");
        self.send(&json!({"jsonrpc": "2.0", "method": "exit"})).await;
        self.closed().await;
    }

    /// Closes the server's input and waits for it to close its output.
    pub async fn hang_up(mut self) {
        self.input = Box::new(tokio::io::sink());
        self.closed().await;
    }

    /// Waits for the server to close its output.
    pub async fn closed(&mut self) {
        let rest = async {
            while let Some(message) = self.messages.recv().await {
                self.unread.push_back(message);
            }
        };
        tokio::time::timeout(HANG, rest).await.expect("the server did not end");
    }

    async fn wait_for(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.unread.iter().position(&is_it) {
            return self.unread.remove(at).expect("it is there");
        }
        let found = async {
            loop {
                let message = self.messages.recv().await.expect("a server that lives");
                if is_it(&message) {
                    return message;
                }
                self.unread.push_back(message);
            }
        };
        let Ok(found) = tokio::time::timeout(HANG, found).await else {
            panic!("{what} did not come; unread: {:#?}", self.unread)
        };
        found
    }
}

fn is_status(message: &Value) -> bool {
    message["method"] == "ridgeline/status"
}

impl Drop for StrictClient {
    fn drop(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.unread.push_back(message);
        }
        self.unread.retain(|message| !MAY_BE_LEFT.iter().any(|left| message["method"] == *left));
        if !std::thread::panicking() {
            assert!(self.unread.is_empty(), "left unread: {:#?}", self.unread);
        }
    }
}

async fn read_all(output: impl AsyncRead + Unpin, messages: mpsc::UnboundedSender<Value>) {
    let mut output = BufReader::new(output);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if output.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            match line.trim().split_once(": ") {
                Some(("Content-Length", value)) => length = value.parse().expect("a length"),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        if output.read_exact(&mut body).await.is_err() {
            return;
        }
        let message = serde_json::from_slice(&body).expect("the server speaks JSON");
        if messages.send(message).is_err() {
            return;
        }
    }
}
