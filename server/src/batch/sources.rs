//! The current texts of a project: open documents first, then files on disk.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ridgeline_analysis::python::semantics::Project;

/// The maximum file size, in bytes. Source and configuration files are smaller.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The maximum number of files read for one request.
const MAX_FILES: usize = 512;

/// The texts of a project. Each file is read once.
#[derive(Debug)]
pub(crate) struct Sources {
    root: PathBuf,
    open: HashMap<PathBuf, Arc<str>>,
    read: Mutex<HashMap<String, Option<Arc<str>>>>,
}

impl Sources {
    /// The texts below `root`, which must have its links resolved. `open` are the editor's texts,
    /// by path.
    pub(crate) fn new(root: &Path, open: impl IntoIterator<Item = (PathBuf, Arc<str>)>) -> Sources {
        let open = open.into_iter().collect();
        Sources { root: root.to_owned(), open, read: Mutex::default() }
    }

    fn read(&self, path: &str) -> Option<Arc<str>> {
        let relative = Path::new(path);
        let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || path.contains('\0') {
            return None;
        }
        // A link may lead out of the project. Only the project's own files are read.
        let file = self.root.join(relative).canonicalize().ok()?;
        if !file.starts_with(&self.root) {
            return None;
        }
        if let Some(open) = self.open.get(&file) {
            return Some(open.clone());
        }
        let facts = file.metadata().ok().filter(|facts| facts.is_file());
        facts.filter(|facts| facts.len() <= MAX_FILE_BYTES)?;
        let mut text = String::new();
        File::open(&file).ok()?.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
        Some(text.into())
    }
}

impl Project for Sources {
    fn text(&self, path: &str) -> Option<Arc<str>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = read.get(path) {
            return known.clone();
        }
        if read.len() >= MAX_FILES {
            return None;
        }
        let text = self.read(path);
        read.insert(path.to_owned(), text.clone());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_texts_come_first_and_nothing_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("project");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a.py"), "disk").unwrap();
        std::fs::write(root.join("b.py"), "disk").unwrap();
        std::fs::write(folder.path().join("secret"), "outside").unwrap();
        let sources = Sources::new(&root, [(root.join("b.py"), "open".into())]);
        assert_eq!(sources.text("a.py").as_deref(), Some("disk"));
        assert_eq!(sources.text("b.py").as_deref(), Some("open"));
        assert_eq!(sources.text("../secret"), None);
        assert_eq!(sources.text("c.py"), None);
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(folder.path().join("secret"), root.join("link")).unwrap();
            assert_eq!(sources.text("link"), None);
        }
    }
}
