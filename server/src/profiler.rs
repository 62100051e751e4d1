//! What the server asks of whoever runs a training loop. It knows no LSP, and the server knows no
//! agent: the pipeline implements [`Profiler`], and so do the fakes of the tests.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::accuracy::Pair;
use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::optimize::study::Subject;
use ridgeline_analysis::predict::device_comparison::Comparison;
use ridgeline_analysis::present::failure::RunFailure;
use ridgeline_analysis::profile::{Device, Profile};
use ridgeline_analysis::python::semantics::Entry;
use tokio::sync::mpsc;

use crate::batch::{Exploration, ExploreRequest, Explored, Sources};
use crate::consent::Permit;
use crate::findings;
use crate::live::{EstimateOutcome, EstimateRequest};
use crate::machine_load::Needed;
use crate::measured_rates::Target;
use crate::pipeline::{Compared, Iteration};

/// A future that can be kept and sent.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs training loops, never twice at once. What runs code of a workspace, or in its Python, takes a
/// [`Permit`], which only the gate gives; it ends soon after the permit does.
pub(crate) trait Profiler: Send + Sync + 'static {
    /// Runs a few iterations and says what they cost. It ends soon after its permit, or when it is
    /// dropped, and nothing of the run is left then.
    fn profile(
        &self,
        request: ProfileRequest,
        progress: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> Boxed<ProfileOutcome>;

    /// Makes the next run start sooner: finds the interpreter and imports what the project imports.
    /// It may do nothing.
    fn prepare(&self, _request: ProfileRequest, _permit: Permit) -> Boxed<()> {
        Box::pin(async {})
    }

    /// Ends what [`Profiler::prepare`] and earlier runs left waiting for the workspace at `root`, because
    /// nothing of it may run any more.
    fn forget(&self, _root: PathBuf) -> Boxed<()> {
        Box::pin(async {})
    }

    /// Estimates what a text costs that is not saved, in the workspace's Python and without running its
    /// operators. Never called while something is profiled.
    fn estimate(&self, _request: EstimateRequest, _permit: Permit) -> Boxed<EstimateOutcome> {
        Box::pin(async { EstimateOutcome::Cancelled })
    }

    /// What is known of other batch sizes before any of them is tried: where the number stands, and what
    /// the last run says. It runs nothing, and reads files.
    fn look_at_batch(&self, _request: ExploreRequest) -> Boxed<Option<Exploration>> {
        Box::pin(async { None })
    }

    /// Finds out what other batch sizes cost, and tells each time that more is known, and what is tried
    /// next. Never called while something is profiled. It may find out nothing. Where nobody asked for it,
    /// it ends when something else needs the machine.
    fn explore_batch(
        &self,
        _request: ExploreRequest,
        _news: mpsc::Sender<Exploration>,
        _progress: mpsc::Sender<ProgressEvent>,
        _permit: Permit,
    ) -> Boxed<Explored> {
        Box::pin(async { Explored::Done })
    }

    /// Whether something else than the server needs the machine, or its GPU of this name.
    fn machine_needed(&self, _gpu: Option<String>) -> Boxed<Option<Needed>> {
        Box::pin(async { None })
    }

    /// Runs single operators of an iteration by themselves, as it had them and otherwise, and keeps what
    /// came of it beside the recording. It runs nothing of the workspace, but in its Python. It ends in
    /// good order before `limit`. It may find out nothing.
    fn probes(
        &self,
        _request: ProfileRequest,
        _subject: Arc<Subject>,
        _recording: Option<PathBuf>,
        _limit: Option<Duration>,
        _permit: Permit,
    ) -> Boxed<Probes> {
        Box::pin(async { Probes::default() })
    }

    /// What earlier calls of [`Profiler::probes`] found out that a measurement needs, too. It runs
    /// nothing, and reads a file.
    fn known_probes(&self, _subject: &Subject, _recording: Option<&Path>) -> Probes {
        Probes::default()
    }

    /// What a measured iteration shows of the project at `root`. It runs nothing, and reads files and
    /// computes.
    fn findings(
        &self,
        subject: &Subject,
        probes: &Probes,
        sources: &Sources,
        root: &Path,
    ) -> Vec<Finding> {
        findings::measured(subject, probes, sources, root)
    }

    /// What the texts of a program alone show. It is cut short where `stop` says so; it runs nothing,
    /// and reads files and computes.
    fn read(
        &self,
        sources: &Sources,
        entry: &Entry,
        root: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Vec<Finding> {
        findings::read(sources, entry, root, stop)
    }

    /// Runs today's text with the edit of an optimization and without it, and says what it brings.
    /// Nothing of the runs is left when it has ended. Never called while something is profiled.
    fn measure(
        &self,
        _request: MeasureRequest,
        _progress: mpsc::Sender<ProgressEvent>,
        _permit: Permit,
    ) -> Boxed<ProfileOutcome> {
        Box::pin(async { ProfileOutcome::Cancelled })
    }

    /// The GPU of this machine that `device` is, where it was not measured with its driver yet. It asks the
    /// driver, and creates no CUDA context.
    fn unmeasured_gpu(&self, _device: Device) -> Boxed<Option<Target>> {
        Box::pin(async { None })
    }

    /// Measures a GPU in a child process, which ends when the future is dropped, and keeps its rates. What to
    /// tell the person, or why it was not measured. It runs no code of the workspace, but loads libraries of
    /// its Python. Never called while something is profiled.
    fn measure_gpu(
        &self,
        _target: Target,
        _request: ProfileRequest,
        _permit: Permit,
    ) -> Boxed<Result<String, String>> {
        Box::pin(async { Err("not available".to_owned()) })
    }

    /// What was measured last, by an earlier session or in a terminal; nothing where that is the
    /// recording that is `known` already. It reads files of ours and runs nothing, so it is called
    /// for workspaces that nobody trusts, too.
    fn newest(&self, _root: PathBuf, _known: Option<PathBuf>) -> Boxed<Option<Profiled>> {
        Box::pin(async { None })
    }
}

/// What to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfileRequest {
    /// The workspace folder.
    pub root: PathBuf,
    /// The file whose change is the reason, where there is one: it tells which of several projects
    /// of a workspace is meant.
    pub changed: Option<PathBuf>,
    /// What the person chose to run, where they were asked: a script's path relative to the root, or a command.
    pub script: Option<String>,
    /// The editor's choice of interpreter.
    pub interpreter: Option<PathBuf>,
    /// The editor's choice of device: `auto`, `cpu`, `cuda`, `cuda:1`.
    pub device: Option<String>,
    /// The editor's setting `live.withoutSandbox`.
    pub without_sandbox: bool,
}

/// What to measure of a what-if.
#[derive(Clone, Debug)]
pub(crate) struct MeasureRequest {
    /// Which project.
    pub profile: ProfileRequest,
    /// What was predicted, from what, and today's texts.
    pub compared: Compared,
}

/// How far a run is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProgressEvent {
    /// `warm-up`, in a person's words.
    pub stage: String,
    /// Between 0 and 1 over the whole run, where it is known.
    pub share: Option<f32>,
}

/// A profile and where its files are.
#[derive(Clone, Debug)]
pub(crate) struct Profiled {
    /// What one iteration costs.
    pub profile: Arc<Profile>,
    /// The same iteration on other devices, where that was predicted.
    pub elsewhere: Option<Arc<Comparison>>,
    /// The project's root, which the profile's paths are relative to.
    pub root: PathBuf,
    /// The same without links, for who cannot look at the disk.
    pub real_root: PathBuf,
    /// Where each of `profile.files` is on this machine (same index); nothing where it is unknown.
    pub files: Vec<Option<PathBuf>>,
    /// What the program printed, where it was kept.
    pub log: Option<PathBuf>,
    /// The recording that it was read from, where it is kept.
    pub recording: Option<PathBuf>,
    /// When it was measured, in milliseconds since 1970, where that is known.
    pub when_unix_ms: Option<u64>,
    /// The iteration, for who comes first to work out what-ifs and findings.
    pub iteration: AtHand,
}

/// An iteration as it was read, until somebody takes it: a graph is large, and nobody needs it twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtHand(Arc<Mutex<Option<Iteration>>>);

impl AtHand {
    /// To be taken once.
    pub(crate) fn new(iteration: Iteration) -> AtHand {
        AtHand(Arc::new(Mutex::new(Some(iteration))))
    }

    /// The iteration, where nobody took it before.
    pub(crate) fn take(&self) -> Option<Iteration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Profiled {
    /// The profile's index of a file.
    pub(crate) fn file(&self, path: &Path) -> Option<ridgeline_analysis::profile::FileId> {
        let at = self.files.iter().position(|file| file.as_deref() == Some(path))?;
        u32::try_from(at).ok().map(ridgeline_analysis::profile::FileId)
    }
}

/// A program that could be the training run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunChoice {
    /// As a person types it, and as it is remembered: `train.py --lr 0.1`.
    pub command: String,
    /// Why it looks like training, and where it was found.
    pub why: String,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(crate) enum ProfileOutcome {
    /// It was measured.
    Measured(Profiled),
    /// A what-if was measured.
    Compared {
        /// Predicted beside measured.
        pair: Box<Pair>,
        /// Why it is not kept, where it is not.
        not_kept: Option<String>,
    },
    /// A what-if could not be measured, and why: a sentence.
    NotCompared {
        /// The sentence.
        message: String,
    },
    /// The program failed at a line of the user.
    Failed {
        /// What it raised, with paths relative to `root`.
        failure: RunFailure,
        /// The project's root.
        root: PathBuf,
        /// What the program printed, where it was kept.
        log: Option<PathBuf>,
    },
    /// Somebody stopped it.
    Cancelled,
    /// Several programs could be the training run: the person has to say which.
    Choose {
        /// The likeliest first.
        runs: Vec<RunChoice>,
    },
    /// There is nothing to run: a workspace without a training script is no problem.
    NothingToRun {
        /// Why, and what to do.
        message: String,
    },
    /// Something else is in the way: no interpreter with torch, a time limit, a full disk.
    Problem {
        /// What is wrong, where, and what to do next.
        message: String,
        /// What the program printed, where it was kept.
        log: Option<PathBuf>,
    },
}
