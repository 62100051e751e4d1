//! What `ridgeline profile --json` writes where the program failed.
//! `docs/schema/failure.schema.json` describes it.

use serde::Serialize;

use super::failure::{FailureFrame, RunFailure};
use super::out_of_memory::OutOfMemory;

/// The version of the document.
pub const SCHEMA: u32 = 1;

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
}

/// The document of a failed run.
pub fn document(failure: &RunFailure) -> Document {
    let RunFailure { error_type, message, kind, frames, requested_bytes, memory } = failure.clone();
    Document {
        schema: SCHEMA,
        failure: Entry { error_type, message, kind, frames, requested_bytes, memory },
    }
}
