//! The JSON document that `ridgeline profile --json` writes if the program fails.
//! `docs/schema/failure.schema.json` describes it.

use serde::Serialize;

use super::failure::advice::{Advice, advice};
use super::failure::run::Reader;
use super::failure::{FailureFrame, RunFailure, ended_without_exception, own_output};
use super::out_of_memory::OutOfMemory;

/// The version of the document.
pub const SCHEMA: u32 = 1;

/// The maximum number of lines of program output.
const MAX_OUTPUT_LINES: usize = 20;

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

/// Returns the document of a failed run.
pub fn document(failure: &RunFailure) -> Document {
    let advice = advice(failure, Reader::Terminal);
    let output = own_output(failure, MAX_OUTPUT_LINES);
    // After an exception, the exit code of the process is that of the agent.
    let exit_code =
        failure.run.end.code.filter(|_| ended_without_exception(failure)).map(i64::from);
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
