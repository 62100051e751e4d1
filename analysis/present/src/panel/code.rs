//! The code of the lines in the breakdowns.

use std::cell::OnceCell;

use ridgeline_base::printable::{clean, shorten};
use ridgeline_profile::{ExpressionRange, FileId, Profile};
use ridgeline_python::{Lines, SourceIndex, expression_label};

use crate::cost_map::expression_span;

/// Maximum length of a line's code, in characters.
const MAX_CODE: usize = 120;

/// The code of lines whose current text is what ran.
pub(super) struct Code<'a> {
    profile: &'a Profile,
    texts: &'a [Option<&'a str>],
    lines: Vec<Option<Lines>>,
    /// Parsed when an expression is looked up.
    indexes: Vec<OnceCell<SourceIndex>>,
}

impl<'a> Code<'a> {
    pub(super) fn new(profile: &'a Profile, texts: &'a [Option<&'a str>]) -> Code<'a> {
        let lines = texts.iter().map(|text| text.map(Lines::new)).collect();
        let indexes = texts.iter().map(|_| OnceCell::new()).collect();
        Code { profile, texts, lines, indexes }
    }

    /// Returns the label of an expression. None if its lines are not those that ran.
    pub(super) fn label(&self, file: FileId, range: ExpressionRange) -> Option<String> {
        let lines = range.line..=range.end_line;
        lines.map(|line| self.find(file, line).map(drop)).collect::<Option<()>>()?;
        let text = (*self.texts.get(file.0 as usize)?)?;
        let index = self.indexes.get(file.0 as usize)?.get_or_init(|| SourceIndex::new(text));
        let span = expression_span(index, range, Some)?;
        Some(expression_label(index, &span))
    }

    /// Returns the code of a line; empty if the text that ran is not available.
    pub(super) fn of(&self, file: FileId, line: u32) -> String {
        self.find(file, line).map(|code| shorten(&clean(code), MAX_CODE)).unwrap_or_default()
    }

    fn find(&self, file: FileId, line: u32) -> Option<&str> {
        let (file, index) = (file.0 as usize, line.checked_sub(1)? as usize);
        let text = (*self.texts.get(file)?)?;
        let lines = self.lines.get(file)?.as_ref()?;
        let ran = self.profile.files.get(file)?.fingerprint.get(index)?;
        let code = text.get(lines.trimmed(text, line))?;
        (lines.checksums().get(index)? == ran).then_some(code)
    }
}
