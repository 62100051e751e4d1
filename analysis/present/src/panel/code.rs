//! The code of the lines in the breakdowns.

use ridgeline_base::printable::{clean, shorten};
use ridgeline_profile::{FileId, Profile};
use ridgeline_python::Lines;

/// Maximum length of a line's code, in characters.
const MAX_CODE: usize = 120;

/// The code of lines whose current text is what ran.
pub(super) struct Code<'a> {
    profile: &'a Profile,
    texts: &'a [Option<&'a str>],
    lines: Vec<Option<Lines>>,
}

impl<'a> Code<'a> {
    pub(super) fn new(profile: &'a Profile, texts: &'a [Option<&'a str>]) -> Code<'a> {
        let lines = texts.iter().map(|text| text.map(Lines::new)).collect();
        Code { profile, texts, lines }
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
