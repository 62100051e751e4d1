//! Notebooks on disk. In recordings and profiles, the third code cell of `train.ipynb` is the file
//! `train.ipynb#3`: the agent runs each cell as a file of its own.

use std::fs;
use std::path::{Path, PathBuf};

use ridgeline_analysis::python::syntax::cell_magics::python_of_cell;
use serde::Deserialize;

use crate::documents;

/// The extension of notebooks.
pub(crate) const EXTENSION: &str = "ipynb";

/// A notebook of nbformat 4, as far as it is read.
#[derive(Deserialize)]
struct Notebook {
    cells: Vec<Cell>,
}

#[derive(Deserialize)]
struct Cell {
    #[serde(default)]
    cell_type: serde_json::Value,
    #[serde(default)]
    source: serde_json::Value,
}

impl Cell {
    /// Returns the text of a code cell.
    fn code(&self) -> Option<String> {
        if self.cell_type != "code" {
            return None;
        }
        Some(match &self.source {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(parts) => {
                parts.iter().filter_map(serde_json::Value::as_str).collect()
            }
            _ => String::new(),
        })
    }
}

/// Returns whether a path is that of a notebook.
pub(crate) fn is_notebook(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
}

/// Splits `train.ipynb#3` into the notebook and the number of its code cell, from 1.
pub(crate) fn cell_of(path: &Path) -> Option<(PathBuf, usize)> {
    let name = path.file_name()?.to_str()?;
    let (notebook, number) = name.rsplit_once('#')?;
    let number = number.parse().ok().filter(|number| *number > 0)?;
    let notebook = path.with_file_name(notebook);
    is_notebook(&notebook).then_some((notebook, number))
}

/// Returns whether a document's path is that of a script, a module or a cell.
pub(crate) fn is_python(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "py") || cell_of(path).is_some()
}

/// Returns the file that a path is in: the notebook of a cell, else the path itself.
pub(crate) fn file_of(path: &Path) -> PathBuf {
    cell_of(path).map_or_else(|| path.to_owned(), |(notebook, _)| notebook)
}

/// Returns a path without symbolic links; for a cell, that of its notebook with the cell's number.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    let Some((notebook, number)) = cell_of(path) else { return documents::real_path(path) };
    let notebook = documents::real_path(&notebook);
    let name = notebook.file_name().unwrap_or_default().to_string_lossy();
    notebook.with_file_name(format!("{name}#{number}"))
}

/// Returns the texts of a notebook's code cells; `None` if it is no notebook.
pub(crate) fn cells(json: &str) -> Option<Vec<String>> {
    let notebook: Notebook = serde_json::from_str(json).ok()?;
    Some(notebook.cells.iter().filter_map(Cell::code).collect())
}

/// Returns whether a path is a file, or a cell of one.
pub(crate) fn is_file(path: &Path) -> bool {
    path.is_file() || cell_of(path).is_some_and(|(notebook, _)| notebook.is_file())
}

/// Reads a file of at most `limit` bytes. The text of a notebook is the Python code
/// of its cells.
pub(crate) fn read(path: &Path, limit: u64) -> Option<String> {
    match cell_of(path).filter(|_| !path.is_file()) {
        Some((notebook, number)) => cells_on_disk(&notebook, limit)?.into_iter().nth(number - 1),
        None if is_notebook(path) => {
            let cells = cells_on_disk(path, limit)?;
            let code: Vec<String> = cells.iter().map(|cell| python_of_cell(cell)).collect();
            Some(code.join("\n"))
        }
        None => text(path, limit),
    }
}

/// Reads the texts of the code cells of a notebook of at most `limit` bytes.
pub(crate) fn cells_on_disk(notebook: &Path, limit: u64) -> Option<Vec<String>> {
    cells(&text(notebook, limit)?)
}

fn text(file: &Path, limit: u64) -> Option<String> {
    let metadata = fs::metadata(file).ok()?;
    // Reading a named pipe would block forever.
    if !metadata.is_file() || metadata.len() > limit {
        return None;
    }
    Some(String::from_utf8_lossy(&fs::read(file).ok()?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTEBOOK: &str = r##"{"cells": [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": ["x = 1\n", "y = 2"], "outputs": [{}]},
        {"cell_type": "code", "source": "z = 3"},
        {"cell_type": "code"},
        {"source": 7}
    ], "nbformat": 4}"##;

    #[test]
    fn code_cells() {
        assert_eq!(cells(NOTEBOOK).expect("a notebook"), ["x = 1\ny = 2", "z = 3", ""]);
        for wrong in ["", "{}", "[]", "{\"cells\": 3}", &"[".repeat(100_000)] {
            assert_eq!(cells(wrong), None);
        }
    }

    #[test]
    fn paths_of_cells() {
        let check = |path: &str, expected: Option<(&str, usize)>| {
            let expected = expected.map(|(path, number)| (PathBuf::from(path), number));
            assert_eq!(cell_of(Path::new(path)), expected, "{path}");
        };
        check("a/train.ipynb#3", Some(("a/train.ipynb", 3)));
        check("a#1/b#2.ipynb#12", Some(("a#1/b#2.ipynb", 12)));
        for other in ["train.ipynb", "train.ipynb#", "train.ipynb#0", "train.py#1", "#1", ""] {
            check(other, None);
        }
    }

    #[test]
    fn files_and_cells_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("train.ipynb");
        fs::write(&path, NOTEBOOK).expect("a file");
        let cell = |number: usize| folder.path().join(format!("train.ipynb#{number}"));
        assert_eq!(read(&cell(2), 1000).as_deref(), Some("z = 3"));
        assert_eq!(read(&cell(4), 1000), None);
        assert_eq!(read(&path, 1000).as_deref(), Some("x = 1\ny = 2\nz = 3\n"));
        assert_eq!(read(&path, 10), None);
        assert!(is_file(&cell(1)) && is_file(&path) && !is_file(&folder.path().join("b.ipynb#1")));
    }
}
