//! A fake profiler that runs nothing, and a session with it. They share one file because the
//! session's methods receive what the fake sends.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::optimize::study::RecordedRun;
use ridgeline_analysis::profile::{
    Device, FileFacts, FileId, IterationCost, LineCost, PhaseTimes, Profile,
};
use ridgeline_analysis::python::fingerprint;
use ridgeline_analysis::python::semantics::Entry;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::batch::{Sources, SweepEnd, SweepRequest, SweepResults};
use crate::consent::Permit;
use crate::live::{EstimateOutcome, EstimateRequest};
use crate::machine_load::BusyReason;
use crate::measured_rates::Target;
use crate::profiler::{
    BoxedFuture, MeasureRequest, PendingIteration, ProfileOutcome, ProfileRequest, Profiled,
    Profiler, Program, ProgressEvent,
};
use crate::server::serve;
use crate::store::Store;
use ridgeline_test_client::strict_client::StrictClient;

/// A started run. The test decides how it ends.
pub(super) struct StartedRun {
    pub request: ProfileRequest,
    pub progress: mpsc::Sender<ProgressEvent>,
    pub cancel: CancellationToken,
    pub end: oneshot::Sender<ProfileOutcome>,
}

/// A started estimate. The test decides how it ends. `cancel` shows when it should stop, but it
/// only ends when the test sends a result or drops it, so that results can be late.
pub(super) struct StartedEstimate {
    pub request: EstimateRequest,
    pub cancel: CancellationToken,
    pub end: oneshot::Sender<EstimateOutcome>,
}

/// A batch-size sweep in progress. The test sends its results. It ends when this is dropped or
/// cancelled.
pub(super) struct StartedSweep {
    pub request: SweepRequest,
    pub news: mpsc::Sender<SweepResults>,
    pub progress: mpsc::Sender<ProgressEvent>,
    pub cancel: CancellationToken,
    _over: oneshot::Sender<()>,
}

/// A what-if being measured. The test decides how it ends.
pub(super) struct StartedComparison {
    pub request: MeasureRequest,
    pub cancel: CancellationToken,
    pub end: oneshot::Sender<ProfileOutcome>,
}

/// A GPU being measured. The test decides how it ends. `end` is closed if the measurement was
/// stopped.
pub(super) struct StartedGpuMeasurement {
    pub target: Target,
    pub end: oneshot::Sender<Result<String, String>>,
}

pub(super) struct Fake {
    estimates: mpsc::UnboundedSender<StartedEstimate>,
    run_starts: mpsc::UnboundedSender<StartedRun>,
    exploring: mpsc::UnboundedSender<StartedSweep>,
    measuring: mpsc::UnboundedSender<StartedComparison>,
    gpus: mpsc::UnboundedSender<StartedGpuMeasurement>,
    /// The unmeasured GPU that a run used.
    pub unmeasured: std::sync::Mutex<Option<Target>>,
    prepared: AtomicUsize,
    /// A measurement made outside the session.
    pub outside_measurement: std::sync::Mutex<Option<Profiled>>,
    /// Blocks the next inspection of a measurement until the test drops the other end.
    pub held: std::sync::Mutex<Option<std::sync::mpsc::Receiver<()>>>,
    /// The findings of each measurement.
    pub found: std::sync::Mutex<Vec<Finding>>,
    /// The timings of single operators, and the findings with them.
    pub probed: std::sync::Mutex<Option<(Probes, Vec<Finding>)>>,
    /// Whether the next run panics before it starts, on the event loop.
    pub panics: AtomicBool,
    /// What the next search for a program finds, if not `train.py`.
    pub program: std::sync::Mutex<Option<Result<Program, ProfileOutcome>>>,
    /// Another user of the machine.
    pub needed: std::sync::Mutex<Option<BusyReason>>,
    /// The number of times that operators were timed.
    pub probings: AtomicUsize,
    /// The findings from source text.
    pub of_text: std::sync::Mutex<Vec<Finding>>,
}

impl Profiler for Fake {
    fn profile(
        &self,
        request: ProfileRequest,
        progress: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> BoxedFuture<ProfileOutcome> {
        assert!(!self.panics.swap(false, Ordering::Relaxed), "on purpose");
        let cancel = permit.token().clone();
        let (end, ended) = oneshot::channel();
        let run_starts = StartedRun { request, progress, cancel: cancel.clone(), end };
        // Sending fails if the test has ended.
        let _ = self.run_starts.send(run_starts);
        Box::pin(async move {
            tokio::select! {
                outcome = ended => outcome.unwrap_or(ProfileOutcome::Cancelled),
                () = cancel.cancelled() => ProfileOutcome::Cancelled,
            }
        })
    }

    fn find_program(&self, _: ProfileRequest) -> BoxedFuture<Result<Program, ProfileOutcome>> {
        let found = self.program.lock().expect("no test panics with it").take();
        let train = Program { command: "train.py".to_owned(), launcher: None };
        Box::pin(async { found.unwrap_or(Ok(train)) })
    }

    fn estimate(&self, request: EstimateRequest, permit: Permit) -> BoxedFuture<EstimateOutcome> {
        let cancel = permit.token().clone();
        let (end, ended) = oneshot::channel();
        // Sending fails if the test has ended.
        let _ = self.estimates.send(StartedEstimate { request, cancel, end });
        Box::pin(async move { ended.await.unwrap_or(EstimateOutcome::Cancelled) })
    }

    fn sweep_batch_sizes(
        &self,
        request: SweepRequest,
        news: mpsc::Sender<SweepResults>,
        progress: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> BoxedFuture<SweepEnd> {
        let cancel = permit.token().clone();
        let (over, is_over) = oneshot::channel();
        // Sending fails if the test does not receive.
        let _ = self.exploring.send(StartedSweep { request, news, progress, cancel, _over: over });
        Box::pin(async {
            let _ = is_over.await;
            SweepEnd::Done
        })
    }

    fn machine_needed(&self, _: Option<String>) -> BoxedFuture<Option<BusyReason>> {
        let needed = *self.needed.lock().expect("no test panics with it");
        Box::pin(async move { needed })
    }

    fn measure(
        &self,
        request: MeasureRequest,
        _progress: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> BoxedFuture<ProfileOutcome> {
        let cancel = permit.token().clone();
        let (end, ended) = oneshot::channel();
        // Sending fails if the test has ended.
        let _ = self.measuring.send(StartedComparison { request, cancel: cancel.clone(), end });
        Box::pin(async move {
            tokio::select! {
                outcome = ended => outcome.unwrap_or(ProfileOutcome::Cancelled),
                () = cancel.cancelled() => ProfileOutcome::Cancelled,
            }
        })
    }

    fn probes(
        &self,
        _: ProfileRequest,
        _: Arc<RecordedRun>,
        _: Arc<Profiled>,
        _: Option<Duration>,
        _: Permit,
    ) -> BoxedFuture<Probes> {
        self.probings.fetch_add(1, Ordering::Relaxed);
        let probed = self.probed.lock().expect("no test panics with it").clone();
        Box::pin(async { probed.map(|(probes, _)| probes).unwrap_or_default() })
    }

    fn findings(&self, _: &RecordedRun, known: &Probes, _: &Sources, _: &Path) -> Vec<Finding> {
        let probed = self.probed.lock().expect("no test panics with it").clone();
        if let Some((_, found)) = probed.filter(|(probes, _)| probes == known) {
            return found;
        }
        let held = self.held.lock().expect("no test panics with it").take();
        if let Some(held) = held {
            // Nothing is ever sent.
            let _ = held.recv();
        }
        self.found.lock().expect("no test panics with it").clone()
    }

    fn read(&self, _: &Sources, _: &Entry, _: &Path, _: &dyn Fn() -> bool) -> Vec<Finding> {
        self.of_text.lock().expect("no test panics with it").clone()
    }

    fn prepare(&self, _request: ProfileRequest, _permit: Permit) -> BoxedFuture<()> {
        self.prepared.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {})
    }

    fn unmeasured_gpu(&self, _: Device) -> BoxedFuture<Option<Target>> {
        let unmeasured = self.unmeasured.lock().expect("no test panics with it").clone();
        Box::pin(async { unmeasured })
    }

    fn measure_gpu(
        &self,
        target: Target,
        _: ProfileRequest,
        _: Permit,
    ) -> BoxedFuture<Result<String, String>> {
        let (end, ended) = oneshot::channel();
        // Sending fails if the test has ended.
        let _ = self.gpus.send(StartedGpuMeasurement { target, end });
        Box::pin(async { ended.await.unwrap_or_else(|_| Err("the test is over".to_owned())) })
    }

    fn newest(&self, _root: PathBuf, known: Option<PathBuf>) -> BoxedFuture<Option<Profiled>> {
        let measurement = self.outside_measurement.lock().expect("no test panics with it").clone();
        Box::pin(async move { measurement.filter(|newest| newest.recording != known) })
    }
}

/// A server with a fake profiler, a workspace on the disk, and a client.
pub(super) struct Session {
    pub client: StrictClient,
    pub root: PathBuf,
    pub run_starts: Mutex<mpsc::UnboundedReceiver<StartedRun>>,
    pub estimates: Mutex<mpsc::UnboundedReceiver<StartedEstimate>>,
    explored: Mutex<mpsc::UnboundedReceiver<StartedSweep>>,
    measured: Mutex<mpsc::UnboundedReceiver<StartedComparison>>,
    gpus: Mutex<mpsc::UnboundedReceiver<StartedGpuMeasurement>>,
    pub profiler: Arc<Fake>,
    folder: tempfile::TempDir,
}

/// A training script of four lines.
pub(super) const SCRIPT: &str =
    "import torch\nfor batch in loader:\n    loss = model(batch)\n    loss.backward()\n";

impl Session {
    /// Starts a server without `initialize`.
    pub(super) fn start() -> Session {
        let folder = tempfile::tempdir().expect("a folder");
        let root = crate::documents::real_path(folder.path()).join("project");
        fs::create_dir(&root).expect("created");
        fs::write(root.join("train.py"), SCRIPT).expect("written");
        Session::start_in(folder, root)
    }

    /// Shuts the server down and starts another one in the same folders.
    pub(super) async fn restart(self) -> Session {
        let Session { client, folder, root, .. } = self;
        client.goodbye().await;
        Session::start_in(folder, root)
    }

    fn start_in(folder: tempfile::TempDir, root: PathBuf) -> Session {
        let store = store_in(&folder);
        let (run_starts, runs) = mpsc::unbounded_channel();
        let (estimates, estimate_starts) = mpsc::unbounded_channel();
        let (exploring, explored) = mpsc::unbounded_channel();
        let (measuring, measured) = mpsc::unbounded_channel();
        let (gpus, measured_gpus) = mpsc::unbounded_channel();
        let profiler = Arc::new(Fake {
            estimates,
            exploring,
            measuring,
            run_starts,
            gpus,
            unmeasured: Default::default(),
            prepared: AtomicUsize::new(0),
            outside_measurement: Default::default(),
            held: Default::default(),
            found: Default::default(),
            probed: Default::default(),
            panics: AtomicBool::new(false),
            program: Default::default(),
            needed: Default::default(),
            probings: AtomicUsize::new(0),
            of_text: Default::default(),
        });
        let (to_server, input) = tokio::io::duplex(1 << 16);
        let (output, from_server) = tokio::io::duplex(1 << 16);
        tokio::spawn(serve(profiler.clone(), Some(store), input, output));
        let client = StrictClient::new(to_server, from_server);
        let (run_starts, estimates) = (Mutex::new(runs), Mutex::new(estimate_starts));
        let (explored, measured) = (Mutex::new(explored), Mutex::new(measured));
        let gpus = Mutex::new(measured_gpus);
        Session { client, root, run_starts, estimates, explored, measured, gpus, profiler, folder }
    }

    /// Starts and initializes a server, for a client with `capabilities` that vouches for the
    /// workspace if `trusted`.
    pub(super) async fn initialized(capabilities: Value, trusted: bool) -> Session {
        let mut session = Session::start();
        session.initialize(capabilities, trusted).await;
        session
    }

    /// Initializes with the project as workspace. Files are not watched, so that only the test
    /// causes runs. Fallbacks for missing capabilities are off, because other tests cover them.
    pub(super) async fn initialize(&mut self, capabilities: Value, trusted: bool) {
        let mut options = quiet();
        options["trusted"] = trusted.into();
        self.initialize_with(capabilities, options).await;
    }

    /// Initializes with these `initializationOptions` and returns the result.
    pub(super) async fn initialize_with(&mut self, capabilities: Value, options: Value) -> Value {
        let folder = json!([{"uri": uri(&self.root), "name": "project"}]);
        let more = json!({"workspaceFolders": folder, "initializationOptions": options});
        self.client.hello(capabilities, more).await
    }

    /// Sets what the next search for a program finds.
    pub(super) fn finds(&self, found: Result<Program, ProfileOutcome>) {
        *self.profiler.program.lock().expect("no test panics with it") = Some(found);
    }

    /// The server's store.
    pub(super) fn store(&self) -> Store {
        store_in(&self.folder)
    }

    /// The URI of a file of the project.
    pub(super) fn uri(&self, name: &str) -> String {
        uri(&self.root.join(name))
    }

    /// Opens the script and saves it.
    pub(super) async fn open_and_save(&mut self) {
        let script = self.uri("train.py");
        self.client.open(&script, SCRIPT).await;
        self.client.save(&script).await;
    }

    /// The next started run.
    pub(super) async fn next_run(&self) -> StartedRun {
        let mut run_starts = self.run_starts.lock().await;
        let next = tokio::time::timeout(Duration::from_secs(120), run_starts.recv());
        next.await.expect("a run did not begin").expect("a profiler")
    }

    /// The next batch-size sweep.
    pub(super) async fn exploring(&self) -> StartedSweep {
        let mut explored = self.explored.lock().await;
        let next = tokio::time::timeout(Duration::from_secs(120), explored.recv());
        next.await.expect("nothing was tried").expect("a profiler")
    }

    /// Whether there is an unreceived sweep.
    pub(super) async fn is_exploring(&self) -> bool {
        !self.explored.lock().await.is_empty()
    }

    /// The next measurement of a what-if.
    pub(super) async fn measuring(&self) -> StartedComparison {
        let mut measured = self.measured.lock().await;
        let next = tokio::time::timeout(Duration::from_secs(120), measured.recv());
        next.await.expect("no what-if was measured").expect("a profiler")
    }

    /// The next measurement of a GPU.
    pub(super) async fn measuring_gpu(&self) -> StartedGpuMeasurement {
        let mut gpus = self.gpus.lock().await;
        let next = tokio::time::timeout(Duration::from_secs(120), gpus.recv());
        next.await.expect("no GPU was measured").expect("a profiler")
    }

    /// Whether there is an unreceived GPU measurement.
    pub(super) async fn is_measuring_gpu(&self) -> bool {
        !self.gpus.lock().await.is_empty()
    }

    /// Whether there is an unreceived what-if measurement.
    pub(super) async fn is_measuring(&self) -> bool {
        !self.measured.lock().await.is_empty()
    }

    /// Whether there is an unreceived run.
    pub(super) async fn has_run(&self) -> bool {
        !self.run_starts.lock().await.is_empty()
    }

    /// The next started estimate.
    pub(super) async fn estimating(&self) -> StartedEstimate {
        let mut estimates = self.estimates.lock().await;
        let next = tokio::time::timeout(Duration::from_secs(120), estimates.recv());
        next.await.expect("an estimate did not begin").expect("a profiler")
    }

    /// Whether there is an unreceived estimate.
    pub(super) async fn is_estimating(&self) -> bool {
        !self.estimates.lock().await.is_empty()
    }

    /// The number of preparations.
    pub(super) fn prepared(&self) -> usize {
        self.profiler.prepared.load(Ordering::Relaxed)
    }

    /// A profile of the script: 100 ms, with 40 ms on line 3 and 60 ms on line 4.
    pub(super) fn measured(&self) -> ProfileOutcome {
        measured_in(&self.root)
    }

    /// The code actions at a line of the script, 0-based.
    pub(super) async fn code_actions(&mut self, line: u32, context: Value) -> Vec<Value> {
        self.code_actions_in("train.py", line, context).await
    }

    /// The code actions at a line of a file, 0-based.
    pub(super) async fn code_actions_in(
        &mut self,
        name: &str,
        line: u32,
        context: Value,
    ) -> Vec<Value> {
        let at = json!({"line": line, "character": 0});
        let params = json!({
            "textDocument": {"uri": self.uri(name)},
            "range": {"start": at, "end": at},
            "context": context,
        });
        let found = self.client.request("textDocument/codeAction", params).await.expect("actions");
        found.as_array().cloned().unwrap_or_default()
    }

    /// The code actions that apply an optimization.
    pub(super) async fn rewrites(&mut self, line: u32) -> Vec<Value> {
        self.code_actions(line, json!({"diagnostics": [], "only": ["refactor.rewrite"]})).await
    }

    /// The inlay hints of a file, as `line: label`.
    pub(super) async fn hints(&mut self, name: &str) -> Vec<String> {
        let end = json!({"line": u32::MAX, "character": 0});
        let range = json!({"start": {"line": 0, "character": 0}, "end": end});
        let params = json!({"textDocument": {"uri": self.uri(name)}, "range": range});
        let hints = self.client.request("textDocument/inlayHint", params).await.expect("hints");
        let hints = hints.as_array().cloned().unwrap_or_default();
        hints
            .iter()
            .map(|hint| {
                let label = hint["label"].as_str().unwrap_or_default();
                format!("{}: {label}", hint["position"]["line"])
            })
            .collect()
    }
}

/// Settings that turn off features not under test.
pub(super) fn quiet() -> Value {
    json!({
        "trusted": true,
        "watchFiles": false,
        "inlayHints.headline": "off",
        "diagnostics.costs": "off",
        "live.enable": false,
    })
}

fn store_in(folder: &tempfile::TempDir) -> Store {
    Store::at(folder.path().join("cache"), folder.path().join("state"))
}

/// A profile of `train.py` in `root`.
pub(super) fn measured_in(root: &Path) -> ProfileOutcome {
    let line = |line: u32, milliseconds: f64| {
        let time = PhaseTimes { forward: milliseconds * 1e6, ..PhaseTimes::default() };
        LineCost { line, self_time: time, total_time: time, calls: 1.0, ..LineCost::default() }
    };
    let phases = PhaseTimes { forward: 100e6, ..PhaseTimes::default() };
    let profile = Profile {
        iteration: IterationCost {
            time_ns: 100e6,
            timed_ns: vec![100e6],
            phases,
            batch_size: Some(32),
            loop_line: Some((FileId(0), 2)),
            found_by: "optimizer".to_owned(),
            ..IterationCost::default()
        },
        files: vec![FileFacts { path: "train.py".to_owned(), fingerprint: fingerprint(SCRIPT) }],
        lines: vec![vec![line(3, 40.0), line(4, 60.0)]],
        ..Profile::default()
    };
    ProfileOutcome::Measured(Profiled {
        profile: Arc::new(profile),
        device_comparison: None,
        root: root.to_owned(),
        real_root: root.to_owned(),
        files: vec![Some(root.join("train.py"))],
        log: None,
        recording: None,
        when_unix_ms: None,
        iteration: PendingIteration::default(),
    })
}

/// The URI of a path.
pub(super) fn uri(path: &Path) -> String {
    crate::lsp::to_proto::uri_text(path)
}
