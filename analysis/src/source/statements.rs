//! The statements and scopes of a text.

use std::ops::Range;
use std::sync::LazyLock;

use tree_sitter::{Node, Tree};

use super::lines::Lines;
use super::parse::language;

/// What a statement is, as far as costs care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// Anything without a body.
    Simple,
    /// `for …:`
    For,
    /// `while …:`
    While,
    /// `def …:`, its decorators included.
    Function,
    /// `class …:`, its decorators included.
    Class,
    /// `if`, `with`, `try`, `match`, and their `elif`, `else`, `except`, `finally`, `case`.
    Block,
}

/// One statement; for a compound statement, its header alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// What it is.
    pub kind: StatementKind,
    /// Its bytes; of a compound statement up to and including the colon. Headers never overlap.
    pub header: Range<usize>,
    /// Where its body ends; of a simple statement, where it ends.
    pub end: usize,
    /// The line of its first byte, counted from 1.
    pub first_line: u32,
    /// The line of the last byte of `header`, counted from 1.
    pub last_line: u32,
    /// Index of the scope that it stands in.
    pub scope: u32,
    /// It could not be parsed as it stands, so its lines may belong to several statements.
    pub broken: bool,
}

/// What kind of scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeKind {
    /// The whole text.
    File,
    /// A function or method.
    Function,
    /// A class.
    Class,
}

/// A function, a class, or the whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// What it is.
    pub kind: ScopeKind,
    /// The bytes of its name; empty for the text itself and for a name not yet typed.
    pub name: Range<usize>,
    /// Its bytes, decorators included.
    pub span: Range<usize>,
    /// The scope around it; nothing for the text itself.
    pub parent: Option<u32>,
    /// Index of the `def` or `class` statement; nothing for the text itself.
    pub statement: Option<usize>,
}

/// The statements, sorted and with headers that do not overlap, and the scopes, parents before
/// children. The first scope is the text itself.
///
/// Only nodes that hold statements are entered, never an expression, and without recursion.
pub(super) fn find(tree: Option<&Tree>, lines: &Lines, len: usize) -> (Vec<Statement>, Vec<Scope>) {
    let mut walk = Walk {
        lines,
        statements: Vec::new(),
        scopes: vec![Scope {
            kind: ScopeKind::File,
            name: 0..0,
            span: 0..len,
            parent: None,
            statement: None,
        }],
        open: vec![Open { statement: None, scope: 0, header_known: true, decorators_start: None }],
    };
    if let Some(tree) = tree {
        walk.tree(tree);
    }
    (walk.statements, walk.scopes)
}

/// A node that was entered.
#[derive(Clone, Copy)]
struct Open {
    /// The compound statement that it belongs to.
    statement: Option<usize>,
    scope: u32,
    /// The statement's colon was seen.
    header_known: bool,
    /// Of a decorated definition: where its decorators begin.
    decorators_start: Option<usize>,
}

struct Walk<'a> {
    lines: &'a Lines,
    statements: Vec<Statement>,
    scopes: Vec<Scope>,
    /// One for each node between the root and the cursor, the root included.
    open: Vec<Open>,
}

impl Walk<'_> {
    fn tree(&mut self, tree: &Tree) {
        let mut cursor = tree.walk();
        if !cursor.goto_first_child() {
            return;
        }
        loop {
            if self.enter(cursor.node()) {
                if cursor.goto_first_child() {
                    continue;
                }
                self.leave();
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() || self.open.len() <= 1 {
                    return;
                }
                self.leave();
            }
        }
    }

    /// Takes a node in; true where its children are to be visited.
    fn enter(&mut self, node: Node<'_>) -> bool {
        let Some(&parent) = self.open.last() else { return false };
        match KINDS.of(&node) {
            Kind::Other => false,
            Kind::Colon => {
                if !parent.header_known
                    && let Some(open) = self.open.last_mut()
                {
                    open.header_known = true;
                    self.end_header(parent.statement, node.end_byte());
                }
                false
            }
            Kind::Container => {
                self.open.push(Open { header_known: true, decorators_start: None, ..parent });
                true
            }
            Kind::Decorated => {
                let decorators_start = Some(node.start_byte());
                self.open.push(Open { decorators_start, header_known: true, ..parent });
                true
            }
            Kind::Statement(StatementKind::Simple) => {
                self.add(node, parent, StatementKind::Simple);
                false
            }
            Kind::Statement(kind) => {
                let statement = self.add(node, parent, kind);
                let scope = match kind {
                    StatementKind::Function => {
                        self.scope(node, parent, ScopeKind::Function, statement)
                    }
                    StatementKind::Class => self.scope(node, parent, ScopeKind::Class, statement),
                    _ => parent.scope,
                };
                self.open.push(Open {
                    statement: Some(statement),
                    scope,
                    header_known: false,
                    decorators_start: None,
                });
                true
            }
        }
    }

    fn leave(&mut self) {
        // Where no colon was found the header stays what the node was, up to its first statement.
        self.open.pop();
    }

    fn add(&mut self, node: Node<'_>, parent: Open, kind: StatementKind) -> usize {
        let start = parent.decorators_start.unwrap_or(node.start_byte());
        if !parent.header_known {
            // The colon is missing, or error recovery put it elsewhere.
            self.end_header(parent.statement, start);
            if let Some(open) = self.open.last_mut() {
                open.header_known = true;
            }
        }
        let end = node.end_byte().max(start);
        self.statements.push(Statement {
            kind,
            header: start..end,
            end,
            first_line: self.lines.line_of(start),
            last_line: self.lines.line_of(end.saturating_sub(1).max(start)),
            scope: parent.scope,
            broken: kind == StatementKind::Simple && node.has_error(),
        });
        self.statements.len() - 1
    }

    fn end_header(&mut self, statement: Option<usize>, end: usize) {
        if let Some(statement) = statement.and_then(|index| self.statements.get_mut(index)) {
            statement.header.end = end.clamp(statement.header.start, statement.header.end);
            let last = statement.header.end.saturating_sub(1).max(statement.header.start);
            statement.last_line = self.lines.line_of(last);
        }
    }

    fn scope(&mut self, node: Node<'_>, parent: Open, kind: ScopeKind, statement: usize) -> u32 {
        let name = node.child_by_field_id(KINDS.name).map_or(0..0, |name| name.byte_range());
        let start = parent.decorators_start.unwrap_or(node.start_byte());
        self.scopes.push(Scope {
            kind,
            name,
            span: start..node.end_byte(),
            parent: Some(parent.scope),
            statement: Some(statement),
        });
        u32::try_from(self.scopes.len() - 1).unwrap_or(u32::MAX)
    }
}

/// What the walk does at a node.
#[derive(Clone, Copy)]
enum Kind {
    /// Passes it by.
    Other,
    /// A header ends here.
    Colon,
    /// Enters it; it is no statement itself.
    Container,
    /// Enters it; its definition begins where it begins.
    Decorated,
    Statement(StatementKind),
}

/// By tree-sitter's kind number, looked up once: comparing names costs a third of the walk.
struct Kinds {
    by_id: Vec<Kind>,
    name: u16,
}

impl Kinds {
    fn of(&self, node: &Node<'_>) -> Kind {
        if node.is_error() {
            return Kind::Container;
        }
        self.by_id.get(usize::from(node.kind_id())).copied().unwrap_or(Kind::Other)
    }
}

static KINDS: LazyLock<Kinds> = LazyLock::new(|| {
    let language = language();
    let by_id = (0..language.node_kind_count())
        .map(|id| {
            let id = u16::try_from(id).unwrap_or(u16::MAX);
            let kind = language.node_kind_for_id(id).unwrap_or_default();
            match (kind, language.node_kind_is_named(id)) {
                (":", _) => Kind::Colon,
                (_, false) => Kind::Other,
                ("block", _) => Kind::Container,
                ("decorated_definition", _) => Kind::Decorated,
                ("for_statement", _) => Kind::Statement(StatementKind::For),
                ("while_statement", _) => Kind::Statement(StatementKind::While),
                ("function_definition", _) => Kind::Statement(StatementKind::Function),
                ("class_definition", _) => Kind::Statement(StatementKind::Class),
                ("if_statement" | "with_statement" | "try_statement" | "match_statement", _)
                | ("elif_clause" | "else_clause" | "except_clause" | "except_group_clause", _)
                | ("finally_clause" | "case_clause", _) => Kind::Statement(StatementKind::Block),
                (
                    "assert_statement"
                    | "break_statement"
                    | "continue_statement"
                    | "delete_statement"
                    | "exec_statement"
                    | "expression_statement"
                    | "future_import_statement"
                    | "global_statement"
                    | "import_from_statement"
                    | "import_statement"
                    | "nonlocal_statement"
                    | "pass_statement"
                    | "print_statement"
                    | "raise_statement"
                    | "return_statement"
                    | "type_alias_statement",
                    _,
                ) => Kind::Statement(StatementKind::Simple),
                _ => Kind::Other,
            }
        })
        .collect();
    Kinds { by_id, name: language.field_id_for_name("name").map_or(0, u16::from) }
});
