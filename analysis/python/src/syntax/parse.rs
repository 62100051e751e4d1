//! Parses Python with tree-sitter: incrementally, within a budget, and with Python's line ends.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use memchr::memchr;
use tree_sitter::{Language, ParseOptions, Parser, Point, Tree};

use super::lines::Lines;

/// The maximum size of a text that is parsed, in bytes; costs of larger files are shown by line. A
/// file of 20,000 lines has about one million bytes, and a tree takes about 60 bytes of memory per
/// byte of text.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// The maximum length of a line, in bytes. A text with a longer line is data, not a program.
pub(super) const MAX_LINE_BYTES: usize = 256 << 10;

/// The maximum number of different indentations. The grammar's scanner keeps the indentations around
/// a token, two bytes each, in a buffer of 1024 bytes, after two bytes and up to 255 for open
/// strings. With 511 nested blocks and a string, it writes beyond the buffer and ends the process.
const MAX_INDENTATIONS: usize = (1024 - 2 - 255) / 2;

/// The work that a parse may take, in ticks of a hundred tree-sitter steps each, because this crate
/// knows no clock. A tick takes 20 to 100 microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Budget {
    /// Ordinary code needs one tick per 900 bytes. This allows ten times as much, and more for
    /// short texts. It stops error recovery that would otherwise search for seconds.
    Whole,
    /// An ordinary keystroke takes 20 to 40 ticks. A bracket that is not closed yet can take 2,000,
    /// because tree-sitter then tries to parse the rest of the file as its content.
    Edit {
        /// The number of edited bytes: a paste may take as long as a text of its size.
        bytes: usize,
    },
}

impl Budget {
    /// The budget for a text of this size, in ticks.
    pub(super) const fn ticks(self, bytes: usize) -> usize {
        match self {
            Budget::Whole => 2_000 + bytes / 90,
            Budget::Edit { bytes: edited } => 50 + edited / 90,
        }
    }
}

static LANGUAGE: LazyLock<Language> = LazyLock::new(|| tree_sitter_python::LANGUAGE.into());

/// The grammar.
pub(super) fn language() -> &'static Language {
    &LANGUAGE
}

/// Whether a text is small enough to be parsed.
pub(super) fn is_parseable(lines: &Lines) -> bool {
    lines.text_len() <= MAX_BYTES && lines.longest() <= MAX_LINE_BYTES
}

/// Parses `text`, reusing the unchanged parts of `old`. Returns `None` if the text is too long, has
/// too many indentations, or needs more than the budget.
pub(super) fn parse(text: &str, lines: &Lines, old: Option<&Tree>, budget: Budget) -> Option<Tree> {
    if !is_parseable(lines) {
        return None;
    }
    let mut parser = Parser::new();
    parser.set_language(language()).ok()?;
    let bytes = for_tree_sitter(text);
    if !has_few_indentations(&bytes) {
        return None;
    }
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

/// Prepares a text for the grammar, which knows `\n` and `\r\n`, and treats a NUL as the end of the
/// text. Offsets stay the same.
fn for_tree_sitter(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    // The fast path for most texts, which have neither.
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

/// Whether the text has few enough indentations for the grammar's scanner. Each block is indented
/// more than the one around it, so a token is in no more blocks than there are indentations. They
/// are counted as the scanner does: in 16 bits, and the spaces before a backslash that ends its line
/// add to those of the next line.
fn has_few_indentations(bytes: &[u8]) -> bool {
    let mut found = BTreeSet::new();
    let mut width = 0_u16;
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        rest = match first {
            b' ' | b'\t' => {
                width = width.wrapping_add(if *first == b'\t' { 8 } else { 1 });
                after
            }
            b'\n' | b'\r' | 0x0c => {
                width = 0;
                after
            }
            b'\\' if after.starts_with(b"\n") => after.get(1..).unwrap_or_default(),
            b'\\' if after.starts_with(b"\r\n") => after.get(2..).unwrap_or_default(),
            _ => {
                if width > 0 && found.insert(width) && found.len() > MAX_INDENTATIONS {
                    return false;
                }
                let end = memchr(b'\n', after).unwrap_or(after.len());
                after.get(end..).unwrap_or_default()
            }
        };
    }
    true
}

/// Converts an offset to tree-sitter's zero-based row and byte column.
pub(super) fn point(lines: &Lines, offset: usize) -> Point {
    let line = lines.line_of(offset);
    Point { row: line as usize - 1, column: offset.saturating_sub(lines.start_of(line)) }
}
