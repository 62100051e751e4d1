//! What `ridgeline profile --json` writes where the program failed.
//! `docs/schema/failure.schema.json` describes it.

use serde::Serialize;

use super::failure::advice::{Advice, advice};
use super::failure::run::Reader;
use super::failure::{FailureFrame, RunFailure, is_ended, own_output};
use super::out_of_memory::OutOfMemory;

/// The version of the document.
pub const SCHEMA: u32 = 1;

/// Lines of the program's output.
const MOST_OUTPUT: usize = 20;

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Document {
    schema: u32,
    failure: Entry,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Entry {
    #[serde(rename = "type")]
    error_type: String,
    message: String,
    kind: String,
    frames: Vec<FailureFrame>,
    requested_bytes: Option<u64>,
    memory: Option<Box<OutOfMemory>>,
    program: String,
    iterations: Option<u32>,
    exit_code: Option<i64>,
    output: Vec<String>,
    advice: Option<Advice>,
}

/// The document of a failed run.
pub fn document(failure: &RunFailure) -> Document {
    let advice = advice(failure, Reader::Terminal);
    let output = own_output(failure, MOST_OUTPUT);
    // Of a program that raised, it is the agent's own.
    let exit_code = failure.run.end.code.filter(|_| is_ended(failure)).map(i64::from);
    let RunFailure { error_type, message, kind, frames, requested_bytes, memory, run } =
        failure.clone();
    Document {
        schema: SCHEMA,
        failure: Entry {
            error_type,
            message,
            kind,
            frames,
            requested_bytes,
            memory,
            exit_code: run.error.exit_code.or(exit_code),
            program: run.program,
            iterations: run.iterations,
            output,
            advice,
        },
    }
}
