//! The batch-size sweep: when it runs, when it ends, and the edits that set a batch size.

use std::fs;
use std::sync::Arc;

use ridgeline_analysis::predict::batch_size::{Capacity, Evidence, Run};
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::python::batch_site::batch_site;
use ridgeline_analysis::python::semantics::Entry;
use serde_json::{Value, json};

use super::fake::{Session, StartedSweep};
use crate::batch::{Sources, SweepEffort, SweepResults};
use crate::machine_load::BusyReason;
use crate::profiler::ProfileOutcome;
use ridgeline_test_client::http::Panel;

const SCRIPT: &str = "import torch\nfrom torch.utils.data import DataLoader\nloader = DataLoader(data, batch_size=32)\nfor batch in loader:\n    model(batch).backward()\n";

/// A client that supports edits and the panel.
fn editing(more: Value) -> Value {
    let mut workspace = json!({"applyEdit": true, "workspaceEdit": {"documentChanges": true}});
    if let (Some(all), Some(more)) = (workspace.as_object_mut(), more.as_object()) {
        all.extend(more.clone());
    }
    json!({"workspace": workspace, "experimental": {"ridgeline": {"panel": true}}})
}

/// A session with a measured script, and its sweep.
async fn measured(capabilities: Value) -> (Session, StartedSweep) {
    let mut session = Session::start();
    fs::write(session.root.join("train.py"), SCRIPT).expect("written");
    session.initialize(capabilities, true).await;
    let script = session.uri("train.py");
    session.client.open(&script, SCRIPT).await;
    session.client.save(&script).await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    session.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
    let exploring = session.exploring().await;
    (session, exploring)
}

/// The result of a sweep: 100 kB and 1 kB per sample, with memory for 200 samples.
fn explored(session: &Session) -> SweepResults {
    let sources = Sources::new(&session.root, []);
    let mut entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
    let site = batch_site(&sources, &entry);
    entry.chosen = site.as_ref().ok().map(|site| site.choice);
    let run = |batch: u64| Run {
        batch,
        samples: batch,
        timed_ns: vec![1e6 + 1e4 * batch as f64],
        peak_bytes: Some(100_000 + 1_000 * batch),
        ..Run::default()
    };
    SweepResults {
        root: session.root.clone(),
        entry,
        site,
        evidence: Evidence { runs: [32, 48, 24].map(run).into(), ..Evidence::default() },
        capacity: Some(Capacity { bytes: 300_000, taken: 0 }),
        message: None,
        first_operators: None,
        gpu_batches: None,
    }
}

/// A session with a finished sweep, and its panel.
async fn known(capabilities: Value) -> (Session, Panel) {
    let (mut session, exploring) = measured(capabilities).await;
    exploring.news.send(explored(&session)).await.expect("wanted");
    drop(exploring);
    session.client.command("ridgeline.openPanel", json!([])).await.expect("done");
    let params = session.client.notification("ridgeline/openPanel").await;
    let panel = Panel::at(params["uri"].as_str().expect("an address"));
    while panel.document().await["predictions"]["batch_size"]["state"] != "ready" {
        tokio::task::yield_now().await;
    }
    (session, panel)
}

fn titles(actions: &[Value]) -> Vec<&str> {
    actions.iter().filter_map(|action| action["title"].as_str()).collect()
}

#[tokio::test]
async fn the_panel_shows_the_curve() {
    let (session, panel) = known(editing(json!({}))).await;
    let sizes = &panel.document().await["predictions"]["batch_size"];
    assert_eq!(sizes["current"], 32);
    assert_eq!(sizes["site"]["text"], "batch_size=32");
    assert_eq!(sizes["site"]["place"]["line"], 3);
    assert_eq!(sizes["largest"]["value"], 200);
    session.client.goodbye().await;
}

#[tokio::test]
async fn code_actions_at_the_number_and_at_the_loop() {
    let (mut session, _) = known(editing(json!({}))).await;
    for line in [2, 3] {
        let found = session.rewrites(line).await;
        let titles = titles(&found);
        assert_eq!(titles[0], "Ridgeline: set batch size to 176 (throughput saturates, ~)");
        assert!(titles.contains(&"Ridgeline: set batch size to 64"), "{titles:?}");
        assert!(titles.contains(&"Ridgeline: set batch size to 16"), "{titles:?}");
        let change = &found[0]["edit"]["documentChanges"][0];
        assert_eq!(change["textDocument"]["version"], 1);
        let range =
            json!({"start": {"line": 2, "character": 37}, "end": {"line": 2, "character": 39}});
        assert_eq!(change["edits"], json!([{"range": range, "newText": "176"}]));
    }
    assert_eq!(session.rewrites(0).await, Vec::<Value>::new());
    // A client without versioned edits gets plain changes.
    session.client.goodbye().await;
    let (mut plain, _) = known(editing(json!({"workspaceEdit": {}}))).await;
    let found = plain.rewrites(2).await;
    assert_eq!(found[0]["edit"]["changes"][plain.uri("train.py")][0]["newText"], "176");
    plain.client.goodbye().await;
}

#[tokio::test]
async fn no_actions_before_the_result() {
    let (mut session, exploring) = measured(editing(json!({}))).await;
    let found = session.rewrites(2).await;
    assert!(!titles(&found).iter().any(|title| title.contains("batch size")), "{found:?}");
    drop(exploring);
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_panel_sets_the_number_at_its_current_place() {
    let (mut session, panel) = known(editing(json!({}))).await;
    let generation = panel.document().await["generation"].clone();
    // An unsaved line is inserted above.
    let start = json!({"line": 0, "character": 0});
    let change = json!([{"range": {"start": start, "end": start}, "text": "# training\n"}]);
    session.client.change(&session.uri("train.py"), 2, change).await;
    let body = json!({"workspace": 0, "generation": generation, "batch": 48});
    let (answer, edit) = tokio::join!(panel.post("/api/batch", &body), async {
        let (id, params) = session.client.wait_for_request("workspace/applyEdit").await;
        session.client.reply(&id, json!({"applied": true})).await;
        params
    });
    assert_eq!(answer.json(), json!({"done": true}));
    assert_eq!(edit["label"], "Set batch size to 48");
    let change = &edit["edit"]["documentChanges"][0];
    assert_eq!(change["textDocument"]["version"], 2);
    assert_eq!(change["edits"][0]["newText"], "48");
    assert_eq!(change["edits"][0]["range"]["start"], json!({"line": 3, "character": 37}));
    session.client.goodbye().await;
}

#[tokio::test]
async fn edits_refused_by_the_editor_are_reported() {
    let (mut session, panel) = known(editing(json!({}))).await;
    let generation = panel.document().await["generation"].clone();
    let body = json!({"workspace": 0, "generation": generation, "batch": 48});
    for (reply, message) in [
        (
            json!({"applied": false, "failureReason": "read-only"}),
            "The editor did not apply the edit: read-only",
        ),
        (json!({"applied": false}), "The editor did not apply the edit."),
        (json!(null), "The editor did not apply the edit."),
    ] {
        let (answer, ()) = tokio::join!(panel.post("/api/batch", &body), async {
            let (id, _) = session.client.wait_for_request("workspace/applyEdit").await;
            session.client.reply(&id, reply).await;
        });
        assert_eq!(answer.json(), json!({"done": false, "message": message}));
    }
    session.client.goodbye().await;
}

#[tokio::test]
async fn impossible_edits_are_not_sent() {
    let (mut session, panel) = known(editing(json!({}))).await;
    let generation = panel.document().await["generation"].as_u64().expect("a number");
    let refused = async |generation: u64, batch: u64| {
        let body = json!({"workspace": 0, "generation": generation, "batch": batch});
        panel.post("/api/batch", &body).await.json()["message"].clone()
    };
    assert_eq!(refused(generation + 1, 48).await, "The panel shows an older measurement.");
    assert_eq!(refused(generation, 0).await, "The batch size must be a number from 1 to 16777216.");
    let message = refused(generation, 1 << 30).await;
    assert_eq!(message, "The batch size must be a number from 1 to 16777216.");
    // Setting the current value needs no edit.
    assert_eq!(refused(generation, 32).await, Value::Null);
    // The number is gone.
    session.client.change(&session.uri("train.py"), 2, json!([{"text": "import torch\n"}])).await;
    let message = refused(generation, 48).await;
    assert!(message.as_str().is_some_and(|message| message.contains("no DataLoader")), "{message}");
    assert!(!session.client.has_unread("workspace/applyEdit").await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn an_editor_without_edits_is_sent_none() {
    let (session, panel) = known(json!({"experimental": {"ridgeline": {"panel": true}}})).await;
    let generation = panel.document().await["generation"].clone();
    let body = json!({"workspace": 0, "generation": generation, "batch": 48});
    let answer = panel.post("/api/batch", &body).await.json();
    assert_eq!(answer["message"], "This editor does not accept edits from the server.");
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_command_sets_a_value_and_explains_its_usage() {
    let (mut session, _) = known(editing(json!({}))).await;
    session.client.command("ridgeline.setBatchSize", json!([{"batch": 96}])).await.expect("done");
    assert!(session.client.has_passed("workspace/applyEdit"), "it comes behind the answer");
    let (id, params) = session.client.wait_for_request("workspace/applyEdit").await;
    assert_eq!(params["edit"]["documentChanges"][0]["edits"][0]["newText"], "96");
    session.client.reply(&id, json!({"applied": true})).await;
    session.client.command("ridgeline.setBatchSize", json!([])).await.expect("done");
    let message = session.client.notification("window/showMessage").await;
    assert!(
        message["message"].as_str().is_some_and(|message| message.contains("`batch`")),
        "{message}"
    );
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_keystroke_and_a_save_stop_the_sweep() {
    let (mut session, exploring) = measured(editing(json!({}))).await;
    let start = json!({"line": 0, "character": 0});
    let change = json!([{"range": {"start": start, "end": start}, "text": "#\n"}]);
    session.client.change(&session.uri("train.py"), 2, change).await;
    exploring.cancel.cancelled().await;
    drop(exploring);
    // The command restarts it, and a save stops it.
    session.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
    let exploring = session.exploring().await;
    assert_eq!(exploring.request.effort, SweepEffort::Runs);
    session.client.save(&session.uri("train.py")).await;
    exploring.cancel.cancelled().await;
    // A late result is not attributed to the new run.
    let _ = exploring.news.send(explored(&session)).await;
    drop(exploring);
    session.next_run().await.end.send(session.measured()).expect("waiting");
    session.client.status("idle").await;
    // A save does not start it either.
    assert!(!session.is_exploring().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn on_demand_waits_for_a_request() {
    let mut session = Session::start();
    let mut options = super::fake::quiet();
    options["batchSize.explore"] = "onDemand".into();
    options["batchSize.memoryLimit"] = "2 GB".into();
    session.initialize_with(editing(json!({})), options).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    session.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
    let exploring = session.exploring().await;
    assert_eq!(exploring.request.effort, SweepEffort::Runs);
    assert_eq!(exploring.request.memory_limit, Some(2_000_000_000));
    drop(exploring);
    session.client.goodbye().await;
}

#[tokio::test]
async fn no_sweep_without_a_measurement() {
    let mut session = Session::initialized(editing(json!({})), true).await;
    session.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
    let message = session.client.notification("window/showMessage").await;
    assert!(
        message["message"].as_str().is_some_and(|message| message.contains("Profile it first")),
        "{message}"
    );
    session.client.goodbye().await;
}

/// A session with a sweep after each run, at the end of its first run.
async fn in_background(more: Value) -> Session {
    let mut session = Session::start();
    fs::write(session.root.join("train.py"), SCRIPT).expect("written");
    let mut options = super::fake::quiet();
    options["batchSize.measureInBackground"] = true.into();
    for (name, value) in more.as_object().into_iter().flatten() {
        options[name] = value.clone();
    }
    let mut capabilities = editing(json!({}));
    capabilities["experimental"]["ridgeline"]["background"] = true.into();
    session.initialize_with(capabilities, options).await;
    let script = session.uri("train.py");
    session.client.open(&script, SCRIPT).await;
    save(&mut session, |_| {}).await;
    session
}

/// Saves, and ends the run with a changed profile.
async fn save(session: &mut Session, change: impl FnOnce(&mut Profile)) {
    let script = session.uri("train.py");
    session.client.save(&script).await;
    let ProfileOutcome::Measured(mut profiled) = session.measured() else { panic!("measured") };
    change(Arc::make_mut(&mut profiled.profile));
    let run = session.next_run().await;
    run.end.send(ProfileOutcome::Measured(profiled)).expect("waiting");
}

#[tokio::test]
async fn the_same_program_is_not_swept_again() {
    let mut session = in_background(json!({})).await;
    let exploring = session.exploring().await;
    exploring.news.send(explored(&session)).await.expect("wanted");
    drop(exploring);
    session.client.status("idle").await;
    assert_eq!(session.rewrites(2).await.len(), 4);
    // The same program: the results are still valid.
    save(&mut session, |_| {}).await;
    session.client.status("running").await;
    session.client.status("idle").await;
    assert_eq!(session.rewrites(2).await.len(), 4);
    assert!(!session.is_exploring().await);
    // A program with more memory is a different one.
    save(&mut session, |profile| profile.memory.peak_bytes += 1).await;
    let exploring = session.exploring().await;
    assert!(exploring.request.known.is_none());
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_sweep_yields_to_other_users_of_the_machine() {
    let mut session = Session::start();
    let needed = &session.profiler.needed;
    *needed.lock().expect("no test panics with it") = Some(BusyReason::Cpu);
    let mut options = super::fake::quiet();
    options["batchSize.measureInBackground"] = true.into();
    let capabilities = json!({"experimental": {"ridgeline": {"background": true}}});
    session.initialize_with(capabilities, options).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    let status = session.client.status("background").await;
    assert_eq!(status["message"], "waiting: the machine is busy");
    assert!(!session.is_exploring().await);
    // An explicit request does not wait.
    session.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
    let exploring = session.exploring().await;
    assert_eq!(exploring.request.effort, SweepEffort::Runs);
    session.client.goodbye().await;
}

#[tokio::test]
async fn without_a_background_budget_no_automatic_sweep() {
    let mut session = in_background(json!({"background.seconds": 0})).await;
    while session.client.status("idle").await["headline"].is_null() {}
    assert!(!session.is_exploring().await);
    session.client.command("ridgeline.exploreBatchSize", json!([])).await.expect("done");
    let exploring = session.exploring().await;
    assert_eq!(exploring.request.effort, SweepEffort::Runs);
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_sweep_ends_with_the_background_budget() {
    let session = in_background(json!({"background.seconds": 0.05})).await;
    session.exploring().await.cancel.cancelled().await;
    session.client.goodbye().await;
}
