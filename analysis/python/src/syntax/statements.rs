//! The statements and scopes of a file.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use std::ops::Range;
use std::sync::LazyLock;

use tree_sitter::{Node, Tree, TreeCursor};

use super::lines::Lines;
use super::parse::language;

/// The kind of a statement, as far as it matters for costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// Any statement without a body.
    Simple,
    /// `for …:`
    For,
    /// `while …:`
    While,
    /// `def …:`, including its decorators.
    Function,
    /// `class …:`, including its decorators.
    Class,
    /// `if`, `with`, `try`, `match`, and their `elif`, `else`, `except`, `finally`, `case`.
    Block,
}

/// A statement; for a compound statement, only its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub kind: StatementKind,
    /// The byte range; of a compound statement, up to and including the colon. Headers never
    /// overlap.
    pub header: Range<usize>,
    /// The end of its body, or of the statement itself if it is simple.
    pub end: usize,
    /// The 1-based line of its first byte.
    pub first_line: u32,
    /// The 1-based line of the last byte of `header`.
    pub last_line: u32,
    /// The index of the scope that contains it.
    pub scope: u32,
    /// Whether it has a syntax error, or is a string expression, so its lines may belong to several
    /// statements.
    pub broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeKind {
    /// The whole file.
    File,
    /// A function or method.
    Function,
    /// A class.
    Class,
}

/// A function, a class, or the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub kind: ScopeKind,
    /// The byte range of its name; empty for the file itself and for a name that is not typed yet.
    pub name: Range<usize>,
    /// Its byte range, including decorators.
    pub span: Range<usize>,
    /// The enclosing scope; `None` for the file itself.
    pub parent: Option<u32>,
    /// The index of the `def` or `class` statement; `None` for the file itself.
    pub statement: Option<usize>,
}

/// The statements and scopes of a file.
///
/// Only nodes that contain statements are visited, never expressions, and without recursion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outline {
    /// In order; headers do not overlap.
    pub(super) statements: Vec<Statement>,
    /// Parents before children, in order; the first is the file itself.
    pub(super) scopes: Vec<Scope>,
}

impl Outline {
    /// Finds them in a whole tree; empty if there is no tree.
    pub(super) fn new(tree: Option<&Tree>, lines: &Lines, len: usize) -> Outline {
        let mut walk = Walk::new(lines, len);
        if let Some(tree) = tree {
            let mut cursor = tree.walk();
            if cursor.goto_first_child() {
                walk.siblings(&mut cursor, usize::MAX);
            }
        }
        walk.outline
    }

    /// Moves everything with an edit that replaced the bytes `old` by `new_len` bytes. `lines`
    /// are those of the text after it; the text before it had `lines_before` lines. A statement
    /// that was edited inside grows or shrinks.
    pub(super) fn shift(
        &mut self,
        old: &Range<usize>,
        new_len: usize,
        lines: &Lines,
        lines_before: u32,
    ) {
        let new_end = old.start + new_len;
        let moved = |offset: usize| match offset {
            offset if offset <= old.start => offset,
            offset if offset >= old.end => offset - old.end + new_end,
            _ => new_end,
        };
        let unmoved = self.statements.partition_point(|statement| statement.header.end < old.start);
        for statement in self.statements.iter_mut().take(unmoved) {
            statement.end = moved(statement.end);
        }
        // All lines after the one behind the edit move by the same number.
        let near = lines.start_of(lines.line_of(new_end).saturating_add(2));
        let moved_line = |line: u32| (line + lines.count()).saturating_sub(lines_before);
        for statement in self.statements.iter_mut().skip(unmoved) {
            statement.header = moved(statement.header.start)..moved(statement.header.end);
            statement.end = moved(statement.end);
            if statement.header.start < near {
                set_lines(statement, lines);
            } else {
                statement.first_line = moved_line(statement.first_line);
                statement.last_line = moved_line(statement.last_line);
            }
        }
        for scope in &mut self.scopes {
            scope.name = moved(scope.name.start)..moved(scope.name.end);
            scope.span = moved(scope.span.start)..moved(scope.span.end);
        }
        if let Some(file) = self.scopes.first_mut() {
            (file.name, file.span) = (0..0, 0..lines.text_len());
        }
    }

    /// Updates the top-level statements that touch `region`, now or before the edit, and their
    /// neighbors. The rest must already match the tree, so call [`Outline::shift`] first.
    pub(super) fn update(&mut self, tree: &Tree, lines: &Lines, region: Range<usize>) {
        let len = self.scopes.first().map_or(0, |file| file.span.end);
        let mut cursor = tree.walk();
        let mut walk = Walk::new(lines, len);
        let mut from = 0;
        let region = self.touched_by(region);
        if cursor.goto_first_child_for_byte(region.start).is_some() {
            // Empty nodes, such as a missing token, do not count as neighbors.
            while cursor.node().end_byte() >= region.start && cursor.goto_previous_sibling() {}
            // The first statement starts at the beginning of the text.
            from = cursor.node().start_byte();
            if !cursor.goto_previous_sibling() {
                from = 0;
            } else {
                cursor.goto_next_sibling();
            }
        } else if !cursor.goto_first_child() {
            *self = walk.outline;
            return;
        }
        let until = walk.siblings(&mut cursor, region.end).unwrap_or(usize::MAX);

        let statements = self.statements.partition_point(|found| found.header.start < from)
            ..self.statements.partition_point(|found| found.header.start < until);
        let scopes = self.scopes.partition_point(|found| found.span.start < from).max(1)
            ..self.scopes.partition_point(|found| found.span.start < until).max(1);
        let found = walk.outline;
        // Indices of the new statements start at 0, those of the new scopes at 1. Later ones move.
        let scope_base = number(scopes.start) - 1;
        let scope_after = |scope: u32| match scope {
            0 => 0,
            scope => (scope + number(found.scopes.len() - 1)).saturating_sub(number(scopes.len())),
        };
        let statement_after =
            |at: usize| (at + found.statements.len()).saturating_sub(statements.len());
        for statement in self.statements.iter_mut().skip(statements.end) {
            statement.scope = scope_after(statement.scope);
        }
        for scope in self.scopes.iter_mut().skip(scopes.end) {
            scope.parent = scope.parent.map(scope_after);
            scope.statement = scope.statement.map(statement_after);
        }
        let scope_of = |scope: u32| if scope == 0 { 0 } else { scope + scope_base };
        let statement_base = statements.start;
        let new_scopes: Vec<Scope> = found
            .scopes
            .iter()
            .skip(1)
            .map(|scope| Scope {
                parent: scope.parent.map(scope_of),
                statement: scope.statement.map(|at| at + statement_base),
                ..scope.clone()
            })
            .collect();
        let new_statements: Vec<Statement> = found
            .statements
            .iter()
            .map(|statement| Statement { scope: scope_of(statement.scope), ..statement.clone() })
            .collect();
        self.scopes.splice(scopes, new_scopes);
        self.statements.splice(statements, new_statements);
    }

    /// Extends a region to all statements that it touches. The changed ranges from tree-sitter may
    /// omit that a statement now ends earlier: a statement that was in its body then comes after
    /// it, at the same bytes.
    fn touched_by(&self, region: Range<usize>) -> Range<usize> {
        let touches = |it: &&Statement| it.header.start <= region.end && it.end >= region.start;
        self.statements.iter().filter(touches).fold(region.clone(), |whole, it| {
            whole.start.min(it.header.start)..whole.end.max(it.end)
        })
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn set_lines(statement: &mut Statement, lines: &Lines) {
    let header = &statement.header;
    statement.first_line = lines.line_of(header.start);
    statement.last_line = lines.line_of(header.end.saturating_sub(1).max(header.start));
}

/// A node that was entered.
#[derive(Clone, Copy)]
struct OpenNode {
    /// The compound statement that it belongs to.
    statement: Option<usize>,
    scope: u32,
    /// Whether the statement's colon or its first inner statement was seen.
    header_known: bool,
    /// A block or similar node within the statement, whose colons are not the statement's.
    is_container: bool,
    /// For a decorated definition: where its decorators begin.
    decorators_start: Option<usize>,
}

struct Walk<'a> {
    lines: &'a Lines,
    outline: Outline,
    /// One for each node between the root and the cursor, including the root.
    open: Vec<OpenNode>,
}

impl Walk<'_> {
    fn new(lines: &Lines, len: usize) -> Walk<'_> {
        let file = Scope {
            kind: ScopeKind::File,
            name: 0..0,
            span: 0..len,
            parent: None,
            statement: None,
        };
        Walk {
            lines,
            outline: Outline { statements: Vec::new(), scopes: vec![file] },
            open: vec![OpenNode {
                statement: None,
                scope: 0,
                header_known: true,
                is_container: true,
                decorators_start: None,
            }],
        }
    }

    /// Visits the node at the cursor, a child of the root, and its later siblings, up to the second
    /// one that begins after `last`. Returns where the next one begins.
    fn siblings(&mut self, cursor: &mut TreeCursor<'_>, last: usize) -> Option<usize> {
        let mut behind = 0;
        loop {
            if self.open.len() == 1 && cursor.node().start_byte() > last {
                behind += 1;
                if behind > 2 {
                    return Some(cursor.node().start_byte());
                }
            }
            if self.enter(cursor.node()) {
                if cursor.goto_first_child() {
                    continue;
                }
                self.leave();
            }
            while !cursor.goto_next_sibling() {
                if self.open.len() <= 1 || !cursor.goto_parent() {
                    return None;
                }
                self.leave();
            }
        }
    }

    /// Visits a node. Returns true if its children must be visited too.
    fn enter(&mut self, node: Node<'_>) -> bool {
        let Some(&parent) = self.open.last() else { return false };
        match Role::of(&node) {
            Role::Other => false,
            Role::Colon => {
                if !parent.header_known
                    && !parent.is_container
                    && let Some(open) = self.open.last_mut()
                {
                    open.header_known = true;
                    self.end_header(parent.statement, node.end_byte());
                }
                false
            }
            Role::Container => {
                self.open.push(OpenNode { is_container: true, decorators_start: None, ..parent });
                true
            }
            Role::Decorated => {
                let decorators_start = Some(node.start_byte());
                self.open.push(OpenNode { decorators_start, is_container: true, ..parent });
                true
            }
            Role::Statement(StatementKind::Simple) => {
                self.add(node, parent, StatementKind::Simple);
                false
            }
            Role::Statement(kind) => {
                let statement = self.add(node, parent, kind);
                let scope = match kind {
                    StatementKind::Function => {
                        self.scope(node, parent, ScopeKind::Function, statement)
                    }
                    StatementKind::Class => self.scope(node, parent, ScopeKind::Class, statement),
                    _ => parent.scope,
                };
                self.open.push(OpenNode {
                    statement: Some(statement),
                    scope,
                    header_known: false,
                    is_container: false,
                    decorators_start: None,
                });
                true
            }
        }
    }

    fn leave(&mut self) {
        // If no colon was found, the header remains the whole node up to its first inner statement.
        self.open.pop();
    }

    fn add(&mut self, node: Node<'_>, parent: OpenNode, kind: StatementKind) -> usize {
        let start = parent.decorators_start.unwrap_or(node.start_byte());
        if !parent.header_known {
            // The colon is missing, or error recovery put it elsewhere.
            self.end_header(parent.statement, start);
            for open in self.open.iter_mut().rev().take_while(|open| !open.header_known) {
                open.header_known = true;
            }
        }
        // Error recovery can put a statement between decorators and their definition.
        let before = self.outline.statements.last().map_or(0, |before| before.header.end);
        let start = if start < before { node.start_byte().max(before) } else { start };
        let end = node.end_byte().max(start);
        let simple = kind == StatementKind::Simple;
        let mut statement = Statement {
            kind,
            header: start..end,
            end,
            first_line: 0,
            last_line: 0,
            scope: parent.scope,
            broken: simple && (node.has_error() || is_string(&node)),
        };
        set_lines(&mut statement, self.lines);
        self.outline.statements.push(statement);
        self.outline.statements.len() - 1
    }

    fn end_header(&mut self, statement: Option<usize>, end: usize) {
        if let Some(statement) = statement.and_then(|index| self.outline.statements.get_mut(index))
        {
            statement.header.end = end.clamp(statement.header.start, statement.header.end);
            set_lines(statement, self.lines);
        }
    }

    fn scope(
        &mut self,
        node: Node<'_>,
        parent: OpenNode,
        kind: ScopeKind,
        statement: usize,
    ) -> u32 {
        let name = node.field(Field::Name).map_or(0..0, |name| name.byte_range());
        let start = self.outline.statements.get(statement).map_or(0, |found| found.header.start);
        self.outline.scopes.push(Scope {
            kind,
            name,
            span: start..node.end_byte(),
            parent: Some(parent.scope),
            statement: Some(statement),
        });
        number(self.outline.scopes.len() - 1)
    }
}

/// Whether a statement is a string expression. It has no cost: what seems to run within it is code
/// that an unfinished quote has swallowed.
fn is_string(node: &Node<'_>) -> bool {
    node.child(0).is_some_and(|child| child.is(Kind::String))
}

/// What the walk does at a node.
#[derive(Clone, Copy)]
enum Role {
    /// Skips it.
    Other,
    /// Ends a header.
    Colon,
    /// Enters it; it is not a statement itself.
    Container,
    /// Enters it; its definition includes its decorators.
    Decorated,
    Statement(StatementKind),
}

/// The kind id of the token that ends a header.
static COLON: LazyLock<u16> = LazyLock::new(|| language().id_for_node_kind(":", false));

impl Role {
    fn of(node: &Node<'_>) -> Role {
        if node.is_error() {
            return Role::Container;
        }
        match Kind::of(node) {
            Kind::Block => Role::Container,
            Kind::DecoratedDefinition => Role::Decorated,
            Kind::ForStatement => Role::Statement(StatementKind::For),
            Kind::WhileStatement => Role::Statement(StatementKind::While),
            Kind::FunctionDefinition => Role::Statement(StatementKind::Function),
            Kind::ClassDefinition => Role::Statement(StatementKind::Class),
            Kind::IfStatement
            | Kind::WithStatement
            | Kind::TryStatement
            | Kind::MatchStatement
            | Kind::ElifClause
            | Kind::ElseClause
            | Kind::ExceptClause
            | Kind::FinallyClause
            | Kind::CaseClause => Role::Statement(StatementKind::Block),
            Kind::AssertStatement
            | Kind::BreakStatement
            | Kind::ContinueStatement
            | Kind::DeleteStatement
            | Kind::ExecStatement
            | Kind::ExpressionStatement
            | Kind::FutureImportStatement
            | Kind::GlobalStatement
            | Kind::ImportFromStatement
            | Kind::ImportStatement
            | Kind::NonlocalStatement
            | Kind::PassStatement
            | Kind::PrintStatement
            | Kind::RaiseStatement
            | Kind::ReturnStatement
            | Kind::TypeAliasStatement => Role::Statement(StatementKind::Simple),
            Kind::Other if node.kind_id() == *COLON => Role::Colon,
            _ => Role::Other,
        }
    }
}

#[cfg(test)]
mod tests;
