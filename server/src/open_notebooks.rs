//! The notebooks that are open in the editor. Each of their code cells is a document, whose file is
//! that of the cell in profiles: `train.ipynb#3` (see [`crate::notebook`]).

use std::collections::HashMap;
use std::path::PathBuf;

use crate::documents::DocumentId;
use crate::scheduler::Reason;
use crate::state::{GlobalState, Saved};

/// The maximum number of cells of a notebook, and of open notebooks.
const LIMIT: usize = 4096;

/// A cell as the client describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub document: DocumentId,
    /// Whether it is a code cell rather than text.
    pub is_code: bool,
}

/// A text that the client opens along with a notebook.
#[derive(Clone, Debug)]
pub(crate) struct OpenedCell {
    pub id: DocumentId,
    pub uri: String,
    pub text: String,
    pub version: i32,
}

/// An open notebook.
#[derive(Clone, Debug)]
struct OpenNotebook {
    /// Its file, without symbolic links.
    path: PathBuf,
    cells: Vec<Cell>,
}

/// All open notebooks, by URI.
#[derive(Debug, Default)]
pub(crate) struct OpenNotebooks {
    open: HashMap<String, OpenNotebook>,
}

impl OpenNotebooks {
    /// Replaces the cells of a notebook.
    fn set(&mut self, uri: String, path: PathBuf, mut cells: Vec<Cell>) {
        cells.truncate(LIMIT);
        if self.open.len() < LIMIT || self.open.contains_key(&uri) {
            self.open.insert(uri, OpenNotebook { path, cells });
        }
    }

    /// Replaces a part of a notebook's cells. A part beyond its end is added there. Returns the
    /// replaced cells.
    fn splice(&mut self, uri: &str, start: usize, deleted: usize, cells: Vec<Cell>) -> Vec<Cell> {
        let Some(notebook) = self.open.get_mut(uri) else { return Vec::new() };
        let start = start.min(notebook.cells.len());
        let end = start.saturating_add(deleted).min(notebook.cells.len());
        let replaced = notebook.cells.splice(start..end, cells).collect();
        notebook.cells.truncate(LIMIT);
        replaced
    }

    /// Returns the file of each code cell of a notebook.
    fn files(&self, uri: &str) -> Vec<(DocumentId, PathBuf)> {
        let Some(notebook) = self.open.get(uri) else { return Vec::new() };
        let name = notebook.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let code = notebook.cells.iter().filter(|cell| cell.is_code);
        code.zip(1..)
            .map(|(cell, number): (_, usize)| {
                let file = notebook.path.with_file_name(format!("{name}#{number}"));
                (cell.document.clone(), file)
            })
            .collect()
    }
}

impl GlobalState {
    /// Opens a notebook, or replaces the cells of one. Only Python cells are opened as documents.
    pub(crate) fn notebook_opened(
        &mut self,
        uri: String,
        path: PathBuf,
        cells: Vec<Cell>,
        texts: Vec<OpenedCell>,
    ) {
        let path = self.disk.real_path(&path);
        self.notebooks.set(uri.clone(), path, cells);
        self.open_cells(&uri, texts);
    }

    /// Applies a change of a notebook's list of cells.
    pub(crate) fn cells_changed(
        &mut self,
        uri: &str,
        start: usize,
        deleted: usize,
        cells: Vec<Cell>,
        texts: Vec<OpenedCell>,
    ) {
        // A client may leave a deleted cell open. Another cell now has its number.
        for cell in self.notebooks.splice(uri, start, deleted, cells) {
            self.documents.set_real(&cell.document, None);
        }
        self.open_cells(uri, texts);
    }

    /// Opens texts, and gives all cells of the notebook their files: their numbers may have changed.
    fn open_cells(&mut self, uri: &str, texts: Vec<OpenedCell>) {
        let files: HashMap<DocumentId, PathBuf> = self.notebooks.files(uri).into_iter().collect();
        for (id, file) in &files {
            self.documents.set_real(id, Some(file));
        }
        for OpenedCell { id, uri, text, version } in texts {
            let real = files.get(&id).cloned();
            self.opened_as(id.clone(), uri, real, text);
            self.documents.set_version(&id, version);
        }
        self.mark_stale();
        if let Some(file) = files.into_values().next() {
            self.schedule_reading(&file, false);
        }
    }

    /// Runs the program once, however many cells the notebook has.
    pub(crate) fn notebook_saved(&mut self, uri: &str) {
        let Some(path) = self.notebooks.open.get(uri).map(|notebook| notebook.path.clone()) else {
            return;
        };
        for (id, _) in self.notebooks.files(uri) {
            self.documents.catch_up(&id);
            if let Some(document) = self.documents.get(&id) {
                let saved = Saved::of(document, false);
                self.saved.insert(id, saved);
            }
        }
        self.last_touched = Some(path.clone());
        if self.settings.run_on_save
            && let Some(id) = self.workspaces.around(&path)
        {
            self.request_run(id, Reason::Saved(path));
        }
    }

    /// Closes a notebook. Its cells are closed as documents.
    pub(crate) fn notebook_closed(&mut self, uri: &str) {
        self.notebooks.open.remove(uri);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(kinds: &str) -> Vec<Cell> {
        let cell = |(at, kind)| Cell {
            document: DocumentId::Other(format!("{kind}{at}")),
            is_code: kind == 'c',
        };
        kinds.chars().enumerate().map(cell).collect()
    }

    fn shown(notebooks: &OpenNotebooks) -> Vec<String> {
        let files = notebooks.files("n").into_iter();
        files.map(|(id, file)| format!("{id:?} {}", file.display())).collect()
    }

    #[test]
    fn code_cells_are_numbered() {
        let mut notebooks = OpenNotebooks::default();
        notebooks.set("n".into(), "/w/a.ipynb".into(), cells("mccm"));
        assert_eq!(
            shown(&notebooks),
            [r#"Other("c1") /w/a.ipynb#1"#, r#"Other("c2") /w/a.ipynb#2"#]
        );
        // A code cell before them, and the last two are deleted.
        notebooks.splice("n", 0, 0, cells("c"));
        notebooks.splice("n", 3, 9, Vec::new());
        assert_eq!(
            shown(&notebooks),
            [r#"Other("c0") /w/a.ipynb#1"#, r#"Other("c1") /w/a.ipynb#2"#]
        );
        notebooks.splice("n", 1_000_000, usize::MAX, cells("c"));
        assert_eq!(shown(&notebooks).len(), 3);
        notebooks.splice("other", 0, 1, Vec::new());
        notebooks.splice("n", 0, usize::MAX, cells(&"c".repeat(5000)));
        assert_eq!(shown(&notebooks).len(), LIMIT);
    }
}
