//! `manifest.json`: the agent's data about a run. `docs/recording.md` describes the format.
//!
//! Unknown keys are ignored, and every key except `schema` may be missing. A value of the wrong
//! type is an error with its path, because a wrong number would be displayed as if it had been
//! measured.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use super::observed::{Observed, or_default};

mod failure;
mod program;

pub use failure::{
    Failure, FailureFacts, Frame, HeldKind, HeldLine, ModuleFacts, OutOfMemory, RaisedIn,
};
pub use program::{Loader, Module, Optimizer, Parameter, Region, Sparsity};

/// The version of the format that this crate reads.
pub const SCHEMA: u32 = 1;

/// The contents of `manifest.json`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Manifest {
    /// The version of the format, [`SCHEMA`].
    pub schema: u32,
    /// The agent's version.
    #[serde(default, deserialize_with = "text")]
    pub agent: String,
    /// How the run ended.
    #[serde(default)]
    pub status: Status,
    /// Python version such as `3.12.1`.
    #[serde(default, deserialize_with = "text")]
    pub python: String,
    /// PyTorch version such as `2.15.0`.
    #[serde(default, deserialize_with = "text")]
    pub torch: String,
    /// Platform such as `linux-x86_64`.
    #[serde(default, deserialize_with = "text")]
    pub platform: String,
    /// The device that ran the iterations.
    #[serde(default)]
    pub device: DeviceFacts,
    /// PyTorch settings.
    #[serde(default)]
    pub settings: Settings,
    /// The program that was run.
    #[serde(default)]
    pub entry: Option<Entry>,
    /// The user's source files.
    #[serde(default)]
    pub files: Vec<SourceFile>,
    /// The functions of the line log.
    #[serde(default)]
    pub codes: Vec<Code>,
    /// The expressions of the line log.
    #[serde(default)]
    pub expressions: Vec<Expression>,
    /// The threads of the line log.
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// The iterations and their times.
    #[serde(default)]
    pub iterations: Iterations,
    /// The installed package that runs the training loop, such as `transformers`; `None` if the
    /// program's own code runs it.
    #[serde(default)]
    pub library: Option<String>,
    /// The `for` statement of the training loop.
    #[serde(default, rename = "loop")]
    pub training_loop: Option<Location>,
    /// The batch, if known.
    #[serde(default)]
    pub batch: Option<Batch>,
    /// Module instances, parents before children.
    #[serde(default)]
    pub modules: Vec<Module>,
    /// Optimizers with their parameters.
    #[serde(default)]
    pub optimizers: Vec<Optimizer>,
    /// Memory of the measured iteration, if recorded.
    #[serde(default)]
    pub memory: Option<Memory>,
    /// Data loaders that provided batches.
    #[serde(default)]
    pub loaders: Vec<Loader>,
    /// The machine besides the device.
    #[serde(default)]
    pub machine: Option<Machine>,
    /// Output sparsity of the modules that were sampled.
    #[serde(default)]
    pub sparsity: Vec<Sparsity>,
    /// CUDA graphs that the profiled iterations replayed.
    #[serde(default, deserialize_with = "or_default")]
    pub cuda_graphs: CudaGraphs,
    /// The reason why the profiler recorded nothing of a GPU that ran operators; `None` if it did.
    #[serde(default, deserialize_with = "optional_text")]
    pub kernels_missing: Option<String>,
    /// Functions that `torch.compile` compiled and that ran.
    #[serde(default)]
    pub compiled: Vec<Region>,
    /// Observations about the program.
    #[serde(default, deserialize_with = "or_default")]
    pub observed: Observed,
    /// `eager`: the recording is only used for its shares.
    #[serde(default, deserialize_with = "optional_text")]
    pub shares_from: Option<String>,
    /// For a child process of the program: the number of child processes that train, including this
    /// one.
    #[serde(default)]
    pub child_processes: Option<u32>,
    /// How complete the line log is.
    #[serde(default)]
    pub line_log: Option<LineLogFacts>,
    /// The failure, if the run failed.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// Errors within the agent that did not affect the run.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All requested iterations ran.
    #[default]
    Complete,
    /// The run failed, see [`Manifest::failure`].
    Failed,
    /// The program ended before enough iterations.
    Short,
}

/// CUDA graphs that the profiled iterations replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CudaGraphs {
    /// Start and end of each capture, in nanoseconds. The trace contains the work captured then.
    pub captures: Vec<(i64, i64)>,
    /// Start and end of the launch of each replay, and its index in `captures` if the capture was
    /// recorded. Graphs of `torch.compile` are not included.
    pub replays: Vec<(i64, i64, Option<usize>)>,
}

impl CudaGraphs {
    /// Finds the replay that was being launched at a time. Returns its capture, if that was
    /// recorded.
    pub fn replay_at(&self, time_ns: i64) -> Option<Option<usize>> {
        let replay = self.replays.iter().find(|(start, end, _)| (*start..=*end).contains(&time_ns));
        replay.map(|(.., capture)| *capture)
    }
}

/// The device that ran the iterations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DeviceFacts {
    /// `cpu`, `cuda` or `rocm`.
    #[serde(deserialize_with = "optional_text")]
    pub kind: Option<String>,
    /// The vendor's name.
    #[serde(deserialize_with = "optional_text")]
    pub name: Option<String>,
    /// Index among the devices of its kind.
    pub index: Option<u32>,
    /// Memory size in bytes.
    pub capacity_bytes: Option<u64>,
    /// Compute capability.
    pub capability: Option<(u32, u32)>,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: Option<u32>,
    /// Number of threads that an operator may use on the CPU.
    pub threads: Option<u32>,
    /// Whether the device is simulated.
    #[serde(deserialize_with = "or_default")]
    pub simulated: bool,
}

/// PyTorch settings during the iterations. `None` if not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The types that autocast used in the profiled iterations: `bfloat16`.
    pub autocast: Option<Vec<String>>,
    /// `torch.get_float32_matmul_precision()`: `highest`, `high` or `medium`.
    #[serde(deserialize_with = "optional_text")]
    pub matmul_precision: Option<String>,
    /// `torch.backends.cudnn.benchmark`.
    pub cudnn_benchmark: Option<bool>,
    /// `torch.backends.cudnn.allow_tf32`.
    pub cudnn_tf32: Option<bool>,
    /// `torch.use_deterministic_algorithms`.
    pub deterministic: Option<bool>,
    /// `torch.autograd.set_detect_anomaly`.
    pub anomaly: Option<bool>,
    /// Whether the device supports bfloat16 natively.
    pub bf16_native: Option<bool>,
}

/// The program that was run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// `script`, `module` or `provider`.
    #[serde(deserialize_with = "text")]
    pub kind: String,
    /// Path relative to the project's root.
    #[serde(deserialize_with = "optional_text")]
    pub path: Option<String>,
    /// Dotted name of a module.
    #[serde(deserialize_with = "optional_text")]
    pub name: Option<String>,
}

/// A file of the user's code.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SourceFile {
    /// Path relative to the project's root, separated by `/`.
    #[serde(deserialize_with = "text")]
    pub path: String,
    /// CRC-32 of each line's UTF-8 bytes after `strip()`.
    pub line_crc: Vec<u32>,
}

/// A function of the line log.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Code {
    /// Index into [`Manifest::files`].
    pub file: u32,
    /// `co_qualname`, such as `Net.forward`.
    #[serde(default, deserialize_with = "text")]
    pub name: String,
    /// The line of its `def`, from 1.
    #[serde(default)]
    pub first_line: u32,
}

/// An expression on a line that has several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Expression {
    /// Index into [`Manifest::codes`].
    pub code: u32,
    /// First line, column, last line and end column. Lines count from 1, columns are UTF-8 bytes
    /// after the line's indentation. All are 0 if the text is unknown, or if the recorder stopped
    /// following the expression.
    pub range: [u32; 4],
}

impl Expression {
    /// Whether it has no place in the text.
    pub(crate) fn is_unknown(&self) -> bool {
        self.range == [0; 4]
    }
}

/// A thread of the line log.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Thread {
    /// Thread id as in the trace.
    pub tid: i64,
    /// Whether it runs the training loop.
    #[serde(default)]
    pub main: bool,
}

/// The iterations and their times.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Iterations {
    /// The signal that iterations were detected by: `optimizer`, `backward`, `module` or
    /// `provider`.
    #[serde(deserialize_with = "optional_text")]
    pub found_by: Option<String>,
    /// Number of optimizer steps per iteration.
    pub steps_per_iteration: Option<u32>,
    /// Number of signals before the first repetition, which count as one iteration, for a program
    /// that ended early.
    pub first_signals: Option<u32>,
    /// Number of runs of the program for the times and the profile; `None` if not counted.
    pub runs: Option<u32>,
    /// Number of iterations before the timed ones.
    pub warmup: u32,
    /// Total number of complete iterations of the program.
    pub seen: Option<u32>,
    /// Number of occurrences of each signal: `optimizer`, `backward`, `module`.
    pub signals: BTreeMap<String, u64>,
    /// Nanoseconds of each unprofiled iteration.
    pub timed_ns: Vec<u64>,
    /// The same, measured with CUDA events.
    pub timed_device_ns: Vec<u64>,
    /// Nanoseconds for which the training thread waited for the CPU in each timed iteration; empty
    /// if unknown.
    pub timed_waited_ns: Vec<u64>,
    /// Indices in `timed_ns` of the slow iterations.
    pub slow: Vec<usize>,
    /// Number of iterations from one slow iteration to the next.
    pub period: Option<u32>,
    /// What the training thread ran in the timed iterations, if some were slow.
    #[serde(deserialize_with = "or_default")]
    pub slow_stacks: Vec<SlowStack>,
    /// Phases of the timed iterations on the host's thread; empty on a GPU.
    pub timed_phases: TimedPhases,
    /// Energy per timed iteration from the GPU's counter, in joules.
    pub joules: Option<f64>,
    /// Start and end of each profiled iteration, in nanoseconds of the realtime clock.
    pub profiled: Vec<(i64, i64)>,
    /// Index in `profiled` of the iteration whose memory is replayed; `None` if none was profiled.
    pub measured: Option<usize>,
}

impl Iterations {
    /// Returns the share of the timed iterations, 0 to 1, for which the training thread waited for
    /// the CPU; 0 if unknown.
    pub fn waited_share(&self) -> f64 {
        let sum = |times: &[u64]| times.iter().map(|&ns| ns as f64).sum::<f64>();
        (sum(&self.timed_waited_ns) / sum(&self.timed_ns).max(1.0)).min(1.0)
    }

    /// Returns the nanoseconds of each timed iteration without those for which the training thread
    /// waited for the CPU, if they are known.
    pub fn undisturbed_ns(&self) -> Vec<u64> {
        // On a GPU, the times are those between CUDA events, and the host runs ahead of those.
        if !self.timed_device_ns.is_empty() {
            return self.timed_ns.clone();
        }
        let waited = self.timed_waited_ns.iter().copied().chain(std::iter::repeat(0));
        self.timed_ns.iter().zip(waited).map(|(ns, waited)| ns.saturating_sub(waited)).collect()
    }
}

/// Nanoseconds of each unprofiled iteration within a phase; empty if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TimedPhases {
    /// `backward()`.
    pub backward: Vec<u64>,
    /// The optimizer's `step` and `zero_grad`.
    pub optimizer: Vec<u64>,
}

/// A stack of the training thread, sampled at regular intervals.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SlowStack {
    /// Lines of user code, outermost first.
    pub lines: Vec<Location>,
    /// Number of samples in slow iterations.
    pub slow: u32,
    /// Number of samples in the others.
    pub others: u32,
}

/// A line of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Location {
    /// Index into [`Manifest::files`].
    pub file: u32,
    /// Line number, counted from 1.
    pub line: u32,
}

/// The batch of each iteration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Batch {
    /// Number of samples.
    pub size: Option<u64>,
    /// Source of the size: `loader`, `provider` or `input`.
    #[serde(deserialize_with = "optional_text")]
    pub from: Option<String>,
    /// Whether several shapes, or the program, confirm the size; absent in older recordings.
    pub certain: Option<bool>,
    /// The unit of `size` if it is not samples: `token`.
    #[serde(deserialize_with = "optional_text")]
    pub unit: Option<String>,
    /// Number of samples per epoch of the loader.
    pub samples_per_epoch: Option<u64>,
}

/// The machine around the device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Number of cores that the program may use.
    pub cores: Option<u32>,
}

/// The state of memory at the start of the measured iteration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// The device whose memory events count: `cpu` or `cuda:0`.
    #[serde(deserialize_with = "optional_text")]
    pub device: Option<String>,
    /// Storages allocated before the iteration.
    pub baseline: Vec<Block>,
    /// `.grad` storages at the end of the backward pass.
    pub gradients: Vec<Block>,
    /// Storages of the iteration's batch.
    pub batch: Vec<Block>,
    /// `torch.cuda.memory_allocated` at the start of the iteration.
    pub allocated_bytes: Option<u64>,
    /// `torch.cuda.max_memory_allocated` over the iteration.
    pub max_allocated_bytes: Option<u64>,
    /// Memory size of the device in bytes.
    pub capacity_bytes: Option<u64>,
}

/// A storage.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Block {
    pub ptr: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// The kind of its contents.
    #[serde(default)]
    pub kind: BlockKind,
    /// The module that owns it.
    #[serde(default)]
    pub module: Option<u32>,
    /// The parameter's or buffer's name.
    #[serde(default, deserialize_with = "optional_text")]
    pub name: Option<String>,
}

/// The contents of a storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// A parameter.
    Weight,
    /// A buffer of a module.
    Buffer,
    /// A parameter's `.grad`.
    Gradient,
    /// Optimizer state.
    OptimizerState,
    /// The batch.
    Batch,
    /// Anything else, including kinds of later agents.
    #[default]
    #[serde(other)]
    Other,
}

/// How complete the line log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct LineLogFacts {
    /// Number of records in the file.
    pub events: u64,
    /// Number of records dropped because of the limit.
    pub dropped: u64,
    /// The time that the recorder takes for a line event, in nanoseconds; `None` if unknown.
    pub event_ns: Option<u64>,
}

/// The reason why a manifest could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is not JSON, or a value has the wrong type.
    #[error("manifest.json: {path}: {reason}")]
    Value {
        /// Path in the manifest, such as `modules[3].parent`.
        path: String,
        /// The error.
        reason: String,
    },
    /// The format is not supported.
    #[error(
        "manifest.json: recording format {found} is not supported; this Ridgeline reads {SCHEMA}. \
        Profile again, or use the Ridgeline version that wrote it"
    )]
    Schema {
        /// The format version in the file.
        found: u32,
    },
}

impl Manifest {
    /// Parses `manifest.json`.
    ///
    /// # Errors
    /// If the bytes are not JSON, if a value has the wrong type (the message has its path), or if
    /// the format is not [`SCHEMA`].
    pub fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let manifest: Manifest =
            serde_path_to_error::deserialize(&mut json).map_err(|error| ManifestError::Value {
                path: error.path().to_string(),
                reason: error.inner().to_string(),
            })?;
        json.end().map_err(|error| ManifestError::Value {
            path: "after its end".to_owned(),
            reason: error.to_string(),
        })?;
        if manifest.schema != SCHEMA {
            return Err(ManifestError::Schema { found: manifest.schema });
        }
        Ok(manifest)
    }
}

/// Deserializes text that may contain lone surrogates, which Python writes for file names and
/// messages that are not valid Unicode: each becomes a replacement character. `null` becomes the
/// empty string.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    optional_text(deserializer).map(Option::unwrap_or_default)
}

/// Like [`text`], but `null` becomes `None`.
pub(super) fn optional_text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    deserializer.deserialize_option(OptionalText)
}

struct OptionalText;

impl<'de> Visitor<'de> for OptionalText {
    type Value = Option<String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_none<E>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Option<String>, D::Error> {
        // serde_json returns text with lone surrogates only as bytes.
        inner.deserialize_bytes(self)
    }

    fn visit_str<E>(self, text: &str) -> Result<Option<String>, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Option<String>, E> {
        Ok(Some(String::from_utf8_lossy(bytes).into_owned()))
    }
}

#[cfg(test)]
mod tests;
