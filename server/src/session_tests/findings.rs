//! Findings: when they are computed, where they are shown, and their quick fixes and suppressions.

use std::time::Duration;

use ridgeline_analysis::diagnose::finding::{Cost, Finding, SourceLine};
use ridgeline_analysis::operators::operator::Operator;
use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::optimize::rewrite::EditKind;
use serde_json::{Value, json};

use super::fake::{Session, quiet};
use super::what_if::recorded;
use crate::profiler::{ProfileOutcome, Profiled};

/// The quick fix of [`finding`].
const QUICK_FIX: &str = "Ridgeline: use TF32 for float32 matrix multiplications";

/// The line of the recorded script that contains `part`, 1-based.
fn line_of(text: &str, part: &str) -> u32 {
    let at = text.lines().position(|line| line.contains(part)).expect("a line");
    u32::try_from(at + 1).expect("small")
}

fn finding(line: u32, cost: Option<Cost>) -> Finding {
    Finding {
        rule: "hidden-sync",
        at: SourceLine { path: "train.py".to_owned(), line },
        loop_lines: Vec::new(),
        related: vec![(
            SourceLine { path: "train.py".to_owned(), line: 1 },
            "it begins here".to_owned(),
        )],
        message: "this waits for the GPU".to_owned(),
        why: "Python stands still meanwhile.".to_owned(),
        cost,
        is_measured: cost.is_some(),
        fix: Some(EditKind::Tf32),
    }
}

fn client() -> Value {
    json!({
        "textDocument": {"publishDiagnostics": {"relatedInformation": true}},
        "workspace": {"workspaceEdit": {"documentChanges": true}},
    })
}

/// The next diagnostics of the script.
async fn published(session: &mut Session) -> Vec<Value> {
    published_in(session, "train.py").await
}

/// The next diagnostics, which must be those of this file.
async fn published_in(session: &mut Session, name: &str) -> Vec<Value> {
    let shown = session.client.notification("textDocument/publishDiagnostics").await;
    assert_eq!(shown["uri"], session.uri(name));
    shown["diagnostics"].as_array().cloned().expect("a list")
}

/// A session with the recorded program measured and a finding at the line of `backward`. Also
/// returns the script's text.
async fn measured() -> (Session, String, u32) {
    measured_by(client()).await
}

async fn measured_by(client: Value) -> (Session, String, u32) {
    let mut session = Session::start();
    let (text, line) = measure(&mut session, client).await;
    (session, text, line)
}

/// Initializes, and measures the recorded program with a finding at the line of `backward`. Returns
/// the script's text and that line.
async fn measure(session: &mut Session, client: Value) -> (String, u32) {
    let profiled = recorded(session);
    let text = std::fs::read_to_string(session.root.join("train.py")).expect("the script");
    let line = line_of(&text, "backward()");
    let cost = Cost::time(profiled.profile.iteration.time_ns * 0.2);
    *session.profiler.found.lock().expect("no panic") = vec![finding(line, Some(cost))];
    session.initialize(client, true).await;
    run(session, "train.py", profiled).await;
    (text, line)
}

/// Measures the same program again as another project of the workspace.
async fn measure_other(session: &mut Session) {
    let mut other = recorded(session);
    let folder = session.root.join("other");
    std::fs::create_dir(&folder).expect("a folder");
    for file in other.files.iter_mut().flatten() {
        let copy = folder.join(file.file_name().expect("a name"));
        std::fs::copy(&*file, &copy).expect("copied");
        *file = copy;
    }
    other.real_root.clone_from(&folder);
    other.root = folder;
    run(session, "other/train.py", other).await;
}

/// Opens and saves a script, and ends the run with this profile.
async fn run(session: &mut Session, name: &str, profiled: Profiled) {
    let script = session.uri(name);
    let text = std::fs::read_to_string(session.root.join(name)).expect("the script");
    session.client.open(&script, &text).await;
    session.client.save(&script).await;
    session.next_run().await.end.send(ProfileOutcome::Measured(profiled)).expect("waiting");
}

/// The code actions at a line, 1-based.
async fn actions(session: &mut Session, line: u32, context: Value) -> Vec<Value> {
    session.code_actions(line - 1, context).await
}

#[tokio::test]
async fn a_measured_finding_is_at_its_line() {
    let (mut session, text, line) = measured().await;
    let shown = published(&mut session).await;
    let [diagnostic] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!(diagnostic["range"]["start"]["line"], line - 1);
    assert_eq!(diagnostic["severity"], 2);
    assert_eq!(
        (&diagnostic["source"], &diagnostic["code"]),
        (&"ridgeline".into(), &"hidden-sync".into())
    );
    let message = diagnostic["message"].as_str().expect("a text");
    assert!(
        message.starts_with("this waits for the GPU: ") && message.contains("(20%).\nPython"),
        "{message}"
    );
    let related = &diagnostic["relatedInformation"][0];
    assert_eq!(
        (&related["location"]["range"]["start"]["line"], &related["message"]),
        (&0.into(), &"it begins here".into())
    );
    let place = json!({"line": line - 1, "character": 8});
    let params = json!({"textDocument": {"uri": session.uri("train.py")}, "position": place});
    let hover = session.client.request("textDocument/hover", params).await.expect("a hover");
    let hover = hover.to_string();
    assert!(hover.contains("this waits for the GPU") && hover.contains("hidden-sync"), "{hover}");
    // It moves and disappears with its statement.
    let script = session.uri("train.py");
    session.client.change(&script, 2, json!([{"text": format!("# first\n{text}")}])).await;
    let shown = published(&mut session).await;
    assert_eq!(shown[0]["range"]["start"]["line"], line);
    let changed = text.replace("backward()", "backward(retain_graph=True)");
    session.client.change(&script, 3, json!([{"text": changed}])).await;
    assert_eq!(published(&mut session).await, Vec::<Value>::new());
    session.client.change(&script, 4, json!([{"text": text}])).await;
    assert_eq!(published(&mut session).await.len(), 1);
    session.client.command("ridgeline.clear", json!([])).await.expect("done");
    assert_eq!(published(&mut session).await, Vec::<Value>::new());
    session.client.goodbye().await;
}

#[tokio::test]
async fn costs_follow_the_probes() {
    let mut session = Session::start();
    let profiled = recorded(&session);
    let text = std::fs::read_to_string(session.root.join("train.py")).expect("the script");
    let line = line_of(&text, "backward()");
    let cost = |share: f64| Some(Cost::time(profiled.profile.iteration.time_ns * share));
    *session.profiler.found.lock().expect("no panic") = vec![finding(line, cost(0.2))];
    let stand_ins = vec![(Operator::new("aten::mm", Vec::new(), Vec::new()), 5.0)];
    let probes = Probes { stand_ins, ..Probes::default() };
    let probed = Some((probes, vec![finding(line, cost(0.4))]));
    *session.profiler.probed.lock().expect("no panic") = probed;
    session.initialize(client(), true).await;
    run(&mut session, "train.py", profiled).await;
    let message_of = |shown: &[Value]| {
        let [diagnostic] = shown else { panic!("{shown:?}") };
        diagnostic["message"].as_str().expect("a text").to_owned()
    };
    let mut message = message_of(&published(&mut session).await);
    // The finding is first shown without the probes, unless they finish earlier.
    if message.contains("(20%)") {
        message = message_of(&published(&mut session).await);
    }
    assert!(message.contains("(40%)"), "{message}");
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_hover_with_diagnostics_shows_a_finding_once() {
    let mut client = client();
    client["experimental"] = json!({"ridgeline": {"diagnosticsInHover": true}});
    let (mut session, _, line) = measured_by(client).await;
    assert_eq!(published(&mut session).await.len(), 1);
    let place = json!({"line": line - 1, "character": 12});
    let params = json!({"textDocument": {"uri": session.uri("train.py")}, "position": place});
    let hover = session.client.request("textDocument/hover", params).await.expect("a hover");
    let hover = hover.to_string();
    assert!(hover.contains("backward") && !hover.contains("this waits for the GPU"), "{hover}");
    session.client.goodbye().await;
}

#[tokio::test]
async fn quick_fixes_fix_and_silence() {
    let (mut session, text, line) = measured().await;
    let shown = published(&mut session).await;
    // Editors request actions automatically for the light bulb. A fix deserves one.
    let context = json!({"diagnostics": shown, "triggerKind": 2});
    let found = actions(&mut session, line, context).await;
    let titles: Vec<&str> = found.iter().filter_map(|one| one["title"].as_str()).collect();
    assert_eq!(titles, [QUICK_FIX, "Ridgeline: ignore `hidden-sync` here"]);
    for action in &found {
        assert_eq!(action["kind"], "quickfix");
        assert_eq!(action["diagnostics"], json!(shown));
    }
    let new = found[0]["edit"]["documentChanges"][0]["edits"][0]["newText"].as_str();
    assert!(new.is_some_and(|new| new.contains("set_float32_matmul_precision")), "{new:?}");
    let silenced = &found[1]["edit"]["documentChanges"][0]["edits"][0];
    assert_eq!(silenced["newText"], "  # ridgeline: ignore[hidden-sync]");
    assert_eq!(silenced["range"]["start"]["line"], line - 1);
    // Nothing at another line, and nothing of other kinds.
    assert_eq!(
        actions(&mut session, 1, json!({"diagnostics": [], "triggerKind": 2})).await,
        Vec::<Value>::new()
    );
    let only = json!({"diagnostics": [], "only": ["source.fixAll"]});
    assert_eq!(actions(&mut session, line, only).await, Vec::<Value>::new());
    // A comment above silences the finding at once, without changing the measured statement.
    let indentation: String = text
        .lines()
        .nth(line as usize - 1)
        .map(|line| line.chars().take_while(|c| *c == ' ').collect())
        .unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.insert(line as usize - 1, format!("{indentation}# ridgeline: ignore[hidden-sync]"));
    let script = session.uri("train.py");
    session.client.change(&script, 2, json!([{"text": lines.join("\n")}])).await;
    assert_eq!(published(&mut session).await, Vec::<Value>::new());
    session.client.goodbye().await;
}

/// The findings of one project of a workspace stay when another one is measured.
#[tokio::test]
async fn each_project_keeps_its_findings() {
    let (mut session, _, line) = measured().await;
    assert_eq!(published(&mut session).await.len(), 1);
    measure_other(&mut session).await;
    assert_eq!(published_in(&mut session, "other/train.py").await.len(), 1);
    // The first project's finding is still there and can be fixed.
    let found = actions(&mut session, line, json!({"diagnostics": []})).await;
    let titles: Vec<&str> = found.iter().filter_map(|one| one["title"].as_str()).collect();
    assert!(titles.contains(&QUICK_FIX), "{titles:?}");
    session.client.goodbye().await;
}

/// A study that was interrupted by another project's run continues after it.
#[tokio::test]
async fn a_run_of_another_project_delays_findings_only() {
    let mut session = Session::start();
    let (go_on, held) = std::sync::mpsc::channel();
    *session.profiler.held.lock().expect("no panic") = Some(held);
    measure(&mut session, client()).await;
    while session.profiler.held.lock().expect("no panic").is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    measure_other(&mut session).await;
    assert_eq!(published_in(&mut session, "other/train.py").await.len(), 1);
    assert_eq!(published(&mut session).await.len(), 1);
    drop(go_on);
    session.client.goodbye().await;
}

#[tokio::test]
async fn settings_hide_findings() {
    let (mut session, _, line) = measured().await;
    assert_eq!(published(&mut session).await.len(), 1);
    for settings in [json!({"enable": false}), json!({"minimum": "warning"})] {
        let mut all = quiet();
        all["findings"] = settings.clone();
        session
            .client
            .notify("workspace/didChangeConfiguration", json!({"settings": {"ridgeline": all}}))
            .await;
        let shown = published(&mut session).await;
        // It is a warning, so it is shown at that minimum.
        assert_eq!(shown.len(), usize::from(settings.get("minimum").is_some()), "{settings}");
    }
    let found = actions(&mut session, line, json!({"diagnostics": []})).await;
    assert_eq!(found.iter().filter(|one| one["kind"] == "quickfix").count(), 2, "{found:?}");
    session.client.goodbye().await;
}

const SCRIPT: &str = "\
import torch
model = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    opt.zero_grad()
    model(batch).sum().backward()
    opt.step()
";

#[tokio::test]
async fn source_text_is_analyzed_while_typing() {
    let mut session = Session::start();
    *session.profiler.of_text.lock().expect("no panic") = vec![finding(6, None)];
    // Nothing runs for it, so it needs no consent.
    session.initialize(client(), false).await;
    let script = session.uri("train.py");
    session.client.open(&script, SCRIPT).await;
    let shown = published(&mut session).await;
    assert_eq!(shown[0]["severity"], 4);
    let message = shown[0]["message"].as_str().expect("a text");
    assert!(message.starts_with("this waits for the GPU (not measured).\n"), "{message}");
    // While the text does not parse, the last findings stay.
    let broken = SCRIPT.replace("model(batch)", "model(batch");
    *session.profiler.of_text.lock().expect("no panic") = Vec::new();
    session.client.change(&script, 2, json!([{"text": broken}])).await;
    assert_eq!(published(&mut session).await, Vec::<Value>::new(), "its line has changed");
    session.client.change(&script, 3, json!([{"text": SCRIPT}])).await;
    assert_eq!(published(&mut session).await.len(), 1, "it is back");
    assert_eq!(published(&mut session).await, Vec::<Value>::new(), "nothing is found any more");
    session.client.goodbye().await;
}

/// A module of the program is fixed as part of the program, before any measurement.
#[tokio::test]
async fn findings_from_source_text_are_fixed_in_modules() {
    let mut session = Session::start();
    let at = SourceLine { path: "evaluation.py".to_owned(), line: 4 };
    let fix = Some(EditKind::NoGradInValidation);
    *session.profiler.of_text.lock().expect("no panic") =
        vec![Finding { at, fix, related: Vec::new(), ..finding(4, None) }];
    session.initialize(client(), false).await;
    let evaluation = "def evaluate(model, loader):\n    total = 0\n    for x in loader:\n        \
                      total += model(x).sum().item()\n    return total\n";
    let script = SCRIPT
        .replace("import torch\n", "import torch\nfrom evaluation import evaluate\n")
        + "print(evaluate(model, held_out))\n";
    for (name, text) in [("evaluation.py", evaluation), ("train.py", &script)] {
        std::fs::write(session.root.join(name), text).expect("written");
        session.client.open(&session.uri(name), text).await;
    }
    assert_eq!(published_in(&mut session, "evaluation.py").await.len(), 1);
    let found = session.code_actions_in("evaluation.py", 3, json!({"diagnostics": []})).await;
    let fixed = &found[0]["edit"]["documentChanges"][0];
    assert_eq!(fixed["textDocument"]["uri"], session.uri("evaluation.py"), "{found:?}");
    let new = fixed["edits"].to_string();
    assert!(new.contains("@torch.no_grad()") && new.contains("import torch"), "{new}");
    session.client.goodbye().await;
}

/// The program may never use a file that the measured iteration did not use.
#[tokio::test]
async fn findings_in_unused_files_need_an_open_file() {
    let mut session = Session::start();
    let profiled = recorded(&session);
    let text = std::fs::read_to_string(session.root.join("train.py")).expect("the script");
    session.initialize(client(), true).await;
    let script = session.uri("train.py");
    session.client.open(&script, &text).await;
    session.client.save(&script).await;
    session.next_run().await.end.send(ProfileOutcome::Measured(profiled)).expect("waiting");
    session.client.status("idle").await;
    std::fs::write(session.root.join("other.py"), text.as_bytes()).expect("written");
    let at = SourceLine { path: "other.py".to_owned(), line: 4 };
    let unused = Finding { at, related: Vec::new(), ..finding(4, None) };
    let at_the_edit = finding(line_of(&text, "optimizer.step()"), None);
    *session.profiler.of_text.lock().expect("no panic") = vec![unused, at_the_edit];
    let edited = text.replace("optimizer.step()", "optimizer.step()  # edited");
    session.client.change(&script, 2, json!([{"text": edited}])).await;
    assert_eq!(published(&mut session).await.len(), 1);
    session.client.open(&session.uri("other.py"), &text).await;
    // What was published for it before would come first.
    assert_eq!(published_in(&mut session, "other.py").await.len(), 1);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_measurement_replaces_findings_from_source_text() {
    let mut session = Session::start();
    let profiled = recorded(&session);
    let text = std::fs::read_to_string(session.root.join("train.py")).expect("the script");
    let line = line_of(&text, "backward()");
    *session.profiler.of_text.lock().expect("no panic") = vec![finding(line, None)];
    session.initialize(client(), true).await;
    let script = session.uri("train.py");
    session.client.open(&script, &text).await;
    assert_eq!(published(&mut session).await.len(), 1);
    session.client.save(&script).await;
    // The measurement has no finding there.
    session.next_run().await.end.send(ProfileOutcome::Measured(profiled)).expect("waiting");
    assert_eq!(published(&mut session).await, Vec::<Value>::new());
    session.client.goodbye().await;
}
