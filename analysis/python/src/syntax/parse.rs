//! Parsing Python with tree-sitter: incrementally, within a budget, and with Python's line ends.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use tree_sitter::{Language, ParseOptions, Parser, Point, Tree};

use super::lines::Lines;

/// Texts longer than this are not parsed; their costs go by line. A file of 20,000 lines has about one
/// million bytes, and a tree takes some 60 bytes of memory for each of the text's.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// Nor are texts with a longer line, which are data and no program.
pub(super) const MAX_LINE_BYTES: usize = 256 << 10;

/// How much work a parse may be. Counted in ticks, one every hundred of tree-sitter's steps,
/// because this crate knows no clock. A tick takes 20 to 100 microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Budget {
    /// Ordinary code needs a tick for each 900 bytes, so this is ten times as much and more for
    /// short texts. It ends what error recovery would search for seconds.
    Whole,
    /// An ordinary key takes 20 to 40 ticks. A bracket that is not closed yet can take 2,000,
    /// because tree-sitter then tries the rest of the file as what is within the bracket.
    Edit {
        /// Bytes that were edited: a paste may take what a text of its size takes.
        bytes: usize,
    },
}

impl Budget {
    /// In a text of so many bytes.
    pub(super) const fn ticks(self, bytes: usize) -> usize {
        match self {
            Budget::Whole => 2_000 + bytes / 90,
            Budget::Edit { bytes: edited } => 50 + edited / 90,
        }
    }
}

static LANGUAGE: LazyLock<Language> = LazyLock::new(|| tree_sitter_python::LANGUAGE.into());

/// The grammar, for those who look node kinds up once.
pub(super) fn language() -> &'static Language {
    &LANGUAGE
}

/// Whether a text is one that a person could have written.
pub(super) fn can_be_parsed(lines: &Lines) -> bool {
    lines.text_len() <= MAX_BYTES && lines.longest() <= MAX_LINE_BYTES
}

/// Parses `text`, with what is still good of `old`. Nothing where the text is too long or too
/// strange for the budget.
pub(super) fn parse(text: &str, lines: &Lines, old: Option<&Tree>, budget: Budget) -> Option<Tree> {
    if !can_be_parsed(lines) {
        return None;
    }
    let mut parser = Parser::new();
    parser.set_language(language()).ok()?;
    let bytes = as_tree_sitter_reads_it(text);
    let mut ticks = budget.ticks(text.len());
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
    // Most texts have neither, and this way of asking is the fastest.
    if !bytes.contains(&b'\r') && !bytes.contains(&0) {
        return Cow::Borrowed(bytes);
    }
    let pairs = || bytes.iter().zip(bytes.iter().skip(1).map(Some).chain([None]));
    let readable = |byte: u8, next: Option<&u8>| match byte {
        b'\r' if next != Some(&b'\n') => b'\n',
        0 => b'?',
        other => other,
    };
    if pairs().all(|(byte, next)| readable(*byte, next) == *byte) {
        return Cow::Borrowed(bytes);
    }
    Cow::Owned(pairs().map(|(byte, next)| readable(*byte, next)).collect())
}

/// The place of an offset as tree-sitter counts: from row 0, in bytes.
pub(super) fn point(lines: &Lines, offset: usize) -> Point {
    let line = lines.line_of(offset);
    Point { row: line as usize - 1, column: offset.saturating_sub(lines.start_of(line)) }
}
