//! Writing JSON where the person asked for it.

use std::io::Write as _;
use std::path::Path;

use super::exit::Failure;
use crate::store::write_atomic;

/// Whether JSON goes to standard output, which then holds nothing else.
pub fn is_stdout(file: Option<&Path>) -> bool {
    file == Some(Path::new("-"))
}

/// Writes `value` to `file`, or to standard output where that is `-`.
pub fn write(value: &impl serde::Serialize, file: &Path) -> Result<(), Failure> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|error| Failure::failed(format!("cannot write JSON: {error}"), ""))?;
    bytes.push(b'\n');
    if is_stdout(Some(file)) {
        let mut out = std::io::stdout().lock();
        return out.write_all(&bytes).and_then(|()| out.flush()).map_err(Failure::output);
    }
    save(file, &bytes)
}

/// Writes a file that the person named, as a whole or not at all. What is no plain file, such as
/// `/dev/stdout` or a named pipe, cannot be replaced and is written to.
pub fn save(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let wrong = |error: std::io::Error| {
        Failure::failed(
            crate::store::StoreError::at(file, error).to_string(),
            "Name another file, in a folder that is there",
        )
    };
    if file.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return std::fs::write(file, bytes).map_err(wrong);
    }
    write_atomic(file, bytes).map_err(|error| {
        Failure::failed(error.to_string(), "Name another file, in a folder that is there")
    })
}
