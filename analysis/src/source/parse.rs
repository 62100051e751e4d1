//! Parsing Python with tree-sitter: incrementally, within a budget, and with Python's line ends.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};
use std::sync::LazyLock;

use tree_sitter::{InputEdit, Language, ParseOptions, Parser, Point, Tree};

use super::lines::Lines;

/// Texts longer than this are not parsed; their costs go by line. A Python file of this size was
/// not written by a person.
const MAX_BYTES: usize = 16 << 20;

/// A parse may take this many ticks, plus one a byte. Tree-sitter calls back every 100 of its
/// steps, and ordinary code takes less than one step a byte, so this is a hundred times what
/// ordinary code needs; it ends only what its error recovery would search for seconds.
const BASE_TICKS: usize = 20_000;

static LANGUAGE: LazyLock<Language> = LazyLock::new(|| tree_sitter_python::LANGUAGE.into());

/// The grammar, for those who look node kinds up once.
pub(super) fn language() -> &'static Language {
    &LANGUAGE
}

/// Parses `text`, with what is still good of `old`. Nothing where the text is too long or too
/// strange for the budget.
pub(super) fn parse(text: &str, old: Option<&Tree>) -> Option<Tree> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let mut parser = Parser::new();
    parser.set_language(language()).ok()?;
    let bytes = as_tree_sitter_reads_it(text);
    let mut ticks = BASE_TICKS + text.len();
    let mut spend = |_: &tree_sitter::ParseState| match ticks.checked_sub(1) {
        Some(left) => {
            ticks = left;
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    };
    let options = ParseOptions::new().progress_callback(&mut spend);
    parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), old, Some(options))
}

/// The grammar knows `\n` and `\r\n`, and takes a NUL for the end of the text. Each byte keeps its
/// place.
fn as_tree_sitter_reads_it(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    let lone_return = |at: usize| bytes[at] == b'\r' && bytes.get(at + 1) != Some(&b'\n');
    let strange = |at: usize| bytes[at] == 0 || lone_return(at);
    let Some(first) = (0..bytes.len()).find(|&at| strange(at)) else {
        return Cow::Borrowed(bytes);
    };
    let mut owned = bytes.to_vec();
    for at in first..bytes.len() {
        if lone_return(at) {
            owned[at] = b'\n';
        } else if bytes[at] == 0 {
            owned[at] = b'?';
        }
    }
    Cow::Owned(owned)
}

/// Tells a tree that the bytes `old` became `new_len` bytes, so that the next parse can use it.
pub(super) fn edit(
    tree: &mut Tree,
    before: &Lines,
    after: &Lines,
    old: Range<usize>,
    new_len: usize,
) {
    let point = |lines: &Lines, offset: usize| {
        let line = lines.line_of(offset);
        Point { row: line as usize - 1, column: offset.saturating_sub(lines.start_of(line)) }
    };
    let new_end = old.start + new_len;
    tree.edit(&InputEdit {
        start_byte: old.start,
        old_end_byte: old.end,
        new_end_byte: new_end,
        start_position: point(before, old.start),
        old_end_position: point(before, old.end),
        new_end_position: point(after, new_end),
    });
}
