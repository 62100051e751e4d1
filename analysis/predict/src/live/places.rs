//! Where lines of the measured text and of today's are: files by path, and lines by statement.
//!
//! Costs are compared statement by statement, because a call over several lines is on one of them
//! here and on another there: which one, Python's compiler and its tracing decide.

use std::collections::HashMap;

use super::Text;
use ridgeline_profile::{FileFacts, FileId, Profile};
use ridgeline_python::{LineMap, Place};

/// Files of the estimated profile, and what of them is known.
pub(super) struct Places<'a> {
    files: Vec<File<'a>>,
    by_path: HashMap<String, u32>,
}

struct File<'a> {
    facts: FileFacts,
    text: Option<&'a Text<'a>>,
    /// From the measured text to today's; nothing where they are the same.
    map: Option<LineMap>,
}

impl<'a> Places<'a> {
    /// The files of a profile, on today's texts.
    pub(super) fn new(profile: &Profile, texts: &'a [Text<'a>]) -> Places<'a> {
        let mut places = Places { files: Vec::new(), by_path: HashMap::new() };
        for facts in &profile.files {
            places.add(facts.path.clone(), facts.fingerprint.clone(), texts);
        }
        places
    }

    /// The index of a file; files that the profile does not have come after its own.
    pub(super) fn file(&mut self, path: &str, texts: &'a [Text<'a>]) -> u32 {
        match self.by_path.get(path) {
            Some(known) => *known,
            None => self.add(path.to_owned(), Vec::new(), texts),
        }
    }

    fn add(&mut self, path: String, measured: Vec<u32>, texts: &'a [Text<'a>]) -> u32 {
        let text = texts.iter().find(|text| text.path == path);
        let today = text.map_or(&[][..], |text| text.index.lines().checksums());
        // Where the text that ran is unknown, lines are taken to be where they were.
        let differs = text.is_some() && !measured.is_empty() && today != measured;
        let map = differs.then(|| LineMap::new(&measured, today));
        let fingerprint = if text.is_some() { today.to_vec() } else { measured };
        let at = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        self.by_path.entry(path.clone()).or_insert(at);
        self.files.push(File { facts: FileFacts { path, fingerprint }, text, map });
        at
    }

    /// Where a line of the measured text is today; nothing where it is gone.
    pub(super) fn today(&self, file: u32, line: u32) -> Option<Place> {
        match self.files.get(file as usize)?.map.as_ref() {
            Some(map) => map.place(line),
            None => Some(Place { line, changed: false }),
        }
    }

    /// The first line of the statement that a line of today's text belongs to.
    pub(super) fn statement(&self, file: u32, line: u32) -> u32 {
        let index = self.files.get(file as usize).and_then(|file| Some(file.text?.index));
        let found = index.and_then(|index| index.statements().get(index.statement_on_line(line)?));
        found.filter(|statement| !statement.broken).map_or(line, |statement| statement.first_line)
    }

    /// What the estimated profile knows of its files.
    pub(super) fn into_facts(self) -> Vec<FileFacts> {
        self.files.into_iter().map(|file| file.facts).collect()
    }

    /// The number of files.
    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    /// A measured place on today's text; nothing where it is gone.
    pub(super) fn place(&self, (file, line): (FileId, u32)) -> Option<(FileId, u32)> {
        Some((file, self.today(file.0, line)?.line))
    }
}
