//! A client of `ridgeline mcp`: one JSON message per line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, python_with_torch, repository};

/// The time limit of one answer.
const TIMEOUT: Duration = Duration::from_secs(180);
/// The last protocol version in which a server asks the client by a request of its own.
const WITH_REQUESTS: &str = "2025-11-25";

pub(super) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Value>,
    next: u64,
    /// Answers to questions, in order. A client without answers declares no elicitation.
    answers: Vec<Value>,
    /// The questions that were asked.
    pub questions: Vec<String>,
    /// The stages that were reported.
    pub progress: Vec<String>,
}

impl Client {
    /// Starts the server in the sandbox's project.
    pub(super) fn start(sandbox: &Sandbox, arguments: &[&str]) -> Client {
        let mut command = sandbox.ridgeline();
        command.arg("mcp").args(arguments);
        if let Some(python) = python_with_torch() {
            // Python environments are found by this variable, as in an activated one.
            command.env(
                "VIRTUAL_ENV",
                python.parent().and_then(Path::parent).expect("an environment"),
            );
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("ridgeline starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).expect("one JSON message per line");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let (answers, questions, progress) = Default::default();
        Client { child, stdin, messages, next: 0, answers, questions, progress }
    }

    /// Initializes as a client that gives these answers when it is asked.
    pub(super) fn initialized(
        sandbox: &Sandbox,
        arguments: &[&str],
        answers: Vec<Value>,
    ) -> Client {
        let mut client = Client::start(sandbox, arguments);
        let capabilities = match answers.is_empty() {
            true => json!({}),
            false => json!({"elicitation": {}}),
        };
        client.answers = answers;
        let params = json!({
            "protocolVersion": WITH_REQUESTS,
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        });
        let result = client.request("initialize", &params);
        assert_eq!(result["result"]["serverInfo"]["name"], "ridgeline", "{result}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    pub(super) fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string());
    }

    /// Sends a line as it is; a server that has gone does not read it.
    pub(super) fn send_text(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is open");
        let _ = stdin.write_all(line.as_bytes()).and_then(|()| stdin.write_all(b"\n"));
        let _ = stdin.flush();
    }

    /// Sends a request; returns its number.
    pub(super) fn begin(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.next
    }

    /// Sends a request and waits for its response. Questions that come first are answered.
    #[track_caller]
    pub(super) fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        self.response(id)
    }

    #[track_caller]
    pub(super) fn response(&mut self, id: u64) -> Value {
        loop {
            let message = self.messages.recv_timeout(TIMEOUT).expect("a response");
            match message["method"].as_str() {
                Some("elicitation/create") => {
                    let question = message["params"]["message"].as_str().expect("a question");
                    self.questions.push(question.to_owned());
                    let answer = self.answers.remove(0);
                    self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": answer}));
                }
                Some("notifications/progress") => {
                    let stage = message["params"]["message"].as_str().unwrap_or_default();
                    self.progress.push(stage.to_owned());
                }
                _ if message["id"] == id => return message,
                _ => {}
            }
        }
    }

    /// Calls a tool; returns its text and whether it is an error.
    #[track_caller]
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> (String, bool) {
        let progress = json!({"progressToken": tool});
        let params = json!({"name": tool, "arguments": arguments, "_meta": progress});
        let response = self.request("tools/call", &params);
        let result = &response["result"];
        let text = result["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("no text: {response}"));
        (text.to_owned(), result["isError"] == true)
    }

    /// Closes standard input; the server ends by itself.
    #[track_caller]
    pub(super) fn close(mut self) -> Option<i32> {
        self.stdin = None;
        let began = std::time::Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(began.elapsed() < TIMEOUT, "the server does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A copy of the faulty twin of a planted project.
pub(super) fn planted(rule: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    let folder = repository().join("demo-projects/planted").join(rule).join("faulty");
    for entry in std::fs::read_dir(folder).expect("the project").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        sandbox.write(&name, std::fs::read(entry.path()).expect("a file"));
    }
    sandbox
}
