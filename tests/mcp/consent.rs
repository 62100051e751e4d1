//! No tool runs code of a folder that its user did not allow.

use serde_json::{Value, json};

use super::client::{Client, planted};
use crate::sandbox::{Sandbox, python_with_torch};

/// A program that leaves a mark where it ran.
fn marking() -> Sandbox {
    let sandbox = Sandbox::new();
    let mark = sandbox.path("mark");
    let script = format!(
        "import os\nos.system('touch {}')\nimport torch\nmodel = torch.nn.Linear(4, 4)\n\
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor _ in range(50):\n    \
        optimizer.zero_grad()\n    model(torch.randn(2, 4)).sum().backward()\n    optimizer.step()\n",
        mark.display()
    );
    sandbox.write("train.py", script);
    // Otherwise the mark would not stay on the disk.
    sandbox.write("ridgeline.toml", "side_effects = \"allow\"\n");
    sandbox
}

fn answer(title: &str) -> Value {
    json!({"action": "accept", "content": {"answer": title}})
}

#[test]
fn a_client_that_cannot_ask_runs_nothing() {
    let sandbox = marking();
    let mut client = Client::initialized(&sandbox, &[], Vec::new());
    for (tool, arguments) in
        [("profile", json!({})), ("measure_optimization", json!({"name": "compile"}))]
    {
        let (text, is_error) = client.call(tool, &arguments);
        assert!(is_error && text.contains("ridgeline mcp --allow FOLDER"), "{text}");
    }
    assert!(!sandbox.path("mark").exists(), "it ran");
    assert_eq!(client.close(), Some(0));
}

#[test]
fn the_user_is_asked_and_a_lasting_answer_is_stored() {
    if python_with_torch().is_none() {
        return;
    }
    let sandbox = marking();
    let answers = vec![json!({"action": "decline"}), answer("Always for this workspace")];
    let mut client = Client::initialized(&sandbox, &[], answers);
    let (text, is_error) = client.call("profile", &json!({}));
    assert!(is_error && text.contains("did not allow"), "{text}");
    assert!(!sandbox.path("mark").exists(), "it ran");

    let (text, is_error) = client.call("profile", &json!({}));
    assert!(!is_error && text.contains("train.py:6"), "{text}");
    assert!(client.progress.iter().any(|stage| stage == "profiling"), "{:?}", client.progress);
    assert!(client.questions[1].contains("train.py"), "{:?}", client.questions);
    let (text, is_error) = client.call("summary", &json!({}));
    assert!(!is_error && text.contains("source unchanged since"), "{text}");
    assert_eq!(client.close(), Some(0));

    // Another process, which cannot ask, knows the answer.
    let mut later = Client::initialized(&sandbox, &[], Vec::new());
    let (text, is_error) = later.call("profile", &json!({"path": "train.py"}));
    assert!(!is_error, "{text}");
}

#[test]
fn a_stored_refusal_holds() {
    let sandbox = marking();
    let mut client = Client::initialized(&sandbox, &[], vec![answer("Never")]);
    for _ in 0..2 {
        let (text, is_error) = client.call("profile", &json!({}));
        assert!(is_error && text.contains("does not allow"), "{text}");
    }
    assert_eq!(client.questions.len(), 1);
    assert!(!sandbox.path("mark").exists(), "it ran");
    // The answer of the user takes precedence over the command line that started the server.
    let folder = sandbox.project();
    let mut later =
        Client::initialized(&sandbox, &["--allow", &folder.to_string_lossy()], Vec::new());
    assert!(later.call("profile", &json!({})).1);
}

/// From 2026-07-28 on, servers send no requests: the answer to the call asks for input.
#[test]
fn the_question_is_a_result_in_the_newer_protocol() {
    let sandbox = marking();
    let mut client = Client::start(&sandbox, &[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    });
    let call = json!({"name": "profile", "arguments": {}, "_meta": meta});
    let response = client.request("tools/call", &call);
    let response = &response["result"];
    assert_eq!(response["resultType"], "input_required", "{response}");
    let question = &response["inputRequests"]["consent"]["params"]["message"];
    assert!(question.as_str().is_some_and(|text| text.contains("train.py")), "{response}");

    let with = |state: &Value, response: Value| {
        let mut call = call.clone();
        call["requestState"] = state.clone();
        call["inputResponses"] = json!({"consent": response});
        call
    };
    // An answer about another folder is no answer.
    let other = client.request("tools/call", &with(&json!("/elsewhere"), answer("Run once")));
    assert_eq!(other["result"]["resultType"], "input_required", "{other}");
    let declined = with(&response["requestState"], json!({"action": "decline"}));
    let declined = client.request("tools/call", &declined);
    assert_eq!(declined["result"]["isError"], true, "{declined}");
    assert!(!sandbox.path("mark").exists(), "it ran");
    if python_with_torch().is_none() {
        return;
    }
    let accepted = with(&response["requestState"], answer("Run once"));
    let profiled = client.request("tools/call", &accepted);
    assert_eq!(profiled["result"]["isError"], false, "{profiled}");
    assert!(sandbox.path("mark").exists(), "it did not run");
}

#[test]
fn tools_that_run_nothing_need_no_consent() {
    let sandbox = planted("hidden-sync");
    let mut client = Client::initialized(&sandbox, &[], Vec::new());
    for (tool, arguments) in [
        ("summary", json!({})),
        ("findings", json!({})),
        ("optimizations", json!({})),
        ("optimization_patch", json!({"name": "compile"})),
        ("predict_gpus", json!({})),
        ("compare_runs", json!({})),
        ("line_costs", json!({"file": "train.py"})),
        ("explain_line", json!({"file": "train.py", "line": 1})),
    ] {
        let (text, is_error) = client.call(tool, &arguments);
        assert!(is_error && text.contains("has not been profiled yet"), "{tool}: {text}");
    }
}
