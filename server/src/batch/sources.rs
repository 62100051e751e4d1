//! The current texts of a project: open documents first, then files on disk. A notebook's texts are
//! its code cells, `train.ipynb#1` and so on.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ridgeline_analysis::python::semantics::Project;
use ridgeline_analysis::python::semantics::parts::{MAX_CELLS, notebook_of};

use crate::documents::SIZE_LIMIT;
use crate::notebook;

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
    /// The cells of notebooks.
    notebooks: Mutex<HashMap<String, Vec<Arc<str>>>>,
}

impl Sources {
    /// The texts below `root`, which must have its links resolved. `open` are the editor's texts,
    /// by path.
    pub(crate) fn new(root: &Path, open: impl IntoIterator<Item = (PathBuf, Arc<str>)>) -> Sources {
        let open = open.into_iter().collect();
        Sources { root: root.to_owned(), open, read: Mutex::default(), notebooks: Mutex::default() }
    }

    /// The path of one of the project's own files without links, which may lead out of the project.
    fn resolve(&self, path: &str) -> Option<PathBuf> {
        let relative = Path::new(path);
        let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || path.contains('\0') {
            return None;
        }
        let file = self.root.join(relative).canonicalize().ok()?;
        file.starts_with(&self.root).then_some(file)
    }

    /// The code cells of a notebook: of the editor if it has any, else of the disk.
    fn cells(&self, notebook: &str) -> Vec<Arc<str>> {
        let Some(file) = self.resolve(notebook) else { return Vec::new() };
        let mut open: Vec<Arc<str>> = Vec::new();
        for (path, text) in &self.open {
            let Some((of, number)) = notebook::cell_of(path) else { continue };
            if of == file && number <= MAX_CELLS {
                // A cell in another language is not open as Python.
                open.resize(open.len().max(number), "".into());
                if let Some(cell) = open.get_mut(number - 1) {
                    *cell = text.clone();
                }
            }
        }
        if !open.is_empty() {
            return open;
        }
        let cells = notebook::cells_on_disk(&file, SIZE_LIMIT as u64).unwrap_or_default();
        cells.into_iter().take(MAX_CELLS).map(Arc::from).collect()
    }

    /// The text of `train.ipynb#3`.
    fn cell(&self, notebook: &str, path: &str) -> Option<Arc<str>> {
        let (_, number) = notebook::cell_of(Path::new(path))?;
        let mut notebooks = self.notebooks.lock().unwrap_or_else(PoisonError::into_inner);
        if !notebooks.contains_key(notebook) {
            if notebooks.len() >= MAX_FILES {
                return None;
            }
            notebooks.insert(notebook.to_owned(), self.cells(notebook));
        }
        notebooks.get(notebook)?.get(number - 1).cloned()
    }

    /// All code cells of the notebook of a cell, with their paths. None for other files.
    pub(crate) fn cells_beside(&self, path: &str) -> Vec<(String, Arc<str>)> {
        let Some(notebook) = notebook_of(path) else { return Vec::new() };
        let named = (1..=MAX_CELLS).map(|number| format!("{notebook}#{number}"));
        named.map_while(|path| Some((path.clone(), self.text(&path)?))).collect()
    }

    fn read(&self, path: &str) -> Option<Arc<str>> {
        let file = self.resolve(path)?;
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
        if let Some(notebook) = notebook_of(path) {
            return self.cell(notebook, path);
        }
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
    fn cells_of_the_editor_replace_all_of_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let cell = |text: &str| serde_json::json!({"cell_type": "code", "source": text});
        let saved = serde_json::json!({"cells": [cell("a"), cell("b"), cell("c")]});
        std::fs::write(root.join("n.ipynb"), saved.to_string()).unwrap();
        let texts = |sources: &Sources| -> Vec<Option<Arc<str>>> {
            (1..5).map(|number| sources.text(&format!("n.ipynb#{number}"))).collect()
        };
        let all = |cells: &[&str]| -> Vec<Option<Arc<str>>> {
            (0..4).map(|at| cells.get(at).map(|cell| Arc::from(*cell))).collect()
        };
        assert_eq!(texts(&Sources::new(&root, [])), all(&["a", "b", "c"]));
        // The third was deleted, and the first is not in Python.
        let open =
            [(root.join("n.ipynb#2"), "x".into()), (root.join("n.ipynb#9999999"), "".into())];
        assert_eq!(texts(&Sources::new(&root, open)), all(&["", "x"]));
        assert_eq!(Sources::new(&root, []).text("other.ipynb#1"), None);
        assert_eq!(Sources::new(&root, []).text("../n.ipynb#1"), None);
    }

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
