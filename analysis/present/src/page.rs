//! A short text, as Markdown and as plain text for editors without Markdown.

use unicode_width::UnicodeWidthStr;

use ridgeline_base::printable::{clean, shorten};

/// A piece of a line.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    /// Plain text.
    Text(String),
    /// Emphasized text.
    Strong(String),
    /// A name from the program, which may contain any characters.
    Name(String),
    /// A text with a link. The address is already encoded and is written unchanged.
    Link(String, String),
}

pub(super) fn text(text: impl Into<String>) -> Piece {
    Piece::Text(text.into())
}

pub(super) fn strong(text: impl Into<String>) -> Piece {
    Piece::Strong(text.into())
}

/// Returns a [`Piece::Name`], truncated to fit a line.
pub(super) fn name(name: &str) -> Piece {
    Piece::Name(shorten(name, 72))
}

/// Splits a text into pieces; `code` is between backticks.
pub(super) fn with_code(source: &str) -> Vec<Piece> {
    // An unpaired backtick does not mark code.
    if !source.matches('`').count().is_multiple_of(2) {
        return vec![text(source)];
    }
    let parts = source.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(at, part)| if at % 2 == 0 { text(part) } else { name(part) }).collect()
}

/// Builds a text. Lines of one paragraph stay together.
#[derive(Clone, Debug)]
pub(super) struct Page {
    markdown: String,
    plain: String,
    in_list: bool,
    /// The number of lines left, not counting blank ones.
    room: usize,
}

impl Default for Page {
    fn default() -> Page {
        Page::with_room(usize::MAX)
    }
}

impl Page {
    /// Returns a page that drops everything after `lines` lines.
    pub(super) fn with_room(lines: usize) -> Page {
        Page { markdown: String::new(), plain: String::new(), in_list: false, room: lines }
    }

    /// The number of lines left.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Adds room for more lines.
    pub(super) fn extend(&mut self, lines: usize) {
        self.room = self.room.saturating_add(lines);
    }

    /// Uses up one line of room. Returns false if there is none.
    fn takes_line(&mut self) -> bool {
        let has_room = self.room > 0;
        self.room = self.room.saturating_sub(1);
        has_room
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty()
    }

    /// Ends a paragraph.
    pub(super) fn gap(&mut self) {
        if !self.is_empty() && !self.plain.ends_with("\n\n") {
            self.plain.push('\n');
            self.markdown.push('\n');
        }
        self.in_list = false;
    }

    /// Adds a line to the paragraph.
    pub(super) fn line(&mut self, pieces: &[Piece]) {
        if !self.takes_line() {
            return;
        }
        if self.in_list {
            self.gap();
        }
        self.pieces(pieces);
        // Two trailing spaces are a line break in Markdown.
        self.markdown.push_str("  \n");
        self.plain.push('\n');
    }

    /// Adds a list item; `depth` is 0 or 1.
    pub(super) fn item(&mut self, depth: usize, pieces: &[Piece]) {
        if !self.takes_line() {
            return;
        }
        if !self.in_list && !self.is_empty() && !self.markdown.ends_with("\n\n") {
            self.markdown.push('\n');
        }
        self.in_list = true;
        self.markdown.push_str(if depth == 0 { "- " } else { "  - " });
        self.plain.push_str(if depth == 0 { "  " } else { "      " });
        self.pieces(pieces);
        self.markdown.push('\n');
        self.plain.push('\n');
    }

    /// Adds a table with aligned columns; the first row has the headings. In Markdown it is a code
    /// block, because many editors do not render tables.
    pub(super) fn table(&mut self, rows: &[Vec<String>]) {
        if self.room == 0 {
            return;
        }
        let width = |cell: &str| UnicodeWidthStr::width(cell);
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| clean(cell).replace('`', "'")).collect())
            .collect();
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|cell| width(cell)).max())
            .map(Option::unwrap_or_default)
            .collect();
        self.gap();
        self.markdown.push_str("```text\n");
        for row in rows {
            if !self.takes_line() {
                break;
            }
            let mut line = String::new();
            for (cell, widest) in row.iter().zip(&widths) {
                line += cell;
                line += &" ".repeat(widest.saturating_sub(width(cell)) + 2);
            }
            for text in [&mut self.markdown, &mut self.plain] {
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        self.markdown.push_str("```\n");
    }

    fn pieces(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => {
                    self.markdown.push_str(&escape(&clean(text)));
                    self.plain.push_str(&clean(text));
                }
                Piece::Strong(text) => {
                    self.markdown.push_str(&format!("**{}**", escape(&clean(text))));
                    self.plain.push_str(&clean(text));
                }
                Piece::Link(text, address) => {
                    self.markdown.push_str(&format!("[{}]({address})", escape(&clean(text))));
                    self.plain.push_str(&clean(text));
                }
                Piece::Name(name) => {
                    let name = clean(name);
                    self.markdown.push_str(&format!("`{}`", name.replace('`', "'")));
                    self.plain.push_str(&name);
                }
            }
        }
    }

    /// Returns the Markdown and the plain text.
    pub(super) fn finish(self) -> (String, String) {
        (self.markdown.trim_end().to_owned(), self.plain.trim_end().to_owned())
    }
}

/// Escapes text from a recording, so that it never becomes markup.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '!' => escaped.extend(['\\', letter]),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            // `~~` is strikethrough; a single `~` is our mark for estimates.
            letter => escaped.push(letter),
        }
    }
    escaped.replace("~~", "\\~\\~")
}

/// Formats an average count: `1`, `2.5`, `16`.
pub(super) fn count(value: f64) -> String {
    let rounded = value.round();
    if (value - rounded).abs() < 0.05 { format!("{rounded:.0}") } else { format!("{value:.1}") }
}

/// Formats a quantity: `23.5 million`, `640`.
pub(super) fn quantity(value: u64) -> String {
    match value {
        0..10_000 => value.to_string(),
        10_000..1_000_000 => {
            format!("{} thousand", ridgeline_base::units::significant(value as f64 / 1e3))
        }
        1_000_000..1_000_000_000 => {
            format!("{} million", ridgeline_base::units::significant(value as f64 / 1e6))
        }
        _ => format!("{} billion", ridgeline_base::units::significant(value as f64 / 1e9)),
    }
}

/// Formats an ordinal: `1st`, `2nd`, `11th`.
pub(super) fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (1, hundredth) if hundredth != 11 => "st",
        (2, hundredth) if hundredth != 12 => "nd",
        (3, hundredth) if hundredth != 13 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}
