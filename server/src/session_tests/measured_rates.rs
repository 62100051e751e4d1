//! GPU measurement: after a run on the GPU, with consent, and never during a run.

use std::sync::Arc;

use ridgeline_analysis::profile::Device;
use serde_json::{Value, json};

use super::fake::{Session, quiet};
use crate::measured_rates::{Identity, Target};
use crate::profiler::{ProfileOutcome, Profiled};

/// A session on a machine with an unmeasured GPU.
async fn session(setting: &str) -> Session {
    let mut session = Session::start();
    let device = Identity {
        name: "NVIDIA H200".to_owned(),
        capability: Some((9, 0)),
        driver: "580.65.06".to_owned(),
        simulated: false,
    };
    let target = Target { index: 0, device };
    *session.profiler.unmeasured.lock().expect("no test panics with it") = Some(target);
    let mut options = quiet();
    options["measureDevice"] = setting.into();
    session.initialize_with(json!({}), options).await;
    let script = session.uri("train.py");
    session.client.open(&script, super::fake::SCRIPT).await;
    session
}

/// The outcome of a run on a device of this kind.
fn measured_on(session: &Session, kind: &str) -> ProfileOutcome {
    let ProfileOutcome::Measured(profiled) = session.measured() else { panic!("it is measured") };
    let mut profile = (*profiled.profile).clone();
    profile.device =
        Device { name: "NVIDIA H200".to_owned(), kind: kind.to_owned(), ..Device::default() };
    ProfileOutcome::Measured(Profiled { profile: Arc::new(profile), ..profiled })
}

/// Saves the script and ends the resulting run.
async fn run(session: &mut Session, kind: &str) {
    let script = session.uri("train.py");
    session.client.save(&script).await;
    let run = session.next_run().await;
    let outcome = measured_on(session, kind);
    run.end.send(outcome).unwrap_or_else(|_| panic!("nobody waits for it"));
}

async fn next_message(session: &mut Session) -> String {
    let params: Value = session.client.notification("window/showMessage").await;
    params["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_gpu_is_measured_when_the_person_agrees() {
    let mut session = session("ask").await;
    run(&mut session, "cuda").await;
    let (id, params) = session.client.wait_for_request("window/showMessageRequest").await;
    let message = params["message"].as_str().expect("a text");
    assert!(
        message.contains("NVIDIA H200") && message.contains("does not run your project's code")
    );
    assert_eq!(params["actions"], json!([{"title": "Measure"}, {"title": "Never"}]));
    assert!(!session.is_measuring_gpu().await);
    session.client.reply(&id, json!({"title": "Measure"})).await;
    let measuring = session.measuring_gpu().await;
    assert_eq!(measuring.target.device.name, "NVIDIA H200");
    measuring.end.send(Ok("copy 4.3 TB/s".to_owned())).expect("waiting");
    assert_eq!(next_message(&mut session).await, "copy 4.3 TB/s");
    // It is measured only once.
    run(&mut session, "cuda").await;
    session.client.status("idle").await;
    assert!(!session.client.has_unread("window/showMessageRequest").await);
    assert!(!session.is_measuring_gpu().await);
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_person_who_says_never_is_not_asked_again() {
    let mut first = session("ask").await;
    run(&mut first, "cuda").await;
    let (id, _) = first.client.wait_for_request("window/showMessageRequest").await;
    first.client.reply(&id, json!({"title": "Never"})).await;
    let declined = first.store().state().join("never-measure-gpus");
    while !declined.is_file() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let target = first.profiler.unmeasured.lock().expect("no test panics with it").clone();
    let mut second = first.restart().await;
    *second.profiler.unmeasured.lock().expect("no test panics with it") = target;
    second.initialize(json!({}), true).await;
    let script = second.uri("train.py");
    second.client.open(&script, super::fake::SCRIPT).await;
    run(&mut second, "cuda").await;
    second.client.status("idle").await;
    assert!(!second.client.has_unread("window/showMessageRequest").await);
    assert!(!second.is_measuring_gpu().await);
    second.client.goodbye().await;
}

#[tokio::test]
async fn a_run_stops_the_measurement_which_restarts_after_it() {
    let mut session = session("always").await;
    run(&mut session, "cuda").await;
    let mut measuring = session.measuring_gpu().await;
    let script = session.uri("train.py");
    session.client.save(&script).await;
    let waiting_run = session.next_run().await;
    // Dropping the future ends the measurement's process.
    measuring.end.closed().await;
    assert!(!session.is_measuring_gpu().await);
    let outcome = measured_on(&session, "cuda");
    waiting_run.end.send(outcome).unwrap_or_else(|_| panic!("nobody waits for it"));
    let again = session.measuring_gpu().await;
    again.end.send(Err("the CUDA driver failed".to_owned())).expect("waiting");
    let message = next_message(&mut session).await;
    assert_eq!(message, "The GPU was not measured: the CUDA driver failed");
    session.client.goodbye().await;
}

#[tokio::test]
async fn nothing_is_measured_after_shutdown() {
    let mut session = session("always").await;
    run(&mut session, "cuda").await;
    let mut measuring = session.measuring_gpu().await;
    session.client.goodbye().await;
    measuring.end.closed().await;
}

#[tokio::test]
async fn a_run_on_a_cpu_and_the_setting_ask_nothing() {
    for (setting, kind) in [("always", "cpu"), ("never", "cuda")] {
        let mut session = session(setting).await;
        run(&mut session, kind).await;
        session.client.status("idle").await;
        assert!(!session.client.has_unread("window/showMessageRequest").await);
        assert!(!session.is_measuring_gpu().await);
        session.client.goodbye().await;
    }
}

#[tokio::test]
async fn an_answer_to_an_old_question_measures_nothing() {
    let mut session = session("ask").await;
    let script = session.uri("train.py");
    session.client.save(&script).await;
    let run = session.next_run().await;
    run.end.send(measured_on(&session, "cuda")).expect("waiting");
    let (id, params) = session.client.wait_for_request("window/showMessageRequest").await;
    assert!(params["message"].as_str().is_some_and(|text| text.starts_with("Measure the copy")));
    session.client.command("ridgeline.revokeTrust", json!([])).await.expect("done");
    // Another decision does not answer that question either.
    session.client.command("ridgeline.trust", json!([])).await.expect("done");
    session.client.reply(&id, json!({"title": "Measure"})).await;
    session.client.status("idle").await;
    session.client.command("ridgeline.resume", json!([])).await.expect("the answer has arrived");
    assert!(!session.is_measuring_gpu().await);
    session.client.goodbye().await;
}
