//! The texts that the editor has open: the truth about them, whatever is on the disk.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ridgeline_analysis::python::{Lines, SourceIndex, TextEdit};

/// Texts that may be open at once.
const OPEN_LIMIT: usize = 4096;

/// Texts above this size are left alone, in bytes. A file of 20,000 lines has about one million.
pub(crate) const SIZE_LIMIT: usize = 16 * 1024 * 1024;

/// Bytes of a project's files that are read to be shown at once.
const TOTAL_LIMIT: usize = 4 * SIZE_LIMIT;

/// What a document is called: by its path where it is a file, so that two spellings of one URI are
/// one document.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DocumentId {
    /// A file, by its absolute path.
    File(PathBuf),
    /// Anything else, by its URI: `untitled:Untitled-1`.
    Other(String),
}

impl DocumentId {
    /// The file's path.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            DocumentId::File(path) => Some(path),
            DocumentId::Other(_) => None,
        }
    }
}

/// The path without links, where it is there.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The text of a file; nothing where it cannot be read or is larger than [`SIZE_LIMIT`].
pub(crate) fn text_on_disk(file: &Path) -> Option<String> {
    let size = fs::metadata(file).ok()?.len();
    if usize::try_from(size).ok()? > SIZE_LIMIT {
        return None;
    }
    Some(String::from_utf8_lossy(&fs::read(file).ok()?).into_owned())
}

/// The texts of files, by the same index; nothing for those that are not there, and for what is
/// beyond [`TOTAL_LIMIT`] in all.
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
    /// As the editor writes it.
    pub uri: String,
    /// The file's path without links, which is how profiles know it; nothing where it is no file.
    pub real: Option<PathBuf>,
    /// What is known of the text; nothing where it is too large.
    pub index: Option<SourceIndex>,
    /// The client's own number for this text, which it wants to hear with an edit.
    pub version: i32,
    /// Counts edits; snapshots compare it. An editor's version numbers need not be sane.
    edition: Arc<AtomicU64>,
}

impl Document {
    /// Which edition of the text it is.
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }
}

/// A document at one moment. It does not change; it knows when it is out of date.
#[derive(Clone, Debug)]
pub(crate) struct DocumentSnapshot {
    /// Which document.
    pub id: DocumentId,
    /// As the editor writes it.
    pub uri: String,
    /// The text.
    pub index: SourceIndex,
    /// The client's own number for it.
    pub version: i32,
    /// Which edition of the document it is.
    pub edition: u64,
    current: Arc<AtomicU64>,
}

impl DocumentSnapshot {
    /// Whether the document has been neither edited nor closed since.
    pub(crate) fn is_current(&self) -> bool {
        self.current.load(Ordering::Acquire) == self.edition
    }
}

/// A change of a text as the client tells it. Places are in the client's units, so they can be read
/// only when the changes before have been made.
#[derive(Clone, Debug)]
pub(crate) enum Change<P> {
    /// The whole text anew.
    Whole(String),
    /// What stands at a place becomes this text.
    Part(P, String),
}

/// Why a text is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is larger than [`SIZE_LIMIT`].
    TooLarge,
    /// More than [`OPEN_LIMIT`] are open.
    TooMany,
}

/// All open texts.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    open: HashMap<DocumentId, Document>,
    /// Numbers of editions are never used twice, so that a document closed and opened again is not
    /// mistaken for itself.
    last_edition: u64,
}

impl Documents {
    /// Opens a text, or replaces it where it was open. `real` is its file's path without links.
    ///
    /// # Errors
    /// Where the text is left alone; it is open all the same, so that a smaller one can follow.
    pub(crate) fn open(
        &mut self,
        id: DocumentId,
        uri: String,
        real: Option<PathBuf>,
        text: String,
    ) -> Result<(), Refusal> {
        self.close(&id);
        if self.open.len() >= OPEN_LIMIT {
            return Err(Refusal::TooMany);
        }
        let too_large = text.len() > SIZE_LIMIT;
        let index = (!too_large).then(|| SourceIndex::new(text));
        self.last_edition += 1;
        let edition = Arc::new(AtomicU64::new(self.last_edition));
        self.open.insert(id, Document { uri, real, index, version: 0, edition });
        if too_large { Err(Refusal::TooLarge) } else { Ok(()) }
    }

    /// Makes changes in order and parses once for each run of them. `locate` finds the bytes of a
    /// place in the text so far. Changes of a text that is not open are ignored.
    ///
    /// # Errors
    /// Where the text has become too large.
    pub(crate) fn change<P>(
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
        let was_large = document.index.is_none();
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
        edit(&mut document.index, parts, locate);
        if document.index.is_none() && !was_large { Err(Refusal::TooLarge) } else { Ok(()) }
    }

    /// Takes note of the client's number for a text.
    pub(crate) fn set_version(&mut self, id: &DocumentId, version: i32) {
        if let Some(document) = self.open.get_mut(id) {
            document.version = version;
        }
    }

    /// Parses what edits put off, in a pause such as a save. Snapshots are out of date where that
    /// changed what is known of the text.
    pub(crate) fn catch_up(&mut self, id: &DocumentId) {
        let Some(document) = self.open.get_mut(id) else { return };
        if document.index.as_mut().is_some_and(SourceIndex::catch_up) {
            self.last_edition += 1;
            document.edition.store(self.last_edition, Ordering::Release);
        }
    }

    /// Closes a text. Snapshots of it are out of date from now on.
    pub(crate) fn close(&mut self, id: &DocumentId) {
        if let Some(document) = self.open.remove(id) {
            document.edition.store(0, Ordering::Release);
        }
    }

    /// An open text.
    pub(crate) fn get(&self, id: &DocumentId) -> Option<&Document> {
        self.open.get(id)
    }

    /// Bytes of an open text; 0 where it is not open or too large.
    pub(crate) fn bytes(&self, id: &DocumentId) -> usize {
        let index = self.get(id).and_then(|document| document.index.as_ref());
        index.map_or(0, |index| index.text().len())
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&DocumentId, &Document)> {
        self.open.iter()
    }

    /// A text at this moment; nothing where it is not open or too large.
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

/// The whole text anew. What came before it in the same notification does not matter any more.
fn replace(index: &mut Option<SourceIndex>, text: &str) {
    match index {
        _ if text.len() > SIZE_LIMIT => *index = None,
        Some(index) => index.replace(text),
        None => *index = Some(SourceIndex::new(text)),
    }
}

/// Parts in order, each placed in the text that the one before left. A part of a text that was
/// refused says nothing about the whole, so that stays refused.
fn edit<P>(
    index: &mut Option<SourceIndex>,
    parts: Vec<(P, String)>,
    locate: impl Fn(&str, &Lines, P) -> Range<usize>,
) {
    let Some(known) = index else { return };
    let mut text = known.text().to_owned();
    let mut lines = known.lines().clone();
    let mut edits = Vec::with_capacity(parts.len());
    for (place, part) in parts {
        let range = locate(&text, &lines, place);
        if text.len() - range.len() + part.len() > SIZE_LIMIT {
            *index = None;
            return;
        }
        text.replace_range(range.clone(), &part);
        lines.edit(&text, range.clone(), part.len());
        edits.push(TextEdit { range, text: part });
    }
    known.edit(&edits);
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
    fn snapshots_know_when_they_are_old() {
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
    fn large_texts_are_left_alone_until_they_are_small() {
        let mut documents = Documents::default();
        let large = "#".repeat(SIZE_LIMIT + 1);
        let opened = documents.open(id(), "file:///w/a.py".into(), None, large);
        assert_eq!(opened, Err(Refusal::TooLarge));
        assert!(documents.snapshot(&id()).is_none());
        let part = vec![Change::Part(0..1, "x".to_owned())];
        assert_eq!(documents.change(&id(), part, |_, _, range| range), Ok(()));
        let whole = vec![Change::Whole("x".to_owned())];
        assert_eq!(documents.change(&id(), whole, |_, _, range: Range<usize>| range), Ok(()));
        assert!(documents.snapshot(&id()).is_some());
    }

    #[test]
    fn a_large_line_is_no_program_and_nothing_is_kept_after_it_closes() {
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
        assert!(text.upgrade().is_none(), "somebody still holds the text");
        assert_eq!(documents.bytes(&id()), 0);
    }

    #[test]
    fn a_text_that_was_never_opened() {
        let mut documents = Documents::default();
        let change = vec![Change::Whole("y".to_owned())];
        assert_eq!(documents.change(&id(), change, |_, _, range: Range<usize>| range), Ok(()));
        assert!(documents.snapshot(&id()).is_none());
    }
}
