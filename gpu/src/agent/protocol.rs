//! The messages of `docs/agent-protocol.md`, as they travel: one JSON object a line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ridgeline_profile::side_effects::SideEffects;
use serde::{Deserialize, Serialize};

/// The version of the protocol that this crate speaks.
pub const PROTOCOL_VERSION: u64 = 1;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Entry {
    /// A script, as `python train.py` would run it.
    Script {
        /// Absolute.
        path: PathBuf,
    },
    /// A module, as `python -m pkg.train` would run it.
    Module {
        /// Dotted.
        name: String,
    },
    /// A Skyline or DeepView provider file.
    Provider {
        /// Absolute.
        path: PathBuf,
    },
}

/// How many iterations to run, by purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Iterations {
    /// Run first and thrown away.
    pub warmup: u32,
    /// Timed without a profiler: the true wall time.
    pub timed: u32,
    /// More are timed, up to so many, while they are quick or unequal; `None`: no more.
    pub timed_at_most: Option<u32>,
    /// Recorded, for the shares.
    pub profiled: u32,
    /// What marks an iteration: `optimizer`, `backward` or `module`; found out where `None`.
    pub found_by: Option<String>,
    /// What an earlier run of the program told of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signals: Option<Signals>,
}

/// How many of the signals that mark iterations make them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Signals {
    /// Before the first repetition; these count as one iteration.
    pub first: u32,
    /// In each iteration.
    pub every: u32,
}

impl Default for Iterations {
    fn default() -> Self {
        let (warmup, timed, profiled) = (2, 3, 2);
        Self { warmup, timed, timed_at_most: None, profiled, found_by: None, signals: None }
    }
}

/// What a run may use at most. `crate::limits` has the defaults for this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RunLimits {
    /// Wall time, in seconds.
    pub seconds: u64,
    /// Memory of the run's processes together, in bytes.
    pub memory_bytes: u64,
    /// What is kept of the program's output, in bytes.
    pub log_bytes: u64,
    /// Events in the line log.
    pub line_events: u64,
}

/// What starts the processes of a run with many ranks (`docs/ranks.md`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Launcher {
    /// The program and its words, without those of the training script: `torchrun`,
    /// `--nproc-per-node`, `2`.
    pub command: Vec<String>,
    /// The words that carry a command to another machine with which no folder is shared: `ssh`,
    /// `host`. Empty where the launcher runs here.
    pub remote: Vec<String>,
    /// The Python to start there.
    pub python: String,
    /// Folders of this machine (absolute) by what the ranks call them (absolute).
    pub paths: BTreeMap<PathBuf, String>,
}

/// What becomes of what a run's program creates, changes and removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SideEffectsMode {
    /// It is on the disk.
    Allow,
    /// It is thrown away at the end of the run, which reads back what it wrote.
    #[default]
    Redirect,
    /// It fails.
    Deny,
}

/// What one of several versions of a program has of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Version {
    /// The folder that its recording is written into. Absolute.
    pub out: PathBuf,
    /// As [`RunRequest::overlay`].
    pub overlay: BTreeMap<String, String>,
    /// As [`RunRequest::batch_size`].
    pub batch_size: Option<u64>,
}

/// One profiling run. The agent's run number is given by [`super::Agent::run`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRequest {
    /// The folder that the recording is written into. Absolute; it must exist.
    pub out: PathBuf,
    /// The project's root. Absolute.
    pub root: PathBuf,
    /// What to run.
    pub entry: Entry,
    /// The program's arguments, without its name.
    pub args: Vec<String>,
    /// Variables from the configuration, on top of the user's own environment.
    pub env: BTreeMap<String, String>,
    /// The working directory. Absolute.
    pub cwd: PathBuf,
    /// Files below these prefixes are the user's code.
    pub user_code: Vec<PathBuf>,
    /// Except below these.
    pub not_user_code: Vec<PathBuf>,
    /// Installed packages that count as the user's code.
    pub user_packages: Vec<String>,
    /// `auto`, `cpu`, `cuda` or `cuda:1`.
    pub device: String,
    /// How many iterations.
    pub iterations: Iterations,
    /// Recordings of earlier runs of the same program, whose timed iterations count in this one's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<PathBuf>,
    /// The batch size to ask a provider for.
    pub batch_size: Option<u64>,
    /// Run with `torch.compile` off: a pass for the shares of compiled regions.
    pub eager: bool,
    /// Texts that the program finds in the places of files, by paths relative to the root. The files
    /// are not touched.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overlay: BTreeMap<String, String>,
    /// What starts its processes, for an agent that was started for launched runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher: Option<Launcher>,
    /// Versions that run in the place of the program itself and take turns, so that what slows the
    /// machine slows them all: each has a recording of its own, and `out` has none. Only an agent that
    /// forks can, and only without a GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<Version>,
    /// How many iterations a turn of theirs has.
    #[serde(skip_serializing_if = "is_one")]
    pub turn: u32,
    /// What becomes of what it writes.
    pub side_effects: SideEffectsMode,
    /// Folders that it may write to all the same: relative to the root, from the home folder (`~/…`)
    /// or absolute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep_writes: Vec<String>,
    /// An estimate of it may go on where the system cannot confine it. Runs are not confined.
    #[serde(skip_serializing_if = "is_false")]
    pub without_sandbox: bool,
    /// What it may use.
    pub limits: RunLimits,
}

impl RunRequest {
    /// The same, but with nothing on the disk afterwards: for a run that repeats another one.
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

/// The device that the tensors of an estimate say they are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Claim {
    /// The program finds no GPU.
    Cpu,
    /// The program finds one CUDA device, whether or not there is one.
    Cuda,
}

/// One estimate: the program runs on tensors that hold nothing, and `ops.json` (docs/op-list.md) is
/// written into `run.out`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EstimateRequest {
    /// What to run. Of `iterations` only `found_by` counts, and `device` and `eager` count for
    /// nothing.
    #[serde(flatten)]
    pub run: RunRequest,
    /// Where its tensors say that they are.
    pub claim: Claim,
    /// `batch.json` of a recording (docs/recording.md): the batches that a run took from its
    /// loaders, which spare the loading of data. Absolute.
    pub batches: Option<PathBuf>,
    /// Nobody waits for it: it gets what others leave of processors and disks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub low_priority: bool,
}

/// One probe: single operators run by themselves and nothing of the workspace (docs/whatif.md), and
/// `probes.json` is written into `out`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeRequest {
    /// The folder that the answer is written into. Absolute; it must exist.
    pub out: PathBuf,
    /// The project's root, where the process works. Absolute.
    pub root: PathBuf,
    /// Variables from the configuration, as for a run.
    pub env: BTreeMap<String, String>,
    /// `auto`, `cpu`, `cuda` or `cuda:1`: where the recording's iterations ran.
    pub device: String,
    /// The file that says what to measure. Absolute.
    pub request: PathBuf,
    /// It may go on where the system cannot confine it.
    #[serde(skip_serializing_if = "is_false")]
    pub without_sandbox: bool,
    /// What it may use. The request's own `seconds` should be a few less than those here.
    pub limits: RunLimits,
    /// Nobody waits for it: it gets what others leave of processors and disks.
    #[serde(skip_serializing_if = "is_false")]
    pub low_priority: bool,
}

/// What a run is doing, in the order in which the stages come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Imports and whatever the program does before its loop.
    Starting,
    /// The one stage of an estimate after that.
    Estimating,
    /// The one stage of a probe after that.
    Probing,
    /// Iterations that are thrown away.
    WarmUp,
    /// Iterations that are timed without a profiler.
    Timing,
    /// Iterations that are recorded.
    Profiling,
    /// The recording is being written.
    Saving,
}

/// News of a run that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// The agent has to be started first; this can take seconds.
    AgentStarting,
    /// The run has a process.
    Started {
        /// Of the process that runs the program.
        pid: u32,
    },
    /// It gets on.
    Progress {
        /// What it is doing.
        stage: Stage,
        /// Steps of this stage that are done.
        done: u64,
        /// Steps that this stage has; 0 where unknown.
        total: u64,
    },
}

/// What to import ahead of a run, so that the run starts at once.
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
    /// A whole recording.
    Complete,
    /// The program raised; the manifest has `failure`.
    Failed,
    /// The program ended before enough iterations; the manifest says how many there were.
    Short,
    /// The person or a newer save stopped it.
    Cancelled,
    /// Over the time limit.
    Timeout,
    /// Over the memory limit, or killed for memory by the kernel.
    Memory,
    /// Ended by a signal, such as a segmentation fault.
    Crashed,
    /// Ended without a manifest.
    Exited,
    /// The agent runs something else.
    Busy,
    /// The agent itself could not be started, died, or stopped answering.
    #[serde(skip)]
    AgentLost,
}

impl Outcome {
    /// Whether the recording's folder has a manifest to read; of an estimate, `ops.json`; of a probe,
    /// `probes.json`.
    pub fn has_manifest(self) -> bool {
        matches!(self, Outcome::Complete | Outcome::Failed | Outcome::Short)
    }
}

/// The one end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    /// How it ended.
    pub outcome: Outcome,
    /// For the person, where there is more to say.
    pub message: Option<String>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its exit code.
    pub code: Option<i32>,
    /// Where a crashed or timed-out program stood, outermost first: the user's frames alone.
    pub frames: Vec<Frame>,
    /// What a library did there for the innermost of them: `import transformers`, `data`, `network`.
    pub activity: Option<String>,
    /// The stage that it was in at the end, where it began.
    pub stage: Option<Stage>,
    /// Steps of that stage that were done.
    pub done: u64,
    /// The last lines of what it printed, without escape sequences; empty where it was measured.
    pub output: Vec<String>,
    /// What it wrote that was kept from the disk; nothing where it was allowed to write.
    pub side_effects: Option<SideEffects>,
}

/// A frame of the user's program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Frame {
    /// Relative to the root.
    pub path: String,
    /// Counted from 1.
    pub line: u32,
    /// Of the function.
    #[serde(default)]
    pub name: String,
}

impl RunOutcome {
    /// An end that the agent did not tell of.
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
    /// A process that serves one run itself; the agent keeps the next one warm.
    Standby,
}

/// What the agent said of itself when it was ready.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AgentFacts {
    /// The protocol's version.
    pub protocol: u64,
    /// Of Python: `3.12.1`.
    pub python: String,
    /// Of torch: `2.15.0`.
    pub torch: String,
    /// Whether torch sees a CUDA (or ROCm) device.
    #[serde(default)]
    pub cuda: bool,
    /// How it runs programs.
    pub mode: Mode,
    /// Why it does not fork, or another thing worth showing.
    #[serde(default)]
    pub why: Option<String>,
    /// Imports of the project that could not be made ahead, because they made the zygote unsafe.
    #[serde(default)]
    pub dropped_imports: Vec<DroppedImport>,
    /// What confines estimates; nothing where it said nothing of it.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
}

/// What the system offers to confine estimates and probes with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Sandbox {
    /// The version of Landlock's interface; 0 where there is none.
    #[serde(default)]
    pub landlock: u32,
    /// Why estimates cannot be confined; nothing where they can.
    #[serde(default)]
    pub why: Option<String>,
}

/// An import of the project that is left to each run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DroppedImport {
    /// The module's name.
    pub module: String,
    /// What it did: `after importing it there are 3 threads`.
    #[serde(default)]
    pub why: String,
}

/// What the server says.
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

/// What the agent says. Everything else that comes is noise.
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
    /// From a newer agent.
    #[serde(other)]
    Unknown,
}
