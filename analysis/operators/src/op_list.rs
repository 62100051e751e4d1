//! `ops.json`: the operators of one iteration that ran on fake tensors, and the memory that they
//! would allocate. `docs/op-list.md` describes the format.
//!
//! The file comes from a process that ran untrusted code, so its contents are validated: lengths
//! are checked against limits before anything is allocated, and every index is checked once, here.
//! Users of an [`OpList`] need no further checks.

mod file;
#[cfg(test)]
mod tests;

use serde::Deserialize;
use thiserror::Error;

use super::operator::Operator;
use file::File;
use ridgeline_profile::Phase;

/// The supported version of the format.
pub const VERSION: u32 = 1;
/// The maximum size of the file.
pub const MAX_BYTES: usize = 64 << 20;
/// The maximum number of operators in one iteration.
pub const MAX_OPS: usize = 200_000;
/// The maximum number of distinct operators.
pub const MAX_SIGNATURES: usize = 20_000;
/// The maximum number of values in the whole file. Each takes at most about 60 bytes in memory.
const MAX_VALUES: usize = 4_000_000;

/// The error of reading an operator list.
#[derive(Debug, Error)]
pub enum OpListError {
    /// The file is larger than [`MAX_BYTES`].
    #[error("the operator list is too large: {found} bytes, the limit is {MAX_BYTES}")]
    TooLong {
        /// Size of the file in bytes.
        found: usize,
    },
    /// The file has more entries than allowed.
    #[error("the operator list has more than {limit} {what}")]
    TooMany {
        /// The kind of entry.
        what: &'static str,
        /// The maximum number.
        limit: usize,
    },
    /// The file is not JSON, or a value has the wrong type.
    #[error("operator list, `{path}`: {reason}")]
    Value {
        /// Path of the key.
        path: String,
        /// The problem with the value.
        reason: String,
    },
    /// The version is not [`VERSION`].
    #[error(
        "operator list version {found} is not supported; this Ridgeline reads version {VERSION}"
    )]
    Version {
        /// The version of the file.
        found: u32,
    },
    /// A column has the wrong length, or an index is out of range.
    #[error("the operator list is inconsistent: {what} at {index}")]
    Inconsistent {
        /// The kind of entry.
        what: &'static str,
        /// Position in its list.
        index: usize,
    },
}

/// The operators of one iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpList {
    /// Whether the iteration completed.
    pub outcome: Outcome,
    /// PyTorch version.
    pub torch: String,
    /// Device of the fake tensors: `cpu` or `cuda`.
    pub device: String,
    /// Paths of the source files. Everything else refers to them by index.
    pub files: Vec<String>,
    /// User frames as a tree, parents before children.
    pub stacks: Vec<Frame>,
    /// Module instances, parents before children.
    pub modules: Vec<Module>,
    /// The distinct operators.
    pub signatures: Vec<Operator>,
    /// The operators that ran, in order.
    pub ops: Vec<Op>,
    /// The batch of an iteration, if known.
    pub batch: Option<Batch>,
    /// The optimizers that stepped.
    pub optimizers: Vec<Optimizer>,
    /// The `for` statement of the training loop.
    pub training_loop: Option<Location>,
    /// Memory, if it was tracked.
    pub memory: Option<Memory>,
    /// Values that the program read and fake tensors do not have.
    pub guessed: Vec<Guess>,
    /// Operators that fake tensors cannot run.
    pub unsupported: Vec<Unsupported>,
    /// An error of the program itself, in the manifest's format.
    pub failure: Option<serde_json::Value>,
    /// Other notes for the user.
    pub notes: Vec<String>,
}

/// Whether the program completed its iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The iteration completed.
    Complete,
    /// The program ended, and no part of it was an iteration. The list has what ran.
    NoIteration,
    /// The iteration ended early. The list has the operators up to that point.
    #[default]
    #[serde(other)]
    Partial,
}

/// A frame of the user's stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Index into [`OpList::stacks`] of the caller.
    pub parent: Option<u32>,
    /// Index into [`OpList::files`].
    pub file: u32,
    /// Line number, starting at 1.
    pub line: u32,
    /// Qualified name of the function.
    pub function: String,
}

/// A module instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Path, such as `layer1.0.conv1`.
    pub path: String,
    /// Class name, such as `Conv2d`.
    pub type_name: String,
    /// Index of the parent module.
    pub parent: Option<u32>,
    /// The user's lines that created it, innermost first.
    pub definition: Vec<Location>,
    /// Number of elements of its own parameters, without its children's.
    pub parameters: u64,
}

/// An operator that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op {
    /// Index into [`OpList::signatures`].
    pub signature: u32,
    /// Phase of the iteration.
    pub phase: Phase,
    /// Index into [`OpList::stacks`] of the innermost frame. A backward operator has the stack of
    /// its forward operator.
    pub stack: Option<u32>,
    /// Index into [`OpList::modules`].
    pub module: Option<u32>,
}

/// The batch of an iteration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Batch {
    /// Number of samples.
    pub size: Option<u64>,
    /// Origin of the size: `loader`, `provider` or `input`.
    pub from: Option<String>,
}

/// An optimizer that stepped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Optimizer {
    /// Class name, such as `AdamW`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Whether multi-tensor (foreach) operators update the parameters.
    pub foreach: Option<bool>,
    /// Whether a fused kernel updates the parameters.
    pub fused: Option<bool>,
}

/// A place in the user's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Location {
    /// Index into [`OpList::files`].
    pub file: u32,
    /// Line number, starting at 1.
    pub line: u32,
}

/// Memory of the storages that are alive at once on the device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Peak memory, including weights and optimizer state.
    pub peak_bytes: u64,
    /// Index into [`OpList::ops`] of the operator at the peak.
    pub peak_op: Option<u32>,
    /// Allocations alive at the peak.
    pub at_peak: Vec<PeakAllocation>,
    /// Weights, buffers and optimizer state, allocated before the iteration.
    pub baseline_bytes: u64,
}

/// Memory allocated at the peak.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeakAllocation {
    /// Size in bytes.
    pub bytes: u64,
    /// Category: `weight`, `activation`, `temporary` and so on.
    pub kind: String,
    /// Index into [`OpList::stacks`].
    pub stack: Option<u32>,
    /// Index into [`OpList::modules`].
    pub module: Option<u32>,
}

/// A guessed value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Guess {
    /// Index into [`OpList::files`].
    pub file: u32,
    /// Line number, starting at 1.
    pub line: u32,
    /// The assumed value.
    pub what: String,
}

/// An operator that fake tensors cannot run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Unsupported {
    /// Index into [`OpList::files`].
    pub file: u32,
    /// Line number, starting at 1.
    pub line: u32,
    /// Name of the operator.
    pub operator: String,
    /// PyTorch's error message.
    pub message: String,
}

impl OpList {
    /// Reads `ops.json`.
    ///
    /// # Errors
    /// Fails if the file is too large, is not JSON, has a value of the wrong type (the message
    /// names the key's path), has an unsupported version, or has an index out of range.
    pub fn parse(bytes: &[u8]) -> Result<OpList, OpListError> {
        if bytes.len() > MAX_BYTES {
            return Err(OpListError::TooLong { found: bytes.len() });
        }
        // Every value except the first of its list follows a comma, and the first follows a
        // bracket. Commas and brackets in strings are counted too, which errs on the safe side.
        let values = memchr::memchr3_iter(b',', b'[', b'{', bytes).take(MAX_VALUES + 1).count();
        if values > MAX_VALUES {
            return Err(OpListError::TooMany { what: "values", limit: MAX_VALUES });
        }
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let file: File = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            OpListError::Value { path: error.path().to_string(), reason: error.inner().to_string() }
        })?;
        json.end().map_err(|error| OpListError::Value {
            path: "after its end".to_owned(),
            reason: error.to_string(),
        })?;
        file.check()
    }

    /// Returns the signature of an entry of [`OpList::ops`].
    pub fn operator(&self, op: &Op) -> Option<&Operator> {
        self.signatures.get(op.signature as usize)
    }

    /// Returns a stack from its innermost frame outwards. Parents come before children, so it
    /// terminates.
    pub fn frames(&self, stack: Option<u32>) -> impl Iterator<Item = &Frame> {
        let frame = |index: u32| self.stacks.get(index as usize);
        std::iter::successors(stack.and_then(frame), move |inner| inner.parent.and_then(frame))
    }
}
