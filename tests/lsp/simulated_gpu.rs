//! A save in an editor on the simulated GPU (tests/gpu/simulated): hints, hover, status and the panel's
//! timeline of a program with several streams. Passing tests prove nothing about a real GPU.

use serde_json::{Value, json};

use crate::lsp::process::{Server, python_on_simulated_gpu};
use ridgeline_test_client::http::Panel;

const SCRIPT: &str = include_str!("../gpu/programs/multi_stream.py");
const SHOWN: &str = "NVIDIA H100 80GB HBM3 (simulated)";

/// Returns the zero-based number of the line with this text.
fn line(text: &str) -> usize {
    SCRIPT.lines().position(|line| line.contains(text)).expect("the script has it")
}

#[tokio::test]
async fn a_save_shows_what_ran_on_the_simulated_gpu() {
    let Some(python) = python_on_simulated_gpu() else { return };
    let capabilities = json!({"experimental": {"ridgeline": {"panel": true}}});
    let options =
        json!({"interpreter": python, "findings": {"enable": false}, "measureDevice": "never"});
    let mut server = Server::greeted_on_simulated_gpu(&python, capabilities, options).await;
    let script = server.write("train.py", SCRIPT);
    server.client.open(&script, SCRIPT).await;
    server.client.command("ridgeline.openPanel", json!([])).await.expect("done");
    let params = server.client.notification("ridgeline/openPanel").await;
    let panel = Panel::at(params["uri"].as_str().expect("an address"));
    server.client.save(&script).await;
    let mut status = Value::Null;
    while status["headline"].is_null() {
        status = server.client.status("idle").await;
    }
    assert_eq!(status["headline"]["device"], SHOWN, "{status}");

    let range = json!({"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}});
    let params = json!({"textDocument": {"uri": script}, "range": range});
    let hints = server.client.request("textDocument/inlayHint", params).await.expect("hints");
    let lines = || hints.as_array().into_iter().flatten().map(|hint| &hint["position"]["line"]);
    for text in ["torch.relu(left(batch))", "torch.relu(right(batch))", "loss.backward()"] {
        assert!(lines().any(|hint| *hint == line(text)), "{text}: {hints}");
    }
    let at = json!({"line": line("loss.backward()"), "character": 9});
    let params = json!({"textDocument": {"uri": script}, "position": at});
    let hover = server.client.request("textDocument/hover", params).await.expect("a hover");
    let hover = hover["contents"].to_string();
    assert!(hover.contains("measured on") && hover.contains("(simulated)"), "{hover}");

    let document = panel.document().await;
    assert_eq!(document["recording"]["device"]["name"], SHOWN, "{document}");
    assert_eq!(document["history"][0]["device"], SHOWN, "{document}");
    let generation = document["generation"].as_u64().expect("a number");
    let path = format!("/api/timeline?workspace=0&generation={generation}");
    let timeline = panel.get(&path).await.json();
    assert_eq!(timeline["simulated"], true);
    let tracks = timeline["tracks"].as_array().expect("tracks");
    let streams = tracks.iter().filter(|track| track["kind"] == "stream").count();
    // The default stream, the stream of the second branch, and the copy stream.
    assert_eq!(streams, 3, "{tracks:?}");
    assert!(tracks.iter().any(|track| track["kind"] == "idle"), "{tracks:?}");
    server.goodbye().await;
}
