//! Line starts of a text, and a checksum of each line.
//!
//! Lines end at `\n`, `\r\n` and `\r`, as in Python and in the Language Server Protocol. A text
//! with n line ends has n + 1 lines; the last may be empty.

use std::ops::Range;

use memchr::memchr2;

/// Returns one CRC-32 per line, over the UTF-8 bytes of the line without surrounding whitespace.
///
/// The agent writes the same (`line_crc` in docs/recording.md), so that costs can follow their
/// lines. Both sides strip what Python's `bytes.strip()` strips: space, `\t`, `\n`, `\r`, `\x0b`
/// and `\x0c`, but no Unicode whitespace. A byte order mark at the start of the text belongs to no
/// line. The checksum of an empty line is 0.
pub fn fingerprint(text: &str) -> Vec<u32> {
    Lines::new(text).checksums
}

/// The lines of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The start offset of each line; the first is 0, and there is always one.
    starts: Vec<usize>,
    /// The checksum of each line, as [`fingerprint`] computes it.
    checksums: Vec<u32>,
    /// The length of the text in bytes.
    len: usize,
}

impl Lines {
    pub fn new(text: &str) -> Lines {
        let mut lines = Lines { starts: Vec::new(), checksums: Vec::new(), len: text.len() };
        split(text, 0..text.len(), &mut lines.starts, &mut lines.checksums);
        lines.starts.push(last_line_start(text));
        lines.checksums.push(checksum(text, last_line_start(text)..text.len()));
        lines
    }

    /// The number of lines; at least 1.
    pub fn count(&self) -> u32 {
        u32::try_from(self.starts.len()).unwrap_or(u32::MAX)
    }

    /// The checksum of each line, as [`fingerprint`] computes it.
    pub fn checksums(&self) -> &[u32] {
        &self.checksums
    }

    /// The length of the text in bytes.
    pub fn text_len(&self) -> usize {
        self.len
    }

    /// The length of the longest line in bytes, including its line end.
    pub fn longest(&self) -> usize {
        let ends = self.starts.iter().skip(1).chain([&self.len]);
        self.starts
            .iter()
            .zip(ends)
            .map(|(start, end)| end.saturating_sub(*start))
            .max()
            .unwrap_or(0)
    }

    /// The 1-based line that contains the byte at `offset`. An offset past the end is on the last
    /// line.
    pub fn line_of(&self, offset: usize) -> u32 {
        u32::try_from(self.starts.partition_point(|&start| start <= offset)).unwrap_or(u32::MAX)
    }

    /// The start offset of a 1-based line. Line 0 starts where line 1 does; a line past the last
    /// one starts at the end of the text.
    pub fn start_of(&self, line: u32) -> usize {
        let index = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
        self.starts.get(index).copied().unwrap_or(self.len)
    }

    /// The byte range of a 1-based line, without its line end and surrounding whitespace. Empty for
    /// a blank line and for one that does not exist.
    pub fn trimmed(&self, text: &str, line: u32) -> Range<usize> {
        let start = self.start_of(line);
        let end = self.start_of(line.saturating_add(1)).min(text.len());
        let (first, bytes) = trim(text.as_bytes(), start.min(end)..end);
        first..first + bytes.len()
    }

    /// Applies an edit that replaced the bytes `old` by `new_len` bytes; `text` is the text after
    /// it.
    pub fn edit(&mut self, text: &str, old: Range<usize>, new_len: usize) {
        // One more line on each side, because an edit can join or separate `\r` and `\n`.
        let first = (self.line_of(old.start) as usize).saturating_sub(2);
        let after = (self.line_of(old.end) as usize).saturating_add(1);
        let shift = |offset: usize| offset - old.len() + new_len;
        if let (Some(&region_start), Some(&region_end)) =
            (self.starts.get(first), self.starts.get(after))
            && shift(self.len) == text.len()
        {
            let (mut starts, mut checksums) = (Vec::new(), Vec::new());
            split(text, region_start..shift(region_end), &mut starts, &mut checksums);
            for start in self.starts.iter_mut().skip(after) {
                *start = shift(*start);
            }
            self.starts.splice(first..after, starts);
            self.checksums.splice(first..after, checksums);
        } else {
            // The edit reaches the last lines: split the rest again.
            let start = self.starts.get(first).copied().unwrap_or(0);
            self.starts.truncate(first);
            self.checksums.truncate(first);
            split(text, start..text.len(), &mut self.starts, &mut self.checksums);
            let last = last_line_start(text);
            self.starts.push(last);
            self.checksums.push(checksum(text, last..text.len()));
        }
        self.len = text.len();
    }
}

/// Adds the lines that end within `region`, which starts at a line start.
fn split(text: &str, region: Range<usize>, starts: &mut Vec<usize>, checksums: &mut Vec<u32>) {
    let bytes = text.as_bytes();
    let mut start = region.start;
    while let Some(found) =
        bytes.get(start..region.end).and_then(|rest| memchr2(b'\n', b'\r', rest))
    {
        let mut at = start + found + 1;
        if bytes.get(at - 1..=at) == Some(b"\r\n") {
            at += 1;
        }
        starts.push(start);
        checksums.push(checksum(text, start..at));
        start = at;
    }
}

/// The nearest character boundary at or before `offset`.
pub fn character_at(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

fn last_line_start(text: &str) -> usize {
    text.bytes().rposition(|byte| byte == b'\n' || byte == b'\r').map_or(0, |at| at + 1)
}

fn checksum(text: &str, line: Range<usize>) -> u32 {
    crc32fast::hash(trim(text.as_bytes(), line).1)
}

/// Strips what Python's `bytes.strip()` strips, and a byte order mark at the start of the text.
/// Returns the start offset and the remaining bytes.
fn trim(bytes: &[u8], range: Range<usize>) -> (usize, &[u8]) {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c);
    let mut start = range.start;
    let mut line = bytes.get(range).unwrap_or_default();
    if start == 0
        && let Some(rest) = line.strip_prefix("\u{feff}".as_bytes())
    {
        start = "\u{feff}".len();
        line = rest;
    }
    if line.iter().all(is_space) {
        return (start, &[]);
    }
    while let [first, rest @ ..] = line
        && is_space(first)
    {
        start += 1;
        line = rest;
    }
    while let [rest @ .., last] = line
        && is_space(last)
    {
        line = rest;
    }
    (start, line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn agrees_with_python() {
        // zlib.crc32(b"import torch"), zlib.crc32(b""), zlib.crc32("\xa0x".encode()),
        // zlib.crc32(b"y")
        let text = "\u{feff}import torch \r\n\x0b\x0c\t\r\u{a0}x\ny";
        assert_eq!(fingerprint(text), [0xe4d8_2bad, 0, 0x9db3_dedb, 0xfbdb_2615]);
    }

    #[test]
    fn an_empty_text_has_one_line() {
        let lines = Lines::new("");
        assert_eq!(
            (lines.count(), lines.line_of(0), lines.line_of(9), lines.start_of(7)),
            (1, 1, 1, 0)
        );
        assert_eq!(lines.checksums(), [0]);
    }

    proptest! {
        #[test]
        fn an_edit_matches_a_new_analysis(
            text in "[ab\r\n é]{0,40}", piece in "[a\r\n ü]{0,6}", at in 0usize..50, cut in 0usize..50,
        ) {
            let at = character_at(&text, at);
            let cut = character_at(&text, cut).max(at);
            let mut lines = Lines::new(&text);
            let mut edited = text.clone();
            edited.replace_range(at..cut, &piece);
            lines.edit(&edited, at..cut, piece.len());
            prop_assert_eq!(lines, Lines::new(&edited));
        }
    }
}
