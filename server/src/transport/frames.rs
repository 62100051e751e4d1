//! Reads frames (`Content-Length: N`, an empty line, N bytes) from a stream of arbitrary bytes.
//!
//! Invalid headers and bodies are skipped, and reading continues at the next valid header. A raw
//! `Content-Length: 12` at the start of a line always begins a new frame: it cannot occur inside a
//! JSON body, because strings contain no raw line breaks.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The maximum size of a body, in bytes. A Python file of this size has a million lines.
pub(crate) const BODY_LIMIT: usize = 64 * 1024 * 1024;

/// The maximum size of a header block, in bytes.
const HEADER_LIMIT: usize = 8 * 1024;

/// One item of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A body of the length given in its header.
    Body(Vec<u8>),
    /// Skipped bytes that are not a frame, with a description.
    Garbage(String),
}

/// The frames of a stream, in order.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    stream: R,
    buffer: Vec<u8>,
    /// The bytes at the start of the buffer that were taken.
    taken: usize,
    /// Why bytes were skipped since the last frame, until it is reported.
    skipped: Option<String>,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    /// Reads the frames of `stream` and takes ownership of it.
    pub(crate) fn new(stream: R) -> Frames<R> {
        Frames { stream, buffer: Vec::new(), taken: 0, skipped: None, ended: false }
    }

    /// The next frame, or `None` at the end of the stream. A frame cut off by the end is dropped.
    ///
    /// # Errors
    /// If the stream cannot be read.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            match self.step() {
                Step::Frame(frame) => return Ok(Some(frame)),
                Step::Again => {}
                Step::NeedMore if self.ended => return Ok(None),
                Step::NeedMore => {
                    // With small reads, the buffer grows with the received bytes, not with the
                    // length in a header.
                    let mut piece = [0_u8; 64 * 1024];
                    let count = self.stream.read(&mut piece).await?;
                    self.ended = count == 0;
                    self.buffer.extend_from_slice(piece.get(..count).unwrap_or_default());
                }
            }
        }
    }

    /// The bytes that were read and not taken yet.
    fn rest(&self) -> &[u8] {
        self.buffer.get(self.taken..).unwrap_or_default()
    }

    /// Takes bytes. The others are moved only if they are fewer than the taken ones, because the
    /// buffer may hold thousands of frames.
    fn take(&mut self, count: usize) {
        self.taken += count;
        if self.taken * 2 >= self.buffer.len() {
            self.buffer.drain(..self.taken);
            self.taken = 0;
            if self.buffer.len() < 64 * 1024 && self.buffer.capacity() > 1024 * 1024 {
                self.buffer.shrink_to(64 * 1024);
            }
        }
    }

    fn step(&mut self) -> Step {
        let Some(start) = find_header(self.rest()) else {
            // Other headers may still be arriving, so nothing is skipped before they are too long.
            if self.rest().len() > HEADER_LIMIT {
                self.skip(self.rest().len() - HEADER_LINE_LIMIT, "text that is not a message");
            }
            return Step::NeedMore;
        };
        if start > 0 {
            // Other headers may precede `Content-Length`. Each ends with its line.
            let before = self.rest().get(..start).unwrap_or_default();
            if is_headers(before) {
                self.take(start);
            } else {
                self.skip(start, "text that is not a message");
            }
            return Step::Again;
        }
        if let Some(why) = self.skipped.take() {
            return Step::Frame(Frame::Garbage(why));
        }
        let window = self.rest().get(..self.rest().len().min(HEADER_LIMIT)).unwrap_or_default();
        let Some((headers, body_start)) = split_headers(window) else {
            if window.len() >= HEADER_LIMIT {
                self.skip(HEADER_LIMIT - HEADER_LINE_LIMIT, "an unterminated header");
                return Step::Again;
            }
            return Step::NeedMore;
        };
        match content_length(headers) {
            Err(why) => {
                self.skip(body_start, &why);
                Step::Again
            }
            Ok(length) if length > BODY_LIMIT => {
                self.skip(
                    body_start,
                    &format!("a message of {length} bytes; the limit is {BODY_LIMIT}"),
                );
                Step::Again
            }
            Ok(length) => {
                let Some(body) = self.rest().get(body_start..body_start + length) else {
                    return Step::NeedMore;
                };
                // If a length was too large, the body includes the following frames.
                if let Some(next) = find_header(body) {
                    self.skip(body_start + next, "a message that is not JSON");
                    return Step::Again;
                }
                let body = body.to_vec();
                self.take(body_start + length);
                Step::Frame(Frame::Body(body))
            }
        }
    }

    fn skip(&mut self, count: usize, why: &str) {
        let bytes = self.rest().get(..count).unwrap_or_default();
        if self.skipped.is_none() && bytes.iter().any(|byte| !byte.is_ascii_whitespace()) {
            self.skipped = Some(why.to_owned());
        }
        self.take(count);
    }
}

enum Step {
    Frame(Frame),
    Again,
    NeedMore,
}

const HEADER_NAME: &[u8] = b"content-length:";

/// The maximum length of a `Content-Length: …` line, in bytes.
const HEADER_LINE_LIMIT: usize = 64;

/// The offset of the next complete `Content-Length: …` line in `bytes`.
///
/// Text before it on its line is garbage. A line break within a JSON string is escaped, so a body
/// that quotes such a line does not look like one.
fn find_header(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let start =
            from + bytes.get(from..)?.iter().position(|byte| matches!(byte, b'c' | b'C'))?;
        from = start + 1;
        let rest = bytes.get(start..)?;
        let name = rest.get(..rest.len().min(HEADER_NAME.len()))?;
        if !name.eq_ignore_ascii_case(HEADER_NAME.get(..name.len())?) {
            continue;
        }
        let value = rest.get(name.len()..rest.len().min(HEADER_LINE_LIMIT))?;
        let end = value.iter().position(|byte| matches!(byte, b'"' | b'\\' | b'\n'));
        if end.and_then(|end| value.get(end)) == Some(&b'\n') {
            return Some(start);
        }
    }
}

/// Whether `bytes` are complete header lines (`Name: value`), which belong to the following body.
fn is_headers(bytes: &[u8]) -> bool {
    bytes.len() < HEADER_LIMIT
        && bytes.ends_with(b"\n")
        && bytes.split(|byte| *byte == b'\n').all(|line| {
            let line = line.trim_ascii();
            line.is_empty()
                || line.split(|byte| *byte == b':').next().is_some_and(|name| {
                    name.len() < line.len()
                        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
                })
        })
}

/// The header block and the offset of the body, or `None` until the empty line has arrived.
fn split_headers(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let mut line_start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte != b'\n' {
            continue;
        }
        let line = bytes.get(line_start..at)?;
        if line.trim_ascii().is_empty() {
            return Some((bytes.get(..line_start)?, at + 1));
        }
        line_start = at + 1;
    }
    None
}

/// The length given in the headers. Contradictory lengths are an error.
fn content_length(headers: &[u8]) -> Result<usize, String> {
    let mut found: Option<usize> = None;
    for line in headers.split(|byte| *byte == b'\n') {
        let Some((name, value)) = line.split_at_checked(HEADER_NAME.len()) else { continue };
        if !name.eq_ignore_ascii_case(HEADER_NAME) {
            continue;
        }
        let value = String::from_utf8_lossy(value.trim_ascii()).into_owned();
        let length: usize = match value.parse() {
            Ok(length) => length,
            // More digits than fit into 64 bits: treated like any absurdly large number.
            Err(_) if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                usize::MAX
            }
            Err(_) => return Err("an invalid Content-Length".to_owned()),
        };
        if found.is_some_and(|before| before != length) {
            return Err("two conflicting Content-Length headers".to_owned());
        }
        found = Some(length);
    }
    found.ok_or_else(|| "headers without Content-Length".to_owned())
}

/// A body with its header, ready to be written.
pub(crate) fn framed(body: &str) -> Vec<u8> {
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// Reads `input` in pieces of one, three and many bytes. The result must not depend on the
    /// pieces.
    #[track_caller]
    fn check(input: &[u8], expected: Expect) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut first: Option<String> = None;
        for piece in [1, 3, 1 << 20] {
            let shown = runtime.block_on(async {
                let (mut write, read) = tokio::io::duplex(piece);
                let input = input.to_vec();
                tokio::spawn(async move {
                    use tokio::io::AsyncWriteExt;
                    let _ = write.write_all(&input).await;
                });
                let mut frames = Frames::new(read);
                let mut shown = String::new();
                while let Some(frame) = frames.next().await.expect("readable") {
                    match frame {
                        Frame::Body(body) => {
                            shown += &format!("{}\n", String::from_utf8_lossy(&body))
                        }
                        Frame::Garbage(why) => shown += &format!("! {why}\n"),
                    }
                }
                shown
            });
            if let Some(first) = &first {
                assert_eq!(*first, shown, "in pieces of {piece}");
            }
            first = Some(shown);
        }
        expected.assert_eq(&first.unwrap_or_default());
    }

    #[test]
    fn two_frames() {
        check(
            b"Content-Length: 2\r\n\r\n{}Content-Length: 4\r\n\r\nnull",
            expect![[r#"
            {}
            null
        "#]],
        );
    }

    #[test]
    fn other_headers_and_cases() {
        check(
            b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\ncontent-length:2\r\nX: y\r\n\r\n{}",
            expect![[r#"
                {}
            "#]],
        );
    }

    #[test]
    fn bare_line_feeds() {
        check(
            b"Content-Length: 2\n\n{}",
            expect![[r#"
            {}
        "#]],
        );
    }

    #[test]
    fn the_same_length_twice() {
        check(
            b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
            expect![[r#"
            {}
        "#]],
        );
    }

    #[test]
    fn contradictory_lengths() {
        check(
            b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}Content-Length: 4\r\n\r\nnull",
            expect![[r#"
                ! two conflicting Content-Length headers
                null
            "#]],
        );
    }

    #[test]
    fn garbage_between_frames() {
        check(
            b"hello\r\n\r\nContent-Length: 2\r\n\r\n{}\xff\x00 noiseContent-Length: 4\r\n\r\nnull\r\nContent-Length: 1\r\n\r\n1",
            expect![[r#"
                ! text that is not a message
                {}
                ! text that is not a message
                null
                1
            "#]],
        );
    }

    #[test]
    fn absurd_lengths_are_not_allocated() {
        check(
            b"Content-Length: 99999999999999999999999999\r\n\r\nContent-Length: 18446744073709551615\r\n\r\n{}Content-Length: 2\r\n\r\n{}",
            expect![[r#"
                ! a message of 18446744073709551615 bytes; the limit is 67108864
                ! a message of 18446744073709551615 bytes; the limit is 67108864
                {}
            "#]],
        );
    }

    #[test]
    fn negative_and_non_numeric_lengths() {
        check(
            b"Content-Length: -5\r\n\r\nContent-Length: two\r\n\r\nContent-Length: 2\r\n\r\n{}",
            expect![[r#"
                ! an invalid Content-Length
                ! an invalid Content-Length
                {}
            "#]],
        );
    }

    #[test]
    fn a_header_quoted_in_a_body_is_text() {
        check(
            b"Content-Length: 53\r\n\r\n{\"text\":\"Content-Length: 3\\r\\nContent-Length: 4\\r\\n\"}",
            expect![[r#"
                {"text":"Content-Length: 3\r\nContent-Length: 4\r\n"}
            "#]],
        );
    }

    #[test]
    fn a_length_that_covers_the_following_frames() {
        check(
            b"Content-Length: 40\r\n\r\n{\"a\":Content-Length: 2\r\n\r\n{}Content-Length: 4\r\n\r\nnull",
            expect![[r#"
                ! a message that is not JSON
                {}
                null
            "#]],
        );
    }

    #[test]
    fn thousands_of_frames_in_one_read() {
        let count = 100_000;
        let mut input = b"Content-Length: 4000000\r\n\r\n".to_vec();
        input.extend(b"Content-Length: 20\r\n\r\n                null".repeat(count));
        let mut expected = "! a message that is not JSON\n".to_owned();
        expected += &"                null\n".repeat(count);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut frames = Frames::new(input.as_slice());
        let mut shown = String::new();
        while let Some(frame) = runtime.block_on(frames.next()).expect("readable") {
            match frame {
                Frame::Body(body) => shown += &format!("{}\n", String::from_utf8_lossy(&body)),
                Frame::Garbage(why) => shown += &format!("! {why}\n"),
            }
        }
        assert!(shown == expected);
    }

    #[test]
    fn a_header_that_never_ends() {
        let mut input = b"Content-Length: 2\r\n".to_vec();
        input.extend(std::iter::repeat_n(b"X-Filler: y\r\n".as_slice(), 1000).flatten());
        input.extend_from_slice(b"\r\n{}Content-Length: 4\r\n\r\nnull");
        check(
            &input,
            expect![[r#"
            ! an unterminated header
            null
        "#]],
        );
    }

    #[test]
    fn the_end_within_a_frame() {
        check(b"Content-Length: 20\r\n\r\n{\"half\":", expect![""]);
        check(b"Content-Le", expect![""]);
    }
}
