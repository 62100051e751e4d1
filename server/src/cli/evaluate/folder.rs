//! Reading a folder of measurements, whatever lies in it, within limits.

use std::io::Read as _;
use std::path::Path;

use ridgeline_evaluate::ground_truth::{File, LAMBDA, NEUSIGHT_CONFIGS, NEUSIGHT_MODELS, TIMM};

use crate::cli::exit::Failure;

/// The largest file that is read. The largest honest one has a few hundred kilobytes.
const MOST_BYTES: u64 = 16 << 20;
/// Files of one kind that are read.
const MOST_FILES: usize = 500;

/// The files that questions are answered from. One that cannot be read says why.
///
/// # Errors
/// Where the folder is none.
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
        let too_many = names.len().saturating_sub(MOST_FILES);
        names.truncate(MOST_FILES);
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
        // A named pipe would never end, a device neither.
        if !metadata.is_file() {
            return Err(std::io::Error::other("it is no file"));
        }
        let mut bytes = Vec::new();
        std::fs::File::open(file)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(std::io::Error::other(format!("it has more than {MOST_BYTES} bytes")));
        }
        Ok(bytes)
    };
    let contents = read().map_err(|error| error.to_string());
    File { path, contents }
}
