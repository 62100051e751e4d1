//! What one Python text defines, read once: functions, classes, assignments, calls, imports.
//!
//! Positions are byte offsets, so that nothing borrows the tree: a [`Node`] is looked up again with
//! [`Module::node`].

use crate::syntax::kind::Kind;
use std::ops::Range;

use tree_sitter::{Node, Tree};

use super::arena::Arena;
use crate::SourceIndex;
use crate::syntax::imports::{Import, imports};

/// Definitions of one text beyond this many are not read: no person writes as many.
const MOST: usize = 50_000;
/// Of a text that is nested deeper, nothing is read: looking a node up goes through all that is around
/// it, and no person writes so. A call within a call is two levels more.
const DEEPEST: usize = 500;

/// The bytes of a node.
pub type Span = Range<usize>;

/// A function; a lambda is none.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub span: Span,
    pub body: Span,
    /// The class around it, as an index into [`Module::classes`].
    pub class: Option<usize>,
    /// The function around it, as an index into [`Module::functions`].
    pub outer: Option<usize>,
    pub parameters: Arena<Parameter>,
    pub decorators: Vec<Span>,
    /// What its `return` statements give, and whether it has a `yield` of its own.
    pub returns: Vec<Span>,
    pub yields: bool,
}

#[derive(Clone, Debug)]
pub struct Parameter {
    pub name: String,
    pub default: Option<Span>,
    pub annotation: Option<Span>,
    /// `*args` and `**kwargs`.
    pub is_rest: bool,
    /// It stands behind a lone `*` or a `*args`.
    pub by_name: bool,
}

#[derive(Clone, Debug)]
pub struct Class {
    pub name: String,
    pub span: Span,
    pub bases: Vec<Span>,
}

/// `target = value`, also with an annotation, in a `with … as`, as a walrus, or one name of many.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// As it is written: `batch_size`, `args.batch_size`, `config["batch_size"]`.
    pub target: String,
    pub at: Span,
    pub value: Span,
    /// The place of the target in a tuple, where the value is not one itself.
    pub element: Option<usize>,
    /// `x *= 2` and the like.
    pub is_augmented: bool,
    /// The annotation, where there is one.
    pub annotation: Option<Span>,
    /// The function and the class directly around it.
    pub function: Option<usize>,
    pub class: Option<usize>,
    /// The `if` branches that it stands in, outermost first.
    pub branches: Vec<Branch>,
}

/// One way at an `if`: the condition, and whether it has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    pub condition: Span,
    pub holds: bool,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub span: Span,
    /// As it is written: `torch.utils.data.DataLoader`.
    pub callee: String,
    pub function: Option<usize>,
    pub branches: Vec<Branch>,
}

impl Call {
    /// `DataLoader` of `torch.utils.data.DataLoader`.
    pub fn name(&self) -> &str {
        last_name(&self.callee)
    }
}

/// The last part of a dotted name.
pub fn last_name(dotted: &str) -> &str {
    dotted.rsplit('.').next().unwrap_or(dotted)
}

/// A loop: the `for`'s iterable, or a `while`'s condition.
#[derive(Clone, Debug)]
pub struct Loop {
    pub span: Span,
    /// Of a `for`.
    pub iterable: Option<Span>,
    pub function: Option<usize>,
}

/// One text with what it defines.
#[derive(Debug)]
pub struct Module {
    /// Relative to the project, `/` between.
    pub path: String,
    pub index: SourceIndex,
    pub functions: Arena<Function>,
    pub classes: Arena<Class>,
    pub assignments: Vec<Assignment>,
    pub calls: Vec<Call>,
    pub loops: Vec<Loop>,
    pub imports: Vec<Import>,
    /// `(name here, module, name there)` of `from module import name as name here`, and
    /// `(name here, module, "")` of `import module as name here`; a relative module begins with its dots.
    pub names: Vec<(String, String, String)>,
}

impl Module {
    /// Reads a text.
    pub fn new(path: &str, text: std::sync::Arc<str>) -> Module {
        let index = SourceIndex::new(text);
        let imports = imports(&index);
        let mut module = Module {
            path: path.to_owned(),
            index,
            functions: Arena::default(),
            classes: Arena::default(),
            assignments: Vec::new(),
            calls: Vec::new(),
            loops: Vec::new(),
            imports,
            names: Vec::new(),
        };
        if module.index.tree().is_some_and(|tree| !is_deeper(tree, DEEPEST)) {
            super::gather::gather(&mut module);
        }
        module
    }

    /// What stands there.
    pub fn text(&self, span: &Span) -> &str {
        self.index.text().get(span.clone()).unwrap_or_default()
    }

    /// The line of an offset, counted from 1.
    pub fn line(&self, offset: usize) -> u32 {
        self.index.lines().line_of(offset)
    }

    /// The node that has these bytes: the outermost one where several do.
    pub fn node(&self, span: &Span) -> Option<Node<'_>> {
        let root = self.index.tree()?.root_node();
        let mut node = root.descendant_for_byte_range(span.start, span.end)?;
        while let Some(parent) = node.parent().filter(|parent| parent.byte_range() == *span) {
            let is_more =
                matches!(Kind::of(&parent), Kind::Module | Kind::WithItem | Kind::WithClause);
            if is_more || parent.kind().ends_with("_statement") {
                break;
            }
            node = parent;
        }
        (node.byte_range() == *span).then_some(node)
    }

    /// The innermost function around an offset.
    pub fn function_at(&self, offset: usize) -> Option<usize> {
        // Functions are in the order in which they begin, so that the last around it is innermost.
        let around = |function: &Function| function.span.contains(&offset);
        self.functions.iter().rposition(around)
    }

    /// The innermost class around an offset.
    pub fn class_at(&self, offset: usize) -> Option<usize> {
        self.classes.iter().rposition(|class| class.span.contains(&offset))
    }

    /// The function of that name outside of classes, or the method where a class is given.
    pub fn function(&self, name: &str, class: Option<usize>) -> Option<usize> {
        self.functions.iter().rposition(|function| function.name == name && function.class == class)
    }

    /// The class of that name.
    pub fn class(&self, name: &str) -> Option<usize> {
        self.classes.iter().rposition(|class| class.name == name)
    }

    /// Whether there is room for more.
    pub fn is_full(&self) -> bool {
        self.assignments.len() + self.calls.len() + self.functions.len() > MOST
    }
}

/// Whether some node of a tree has more than so many around it.
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
