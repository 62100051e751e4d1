//! Tests the embedded agent in a Python with torch: the one in `RIDGELINE_TEST_PYTHON`, else the
//! first on `PATH` that has torch. Without one, these tests print that they are skipped.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ridgeline_gpu::agent::{
    Agent, AgentOptions, Claim, Entry, EstimateRequest, Iterations, Outcome, Prepare, ProbeRequest,
    RunEvent, RunOutcome, RunRequest, SideEffectsMode, Timeouts,
};
use ridgeline_gpu::interpreter::{Consent, Search, SystemEnvironment, find};
use ridgeline_gpu::limits::{Machine, default_limits};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

async fn python_with_torch() -> Option<PathBuf> {
    let search = Search {
        configured: std::env::var_os("RIDGELINE_TEST_PYTHON").map(PathBuf::from),
        ..Search::default()
    };
    let found = find(&search, &SystemEnvironment::of_this_process(), Consent::Given).await.ok()?;
    let usable = found.usable().is_ok();
    usable.then_some(found.path)
}

struct Project {
    folder: TempDir,
    agent: Agent,
}

impl Project {
    /// Creates a project with `program` as its `train.py`, or prints a message and returns `None`
    /// if there is no torch.
    async fn new(program: &str) -> Option<Project> {
        let Some(interpreter) = python_with_torch().await else {
            eprintln!("skipped: no Python with torch (name one in RIDGELINE_TEST_PYTHON)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("train.py"), program).unwrap();
        let agent = Agent::start(AgentOptions {
            interpreter,
            cache: folder.path().join("cache"),
            env: BTreeMap::new(),
            standby: false,
            cuda: false,
            launch: false,
            patience: Timeouts::default(),
        })
        .await
        .unwrap();
        Some(Project { folder, agent })
    }

    fn entry(&self) -> Entry {
        Entry::Script { path: self.folder.path().join("train.py") }
    }

    fn request(&self, name: &str) -> RunRequest {
        let root = self.folder.path().to_owned();
        let out = root.join(name);
        fs::create_dir_all(&out).unwrap();
        RunRequest {
            out,
            root: root.clone(),
            entry: self.entry(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: root.clone(),
            user_code: vec![root],
            not_user_code: Vec::new(),
            user_packages: Vec::new(),
            device: "cpu".into(),
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
            limits: default_limits(&Machine::query()),
        }
    }

    async fn run(&self, name: &str) -> (RunOutcome, Vec<RunEvent>) {
        let (sender, mut receiver) = mpsc::channel(1000);
        let outcome = self.agent.run(self.request(name), sender, CancellationToken::new()).await;
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            events.push(event);
        }
        (outcome, events)
    }
}

const TRAIN: &str = "
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
";

#[tokio::test]
async fn two_runs_write_two_recordings() {
    let Some(project) = Project::new(TRAIN).await else { return };
    let prepare =
        Prepare { root: project.folder.path().into(), entry: project.entry(), preimport: true };
    project.agent.prepare(prepare).await.unwrap();
    for name in ["first", "second"] {
        let (outcome, events) = project.run(name).await;
        assert_eq!(outcome.outcome, Outcome::Complete, "{outcome:?}");
        assert!(events.iter().any(|event| matches!(event, RunEvent::Started { .. })));
        for file in ["manifest.json", "trace.json", "lines.bin"] {
            assert!(project.folder.path().join(name).join(file).is_file(), "{file}");
        }
    }
}

#[tokio::test]
async fn a_program_that_raises_is_reported_as_failed() {
    let Some(project) = Project::new("raise ValueError('no data')").await else { return };
    let (outcome, _) = project.run("out").await;
    assert_eq!(outcome.outcome, Outcome::Failed, "{outcome:?}");
    assert!(project.folder.path().join("out/manifest.json").is_file());
}

#[tokio::test]
async fn a_segmentation_fault_is_reported_with_its_line() {
    let program = "import ctypes\n\nctypes.string_at(0)\n";
    let Some(project) = Project::new(program).await else { return };
    let (outcome, _) = project.run("out").await;
    assert_eq!((outcome.outcome, outcome.signal), (Outcome::Crashed, Some(11)), "{outcome:?}");
    assert_eq!(outcome.frames.last().map(|frame| frame.line), Some(3), "{outcome:?}");
    assert_eq!(project.run("next").await.0.outcome, Outcome::Crashed, "the agent lives on");
}

#[tokio::test]
async fn a_program_that_hangs_times_out() {
    let Some(project) = Project::new("import time\ntime.sleep(600)\n").await else { return };
    let mut request = project.request("out");
    request.limits.seconds = 1;
    let (sender, _events) = mpsc::channel(100);
    let outcome = project.agent.run(request, sender, CancellationToken::new()).await;
    assert_eq!(outcome.outcome, Outcome::Timeout, "{outcome:?}");
}

/// Its child process changes its session and outlives its parent, which is the hardest case.
const LEAVES_A_DAEMON: &str = "
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open('daemon.tmp', 'w') as file:
            file.write(str(os.getpid()))
        os.rename('daemon.tmp', 'daemon')
        time.sleep(600)
    os._exit(0)
time.sleep(600)
";

#[tokio::test]
async fn cancelling_kills_the_program_and_its_daemon() {
    let Some(project) = Project::new(LEAVES_A_DAEMON).await else { return };
    let cancel = CancellationToken::new();
    let (sender, _events) = mpsc::channel(100);
    let daemon = async {
        let pid = daemon_of(project.folder.path()).await;
        cancel.cancel();
        pid
    };
    let run = project.agent.run(project.request("out"), sender, cancel.clone());
    let (outcome, daemon) = tokio::join!(run, daemon);
    assert_eq!(outcome.outcome, Outcome::Cancelled, "{outcome:?}");
    wait_for_exit(daemon).await;
}

/// Runs in a separate process, which the test below starts and kills.
#[tokio::test]
async fn server_to_be_killed() {
    if std::env::var_os("RIDGELINE_TEST_TO_BE_KILLED").is_none() {
        return;
    }
    let project = Project::new(LEAVES_A_DAEMON).await.unwrap();
    let (sender, mut events) = mpsc::channel(100);
    let report_processes = async {
        while let Some(event) = events.recv().await {
            if let RunEvent::Started { pid } = event {
                let daemon = daemon_of(project.folder.path()).await;
                println!("\nstarted {pid} {daemon}");
            }
        }
    };
    let _ = tokio::join!(
        project.agent.run(project.request("out"), sender, CancellationToken::new()),
        report_processes
    );
}

#[tokio::test]
async fn no_process_outlives_a_killed_server() {
    if python_with_torch().await.is_none() {
        eprintln!("skipped: no Python with torch (name one in RIDGELINE_TEST_PYTHON)");
        return;
    }
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "real_agent::server_to_be_killed", "--nocapture"])
        .env("RIDGELINE_TEST_TO_BE_KILLED", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = lines.map_while(Result::ok).find(|line| line.starts_with("started ")).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    for pid in line.split(' ').skip(1) {
        wait_for_exit(pid.parse().unwrap()).await;
    }
}

async fn daemon_of(folder: &Path) -> u32 {
    loop {
        if let Ok(pid) = fs::read_to_string(folder.join("daemon")) {
            return pid.parse().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a process has exited; the test hangs if it never does. A zombie counts as exited,
/// because in a container there may be no init that collects its exit status.
async fn wait_for_exit(pid: u32) {
    let stat = format!("/proc/{pid}/stat");
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_estimate_lists_the_operators_of_unsaved_code() {
    let Some(project) = Project::new("this is not saved yet").await else { return };
    let mut run = project.request("out");
    run.overlay = BTreeMap::from([("train.py".to_owned(), TRAIN.to_owned())]);
    let request = EstimateRequest { run, claim: Claim::Cpu, batches: None, low_priority: false };
    let (sender, _receiver) = mpsc::channel(100);
    let outcome = project.agent.estimate(request, sender, CancellationToken::new()).await;
    assert_eq!(outcome.outcome, Outcome::Complete, "{outcome:?}");
    let text = fs::read_to_string(project.folder.path().join("out/ops.json")).unwrap();
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["outcome"], "complete");
    let names: Vec<_> =
        list["signatures"].as_array().unwrap().iter().map(|one| one["op"].clone()).collect();
    assert!(names.contains(&"aten::addmm".into()), "{names:?}");
}

#[tokio::test]
async fn a_cancelled_estimate_ends_at_once() {
    let Some(project) = Project::new("while True: pass").await else { return };
    let request = EstimateRequest {
        run: project.request("out"),
        claim: Claim::Cpu,
        batches: None,
        low_priority: false,
    };
    let (sender, mut receiver) = mpsc::channel(100);
    let cancel = CancellationToken::new();
    let (outcome, ()) =
        tokio::join!(project.agent.estimate(request, sender, cancel.clone()), async {
            while let Some(event) = receiver.recv().await {
                if matches!(event, RunEvent::Started { .. }) {
                    cancel.cancel();
                }
            }
        });
    assert_eq!(outcome.outcome, Outcome::Cancelled, "{outcome:?}");
}

/// Runs a probe and returns its outcome and results.
async fn run_probe(project: &Project, request: &str) -> (RunOutcome, serde_json::Value) {
    let out = project.folder.path().join("probed");
    fs::create_dir(&out).unwrap();
    let file = out.join("request.json");
    fs::write(&file, request).unwrap();
    let run = project.request("probed");
    let request = ProbeRequest {
        out: out.clone(),
        root: run.root,
        env: run.env,
        device: "cpu".to_owned(),
        request: file,
        without_sandbox: false,
        limits: run.limits,
        low_priority: true,
    };
    let (sender, _receiver) = mpsc::channel(100);
    let outcome = project.agent.probe(request, sender, CancellationToken::new()).await;
    let text = fs::read(out.join("probes.json")).unwrap_or_default();
    (outcome, serde_json::from_slice(&text).unwrap_or_default())
}

#[tokio::test]
async fn a_probe_runs_no_project_code() {
    let Some(project) = Project::new("raise SystemExit('this must not run')").await else { return };
    let request = r#"{"version": 1, "seconds": 5,
        "operators": [{"name": "aten::mm", "variants": ["same", "bfloat16"],
            "inputs": [{"t": "float32", "s": [64, 64]}, {"t": "float32", "s": [64, 64]}]}],
        "optimizers": [{"type": "Adam", "shapes": [[100], [7]], "variants": ["for-loop", "fused"]}]}"#;
    let (outcome, answer) = run_probe(&project, request).await;
    assert_eq!(outcome.outcome, Outcome::Complete, "{outcome:?}");
    for time in ["same", "bfloat16"] {
        assert!(answer["operators"][0][time].as_f64().unwrap() > 0.0, "{answer}");
    }
    assert!(answer["optimizers"][0]["fused"].as_f64().unwrap() > 0.0, "{answer}");
}
