//! The layout of a text: line endings, indentation, quotes and line length.

use ridgeline_python::semantics::module::Module;

/// The layout of a text.
pub(super) struct Layout<'t> {
    text: &'t Module,
    /// Line ending of the text: `\n` or `\r\n`.
    pub line_end: &'static str,
}

impl<'t> Layout<'t> {
    pub(super) fn of(text: &'t Module) -> Layout<'t> {
        let line_end = if text.index.text().contains("\r\n") { "\r\n" } else { "\n" };
        Layout { text, line_end }
    }

    /// Returns the text before an offset on its line if it is only whitespace.
    pub(super) fn indentation(&self, offset: usize) -> Option<&'t str> {
        let source = self.text.index.text();
        let line = self.text.line(offset);
        let mut start = self.text.index.lines().start_of(line);
        if source.get(start..).is_some_and(|rest| rest.starts_with('\u{feff}')) {
            start += '\u{feff}'.len_utf8();
        }
        let before = source.get(start..offset)?;
        before.chars().all(|c| c == ' ' || c == '\t').then_some(before)
    }

    /// Returns the leading whitespace of an offset's line.
    pub(super) fn indentation_of_line(&self, offset: usize) -> &'t str {
        let source = self.text.index.text();
        let start = self.text.index.lines().start_of(self.text.line(offset));
        let line = source.get(start..).unwrap_or_default();
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let code = line.trim_start_matches([' ', '\t']);
        line.get(..line.len() - code.len()).unwrap_or_default()
    }

    /// Returns the number of characters in an offset's line.
    pub(super) fn width(&self, offset: usize) -> usize {
        let start = self.text.index.lines().start_of(self.text.line(offset));
        let line = self.text.index.text().get(start..self.line_end_at(offset));
        line.map_or(0, |line| line.chars().count())
    }

    /// Returns the maximum line length: Black's limit, or the longest line of the text.
    pub(super) fn max_width(&self) -> usize {
        let longest = self.text.index.text().lines().map(|line| line.chars().count()).max();
        longest.unwrap_or_default().clamp(88, 120)
    }

    /// Whether the rest of the line is empty or a comment.
    pub(super) fn ends_line(&self, offset: usize) -> bool {
        let rest = self.text.index.text().get(offset..self.line_end_at(offset));
        rest.is_some_and(|rest| rest.trim().is_empty() || rest.trim_start().starts_with('#'))
    }

    /// Returns the offset of the end of a line, before its line ending.
    pub(super) fn line_end_at(&self, offset: usize) -> usize {
        let rest = self.text.index.text().get(offset..).unwrap_or_default();
        offset + rest.find(['\n', '\r']).unwrap_or(rest.len())
    }

    /// Returns one indentation step of the text.
    pub(super) fn unit(&self) -> String {
        let source = self.text.index.text();
        let first = source.lines().zip(source.lines().skip(1)).find_map(|(line, next)| {
            let opens = line.trim_end().ends_with(':');
            let own = line.len() - line.trim_start().len();
            let rest = next.trim_start_matches([' ', '\t']);
            let inner = next.len() - rest.len();
            let is_block = opens && inner > own && !rest.trim().is_empty();
            is_block.then(|| next.get(own..inner).map(str::to_owned)).flatten()
        });
        first.filter(|unit| unit.len() <= 8).unwrap_or_else(|| "    ".to_owned())
    }

    /// Quotes a string with the quotes that the text uses most.
    pub(super) fn quoted(&self, content: &str) -> String {
        let source = self.text.index.text();
        let count = |quote: char| source.chars().filter(|c| *c == quote).count();
        let quote = if count('\'') > count('"') { '\'' } else { '"' };
        format!("{quote}{content}{quote}")
    }
}
