//! The texts that are open in the editor. They take precedence over the files on disk.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ridgeline_analysis::python::{Lines, SourceIndex, TextEdit};

use crate::notebook;

/// The maximum number of open texts.
const OPEN_LIMIT: usize = 4096;

/// The maximum size of a text in bytes. Larger ones are ignored. A file of 20,000 lines has about
/// one million.
pub(crate) const SIZE_LIMIT: usize = 16 * 1024 * 1024;

/// The maximum number of parts of a change that the analysis follows one by one. More, as when all
/// occurrences of a name are replaced, are one edit of the difference.
const PARTS_LIMIT: usize = 64;

/// The maximum number of bytes that the edits of one notification may read and move, so that no
/// client holds up the others' requests for seconds.
const MOVED_LIMIT: usize = 2 << 30;
/// The bytes that a [`Lines`] has for each line.
const LINE_BYTES: usize = size_of::<usize>();

/// The maximum total size in bytes of the files read for one view of a project.
const TOTAL_LIMIT: usize = 4 * SIZE_LIMIT;

/// Identifies a document: a file by its path, so that two spellings of one URI are one document.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DocumentId {
    /// A file, by its absolute path.
    File(PathBuf),
    /// Anything else, by its URI: `untitled:Untitled-1`.
    Other(String),
}

impl DocumentId {
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            DocumentId::File(path) => Some(path),
            DocumentId::Other(_) => None,
        }
    }
}

/// Returns the path without symbolic links, if it exists.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Reads a file, or a cell of a notebook. Returns `None` if it cannot be read or is larger than
/// [`SIZE_LIMIT`].
pub(crate) fn text_on_disk(file: &Path) -> Option<String> {
    notebook::read(file, SIZE_LIMIT as u64)
}

/// Reads files. `None` stands for those that cannot be read or exceed [`TOTAL_LIMIT`] in total.
pub(crate) fn texts_on_disk(files: &[Option<PathBuf>]) -> Vec<Option<String>> {
    let mut left = TOTAL_LIMIT;
    let mut read = |file: &Option<PathBuf>| {
        let text = text_on_disk(file.as_deref()?).filter(|text| text.len() <= left)?;
        left -= text.len();
        Some(text)
    };
    files.iter().map(&mut read).collect()
}

/// An open text.
#[derive(Debug)]
pub(crate) struct Document {
    /// The URI as the editor writes it.
    pub uri: String,
    /// The file's path without symbolic links, as in profiles; `None` if it is not a file.
    pub real: Option<PathBuf>,
    /// The analyzed text; `None` if it is too large.
    pub index: Option<SourceIndex>,
    /// The client's version number, which is sent back with edits.
    pub version: i32,
    /// Counts edits, so that snapshots can tell whether they are current. The client's version
    /// numbers are not reliable.
    edition: Arc<AtomicU64>,
}

impl Document {
    /// Returns the number of this edition of the text.
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }
}

/// A document at one moment. It does not change, and can tell whether it is current.
#[derive(Clone, Debug)]
pub(crate) struct DocumentSnapshot {
    pub id: DocumentId,
    /// The URI as the editor writes it.
    pub uri: String,
    pub index: SourceIndex,
    /// The client's version number.
    pub version: i32,
    /// The edition that it was taken of.
    pub edition: u64,
    current: Arc<AtomicU64>,
}

impl DocumentSnapshot {
    /// Returns whether the document was neither edited nor closed since.
    pub(crate) fn is_current(&self) -> bool {
        self.current.load(Ordering::Acquire) == self.edition
    }
}

/// A change of a text as the client sends it. Positions are in the client's units, so each can only
/// be resolved after the changes before it are applied.
#[derive(Clone, Debug)]
pub(crate) enum Change<P> {
    /// Replaces the whole text.
    Whole(String),
    /// Replaces the range with this text.
    Part(P, String),
}

/// Why a text is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is larger than [`SIZE_LIMIT`].
    Size,
    /// More than [`OPEN_LIMIT`] are open.
    OpenFiles,
    /// One notification has edits that would move more than [`MOVED_LIMIT`].
    Edits,
}

/// All open texts.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    open: HashMap<DocumentId, Document>,
    /// Edition numbers are never reused, so snapshots of a document that is closed and opened again
    /// are not current.
    last_edition: u64,
}

impl Documents {
    /// Opens a text, or replaces it if it is open. `real` is its file's path without symbolic
    /// links.
    ///
    /// # Errors
    /// If the text is ignored. A text that is too large is open nevertheless, so that a smaller one
    /// can replace it.
    pub(crate) fn open(
        &mut self,
        id: DocumentId,
        uri: String,
        real: Option<PathBuf>,
        text: String,
    ) -> Result<(), Refusal> {
        self.close(&id);
        if self.open.len() >= OPEN_LIMIT {
            return Err(Refusal::OpenFiles);
        }
        let too_large = text.len() > SIZE_LIMIT;
        let index = (!too_large).then(|| SourceIndex::new(text));
        self.last_edition += 1;
        let edition = Arc::new(AtomicU64::new(self.last_edition));
        self.open.insert(id, Document { uri, real, index, version: 0, edition });
        if too_large { Err(Refusal::Size) } else { Ok(()) }
    }

    /// Applies changes in order and parses once at the end. `locate` resolves a position to bytes
    /// in the current text. Changes of a text that is not open are ignored.
    ///
    /// # Errors
    /// If the text is ignored from now on.
    pub(crate) fn change<P: Clone>(
        &mut self,
        id: &DocumentId,
        changes: Vec<Change<P>>,
        locate: impl Fn(&str, &Lines, P) -> Range<usize>,
    ) -> Result<(), Refusal> {
        let Some(document) = self.open.get_mut(id) else {
            tracing::debug!("a change of {id:?}, which is not open");
            return Ok(());
        };
        self.last_edition += 1;
        document.edition.store(self.last_edition, Ordering::Release);
        let was_ignored = document.index.is_none();
        let mut parts: Vec<(P, String)> = Vec::new();
        for change in changes {
            match change {
                Change::Part(place, text) => parts.push((place, text)),
                Change::Whole(text) => {
                    parts.clear();
                    replace(&mut document.index, &text);
                }
            }
        }
        let Some(known) = &mut document.index else {
            return if was_ignored { Ok(()) } else { Err(Refusal::Size) };
        };
        edit(known, parts, locate).inspect_err(|_| document.index = None)
    }

    /// Changes the file of a text that is open.
    pub(crate) fn set_real(&mut self, id: &DocumentId, real: Option<&Path>) {
        if let Some(document) = self.open.get_mut(id) {
            document.real = real.map(Path::to_owned);
        }
    }

    /// Stores the client's version number of a text.
    pub(crate) fn set_version(&mut self, id: &DocumentId, version: i32) {
        if let Some(document) = self.open.get_mut(id) {
            document.version = version;
        }
    }

    /// Does the parsing that edits postponed, when there is time for it, as at a save. Snapshots
    /// become outdated if this changes the analysis.
    pub(crate) fn catch_up(&mut self, id: &DocumentId) {
        let Some(document) = self.open.get_mut(id) else { return };
        if document.index.as_mut().is_some_and(SourceIndex::catch_up) {
            self.last_edition += 1;
            document.edition.store(self.last_edition, Ordering::Release);
        }
    }

    /// Closes a text. Its snapshots are outdated from now on.
    pub(crate) fn close(&mut self, id: &DocumentId) {
        if let Some(document) = self.open.remove(id) {
            document.edition.store(0, Ordering::Release);
        }
    }

    pub(crate) fn get(&self, id: &DocumentId) -> Option<&Document> {
        self.open.get(id)
    }

    /// Returns the size of an open text in bytes, or 0 if it is not open or too large.
    pub(crate) fn bytes(&self, id: &DocumentId) -> usize {
        let index = self.get(id).and_then(|document| document.index.as_ref());
        index.map_or(0, |index| index.text().len())
    }

    /// Iterates over all documents, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&DocumentId, &Document)> {
        self.open.iter()
    }

    /// Returns a snapshot of a text, or `None` if it is not open or too large.
    pub(crate) fn snapshot(&self, id: &DocumentId) -> Option<DocumentSnapshot> {
        let document = self.open.get(id)?;
        Some(DocumentSnapshot {
            id: id.clone(),
            uri: document.uri.clone(),
            index: document.index.clone()?,
            version: document.version,
            edition: document.edition.load(Ordering::Acquire),
            current: document.edition.clone(),
        })
    }
}

/// Replaces the whole text. Earlier changes in the same notification do not matter any more.
fn replace(index: &mut Option<SourceIndex>, text: &str) {
    match index {
        _ if text.len() > SIZE_LIMIT => *index = None,
        Some(index) => index.replace(text),
        None => *index = Some(SourceIndex::new(text)),
    }
}

/// Applies changes in order, each to the result of the one before.
fn edit<P: Clone>(
    known: &mut SourceIndex,
    parts: Vec<(P, String)>,
    locate: impl Fn(&str, &Lines, P) -> Range<usize>,
) -> Result<(), Refusal> {
    let mut text = known.text().to_owned();
    let mut lines = known.lines().clone();
    let mut edits = Vec::with_capacity(parts.len());
    // The edits from here on are not applied to `text` yet.
    let mut pending = 0;
    let mut length = text.len();
    let mut moved = 0_usize;
    for (place, part) in parts {
        let mut range = locate(&text, &lines, place.clone());
        // What comes before an edit has the same place before and after it, and clients send the
        // edits of a replacement from the last one to the first. Any other edit needs the text.
        let later = edits.get(pending..).and_then(<[TextEdit]>::last);
        if later.is_some_and(|later| range.end >= later.range.start) {
            apply(&mut text, &mut lines, edits.get(pending..).unwrap_or_default());
            pending = edits.len();
            moved += text.len() + LINE_BYTES * lines.count() as usize;
            range = locate(&text, &lines, place);
        }
        // A column is found from the start of its line.
        moved += range.end - lines.start_of(lines.line_of(range.start)).min(range.end);
        length = length - range.len() + part.len();
        if length > SIZE_LIMIT {
            return Err(Refusal::Size);
        }
        if moved > MOVED_LIMIT {
            return Err(Refusal::Edits);
        }
        edits.push(TextEdit { range, text: part });
    }
    if edits.len() > PARTS_LIMIT {
        apply(&mut text, &mut lines, edits.get(pending..).unwrap_or_default());
        known.replace(&text);
    } else {
        known.edit(&edits);
    }
    Ok(())
}

/// Applies edits, each of which comes before the one before.
fn apply(text: &mut String, lines: &mut Lines, edits: &[TextEdit]) {
    if let [edit] = edits {
        text.replace_range(edit.range.clone(), &edit.text);
        lines.edit(text, edit.range.clone(), edit.text.len());
        return;
    }
    let mut result = String::with_capacity(text.len());
    let mut end = 0;
    for edit in edits.iter().rev() {
        result.push_str(text.get(end..edit.range.start).unwrap_or_default());
        result.push_str(&edit.text);
        end = edit.range.end;
    }
    result.push_str(text.get(end..).unwrap_or_default());
    *lines = Lines::new(&result);
    *text = result;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> DocumentId {
        DocumentId::File("/w/a.py".into())
    }

    fn documents(text: &str) -> Documents {
        let mut documents = Documents::default();
        documents.open(id(), "file:///w/a.py".into(), None, text.into()).expect("small");
        documents
    }

    #[track_caller]
    fn check(changes: Vec<Change<Range<usize>>>, expected: &str) {
        let mut documents = documents("one two");
        documents.change(&id(), changes, |_, _, range| range).expect("small");
        let index = documents.get(&id()).and_then(|document| document.index.as_ref());
        assert_eq!(index.map(SourceIndex::text), Some(expected));
    }

    #[test]
    fn changes_build_on_each_other() {
        check(vec![Change::Part(0..3, "1".into()), Change::Part(2..5, "2".into())], "1 2");
    }

    #[test]
    fn a_whole_text_between_parts() {
        check(
            vec![
                Change::Part(0..3, "1".into()),
                Change::Whole("x".into()),
                Change::Part(1..1, "y".into()),
            ],
            "xy",
        );
    }

    #[test]
    fn many_parts_are_applied_in_order() {
        let part = |_| Change::Part(3..4, "--".into());
        check((0..PARTS_LIMIT * 2).map(part).collect(), &format!("one{}two", "-".repeat(129)));
    }

    #[test]
    fn edits_from_the_last_to_the_first_and_in_any_order() {
        let text = "a0 b1 c2 d3 e4";
        let cases: [&[Range<usize>]; 5] = [
            &[12..13, 9..10, 6..7, 3..4, 0..1],
            &[12..13, 9..12, 0..1],
            &[0..1, 3..4, 6..7],
            &[9..10, 9..10, 8..9, 12..13, 0..0, 0..0, 1..3],
            &[13..14, 13..13, 2..3, 5..6],
        ];
        for ranges in cases {
            let mut expected = text.to_owned();
            for range in ranges {
                expected.replace_range(range.clone(), "xyz");
            }
            // Also as one of many parts.
            for rest in [0, PARTS_LIMIT] {
                let mut documents = documents(text);
                let nothing = std::iter::repeat_n(0..0, rest);
                let parts = ranges.iter().cloned().map(|range| Change::Part(range, "xyz".into()));
                let changes = parts.chain(nothing.map(|range| Change::Part(range, String::new())));
                documents.change(&id(), changes.collect(), |_, _, range| range).expect("small");
                let index = documents.get(&id()).and_then(|document| document.index.as_ref());
                assert_eq!(index.map(SourceIndex::text), Some(expected.as_str()), "{ranges:?}");
            }
        }
    }

    #[test]
    fn edits_that_move_too_much_text_are_not_applied() {
        let mut documents = documents(&format!("{}\n", "x".repeat(99)).repeat(10_000));
        let part = |at| Change::Part(at..at, "-".to_owned());
        let descending = (0..20_000).rev().map(part).collect();
        assert_eq!(documents.change(&id(), descending, |_, _, range| range), Ok(()));
        let ascending = (0..20_000).map(part).collect();
        assert_eq!(documents.change(&id(), ascending, |_, _, range| range), Err(Refusal::Edits));
    }

    #[test]
    fn snapshots_know_whether_they_are_current() {
        let mut documents = documents("x");
        let before = documents.snapshot(&id()).expect("open");
        assert!(before.is_current());
        let change = vec![Change::Whole("y".to_owned())];
        documents.change(&id(), change, |_, _, range| range).expect("small");
        assert!(!before.is_current());
        let after = documents.snapshot(&id()).expect("open");
        documents.close(&id());
        documents.open(id(), "file:///w/a.py".into(), None, "y".into()).expect("small");
        assert!(!after.is_current());
    }

    #[test]
    fn large_texts_are_ignored_until_they_are_small() {
        let mut documents = Documents::default();
        let large = "#".repeat(SIZE_LIMIT + 1);
        let opened = documents.open(id(), "file:///w/a.py".into(), None, large);
        assert_eq!(opened, Err(Refusal::Size));
        assert!(documents.snapshot(&id()).is_none());
        let part = vec![Change::Part(0..1, "x".to_owned())];
        assert_eq!(documents.change(&id(), part, |_, _, range| range), Ok(()));
        let whole = vec![Change::Whole("x".to_owned())];
        assert_eq!(documents.change(&id(), whole, |_, _, range: Range<usize>| range), Ok(()));
        assert!(documents.snapshot(&id()).is_some());
    }

    #[test]
    fn a_very_long_line_is_not_parsed_and_is_freed_when_closed() {
        let mut documents = Documents::default();
        let line = format!("x = [{}]\n", "1, ".repeat(5_000_000));
        let bytes = line.len();
        documents.open(id(), "file:///w/a.py".into(), None, line).expect("below the limit");
        let snapshot = documents.snapshot(&id()).expect("open");
        assert!(snapshot.index.is_too_large_to_parse() && snapshot.index.tree().is_none());
        assert_eq!(documents.bytes(&id()), bytes);
        let text = Arc::downgrade(&snapshot.index.shared_text());
        drop(snapshot);
        documents.close(&id());
        assert!(text.upgrade().is_none(), "the text is still in memory");
        assert_eq!(documents.bytes(&id()), 0);
    }

    #[test]
    fn changes_of_a_text_that_is_not_open_are_ignored() {
        let mut documents = Documents::default();
        let change = vec![Change::Whole("y".to_owned())];
        assert_eq!(documents.change(&id(), change, |_, _, range: Range<usize>| range), Ok(()));
        assert!(documents.snapshot(&id()).is_none());
    }
}
