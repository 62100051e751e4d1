//! Reads a folder of measurements with arbitrary content, within limits.

use std::io::Read as _;
use std::path::Path;

use ridgeline_evaluate::ground_truth::{File, LAMBDA, NEUSIGHT_CONFIGS, NEUSIGHT_MODELS, TIMM};

use crate::cli::exit::Failure;

/// The maximum size of a file, in bytes. The largest real one has a few hundred kilobytes.
const MAX_BYTES: u64 = 16 << 20;
/// The maximum number of files of one kind.
const MAX_FILES: usize = 500;

/// Reads the files for answering questions. An unreadable one has its error.
///
/// # Errors
/// If it is not a folder.
pub(super) fn read(folder: &Path) -> Result<Vec<File>, Failure> {
    if !folder.is_dir() {
        return Err(Failure::usage(
            format!("{} is no folder", folder.display()),
            "Name a folder that is laid out as docs/accuracy.md says",
        ));
    }
    let mut files = Vec::new();
    for (below, ending) in [(TIMM, ".csv"), (LAMBDA, ".csv"), (NEUSIGHT_CONFIGS, ".json")] {
        let Ok(entries) = std::fs::read_dir(folder.join(below)) else { continue };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.ends_with(ending))
            .collect();
        names.sort();
        let too_many = names.len().saturating_sub(MAX_FILES);
        names.truncate(MAX_FILES);
        for name in names {
            files.push(contents(folder, format!("{below}/{name}")));
        }
        if too_many > 0 {
            let why = format!("{too_many} more files were not read");
            files.push(File { path: below.to_owned(), contents: Err(why) });
        }
    }
    if folder.join(NEUSIGHT_MODELS).exists() {
        files.push(contents(folder, NEUSIGHT_MODELS.to_owned()));
    }
    Ok(files)
}

fn contents(folder: &Path, path: String) -> File {
    let read = || {
        let file = folder.join(&path);
        let metadata = std::fs::metadata(&file)?;
        // A named pipe or a device may never end.
        if !metadata.is_file() {
            return Err(std::io::Error::other("it is no file"));
        }
        let mut bytes = Vec::new();
        std::fs::File::open(file)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(std::io::Error::other(format!("it has more than {MAX_BYTES} bytes")));
        }
        Ok(bytes)
    };
    let contents = read().map_err(|error| error.to_string());
    File { path, contents }
}
