//! `ridgeline panel`, with the requests of its page.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, repository};
use ridgeline_test_client::http::Panel;

/// A served panel and its process, which ends when this is dropped.
pub(super) struct Served {
    pub panel: Panel,
    process: Child,
}

impl Served {
    pub(super) fn of(sandbox: &Sandbox, path: impl AsRef<OsStr>) -> Served {
        let mut process = sandbox
            .ridgeline()
            .arg("panel")
            .arg(path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("ridgeline starts");
        let mut line = String::new();
        let printed = process.stdout.take().expect("piped");
        BufReader::new(printed).read_line(&mut line).expect("an address");
        Served { panel: Panel::at(line.trim_end()), process }
    }

    /// Sends Ctrl-C and returns the exit code.
    #[cfg(unix)]
    fn interrupted(mut self) -> Option<i32> {
        use rustix::process::{Pid, Signal, kill_process};
        let process = Pid::from_child(&self.process);
        kill_process(process, Signal::INT).expect("it lives");
        self.process.wait().expect("it ends").code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may already have exited.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn recording(name: &str) -> std::path::PathBuf {
    repository().join("tests/recordings").join(name)
}

#[tokio::test]
async fn a_recording_is_shown() {
    let sandbox = Sandbox::new();
    let served = Served::of(&sandbox, recording("mlp-cpu"));
    let document = served.panel.document().await;
    assert_eq!(document["project"], "mlp-cpu");
    assert_eq!((&document["can_jump"], &document["can_highlight"]), (&json!(false), &json!(false)));
    let recording = &document["recording"];
    assert!(recording["duration_ns"].as_u64() > Some(0), "{document}");
    assert_eq!(document["history"].as_array().map(Vec::len), Some(1));
    let path = format!("/api/timeline?workspace=0&generation={}", document["generation"]);
    let timeline = served.panel.get(&path).await.json();
    assert_eq!(timeline["generation"], document["generation"]);
    assert!(timeline["spans"]["track"].as_array().is_some_and(|spans| !spans.is_empty()));
    let mut events = served.panel.listen().await;
    let status: Value = serde_json::from_str(&events.wait_for("status").await).expect("JSON");
    assert_eq!(status, document["status"]);
    // Without an editor, nothing is opened and nothing runs.
    let line = json!({"workspace": 0, "file": 0, "line": 1});
    let profile = json!({"workspace": 0, "command": "profile"});
    for (path, body) in
        [("/api/jump", &line), ("/api/highlight", &line), ("/api/command", &profile)]
    {
        assert_eq!(served.panel.post(path, body).await.json()["done"], false, "{path}");
    }
    assert_eq!(served.panel.get("/api/panel?workspace=1").await.status, 404);
}

#[tokio::test]
async fn a_trace_is_shown() {
    let sandbox = Sandbox::new();
    let event = |name: &str, start: u32, length: u32| json!({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length});
    let events = [event("aten::mm", 100, 50), event("aten::add", 200, 10)];
    let trace = json!({"schemaVersion": 1, "traceEvents": events}).to_string();
    let served = Served::of(&sandbox, sandbox.write("other.json", trace));
    let document = served.panel.document().await;
    assert_eq!(document["project"], "other.json");
    assert_eq!(document["recording"]["batch_size"], Value::Null);
    assert_eq!(document["recording"]["files"], json!([]));
}

#[cfg(unix)]
#[tokio::test]
async fn it_ends_when_it_is_interrupted() {
    let sandbox = Sandbox::new();
    let served = Served::of(&sandbox, recording("mlp-cpu"));
    let panel = served.panel.clone();
    let mut events = panel.listen().await;
    events.wait_for("status").await;
    assert_eq!(served.interrupted(), Some(0));
    // Pending events may still arrive. Then the stream ends, because the process has exited.
    events.end().await;
    assert!(tokio::net::TcpStream::connect(&panel.authority).await.is_err());
}

#[tokio::test]
async fn a_project_without_a_recording_waits_for_one() {
    let sandbox = Sandbox::new();
    let served = Served::of(&sandbox, sandbox.project());
    let document = served.panel.document().await;
    assert_eq!((&document["project"], &document["recording"]), (&json!("project"), &Value::Null));
    assert_eq!(served.panel.get("/api/timeline?workspace=0&generation=0").await.status, 404);
}

#[test]
fn invalid_recordings_are_rejected() {
    let sandbox = Sandbox::new();
    sandbox.run(&["panel", "nowhere"]).exits_with(1).stderr_contains("nowhere");
    let broken = sandbox.write("broken.json", "not that of a trace");
    sandbox.run(&[OsStr::new("panel"), broken.as_os_str()]).exits_with(1);
    let empty = sandbox.write("empty/manifest.json", "{}");
    let folder = empty.parent().unwrap_or(Path::new("."));
    sandbox.run(&[OsStr::new("panel"), folder.as_os_str()]).exits_with(1);
}
