//! The interface for running training loops. It knows no LSP, and the server knows no agent: the
//! pipeline implements [`Profiler`], and so do the fakes in tests.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::accuracy::Pair;
use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::optimize::study::RecordedRun;
use ridgeline_analysis::predict::device_comparison::Comparison;
use ridgeline_analysis::present::failure::RunFailure;
use ridgeline_analysis::profile::{Device, FileId, Profile};
use ridgeline_analysis::python::SourceIndex;
use ridgeline_analysis::python::semantics::Entry;
use tokio::sync::mpsc;

use crate::batch::{Sources, SweepEnd, SweepRequest, SweepResults};
use crate::consent::Permit;
use crate::findings;
use crate::live::{EstimateOutcome, EstimateRequest};
use crate::machine_load::BusyReason;
use crate::measured_rates::Target;
use crate::notebook;
use crate::pipeline::{Compared, Iteration};

/// A future that can be stored and sent between threads.
pub(crate) type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs training loops, never two at once. Everything that runs code of a workspace, or in its
/// Python, takes a [`Permit`], which only the gate gives. It ends soon after the permit does.
pub(crate) trait Profiler: Send + Sync + 'static {
    /// Runs a few iterations and measures their cost. It ends soon after its permit, or when it is
    /// dropped, and leaves no process behind.
    fn profile(
        &self,
        request: ProfileRequest,
        progress: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> BoxedFuture<ProfileOutcome>;

    /// Finds the program that [`Profiler::profile`] would run. It runs nothing, but reads files, so
    /// it is called for untrusted workspaces, too.
    ///
    /// # Errors
    /// What [`Profiler::profile`] would return without running anything.
    fn find_program(&self, request: ProfileRequest)
    -> BoxedFuture<Result<Program, ProfileOutcome>>;

    /// Prepares the next run so that it starts sooner: finds the interpreter and imports what the
    /// project imports. It may do nothing.
    fn prepare(&self, _request: ProfileRequest, _permit: Permit) -> BoxedFuture<()> {
        Box::pin(async {})
    }

    /// Ends the processes that [`Profiler::prepare`] and earlier runs left waiting for the
    /// workspace at `root`, because nothing of it may run any more.
    fn forget(&self, _root: PathBuf) -> BoxedFuture<()> {
        Box::pin(async {})
    }

    /// Estimates the cost of unsaved text, in the workspace's Python and without running its
    /// operators. Never called while something is profiled.
    fn estimate(&self, _request: EstimateRequest, _permit: Permit) -> BoxedFuture<EstimateOutcome> {
        Box::pin(async { EstimateOutcome::Cancelled })
    }

    /// Returns what is known about other batch sizes before any is tried: where the number is set,
    /// and what the last run says. It runs nothing, but reads files.
    fn find_batch_site(&self, _request: SweepRequest) -> BoxedFuture<Option<SweepResults>> {
        Box::pin(async { None })
    }

    /// Determines the cost of other batch sizes, and reports each new result and what is tried
    /// next. It may have no results. Never called while something is profiled. If the user did not
    /// request it, it ends when something else needs the machine.
    fn sweep_batch_sizes(
        &self,
        _request: SweepRequest,
        _news: mpsc::Sender<SweepResults>,
        _progress: mpsc::Sender<ProgressEvent>,
        _permit: Permit,
    ) -> BoxedFuture<SweepEnd> {
        Box::pin(async { SweepEnd::Done })
    }

    /// Returns whether another program needs the machine, or its GPU of this name.
    fn machine_needed(&self, _gpu: Option<String>) -> BoxedFuture<Option<BusyReason>> {
        Box::pin(async { None })
    }

    /// Times single operators of an iteration, in their original form and in variants, and estimates
    /// the memory of edited programs on fake tensors. It stores the results next to the recording.
    /// It ends normally before `limit`. It may have no results.
    fn probes(
        &self,
        _request: ProfileRequest,
        _subject: Arc<RecordedRun>,
        _measured: Arc<Profiled>,
        _limit: Option<Duration>,
        _permit: Permit,
    ) -> BoxedFuture<Probes> {
        Box::pin(async { Probes::default() })
    }

    /// Returns results of earlier calls of [`Profiler::probes`] that apply to a measurement. It
    /// only reads a file.
    fn known_probes(&self, _subject: &RecordedRun, _recording: Option<&Path>) -> Probes {
        Probes::default()
    }

    /// Computes the findings of a measured iteration in the project at `root`. It runs nothing, but
    /// reads files.
    fn findings(
        &self,
        recorded_run: &RecordedRun,
        probes: &Probes,
        sources: &Sources,
        root: &Path,
    ) -> Vec<Finding> {
        findings::measured(recorded_run, probes, sources, root)
    }

    /// Computes the findings from a program's source text only. It ends early when `stop` returns
    /// true. It runs nothing, but reads files.
    fn read(
        &self,
        sources: &Sources,
        entry: &Entry,
        root: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Vec<Finding> {
        findings::of_source(sources, entry, root, stop)
    }

    /// Runs the current text with and without the edit of an optimization, and compares them. It
    /// leaves no process behind. Never called while something is profiled.
    fn measure(
        &self,
        _request: MeasureRequest,
        _progress: mpsc::Sender<ProgressEvent>,
        _permit: Permit,
    ) -> BoxedFuture<ProfileOutcome> {
        Box::pin(async { ProfileOutcome::Cancelled })
    }

    /// Returns this machine's GPU that `device` refers to, unless it was already measured with its
    /// current driver. It queries the driver, and creates no CUDA context.
    fn unmeasured_gpu(&self, _device: Device) -> BoxedFuture<Option<Target>> {
        Box::pin(async { None })
    }

    /// Measures a GPU in a child process, which ends when the future is dropped, and stores its
    /// rates. Returns a message for the user, or why it failed. It runs no code of the workspace,
    /// but loads libraries of its Python. Never called while something is profiled.
    fn measure_gpu(
        &self,
        _target: Target,
        _request: ProfileRequest,
        _permit: Permit,
    ) -> BoxedFuture<Result<String, String>> {
        Box::pin(async { Err("not available".to_owned()) })
    }

    /// Returns the last measurement of an earlier session or a terminal; `None` if it is the
    /// recording `known`. It only reads our own files, so it is called for untrusted workspaces,
    /// too.
    fn newest(&self, _root: PathBuf, _known: Option<PathBuf>) -> BoxedFuture<Option<Profiled>> {
        Box::pin(async { None })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfileRequest {
    /// The workspace folder.
    pub root: PathBuf,
    /// The file whose change caused the run, if any. It selects one of several projects in a
    /// workspace.
    pub changed: Option<PathBuf>,
    /// What the user chose to run, if they were asked: a script's path relative to the root, or a
    /// command.
    pub script: Option<String>,
    /// The interpreter set in the editor.
    pub interpreter: Option<PathBuf>,
    /// The device set in the editor: `auto`, `cpu`, `cuda`, `cuda:1`.
    pub device: Option<String>,
    /// The editor's setting `live.withoutSandbox`.
    pub without_sandbox: bool,
}

/// What a run would run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    /// The command as shown to the user.
    pub command: String,
    /// The launcher, which may reach other machines.
    pub launcher: Option<String>,
}

/// A what-if to measure.
#[derive(Clone, Debug)]
pub(crate) struct MeasureRequest {
    /// The project to run.
    pub profile: ProfileRequest,
    /// The prediction, what it is based on, and the current texts.
    pub compared: Compared,
}

/// The progress of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProgressEvent {
    /// The stage as shown to the user, such as `warm-up`.
    pub stage: String,
    /// Progress of the whole run from 0 to 1, if known.
    pub share: Option<f32>,
}

/// A profile, and where its files are.
#[derive(Clone, Debug)]
pub(crate) struct Profiled {
    /// The cost of one iteration.
    pub profile: Arc<Profile>,
    /// The predicted cost on other devices, if known.
    pub device_comparison: Option<Arc<Comparison>>,
    /// The project's root, which the profile's paths are relative to.
    pub root: PathBuf,
    /// `root` without symbolic links, for code that cannot query the disk.
    pub real_root: PathBuf,
    /// The path of each of `profile.files` on this machine (same index); `None` if unknown.
    pub files: Vec<Option<PathBuf>>,
    /// The output of the program, if stored.
    pub log: Option<PathBuf>,
    /// The recording it was read from, if stored.
    pub recording: Option<PathBuf>,
    /// When it was measured, in milliseconds since 1970, if known.
    pub when_unix_ms: Option<u64>,
    /// The iteration, for the first job that computes what-ifs or findings.
    pub iteration: PendingIteration,
}

/// An iteration that was just read, until it is taken. A graph is large, and is only needed once.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingIteration(Arc<Mutex<Option<Iteration>>>);

impl PendingIteration {
    /// Stores an iteration, to be taken once.
    pub(crate) fn new(iteration: Iteration) -> PendingIteration {
        PendingIteration(Arc::new(Mutex::new(Some(iteration))))
    }

    /// Returns the iteration, unless it was taken before.
    pub(crate) fn take(&self) -> Option<Iteration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Profiled {
    /// Returns the index of a file in the profile. A cell of a notebook may have moved since: its
    /// file is that of the cell with the most lines of its text, if it has at least half of them.
    pub(crate) fn file_of_text(&self, path: &Path, text: &SourceIndex) -> Option<FileId> {
        let Some((notebook, number)) = notebook::cell_of(path) else { return self.file(path) };
        let lines: HashSet<u32> = text.lines().checksums().iter().copied().collect();
        let cells = self.files.iter().zip(&self.profile.files).enumerate();
        let found = cells.filter_map(|(at, (file, facts))| {
            let (other, other_number) = notebook::cell_of(file.as_deref()?)?;
            let code = facts.fingerprint.iter().filter(|line| **line != 0);
            let (all, kept) = code.fold((0, 0), |(all, kept), line| {
                (all + 1, kept + usize::from(lines.contains(line)))
            });
            let is_likely = other == notebook && 2 * kept >= all && kept > 0;
            is_likely.then_some((kept, other_number == number, at))
        });
        let (_, _, at) = found.max_by_key(|(kept, same, at)| (*kept, *same, Reverse(*at)))?;
        u32::try_from(at).ok().map(FileId)
    }

    /// Returns the index of a file in the profile.
    pub(crate) fn file(&self, path: &Path) -> Option<FileId> {
        let at = self.files.iter().position(|file| file.as_deref() == Some(path))?;
        u32::try_from(at).ok().map(FileId)
    }
}

/// A program that may be the training run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunChoice {
    /// The command as a user types it, and as it is remembered: `train.py --lr 0.1`.
    pub command: String,
    /// Why it looks like training, and where it was found.
    pub why: String,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub(crate) enum ProfileOutcome {
    Measured(Profiled),
    Compared {
        /// The predicted and the measured speedup.
        pair: Box<Pair>,
        /// Why the result could not be stored, if it could not.
        not_kept: Option<String>,
    },
    /// A what-if could not be measured.
    NotCompared {
        /// The reason, as a sentence.
        message: String,
    },
    /// The program failed in the user's code.
    Failed {
        /// The error, with paths relative to `root`.
        failure: RunFailure,
        root: PathBuf,
        /// The output of the program, if stored.
        log: Option<PathBuf>,
    },
    /// The run was stopped.
    Cancelled,
    /// Several programs may be the training run: the user has to choose.
    Choose {
        /// The likeliest first.
        runs: Vec<RunChoice>,
    },
    /// There is nothing to run. A workspace without a training script is not an error.
    NothingToRun {
        /// The reason, and what to do.
        message: String,
    },
    /// Any other failure: no interpreter with torch, a timeout, a full disk.
    Problem {
        /// What is wrong, where, and what to do next.
        message: String,
        /// The output of the program, if stored.
        log: Option<PathBuf>,
    },
}
