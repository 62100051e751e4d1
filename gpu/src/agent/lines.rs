//! Reads lines of limited length from an arbitrary stream.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Without the line ending.
    Text(Vec<u8>),
    /// Longer than the limit, and discarded.
    TooLong,
    /// End of the stream, or a read error.
    End,
}

/// Reads the next line with at most `limit` bytes in memory. A last line without a newline counts.
pub(super) async fn next_line(source: &mut (impl AsyncBufRead + Unpin), limit: usize) -> Line {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let chunk = match source.fill_buf().await {
            Ok(chunk) if !chunk.is_empty() => chunk,
            _ if too_long => return Line::TooLong,
            _ if line.is_empty() => return Line::End,
            _ => return Line::Text(line),
        };
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part = end.and_then(|end| chunk.get(..end)).unwrap_or(chunk);
        too_long |= line.len() + part.len() > limit;
        if too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        source.consume(used);
        if end.is_some() {
            return if too_long { Line::TooLong } else { Line::Text(line) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], expected: &[Line]) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // A small buffer, so lines arrive in several pieces.
        let mut source = tokio::io::BufReader::with_capacity(3, input);
        for line in expected {
            assert_eq!(runtime.block_on(next_line(&mut source, 8)), *line);
        }
    }

    fn text(line: &str) -> Line {
        Line::Text(line.into())
    }

    #[test]
    fn lines_are_read_in_order() {
        check(b"one\n\ntwo\n", &[text("one"), text(""), text("two"), Line::End]);
    }

    #[test]
    fn only_lines_up_to_the_limit_are_returned() {
        check(b"12345678\n123456789\nnext\n", &[text("12345678"), Line::TooLong, text("next")]);
    }

    #[test]
    fn a_last_line_without_a_newline_counts() {
        check(b"one\ntwo", &[text("one"), text("two"), Line::End]);
        check(b"far too long", &[Line::TooLong, Line::End]);
    }

    #[test]
    fn nul_bytes_are_preserved() {
        check(b"a\0b\n", &[text("a\0b"), Line::End]);
    }
}
