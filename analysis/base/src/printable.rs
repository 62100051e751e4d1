//! Makes text from traces, programs and file names safe to print.

use std::borrow::Cow;

/// The maximum length of a name in characters.
const MAX_NAME_CHARACTERS: usize = 200;

/// Replaces control characters that a terminal would interpret and characters that change the text
/// direction. Keeps line ends and tabs.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| match c {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control(),
    };
    if text.contains(is_unsafe) {
        text.chars().map(|c| if is_unsafe(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns the text on one line of at most `width` characters, with an ellipsis if it was longer.
pub fn one_line(text: &str, width: usize) -> String {
    let text = printable(text);
    let mut line: String =
        text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).take(width + 1).collect();
    if line.chars().count() > width {
        line = line.chars().take(width.saturating_sub(1)).chain(['…']).collect();
    }
    line
}

/// Returns the text on one line, without terminal control characters and text direction marks.
pub fn clean(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// Shortens text to at most `limit` characters by removing the middle, because names of kernels and
/// paths differ at their ends.
pub fn shorten(text: &str, limit: usize) -> String {
    // Limits the cost of counting the characters of very long text.
    let count = text.chars().take(100_000).count();
    if count <= limit || limit < 5 {
        return text.chars().take(limit.max(5)).collect();
    }
    let head: String = text.chars().take(limit - limit / 3 - 1).collect();
    let tail: String = text.chars().take(count).skip(count - limit / 3).collect();
    format!("{head}…{tail}")
}

/// Returns a name from the program in a form that fits on one line.
pub fn name(text: &str) -> String {
    clean(&shorten(text, MAX_NAME_CHARACTERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_replaced() {
        assert_eq!(printable("\u{1b}[2Jkernel\u{7}\u{9b}"), "\u{fffd}[2Jkernel\u{fffd}\u{fffd}");
        assert_eq!(printable("a\tb\nc 漢字"), "a\tb\nc 漢字");
        assert_eq!(printable("a\u{202e}b"), "a\u{fffd}b");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(one_line("kernel", 6), "kernel");
        assert_eq!(one_line("kernels", 6), "kerne…");
        assert_eq!(one_line("漢字漢字", 3), "漢字…");
        assert_eq!(one_line("a\r\nb", 9), "a\u{fffd} b");
        assert_eq!(one_line("kernel", 0), "…");
    }
}
