//! Tests the handle to the agent with agents that misbehave (`fake_agent.py`).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ridgeline_gpu::agent::{
    Agent, AgentError, AgentOptions, Entry, Iterations, Mode, Outcome, Prepare, RunEvent,
    RunLimits, RunOutcome, RunRequest, SideEffectsMode, Stage, Timeouts,
};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A folder with a program that starts the fake agent instead of a Python.
struct Fake {
    folder: TempDir,
}

impl Fake {
    fn new(scenario: &str) -> Fake {
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_agent.py");
        let state = folder.path().display();
        let program =
            format!("#!/bin/sh\nexec python3 '{}' {scenario} '{state}'\n", script.display());
        let python = folder.path().join("python");
        fs::write(&python, program).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        Fake { folder }
    }

    fn options(&self) -> AgentOptions {
        AgentOptions {
            interpreter: self.folder.path().join("python"),
            cache: self.folder.path().join("cache"),
            env: BTreeMap::new(),
            standby: false,
            cuda: false,
            launch: false,
            // Short for scenarios that time out, but long enough for a loaded machine.
            patience: Timeouts {
                startup: Duration::from_secs(20),
                prepare: Duration::from_secs(20),
                grace: Duration::from_millis(300),
                shutdown: Duration::from_secs(1),
            },
        }
    }

    async fn start(&self) -> Agent {
        Agent::start(self.options()).await.unwrap()
    }

    fn starts(&self) -> usize {
        fs::read(self.folder.path().join("starts")).map_or(0, |starts| starts.len())
    }

    fn requests(&self) -> String {
        fs::read_to_string(self.folder.path().join("requests")).unwrap_or_default()
    }
}

fn request(seconds: u64) -> RunRequest {
    RunRequest {
        out: PathBuf::from("/nowhere"),
        root: PathBuf::from("/project"),
        entry: Entry::Script { path: PathBuf::from("/project/train.py") },
        args: vec!["--epochs".into(), "1".into()],
        env: BTreeMap::new(),
        cwd: PathBuf::from("/project"),
        user_code: vec![PathBuf::from("/project")],
        not_user_code: Vec::new(),
        user_packages: Vec::new(),
        device: "auto".into(),
        iterations: Iterations::default(),
        earlier: Vec::new(),
        batch_size: None,
        eager: false,
        overlay: BTreeMap::new(),
        launcher: None,
        versions: Vec::new(),
        turn: 1,
        trajectory: None,
        side_effects: SideEffectsMode::Allow,
        keep_writes: Vec::new(),
        without_sandbox: false,
        limits: RunLimits {
            seconds,
            memory_bytes: 1 << 34,
            log_bytes: 1_000_000,
            line_events: 2_000_000,
        },
    }
}

async fn run(agent: &Agent) -> (RunOutcome, Vec<RunEvent>) {
    run_for(agent, 60).await
}

async fn run_for(agent: &Agent, seconds: u64) -> (RunOutcome, Vec<RunEvent>) {
    let (sender, mut receiver) = mpsc::channel(100);
    let outcome = agent.run(request(seconds), sender, CancellationToken::new()).await;
    let mut events = Vec::new();
    while let Some(event) = receiver.recv().await {
        events.push(event);
    }
    (outcome, events)
}

#[tokio::test]
async fn a_run_reports_its_stages_and_one_outcome() {
    let fake = Fake::new("good");
    let agent = fake.start().await;
    let (outcome, events) = run(&agent).await;
    assert_eq!(outcome.outcome, Outcome::Complete);
    assert_eq!(outcome.code, Some(0));
    assert!(matches!(events[0], RunEvent::Started { .. }), "{events:?}");
    assert_eq!(events[1], RunEvent::Progress { stage: Stage::WarmUp, done: 1, total: 2 });
    assert_eq!(fake.starts(), 1);
}

#[tokio::test]
async fn the_request_follows_the_protocol() {
    let fake = Fake::new("good");
    run(&fake.start().await).await;
    let request: serde_json::Value = serde_json::from_str(&fake.requests()).unwrap();
    assert_eq!(request["op"], "run");
    assert_eq!(request["entry"]["kind"], "script");
    assert_eq!(request["entry"]["path"], "/project/train.py");
    assert_eq!(request["iterations"]["found_by"], serde_json::Value::Null);
    assert_eq!(request["limits"]["seconds"], 60);
}

#[tokio::test]
async fn duplicate_and_late_outcomes_are_ignored() {
    let fake = Fake::new("late_and_twice");
    let agent = fake.start().await;
    for _ in 0..3 {
        assert_eq!(run(&agent).await.0.outcome, Outcome::Complete);
    }
}

#[tokio::test]
async fn an_outcome_without_a_start_is_accepted() {
    let fake = Fake::new("finishes_without_start");
    let agent = fake.start().await;
    assert_eq!(run(&agent).await.0.outcome, Outcome::Busy);
}

#[tokio::test]
async fn garbage_between_the_messages_is_skipped() {
    let fake = Fake::new("garbage");
    let agent = fake.start().await;
    assert_eq!(run(&agent).await.0.outcome, Outcome::Complete);
}

#[tokio::test]
async fn an_agent_that_sends_only_garbage_is_abandoned() {
    let fake = Fake::new("only_garbage");
    let agent = fake.start().await;
    let (outcome, _) = run(&agent).await;
    assert_eq!(outcome.outcome, Outcome::AgentLost);
    assert!(outcome.message.unwrap().contains("noise"));
}

#[tokio::test]
async fn an_endless_line_is_limited() {
    let fake = Fake::new("endless_line");
    let agent = fake.start().await;
    assert_eq!(run_for(&agent, 0).await.0.outcome, Outcome::Timeout);
}

#[tokio::test]
async fn a_silent_agent_is_killed_at_the_time_limit() {
    let fake = Fake::new("says_nothing");
    let agent = fake.start().await;
    assert_eq!(run_for(&agent, 0).await.0.outcome, Outcome::Timeout);
    run_for(&agent, 0).await;
    assert_eq!(fake.starts(), 2, "the next run has a fresh agent");
}

#[tokio::test]
async fn a_flood_of_messages_does_not_delay_the_timeout() {
    let fake = Fake::new("floods");
    let agent = fake.start().await;
    let (outcome, events) = run_for(&agent, 0).await;
    assert_eq!(outcome.outcome, Outcome::Timeout);
    assert!(events.len() <= 100);
}

#[tokio::test]
async fn a_cancellation_reaches_the_agent() {
    let fake = Fake::new("obeys_cancel");
    let agent = fake.start().await;
    let outcome = cancel_once_started(&agent).await;
    assert_eq!((outcome.outcome, outcome.message), (Outcome::Cancelled, None));
}

#[tokio::test]
async fn an_agent_that_ignores_a_cancellation_is_killed() {
    let fake = Fake::new("hangs");
    let agent = fake.start().await;
    assert_eq!(cancel_once_started(&agent).await.outcome, Outcome::Cancelled);
    assert_eq!(cancel_once_started(&agent).await.outcome, Outcome::Cancelled);
    assert_eq!(fake.starts(), 2);
}

async fn cancel_once_started(agent: &Agent) -> RunOutcome {
    let (sender, mut events) = mpsc::channel(100);
    let cancel = CancellationToken::new();
    let stop = async {
        while let Some(event) = events.recv().await {
            if matches!(event, RunEvent::Started { .. }) {
                cancel.cancel();
            }
        }
    };
    tokio::join!(agent.run(request(60), sender, cancel.clone()), stop).0
}

#[tokio::test]
async fn cancelling_a_run_early_does_not_stop_the_agents_start() {
    let fake = Fake::new("good");
    let agent = Agent::deferred(fake.options());
    let cancel = CancellationToken::new();
    cancel.cancel();
    let (sender, _events) = mpsc::channel(1);
    let outcome = agent.run(request(60), sender, cancel).await;
    assert_eq!(outcome.outcome, Outcome::Cancelled);
    assert_eq!(run(&agent).await.0.outcome, Outcome::Complete);
    assert_eq!(fake.starts(), 1);
}

#[tokio::test]
async fn an_agent_killed_before_the_run_is_replaced() {
    let fake = Fake::new("dies_before_it_begins");
    let agent = fake.start().await;
    assert_eq!(run(&agent).await.0.outcome, Outcome::Complete);
    assert_eq!(fake.starts(), 2);
}

#[tokio::test]
async fn an_agent_killed_during_the_run_is_reported_and_replaced() {
    let fake = Fake::new("dies_in_the_run");
    let agent = fake.start().await;
    let (outcome, _) = run(&agent).await;
    assert_eq!(outcome.outcome, Outcome::AgentLost);
    assert!(outcome.message.unwrap().contains("signal: 9"));
    run(&agent).await;
    assert_eq!(fake.starts(), 2);
}

#[tokio::test]
async fn an_agent_killed_between_two_runs_is_replaced_and_prepared_again() {
    let fake = Fake::new("good");
    let agent = fake.start().await;
    agent.prepare(prepare()).await.unwrap();
    let (_, events) = run(&agent).await;
    let RunEvent::Started { pid } = events[0] else { panic!("{events:?}") };
    kill(pid);
    assert_eq!(run(&agent).await.0.outcome, Outcome::Complete);
    assert_eq!(fake.starts(), 2);
    assert_eq!(fake.requests().matches("\"op\":\"prepare\"").count(), 2);
}

fn prepare() -> Prepare {
    Prepare {
        root: PathBuf::from("/project"),
        entry: Entry::Module { name: "pkg.train".into() },
        preimport: true,
    }
}

#[tokio::test]
async fn imports_that_crash_the_agent_are_skipped() {
    let fake = Fake::new("dies_of_an_import");
    let agent = fake.start().await;
    let facts = agent.prepare(prepare()).await.unwrap();
    assert_eq!(facts.why.as_deref(), Some("prepared"));
    assert_eq!(fake.starts(), 2);
    assert!(fake.requests().contains("\"preimport\":false"));
}

#[tokio::test]
async fn an_agent_that_exits_after_each_run_is_restarted() {
    let fake = Fake::new("ends_after_each_run");
    let agent = fake.start().await;
    for _ in 0..3 {
        assert_eq!(run(&agent).await.0.outcome, Outcome::Complete);
    }
    assert_eq!(fake.starts(), 3);
}

#[tokio::test]
async fn the_agent_reports_its_facts() {
    let fake = Fake::new("good");
    let facts = fake.start().await.facts().unwrap();
    assert_eq!((facts.mode, facts.torch.as_str()), (Mode::Fork, "2.15.0"));
    assert_eq!(facts.dropped_imports[0].module, "numba");
}

#[tokio::test]
async fn concurrent_runs_are_serialized() {
    let fake = Fake::new("good");
    let agent = fake.start().await;
    let (one, other) = tokio::join!(run(&agent), run(&agent));
    assert_eq!((one.0.outcome, other.0.outcome), (Outcome::Complete, Outcome::Complete));
}

#[tokio::test]
async fn orphans_of_a_run_are_killed() {
    let fake = Fake::new("leaves_orphans");
    let agent = fake.start().await;
    assert_eq!(run(&agent).await.0.outcome, Outcome::Complete);
    drop(agent);
    let orphan = fs::read_dir(fake.folder.path())
        .unwrap()
        .find_map(|entry| {
            entry.unwrap().file_name().to_str()?.strip_prefix("orphan-")?.parse::<u32>().ok()
        })
        .unwrap();
    wait_for_exit(orphan).await;
}

#[tokio::test]
async fn dropping_the_handle_kills_a_process_that_hangs() {
    let fake = Fake::new("hangs");
    let agent = fake.start().await;
    let (sender, mut events) = mpsc::channel(10);
    let cancel = CancellationToken::new();
    let pid = tokio::select! {
        _ = agent.run(request(60), sender, cancel) => panic!("it hangs"),
        Some(RunEvent::Started { pid }) = events.recv() => pid,
    };
    drop(agent);
    wait_for_exit(pid).await;
}

#[tokio::test]
async fn stopping_ends_the_process() {
    let fake = Fake::new("good");
    let agent = fake.start().await;
    let (_, events) = run(&agent).await;
    let RunEvent::Started { pid } = events[0] else { panic!("{events:?}") };
    agent.stop().await;
    wait_for_exit(pid).await;
    assert!(fake.requests().contains("\"op\":\"exit\""));
}

#[track_caller]
fn check_start(started: Result<Agent, AgentError>, expected: &[&str]) {
    let message = started.unwrap_err().to_string();
    for part in expected {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

#[tokio::test]
async fn a_failed_start_shows_the_last_output() {
    let fake = Fake::new("broken_torch");
    check_start(Agent::start(fake.options()).await, &["exit status: 1", "libtorch_cpu.so"]);
}

#[tokio::test]
async fn a_changed_mode_after_a_run_is_noticed() {
    let fake = Fake::new("becomes_standby");
    let agent = fake.start().await;
    assert_eq!(run(&agent).await.0.outcome, Outcome::Complete);
    assert_eq!(agent.facts().unwrap().mode, Mode::Standby);
}

#[tokio::test]
async fn the_message_of_an_unusable_agent_is_shown() {
    let fake = Fake::new("unusable");
    check_start(Agent::start(fake.options()).await, &["this Python has no torch"]);
}

#[tokio::test]
async fn an_agent_that_is_never_ready_times_out() {
    let fake = Fake::new("never_ready");
    let mut options = fake.options();
    options.patience.startup = Duration::from_millis(100);
    check_start(Agent::start(options).await, &["not ready after"]);
}

#[tokio::test]
async fn another_protocol_version_is_rejected() {
    let fake = Fake::new("other_protocol");
    check_start(Agent::start(fake.options()).await, &["protocol 2"]);
}

#[tokio::test]
async fn the_error_names_a_missing_python() {
    let fake = Fake::new("good");
    let mut options = fake.options();
    options.interpreter = fake.folder.path().join("no-such-python");
    check_start(Agent::start(options).await, &["no-such-python", "No such file"]);
}

#[tokio::test]
async fn an_unwritable_cache_is_reported() {
    let fake = Fake::new("good");
    let mut options = fake.options();
    options.cache = fake.folder.path().join("python/not-a-folder");
    check_start(Agent::start(options).await, &["could not be unpacked"]);
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Waits until a process has exited; the test hangs if it never does. A zombie counts as exited,
/// because in a container there may be no init that collects its exit status.
async fn wait_for_exit(pid: u32) {
    let stat = format!("/proc/{pid}/stat");
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
