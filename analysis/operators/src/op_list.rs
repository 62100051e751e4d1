//! `ops.json`: the operators of one iteration that ran under fake tensors, and the memory that
//! they would have held. `docs/op-list.md` is its description.
//!
//! The file comes from a process that ran other people's code, so nothing in it is believed:
//! lengths are held to limits before anything is allocated, and every index is checked here, once,
//! so that whoever reads an [`OpList`] need not.

#[cfg(test)]
mod tests;

use serde::Deserialize;
use thiserror::Error;

use super::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_profile::Phase;

/// The version of the format that this crate reads.
pub const VERSION: u32 = 1;
/// The largest file that is read.
pub const MAX_BYTES: usize = 64 << 20;
/// Operators of one iteration.
pub const MAX_OPS: usize = 200_000;
/// Different operators.
pub const MAX_SIGNATURES: usize = 20_000;
/// Values in the whole file. Each takes at most some 60 bytes in memory.
const MAX_VALUES: usize = 4_000_000;
/// PyTorch's own limit is 64.
const MAX_DIMENSIONS: usize = 64;

/// Why a list cannot be read.
#[derive(Debug, Error)]
pub enum OpListError {
    /// More than [`MAX_BYTES`].
    #[error("the operator list is too large: {found} bytes, the limit is {MAX_BYTES}")]
    TooLong {
        /// Bytes of the file.
        found: usize,
    },
    /// More values than a list of [`MAX_OPS`] operators needs.
    #[error("the operator list has more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many are read.
        limit: usize,
    },
    /// Not JSON, or a value of the wrong type.
    #[error("operator list, `{path}`: {reason}")]
    Value {
        /// The key's path.
        path: String,
        /// What is wrong there.
        reason: String,
    },
    /// Another version than [`VERSION`].
    #[error(
        "operator list version {found} is not supported; this Ridgeline reads version {VERSION}"
    )]
    Version {
        /// The version of the file.
        found: u32,
    },
    /// A column of another length, or an index that points nowhere.
    #[error("the operator list is inconsistent: {what} at {index}")]
    Inconsistent {
        /// What points nowhere.
        what: &'static str,
        /// Where in its list.
        index: usize,
    },
}

/// The operators of one iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpList {
    /// Whether it ran to its end.
    pub outcome: Outcome,
    /// PyTorch's version.
    pub torch: String,
    /// What the fake tensors said they were on: `cpu` or `cuda`.
    pub device: String,
    /// Paths that everything else points into.
    pub files: Vec<String>,
    /// User frames: a tree, parents before children.
    pub stacks: Vec<Frame>,
    /// Module instances, parents before children.
    pub modules: Vec<Module>,
    /// The different operators.
    pub signatures: Vec<Operator>,
    /// What ran, in order.
    pub ops: Vec<Op>,
    /// Samples of an iteration, where known.
    pub batch: Option<Batch>,
    /// The optimizers that stepped.
    pub optimizers: Vec<Optimizer>,
    /// The `for` of the training loop.
    pub training_loop: Option<Location>,
    /// Memory, where it was followed.
    pub memory: Option<Memory>,
    /// Where the program read a value that fake tensors do not have.
    pub guessed: Vec<Guess>,
    /// What fake tensors cannot run.
    pub unsupported: Vec<Unsupported>,
    /// Where the program failed of itself; as in a manifest.
    pub failure: Option<serde_json::Value>,
    /// What else a person should know.
    pub notes: Vec<String>,
}

/// Whether the program ran to the end of its iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It did.
    Complete,
    /// It ended early, and what is here is what ran before.
    #[default]
    #[serde(other)]
    Partial,
}

/// A frame of the user's stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Index into [`OpList::stacks`] of its caller.
    pub parent: Option<u32>,
    /// Index into [`OpList::files`].
    pub file: u32,
    /// From 1.
    pub line: u32,
    /// Its function's qualified name.
    pub function: String,
}

/// A module instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// `layer1.0.conv1`.
    pub path: String,
    /// `Conv2d`.
    pub type_name: String,
    /// Index of the module that holds it.
    pub parent: Option<u32>,
    /// The user's lines that made it, innermost first.
    pub definition: Vec<Location>,
    /// Elements of its own parameters.
    pub parameters: u64,
}

/// An operator that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op {
    /// Index into [`OpList::signatures`].
    pub signature: u32,
    /// The part of the iteration that it belongs to.
    pub phase: Phase,
    /// Index into [`OpList::stacks`] of the innermost frame; a backward operator has that of its
    /// forward operator.
    pub stack: Option<u32>,
    /// Index into [`OpList::modules`].
    pub module: Option<u32>,
}

/// The batch that an iteration takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Batch {
    /// Samples.
    pub size: Option<u64>,
    /// `loader`, `provider` or `input`.
    pub from: Option<String>,
}

/// An optimizer that stepped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Optimizer {
    /// `AdamW`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Whether one operator updates all parameters.
    pub foreach: Option<bool>,
    /// Whether one kernel does.
    pub fused: Option<bool>,
}

/// A place in the user's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Location {
    /// Index into [`OpList::files`].
    pub file: u32,
    /// From 1.
    pub line: u32,
}

/// Memory of the iteration, of storages that are alive at once on the device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The most, weights and optimizer state included.
    pub peak_bytes: u64,
    /// Index into [`OpList::ops`] of the operator at which that was.
    pub peak_op: Option<u32>,
    /// What was alive then.
    pub at_peak: Vec<Held>,
    /// Weights, buffers and optimizer state: alive before the iteration.
    pub baseline_bytes: u64,
}

/// What was held at the peak.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes.
    pub bytes: u64,
    /// `weight`, `activation`, `temporary` and so on.
    pub kind: String,
    /// Index into [`OpList::stacks`].
    pub stack: Option<u32>,
    /// Index into [`OpList::modules`].
    pub module: Option<u32>,
}

/// A value that was guessed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Guess {
    /// Index into [`OpList::files`].
    pub file: u32,
    /// From 1.
    pub line: u32,
    /// What it was taken for.
    pub what: String,
}

/// An operator that fake tensors cannot run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Unsupported {
    /// Index into [`OpList::files`].
    pub file: u32,
    /// From 1.
    pub line: u32,
    /// Its name.
    pub operator: String,
    /// What PyTorch says.
    pub message: String,
}

impl OpList {
    /// Reads `ops.json`.
    ///
    /// # Errors
    /// Where it is too long, is not JSON, has a value of the wrong type (the message names the
    /// key's path), has another version, or points nowhere.
    pub fn parse(bytes: &[u8]) -> Result<OpList, OpListError> {
        if bytes.len() > MAX_BYTES {
            return Err(OpListError::TooLong { found: bytes.len() });
        }
        // Every value but the first of its list stands after a comma, and every first after a
        // bracket; those in texts are counted with them, which errs on the safe side.
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

    /// The operator that ran at an index of [`OpList::ops`].
    pub fn operator(&self, op: &Op) -> Option<&Operator> {
        self.signatures.get(op.signature as usize)
    }

    /// A stack from its innermost frame outwards. Parents stand before their children, so it ends.
    pub fn frames(&self, stack: Option<u32>) -> impl Iterator<Item = &Frame> {
        let frame = |index: u32| self.stacks.get(index as usize);
        std::iter::successors(stack.and_then(frame), move |inner| inner.parent.and_then(frame))
    }
}

#[derive(Deserialize)]
struct File {
    version: u32,
    #[serde(default)]
    outcome: Outcome,
    #[serde(default)]
    torch: String,
    #[serde(default)]
    device: String,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    stacks: Vec<(i64, u32, u32, String)>,
    #[serde(default)]
    modules: Vec<FileModule>,
    signatures: Vec<FileSignature>,
    ops: Columns,
    #[serde(default)]
    batch: Option<Batch>,
    #[serde(default)]
    optimizers: Vec<Optimizer>,
    #[serde(default, rename = "loop")]
    training_loop: Option<Location>,
    #[serde(default)]
    memory: Option<FileMemory>,
    #[serde(default)]
    guessed: Vec<Guess>,
    #[serde(default)]
    unsupported: Vec<Unsupported>,
    #[serde(default)]
    failure: Option<serde_json::Value>,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FileModule {
    path: String,
    #[serde(rename = "type")]
    type_name: String,
    /// Null for the outermost, as in a manifest.
    parent: Option<i64>,
    definition: Vec<(u32, u32)>,
    parameters: Vec<FileParameter>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FileParameter {
    elements: u64,
}

#[derive(Deserialize)]
struct FileSignature {
    op: String,
    #[serde(default, rename = "in")]
    inputs: Vec<serde_json::Value>,
    #[serde(default)]
    named: serde_json::Map<String, serde_json::Value>,
    #[serde(default, rename = "out")]
    outputs: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Columns {
    signature: Vec<u32>,
    phase: Vec<u8>,
    stack: Vec<i64>,
    module: Vec<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FileMemory {
    peak_bytes: u64,
    peak_op: Option<i64>,
    at_peak: Vec<(u64, String, i64, i64)>,
    baseline_bytes: u64,
}

impl File {
    fn check(self) -> Result<OpList, OpListError> {
        if self.version != VERSION {
            return Err(OpListError::Version { found: self.version });
        }
        if self.signatures.len() > MAX_SIGNATURES {
            return Err(OpListError::TooMany { what: "signatures", limit: MAX_SIGNATURES });
        }
        if self.ops.signature.len() > MAX_OPS {
            return Err(OpListError::TooMany { what: "operators", limit: MAX_OPS });
        }
        let files = self.files.len();
        let in_files = |file: u32, what, index| {
            if (file as usize) < files {
                Ok(())
            } else {
                Err(OpListError::Inconsistent { what, index })
            }
        };
        let mut stacks = Vec::with_capacity(self.stacks.len());
        for (index, (parent, file, line, function)) in self.stacks.into_iter().enumerate() {
            let parent = index_below(parent, index, "the caller of a frame", index)?;
            in_files(file, "the file of a frame", index)?;
            stacks.push(Frame { parent, file, line, function });
        }
        let mut modules = Vec::with_capacity(self.modules.len());
        for (index, module) in self.modules.into_iter().enumerate() {
            let parent = module.parent.unwrap_or(-1);
            let parent = index_below(parent, index, "the parent of a module", index)?;
            let mut definition = Vec::with_capacity(module.definition.len());
            for (file, line) in module.definition {
                in_files(file, "the file of a module's definition", index)?;
                definition.push(Location { file, line });
            }
            let elements = module.parameters.iter().map(|parameter| parameter.elements);
            modules.push(Module {
                path: module.path,
                type_name: module.type_name,
                parent,
                definition,
                parameters: elements.fold(0, u64::saturating_add),
            });
        }
        let signatures: Vec<Operator> =
            self.signatures.into_iter().enumerate().map(signature).collect::<Result<_, _>>()?;
        let ops = ops(self.ops, signatures.len(), stacks.len(), modules.len())?;
        let memory = self.memory.map(|memory| memory.check(ops.len(), stacks.len(), modules.len()));
        for (index, location) in self.training_loop.iter().enumerate() {
            in_files(location.file, "the file of the loop", index)?;
        }
        for (index, guess) in self.guessed.iter().enumerate() {
            in_files(guess.file, "the file of a guess", index)?;
        }
        for (index, unsupported) in self.unsupported.iter().enumerate() {
            in_files(unsupported.file, "the file of an operator that cannot run", index)?;
        }
        Ok(OpList {
            outcome: self.outcome,
            torch: self.torch,
            device: self.device,
            files: self.files,
            stacks,
            modules,
            signatures,
            ops,
            batch: self.batch,
            optimizers: self.optimizers,
            training_loop: self.training_loop,
            memory: memory.transpose()?,
            guessed: self.guessed,
            unsupported: self.unsupported,
            failure: self.failure,
            notes: self.notes,
        })
    }
}

impl FileMemory {
    fn check(self, ops: usize, stacks: usize, modules: usize) -> Result<Memory, OpListError> {
        let peak_op = index_below(self.peak_op.unwrap_or(-1), ops, "the operator of the peak", 0)?;
        let mut at_peak = Vec::with_capacity(self.at_peak.len());
        for (index, (bytes, kind, stack, module)) in self.at_peak.into_iter().enumerate() {
            let stack = index_below(stack, stacks, "the stack of an allocation", index)?;
            let module = index_below(module, modules, "the module of an allocation", index)?;
            at_peak.push(Held { bytes, kind, stack, module });
        }
        let (peak_bytes, baseline_bytes) = (self.peak_bytes, self.baseline_bytes);
        Ok(Memory { peak_bytes, peak_op, at_peak, baseline_bytes })
    }
}

/// `-1` is none; anything else has to be below a limit.
fn index_below(
    value: i64,
    limit: usize,
    what: &'static str,
    index: usize,
) -> Result<Option<u32>, OpListError> {
    match u32::try_from(value) {
        Ok(found) if (found as usize) < limit => Ok(Some(found)),
        Err(_) if value == -1 => Ok(None),
        _ => Err(OpListError::Inconsistent { what, index }),
    }
}

fn ops(
    columns: Columns,
    signatures: usize,
    stacks: usize,
    modules: usize,
) -> Result<Vec<Op>, OpListError> {
    let length = columns.signature.len();
    for (what, found) in [
        ("the length of `ops.phase`", columns.phase.len()),
        ("the length of `ops.stack`", columns.stack.len()),
        ("the length of `ops.module`", columns.module.len()),
    ] {
        if found != length {
            return Err(OpListError::Inconsistent { what, index: found });
        }
    }
    let rows = columns.signature.into_iter().zip(columns.phase);
    let rows = rows.zip(columns.stack).zip(columns.module).enumerate();
    rows.map(|(index, (((signature, phase), stack), module))| {
        if signature as usize >= signatures {
            return Err(OpListError::Inconsistent { what: "the signature of an operator", index });
        }
        let phase = match phase {
            0 => Phase::Data,
            1 => Phase::Forward,
            2 => Phase::Backward,
            3 => Phase::Optimizer,
            4 => Phase::Other,
            _ => return Err(OpListError::Inconsistent { what: "the phase of an operator", index }),
        };
        let stack = index_below(stack, stacks, "the stack of an operator", index)?;
        let module = index_below(module, modules, "the module of an operator", index)?;
        Ok(Op { signature, phase, stack, module })
    })
    .collect()
}

fn signature((index, file): (usize, FileSignature)) -> Result<Operator, OpListError> {
    let wrong = || OpListError::Inconsistent { what: "a tensor of a signature", index };
    let inputs = file.inputs.into_iter().map(arg).collect::<Option<_>>().ok_or_else(wrong)?;
    let named = file
        .named
        .into_iter()
        .map(|(name, value)| Some((name, arg(value)?)))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    let mut outputs = Vec::with_capacity(file.outputs.len());
    for output in file.outputs {
        match arg(output) {
            Some(Arg::Tensor(tensor)) => outputs.push(tensor),
            // An output that was not asked for, such as a gradient that nothing needs.
            Some(Arg::None) => {}
            _ => return Err(wrong()),
        }
    }
    Ok(Operator { name: file.op, inputs, named, outputs })
}

/// `None` for what can be no argument: a tensor without a shape, or with one that is impossible.
fn arg(value: serde_json::Value) -> Option<Arg> {
    use serde_json::Value;
    Some(match value {
        Value::Null => Arg::None,
        Value::Bool(flag) => Arg::Bool(flag),
        Value::Number(number) => Arg::Number(number.as_f64()?),
        Value::String(text) => Arg::Text(text),
        // The reader of JSON itself stops at a depth of 128.
        Value::Array(list) => Arg::List(list.into_iter().map(arg).collect::<Option<_>>()?),
        Value::Object(object) => Arg::Tensor(tensor(&object)?),
    })
}

fn tensor(object: &serde_json::Map<String, serde_json::Value>) -> Option<Tensor> {
    let element = ElementType::from_name(object.get("t")?.as_str()?);
    let shape = object.get("s")?.as_array()?;
    if shape.len() > MAX_DIMENSIONS {
        return None;
    }
    let shape = shape.iter().map(serde_json::Value::as_u64).collect::<Option<Vec<u64>>>()?;
    let strides = match object.get("d") {
        None | Some(serde_json::Value::Null) => None,
        Some(strides) => {
            let strides = strides.as_array()?.iter().map(serde_json::Value::as_i64);
            Some(strides.collect::<Option<Vec<i64>>>()?).filter(|found| found.len() == shape.len())
        }
    };
    Some(Tensor { element, shape, strides })
}
