//! [`SourceIndex`]: one document's text, and what is known of it.

use std::ops::Range;
use std::sync::Arc;

use tree_sitter::Tree;

use super::lines::Lines;
use super::parse;
use super::statements::{self, Scope, ScopeKind, Statement};

/// One edit: the bytes `range` become `text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextEdit {
    /// Bytes of the text before this edit (and after those that came before it).
    pub range: Range<usize>,
    /// What takes their place.
    pub text: String,
}

/// A Python text with its lines, statements and scopes, kept up with edits.
///
/// A clone is a snapshot: the text and the tree are shared.
#[derive(Clone, Debug)]
pub struct SourceIndex {
    text: Arc<str>,
    lines: Arc<Lines>,
    tree: Option<Tree>,
    statements: Arc<Vec<Statement>>,
    scopes: Arc<Vec<Scope>>,
}

impl SourceIndex {
    /// Parses a text.
    pub fn new(text: impl Into<Arc<str>>) -> SourceIndex {
        let text = text.into();
        let lines = Lines::new(&text);
        let tree = parse::parse(&text, None);
        SourceIndex::from_parts(text, lines, tree)
    }

    fn from_parts(text: Arc<str>, lines: Lines, tree: Option<Tree>) -> SourceIndex {
        let (statements, scopes) = statements::find(tree.as_ref(), &lines, text.len());
        SourceIndex {
            text,
            lines: Arc::new(lines),
            tree,
            statements: Arc::new(statements),
            scopes: Arc::new(scopes),
        }
    }

    /// Applies edits one after the other and parses once, using what has not changed. Ranges
    /// outside the text or within a character are moved to the nearest place before.
    pub fn edit(&mut self, edits: &[TextEdit]) {
        if edits.is_empty() {
            return;
        }
        let mut text = String::from(&*self.text);
        let mut lines = Lines::clone(&self.lines);
        let mut tree = self.tree.take();
        for edit in edits {
            let end = text.floor_char_boundary(edit.range.end.min(text.len()));
            let start = text.floor_char_boundary(edit.range.start.min(end));
            let before = tree.is_some().then(|| lines.clone());
            text.replace_range(start..end, &edit.text);
            lines.edit(&text, start..end, edit.text.len());
            if let (Some(tree), Some(before)) = (&mut tree, &before) {
                parse::edit(tree, before, &lines, start..end, edit.text.len());
            }
        }
        let tree = parse::parse(&text, tree.as_ref());
        *self = SourceIndex::from_parts(text.into(), lines, tree);
    }

    /// Takes a whole new text, for clients that send no ranges, as one edit of what differs.
    pub fn replace(&mut self, text: &str) {
        let prefix = self.text.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        let start = text.floor_char_boundary(prefix).min(self.text.floor_char_boundary(prefix));
        let (old, new) = (&self.text[start..], &text[start..]);
        let suffix = old.bytes().rev().zip(new.bytes().rev()).take_while(|(a, b)| a == b).count();
        let new_end = new.ceil_char_boundary(new.len() - suffix);
        let old_end = old.len() - (new.len() - new_end);
        let edit = TextEdit { range: start..start + old_end, text: new[..new_end].to_owned() };
        if !(edit.range.is_empty() && edit.text.is_empty()) {
            self.edit(&[edit]);
        }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text, shared.
    pub fn shared_text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// Its lines.
    pub fn lines(&self) -> &Lines {
        &self.lines
    }

    /// Its statements, sorted; headers do not overlap. Empty where the text could not be parsed.
    pub fn statements(&self) -> &[Statement] {
        &self.statements
    }

    /// Its scopes, parents before children; the first is the text itself.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// The syntax tree; nothing where the text is too long or too strange to parse.
    pub fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }

    /// The first statement whose header touches a line, counted from 1.
    pub fn statement_on_line(&self, line: u32) -> Option<usize> {
        let index = self.statements.partition_point(|statement| statement.last_line < line);
        (self.statements.get(index)?.first_line <= line).then_some(index)
    }

    /// The innermost scope around an offset: 0, the text itself, where there is no other.
    pub fn scope_at(&self, offset: usize) -> usize {
        // Parents come before children and spans nest, so the last that begins before the offset
        // is it, or one of its parents is.
        let mut index = self.scopes.partition_point(|scope| scope.span.start <= offset).max(1) - 1;
        while let Some(scope) = self.scopes.get(index)
            && offset >= scope.span.end
            && let Some(parent) = scope.parent
        {
            index = parent as usize;
        }
        index
    }

    /// A scope's name as a person says it: `Net.forward`; empty for the text itself. At most the
    /// four innermost names.
    pub fn scope_name(&self, scope: usize) -> String {
        let mut names = Vec::new();
        let mut next = self.scopes.get(scope);
        while let Some(scope) = next
            && scope.kind != ScopeKind::File
            && names.len() < 4
        {
            names.push(self.text.get(scope.name.clone()).unwrap_or_default());
            next = scope.parent.and_then(|parent| self.scopes.get(parent as usize));
        }
        names.reverse();
        names.join(".")
    }
}
