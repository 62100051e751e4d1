//! Live estimates: when they start and stop, and what they show.

use std::sync::Arc;
use std::time::Duration;

use ridgeline_analysis::present::failure::{FailureFrame, RunFailure};
use ridgeline_analysis::profile::{Baseline, Estimate, Provenance};
use ridgeline_analysis::python::fingerprint;
use serde_json::{Value, json};

use super::fake::{SCRIPT, Session, StartedEstimate, quiet};
use crate::live::{EstimateOutcome, Estimated, Gap};
use crate::profiler::{ProfileOutcome, Profiled};

/// The edited script.
const EDITED: &str =
    "import torch\nfor batch in loader:\n    loss = my_model(batch)\n    loss.backward()\n";

fn options(trusted: bool) -> Value {
    let mut options = quiet();
    options["trusted"] = trusted.into();
    options["live.enable"] = true.into();
    options["live.delayMilliseconds"] = 20.into();
    options
}

/// A session with an open, measured script. A script that has just run needs no estimate.
async fn measured() -> Session {
    let mut session = Session::start();
    session.initialize_with(json!({"textDocument": {"codeLens": {}}}), options(true)).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    session
}

async fn edit(session: &mut Session, version: i32, text: &str) {
    let script = session.uri("train.py");
    session.client.change(&script, version, json!([{"text": text}])).await;
}

/// The measured profile, with 60 ms instead of 40 ms on the edited line 3.
fn estimated(session: &Session, target: Option<&str>) -> EstimateOutcome {
    let ProfileOutcome::Measured(profiled) = session.measured() else { panic!("it is measured") };
    let mut profile = (*profiled.profile).clone();
    let before = Baseline::of(&profile);
    profile.files[0].fingerprint = fingerprint(EDITED);
    for line in profile.lines[0].iter_mut().filter(|line| line.line == 3) {
        line.self_time.forward = 60e6;
        line.total_time.forward = 60e6;
        line.provenance = Provenance::Estimated;
    }
    profile.iteration.time_ns = 120e6;
    let before = target.is_none().then_some(before);
    profile.estimate = Some(Estimate { target: target.map(str::to_owned), before });
    let profiled = Profiled { profile: Arc::new(profile), ..profiled };
    EstimateOutcome::Estimated(Box::new(Estimated { profiled, gaps: Vec::new() }))
}

/// Ends an estimate and waits until it is shown.
async fn shown(
    session: &mut Session,
    estimate: StartedEstimate,
    outcome: EstimateOutcome,
) -> Value {
    estimate.end.send(outcome).unwrap_or_else(|_| panic!("nobody waits for it"));
    loop {
        let headline = session.client.status("idle").await["headline"]["text"].clone();
        if headline.as_str().is_some_and(|text| text.starts_with('~')) {
            return headline;
        }
    }
}

async fn lens(session: &mut Session) -> String {
    let params = json!({"textDocument": {"uri": session.uri("train.py")}});
    session.client.request("textDocument/codeLens", params).await.expect("lenses").to_string()
}

#[tokio::test]
async fn an_edit_is_estimated_after_a_pause_and_undone_at_once() {
    let mut session = measured().await;
    edit(&mut session, 2, EDITED).await;
    let estimate = session.estimating().await;
    assert_eq!(estimate.request.texts[0].1.text(), EDITED);
    assert_eq!(estimate.request.measured.len(), 1);
    // The previous hints stay until the estimate arrives.
    assert_eq!(session.hints("train.py").await, ["2: was 40 ms", "3: 60 ms · 60%"]);
    let outcome = estimated(&session, None);
    let headline = shown(&mut session, estimate, outcome).await;
    assert_eq!(headline, "~267 samples/s, −17% · ~120 ms");
    assert_eq!(session.hints("train.py").await, ["2: ~60 ms · 50%", "3: 60 ms · 50%"]);
    let lenses = lens(&mut session).await;
    assert!(lenses.contains("~267 samples/s, −17% · ~120 ms"), "{lenses}");
    let at = json!({"line": 2, "character": 6});
    let params = json!({"textDocument": {"uri": session.uri("train.py")}, "position": at});
    let hover = session.client.request("textDocument/hover", params).await.expect("a hover");
    assert!(hover.to_string().contains("estimated"), "{hover}");

    edit(&mut session, 3, SCRIPT).await;
    let status = session.client.status("idle").await;
    assert_eq!(status["headline"]["text"], "320 samples/s · 100 ms");
    assert_eq!(session.hints("train.py").await, ["2: 40 ms · 40%", "3: 60 ms · 60%"]);
    session.client.goodbye().await;
}

#[tokio::test]
async fn estimates_without_a_sandbox_need_the_setting() {
    let mut session = measured().await;
    edit(&mut session, 2, EDITED).await;
    let confined = session.estimating().await;
    assert!(!confined.request.profile.without_sandbox);
    let mut all = options(true);
    all["live.withoutSandbox"] = true.into();
    let params = json!({"settings": {"ridgeline": all}});
    session.client.notify("workspace/didChangeConfiguration", params).await;
    confined.cancel.cancelled().await;
    drop(confined);
    assert!(session.estimating().await.request.profile.without_sandbox);
    session.client.goodbye().await;
}

#[tokio::test]
async fn continued_typing_delays_the_estimate() {
    let mut session = measured().await;
    for version in 2..12 {
        edit(&mut session, version, &EDITED.replace("my_", &"m".repeat(version as usize))).await;
    }
    let mut estimate = session.estimating().await;
    // A slow machine may cause pauses. Each pause starts one estimate, and the last has the last
    // text.
    while estimate.request.texts[0].1.text() != EDITED.replace("my_", &"m".repeat(11)) {
        estimate.cancel.cancelled().await;
        drop(estimate);
        estimate = session.estimating().await;
    }
    assert!(!session.is_estimating().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_keystroke_stops_the_estimate_and_its_late_result_is_dropped() {
    let mut session = measured().await;
    edit(&mut session, 2, EDITED).await;
    let late = session.estimating().await;
    edit(&mut session, 3, &EDITED.replace("my_", "your_")).await;
    late.cancel.cancelled().await;
    late.end.send(estimated(&session, None)).expect("the lock waits for it");
    let next = session.estimating().await;
    assert_eq!(session.hints("train.py").await, ["2: was 40 ms", "3: 60 ms · 60%"]);
    drop(next);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_text_that_was_estimated_is_not_estimated_again() {
    let mut session = measured().await;
    edit(&mut session, 2, EDITED).await;
    let estimate = session.estimating().await;
    let outcome = estimated(&session, None);
    shown(&mut session, estimate, outcome).await;
    // Two edits within one pause restore the text.
    edit(&mut session, 3, &EDITED.replace("my_", "your_")).await;
    edit(&mut session, 4, EDITED).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!session.is_estimating().await, "the same text is estimated again");
    assert_eq!(session.hints("train.py").await, ["2: ~60 ms · 50%", "3: 60 ms · 50%"]);
    // After an undo the estimate is not shown, so it is needed again.
    edit(&mut session, 5, SCRIPT).await;
    edit(&mut session, 6, EDITED).await;
    assert_eq!(session.estimating().await.request.texts[0].1.text(), EDITED);
    session.client.goodbye().await;
}

#[tokio::test]
async fn invalid_python_keeps_the_last_hints() {
    let mut session = measured().await;
    edit(&mut session, 2, EDITED).await;
    let estimate = session.estimating().await;
    let outcome = estimated(&session, None);
    shown(&mut session, estimate, outcome).await;
    edit(&mut session, 3, &EDITED.replace("(batch)", "(batch, dim=")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let hints = session.hints("train.py").await;
    assert!(hints.contains(&"3: 60 ms · 50%".to_owned()), "{hints:?}");
    assert!(!session.is_estimating().await);
    session.client.goodbye().await;
}

fn frame(line: u32) -> FailureFrame {
    FailureFrame { path: "train.py".to_owned(), line, name: "train".to_owned() }
}

#[tokio::test]
async fn gaps_are_reported_at_their_line_once() {
    let mut session = measured().await;
    edit(&mut session, 2, EDITED).await;
    let with_gap = |session: &Session| {
        let EstimateOutcome::Estimated(mut found) = estimated(session, None) else {
            panic!("it is an estimate")
        };
        found.gaps = vec![Gap { at: frame(4), message: "Not estimated: lib::op".to_owned() }];
        EstimateOutcome::Estimated(found)
    };
    let estimate = session.estimating().await;
    let outcome = with_gap(&session);
    shown(&mut session, estimate, outcome).await;
    let published = session.client.notification("textDocument/publishDiagnostics").await;
    let diagnostic = &published["diagnostics"][0];
    assert_eq!(diagnostic["severity"], 3, "{published}");
    assert_eq!(diagnostic["range"]["start"]["line"], 3);
    assert_eq!(diagnostic["code"], "not-estimated");
    // The rest of the estimate is shown, and the next one reports nothing new.
    assert_eq!(session.hints("train.py").await, ["2: ~60 ms · 50%", "3: 60 ms · 50%"]);
    edit(&mut session, 3, &format!("{EDITED}\n")).await;
    let estimate = session.estimating().await;
    estimate.end.send(with_gap(&session)).expect("waiting");
    session.hints("train.py").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!session.client.has_unread("textDocument/publishDiagnostics").await);
    session.client.goodbye().await;
}

fn failure(line: u32) -> RunFailure {
    RunFailure {
        error_type: "RuntimeError".to_owned(),
        message: "mat1 and mat2 shapes cannot be multiplied".to_owned(),
        kind: "exception".to_owned(),
        frames: vec![frame(line)],
        ..RunFailure::default()
    }
}

#[tokio::test]
async fn a_failing_edit_is_reported_until_the_next_keystroke() {
    let mut session = measured().await;
    edit(&mut session, 2, EDITED).await;
    let estimate = session.estimating().await;
    let root = session.root.clone();
    let outcome = EstimateOutcome::Failed { failure: failure(3), root };
    estimate.end.send(outcome).expect("waiting");
    let published = session.client.notification("textDocument/publishDiagnostics").await;
    let diagnostic = &published["diagnostics"][0];
    let message = diagnostic["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("This edit would fail: RuntimeError: mat1 and mat2"), "{message}");
    assert_eq!(diagnostic["severity"], 2);
    assert_eq!(diagnostic["range"]["start"]["line"], 2);
    assert_eq!(session.hints("train.py").await, ["2: was 40 ms", "3: 60 ms · 60%"]);
    edit(&mut session, 3, &EDITED.replace("my_", "your_")).await;
    let gone = session.client.notification("textDocument/publishDiagnostics").await;
    assert_eq!(gone["diagnostics"], json!([]));
    session.client.goodbye().await;
}

#[tokio::test]
async fn an_endless_edit_is_reported_where_it_was_stopped() {
    let mut session = measured().await;
    edit(&mut session, 2, EDITED).await;
    let estimate = session.estimating().await;
    let root = session.root.clone();
    let outcome = EstimateOutcome::Endless { at: Some(frame(3)), root, seconds: 10 };
    estimate.end.send(outcome).expect("waiting");
    let published = session.client.notification("textDocument/publishDiagnostics").await;
    let diagnostic = &published["diagnostics"][0];
    let message = diagnostic["message"].as_str().unwrap_or_default();
    assert!(message.contains("in 10 s"), "{message}");
    // It does not mean that anything is wrong.
    assert_eq!(diagnostic["severity"], 4);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_save_stops_the_estimate_and_then_runs() {
    let mut session = measured().await;
    edit(&mut session, 2, EDITED).await;
    let estimate = session.estimating().await;
    let script = session.uri("train.py");
    session.client.save(&script).await;
    estimate.cancel.cancelled().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!session.has_run().await, "the estimate still computes");
    drop(estimate);
    let run = session.next_run().await;
    edit(&mut session, 3, &EDITED.replace("my_", "your_")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!session.is_estimating().await, "two at once would disturb what is measured");
    run.end.send(session.measured()).expect("waiting");
    // The text typed meanwhile is estimated next.
    let next = session.estimating().await;
    assert!(next.request.texts[0].1.text().contains("your_model"));
    drop(next);
    session.client.goodbye().await;
}

#[tokio::test]
async fn nothing_runs_without_consent() {
    let mut session = Session::start();
    session.initialize_with(json!({}), options(false)).await;
    let script = session.uri("train.py");
    session.client.open(&script, SCRIPT).await;
    edit(&mut session, 2, EDITED).await;
    session.hints("train.py").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!session.is_estimating().await);
    session.client.command("ridgeline.trust", json!([])).await.expect("done");
    drop(session.estimating().await);
    session.client.command("ridgeline.revokeTrust", json!([])).await.expect("done");
    edit(&mut session, 3, SCRIPT).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!session.is_estimating().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_closed_document_is_read_from_disk() {
    let mut session = measured().await;
    edit(&mut session, 2, EDITED).await;
    let estimate = session.estimating().await;
    let closed = json!({"textDocument": {"uri": session.uri("train.py")}});
    session.client.notify("textDocument/didClose", closed).await;
    estimate.cancel.cancelled().await;
    drop(estimate);
    let next = session.estimating().await;
    assert!(next.request.texts.is_empty());
    drop(next);
    session.client.goodbye().await;
}

#[tokio::test]
async fn two_projects_have_separate_estimates() {
    let mut session = measured().await;
    let other = session.root.join("other");
    std::fs::create_dir(&other).expect("created");
    std::fs::write(other.join("train.py"), SCRIPT).expect("written");
    let script = session.uri("other/train.py");
    session.client.open(&script, SCRIPT).await;
    session.client.change(&script, 2, json!([{"text": EDITED}])).await;
    let estimate = session.estimating().await;
    assert_eq!(estimate.request.profile.changed, Some(other.join("train.py")));
    let EstimateOutcome::Estimated(mut found) = estimated(&session, None) else {
        panic!("it is an estimate")
    };
    found.profiled.root = other.clone();
    found.profiled.real_root = other.clone();
    found.profiled.files = vec![Some(other.join("train.py"))];
    shown(&mut session, estimate, EstimateOutcome::Estimated(found)).await;
    assert_eq!(session.hints("other/train.py").await, ["2: ~60 ms · 50%", "3: 60 ms · 50%"]);
    assert_eq!(session.hints("train.py").await, ["2: 40 ms · 40%", "3: 60 ms · 60%"]);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_target_gpu_needs_no_measurement() {
    let mut session = Session::start();
    let mut options = options(true);
    options["targetGpu"] = "h200".into();
    session.initialize_with(json!({"textDocument": {"codeLens": {}}}), options).await;
    let script = session.uri("train.py");
    session.client.open(&script, SCRIPT).await;
    let estimate = session.estimating().await;
    assert_eq!(estimate.request.target.as_deref(), Some("h200"));
    assert!(estimate.request.measured.is_empty());
    let outcome = estimated(&session, Some("H200-SXM5-141GB"));
    let headline = shown(&mut session, estimate, outcome).await;
    assert_eq!(headline, "~267 samples/s · ~120 ms · on H200-SXM5-141GB");
    assert!(lens(&mut session).await.contains("on H200-SXM5-141GB"));
    // The choice in this session overrides the settings.
    let known = session.client.request("ridgeline/gpus", Value::Null).await.expect("names");
    assert!(known.to_string().contains("H100-SXM5-80GB"), "{known}");
    let chosen = json!([{"uri": script, "gpu": "H100-SXM5-80GB"}]);
    session.client.command("ridgeline.selectTargetGpu", chosen).await.expect("done");
    let next = session.estimating().await;
    assert_eq!(next.request.target.as_deref(), Some("H100-SXM5-80GB"));
    drop(next);
    let unknown = json!([{"gpu": "Voodoo 2"}]);
    session.client.command("ridgeline.selectTargetGpu", unknown).await.expect("done");
    session.client.notification("window/showMessage").await;
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_target_gpu_is_asked_for() {
    let mut session = measured().await;
    session.client.command("ridgeline.selectTargetGpu", json!([])).await.expect("done");
    let (id, params) = session.client.wait_for_request("window/showMessageRequest").await;
    assert!(params["actions"].to_string().contains("H100-SXM5-80GB"), "{params}");
    session.client.reply(&id, json!({"title": "H100-SXM5-80GB"})).await;
    let estimate = session.estimating().await;
    assert_eq!(estimate.request.target.as_deref(), Some("H100-SXM5-80GB"));
    drop(estimate);
    session.client.goodbye().await;
}

#[tokio::test]
async fn no_estimates_if_turned_off() {
    let mut session = Session::initialized(json!({}), true).await;
    let script = session.uri("train.py");
    session.client.open(&script, SCRIPT).await;
    edit(&mut session, 2, EDITED).await;
    session.hints("train.py").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!session.is_estimating().await);
    session.client.goodbye().await;
}
