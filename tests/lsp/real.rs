//! Runs of real programs. Needs a Python with torch, set by RIDGELINE_TEST_PYTHON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::lsp::process::{Server, uri};
use ridgeline_test_client::http::Panel;

const SCRIPT: &str = "\
import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if __name__ == '__main__':
    for step in range(1000):
        loss = model(torch.randn(64, 256)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
";

/// Starts a server with the script in its workspace. Returns `None` without a Python. Findings are
/// off: in iterations of a millisecond they depend on the machine's load.
async fn with_script(text: &str, capabilities: Value) -> Option<(Server, String)> {
    let Ok(python) = std::env::var("RIDGELINE_TEST_PYTHON") else {
        println!("skipped: RIDGELINE_TEST_PYTHON names no Python with torch");
        return None;
    };
    let options = json!({"interpreter": python, "findings": {"enable": false}});
    let mut server = Server::greeted(capabilities, options).await;
    let script = server.write("train.py", text);
    server.client.open(&script, text).await;
    Some((server, script))
}

#[tokio::test]
async fn a_save_puts_costs_on_the_lines() {
    let Some((mut server, script)) = with_script(SCRIPT, json!({})).await else { return };
    server.client.save(&script).await;
    while server.client.status("idle").await["headline"].is_null() {}
    let range = json!({"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}});
    let params = json!({"textDocument": {"uri": script}, "range": range});
    let hints = server.client.request("textDocument/inlayHint", params).await.expect("hints");
    let lines: Vec<i64> = hints
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|hint| hint["position"]["line"].as_i64())
        .collect();
    assert!(lines.contains(&7) && lines.contains(&9), "{hints}");
    let params = json!({"textDocument": {"uri": script}});
    let lenses = server.client.request("textDocument/codeLens", params).await.expect("lenses");
    assert!(lenses.to_string().contains("samples/s"), "{lenses}");
    let at = json!({"line": 9, "character": 9});
    let params = json!({"textDocument": {"uri": script}, "position": at});
    let hover = server.client.request("textDocument/hover", params).await.expect("a hover");
    assert!(hover["contents"].to_string().contains("backward"), "{hover}");
    server.goodbye().await;
}

/// Preparatory imports are not sandboxed, so they wait for the first run.
#[tokio::test]
async fn what_a_project_imports_is_imported_by_its_first_run() {
    let Ok(python) = std::env::var("RIDGELINE_TEST_PYTHON") else {
        println!("skipped: RIDGELINE_TEST_PYTHON names no Python with torch");
        return;
    };
    let server = Server::start();
    let packages = server.root.with_file_name("site-packages");
    let imported = packages.join("imported");
    std::fs::create_dir(&packages).expect("created");
    // Writes of estimates and runs do not reach the disk.
    let package = format!("open({:?}, 'a').write('x')\n", imported.display().to_string());
    std::fs::write(packages.join("noisy.py"), package).expect("written");
    let path = packages.display().to_string();
    server.write("ridgeline.toml", &format!("[environment]\nPYTHONPATH = {path:?}\n"));
    let text = format!("import noisy\n{SCRIPT}");
    let script = server.write("train.py", &text);
    let options = json!({"interpreter": python, "findings": {"enable": false}});
    let mut server = server.greeted_with(json!({}), options).await;
    server.client.open(&script, &text).await;
    while server.client.next_status(Duration::from_secs(8)).await.is_some() {}
    assert!(!imported.exists(), "it was imported before any run");
    server.client.save(&script).await;
    while server.client.status("idle").await["headline"].is_null() {}
    assert!(imported.exists(), "the next run would have to import it again");
    server.goodbye().await;
}

/// Side effects before the loop (a row in a table, a line in a log) happen once per save.
#[tokio::test]
async fn one_save_runs_the_program_once() {
    let script = "\
import torch
from torch.utils.data import DataLoader, TensorDataset

with open('runs/runs.txt', 'a') as runs:
    print('a run', file=runs)
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(16384, 64)), batch_size=16)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
";
    let capabilities = json!({"experimental": {"ridgeline": {"background": true}}});
    let Some((mut server, script)) = with_script(script, capabilities).await else { return };
    // Other writes of the runs do not reach the disk.
    std::fs::create_dir(server.root.join("runs")).expect("a folder");
    server.write("ridgeline.toml", "keep_writes = [\"runs\"]\n");
    server.client.save(&script).await;
    while server.client.status("idle").await["headline"].is_null() {}
    // All background work is done when the status no longer changes.
    while server.client.next_status(Duration::from_secs(8)).await.is_some() {}
    let runs = std::fs::read_to_string(server.root.join("runs/runs.txt")).expect("what ran");
    assert_eq!(runs.lines().count(), 1, "{runs}");
    server.goodbye().await;
}

/// Half and double the batch size take turns with the batch size itself, so that other load on the
/// machine slows all of them.
#[tokio::test]
async fn other_batch_sizes_run_side_by_side() {
    // Each iteration records its batch size.
    let script = "\
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(16384, 64)), batch_size=16)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    with open('order/order.txt', 'a') as order:
        print(len(x), file=order)
    optimizer.step()
";
    let capabilities = json!({"experimental": {"ridgeline": {"panel": true}}});
    let Some((mut server, script)) = with_script(script, capabilities).await else { return };
    // Other writes of a run do not reach the disk.
    std::fs::create_dir(server.root.join("order")).expect("created");
    server.write("ridgeline.toml", "keep_writes = [\"order\"]\n");
    server.client.command("ridgeline.openPanel", json!([])).await.expect("done");
    let params = server.client.notification("ridgeline/openPanel").await;
    let panel = Panel::at(params["uri"].as_str().expect("an address"));
    let mut events = panel.listen().await;
    server.client.save(&script).await;
    while server.client.status("idle").await["headline"].is_null() {}
    server.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
    let mut sizes = Value::Null;
    let is_measured = |sizes: &Value, batch: u64| {
        let points = sizes["points"].as_array().into_iter().flatten();
        points.filter(|point| point["measured"] == true).any(|point| point["batch"] == batch)
    };
    while sizes["state"] != "ready" || !is_measured(&sizes, 8) || !is_measured(&sizes, 32) {
        events.wait_for("panel").await;
        sizes = panel.document().await["predictions"]["batch_size"].take();
    }
    let order = std::fs::read_to_string(server.root.join("order/order.txt")).expect("the order");
    let order: Vec<&str> = order.lines().collect();
    let turns = order.chunk_by(|one, next| one == next).count();
    // Without turns, there would only be about a dozen groups.
    assert!(turns > 30, "{turns} turns, {sizes}");
    server.goodbye().await;
}

/// The panel of a project in a subfolder, measured by a save and then from a terminal.
#[tokio::test]
async fn the_panel_shows_every_run_of_a_project() {
    let Ok(python) = std::env::var("RIDGELINE_TEST_PYTHON") else {
        println!("skipped: RIDGELINE_TEST_PYTHON names no Python with torch");
        return;
    };
    let capabilities = json!({"experimental": {"ridgeline": {"panel": true}}});
    let options = json!({"interpreter": python, "findings": {"enable": false}});
    let mut server = Server::greeted(capabilities, options).await;
    std::fs::create_dir(server.root.join("nested")).expect("created");
    server.write("nested/ridgeline.toml", "");
    let script = server.write("nested/train.py", SCRIPT);
    let has_git = committed(&server.root);
    server.client.open(&script, SCRIPT).await;
    server.client.command("ridgeline.openPanel", json!([])).await.expect("done");
    let params = server.client.notification("ridgeline/openPanel").await;
    let panel = Panel::at(params["uri"].as_str().expect("an address"));
    let mut events = panel.listen().await;
    server.client.save(&script).await;
    events.wait_for("panel").await;
    let document = panel.document().await;
    assert_eq!(document["project"], "nested");
    assert_eq!(document["history"].as_array().map(Vec::len), Some(1), "{document}");
    if has_git {
        assert_eq!(document["history"][0]["clean"], true);
        assert_eq!(document["history"][0]["commit"].as_str().map(str::len), Some(12));
    }
    let first = document["generation"].as_u64().expect("a number");
    let timeline = panel.get(&format!("/api/timeline?workspace=0&generation={first}")).await.json();
    let spans = timeline["spans"]["start_ns"].as_array().map(Vec::len);
    assert!(spans.is_some_and(|spans| spans > 10), "{timeline}");

    let run = tokio::process::Command::new(env!("CARGO_BIN_EXE_ridgeline"))
        .args(["profile", "--python", &python])
        .arg(server.root.join("nested"))
        .envs(server.environment())
        .output();
    let run = run.await.expect("the built binary");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    // The document also changes during the batch-size sweep.
    let mut document = panel.document().await;
    while document["generation"].as_u64() == Some(first) {
        events.wait_for("panel").await;
        document = panel.document().await;
    }
    assert!(document["generation"].as_u64() > Some(first));
    assert_eq!(document["history"].as_array().map(Vec::len), Some(2));
    assert!(document["recording"]["changes_against"]["last"].is_string(), "{document}");

    // Another session finds the measurements, even though its workspace is not the project.
    let environment = server.environment();
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, path)| (*name, path.to_str().expect("text"))).collect();
    let mut again = Server::start_with(&environment);
    let folder = json!([{"uri": uri(&server.root), "name": "project"}]);
    again.client.hello(json!({}), json!({"workspaceFolders": folder})).await;
    while again.client.status("idle").await["headline"].is_null() {}
    again.goodbye().await;
    server.goodbye().await;
}

/// Commits a folder. Returns false without git.
fn committed(folder: &std::path::Path) -> bool {
    let steps = [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "x"]];
    steps.iter().all(|arguments| {
        let git = std::process::Command::new("git")
            .current_dir(folder)
            .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"])
            .args(*arguments)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .status();
        git.is_ok_and(|status| status.success())
    })
}

#[tokio::test]
async fn an_exception_is_shown_at_its_line() {
    let text = SCRIPT.replace("torch.randn(64, 256)", "torch.randn(64, 255)");
    let Some((mut server, script)) = with_script(&text, json!({})).await else { return };
    server.client.save(&script).await;
    let diagnostics = server.client.notification("textDocument/publishDiagnostics").await;
    assert_eq!(diagnostics["uri"], script);
    let diagnostic = &diagnostics["diagnostics"][0];
    assert_eq!(diagnostic["range"]["start"]["line"], 7, "{diagnostics}");
    assert!(diagnostic["message"].to_string().contains("cannot be multiplied"), "{diagnostics}");
    server.client.status("failed").await;
    server.goodbye().await;
}

#[tokio::test]
async fn a_syntax_error_is_shown_at_its_line() {
    let text = SCRIPT.replace("loss.backward()", "loss.backward(");
    let Some((mut server, script)) = with_script(&text, json!({})).await else { return };
    server.client.save(&script).await;
    let diagnostics = server.client.notification("textDocument/publishDiagnostics").await;
    assert_eq!(diagnostics["diagnostics"][0]["code"], "syntax-error", "{diagnostics}");
    server.goodbye().await;
}

#[tokio::test]
async fn cancelling_stops_a_program_that_does_not_end() {
    let text = SCRIPT.replace("optimizer.step()", "while True: pass");
    let capabilities = json!({"window": {"workDoneProgress": true}});
    let Some((mut server, script)) = with_script(&text, capabilities).await else { return };
    server.client.save(&script).await;
    let (id, params) = server.client.wait_for_request("window/workDoneProgress/create").await;
    server.client.reply(&id, Value::Null).await;
    while server.client.status("running").await["run"]["stage"].is_null() {}
    let token = json!({"token": params["token"]});
    server.client.notify("window/workDoneProgress/cancel", token).await;
    loop {
        let progress = server.client.notification("$/progress").await;
        if progress["value"]["kind"] == "end" {
            assert_eq!(progress["value"]["message"], "stopped");
            break;
        }
    }
    server.goodbye().await;
}

/// All child processes end soon after the server is killed without a chance to clean up.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_killed_server_leaves_no_process() {
    let text = SCRIPT.replace("optimizer.step()", "while True: pass");
    let Some((mut server, script)) = with_script(&text, json!({})).await else { return };
    server.client.save(&script).await;
    let of = server.process.id().expect("it lives");
    // The status may precede the processes: the program has started once its parent, the zygote,
    // exists too.
    let with_program = async {
        loop {
            let found = descendants(of);
            if found.len() >= 3 {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let started = tokio::time::timeout(Duration::from_secs(60), with_program).await;
    let started = started.expect("supervisor, zygote and program");
    server.process.kill().await.expect("killed");
    let all_gone = async {
        while started.iter().any(|process| is_alive(*process)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(20), all_gone).await;
    assert!(gone.is_ok(), "of {started:?} some live on");
}

/// Returns all descendants of a process by parent id, because not every kernel lists children.
#[cfg(target_os = "linux")]
fn descendants(of: u32) -> Vec<u32> {
    let processes: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|process| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((process, parent))
        })
        .collect();
    let mut found = vec![of];
    let mut next = 0;
    while let Some(above) = found.get(next).copied() {
        next += 1;
        let below = processes.iter().filter(|(_, parent)| *parent == above);
        found.extend(below.map(|(process, _)| *process));
    }
    found.remove(0);
    found
}

#[cfg(target_os = "linux")]
fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A zombie counts as dead.
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

/// A demo of this repository, first unmodified, and then with unsaved changes of its sizes.
#[tokio::test]
async fn unsaved_text_is_estimated() {
    let Ok(python) = std::env::var("RIDGELINE_TEST_PYTHON") else {
        println!("skipped: RIDGELINE_TEST_PYTHON names no Python with torch");
        return;
    };
    let options = json!({"interpreter": python, "findings": {"enable": false}});
    let mut server = Server::greeted(json!({}), options).await;
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo-projects/gpt");
    let mut uris = std::collections::HashMap::new();
    for name in ["corpus.py", "model.py", "train.py"] {
        let text = std::fs::read_to_string(demo.join(name)).expect("a demo");
        let uri = server.write(name, &text);
        server.client.open(&uri, &text).await;
        uris.insert(name, (uri, text));
    }
    let (script, _) = &uris["train.py"];
    server.client.save(script).await;
    // Before the first measurement there may be an estimate of the saved text.
    let measured = headline(&mut server, |text| !text.contains('~')).await;
    let (model, text) = &uris["model.py"];
    let wider = text.replace("width: int = 128", "width: int = 256");
    server.client.change(model, 2, json!([{"text": wider}])).await;
    let estimated = headline(&mut server, |text| text.starts_with('~')).await;
    let summary = estimated["text"].as_str().unwrap_or_default();
    assert!(summary.contains("samples/s, −") && summary.contains(", +"), "{summary}");
    assert!(estimated["timeMs"].as_f64() > measured["timeMs"].as_f64(), "{summary}");
    assert!(estimated["peakBytes"].as_u64() > measured["peakBytes"].as_u64(), "{summary}");
    let whole = json!({"start": {"line": 0, "character": 0}, "end": {"line": 999, "character": 0}});
    let params = json!({"textDocument": {"uri": model}, "range": whole});
    let hints = server.client.request("textDocument/inlayHint", params).await.expect("hints");
    assert!(hints.to_string().contains("\"~"), "{hints}");

    // Code that would fail is reported.
    let broken = text.replace("config.width, config.width)", "config.width, 7)");
    assert_ne!(&broken, text);
    server.client.change(model, 3, json!([{"text": broken}])).await;
    let diagnostics = server.client.notification("textDocument/publishDiagnostics").await;
    assert!(diagnostics.to_string().contains("This edit would fail"), "{diagnostics}");
    server.client.change(model, 4, json!([{"text": text}])).await;
    let gone = server.client.notification("textDocument/publishDiagnostics").await;
    assert_eq!(gone["diagnostics"], json!([]));
    let again = headline(&mut server, |text| !text.contains('~')).await;
    assert_eq!(again["text"], measured["text"]);

    // Without its training there is nothing to compare.
    let (script, text) = &uris["train.py"];
    let without = text.replace("    main()", "    pass");
    assert_ne!(&without, text);
    server.client.change(script, 2, json!([{"text": without}])).await;
    let message = loop {
        let status = server.client.status("idle").await;
        if let Some(message) = status["message"].as_str() {
            break message.to_owned();
        }
    };
    assert_eq!(message, "No estimate: the code ends without an iteration");
    server.goodbye().await;
}

/// Waits for the next headline with matching text.
async fn headline(server: &mut Server, matches: impl Fn(&str) -> bool) -> Value {
    loop {
        let status = server.client.status("idle").await;
        if status["headline"]["text"].as_str().is_some_and(&matches) {
            return status["headline"].clone();
        }
    }
}
