//! Writes output files.

use std::io::Write as _;
use std::path::Path;

use super::exit::Failure;
use crate::store::write_atomic;

/// Whether the document goes to standard output, which then contains nothing else.
pub(super) fn is_stdout(file: Option<&Path>) -> bool {
    file == Some(Path::new("-"))
}

/// Checks that an output file can be written, before anything runs.
///
/// # Errors
/// The option, and the problem with its file.
pub(super) fn check(option: &str, file: &Path) -> Result<(), Failure> {
    if is_stdout(Some(file)) {
        return Ok(());
    }
    let refuse = |why: String, next: String| {
        Err(Failure::failed(format!("{option} {}: {why}", file.display()), next))
    };
    let another = "Choose another file in an existing folder".to_owned();
    match file.metadata() {
        Ok(metadata) if metadata.is_dir() => return refuse("this is a folder".to_owned(), another),
        // Pipes and devices are written directly.
        Ok(metadata) if !metadata.is_file() => return Ok(()),
        _ => {}
    }
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        let shown = folder.display();
        return refuse(
            format!("folder {shown} does not exist"),
            format!("Create it (`mkdir -p {shown}`), or choose a file in an existing folder"),
        );
    }
    // A file is replaced by a temporary file in the same folder.
    match tempfile::NamedTempFile::new_in(folder) {
        Ok(_) => Ok(()),
        Err(error) => {
            refuse(format!("{} cannot be written: {}", folder.display(), error.kind()), another)
        }
    }
}

/// Writes `value` as JSON to `file`, or to standard output for `-`.
pub(super) fn write(value: &impl serde::Serialize, file: &Path) -> Result<(), Failure> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|error| Failure::failed(format!("cannot write JSON: {error}"), ""))?;
    bytes.push(b'\n');
    write_bytes(&bytes, file)
}

/// Writes a text to `file`, or to standard output for `-`.
pub(super) fn write_text(text: &str, file: &Path) -> Result<(), Failure> {
    write_bytes(text.as_bytes(), file)
}

fn write_bytes(bytes: &[u8], file: &Path) -> Result<(), Failure> {
    if is_stdout(Some(file)) {
        let mut out = std::io::stdout().lock();
        return out.write_all(bytes).and_then(|()| out.flush()).map_err(Failure::output);
    }
    save(file, bytes)
}

/// Writes a file atomically. Anything but a regular file, such as `/dev/stdout` or a named pipe,
/// cannot be replaced and is written directly.
pub(super) fn save(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let wrong = |error: std::io::Error| {
        Failure::failed(
            crate::store::StoreError::at(file, error).to_string(),
            "Choose another file in an existing folder",
        )
    };
    if file.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return std::fs::write(file, bytes).map_err(wrong);
    }
    write_atomic(file, bytes).map_err(|error| {
        Failure::failed(error.to_string(), "Choose another file in an existing folder")
    })
}
