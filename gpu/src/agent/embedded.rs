//! The agent's Python files, which travel in the binary, and their copy in the user's cache.

use std::hash::Hasher;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{fs, hash::DefaultHasher};

/// `(path below gpu/agent, contents)`, sorted by path. Made by `build.rs`.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/agent_files.rs"));

/// The file to start.
const BOOT: &str = "boot.py";

/// Writes the agent below `cache`, or checks that what is there is it: a file that differs is
/// written again, one that does not belong there is removed. Each version of the agent has a folder
/// of its own, so that two versions of Ridgeline can work side by side. Returns the path of the file
/// to start.
///
/// # Errors
/// Where the cache cannot be written.
pub(super) fn unpack(cache: &Path) -> io::Result<PathBuf> {
    unpack_files(cache, FILES)
}

fn unpack_files(cache: &Path, files: &[(&str, &[u8])]) -> io::Result<PathBuf> {
    let folder = cache.join("agent").join(format!("{:016x}", hash_of(files)));
    fs::create_dir_all(&folder)?;
    for (name, contents) in files {
        let path = folder.join(name);
        if is_same(&path, contents) {
            continue;
        }
        let parent = path.parent().unwrap_or(&folder);
        fs::create_dir_all(parent)?;
        write_atomically(&path, parent, contents)?;
    }
    remove_strangers(&folder, "", files)?;
    Ok(folder.join(BOOT))
}

/// It names a folder and decides nothing: the contents are compared byte for byte.
fn hash_of(files: &[(&str, &[u8])]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (name, contents) in files {
        hasher.write(name.as_bytes());
        hasher.write_u8(0);
        hasher.write_usize(contents.len());
        hasher.write(contents);
    }
    hasher.finish()
}

/// A link is never the same: what it points to could change later.
fn is_same(path: &Path, contents: &[u8]) -> bool {
    let Ok(facts) = fs::symlink_metadata(path) else { return false };
    facts.is_file()
        && facts.len() == contents.len() as u64
        && fs::read(path).is_ok_and(|found| found == contents)
}

/// Another Ridgeline that starts at the same moment sees the old file or the new one, never half.
fn write_atomically(path: &Path, parent: &Path, contents: &[u8]) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|facts| facts.is_dir()) {
        fs::remove_dir_all(path)?;
    }
    let mut file = tempfile::NamedTempFile::new_in(parent)?;
    file.write_all(contents)?;
    file.persist(path)?;
    Ok(())
}

/// A file that is not the agent's could stand before a module of the standard library. Python's own
/// caches stay, and so do files that another Ridgeline is writing at this moment.
fn remove_strangers(folder: &Path, prefix: &str, files: &[(&str, &[u8])]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let shown = name.to_string_lossy();
        let path = format!("{prefix}{shown}");
        if shown == "__pycache__" || shown.starts_with(".tmp") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            let below = format!("{path}/");
            if files.iter().any(|(known, _)| known.starts_with(&below)) {
                remove_strangers(&entry.path(), &below, files)?;
            } else {
                gone(fs::remove_dir_all(entry.path()))?;
            }
        } else if !files.iter().any(|(known, _)| *known == path) {
            gone(fs::remove_file(entry.path()))?;
        }
    }
    Ok(())
}

/// Another Ridgeline may have removed it at the same moment.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &[(&str, &[u8])] = &[("boot.py", b"import inner"), ("inner/__init__.py", b"")];

    #[test]
    fn every_file_of_the_agent_is_carried() {
        let mut expected = Vec::new();
        list(&Path::new(env!("CARGO_MANIFEST_DIR")).join("agent"), "", &mut expected);
        if cfg!(not(feature = "evaluate")) {
            expected.retain(|name| !name.starts_with("ridgeline_agent/models/"));
        }
        expected.sort();
        let carried: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(carried, expected);
    }

    /// By another rule than `build.rs`: every file that Git knows or could know, without the tests,
    /// the project file of the Python tools, and what tools leave behind.
    fn list(folder: &Path, prefix: &str, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name == "tests" || name == "pyproject.toml" || name == "__pycache__" {
                continue;
            }
            if name.starts_with('.') {
                continue;
            }
            if entry.path().is_dir() {
                list(&entry.path(), &format!("{prefix}{name}/"), found);
            } else {
                found.push(format!("{prefix}{name}"));
            }
        }
    }

    #[test]
    fn a_tampered_file_is_written_again() {
        let cache = tempfile::tempdir().unwrap();
        let boot = unpack_files(cache.path(), SMALL).unwrap();
        fs::write(&boot, b"import enemy").unwrap();
        assert_eq!(unpack_files(cache.path(), SMALL).unwrap(), boot);
        assert_eq!(fs::read(&boot).unwrap(), b"import inner");
    }

    #[test]
    fn a_planted_module_is_removed_and_pythons_cache_stays() {
        let cache = tempfile::tempdir().unwrap();
        let boot = unpack_files(cache.path(), SMALL).unwrap();
        let folder = boot.parent().unwrap();
        fs::write(folder.join("json.py"), b"enemy").unwrap();
        fs::create_dir_all(folder.join("torch")).unwrap();
        fs::create_dir_all(folder.join("inner/__pycache__")).unwrap();
        unpack_files(cache.path(), SMALL).unwrap();
        assert!(!folder.join("json.py").exists());
        assert!(!folder.join("torch").exists());
        assert!(folder.join("inner/__pycache__").exists());
    }

    #[test]
    #[cfg(unix)]
    fn a_link_in_place_of_a_file_is_replaced() {
        let cache = tempfile::tempdir().unwrap();
        let boot = unpack_files(cache.path(), SMALL).unwrap();
        let elsewhere = cache.path().join("elsewhere.py");
        fs::write(&elsewhere, b"import inner").unwrap();
        fs::remove_file(&boot).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &boot).unwrap();
        unpack_files(cache.path(), SMALL).unwrap();
        assert!(fs::symlink_metadata(&boot).unwrap().is_file());
    }

    #[test]
    fn versions_have_folders_of_their_own() {
        let cache = tempfile::tempdir().unwrap();
        let one = unpack_files(cache.path(), SMALL).unwrap();
        let other = unpack_files(cache.path(), &[("boot.py", b"import other")]).unwrap();
        assert_ne!(one, other);
    }

    #[test]
    fn a_cache_that_is_a_file_is_an_error() {
        let cache = tempfile::NamedTempFile::new().unwrap();
        assert!(unpack_files(cache.path(), SMALL).is_err());
    }
}
