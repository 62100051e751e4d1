//! The definitions of one Python file: functions, classes, assignments, calls, imports.
//!
//! Positions are byte offsets, so that nothing borrows the tree: look a [`Node`] up again with
//! [`Module::node`].

use crate::syntax::kind::Kind;
use std::ops::Range;
use std::sync::Arc;

use tree_sitter::{Node, Tree};

use super::Project;
use super::arena::Arena;
use super::parts::{Part, code_of_notebook, is_notebook};
use crate::SourceIndex;
use crate::syntax::imports::{Import, imports};

/// The maximum number of definitions read from a file. No hand-written file has more.
const MAX_DEFINITIONS: usize = 50_000;
/// The maximum nesting depth. Nothing is read from a file with deeper nesting, because looking up a
/// node goes through all its ancestors, and no hand-written file is nested so deeply. A nested call
/// adds two levels.
const MAX_DEPTH: usize = 500;

/// The byte range of a node.
pub type Span = Range<usize>;

/// A function, but not a lambda.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub span: Span,
    pub body: Span,
    /// The enclosing class, as an index into [`Module::classes`].
    pub class: Option<usize>,
    /// The enclosing function, as an index into [`Module::functions`].
    pub outer: Option<usize>,
    pub parameters: Arena<Parameter>,
    pub decorators: Vec<Span>,
    /// The values of its `return` statements, and whether it has its own `yield`.
    pub returns: Vec<Span>,
    pub yields: bool,
}

#[derive(Clone, Debug)]
pub struct Parameter {
    pub name: String,
    pub default: Option<Span>,
    pub annotation: Option<Span>,
    /// Whether it is `*args` or `**kwargs`.
    pub is_rest: bool,
    /// Whether it is keyword-only: after `*` or `*args`.
    pub by_name: bool,
}

#[derive(Clone, Debug)]
pub struct Class {
    pub name: String,
    pub span: Span,
    pub bases: Vec<Span>,
}

/// `target = value`, also with an annotation, in a `with … as`, as a walrus, or one name of a
/// tuple.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// As written: `batch_size`, `args.batch_size`, `config["batch_size"]`.
    pub target: String,
    pub at: Span,
    pub value: Span,
    /// The index of the target in a tuple, if the value is not a tuple itself.
    pub element: Option<usize>,
    /// Whether it is `x *= 2` or similar.
    pub is_augmented: bool,
    pub annotation: Option<Span>,
    /// The directly enclosing function and class.
    pub function: Option<usize>,
    pub class: Option<usize>,
    /// The `if` branches that contain it, outermost first.
    pub branches: Vec<Branch>,
}

/// One branch of an `if`: the condition, and whether it has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    pub condition: Span,
    pub holds: bool,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub span: Span,
    /// As written: `torch.utils.data.DataLoader`.
    pub callee: String,
    pub function: Option<usize>,
    pub branches: Vec<Branch>,
}

impl Call {
    /// `DataLoader` for `torch.utils.data.DataLoader`.
    pub fn name(&self) -> &str {
        last_name(&self.callee)
    }
}

/// The last part of a dotted name.
pub fn last_name(dotted: &str) -> &str {
    dotted.rsplit('.').next().unwrap_or(dotted)
}

/// A `for` or `while` loop.
#[derive(Clone, Debug)]
pub struct Loop {
    pub span: Span,
    /// Only for a `for`.
    pub iterable: Option<Span>,
    pub function: Option<usize>,
}

/// A file or a notebook, and its definitions.
#[derive(Debug)]
pub struct Module {
    /// Relative to the project, with `/` as separator.
    pub path: String,
    /// The text; of a notebook the code of all cells.
    pub index: SourceIndex,
    /// The file, or the cells of the notebook.
    pub parts: Vec<Part>,
    pub functions: Arena<Function>,
    pub classes: Arena<Class>,
    pub assignments: Vec<Assignment>,
    pub calls: Vec<Call>,
    pub loops: Vec<Loop>,
    pub imports: Vec<Import>,
    /// `(local name, module, original name)` for `from module import name as name`, and `(local
    /// name, module, "")` for `import module as name`; a relative module starts with its dots.
    pub names: Vec<(String, String, String)>,
}

impl Module {
    /// Parses a file.
    pub fn new(path: &str, text: Arc<str>) -> Module {
        let index = SourceIndex::new(text);
        let part = Part {
            path: path.to_owned(),
            span: 0..index.text().len(),
            lines_before: 0,
            fingerprint: index.lines().checksums().to_vec(),
        };
        Module::of_parts(path, index, vec![part])
    }

    /// Reads and parses a file or notebook of a project.
    pub fn read(project: &dyn Project, path: &str) -> Option<Module> {
        if !is_notebook(path) {
            return Some(Module::new(path, project.text(path)?));
        }
        let (code, parts) = code_of_notebook(project, path)?;
        Some(Module::of_parts(path, SourceIndex::new(code), parts))
    }

    fn of_parts(path: &str, index: SourceIndex, parts: Vec<Part>) -> Module {
        let imports = imports(&index);
        let mut module = Module {
            path: path.to_owned(),
            index,
            parts,
            functions: Arena::default(),
            classes: Arena::default(),
            assignments: Vec::new(),
            calls: Vec::new(),
            loops: Vec::new(),
            imports,
            names: Vec::new(),
        };
        if module.index.tree().is_some_and(|tree| !is_deeper(tree, MAX_DEPTH)) {
            super::gather::gather(&mut module);
        }
        module
    }

    /// The text of a byte range.
    pub fn text(&self, span: &Span) -> &str {
        self.index.text().get(span.clone()).unwrap_or_default()
    }

    /// The 1-based line of an offset.
    pub fn line(&self, offset: usize) -> u32 {
        self.index.lines().line_of(offset)
    }

    /// The file that an offset is in.
    pub fn part_at(&self, offset: usize) -> Option<&Part> {
        let after = self.parts.partition_point(|part| part.span.start <= offset);
        self.parts.get(after.checked_sub(1)?).filter(|part| part.has_offset(offset))
    }

    /// The file and the 1-based line in it that an offset is on.
    pub fn place(&self, offset: usize) -> (String, u32) {
        self.place_of_line(self.line(offset))
    }

    /// The file of a line, and the line in it.
    pub fn place_of_line(&self, line: u32) -> (String, u32) {
        let after = self.parts.partition_point(|part| part.lines_before < line);
        let part = after.checked_sub(1).and_then(|at| self.parts.get(at));
        match part.filter(|part| part.has_line(line)) {
            Some(part) => (part.path.clone(), line - part.lines_before),
            None => (self.path.clone(), line),
        }
    }

    /// The place of an offset for a person: `train.py:12`.
    pub fn described(&self, offset: usize) -> String {
        let (file, line) = self.place(offset);
        format!("{file}:{line}")
    }

    /// The node with this byte range; the outermost one if there are several.
    pub fn node(&self, span: &Span) -> Option<Node<'_>> {
        let root = self.index.tree()?.root_node();
        let mut node = root.descendant_for_byte_range(span.start, span.end)?;
        while let Some(parent) = node.parent().filter(|parent| parent.byte_range() == *span) {
            let has_other_role =
                matches!(Kind::of(&parent), Kind::Module | Kind::WithItem | Kind::WithClause);
            if has_other_role || parent.kind().ends_with("_statement") {
                break;
            }
            node = parent;
        }
        (node.byte_range() == *span).then_some(node)
    }

    /// The innermost function around an offset.
    pub fn function_at(&self, offset: usize) -> Option<usize> {
        // Functions are in the order of their starts, so the last one around the offset is the
        // innermost.
        let around = |function: &Function| function.span.contains(&offset);
        self.functions.iter().rposition(around)
    }

    /// The innermost class around an offset.
    pub fn class_at(&self, offset: usize) -> Option<usize> {
        self.classes.iter().rposition(|class| class.span.contains(&offset))
    }

    /// The function with this name outside of classes, or the method of `class`.
    pub fn function(&self, name: &str, class: Option<usize>) -> Option<usize> {
        self.functions.iter().rposition(|function| function.name == name && function.class == class)
    }

    /// The class with this name.
    pub fn class(&self, name: &str) -> Option<usize> {
        self.classes.iter().rposition(|class| class.name == name)
    }

    /// Whether the limit of definitions is reached.
    pub fn is_full(&self) -> bool {
        self.assignments.len() + self.calls.len() + self.functions.len() > MAX_DEFINITIONS
    }
}

/// Whether a tree is nested more deeply than `limit`.
fn is_deeper(tree: &Tree, limit: usize) -> bool {
    let mut cursor = tree.walk();
    let mut depth = 0;
    loop {
        if cursor.goto_first_child() {
            depth += 1;
            if depth > limit {
                return true;
            }
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return false;
            }
            depth -= 1;
        }
    }
}
