//! [`SourceIndex`]: one document's text, and what is known of it.

use crate::syntax::kind::{Kind, TypedNode as _};
use std::ops::Range;
use std::sync::Arc;

use tree_sitter::{InputEdit, Tree};

use super::lines::{Lines, character_at};
use super::parse::{self, Budget};
use super::statements::{Outline, Scope, ScopeKind, Statement};

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
    outline: Arc<Outline>,
    /// What was edited since the tree was last in step with the text.
    behind: Option<Behind>,
}

#[derive(Clone, Debug)]
struct Behind {
    /// Bytes of today's text.
    region: Range<usize>,
    edits: u32,
    /// Of [`Budget::Edit`]: what the edits since the last attempt to parse may spend. Where the text
    /// stays broken, an attempt at every key would be five milliseconds for nothing each time.
    saved: usize,
    /// After so many edits one is parsed with the whole budget. Each time that was not enough it is
    /// twice as many.
    patience: u32,
}

impl Behind {
    fn at(region: Range<usize>) -> Behind {
        Behind { region, edits: 0, saved: EDIT_TICKS, patience: EDITS_BEHIND }
    }
}

/// After so many edits that the small budget was not enough for, one is parsed with the whole.
const EDITS_BEHIND: u32 = 128;
/// Where even that was not enough, at the most.
const MOST_EDITS_BEHIND: u32 = 1 << 14;
/// What an attempt may spend.
const EDIT_TICKS: usize = Budget::Edit { bytes: 0 }.ticks(0);
/// What an edit adds to what may be spent: an attempt at every seventh key.
const TICKS_OF_A_KEY: usize = 8;
/// The same of what may have closed what was open.
const TICKS_OF_A_BRACKET: usize = 25;

impl SourceIndex {
    /// Parses a text.
    pub fn new(text: impl Into<Arc<str>>) -> SourceIndex {
        let text = text.into();
        let lines = Lines::new(&text);
        let tree = parse::parse(&text, &lines, None, Budget::Whole);
        let outline = Outline::new(tree.as_ref(), &lines, text.len());
        SourceIndex { text, lines: Arc::new(lines), tree, outline: Arc::new(outline), behind: None }
    }

    /// Applies edits one after the other and parses once, using what has not changed. Ranges
    /// outside the text or within a character are moved to the nearest place before.
    ///
    /// Where parsing would take long, as it does behind a bracket that is not closed yet, the
    /// statements stay as they were and move with the text; [`SourceIndex::catch_up`] parses then.
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
        let Some(behind) = &mut self.behind else { return };
        if was_too_large || behind.edits > behind.patience {
            self.parse(Budget::Whole);
            return;
        }
        let may_close =
            |edit: &TextEdit| edit.text.contains(['(', ')', '[', ']', '{', '}', '"', '\'']);
        let earned = if edits.iter().any(may_close) { TICKS_OF_A_BRACKET } else { TICKS_OF_A_KEY };
        behind.saved = behind.saved.saturating_add(earned + edited / 90);
        if behind.saved >= EDIT_TICKS {
            behind.saved = 0;
            self.parse(Budget::Edit { bytes: edited });
        } else {
            behind.edits += 1;
        }
    }

    /// Lets go of what was known of a text that has become one which is not parsed.
    fn forget_tree(&mut self) {
        self.tree = None;
        self.outline = Arc::new(Outline::new(None, &self.lines, self.text.len()));
        self.behind = None;
    }

    /// Parses what [`SourceIndex::edit`] put off, which may take a few hundred milliseconds in a
    /// long file. True where the statements may have changed by it.
    pub fn catch_up(&mut self) -> bool {
        let is_behind = self.is_behind();
        if is_behind {
            self.parse(Budget::Whole);
        }
        is_behind && !self.is_behind()
    }

    /// Parsing was put off: see [`SourceIndex::catch_up`].
    pub fn is_behind(&self) -> bool {
        self.behind.is_some()
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
        let behind = self.behind.get_or_insert_with(|| Behind::at(old.start..new_end));
        let region = &mut behind.region;
        let end = if region.end > old.end { region.end - old.len() + new_len } else { 0 };
        *region = region.start.min(old.start)..end.max(new_end);
    }

    /// Brings tree and statements in step with the text, where the budget is enough.
    fn parse(&mut self, budget: Budget) {
        let Some(behind) = &mut self.behind else { return };
        #[cfg(test)]
        tests::count_attempt(budget);
        let Some(tree) = parse::parse(&self.text, &self.lines, self.tree.as_ref(), budget) else {
            match budget {
                Budget::Edit { .. } => behind.edits += 1,
                Budget::Whole => {
                    behind.edits = 0;
                    behind.patience = behind.patience.saturating_mul(2).min(MOST_EDITS_BEHIND);
                }
            }
            return;
        };
        match &self.tree {
            Some(old) => {
                let mut region = behind.region.clone();
                for changed in old.changed_ranges(&tree) {
                    region.start = region.start.min(changed.start_byte);
                    region.end = region.end.max(changed.end_byte);
                }
                Arc::make_mut(&mut self.outline).look_again(&tree, &self.lines, region);
            }
            None => {
                let outline = Outline::new(Some(&tree), &self.lines, self.text.len());
                self.outline = Arc::new(outline);
            }
        }
        self.tree = Some(tree);
        self.behind = None;
    }

    /// Takes a whole new text, for clients that send no ranges, as one edit of what differs.
    pub fn replace(&mut self, text: &str) {
        let prefix = self.text.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        let start = character_at(text, prefix).min(character_at(&self.text, prefix));
        let (old, new) = (&self.text[start..], &text[start..]);
        let suffix = old.bytes().rev().zip(new.bytes().rev()).take_while(|(a, b)| a == b).count();
        // A character that differs in its first bytes alone is cut in two by the bytes it shares.
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
        &self.outline.statements
    }

    /// Its scopes, parents before children; the first is the text itself.
    pub fn scopes(&self) -> &[Scope] {
        &self.outline.scopes
    }

    /// Whether the text is left unparsed because of its size or of a line's.
    pub fn is_too_large_to_parse(&self) -> bool {
        !parse::can_be_parsed(&self.lines)
    }

    /// The syntax tree; nothing where the text is too long or too strange to parse.
    pub fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }

    /// The bytes of a line, counted from 1, without whitespace around it and without the comment behind
    /// its code.
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

    /// The line, counted from 1, from which on the text is no Python; nothing where all of it is.
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

    /// The first statement whose header touches a line, counted from 1.
    pub fn statement_on_line(&self, line: u32) -> Option<usize> {
        let index = self.outline.statements.partition_point(|statement| statement.last_line < line);
        (self.outline.statements.get(index)?.first_line <= line).then_some(index)
    }

    /// The innermost scope around an offset: 0, the text itself, where there is no other.
    pub fn scope_at(&self, offset: usize) -> usize {
        // Parents come before children and spans nest, so the last that begins before the offset
        // is it, or one of its parents is.
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

    /// A scope's name as a person says it: `Net.forward`; empty for the text itself. At most the
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
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        /// Attempts to parse after edits: with the small budget, and with the whole.
        static ATTEMPTS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }

    pub(super) fn count_attempt(budget: Budget) {
        let (small, whole) = ATTEMPTS.get();
        let is_whole = budget == Budget::Whole;
        ATTEMPTS.set((small + usize::from(!is_whole), whole + usize::from(is_whole)));
    }

    /// A text in which a bracket that is not closed keeps every parse from ending within its budget.
    fn broken() -> SourceIndex {
        let line = "    a = foo(b, [c for c in d], {1: 2}, 'x')\n";
        let function = format!("def f():\n{}", line.repeat(20));
        let mut index = SourceIndex::new(function.repeat(1_000));
        index.edit(&[TextEdit { range: 0..0, text: "x = (\n".into() }]);
        assert!(index.is_behind());
        index
    }

    #[test]
    fn keys_in_broken_text_are_not_parsed_each() {
        let mut index = broken();
        ATTEMPTS.set((0, 0));
        const KEYS: usize = 400;
        for _ in 0..KEYS {
            index.edit(&[TextEdit { range: 4..4, text: "a".into() }]);
        }
        let (small, whole) = ATTEMPTS.get();
        assert!(small <= KEYS / 6 && whole <= 3, "{small} and {whole} of {KEYS}");
        assert!(small > 0);
    }

    #[test]
    fn what_may_close_a_bracket_is_tried_sooner() {
        for (key, expected) in [("a", 0), (")", 1)] {
            let mut index = broken();
            ATTEMPTS.set((0, 0));
            for _ in 0..2 {
                index.edit(&[TextEdit { range: 5..5, text: key.into() }]);
            }
            assert_eq!(ATTEMPTS.get(), (expected, 0), "{key}");
        }
    }

    #[test]
    fn keys_in_text_that_parses_are_parsed_each() {
        let mut index = SourceIndex::new("a = 1\n".repeat(20));
        for _ in 0..50 {
            index.edit(&[TextEdit { range: 4..4, text: "1".into() }]);
            assert!(!index.is_behind());
        }
    }

    #[test]
    fn absurd_texts_are_not_parsed_and_nothing_of_a_tree_is_kept() {
        let long_line = format!("x = '{}'\n", "y".repeat(parse::MAX_LINE_BYTES));
        for absurd in [long_line.clone(), "x = 1\n".repeat(parse::MAX_BYTES / 6 + 1)] {
            let index = SourceIndex::new(absurd.as_str());
            assert!(index.is_too_large_to_parse() && index.tree().is_none());
            assert!(index.statements().is_empty() && index.scopes().len() == 1);
            // It becomes absurd while it is open, and sane again.
            let mut index = SourceIndex::new("a = 1\n");
            index.replace(&absurd);
            assert!(index.tree().is_none() && index.statements().is_empty());
            index.replace("a = 2\nb = 3\n");
            check(&index);
            assert!(!index.is_too_large_to_parse() && index.statements().len() == 2);
        }
    }

    #[test]
    fn code_ends_before_its_comment() {
        let text = "x = '#'  # one\n    # two\ny = 1 \n\nz = '''a # three\n'''  # four\n";
        let index = SourceIndex::new(text);
        let code = |line: u32| &text[index.code_on_line(line)];
        let all: Vec<&str> = (1..=7).map(code).collect();
        assert_eq!(all, ["x = '#'", "# two", "y = 1", "", "z = '''a # three", "'''", ""]);
    }

    /// After any edits, what is known is what the tree and the text say.
    fn check(index: &SourceIndex) {
        assert_eq!(*index.lines, Lines::new(&index.text));
        assert_eq!(index.outline.scopes[0].span, 0..index.text.len());
        let mut end = 0;
        for statement in index.statements() {
            assert!(statement.header.start >= end, "headers overlap: {:?}", index.statements());
            end = statement.header.end;
            assert!(index.text.get(statement.header.clone()).is_some());
            assert!(index.text.get(statement.header.start..statement.end).is_some());
            assert!((statement.scope as usize) < index.scopes().len());
            let last = statement.header.end.saturating_sub(1).max(statement.header.start);
            let lines = (index.lines.line_of(statement.header.start), index.lines.line_of(last));
            assert_eq!((statement.first_line, statement.last_line), lines);
        }
        for scope in index.scopes() {
            assert!(index.text.get(scope.span.clone()).is_some());
            assert!(index.text.get(scope.name.clone()).is_some());
        }
        if !index.is_behind() {
            let anew = Outline::new(index.tree(), &index.lines, index.text.len());
            assert_eq!(*index.outline, anew);
        }
    }

    const PIECES: [&str; 18] = [
        "def f(x):\n    y = 1\n    return g(y)\n",
        "class A(B):\n  def m(self): pass\n",
        "\n",
        "(",
        ")",
        "\"\"\"",
        "if a:\n    b\nelse:\n    c\n",
        "    ",
        "é🙂漢",
        "\r",
        "\r\n",
        "\0",
        ":",
        "@d\n",
        "for i in j:\n\tk(i)\n",
        "# c\n",
        "x = [1,\n 2]\n",
        "\\",
    ];

    proptest! {
        #[test]
        fn edits_leave_everything_in_step(
            first in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..14),
            edits in proptest::collection::vec(
                (0usize..260, 0usize..12, proptest::sample::select(&PIECES[..])), 0..10,
            ),
        ) {
            let mut index = SourceIndex::new(first.concat());
            check(&index);
            for (at, cut, piece) in edits {
                index.edit(&[TextEdit { range: at..at + cut, text: piece.to_owned() }]);
                check(&index);
            }
            let mut replaced = SourceIndex::new("def f():\n  pass\n");
            replaced.replace(index.text());
            prop_assert_eq!(replaced.text(), index.text());
            check(&replaced);
        }
    }

    #[test]
    fn a_statement_between_a_decorator_and_its_function() {
        check(&SourceIndex::new(
            "for i in j:\n\tk(i)\n@d\n\n def m(self): pass\n\\def f(x):\n    y\n",
        ));
    }

    #[test]
    fn what_is_nested_20_000_deep_is_no_danger() {
        for (open, close) in
            [("(", ")"), ("[", "]"), ("f(", ")"), ("-", ""), ("lambda: ", ""), ("{", "")]
        {
            let text =
                format!("a = 1\nx = {}1{}\nb = 2\n", open.repeat(20_000), close.repeat(20_000));
            let mut index = SourceIndex::new(text.as_str());
            index.edit(&[TextEdit { range: 0..1, text: "c".into() }]);
            check(&index);
        }
        let ifs: String =
            (0..3_000).map(|depth| format!("{}if x:\n", " ".repeat(depth % 500))).collect();
        check(&SourceIndex::new(ifs));
        let chain = format!("x = a{}\n", ".b()".repeat(20_000));
        check(&SourceIndex::new(chain));
    }

    #[test]
    fn a_name_of_many_scopes_is_short() {
        let text: String =
            (0..300).map(|depth| format!("{}def f{depth}():\n", " ".repeat(depth))).collect();
        let index = SourceIndex::new(format!("{text}{}pass\n", " ".repeat(300)));
        assert_eq!(index.scope_name(index.scopes().len() - 1), "f296.f297.f298.f299");
    }
}
