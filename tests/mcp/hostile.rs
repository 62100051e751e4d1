//! Input that no client should send, and clients that go away.

use std::time::{Duration, Instant};

use serde_json::json;

use super::client::Client;
use crate::sandbox::{Sandbox, python_with_torch};

#[test]
fn garbage_does_not_end_the_server() {
    let sandbox = Sandbox::new();
    let mut client = Client::initialized(&sandbox, &[], Vec::new());
    for line in [
        "",
        "nonsense",
        "{}",
        "[]",
        "null",
        "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":1}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}",
        "\u{0}\u{1}\u{feff}",
        "{\"jsonrpc\":\"2.0\",\"id\":\"\\ud800\",\"method\":\"tools/call\"}",
        &"[".repeat(200_000),
        &format!("{{\"a\":{}", "{\"a\":".repeat(50_000)),
        &"x".repeat(20 << 20),
    ] {
        client.send_text(line);
    }
    for params in [
        json!({"name": "profile", "arguments": {"path": 7}}),
        json!({"name": "line_costs", "arguments": {"file": "train.py", "first_line": -1}}),
        json!({"name": "explain_line"}),
    ] {
        let response = client.request("tools/call", &params);
        let text = response["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.starts_with("failed to deserialize parameters"), "{params}: {response}");
    }
    // Requests that cannot be read are answered, so that their client does not wait.
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(20_000), "]".repeat(20_000));
    for (id, rest, code) in [
        (1001, r#""method":"tools/call","params":[1]"#.to_owned(), -32602),
        (1002, r#""method":{}"#.to_owned(), -32600),
        (1003, r#""method":"tools/list","params":{"cursor":1e999}"#.to_owned(), -32700),
        (1004, format!("\"method\":\"tools/list\",\"params\":{deep}"), -32700),
    ] {
        client.send_text(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{rest}}}"));
        let response = client.response(id);
        assert_eq!(response["error"]["code"], code, "{response}");
    }
    let arguments = r#"{"name":"summary","arguments":{"path":"\ud800"}}"#;
    client.send_text(&format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1005,\"method\":\"tools/call\",\"params\":{arguments}}}"
    ));
    assert_eq!(client.response(1005)["result"]["isError"], true);
    for params in [json!({"name": "nothing", "arguments": {}}), json!({})] {
        let response = client.request("tools/call", &params);
        assert!(response["error"]["message"].is_string(), "{params}: {response}");
    }
    for path in ["/dev/null", "/proc/self/mem", "\u{0}", "../..", "no/such/file.py", "~"] {
        let (text, is_error) = client.call("summary", &json!({"path": path}));
        assert!(is_error, "{path}: {text}");
    }
    let tools = client.request("tools/list", &json!({}));
    assert_eq!(tools["result"]["tools"].as_array().map(Vec::len), Some(10), "{tools}");
    assert_eq!(client.close(), Some(0));
}

/// A call is cancelled, and a client goes away while its program runs: in both cases the program ends.
#[test]
fn runs_end_with_their_call_and_their_client() {
    if python_with_torch().is_none() {
        return;
    }
    let sandbox = Sandbox::new();
    let beat = sandbox.path("beat");
    let script = format!(
        "import os, time\nimport torch\nmodel = torch.nn.Linear(4, 4)\n\
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nwhile True:\n    \
        os.system('touch {}')\n    time.sleep(0.2)\n    model(torch.randn(2, 4)).sum().backward()\n    \
        optimizer.step()\n    time.sleep(3)\n",
        beat.display()
    );
    sandbox.write("train.py", script);
    // Otherwise the touched file would not be on the disk.
    sandbox.write("ridgeline.toml", "side_effects = \"allow\"\n");
    let folder = sandbox.project().to_string_lossy().into_owned();
    let wait_for_beat = || {
        let began = Instant::now();
        while !beat.exists() {
            assert!(began.elapsed() < Duration::from_secs(120), "the program does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let stops_beating = || {
        let began = Instant::now();
        loop {
            let _ = std::fs::remove_file(&beat);
            std::thread::sleep(Duration::from_secs(5));
            if !beat.exists() {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "the program goes on");
        }
    };
    let mut client = Client::initialized(&sandbox, &["--allow", &folder], Vec::new());
    let call = client.begin("tools/call", &json!({"name": "profile", "arguments": {}}));
    wait_for_beat();
    let params = json!({"requestId": call, "reason": "the user stopped it"});
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    stops_beating();
    // The server goes on.
    assert!(client.call("summary", &json!({})).1);

    client.begin("tools/call", &json!({"name": "profile", "arguments": {}}));
    wait_for_beat();
    client.close();
    stops_beating();
}
