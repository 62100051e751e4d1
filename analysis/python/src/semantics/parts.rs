//! The files of a module. A script is one file. A notebook `train.ipynb` is one module whose files
//! are its code cells, `train.ipynb#1` and so on, one after the other.

use std::ops::Range;
use std::sync::Arc;

use super::Project;
use crate::syntax::cell_magics::python_of_cell;
use crate::syntax::lines::Lines;

/// The maximum number of code cells read from a notebook.
pub const MAX_CELLS: usize = 1024;
/// The maximum size of their code in bytes.
const MAX_BYTES: usize = 8 << 20;

/// One file of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Relative to the project, with `/` as separator.
    pub path: String,
    /// The byte range of its text in the module.
    pub span: Range<usize>,
    /// The number of lines of the module before it.
    pub lines_before: u32,
    /// The checksum of each line of its text ([`crate::fingerprint`]).
    pub fingerprint: Vec<u32>,
}

impl Part {
    /// The number of its lines.
    fn line_count(&self) -> u32 {
        u32::try_from(self.fingerprint.len()).unwrap_or(u32::MAX)
    }

    /// Converts a line of this file to one of the module. Both start at 1.
    pub fn line_in_module(&self, line: u32) -> u32 {
        self.lines_before.saturating_add(line)
    }

    /// Whether a line of the module is in this file.
    pub(super) fn has_line(&self, line: u32) -> bool {
        self.lines_before < line && line <= self.lines_before.saturating_add(self.line_count())
    }

    /// Whether an offset is in this file, or at its end.
    pub(super) fn has_offset(&self, offset: usize) -> bool {
        self.span.start <= offset && offset <= self.span.end
    }
}

/// Whether a path is that of a notebook.
pub fn is_notebook(path: &str) -> bool {
    path.ends_with(".ipynb")
}

/// Returns the path of a notebook for that of a cell: `train.ipynb` for `train.ipynb#3`.
pub fn notebook_of(path: &str) -> Option<&str> {
    let (notebook, number) = path.rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && is_notebook(notebook)).then_some(notebook)
}

/// Returns the code of a notebook and its cells; `None` if the project has none of them.
pub fn code_of_notebook(project: &dyn Project, path: &str) -> Option<(Arc<str>, Vec<Part>)> {
    let (mut code, mut parts, mut lines_before) = (String::new(), Vec::new(), 0_u32);
    for number in 1..=MAX_CELLS {
        let path = format!("{path}#{number}");
        let Some(cell) = project.text(&path) else { break };
        if code.len() + cell.len() > MAX_BYTES {
            break;
        }
        let start = code.len();
        code.push_str(&python_of_cell(&cell));
        let span = start..code.len();
        code.push('\n');
        let fingerprint = Lines::new(&cell).checksums().to_vec();
        let part = Part { path, span, lines_before, fingerprint };
        // A carriage return at the end and the line end after the cell are one.
        let lines = part.line_count() - u32::from(cell.ends_with('\r'));
        lines_before = lines_before.saturating_add(lines);
        parts.push(part);
    }
    (!parts.is_empty()).then(|| (code.into(), parts))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::Entry;
    use super::super::project::{Modules, file};
    use super::*;

    fn notebook() -> HashMap<String, Arc<str>> {
        let cells = ["import torch\n%time x = 1", "", "def f():\n    return x\n", "!ls\ny = f()"];
        let named = (1..).zip(cells).map(|(number, cell)| {
            let number: u32 = number;
            (format!("a/b.ipynb#{number}"), Arc::from(cell))
        });
        named.collect()
    }

    #[test]
    fn cells_are_one_module() {
        let entry = Entry { path: "a/b.ipynb".to_owned(), ..Entry::default() };
        let modules = Modules::read(&notebook(), &entry);
        let module = &modules.all[0];
        assert_eq!(modules.all.len(), 1);
        assert!(module.index.tree().is_some_and(|tree| !tree.root_node().has_error()));
        let targets: Vec<&str> = module.assignments.iter().map(|one| one.target.as_str()).collect();
        assert_eq!(targets, ["x", "y"]);
        let places: Vec<(String, u32)> =
            module.assignments.iter().map(|one| module.place(one.at.start)).collect();
        assert_eq!(places, [("a/b.ipynb#1".to_owned(), 2), ("a/b.ipynb#4".to_owned(), 2)]);
        assert_eq!(module.function("f", None), Some(0));
        let (at, part) = file(&modules.all, "a/b.ipynb#4").expect("the fourth cell");
        assert_eq!((at, part.line_in_module(2)), (0, 8));
        assert_eq!(module.place_of_line(8), ("a/b.ipynb#4".to_owned(), 2));
    }

    #[test]
    fn spans_of_cells() {
        let (code, parts) = code_of_notebook(&notebook(), "a/b.ipynb").expect("cells");
        for part in &parts {
            let cell = &notebook()[&part.path];
            assert_eq!(part.span.len(), cell.len());
            assert_eq!(code.get(part.span.clone()).map(str::len), Some(cell.len()));
        }
        assert_eq!(code_of_notebook(&notebook(), "b.ipynb"), None);
    }

    #[test]
    fn a_carriage_return_at_the_end_of_a_cell() {
        let cells = [("n.ipynb#1", "x = 1\r"), ("n.ipynb#2", "y = 2")];
        let texts: HashMap<String, Arc<str>> =
            cells.iter().map(|(path, text)| ((*path).to_owned(), Arc::from(*text))).collect();
        let entry = Entry { path: "n.ipynb".to_owned(), ..Entry::default() };
        let modules = Modules::read(&texts, &entry);
        let module = &modules.all[0];
        let places = module.assignments.iter().map(|one| module.place(one.at.start));
        let places: Vec<(String, u32)> = places.collect();
        assert_eq!(places, [("n.ipynb#1".to_owned(), 1), ("n.ipynb#2".to_owned(), 1)]);
    }

    #[test]
    fn paths() {
        assert_eq!(notebook_of("a/b.ipynb#12"), Some("a/b.ipynb"));
        for other in ["a/b.ipynb", "b.ipynb#", "b.ipynb#x", "b.py#1", "#1"] {
            assert_eq!(notebook_of(other), None);
        }
    }
}
