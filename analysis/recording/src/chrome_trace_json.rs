//! A JSON scanner for a window of bytes that may end anywhere.
//!
//! A trace is a stream of up to gigabytes of small objects with a known structure, and only a tenth
//! of the bytes is stored. This scanner borrows every token, copies nothing and converts only what
//! is stored: for the 53 MB sample trace, reading and building the model takes 98 ms on one core,
//! while serde_json takes 170 ms (and sonic-rs no less) to fill typed structs from a slice of the
//! whole file, and longer from a stream. serde_json is the oracle in the tests: everything that it
//! accepts is read as the same values. The scanner also accepts `NaN`, `Infinity` and `inf`, which
//! Python and profilers write, malformed numbers such as `01`, and any bytes in strings.

use std::borrow::Cow;

use memchr::memchr2;

/// Maximum nesting depth, the same as serde_json's. Real traces have depth 7.
pub(super) const MAX_DEPTH: usize = 128;

/// The reason why reading a value stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The window ended within the value, which may be complete with more bytes.
    Incomplete,
    /// It is not JSON, whatever bytes follow.
    Invalid {
        /// Offset from the start of the window.
        at: usize,
        /// The expected input, for the error message.
        expected: &'static str,
    },
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    EscapedText,
    Number,
    Word,
    Nested,
}

/// A value as borrowed bytes, not yet converted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// There is no value.
    #[default]
    Missing,
    /// The bytes between the quotes, and whether they contain a backslash.
    Text { bytes: &'a [u8], escaped: bool },
    /// The bytes of a number.
    Number(&'a [u8]),
    /// The bytes of `null`, `true`, `false`, `NaN` or an infinity.
    Word(&'a [u8]),
    /// The bytes of an array or object, brackets included.
    Nested(&'a [u8]),
}

impl<'a> Token<'a> {
    /// Returns the text of a string.
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Token::Text { bytes, escaped: false } => Some(utf8(bytes)),
            Token::Text { bytes, escaped: true } => Some(Cow::Owned(unescape(bytes))),
            _ => None,
        }
    }

    /// Returns the text of a string or number: `tid` is `25738`, `"25738"` or `"stream 7"`.
    pub(super) fn label(self) -> Option<Cow<'a, str>> {
        match self {
            Token::Number(bytes) => Some(utf8(bytes)),
            _ => self.text(),
        }
    }

    /// Returns the bytes of a string without a backslash.
    pub(super) fn plain(self) -> Option<&'a [u8]> {
        match self {
            Token::Text { bytes, escaped: false } => Some(bytes),
            _ => None,
        }
    }

    /// Returns the bytes of an array or object.
    pub(super) fn nested(self) -> Option<&'a [u8]> {
        match self {
            Token::Nested(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the bytes of a number, which may be quoted.
    pub(super) fn number(self) -> Option<&'a [u8]> {
        match self {
            Token::Number(bytes) | Token::Text { bytes, escaped: false } => Some(bytes),
            _ => None,
        }
    }

    /// Returns a non-negative integer.
    pub(super) fn unsigned(self) -> Option<u64> {
        integer(self.number()?)
    }

    /// Returns an integer.
    pub(super) fn signed(self) -> Option<i64> {
        let bytes = self.number()?;
        match bytes.strip_prefix(b"-") {
            Some(magnitude) => 0i64.checked_sub_unsigned(integer(magnitude)?),
            None => integer(bytes)?.try_into().ok(),
        }
    }

    /// Returns a finite number.
    pub(super) fn float(self) -> Option<f32> {
        let value: f32 = std::str::from_utf8(self.number()?).ok()?.parse().ok()?;
        value.is_finite().then_some(value)
    }

    /// Converts microseconds to nanoseconds, see [`nanoseconds`].
    pub(super) fn nanoseconds(self) -> Option<i64> {
        nanoseconds(self.number()?)
    }
}

/// Converts bytes to text, with U+FFFD for invalid UTF-8.
pub(super) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    // Several times as fast as calling the lossy conversion directly.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Converts a decimal number of microseconds to nanoseconds, rounding further digits. Does not use
/// floats, which represent microseconds since 1970 with a resolution of a quarter microsecond.
/// Returns `None` if it is not a number or does not fit.
pub(super) fn nanoseconds(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mut mantissa, mut power) = (0u64, 3i32);
    let (mut has_digits, mut in_fraction) = (false, false);
    let mut rest = digits.iter();
    for byte in rest.by_ref() {
        match byte {
            b'0'..=b'9' => {
                has_digits = true;
                // Digits that do not fit are far below a nanosecond, or the number is out of range.
                if mantissa < u64::MAX / 10 {
                    mantissa = mantissa * 10 + u64::from(byte - b'0');
                    power = power.checked_sub(i32::from(in_fraction))?;
                } else {
                    power = power.checked_add(i32::from(!in_fraction))?;
                }
            }
            b'.' if !in_fraction => in_fraction = true,
            b'e' | b'E' => {
                let exponent: i32 = std::str::from_utf8(rest.as_slice()).ok()?.parse().ok()?;
                power = power.checked_add(exponent)?;
                break;
            }
            _ => return None,
        }
    }
    let magnitude = if mantissa == 0 {
        0
    } else if power >= 0 {
        mantissa.checked_mul(10u64.checked_pow(power.unsigned_abs())?)?
    } else {
        match 10u64.checked_pow(power.unsigned_abs()) {
            Some(divisor) => {
                mantissa / divisor + u64::from(mantissa % divisor >= divisor.div_ceil(2))
            }
            None => 0,
        }
    };
    let magnitude = i64::try_from(magnitude).ok().filter(|_| has_digits)?;
    Some(if negative { -magnitude } else { magnitude })
}

fn integer(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// Reads consecutive values from a window of bytes.
#[derive(Clone, Debug)]
pub(super) struct Scanner<'a> {
    window: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(window: &'a [u8], at: usize) -> Scanner<'a> {
        Scanner { window, at }
    }

    /// Returns the offset of the next byte from the start of the window.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Skips white space and returns the next byte without consuming it.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<u8, Stop> {
        loop {
            match self.window.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(byte) => return Ok(*byte),
                None => return Err(Stop::Incomplete),
            }
        }
    }

    /// Skips one byte.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// Skips white space, then this byte if it is next. Returns whether it was.
    #[inline]
    pub(super) fn accept(&mut self, byte: u8) -> Result<bool, Stop> {
        let is_next = self.peek()? == byte;
        self.at += usize::from(is_next);
        Ok(is_next)
    }

    #[inline]
    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), Stop> {
        if self.accept(byte)? { Ok(()) } else { Err(self.invalid(expected)) }
    }

    pub(super) fn invalid(&self, expected: &'static str) -> Stop {
        Stop::Invalid { at: self.at, expected }
    }

    /// Reads an object. `member` receives each key and must read or skip the value.
    #[inline]
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&[u8], &mut Scanner<'a>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.expect(b'{', "an object")?;
        if self.accept(b'}')? {
            return Ok(());
        }
        loop {
            let key = self.key()?;
            member(key, self)?;
            let next = self.peek()?;
            if next != b',' && next != b'}' {
                return Err(self.invalid("a comma or the end of the object"));
            }
            self.at += 1;
            if next == b'}' {
                return Ok(());
            }
        }
    }

    /// Reads a key with its colon. Keys with a backslash are not unescaped, because no known key
    /// has one.
    #[inline]
    pub(super) fn key(&mut self) -> Result<&'a [u8], Stop> {
        if self.peek()? != b'"' {
            return Err(self.invalid("a key in quotes"));
        }
        self.at += 1;
        let (key, _) = self.string_after_quote()?;
        self.expect(b':', "a colon")?;
        Ok(key)
    }

    /// Reads a value. The contents of arrays and objects are checked and skipped.
    #[inline]
    pub(super) fn value(&mut self) -> Result<Token<'a>, Stop> {
        self.peek()?;
        let start = self.at;
        let kind = self.skip_kind(0)?;
        let bytes = self.since(start);
        let quoted = || bytes.get(1..bytes.len().saturating_sub(1)).unwrap_or_default();
        Ok(match kind {
            Kind::Text => Token::Text { bytes: quoted(), escaped: false },
            Kind::EscapedText => Token::Text { bytes: quoted(), escaped: true },
            Kind::Number => Token::Number(bytes),
            Kind::Word => Token::Word(bytes),
            Kind::Nested => Token::Nested(bytes),
        })
    }

    /// Skips a value.
    #[inline]
    pub(super) fn skip(&mut self) -> Result<(), Stop> {
        self.skip_kind(0).map(drop)
    }

    /// Skips a value and returns its kind. It does not return a token, because moving tokens
    /// through the recursion took a tenth of the time.
    fn skip_kind(&mut self, depth: usize) -> Result<Kind, Stop> {
        match self.peek()? {
            b'"' => {
                self.at += 1;
                let (_, escaped) = self.string_after_quote()?;
                Ok(if escaped { Kind::EscapedText } else { Kind::Text })
            }
            b'[' | b'{' if depth >= MAX_DEPTH => {
                Err(self.invalid("a value nested less than 128 levels deep"))
            }
            b'[' => {
                self.at += 1;
                if !self.accept(b']')? {
                    loop {
                        self.skip_kind(depth + 1)?;
                        let next = self.peek()?;
                        if next != b',' && next != b']' {
                            return Err(self.invalid("a comma or the end of the array"));
                        }
                        self.at += 1;
                        if next == b']' {
                            break;
                        }
                    }
                }
                Ok(Kind::Nested)
            }
            b'{' => {
                self.object(|_, scanner| scanner.skip_kind(depth + 1).map(drop))?;
                Ok(Kind::Nested)
            }
            b'0'..=b'9' => self.skip_number(),
            b'-' => match self.window.get(self.at + 1) {
                Some(b'0'..=b'9') => self.skip_number(),
                Some(_) => self.skip_word(),
                None => Err(Stop::Incomplete),
            },
            _ => self.skip_word(),
        }
    }

    fn skip_number(&mut self) -> Result<Kind, Stop> {
        let rest = self.window.get(self.at..).unwrap_or_default();
        let in_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let Some(length) = rest.iter().position(|byte| !in_number(byte)) else {
            return Err(self.incomplete_value(rest));
        };
        self.at += length;
        Ok(Kind::Number)
    }

    /// Skips a word, which ends at a byte that can follow a value.
    fn skip_word(&mut self) -> Result<Kind, Stop> {
        let rest = self.window.get(self.at..).unwrap_or_default();
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
        let Some(length) = rest.iter().position(ends) else {
            return Err(self.incomplete_value(rest));
        };
        match rest.get(..length).unwrap_or_default() {
            b"null" | b"true" | b"false" | b"NaN" | b"nan" | b"-nan" | b"Infinity"
            | b"-Infinity" | b"inf" | b"-inf" => {
                self.at += length;
                Ok(Kind::Word)
            }
            _ => Err(self.invalid("a value")),
        }
    }

    /// Returns the reason why a number or word at the end of the window is not complete. None is so
    /// long that more bytes would help beyond 4096.
    fn incomplete_value(&self, rest: &[u8]) -> Stop {
        if rest.len() > 4096 { self.invalid("a value") } else { Stop::Incomplete }
    }

    fn since(&self, start: usize) -> &'a [u8] {
        self.window.get(start..self.at).unwrap_or_default()
    }

    /// Reads up to the closing quote. Returns the bytes, and whether they contain a backslash.
    #[inline]
    fn string_after_quote(&mut self) -> Result<(&'a [u8], bool), Stop> {
        let start = self.at;
        let mut escaped = false;
        let mut at = start;
        loop {
            let rest = self.window.get(at..).unwrap_or_default();
            let Some(length) = memchr2(b'"', b'\\', rest) else { return Err(Stop::Incomplete) };
            at += length;
            if self.window.get(at) == Some(&b'"') {
                self.at = at + 1;
                return Ok((self.window.get(start..at).unwrap_or_default(), escaped));
            }
            escaped = true;
            at += 2;
        }
    }
}

/// Unescapes a string, with U+FFFD for invalid escapes and invalid UTF-8.
fn unescape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(backslash) = rest.iter().position(|byte| *byte == b'\\') {
        let (plain, escape) = rest.split_at(backslash);
        text.push_str(&String::from_utf8_lossy(plain));
        let (character, length) = match escape.get(1) {
            Some(b'u') => unescape_unicode(escape),
            Some(b'b') => ('\u{8}', 2),
            Some(b'f') => ('\u{c}', 2),
            Some(b'n') => ('\n', 2),
            Some(b'r') => ('\r', 2),
            Some(b't') => ('\t', 2),
            Some(b'"') => ('"', 2),
            Some(b'\\') => ('\\', 2),
            Some(b'/') => ('/', 2),
            _ => (char::REPLACEMENT_CHARACTER, 1),
        };
        text.push(character);
        rest = escape.get(length..).unwrap_or_default();
    }
    text.push_str(&String::from_utf8_lossy(rest));
    text
}

/// Returns the character of `\u12ab`, or of a surrogate pair of two of them, and the length of the
/// escape.
fn unescape_unicode(escape: &[u8]) -> (char, usize) {
    let code_unit = |at: usize| -> Option<u32> {
        let digits = escape.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |code, digit| Some(code * 16 + char::from(*digit).to_digit(16)?))
    };
    let Some(first) = code_unit(0) else { return (char::REPLACEMENT_CHARACTER, 2) };
    if let (0xD800..=0xDBFF, Some(second @ 0xDC00..=0xDFFF)) = (first, code_unit(6)) {
        let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 6)
}

#[cfg(test)]
mod tests;
