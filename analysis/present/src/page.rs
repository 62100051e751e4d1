//! A short text written twice at once: as markdown, and as plain text for editors that show none.

use unicode_width::UnicodeWidthStr;

use ridgeline_base::printable::{clean, shorten};

/// A piece of a line.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    /// As it is.
    Text(String),
    /// What to see first.
    Strong(String),
    /// A name out of the program; may hold anything.
    Name(String),
    /// A text, and the address that it leads to: an encoded one, which is written as it is.
    Link(String, String),
}

/// `Piece::Text`.
pub(super) fn text(text: impl Into<String>) -> Piece {
    Piece::Text(text.into())
}

/// `Piece::Strong`.
pub(super) fn strong(text: impl Into<String>) -> Piece {
    Piece::Strong(text.into())
}

/// `Piece::Name`, cut to what fits a line.
pub(super) fn name(name: &str) -> Piece {
    Piece::Name(shorten(name, 72))
}

/// A text whose `code` stands between backticks.
pub(super) fn with_code(told: &str) -> Vec<Piece> {
    // One backtick alone is no code.
    if !told.matches('`').count().is_multiple_of(2) {
        return vec![text(told)];
    }
    let parts = told.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(at, part)| if at % 2 == 0 { text(part) } else { name(part) }).collect()
}

/// A text under construction. Lines of one paragraph stay together.
#[derive(Clone, Debug)]
pub(super) struct Page {
    markdown: String,
    plain: String,
    in_list: bool,
    /// Lines that it may still have, those between paragraphs not counted.
    room: usize,
}

impl Default for Page {
    fn default() -> Page {
        Page::with_room(usize::MAX)
    }
}

impl Page {
    /// One that drops what comes after so many lines.
    pub(super) fn with_room(lines: usize) -> Page {
        Page { markdown: String::new(), plain: String::new(), in_list: false, room: lines }
    }

    /// Lines that it may still have.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Room for more lines.
    pub(super) fn extend(&mut self, lines: usize) {
        self.room = self.room.saturating_add(lines);
    }

    /// Takes a line's room; false where there is none.
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

    /// A line of a paragraph.
    pub(super) fn line(&mut self, pieces: &[Piece]) {
        if !self.takes_line() {
            return;
        }
        if self.in_list {
            self.gap();
        }
        self.pieces(pieces);
        // Two spaces break a line in markdown.
        self.markdown.push_str("  \n");
        self.plain.push('\n');
    }

    /// An item of a list; `depth` 0 or 1.
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

    /// Rows with columns below each other, the first row their headings. As markdown it is code: many
    /// editors show no tables.
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

    /// Markdown, then plain.
    pub(super) fn finish(self) -> (String, String) {
        (self.markdown.trim_end().to_owned(), self.plain.trim_end().to_owned())
    }
}

/// What a recording says is text, never markup.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '!' => escaped.extend(['\\', letter]),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            // `~` twice strikes through; once it is our mark for estimates.
            letter => escaped.push(letter),
        }
    }
    escaped.replace("~~", "\\~\\~")
}

/// `1`, `2.5`, `16`: how often something happened, on average.
pub(super) fn count(value: f64) -> String {
    let rounded = value.round();
    if (value - rounded).abs() < 0.05 { format!("{rounded:.0}") } else { format!("{value:.1}") }
}

/// `23.5 million`, `640`.
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

/// `1st`, `2nd`, `11th`.
pub(super) fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (1, hundredth) if hundredth != 11 => "st",
        (2, hundredth) if hundredth != 12 => "nd",
        (3, hundredth) if hundredth != 13 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}
