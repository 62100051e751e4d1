//! Converts between byte offsets, which the server uses, and the positions negotiated with the
//! client.

use ridgeline_analysis::python::Lines;
use tower_lsp::ls_types::{Position, PositionEncodingKind, Range};

/// A range in the client's units, for code that only passes it on.
pub(crate) type ClientRange = Range;

/// The unit of a client's positions within a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Bytes.
    Utf8,
    /// UTF-16 code units. Every client supports them.
    #[default]
    Utf16,
    /// Code points.
    Utf32,
}

impl Encoding {
    /// Chooses UTF-8 if the client offers it, because it needs no conversion. Otherwise UTF-16,
    /// which every client must support, unless it only offers UTF-32.
    pub(crate) fn negotiate(offered: &[PositionEncodingKind]) -> Encoding {
        if offered.contains(&PositionEncodingKind::UTF8) {
            Encoding::Utf8
        } else if !offered.contains(&PositionEncodingKind::UTF16)
            && offered.contains(&PositionEncodingKind::UTF32)
        {
            Encoding::Utf32
        } else {
            Encoding::Utf16
        }
    }

    /// The name in the protocol.
    pub(crate) fn kind(self) -> PositionEncodingKind {
        match self {
            Encoding::Utf8 => PositionEncodingKind::UTF8,
            Encoding::Utf16 => PositionEncodingKind::UTF16,
            Encoding::Utf32 => PositionEncodingKind::UTF32,
        }
    }

    fn width(self, character: char) -> usize {
        match self {
            Encoding::Utf8 => character.len_utf8(),
            Encoding::Utf16 => character.len_utf16(),
            Encoding::Utf32 => 1,
        }
    }
}

/// The byte offset of a position. Clamps to the end of the line or the text. Within a character,
/// returns its start.
pub(crate) fn to_offset(
    text: &str,
    lines: &Lines,
    encoding: Encoding,
    position: Position,
) -> usize {
    let line = position.line.saturating_add(1);
    if line > lines.count() {
        return text.len();
    }
    let start = lines.start_of(line);
    let line_text = line_text(text, lines, line);
    let wanted = usize::try_from(position.character).unwrap_or(usize::MAX);
    // In a long line, counting characters takes long. In ASCII each is one byte.
    if line_text.as_bytes().get(..wanted).is_some_and(<[u8]>::is_ascii) {
        return start + wanted;
    }
    let mut counted = 0;
    for (at, character) in line_text.char_indices() {
        counted += encoding.width(character);
        if counted > wanted {
            return start + at;
        }
    }
    start + line_text.len()
}

/// The byte range between two positions, in order even if the client swapped them.
pub(crate) fn to_span(
    text: &str,
    lines: &Lines,
    encoding: Encoding,
    range: Range,
) -> std::ops::Range<usize> {
    let start = to_offset(text, lines, encoding, range.start);
    let end = to_offset(text, lines, encoding, range.end);
    start.min(end)..start.max(end)
}

/// The position of a byte offset. Clamps to the end of the text. Within a character, returns its
/// start.
pub(crate) fn to_position(
    text: &str,
    lines: &Lines,
    encoding: Encoding,
    offset: usize,
) -> Position {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let line = lines.line_of(offset);
    let before = text.get(lines.start_of(line)..offset).unwrap_or_default();
    let character = match before.is_ascii() {
        true => before.len(),
        false => before.chars().map(|character| encoding.width(character)).sum::<usize>(),
    };
    Position::new(line.saturating_sub(1), u32::try_from(character).unwrap_or(u32::MAX))
}

/// The range of a byte span.
pub(crate) fn to_range(
    text: &str,
    lines: &Lines,
    encoding: Encoding,
    span: std::ops::Range<usize>,
) -> Range {
    Range::new(
        to_position(text, lines, encoding, span.start),
        to_position(text, lines, encoding, span.end),
    )
}

/// The range of the code on a line (1-based), without surrounding white space.
pub(crate) fn line_range(text: &str, lines: &Lines, encoding: Encoding, line: u32) -> Range {
    to_range(text, lines, encoding, lines.trimmed(text, line.min(lines.count())))
}

/// A line's text without its line break.
fn line_text<'a>(text: &'a str, lines: &Lines, line: u32) -> &'a str {
    let end = lines.start_of(line.saturating_add(1)).min(text.len());
    let whole = text.get(lines.start_of(line)..end).unwrap_or_default();
    whole.strip_suffix("\r\n").or_else(|| whole.strip_suffix(['\n', '\r'])).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `é` has 2 bytes, `漢` 3, `😀` 4 bytes and 2 UTF-16 code units.
    const TEXT: &str = "a = 1\r\né漢😀 = 2\rx\n";

    #[track_caller]
    fn check(encoding: Encoding, line: u32, character: u32, offset: usize) {
        let lines = Lines::new(TEXT);
        let found = to_offset(TEXT, &lines, encoding, Position::new(line, character));
        assert_eq!(found, offset);
    }

    #[test]
    fn characters_by_encoding() {
        for (encoding, character) in
            [(Encoding::Utf8, 9), (Encoding::Utf16, 4), (Encoding::Utf32, 3)]
        {
            check(encoding, 1, character, 16);
            let lines = Lines::new(TEXT);
            let position = to_position(TEXT, &lines, encoding, 16);
            assert_eq!(position, Position::new(1, character));
        }
    }

    #[test]
    fn positions_out_of_range_are_clamped() {
        check(Encoding::Utf16, 0, u32::MAX, 5);
        check(Encoding::Utf16, 1, 1000, 20);
        check(Encoding::Utf16, u32::MAX, u32::MAX, TEXT.len());
        check(Encoding::Utf16, 3, 7, TEXT.len());
    }

    #[test]
    fn within_a_character() {
        check(Encoding::Utf16, 1, 3, 12);
        check(Encoding::Utf8, 1, 1, 7);
        let lines = Lines::new(TEXT);
        assert_eq!(to_position(TEXT, &lines, Encoding::Utf8, 8), Position::new(1, 0));
        assert_eq!(to_position(TEXT, &lines, Encoding::Utf8, 999), Position::new(3, 0));
    }

    #[test]
    fn reversed_ranges_are_swapped() {
        let lines = Lines::new(TEXT);
        let range = Range::new(Position::new(2, 0), Position::new(0, 1));
        assert_eq!(to_span(TEXT, &lines, Encoding::Utf16, range), 1..21);
    }

    #[test]
    fn every_offset_round_trips() {
        let lines = Lines::new(TEXT);
        for encoding in [Encoding::Utf8, Encoding::Utf16, Encoding::Utf32] {
            for (offset, character) in TEXT.char_indices() {
                if matches!(character, '\r' | '\n') {
                    continue;
                }
                let position = to_position(TEXT, &lines, encoding, offset);
                assert_eq!(to_offset(TEXT, &lines, encoding, position), offset);
            }
        }
    }

    #[test]
    fn negotiation() {
        let utf8 = PositionEncodingKind::UTF8;
        let utf16 = PositionEncodingKind::UTF16;
        let utf32 = PositionEncodingKind::UTF32;
        assert_eq!(Encoding::negotiate(&[]), Encoding::Utf16);
        assert_eq!(Encoding::negotiate(&[utf16.clone(), utf8]), Encoding::Utf8);
        assert_eq!(Encoding::negotiate(std::slice::from_ref(&utf32)), Encoding::Utf32);
        assert_eq!(Encoding::negotiate(&[utf32, utf16]), Encoding::Utf16);
        assert_eq!(Encoding::negotiate(&["nonsense".into()]), Encoding::Utf16);
    }
}
