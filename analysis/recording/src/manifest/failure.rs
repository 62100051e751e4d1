//! The failure of a run in the manifest.

use serde::Deserialize;

use super::super::observed::or_default;
use super::{optional_text, text};

/// The failure of a run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// The exception's type.
    #[serde(rename = "type", deserialize_with = "text")]
    pub type_name: String,
    /// The exception's message.
    #[serde(deserialize_with = "text")]
    pub message: String,
    /// `exception`, `syntax`, `exit` or `memory`.
    #[serde(deserialize_with = "text")]
    pub kind: String,
    /// The user's frames, outermost first.
    pub frames: Vec<Frame>,
    /// Requested size in bytes when memory ran out.
    pub requested_bytes: Option<u64>,
    /// GPU memory use when memory ran out.
    pub memory: Option<OutOfMemory>,
    /// Additional facts about the exception.
    #[serde(deserialize_with = "or_default")]
    pub facts: FailureFacts,
}

/// Additional facts about an exception, used to select advice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FailureFacts {
    /// Where it was raised, in the user's code or a library.
    pub raised_in: Option<RaisedIn>,
    /// Name of an operating system error: `ENOENT`.
    pub errno: Option<String>,
    /// The file of the error, relative to the project's root if it is inside.
    pub file: Option<String>,
    /// The module of a failed import or attribute access.
    pub module: Option<ModuleFacts>,
    /// The argument of `sys.exit`; 1 for a message.
    pub exit_code: Option<i64>,
    /// Exception types of the causes, nearest first.
    pub causes: Vec<String>,
}

/// Where an exception was raised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RaisedIn {
    /// File path; that of a library starts at its package: `torch/cuda/__init__.py`.
    pub path: String,
    /// Function name.
    pub name: String,
}

/// A module and the version of its package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ModuleFacts {
    /// Dotted name.
    pub name: String,
    /// Package version; `None` for a module of the project.
    pub version: Option<String>,
    /// The module of this package that the program used as an attribute without importing it:
    /// `tqdm.notebook`.
    #[serde(deserialize_with = "optional_text")]
    pub not_imported: Option<String>,
}

/// GPU memory use when memory ran out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OutOfMemory {
    /// Device such as `cuda:0`.
    #[serde(deserialize_with = "optional_text")]
    pub device: Option<String>,
    /// Size of the failed allocation in bytes.
    pub requested_bytes: Option<u64>,
    /// Memory size of the device in bytes.
    pub capacity_bytes: Option<u64>,
    /// Memory limit that the program set, in bytes.
    pub limit_bytes: Option<u64>,
    /// Free memory of the device in bytes.
    pub free_bytes: Option<u64>,
    /// Memory of this process in bytes, PyTorch's and other.
    pub process_bytes: Option<u64>,
    /// Memory reserved by PyTorch's allocator, in bytes.
    pub reserved_bytes: Option<u64>,
    /// The allocated part of `reserved_bytes`.
    pub allocated_bytes: Option<u64>,
    /// The part of `reserved_bytes` in private pools of CUDA graphs.
    pub graph_pool_bytes: Option<u64>,
    /// Whether expandable segments were enabled.
    pub expandable_segments: Option<bool>,
    /// Phase: `forward`, `backward` or `optimizer`.
    #[serde(deserialize_with = "optional_text")]
    pub phase: Option<String>,
    /// Samples in the last batch.
    pub batch_size: Option<u64>,
    /// Memory by kind, largest first.
    pub held: Vec<HeldKind>,
}

/// Memory of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HeldKind {
    /// A name of [`BlockKind`](super::BlockKind), or `activation`, `temporary`, `awaiting_free` or
    /// `unattributed`.
    #[serde(deserialize_with = "text")]
    pub kind: String,
    /// Size in bytes.
    pub bytes: u64,
    /// The user's lines that allocated it, if known.
    pub lines: Vec<HeldLine>,
}

/// Memory that one line allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HeldLine {
    /// Index into [`Manifest::files`](super::Manifest::files).
    pub file: u32,
    /// Line number, counted from 1.
    pub line: u32,
    /// Size in bytes.
    pub bytes: u64,
}

/// A frame of a traceback.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Frame {
    /// Index into [`Manifest::files`](super::Manifest::files).
    pub file: u32,
    /// Line number, counted from 1.
    pub line: u32,
    /// The function's name.
    #[serde(default, deserialize_with = "text")]
    pub name: String,
}
