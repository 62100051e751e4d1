//! What-ifs: when they are computed, where they are shown, and how one is measured.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ridgeline_analysis::optimize::accuracy::{Pair, Sides, VERSION};
use ridgeline_analysis::optimize::rewrite::EditKind;
use ridgeline_analysis::present::what_ifs::speedup;
use serde_json::{Value, json};

use super::fake::Session;
use crate::machine_load::BusyReason;
use crate::profiler::{ProfileOutcome, Profiled};
use crate::what_if::pairs;
use ridgeline_test_client::http::Panel;

/// Recordings of real programs, with their sources.
const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/recordings");
/// An optimization that applies to it and has an edit.
const NAME: &str = "compile";

/// A measurement with a recording, for a copy of the program in the session's folder.
pub(super) fn recorded(session: &Session) -> Profiled {
    recorded_as(session, "conv-cpu")
}

fn recorded_as(session: &Session, name: &str) -> Profiled {
    let folder = &Path::new(RECORDINGS).join(name);
    for file in fs::read_dir(folder.join("src")).expect("sources").flatten() {
        fs::copy(file.path(), session.root.join(file.file_name())).expect("copied");
    }
    let mut profiled = crate::pipeline::open(folder).expect("a recording");
    profiled.root = session.root.clone();
    profiled.real_root = session.root.clone();
    let files = profiled.profile.files.iter().map(|file| session.root.join(&file.path));
    profiled.files = files.map(|file| Some(file).filter(|file| file.is_file())).collect();
    profiled
}

async fn opened(session: &mut Session) -> Panel {
    session.client.command("ridgeline.openPanel", json!([])).await.expect("done");
    let params = session.client.notification("ridgeline/openPanel").await;
    Panel::at(params["uri"].as_str().expect("an address"))
}

/// Waits until the panel's what-ifs satisfy the condition.
async fn wait_for_what_ifs(panel: &Panel, is_it: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..6000 {
        let what_ifs = panel.document().await["what_ifs"].clone();
        if is_it(&what_ifs) {
            return what_ifs;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it was never shown: {}", panel.document().await["what_ifs"]);
}

/// A session with the program measured and its what-ifs computed.
async fn known() -> (Session, Panel) {
    known_of("conv-cpu").await
}

/// A session with another program, whose open text is the one that ran.
async fn known_of(name: &str) -> (Session, Panel) {
    let client = json!({
        "experimental": {"ridgeline": {"panel": true, "hoverLinks": true}},
        "workspace": {"applyEdit": true, "workspaceEdit": {"documentChanges": true}},
    });
    let mut session = Session::initialized(client, true).await;
    session.open_and_save().await;
    let profiled = recorded_as(&session, name);
    session.next_run().await.end.send(ProfileOutcome::Measured(profiled)).expect("waiting");
    let text = fs::read_to_string(session.root.join("train.py")).expect("the script");
    session.client.change(&session.uri("train.py"), 2, json!([{"text": text}])).await;
    let panel = opened(&mut session).await;
    wait_for_what_ifs(&panel, |what_ifs| !what_ifs["before"].is_null()).await;
    (session, panel)
}

fn row(what_ifs: &Value) -> Value {
    let rows = what_ifs["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["name"] == NAME).cloned().expect("the optimization")
}

async fn measure(session: &mut Session, name: &str) {
    let argument = json!([{"uri": session.uri("train.py"), "name": name}]);
    session.client.command("ridgeline.measureWhatIf", argument).await.expect("done");
}

async fn next_message(session: &mut Session) -> String {
    let message = session.client.notification("window/showMessage").await;
    message["message"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn operators_are_timed_on_a_free_machine_only_and_what_ifs_do_not_wait_for_them() {
    for (needed, probings) in [(None, 1), (Some(BusyReason::Cpu), 0)] {
        let mut session = Session::start();
        *session.profiler.needed.lock().expect("no test panics with it") = needed;
        let client = json!({"experimental": {"ridgeline": {"panel": true}}});
        session.initialize(client, true).await;
        session.open_and_save().await;
        let profiled = recorded(&session);
        session.next_run().await.end.send(ProfileOutcome::Measured(profiled)).expect("waiting");
        let panel = opened(&mut session).await;
        wait_for_what_ifs(&panel, |what_ifs| !what_ifs["before"].is_null()).await;
        assert_eq!(session.profiler.probings.load(Ordering::Relaxed), probings, "{needed:?}");
        session.client.goodbye().await;
    }
}

#[tokio::test]
async fn a_measurement_is_studied() {
    let (mut session, panel) = known().await;
    let what_ifs = panel.document().await["what_ifs"].clone();
    assert!(row(&what_ifs)["speedup"]["value"].as_f64().is_some_and(|value| value > 0.1));
    assert!(what_ifs["refusals"].as_array().is_some_and(|refusals| !refusals.is_empty()));
    assert_eq!(what_ifs["message"], Value::Null);
    // The loop's hover lists the best optimizations that help and can be applied.
    let text = fs::read_to_string(session.root.join("train.py")).expect("the script");
    let script = session.uri("train.py");
    let line = text.lines().position(|line| line.trim_start().starts_with("for ")).expect("a loop");
    let place = json!({"line": line, "character": 6});
    let params = json!({"textDocument": {"uri": script}, "position": place});
    let hover = session.client.request("textDocument/hover", params).await.expect("a hover");
    let hover_text = hover.to_string();
    let faster = what_ifs["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter(|row| row["research"] == false)
        .any(|row| row["speedup"]["value"].as_f64().is_some_and(|value| value > 1.02));
    assert_eq!(hover_text.contains("Optimizations"), faster, "{hover_text}");
    // This client supports command links, and the best optimization has an edit.
    assert_eq!(hover_text.contains("](command:ridgeline.applyWhatIf?"), faster, "{hover_text}");
    assert_eq!(
        hover_text.contains("train%2Epy%22"),
        faster,
        "the link names the file: {hover_text}"
    );
    // A measurement also has predictions for other devices.
    let devices = panel.document().await["predictions"]["devices"]["rows"].clone();
    let fastest = devices[0]["name"].as_str().expect("a device");
    assert!(hover_text.contains(fastest), "{fastest}: {hover_text}");
    session.client.goodbye().await;
}

#[tokio::test]
async fn code_actions_show_their_savings() {
    let (mut session, panel) = known_of("accumulation-cpu").await;
    let what_ifs = panel.document().await["what_ifs"].clone();
    let text = fs::read_to_string(session.root.join("train.py")).expect("the script");
    let line = text.lines().position(|line| line.trim_start().starts_with("for ")).expect("a loop");
    let actions = session.rewrites(u32::try_from(line).expect("small")).await;
    let titles: Vec<&str> = actions.iter().filter_map(|one| one["title"].as_str()).collect();
    let rows = what_ifs["rows"].as_array().expect("rows");
    let (mut told_faster, mut useless) = (0, 0);
    for row in rows.iter().filter(|row| row["edit"]["possible"] == true) {
        let kind = EditKind::from_name(row["name"].as_str().expect("a name")).expect("an edit");
        let title = kind.title();
        let (first, rest) = title.split_at(1);
        let hover_text = format!("Ridgeline: {}{rest}", first.to_lowercase());
        let speed = row["speedup"]["value"].as_f64().expect("a number");
        let of_kind: Vec<&&str> = titles.iter().filter(|it| it.starts_with(&hover_text)).collect();
        if speed >= 1.02 {
            told_faster += 1;
            let [title] = of_kind[..] else { panic!("{row}: {titles:#?}") };
            assert!(
                title.starts_with(&format!("{hover_text}: ~{}", speedup(speed))),
                "{titles:#?}"
            );
        } else if row["peak_bytes"]["value"].as_f64() >= what_ifs["before"]["peak_bytes"].as_f64() {
            useless += 1;
            assert!(of_kind.is_empty(), "{row}");
        }
    }
    let gains = titles.iter().filter_map(|it| it.split_once(": ~")?.1.split_once('×'));
    let gains: Vec<f64> = gains.map(|(gain, _)| gain.parse().expect("a number")).collect();
    assert!(gains.is_sorted_by(|a, b| a >= b), "{titles:#?}");
    // Both cases occurred.
    assert!(told_faster > 0 && useless > 0, "{what_ifs}");
    session.client.goodbye().await;
}

#[tokio::test]
async fn recomputed_activations_are_chosen_by_line() {
    let (mut session, panel) = known_of("gan-cpu").await;
    let what_ifs = panel.document().await["what_ifs"].clone();
    let steps = what_ifs["recompute"].as_array().expect("steps");
    let is_one = |step: &&Value| step["is_an_edit"] == true && step["lines"] != json!([]);
    let step = steps.iter().find(is_one).expect("a step that is an edit");
    let request = |lines: &Value| json!({"workspace": 0, "name": "recompute", "action": "apply", "lines": lines});
    let accepted = request(&step["lines"]);
    let (answer, edited) = tokio::join!(panel.post("/api/whatif", &accepted), async {
        let (id, params) = session.client.wait_for_request("workspace/applyEdit").await;
        session.client.reply(&id, json!({"applied": true})).await;
        params
    });
    assert_eq!(answer.json()["done"], true);
    assert!(edited.to_string().contains("checkpoint"), "{edited}");
    let nowhere = json!([{"file": 99, "line": 1}]);
    let answer = panel.post("/api/whatif", &request(&nowhere)).await.json();
    assert_eq!(answer["message"], "That file is not on this machine.");
    // A partial edit is refused.
    let many = json!(vec![step["lines"][0].clone(); 65]);
    let answer = panel.post("/api/whatif", &request(&many)).await.json();
    assert_eq!(answer["message"], "One edit can change at most 64 lines.");
    session.client.goodbye().await;
}

#[tokio::test]
async fn without_a_recording_the_reason_is_shown() {
    let panel = json!({"experimental": {"ridgeline": {"panel": true}}});
    let mut session = Session::initialized(panel, true).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    let panel = opened(&mut session).await;
    let what_ifs = wait_for_what_ifs(&panel, |what_ifs| {
        what_ifs["message"].as_str().is_some_and(|message| message.contains("not available"))
    });
    assert_eq!(what_ifs.await["rows"], json!([]));
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_measurement_is_shown_next_to_its_prediction() {
    let (mut session, panel) = known().await;
    measure(&mut session, NAME).await;
    let comparison = session.measuring().await;
    assert_eq!(comparison.request.compared.prediction.names, [NAME]);
    let texts = &comparison.request.compared.texts;
    assert!(texts.iter().any(|(path, _)| path.ends_with("train.py")), "{texts:?}");
    wait_for_what_ifs(&panel, |what_ifs| what_ifs["measuring"] == NAME).await;
    let sides = |after_ns: f64| Sides { before_ns: 2e6, after_ns, ..Sides::default() };
    let pair = Pair {
        version: VERSION,
        name: NAME.to_owned(),
        when_unix_ms: 7,
        device: comparison.request.compared.measured.profile.device.display_name().into_owned(),
        predicted: sides(1e6),
        measured: sides(1.25e6),
        ..Pair::default()
    };
    pairs::add(&session.store(), &session.root, &pair).expect("stored");
    let compared = ProfileOutcome::Compared { pair: Box::new(pair), not_kept: None };
    comparison.end.send(compared).expect("waiting");
    let message = next_message(&mut session).await;
    assert!(message.ends_with("1.6× measured (2.0 ms to 1.2 ms), ~2.0× predicted"), "{message}");
    let what_ifs = wait_for_what_ifs(&panel, |what_ifs| what_ifs["measuring"].is_null()).await;
    assert_eq!(row(&what_ifs)["measured"]["speedup"], 1.6);
    assert_eq!(what_ifs["accuracy"]["pairs"], 1);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_measurement_can_be_stopped_and_can_fail() {
    let (mut session, panel) = known().await;
    let request = json!({"workspace": 0, "name": NAME, "action": "measure"});
    assert_eq!(panel.post("/api/whatif", &request).await.json(), json!({"done": true}));
    let comparison = session.measuring().await;
    session.client.command("ridgeline.stop", json!([])).await.expect("done");
    comparison.cancel.cancelled().await;
    wait_for_what_ifs(&panel, |what_ifs| what_ifs["measuring"].is_null()).await;
    assert_eq!(panel.post("/api/whatif", &request).await.json(), json!({"done": true}));
    let failed = ProfileOutcome::NotCompared { message: "the program failed: E".to_owned() };
    session.measuring().await.end.send(failed).expect("waiting");
    assert_eq!(next_message(&mut session).await, "the program failed: E");
    wait_for_what_ifs(&panel, |what_ifs| what_ifs["message"] == "the program failed: E").await;
    for action in ["", "run"] {
        let request = json!({"workspace": 0, "name": NAME, "action": action});
        assert_eq!(panel.post("/api/whatif", &request).await.status, 422, "{action}");
    }
    session.client.goodbye().await;
}

#[tokio::test]
async fn refused_measurements_show_the_reason() {
    let (mut session, panel) = known().await;
    measure(&mut session, "warp-speed").await;
    assert_eq!(next_message(&mut session).await, "Unknown optimization `warp-speed`.");
    measure(&mut session, "gist").await;
    assert!(next_message(&mut session).await.contains("no automatic edit"));
    measure(&mut session, "data-parallel").await;
    assert!(next_message(&mut session).await.contains("one process"));
    session.client.command("ridgeline.measureWhatIf", json!([])).await.expect("done");
    assert!(next_message(&mut session).await.contains("in the `name` argument"));
    session.client.command("ridgeline.clear", json!([])).await.expect("done");
    measure(&mut session, NAME).await;
    assert!(next_message(&mut session).await.contains("Profile it first"));
    assert!(panel.document().await["what_ifs"].is_null());
    session.client.goodbye().await;
}

#[tokio::test]
async fn nothing_is_measured_without_consent() {
    let panel = json!({"experimental": {"ridgeline": {"panel": true}}});
    let mut session = Session::start();
    let profiled = recorded(&session);
    *session.profiler.outside_measurement.lock().expect("no test panics with it") = Some(profiled);
    session.initialize(panel, false).await;
    let panel = opened(&mut session).await;
    // Studying a recording runs nothing.
    wait_for_what_ifs(&panel, |what_ifs| !what_ifs["before"].is_null()).await;
    let request = json!({"workspace": 0, "name": NAME, "action": "measure"});
    let answer = panel.post("/api/whatif", &request).await.json();
    assert_eq!(answer["message"], "Your editor is asking for permission to run.");
    let (id, params) = session.client.wait_for_request("window/showMessageRequest").await;
    assert!(!session.is_measuring().await);
    let once = params["actions"].as_array().and_then(|actions| actions.first());
    session.client.reply(&id, once.cloned().expect("a way to say yes")).await;
    // It continues with the answer.
    let comparison = session.measuring().await;
    assert_eq!(comparison.request.compared.prediction.names, [NAME]);
    comparison.end.send(ProfileOutcome::Cancelled).expect("waiting");
    session.client.goodbye().await;
}
