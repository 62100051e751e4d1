//! What the agent saw of a program's habits, for findings: the key `observed` of `manifest.json`.
//!
//! What an agent did not look at is empty or `None`, which is never the same as "it is well".

use serde::Deserialize;

use super::manifest::{Location, optional_text, text};

/// Everything under `observed`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Observed {
    /// Calls of a whole model in the iterations that were seen, whose results no backward pass used.
    pub evaluations: Vec<Evaluation>,
    /// Functions that `torch.compile` compiled again.
    pub recompilations: Vec<Recompilation>,
    /// Where `torch.compile` gave up a graph.
    pub graph_breaks: Vec<GraphBreak>,
    /// Tokens of the batches that are padding.
    pub padding: Vec<Padding>,
    /// Profilers and tracers of the program's own that were on.
    pub profilers: Vec<ProfilerLeftOn>,
    /// What lines took in each of several iterations, under the line clock alone.
    pub line_times: Vec<LineTimes>,
    /// The GPU while it was timed.
    pub gpu: Option<GpuState>,
    /// What this rank does among others.
    pub distributed: Option<Distributed>,
}

/// A line of the loop that calls a model without a backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Evaluation {
    /// The line that calls it.
    pub at: Location,
    /// Index into [`Manifest::modules`](super::manifest::Manifest::modules).
    pub module: u32,
    /// Calls, over all iterations that were seen.
    pub calls: u32,
    /// Whether its results carried a graph: gradients were on.
    pub with_gradients: bool,
    /// Whether the model was in training mode and has layers for which that matters (dropout, batch norm).
    pub in_training_mode: bool,
}

/// A function that was compiled more than once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Recompilation {
    /// The line of its `def`.
    pub at: Location,
    /// How often it was compiled again, over the run.
    pub count: u32,
    /// Nanoseconds of compiling it again, over the run; 0 where that was not measured.
    pub time_ns: u64,
    /// As `torch` says it, at most 500 characters.
    #[serde(deserialize_with = "text")]
    pub reason: String,
}

/// A graph break.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GraphBreak {
    /// The user's line that breaks it.
    pub at: Location,
    /// How often.
    pub count: u32,
    /// As `torch` says it, at most 500 characters.
    #[serde(deserialize_with = "text")]
    pub reason: String,
}

/// Padding in what an embedding is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Padding {
    /// The line that calls it.
    pub at: Location,
    /// Index into [`Manifest::modules`](super::manifest::Manifest::modules).
    pub module: u32,
    /// Tokens that it was given.
    pub tokens: u64,
    /// Those of them that stand at the end of their row and are `padding_idx`.
    pub padding: u64,
}

/// A profiler that was on while the program trained.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProfilerLeftOn {
    /// `torch.profiler`, `cProfile`, `sys.settrace`, `emit_nvtx`, `record_memory_history`.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// The user's line that turned it on.
    pub at: Option<Location>,
}

/// A line in each of several iterations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LineTimes {
    /// The line.
    pub at: Location,
    /// Nanoseconds of the host on it and in calls from it that reach no other user line, by iteration.
    pub ns: Vec<u64>,
}

/// What NVML said while the program was timed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GpuState {
    /// The clock of the multiprocessors, in MHz, looked at several times.
    pub clock_mhz: Vec<u32>,
    /// The highest that it can be.
    pub highest_clock_mhz: Option<u32>,
    /// Why it was lower: `power`, `heat`, `hardware`.
    pub limited_by: Vec<String>,
    /// Other processes that computed on it.
    pub other_processes: Option<u32>,
    /// Bytes of memory that they hold.
    pub other_bytes: Option<u64>,
}

/// Data-parallel training.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Distributed {
    /// Which of them this is.
    pub rank: u32,
    /// How many there are.
    pub world_size: u32,
    /// `gloo`, `nccl`.
    #[serde(deserialize_with = "optional_text")]
    pub backend: Option<String>,
    /// Models that are wrapped in `DistributedDataParallel`.
    pub models: Vec<Replica>,
}

/// A model of which each rank has a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Replica {
    /// Index into [`Manifest::modules`](super::manifest::Manifest::modules).
    pub module: u32,
    /// Backward passes through it in the iterations that were seen.
    pub backwards: u32,
    /// Those of them that exchanged gradients.
    pub exchanges: u32,
    /// Steps of an optimizer in them.
    pub steps: u32,
}
