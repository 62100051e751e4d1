//! The statements and scopes of a text.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use std::ops::Range;
use std::sync::LazyLock;

use tree_sitter::{Node, Tree, TreeCursor};

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
    /// It could not be parsed as it stands, or is a string by itself, so its lines may belong to
    /// several statements.
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

/// The statements and scopes of a text.
///
/// Only nodes that hold statements are entered, never an expression, and without recursion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outline {
    /// Sorted; headers do not overlap.
    pub(super) statements: Vec<Statement>,
    /// Parents before children, sorted by place; the first is the text itself.
    pub(super) scopes: Vec<Scope>,
}

impl Outline {
    /// Finds them in a whole tree; none where there is no tree.
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

    /// Moves everything with an edit: the bytes `old` became `new_len` bytes, `lines` are those of
    /// the text after, and `lines_before` is how many there were before. A statement that was
    /// edited within grows or shrinks.
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
        // Lines further on than the one behind the edit all move by as many.
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

    /// Looks again at the top-level statements that touch `region`, or did before the edit, and at
    /// their neighbours. The rest has to be where the tree has it, so [`Outline::shift`] comes first.
    pub(super) fn look_again(&mut self, tree: &Tree, lines: &Lines, region: Range<usize>) {
        let len = self.scopes.first().map_or(0, |file| file.span.end);
        let mut cursor = tree.walk();
        let mut walk = Walk::new(lines, len);
        let mut from = 0;
        let region = self.touched_by(region);
        if cursor.goto_first_child_for_byte(region.start).is_some() {
            // What is empty, as a token that the parser missed is, is nobody's neighbour.
            while cursor.node().end_byte() >= region.start && cursor.goto_previous_sibling() {}
            // The first one begins where the text does, whatever is before it.
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
        // Indices of what was found anew begin at 0, or for scopes at 1; those behind it move.
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

    /// A region with all of the statements that it touches. What tree-sitter says has changed can
    /// leave out that a statement ends sooner than it did: one that was in its body then stands
    /// behind it, at the same bytes.
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
struct Open {
    /// The compound statement that it belongs to.
    statement: Option<usize>,
    scope: u32,
    /// The statement's colon was seen, or its first inner statement.
    header_known: bool,
    /// A block or the like within the statement, whose colons are not the statement's.
    is_container: bool,
    /// Of a decorated definition: where its decorators begin.
    decorators_start: Option<usize>,
}

struct Walk<'a> {
    lines: &'a Lines,
    outline: Outline,
    /// One for each node between the root and the cursor, the root included.
    open: Vec<Open>,
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
            open: vec![Open {
                statement: None,
                scope: 0,
                header_known: true,
                is_container: true,
                decorators_start: None,
            }],
        }
    }

    /// Takes in the node at the cursor, which is a child of the root, and those behind it, up to
    /// the second one that begins behind `last`. Gives where the next one begins.
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

    /// Takes a node in; true where its children are to be visited.
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
                self.open.push(Open { is_container: true, decorators_start: None, ..parent });
                true
            }
            Role::Decorated => {
                let decorators_start = Some(node.start_byte());
                self.open.push(Open { decorators_start, is_container: true, ..parent });
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
                self.open.push(Open {
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
        // Where no colon was found the header stays what the node was, up to its first statement.
        self.open.pop();
    }

    fn add(&mut self, node: Node<'_>, parent: Open, kind: StatementKind) -> usize {
        let start = parent.decorators_start.unwrap_or(node.start_byte());
        if !parent.header_known {
            // The colon is missing, or error recovery put it elsewhere.
            self.end_header(parent.statement, start);
            for open in self.open.iter_mut().rev().take_while(|open| !open.header_known) {
                open.header_known = true;
            }
        }
        // Error recovery can put a statement between decorators and what they decorate.
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

    fn scope(&mut self, node: Node<'_>, parent: Open, kind: ScopeKind, statement: usize) -> u32 {
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

/// A string by itself costs nothing, so what seems to run within it is code that a quote has
/// swallowed while it is being typed.
fn is_string(node: &Node<'_>) -> bool {
    node.child(0).is_some_and(|child| child.is(Kind::String))
}

/// What the walk does at a node.
#[derive(Clone, Copy)]
enum Role {
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

/// tree-sitter's number of the token that ends a header.
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
