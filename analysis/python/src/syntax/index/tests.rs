use std::cell::Cell;

use proptest::prelude::*;

use super::*;

thread_local! {
    /// The number of parse attempts after edits: with the small budget, and with the whole.
    static ATTEMPTS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

pub(super) fn count_attempt(budget: Budget) {
    let (small, whole) = ATTEMPTS.get();
    let is_whole = budget == Budget::Whole;
    ATTEMPTS.set((small + usize::from(!is_whole), whole + usize::from(is_whole)));
}

/// A text with an open bracket, so that no parse ends within its budget.
fn broken() -> SourceIndex {
    let line = "    a = foo(b, [c for c in d], {1: 2}, 'x')\n";
    let function = format!("def f():\n{}", line.repeat(20));
    let mut index = SourceIndex::new(function.repeat(1_000));
    index.edit(&[TextEdit { range: 0..0, text: "x = (\n".into() }]);
    assert!(index.is_behind());
    index
}

#[test]
fn broken_text_is_not_parsed_on_every_key() {
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
fn possible_closing_brackets_are_parsed_sooner() {
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
fn valid_text_is_parsed_on_every_key() {
    let mut index = SourceIndex::new("a = 1\n".repeat(20));
    for _ in 0..50 {
        index.edit(&[TextEdit { range: 4..4, text: "1".into() }]);
        assert!(!index.is_behind());
    }
}

#[test]
fn too_large_texts_have_no_tree() {
    let long_line = format!("x = '{}'\n", "y".repeat(parse::MAX_LINE_BYTES));
    for too_large in [long_line.clone(), "x = 1\n".repeat(parse::MAX_BYTES / 6 + 1)] {
        let index = SourceIndex::new(too_large.as_str());
        assert!(index.is_too_large_to_parse() && index.tree().is_none());
        assert!(index.statements().is_empty() && index.scopes().len() == 1);
        // It becomes too large while it is open, and normal again.
        let mut index = SourceIndex::new("a = 1\n");
        index.replace(&too_large);
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

/// Checks after any edits that the analysis matches the tree and the text.
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
        let rebuilt = Outline::new(index.tree(), &index.lines, index.text.len());
        assert_eq!(*index.outline, rebuilt);
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
    fn edits_keep_everything_in_sync(
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
    check(&SourceIndex::new("for i in j:\n\tk(i)\n@d\n\n def m(self): pass\n\\def f(x):\n    y\n"));
}

#[test]
fn nesting_of_20_000_levels_is_safe() {
    for (open, close) in
        [("(", ")"), ("[", "]"), ("f(", ")"), ("-", ""), ("lambda: ", ""), ("{", "")]
    {
        let text = format!("a = 1\nx = {}1{}\nb = 2\n", open.repeat(20_000), close.repeat(20_000));
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

/// `if` in `if`, with a string in the innermost, which ended the process from 511 on.
fn nested_blocks(depth: usize) -> String {
    let ifs: String = (0..depth).map(|depth| format!("{}if x:\n", " ".repeat(depth))).collect();
    format!("{ifs}{}y = 'z'\n", " ".repeat(depth))
}

#[test]
fn blocks_beyond_the_scanner_are_not_parsed() {
    assert!(SourceIndex::new(nested_blocks(383)).tree().is_some());
    for depth in [384, 511, 2_000] {
        let index = SourceIndex::new(nested_blocks(depth));
        assert!(index.tree().is_none(), "{depth}");
        check(&index);
        let mut index = SourceIndex::new("x = 1\n");
        index.replace(&nested_blocks(depth));
        assert!(index.is_behind(), "{depth}");
        index.replace("x = 2\n");
        check(&index);
    }
}

#[test]
fn spaces_before_a_backslash_count_as_indentation() {
    let ifs: String = (0..600)
        .map(|depth| {
            let half = depth / 2;
            format!("{}\\\n{}if x:\n", " ".repeat(half), " ".repeat(depth - half))
        })
        .collect();
    assert!(SourceIndex::new(format!("{ifs}{}y = 'z'\n", " ".repeat(600))).tree().is_none());
}

#[test]
fn names_of_nested_scopes_are_short() {
    let text: String =
        (0..300).map(|depth| format!("{}def f{depth}():\n", " ".repeat(depth))).collect();
    let index = SourceIndex::new(format!("{text}{}pass\n", " ".repeat(300)));
    assert_eq!(index.scope_name(index.scopes().len() - 1), "f296.f297.f298.f299");
}
