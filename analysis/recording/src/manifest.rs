//! `manifest.json`: what the agent says about a run. `docs/recording.md` is its description.
//!
//! Reading is tolerant of what it does not need: unknown keys are ignored and every key but
//! `schema` may be missing. A key with a value of the wrong type is an error that names its path,
//! because a number read wrongly would be shown as if it had been measured.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use super::observed::{Observed, or_default};

/// The version of the format that this crate reads.
pub const SCHEMA: u32 = 1;

/// Everything that `manifest.json` says.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Manifest {
    /// The version of the format, [`SCHEMA`].
    pub schema: u32,
    /// The agent's version.
    #[serde(default, deserialize_with = "text")]
    pub agent: String,
    /// Whether the run came to its end.
    #[serde(default)]
    pub status: Status,
    /// Python's version, such as `3.12.1`.
    #[serde(default, deserialize_with = "text")]
    pub python: String,
    /// PyTorch's version, such as `2.15.0`.
    #[serde(default, deserialize_with = "text")]
    pub torch: String,
    /// Such as `linux-x86_64`.
    #[serde(default, deserialize_with = "text")]
    pub platform: String,
    /// What ran the iterations.
    #[serde(default)]
    pub device: DeviceFacts,
    /// How PyTorch was set.
    #[serde(default)]
    pub settings: Settings,
    /// What was run.
    #[serde(default)]
    pub entry: Option<Entry>,
    /// The user's files, which everything else points into.
    #[serde(default)]
    pub files: Vec<SourceFile>,
    /// The functions of the line log.
    #[serde(default)]
    pub codes: Vec<Code>,
    /// The threads of the line log.
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// Which iterations ran, and how long they took.
    #[serde(default)]
    pub iterations: Iterations,
    /// The `for` of the training loop.
    #[serde(default, rename = "loop")]
    pub training_loop: Option<Location>,
    /// The batch, where it is known.
    #[serde(default)]
    pub batch: Option<Batch>,
    /// Module instances, parents before children.
    #[serde(default)]
    pub modules: Vec<Module>,
    /// Optimizers with the parameters that each owns.
    #[serde(default)]
    pub optimizers: Vec<Optimizer>,
    /// The measured iteration's memory, where it was recorded.
    #[serde(default)]
    pub memory: Option<Memory>,
    /// Data loaders that gave batches.
    #[serde(default)]
    pub loaders: Vec<Loader>,
    /// What the program ran on besides the device.
    #[serde(default)]
    pub machine: Option<Machine>,
    /// Of modules whose outputs were looked at, how much of them is zero.
    #[serde(default)]
    pub sparsity: Vec<Sparsity>,
    /// CUDA graphs that the profiled iterations replayed.
    #[serde(default, deserialize_with = "or_default")]
    pub cuda_graphs: CudaGraphs,
    /// Why the profiler recorded nothing of a GPU that ran operators; nothing where it did.
    #[serde(default, deserialize_with = "optional_text")]
    pub kernels_missing: Option<String>,
    /// Functions that `torch.compile` compiled and that ran.
    #[serde(default)]
    pub compiled: Vec<Region>,
    /// What was seen of the program's habits.
    #[serde(default, deserialize_with = "or_default")]
    pub observed: Observed,
    /// `eager`: the recording exists for its shares alone.
    #[serde(default, deserialize_with = "optional_text")]
    pub shares_from: Option<String>,
    /// Of a child process that the program started: how many of those train, this one included.
    #[serde(default)]
    pub child_processes: Option<u32>,
    /// How complete the line log is.
    #[serde(default)]
    pub line_log: Option<LineLogFacts>,
    /// Why the run failed.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// What went wrong within the agent without harm to the run.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All the iterations that were asked for ran.
    #[default]
    Complete,
    /// See [`Manifest::failure`].
    Failed,
    /// The program ended before enough iterations.
    Short,
}

/// CUDA graphs that the profiled iterations replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CudaGraphs {
    /// From when to when a capture lasted, in nanoseconds; the trace has what ran then.
    pub captures: Vec<(i64, i64)>,
    /// From when to when each replay was launched, and an index into `captures` where that was recorded.
    /// Not those of `torch.compile`.
    pub replays: Vec<(i64, i64, Option<usize>)>,
}

impl CudaGraphs {
    /// The replay that was being launched at a time: its capture, where that was recorded.
    pub fn replay_at(&self, time_ns: i64) -> Option<Option<usize>> {
        let replay = self.replays.iter().find(|(start, end, _)| (*start..=*end).contains(&time_ns));
        replay.map(|(.., capture)| *capture)
    }
}

/// What ran the iterations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DeviceFacts {
    /// `cpu`, `cuda` or `rocm`.
    #[serde(deserialize_with = "optional_text")]
    pub kind: Option<String>,
    /// As its maker calls it.
    #[serde(deserialize_with = "optional_text")]
    pub name: Option<String>,
    /// Among the devices of its kind.
    pub index: Option<u32>,
    /// Bytes of memory.
    pub capacity_bytes: Option<u64>,
    /// Compute capability.
    pub capability: Option<(u32, u32)>,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: Option<u32>,
    /// Threads that an operator may use on the CPU.
    pub threads: Option<u32>,
    /// Whether it is a simulation of the device that it is named after.
    #[serde(deserialize_with = "or_default")]
    pub simulated: bool,
}

/// How PyTorch was set while the iterations ran. What a recording does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The types that autocast cast to in the profiled iterations: `bfloat16`.
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
    /// Whether the device computes with bfloat16 itself.
    pub bf16_native: Option<bool>,
}

/// What was run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// `script`, `module` or `provider`.
    #[serde(deserialize_with = "text")]
    pub kind: String,
    /// Relative to the project's root.
    #[serde(deserialize_with = "optional_text")]
    pub path: Option<String>,
    /// A module's dotted name.
    #[serde(deserialize_with = "optional_text")]
    pub name: Option<String>,
}

/// A file of the user's code.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SourceFile {
    /// Relative to the project's root, `/` between.
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

/// A thread of the line log.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Thread {
    /// As in the trace.
    pub tid: i64,
    /// Whether it runs the training loop.
    #[serde(default)]
    pub main: bool,
}

/// Which iterations ran, and how long they took.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Iterations {
    /// `optimizer`, `backward`, `module` or `provider`.
    #[serde(deserialize_with = "optional_text")]
    pub found_by: Option<String>,
    /// The period of the optimizer sequence.
    pub steps_per_iteration: Option<u32>,
    /// Signals before the first repetition, which count as one iteration: of a program that ended early.
    pub first_signals: Option<u32>,
    /// How often the program was run for the times and the profile; none where it was not counted.
    pub runs: Option<u32>,
    /// Iterations before the timed ones.
    pub warmup: u32,
    /// Iterations that were complete when the program ended, whatever they were used for.
    pub seen: Option<u32>,
    /// How often each signal of an iteration came: `optimizer`, `backward`, `module`.
    pub signals: BTreeMap<String, u64>,
    /// Nanoseconds of each unprofiled iteration.
    pub timed_ns: Vec<u64>,
    /// The same by CUDA events.
    pub timed_device_ns: Vec<u64>,
    /// Positions among `timed_ns` of those that are slow.
    pub slow: Vec<usize>,
    /// Every so many iterations one is slow.
    pub period: Option<u32>,
    /// What their phases took on the host's thread; empty on a GPU.
    pub timed_phases: TimedPhases,
    /// Joules that the GPU drew for one of them, by its own counter.
    pub joules: Option<f64>,
    /// Start and end of each profiled iteration, nanoseconds of the realtime clock.
    pub profiled: Vec<(i64, i64)>,
    /// Index into `profiled`: the iteration whose memory is replayed; none where none was profiled.
    pub measured: Option<usize>,
}

/// Nanoseconds of each unprofiled iteration within a phase; empty where they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TimedPhases {
    /// `backward()`.
    pub backward: Vec<u64>,
    /// The optimizer's `step` and `zero_grad`.
    pub optimizer: Vec<u64>,
}

/// A line of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Location {
    /// Index into [`Manifest::files`].
    pub file: u32,
    /// From 1.
    pub line: u32,
}

/// The batch that each iteration takes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Batch {
    /// Samples.
    pub size: Option<u64>,
    /// `loader`, `provider` or `input`.
    #[serde(deserialize_with = "optional_text")]
    pub from: Option<String>,
    /// Whether more than one shape, or the program, says so; absent in older recordings.
    pub certain: Option<bool>,
    /// What `size` counts where it is not samples: `token`.
    #[serde(deserialize_with = "optional_text")]
    pub unit: Option<String>,
    /// Samples that the loader gives in one epoch.
    pub samples_per_epoch: Option<u64>,
}

/// How much of a module's outputs is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Sparsity {
    /// Index into [`Manifest::modules`].
    pub module: u32,
    /// The share of zeros, 0 to 1, in its outputs of the measured iteration.
    pub zeros: f64,
}

/// A module instance.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Module {
    /// `layer1.0.conv1`.
    #[serde(deserialize_with = "text")]
    pub path: String,
    /// `Conv2d`.
    #[serde(rename = "type", deserialize_with = "text")]
    pub type_name: String,
    /// Index of the module that holds it.
    pub parent: Option<u32>,
    /// `(file, line)` of the user's stack at its construction, innermost first.
    pub definition: Vec<(u32, u32)>,
    /// Its own parameters, its children's not included.
    pub parameters: Vec<Parameter>,
    /// Bytes of its own buffers.
    pub buffer_bytes: u64,
}

/// A parameter of a module.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Parameter {
    /// `weight`.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// Number of elements.
    pub elements: u64,
    /// Bytes.
    pub bytes: u64,
}

/// An optimizer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Optimizer {
    /// `SGD`.
    #[serde(rename = "type", deserialize_with = "text")]
    pub type_name: String,
    /// Whether it updates all parameters with one operator.
    pub foreach: Option<bool>,
    /// Whether it updates all parameters with one kernel.
    pub fused: Option<bool>,
    /// The settings of its first group of parameters that are flags and numbers: `lr`, `momentum`.
    pub options: serde_json::Map<String, serde_json::Value>,
    /// `(module, elements)` that it owns.
    pub modules: Vec<(u32, u64)>,
}

/// A data loader.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Loader {
    /// Processes beside the program's own that load; 0 where that loads itself.
    pub workers: Option<u32>,
    /// Whether batches are copied into page-locked memory.
    pub pin_memory: Option<bool>,
    /// Whether workers outlive an epoch.
    pub persistent: Option<bool>,
    /// Batches that each worker loads ahead.
    pub prefetch_factor: Option<u32>,
    /// Samples in a batch, as the loader declares it.
    pub batch_size: Option<u64>,
    /// Nanoseconds that the program waited for each batch.
    pub fetch_ns: Vec<u64>,
    /// Those of all of them in which its thread was on a processor, and did not wait for a disk, say.
    pub fetch_cpu_ns: Option<u64>,
    /// Where the program made it.
    pub at: Option<Location>,
    /// How often the program began to go through it, over the run.
    pub passes: Option<u32>,
    /// Nanoseconds until the first batch of each pass.
    #[serde(deserialize_with = "or_default")]
    pub first_batch_ns: Vec<u64>,
    /// Nanoseconds that the program waited at the end of each pass, until it was told that there is no
    /// batch left.
    #[serde(deserialize_with = "or_default")]
    pub end_ns: Vec<u64>,
    /// Nanoseconds that a worker takes for a batch that is not its first.
    pub worker_load_ns: Option<u64>,
    /// Shapes of the largest tensor of each batch that differ from one another, over the run.
    pub distinct_shapes: Option<u32>,
}

/// The machine around the device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Cores that the program may use.
    pub cores: Option<u32>,
}

/// What the memory of the measured iteration started from.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// `cpu` or `cuda:0`: whose events count.
    #[serde(deserialize_with = "optional_text")]
    pub device: Option<String>,
    /// Storages that were alive when the iteration began.
    pub baseline: Vec<Block>,
    /// `.grad` storages at the end of the backward pass.
    pub gradients: Vec<Block>,
    /// Storages of the iteration's batch.
    pub batch: Vec<Block>,
    /// `torch.cuda.memory_allocated` when the iteration began.
    pub allocated_bytes: Option<u64>,
    /// `torch.cuda.max_memory_allocated` over the iteration.
    pub max_allocated_bytes: Option<u64>,
    /// What the device has.
    pub capacity_bytes: Option<u64>,
}

/// A storage.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Block {
    /// Its address.
    pub ptr: u64,
    /// Its size.
    pub bytes: u64,
    /// What it holds.
    #[serde(default)]
    pub kind: BlockKind,
    /// The module that owns it.
    #[serde(default)]
    pub module: Option<u32>,
    /// The parameter's or buffer's name.
    #[serde(default, deserialize_with = "optional_text")]
    pub name: Option<String>,
}

/// What a storage holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// A parameter.
    Weight,
    /// A buffer of a module.
    Buffer,
    /// A parameter's `.grad`.
    Gradient,
    /// What an optimizer keeps.
    OptimizerState,
    /// The batch.
    Batch,
    /// Anything else, and any kind that a later agent may name.
    #[default]
    #[serde(other)]
    Other,
}

/// A compiled function.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Region {
    /// Index into [`Manifest::files`].
    pub file: u32,
    /// The line of its `def`, from 1.
    pub line: u32,
    /// `Net.forward`; `Net.torch_dynamo_resume_in_forward_at_12` behind a line that broke its graph.
    #[serde(default, deserialize_with = "text")]
    pub name: String,
}

/// How complete the line log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct LineLogFacts {
    /// Records in the file.
    pub events: u64,
    /// Records beyond the limit.
    pub dropped: u64,
}

/// Why a run failed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// The exception's type.
    #[serde(rename = "type", deserialize_with = "text")]
    pub type_name: String,
    /// The exception's own text.
    #[serde(deserialize_with = "text")]
    pub message: String,
    /// `exception`, `syntax`, `exit` or `memory`.
    #[serde(deserialize_with = "text")]
    pub kind: String,
    /// The user's frames, outermost first.
    pub frames: Vec<Frame>,
    /// What was asked for when memory ran out.
    pub requested_bytes: Option<u64>,
    /// What held a GPU's memory then.
    pub memory: Option<OutOfMemory>,
    /// What else is known of the exception.
    #[serde(deserialize_with = "or_default")]
    pub facts: FailureFacts,
}

/// What else is known of an exception. Advice is chosen by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FailureFacts {
    /// Where it was raised, be it the user's code or a library's.
    pub raised_in: Option<RaisedIn>,
    /// Of an error of the operating system, its name: `ENOENT`.
    pub errno: Option<String>,
    /// The file that it is about, relative to the project's root where it lies there.
    pub file: Option<String>,
    /// The module that an import or an attribute was looked for in.
    pub module: Option<ModuleFacts>,
    /// What `sys.exit` was called with; 1 for a message.
    pub exit_code: Option<i64>,
    /// The types of the exceptions behind this one, the nearest first.
    pub causes: Vec<String>,
}

/// Where an exception was raised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RaisedIn {
    /// Of a library, from its package on: `torch/cuda/__init__.py`.
    pub path: String,
    /// The function.
    pub name: String,
}

/// A module and the version of the package that it is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ModuleFacts {
    /// Dotted.
    pub name: String,
    /// Nothing for a module of the project itself.
    pub version: Option<String>,
}

/// What held a GPU's memory when it ran out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OutOfMemory {
    /// `cuda:0`.
    #[serde(deserialize_with = "optional_text")]
    pub device: Option<String>,
    /// Bytes that could not be allocated.
    pub requested_bytes: Option<u64>,
    /// Bytes that the device has.
    pub capacity_bytes: Option<u64>,
    /// Bytes that the program allows itself.
    pub limit_bytes: Option<u64>,
    /// Bytes that nobody held.
    pub free_bytes: Option<u64>,
    /// Bytes that this process held, whoever allocated them in it.
    pub process_bytes: Option<u64>,
    /// Bytes that PyTorch's allocator had taken from the device.
    pub reserved_bytes: Option<u64>,
    /// Bytes of those that held something.
    pub allocated_bytes: Option<u64>,
    /// Bytes of those that are in the private pools of CUDA graphs.
    pub graph_pool_bytes: Option<u64>,
    /// Whether segments were expandable.
    pub expandable_segments: Option<bool>,
    /// `forward`, `backward` or `optimizer`.
    #[serde(deserialize_with = "optional_text")]
    pub phase: Option<String>,
    /// Samples in the last batch.
    pub batch_size: Option<u64>,
    /// By kind, the largest first.
    pub held: Vec<HeldKind>,
}

/// Memory of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HeldKind {
    /// As of [`BlockKind`], and `activation`, `temporary`, `awaiting_free` and `unattributed`.
    #[serde(deserialize_with = "text")]
    pub kind: String,
    /// Bytes.
    pub bytes: u64,
    /// The user's lines that allocated it, as far as they are known.
    pub lines: Vec<HeldLine>,
}

/// Memory that one line allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HeldLine {
    /// Index into [`Manifest::files`].
    pub file: u32,
    /// From 1.
    pub line: u32,
    /// Bytes.
    pub bytes: u64,
}

/// A frame of a traceback.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Frame {
    /// Index into [`Manifest::files`].
    pub file: u32,
    /// From 1.
    pub line: u32,
    /// The function's name.
    #[serde(default, deserialize_with = "text")]
    pub name: String,
}

/// Why a manifest could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is not JSON, or a value has the wrong type.
    #[error("manifest.json: {path}: {reason}")]
    Value {
        /// Where in the manifest, such as `modules[3].parent`.
        path: String,
        /// What is wrong there.
        reason: String,
    },
    /// It was written in a format that this version does not know.
    #[error(
        "manifest.json: recording format {found} is not supported; this Ridgeline reads {SCHEMA}. \
        Profile again, or use the Ridgeline version that wrote it"
    )]
    Schema {
        /// The format that it names.
        found: u32,
    },
}

impl Manifest {
    /// Reads the bytes of `manifest.json`.
    ///
    /// # Errors
    /// Where the bytes are not JSON, where a key has a value of the wrong type (the message names
    /// the key's path), and where the format is another than [`SCHEMA`].
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

/// A text that may hold lone surrogates, which Python writes for file names and messages that are
/// not valid Unicode: each becomes a replacement character. `null` is the empty text.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    optional_text(deserializer).map(Option::unwrap_or_default)
}

/// Like [`text`], with `null` for nothing.
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
        // Only as bytes does serde_json hand out texts with lone surrogates.
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
