//! Text from a trace, a program or a file name, made safe to print.

use std::borrow::Cow;

/// The text without the characters that could steer a terminal or turn the direction of what
/// follows. Line ends and tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    let steers = |c: char| match c {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control(),
    };
    if text.contains(steers) {
        text.chars().map(|c| if steers(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
    } else {
        Cow::Borrowed(text)
    }
}

/// The text in one line of at most `width` characters, with an ellipsis where it was longer.
pub fn one_line(text: &str, width: usize) -> String {
    let text = printable(text);
    let mut line: String =
        text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).take(width + 1).collect();
    if line.chars().count() > width {
        line = line.chars().take(width.saturating_sub(1)).chain(['…']).collect();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
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
