//! The messages of `docs/agent-protocol.md`: one JSON object per line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ridgeline_profile::side_effects::SideEffects;
use serde::{Deserialize, Serialize};

pub const PROTOCOL_VERSION: u64 = 1;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Entry {
    /// A script, as `python train.py` would run it.
    Script {
        /// Absolute path.
        path: PathBuf,
    },
    /// A module, as `python -m pkg.train` would run it.
    Module {
        /// The dotted name.
        name: String,
    },
    /// A Skyline or DeepView provider file.
    Provider {
        /// Absolute path.
        path: PathBuf,
    },
}

/// The number of iterations for each purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Iterations {
    /// Run first and discarded.
    pub warmup: u32,
    /// Timed without a profiler, for the real wall time.
    pub timed: u32,
    /// Upper limit for additional timed iterations, which run while iterations are short or vary.
    /// `None`: no additional ones.
    pub timed_at_most: Option<u32>,
    /// Profiled, for the shares of lines.
    pub profiled: u32,
    /// What marks an iteration: `optimizer`, `backward` or `module`. `None` means detect it.
    pub found_by: Option<String>,
    /// The grouping of signals that an earlier run of the program found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signals: Option<Signals>,
}

/// How many of the signals that mark iterations (such as optimizer steps) form one iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Signals {
    /// Signals before the first repetition. They count as one iteration.
    pub first: u32,
    /// Signals in each iteration after that.
    pub every: u32,
}

impl Default for Iterations {
    fn default() -> Self {
        let (warmup, timed, profiled) = (2, 3, 2);
        Self { warmup, timed, timed_at_most: None, profiled, found_by: None, signals: None }
    }
}

/// Limits of a run. `crate::limits` has the defaults for this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RunLimits {
    /// Wall time, in seconds.
    pub seconds: u64,
    /// Total memory of the run's processes, in bytes.
    pub memory_bytes: u64,
    /// The amount of the program's output that is kept, in bytes.
    pub log_bytes: u64,
    /// The maximum number of events in the line log.
    pub line_events: u64,
}

/// The command that starts the processes of a run with several ranks (`docs/ranks.md`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Launcher {
    /// The launcher and its arguments, without those of the training script: `torchrun`,
    /// `--nproc-per-node`, `2`.
    pub command: Vec<String>,
    /// The command that runs another one on a machine without a shared folder: `ssh`, `host`. Empty
    /// if the launcher runs here.
    pub remote: Vec<String>,
    /// The Python to start on that machine.
    pub python: String,
    /// Absolute folders of this machine, and their absolute paths as the ranks see them.
    pub paths: BTreeMap<PathBuf, String>,
}

/// What happens to files that a run's program creates, changes or removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SideEffectsMode {
    /// Changes reach the disk.
    Allow,
    /// Changes are discarded at the end of the run. Until then the run reads its own writes.
    #[default]
    Redirect,
    /// Writes fail.
    Deny,
}

/// What differs between versions of a program that are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Version {
    /// The folder for its recording. Absolute.
    pub out: PathBuf,
    /// See [`RunRequest::overlay`].
    pub overlay: BTreeMap<String, String>,
    /// See [`RunRequest::batch_size`].
    pub batch_size: Option<u64>,
}

/// A profiling run. [`super::Agent::run`] assigns the run number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRequest {
    /// The folder for the recording. Absolute; it must exist.
    pub out: PathBuf,
    /// The project's root. Absolute.
    pub root: PathBuf,
    pub entry: Entry,
    /// The program's arguments, without its name.
    pub args: Vec<String>,
    /// Variables from the configuration, added to the user's environment.
    pub env: BTreeMap<String, String>,
    /// The working directory. Absolute.
    pub cwd: PathBuf,
    /// Prefixes of the user's code.
    pub user_code: Vec<PathBuf>,
    /// Exceptions below those prefixes.
    pub not_user_code: Vec<PathBuf>,
    /// Installed packages that count as the user's code.
    pub user_packages: Vec<String>,
    /// `auto`, `cpu`, `cuda` or `cuda:1`.
    pub device: String,
    pub iterations: Iterations,
    /// Recordings of earlier runs of the same program, whose timed iterations are included in this
    /// recording.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<PathBuf>,
    /// The batch size that a provider is called with.
    pub batch_size: Option<u64>,
    /// Run with `torch.compile` disabled, for the line shares of compiled regions.
    pub eager: bool,
    /// File contents that the program sees in place of those on disk, by path relative to the root.
    /// The files themselves are not changed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overlay: BTreeMap<String, String>,
    /// The launcher. Requires an agent that was started for launched runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher: Option<Launcher>,
    /// Versions that run instead of the program itself. They take turns, so a slow moment of the
    /// machine slows all of them. Each version has its own recording, and `out` has none. Requires
    /// an agent that forks, and no GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<Version>,
    /// Iterations in one turn of a version.
    #[serde(skip_serializing_if = "is_one")]
    pub turn: u32,
    /// Record losses and gradients of this many optimizer steps, and no times: `out` gets
    /// `trajectory.json` instead of a recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trajectory: Option<u32>,
    /// What happens to the program's writes.
    pub side_effects: SideEffectsMode,
    /// Folders whose writes always reach the disk: relative to the root, starting at the home
    /// folder (`~/…`), or absolute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep_writes: Vec<String>,
    /// Allow an estimate even where the system cannot sandbox it. Runs are never sandboxed.
    #[serde(skip_serializing_if = "is_false")]
    pub without_sandbox: bool,
    pub limits: RunLimits,
}

impl RunRequest {
    /// Returns the same request with its writes discarded, for a run that repeats another one.
    pub fn redirected(mut self) -> RunRequest {
        if self.side_effects == SideEffectsMode::Allow {
            self.side_effects = SideEffectsMode::Redirect;
        }
        self
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_one(turn: &u32) -> bool {
    *turn == 1
}

/// The device that the tensors of an estimate claim to be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Claim {
    /// The program finds no GPU.
    Cpu,
    /// The program finds one CUDA device, whether or not one exists.
    Cuda,
}

/// An estimate: the program runs on fake tensors, and `ops.json` (docs/op-list.md) is written to
/// `run.out`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EstimateRequest {
    /// What to run. Of `iterations` only `found_by` is used; `device` and `eager` are ignored.
    #[serde(flatten)]
    pub run: RunRequest,
    /// The device of its tensors.
    pub claim: Claim,
    /// `batch.json` of a recording (docs/recording.md): the batches that a run took from its data
    /// loaders. With it, no data has to be loaded. Absolute.
    pub batches: Option<PathBuf>,
    /// Run at low CPU and I/O priority, because nobody is waiting for the result.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub low_priority: bool,
}

/// A probe: single operators are timed without any code of the workspace (docs/whatif.md), and
/// `probes.json` is written to `out`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeRequest {
    /// The folder for the result. Absolute; it must exist.
    pub out: PathBuf,
    /// The project's root, which is the working directory. Absolute.
    pub root: PathBuf,
    /// Variables from the configuration, as for a run.
    pub env: BTreeMap<String, String>,
    /// `auto`, `cpu`, `cuda` or `cuda:1`: the device of the recorded iterations.
    pub device: String,
    /// The file that lists what to measure. Absolute.
    pub request: PathBuf,
    /// Allow it even where the system cannot sandbox it.
    #[serde(skip_serializing_if = "is_false")]
    pub without_sandbox: bool,
    /// The request's own `seconds` should be a few less than these.
    pub limits: RunLimits,
    /// Run at low CPU and I/O priority, because nobody is waiting for the result.
    #[serde(skip_serializing_if = "is_false")]
    pub low_priority: bool,
}

/// The stages of a run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Imports, and everything else before the training loop.
    Starting,
    /// The only other stage of an estimate.
    Estimating,
    /// The only other stage of a probe.
    Probing,
    /// Warm-up iterations, which are discarded.
    WarmUp,
    /// Iterations timed without a profiler.
    Timing,
    /// Profiled iterations.
    Profiling,
    /// The recording is being written.
    Saving,
}

/// Progress of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// The agent must be started first, which can take seconds.
    AgentStarting,
    /// The program's process was started.
    Started {
        /// Process ID of the program.
        pid: u32,
    },
    /// The run advanced.
    Progress {
        stage: Stage,
        /// Completed steps of this stage.
        done: u64,
        /// All steps of this stage; 0 if unknown.
        total: u64,
    },
    /// What the program does before its first iteration. Sent every few seconds, if it changes.
    Place {
        /// The user's innermost frame.
        frame: Frame,
        /// What a library is doing for that line; see [`RunOutcome::activity`].
        activity: Option<String>,
    },
}

/// What to import before a run, so the run starts faster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Prepare {
    /// The project's root. Absolute.
    pub root: PathBuf,
    /// What will run.
    pub entry: Entry,
    /// Import the third-party modules that the project imports.
    pub preimport: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The recording is complete.
    Complete,
    /// The program raised an exception; the manifest has `failure`.
    Failed,
    /// The program ended before enough iterations; the manifest has their number.
    Short,
    /// Cancelled by the user or by a newer save.
    Cancelled,
    /// Exceeded the time limit.
    Timeout,
    /// Exceeded the memory limit, or was killed by the kernel's OOM killer.
    Memory,
    /// Killed by a signal, such as a segmentation fault.
    Crashed,
    /// Exited without a manifest.
    Exited,
    /// The agent is running something else.
    Busy,
    /// The agent could not be started, died, or stopped responding.
    #[serde(skip)]
    AgentLost,
}

impl Outcome {
    /// Whether the folder has a manifest to read (of an estimate, `ops.json`; of a probe,
    /// `probes.json`).
    pub fn has_manifest(self) -> bool {
        matches!(self, Outcome::Complete | Outcome::Failed | Outcome::Short)
    }
}

/// The outcome of a run, with details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    pub outcome: Outcome,
    /// A message for the user.
    pub message: Option<String>,
    /// The signal that killed the process.
    pub signal: Option<i32>,
    /// The process's exit code.
    pub code: Option<i32>,
    /// The stack of a crashed or timed-out program, outermost frame first. Only the user's frames.
    pub frames: Vec<Frame>,
    /// What a library was doing, called by the innermost frame: `import transformers`, `data`,
    /// `network`.
    pub activity: Option<String>,
    /// The last stage, if the run began.
    pub stage: Option<Stage>,
    /// Completed steps of that stage.
    pub done: u64,
    /// The last lines of the program's output, without escape sequences. Empty after a successful
    /// measurement.
    pub output: Vec<String>,
    /// The program's writes that were discarded. `None` if it was allowed to write.
    pub side_effects: Option<SideEffects>,
}

/// A stack frame of the user's program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Frame {
    /// Path relative to the root.
    pub path: String,
    /// Line number, starting at 1.
    pub line: u32,
    /// Name of the function.
    #[serde(default)]
    pub name: String,
}

impl RunOutcome {
    /// An outcome that the agent did not report itself.
    pub(super) fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self {
            outcome,
            message: Some(message.into()),
            signal: None,
            code: None,
            frames: Vec::new(),
            activity: None,
            stage: None,
            done: 0,
            output: Vec::new(),
            side_effects: None,
        }
    }
}

/// How the agent runs programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A zygote that forks a child for each run.
    Fork,
    /// A process that serves one run itself. The agent keeps the next one ready.
    Standby,
}

/// What the agent reported when it became ready.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AgentFacts {
    /// The protocol's version.
    pub protocol: u64,
    /// Python's version: `3.12.1`.
    pub python: String,
    /// Torch's version: `2.15.0`.
    pub torch: String,
    /// Whether torch sees a CUDA (or ROCm) device.
    #[serde(default)]
    pub cuda: bool,
    pub mode: Mode,
    /// Why it does not fork, or another fact for the user.
    #[serde(default)]
    pub why: Option<String>,
    /// Imports of the project that are left to each run, because they made the zygote unsafe to
    /// fork.
    #[serde(default)]
    pub dropped_imports: Vec<DroppedImport>,
    /// The sandbox for estimates. `None` if the agent did not report it.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
}

/// What the system offers to sandbox estimates and probes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Sandbox {
    /// Landlock's ABI version; 0 if not available.
    #[serde(default)]
    pub landlock: u32,
    /// Why estimates cannot be sandboxed. `None` if they can.
    #[serde(default)]
    pub why: Option<String>,
}

/// An import of the project that is left to each run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DroppedImport {
    /// The module's name.
    pub module: String,
    /// The reason: `after importing it there are 3 threads`.
    #[serde(default)]
    pub why: String,
}

/// Messages to the agent.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum ToAgent<'a> {
    Prepare {
        #[serde(flatten)]
        prepare: &'a Prepare,
    },
    Run {
        id: u64,
        #[serde(flatten)]
        request: &'a RunRequest,
    },
    Estimate {
        id: u64,
        #[serde(flatten)]
        request: &'a EstimateRequest,
    },
    Probe {
        id: u64,
        #[serde(flatten)]
        request: &'a ProbeRequest,
    },
    Cancel {
        id: u64,
    },
    Exit,
}

/// Messages from the agent. Anything else is ignored.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum FromAgent {
    Ready(AgentFacts),
    Unusable {
        message: String,
    },
    Started {
        id: u64,
        pid: u32,
    },
    Progress {
        id: u64,
        stage: Stage,
        #[serde(default)]
        done: u64,
        #[serde(default)]
        total: u64,
    },
    Place {
        id: u64,
        frame: Frame,
        #[serde(default)]
        activity: Option<String>,
    },
    Finished {
        id: u64,
        outcome: Outcome,
        #[serde(default)]
        message: Option<String>,
        #[serde(default)]
        signal: Option<i32>,
        #[serde(default)]
        code: Option<i32>,
        #[serde(default)]
        frames: Vec<Frame>,
        #[serde(default)]
        activity: Option<String>,
        #[serde(default)]
        stage: Option<Stage>,
        #[serde(default)]
        done: u64,
        #[serde(default)]
        output: Vec<String>,
        #[serde(default)]
        side_effects: Option<SideEffects>,
    },
    /// A message of a newer agent.
    #[serde(other)]
    Unknown,
}
