//! The JSON of `ops.json`, and the checks that turn it into an [`OpList`].

use serde::Deserialize;

use super::{
    Batch, Frame, Guess, Location, MAX_OPS, MAX_SIGNATURES, Memory, Module, Op, OpList,
    OpListError, Optimizer, Outcome, PeakAllocation, Unsupported, VERSION,
};
use crate::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_profile::Phase;

/// The maximum number of dimensions of a tensor, the same as PyTorch's.
const MAX_DIMENSIONS: usize = 64;

#[derive(Deserialize)]
pub(super) struct File {
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
    /// Null for the root module, as in the manifest.
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
    pub(super) fn check(self) -> Result<OpList, OpListError> {
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
            at_peak.push(PeakAllocation { bytes, kind, stack, module });
        }
        let (peak_bytes, baseline_bytes) = (self.peak_bytes, self.baseline_bytes);
        Ok(Memory { peak_bytes, peak_op, at_peak, baseline_bytes })
    }
}

/// Checks an index. `-1` is `None`; anything else has to be below the limit.
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
            // An output that was not requested, such as a gradient that is not needed.
            Some(Arg::None) => {}
            _ => return Err(wrong()),
        }
    }
    Ok(Operator { name: file.op, inputs, named, outputs })
}

/// Converts an argument. Returns `None` for a tensor without a shape or with an invalid one.
fn arg(value: serde_json::Value) -> Option<Arg> {
    use serde_json::Value;
    Some(match value {
        Value::Null => Arg::None,
        Value::Bool(flag) => Arg::Bool(flag),
        Value::Number(number) => Arg::Number(number.as_f64()?),
        Value::String(text) => Arg::Text(text),
        // serde_json limits the depth to 128.
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
