//! The measured what-ifs of a project, oldest first, one per line. They are stored with the history
//! of its runs, because neither can be recreated. An entry contains numbers, the device and
//! PyTorch's version, and nothing that identifies the machine or the folder.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ridgeline_analysis::optimize::accuracy::{Pair, VERSION};
use ridgeline_analysis::profile::Device;

use crate::store::{Store, StoreError, create_private, write_atomic};

/// The maximum number of stored entries.
const MAX_ENTRIES: usize = 200;
/// The maximum size of the file, in bytes. A larger file is not ours.
const READ_LIMIT: u64 = 1 << 20;

/// Adds a pair to the file of the project at `root`.
///
/// # Errors
/// If the state folder cannot be written.
pub(crate) fn add(store: &Store, root: &Path, pair: &Pair) -> Result<(), StoreError> {
    let folder = store.workspace_state(root);
    create_private(&folder)?;
    let file = file_in(&folder);
    let mut pairs = read(store, root);
    pairs.truncate(MAX_ENTRIES - 1);
    let lines: Result<Vec<String>, _> =
        pairs.iter().rev().chain([pair]).map(serde_json::to_string).collect();
    let lines = lines.map_err(|error| StoreError::at(&file, error.into()))?;
    write_atomic(&file, format!("{}\n", lines.join("\n")).as_bytes())
}

/// The pairs of a project, newest first. Unreadable entries are skipped.
pub(crate) fn read(store: &Store, root: &Path) -> Vec<Pair> {
    let text = text(&file_in(&store.workspace_state(root)));
    text.lines().rev().filter_map(parse).take(MAX_ENTRIES).collect()
}

/// The pairs that were measured on this device, newest first. Results do not transfer between
/// devices, nor from a simulated device to the real one.
pub(crate) fn read_of_device(store: &Store, root: &Path, device: &Device) -> Vec<Pair> {
    let name = device.display_name();
    read(store, root).into_iter().filter(|pair| pair.device == name).collect()
}

fn file_in(folder: &Path) -> PathBuf {
    folder.join("what-ifs.jsonl")
}

fn text(file: &Path) -> String {
    let is_ours =
        fs::metadata(file).is_ok_and(|facts| facts.is_file() && facts.len() <= READ_LIMIT);
    let mut bytes = Vec::new();
    if is_ours && let Ok(file) = File::open(file) {
        // A partly read file is not used.
        let read = file.take(READ_LIMIT).read_to_end(&mut bytes);
        read.inspect_err(|why| tracing::warn!("measured what-ifs cannot be read: {why}")).ok();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn parse(line: &str) -> Option<Pair> {
    serde_json::from_str::<Pair>(line).ok().filter(|pair| pair.version == VERSION)
}

#[cfg(test)]
mod tests {
    use ridgeline_analysis::optimize::accuracy::Sides;

    use super::*;

    fn pair(when_unix_ms: u64) -> Pair {
        let sides = Sides { before_ns: 2.0, after_ns: 1.0, ..Sides::default() };
        Pair {
            version: VERSION,
            name: "compile".to_owned(),
            when_unix_ms,
            predicted: sides,
            measured: sides,
            ..Pair::default()
        }
    }

    #[test]
    fn a_simulated_device_has_separate_pairs() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::at(folder.path().join("cache"), folder.path().join("state"));
        let root = Path::new("/nowhere/project");
        let device = |is_simulated| Device {
            name: "NVIDIA H100".to_owned(),
            is_simulated,
            ..Device::default()
        };
        for (when, is_simulated) in [(1, false), (2, true)] {
            let device = device(is_simulated).display_name().into_owned();
            add(&store, root, &Pair { device, ..pair(when) }).expect("written");
        }
        for (is_simulated, when) in [(false, 1), (true, 2)] {
            let found = read_of_device(&store, root, &device(is_simulated));
            assert_eq!(found.iter().map(|pair| pair.when_unix_ms).collect::<Vec<_>>(), [when]);
        }
    }

    #[test]
    fn pairs_are_stored_newest_first_and_limited() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::at(folder.path().join("cache"), folder.path().join("state"));
        let root = Path::new("/nowhere/project");
        assert_eq!(read(&store, root), []);
        for when in 0..250 {
            add(&store, root, &pair(when)).expect("written");
        }
        let pairs = read(&store, root);
        assert_eq!(pairs.len(), MAX_ENTRIES);
        assert_eq!(pairs[0], pair(249));
        assert_eq!(read(&store, Path::new("/another/project")), []);
        let file = file_in(&store.workspace_state(root));
        assert!(!fs::read_to_string(&file).expect("text").contains("nowhere"));

        // Another version, a foreign line, and a truncated line.
        let other = serde_json::to_string(&Pair { version: 9, ..pair(300) }).expect("JSON");
        let own = serde_json::to_string(&pair(301)).expect("JSON");
        fs::write(&file, format!("{other}\n[]\n{own}\n{}", &own[..20])).expect("written");
        assert_eq!(read(&store, root), [pair(301)]);
        fs::write(&file, vec![b'x'; 3 << 20]).expect("written");
        assert_eq!(read(&store, root), []);
    }
}
