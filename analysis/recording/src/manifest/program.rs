//! The program's modules, optimizers, loaders and compiled functions in the manifest.

use serde::Deserialize;

use super::super::observed::or_default;
use super::{Location, text};

/// The output sparsity of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Sparsity {
    /// Index into [`Manifest::modules`](super::Manifest::modules).
    pub module: u32,
    /// The share of zeros, 0 to 1, in the module's outputs in the measured iteration.
    pub zeros: f64,
}

/// A module instance.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Module {
    /// Module path such as `layer1.0.conv1`.
    #[serde(deserialize_with = "text")]
    pub path: String,
    /// Class name such as `Conv2d`.
    #[serde(rename = "type", deserialize_with = "text")]
    pub type_name: String,
    /// Index of the parent module.
    pub parent: Option<u32>,
    /// The user's call stack at construction as `(file, line)`, innermost first.
    pub definition: Vec<(u32, u32)>,
    /// Parameters, without those of its children.
    pub parameters: Vec<Parameter>,
    /// Size of its buffers in bytes, without those of its children.
    pub buffer_bytes: u64,
}

/// A parameter of a module.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Parameter {
    /// Name such as `weight`.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// Number of elements.
    pub elements: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// An optimizer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Optimizer {
    /// Class name such as `SGD`.
    #[serde(rename = "type", deserialize_with = "text")]
    pub type_name: String,
    /// Whether it updates all parameters with one operator.
    pub foreach: Option<bool>,
    /// Whether it updates all parameters with one kernel.
    pub fused: Option<bool>,
    /// The Boolean and numeric options of its first parameter group: `lr`, `momentum`.
    pub options: serde_json::Map<String, serde_json::Value>,
    /// The parameters that it owns as `(module, elements)`.
    pub modules: Vec<(u32, u64)>,
}

/// A data loader.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Loader {
    /// Number of worker processes; 0 if the program's process loads the data.
    pub workers: Option<u32>,
    /// Whether batches are copied to page-locked memory.
    pub pin_memory: Option<bool>,
    /// Whether workers outlive an epoch.
    pub persistent: Option<bool>,
    /// Number of batches that each worker prefetches.
    pub prefetch_factor: Option<u32>,
    /// Samples in a batch, as declared by the loader.
    pub batch_size: Option<u64>,
    /// Nanoseconds that the program waited for each batch.
    pub fetch_ns: Vec<u64>,
    /// The part of all waits in which the program's thread ran on a CPU instead of waiting, for
    /// example for a disk, in nanoseconds.
    pub fetch_cpu_ns: Option<u64>,
    /// The line that created it.
    pub at: Option<Location>,
    /// Number of passes that the program started, over the run.
    pub passes: Option<u32>,
    /// Nanoseconds until the first batch of each pass.
    #[serde(deserialize_with = "or_default")]
    pub first_batch_ns: Vec<u64>,
    /// Nanoseconds that the program waited at the end of each pass, until there were no more
    /// batches.
    #[serde(deserialize_with = "or_default")]
    pub end_ns: Vec<u64>,
    /// Nanoseconds that a worker takes for a batch other than its first.
    pub worker_load_ns: Option<u64>,
    /// Number of distinct shapes of each batch's largest tensor, over the run.
    pub distinct_shapes: Option<u32>,
}

/// A compiled function.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Region {
    /// Index into [`Manifest::files`](super::Manifest::files).
    pub file: u32,
    /// The line of its `def`, from 1.
    pub line: u32,
    /// Qualified name such as `Net.forward`, or `Net.torch_dynamo_resume_in_forward_at_12` after a
    /// graph break.
    #[serde(default, deserialize_with = "text")]
    pub name: String,
}
