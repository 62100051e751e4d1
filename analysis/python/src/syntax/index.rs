//! [`SourceIndex`]: the text of a document and its analysis.

use crate::syntax::kind::{Kind, TypedNode as _};
use std::ops::Range;
use std::sync::Arc;

use tree_sitter::{InputEdit, Tree};

use super::lines::{Lines, character_at};
use super::parse::{self, Budget};
use super::statements::{Outline, Scope, ScopeKind, Statement};

/// One edit: replaces the bytes in `range` by `text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextEdit {
    /// Byte range in the text before this edit, and after all earlier edits.
    pub range: Range<usize>,
    /// The replacement.
    pub text: String,
}

/// A Python file with its lines, statements and scopes, updated on edits.
///
/// A clone is a snapshot: the text and the tree are shared.
#[derive(Clone, Debug)]
pub struct SourceIndex {
    text: Arc<str>,
    lines: Arc<Lines>,
    tree: Option<Tree>,
    outline: Arc<Outline>,
    /// The edits since the tree last matched the text.
    pending: Option<PendingEdits>,
}

#[derive(Clone, Debug)]
struct PendingEdits {
    /// Byte range in the current text.
    region: Range<usize>,
    edits: u32,
    /// The ticks of [`Budget::Edit`] that the edits since the last parse attempt have saved up.
    /// While the text stays broken, an attempt on every keystroke would waste five milliseconds
    /// each time.
    saved_ticks: usize,
    /// After this many edits, one parse gets the whole budget. Doubles each time that this was not
    /// enough.
    parse_after_edits: u32,
}

impl PendingEdits {
    fn at(region: Range<usize>) -> PendingEdits {
        PendingEdits {
            region,
            edits: 0,
            saved_ticks: EDIT_TICKS,
            parse_after_edits: MIN_EDITS_BEHIND,
        }
    }
}

/// After this many edits that exceeded the small budget, one parse gets the whole budget.
const MIN_EDITS_BEHIND: u32 = 128;
/// The maximum of this number after repeated failures.
const MAX_EDITS_BEHIND: u32 = 1 << 14;
/// The budget of an attempt, in ticks.
const EDIT_TICKS: usize = Budget::Edit { bytes: 0 }.ticks(0);
/// The ticks that an edit adds to the saved budget: one attempt on every seventh keystroke.
const TICKS_PER_KEY: usize = 8;
/// The ticks of an edit that may have closed an open bracket or string.
const TICKS_PER_BRACKET: usize = 25;

impl SourceIndex {
    /// Parses a text.
    pub fn new(text: impl Into<Arc<str>>) -> SourceIndex {
        let text = text.into();
        let lines = Lines::new(&text);
        let tree = parse::parse(&text, &lines, None, Budget::Whole);
        let outline = Outline::new(tree.as_ref(), &lines, text.len());
        SourceIndex {
            text,
            lines: Arc::new(lines),
            tree,
            outline: Arc::new(outline),
            pending: None,
        }
    }

    /// Applies edits one after the other, then parses once, incrementally. Ranges outside of the
    /// text or within a character are moved to the nearest valid offset before.
    ///
    /// If parsing would take long, as after a bracket that is not closed yet, the statements stay
    /// as they were and move with the text. [`SourceIndex::catch_up`] parses later.
    pub fn edit(&mut self, edits: &[TextEdit]) {
        if edits.is_empty() {
            return;
        }
        let was_too_large = self.is_too_large_to_parse();
        let mut text = String::from(&*self.text);
        for edit in edits {
            let end = character_at(&text, edit.range.end);
            let start = character_at(&text, edit.range.start.min(end));
            text.replace_range(start..end, &edit.text);
            self.follow(&text, start..end, edit.text.len());
        }
        self.text = text.into();
        if self.is_too_large_to_parse() {
            self.forget_tree();
            return;
        }
        let edited = edits.iter().map(|edit| edit.text.len()).sum();
        let Some(pending) = &mut self.pending else { return };
        if was_too_large || pending.edits > pending.parse_after_edits {
            self.parse(Budget::Whole);
            return;
        }
        let may_close =
            |edit: &TextEdit| edit.text.contains(['(', ')', '[', ']', '{', '}', '"', '\'']);
        let earned = if edits.iter().any(may_close) { TICKS_PER_BRACKET } else { TICKS_PER_KEY };
        pending.saved_ticks = pending.saved_ticks.saturating_add(earned + edited / 90);
        if pending.saved_ticks >= EDIT_TICKS {
            pending.saved_ticks = 0;
            self.parse(Budget::Edit { bytes: edited });
        } else {
            pending.edits += 1;
        }
    }

    /// Drops the analysis of a text that has become too large to parse.
    fn forget_tree(&mut self) {
        self.tree = None;
        self.outline = Arc::new(Outline::new(None, &self.lines, self.text.len()));
        self.pending = None;
    }

    /// Parses what [`SourceIndex::edit`] postponed. This may take a few hundred milliseconds in a
    /// long file. Returns true if the statements may have changed.
    pub fn catch_up(&mut self) -> bool {
        let is_behind = self.is_behind();
        if is_behind {
            self.parse(Budget::Whole);
        }
        is_behind && !self.is_behind()
    }

    /// Whether parsing was postponed: see [`SourceIndex::catch_up`].
    pub fn is_behind(&self) -> bool {
        self.pending.is_some()
    }

    /// Moves everything with one edit; `text` is the text after it.
    fn follow(&mut self, text: &str, old: Range<usize>, new_len: usize) {
        let lines = Arc::make_mut(&mut self.lines);
        let start_position = parse::point(lines, old.start);
        let old_end_position = parse::point(lines, old.end);
        let lines_before = lines.count();
        lines.edit(text, old.clone(), new_len);
        let new_end = old.start + new_len;
        if let Some(tree) = &mut self.tree {
            tree.edit(&InputEdit {
                start_byte: old.start,
                old_end_byte: old.end,
                new_end_byte: new_end,
                start_position,
                old_end_position,
                new_end_position: parse::point(lines, new_end),
            });
        }
        Arc::make_mut(&mut self.outline).shift(&old, new_len, lines, lines_before);
        let pending = self.pending.get_or_insert_with(|| PendingEdits::at(old.start..new_end));
        let region = &mut pending.region;
        let end = if region.end > old.end { region.end - old.len() + new_len } else { 0 };
        *region = region.start.min(old.start)..end.max(new_end);
    }

    /// Updates the tree and the statements if the budget is enough.
    fn parse(&mut self, budget: Budget) {
        let Some(pending) = &mut self.pending else { return };
        #[cfg(test)]
        tests::count_attempt(budget);
        let Some(tree) = parse::parse(&self.text, &self.lines, self.tree.as_ref(), budget) else {
            match budget {
                Budget::Edit { .. } => pending.edits += 1,
                Budget::Whole => {
                    pending.edits = 0;
                    pending.parse_after_edits =
                        pending.parse_after_edits.saturating_mul(2).min(MAX_EDITS_BEHIND);
                }
            }
            return;
        };
        match &self.tree {
            Some(old) => {
                let mut region = pending.region.clone();
                for changed in old.changed_ranges(&tree) {
                    region.start = region.start.min(changed.start_byte);
                    region.end = region.end.max(changed.end_byte);
                }
                Arc::make_mut(&mut self.outline).update(&tree, &self.lines, region);
            }
            None => {
                let outline = Outline::new(Some(&tree), &self.lines, self.text.len());
                self.outline = Arc::new(outline);
            }
        }
        self.tree = Some(tree);
        self.pending = None;
    }

    /// Replaces the whole text, for clients that send no ranges, as one edit of the difference.
    pub fn replace(&mut self, text: &str) {
        let prefix = self.text.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        let start = character_at(text, prefix).min(character_at(&self.text, prefix));
        let (old, new) = (&self.text[start..], &text[start..]);
        let suffix = old.bytes().rev().zip(new.bytes().rev()).take_while(|(a, b)| a == b).count();
        // Two characters may share their last bytes, which would cut the new one in two.
        let mut new_end = new.len() - suffix;
        while !new.is_char_boundary(new_end) {
            new_end += 1;
        }
        let old_end = old.len() - (new.len() - new_end);
        let edit = TextEdit { range: start..start + old_end, text: new[..new_end].to_owned() };
        if !(edit.range.is_empty() && edit.text.is_empty()) {
            self.edit(&[edit]);
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text, as a shared reference.
    pub fn shared_text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    pub fn lines(&self) -> &Lines {
        &self.lines
    }

    /// The statements in order; their headers do not overlap. Empty if the text could not be
    /// parsed.
    pub fn statements(&self) -> &[Statement] {
        &self.outline.statements
    }

    /// The scopes, parents before children; the first is the file itself.
    pub fn scopes(&self) -> &[Scope] {
        &self.outline.scopes
    }

    /// Whether the text is not parsed because it or one of its lines is too long.
    pub fn is_too_large_to_parse(&self) -> bool {
        !parse::is_parseable(&self.lines)
    }

    /// The syntax tree, or `None` if the text is too long or could not be parsed within the budget.
    pub fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }

    /// The byte range of a 1-based line, without the whitespace around it and without a comment
    /// after its code.
    pub fn code_on_line(&self, line: u32) -> Range<usize> {
        let whole = self.lines.trimmed(&self.text, line);
        let last = whole.end.saturating_sub(1).max(whole.start)..whole.end;
        let root = self.tree.as_ref().map(Tree::root_node);
        let node = root.and_then(|root| root.descendant_for_byte_range(last.start, last.end));
        let comment = node.filter(|it| it.is(Kind::Comment) && it.start_byte() > whole.start);
        let Some(comment) = comment else { return whole };
        let code = self.text.get(whole.start..comment.start_byte()).unwrap_or_default();
        whole.start..whole.start + code.trim_end().len()
    }

    /// The 1-based line of the first syntax error, or `None` if there is none.
    pub fn first_syntax_error(&self) -> Option<u32> {
        let mut node = self.tree.as_ref()?.root_node();
        if !node.has_error() {
            return None;
        }
        loop {
            let mut cursor = node.walk();
            let broken = node.children(&mut cursor).find(|child| child.has_error());
            match broken {
                Some(child) => node = child,
                None => return Some(self.lines.line_of(node.start_byte())),
            }
        }
    }

    /// The first statement whose header touches a 1-based line.
    pub fn statement_on_line(&self, line: u32) -> Option<usize> {
        let index = self.outline.statements.partition_point(|statement| statement.last_line < line);
        (self.outline.statements.get(index)?.first_line <= line).then_some(index)
    }

    /// The innermost scope around an offset; 0, the file itself, if there is no other.
    pub fn scope_at(&self, offset: usize) -> usize {
        // Parents come before children and spans nest, so it is the last scope that begins before
        // the offset, or one of its parents.
        let mut index =
            self.outline.scopes.partition_point(|scope| scope.span.start <= offset).max(1) - 1;
        while let Some(scope) = self.outline.scopes.get(index)
            && offset >= scope.span.end
            && let Some(parent) = scope.parent
        {
            index = parent as usize;
        }
        index
    }

    /// The qualified name of a scope: `Net.forward`; empty for the file itself. Has at most the
    /// four innermost names.
    pub fn scope_name(&self, scope: usize) -> String {
        let mut names = Vec::new();
        let mut next = self.outline.scopes.get(scope);
        while let Some(scope) = next
            && scope.kind != ScopeKind::File
            && names.len() < 4
        {
            names.push(self.text.get(scope.name.clone()).unwrap_or_default());
            next = scope.parent.and_then(|parent| self.outline.scopes.get(parent as usize));
        }
        names.reverse();
        names.join(".")
    }
}

#[cfg(test)]
mod tests;
