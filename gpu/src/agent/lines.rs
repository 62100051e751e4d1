//! Lines of bounded length from a stream that may hold anything.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Without its end.
    Text(Vec<u8>),
    /// Longer than the limit; it was thrown away.
    TooLong,
    /// The stream is at its end, or broken.
    End,
}

/// The next line, holding at most `limit` bytes in memory. A last line without an end counts.
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
        // A small buffer, so that lines come in several pieces.
        let mut source = tokio::io::BufReader::with_capacity(3, input);
        for line in expected {
            assert_eq!(runtime.block_on(next_line(&mut source, 8)), *line);
        }
    }

    fn text(line: &str) -> Line {
        Line::Text(line.into())
    }

    #[test]
    fn lines_come_in_order() {
        check(b"one\n\ntwo\n", &[text("one"), text(""), text("two"), Line::End]);
    }

    #[test]
    fn a_line_of_the_limit_is_kept_and_one_byte_more_is_not() {
        check(b"12345678\n123456789\nnext\n", &[text("12345678"), Line::TooLong, text("next")]);
    }

    #[test]
    fn a_last_line_without_an_end_counts() {
        check(b"one\ntwo", &[text("one"), text("two"), Line::End]);
        check(b"far too long", &[Line::TooLong, Line::End]);
    }

    #[test]
    fn nul_bytes_are_bytes() {
        check(b"a\0b\n", &[text("a\0b"), Line::End]);
    }
}
