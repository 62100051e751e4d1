//! Maps lines of the measured text to the current text: files by path, and lines by statement.
//!
//! Costs are compared by statement, because a call over several lines may be recorded on different
//! lines: Python's compiler and tracing decide which.

use std::collections::HashMap;

use super::Text;
use ridgeline_profile::{FileFacts, FileId, Profile};
use ridgeline_python::{LineMap, Place};

/// The files of the estimated profile.
pub(super) struct Places<'a> {
    files: Vec<File<'a>>,
    by_path: HashMap<String, u32>,
}

struct File<'a> {
    facts: FileFacts,
    text: Option<&'a Text<'a>>,
    /// Maps the measured text to the current text. `None` if they are equal.
    map: Option<LineMap>,
}

impl<'a> Places<'a> {
    /// Collects the files of a profile, with their current texts.
    pub(super) fn new(profile: &Profile, texts: &'a [Text<'a>]) -> Places<'a> {
        let mut places = Places { files: Vec::new(), by_path: HashMap::new() };
        for facts in &profile.files {
            places.add(facts.path.clone(), facts.fingerprint.clone(), texts);
        }
        places
    }

    /// Returns the index of a file. Files that are not in the profile come after those that are.
    pub(super) fn file(&mut self, path: &str, texts: &'a [Text<'a>]) -> u32 {
        match self.by_path.get(path) {
            Some(known) => *known,
            None => self.add(path.to_owned(), Vec::new(), texts),
        }
    }

    fn add(&mut self, path: String, measured: Vec<u32>, texts: &'a [Text<'a>]) -> u32 {
        let text = texts.iter().find(|text| text.path == path);
        let current = text.map_or(&[][..], |text| text.index.lines().checksums());
        // If the text that ran is unknown, assume that lines did not move.
        let differs = text.is_some() && !measured.is_empty() && current != measured;
        let map = differs.then(|| LineMap::new(&measured, current));
        let fingerprint = if text.is_some() { current.to_vec() } else { measured };
        let at = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        self.by_path.entry(path.clone()).or_insert(at);
        self.files.push(File { facts: FileFacts { path, fingerprint }, text, map });
        at
    }

    /// Returns the current place of a measured line. `None` if it was deleted.
    pub(super) fn current_line(&self, file: u32, line: u32) -> Option<Place> {
        match self.files.get(file as usize)?.map.as_ref() {
            Some(map) => map.place(line),
            None => Some(Place { line, changed: false }),
        }
    }

    /// Returns the first line of the statement that contains a line of the current text.
    pub(super) fn statement(&self, file: u32, line: u32) -> u32 {
        let index = self.files.get(file as usize).and_then(|file| Some(file.text?.index));
        let found = index.and_then(|index| index.statements().get(index.statement_on_line(line)?));
        found.filter(|statement| !statement.broken).map_or(line, |statement| statement.first_line)
    }

    /// Returns the files of the estimated profile.
    pub(super) fn into_facts(self) -> Vec<FileFacts> {
        self.files.into_iter().map(|file| file.facts).collect()
    }

    /// Returns the number of files.
    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    /// Returns the current place of a measured place. `None` if it was deleted.
    pub(super) fn place(&self, (file, line): (FileId, u32)) -> Option<(FileId, u32)> {
        Some((file, self.current_line(file.0, line)?.line))
    }
}
