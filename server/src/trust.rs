//! Whether anything of a workspace may run.
//!
//! A training script is a program, and so is an interpreter that lies in a workspace. Neither runs
//! before the person allowed it once, or the editor vouched for the workspace. Reading files is no
//! running: configuration and source text are data.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::store::{Store, StoreError, create_private, write_atomic};

/// What a person can answer. The titles of the actions are what the editor sends back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This run alone.
    Once,
    /// Every run from now on; kept.
    Always,
    /// No run; kept.
    Never,
}

impl Answer {
    /// In the order in which they are offered.
    pub const ALL: [Answer; 3] = [Answer::Once, Answer::Always, Answer::Never];

    /// What the editor shows.
    pub fn title(self) -> &'static str {
        match self {
            Answer::Once => "Run once",
            Answer::Always => "Always for this workspace",
            Answer::Never => "Never",
        }
    }

    /// The answer of that title.
    pub fn of_title(title: &str) -> Option<Answer> {
        Answer::ALL.into_iter().find(|answer| answer.title() == title)
    }
}

/// What may run in a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Everything: the person said "always", or the editor vouches.
    Allowed,
    /// Nothing: the person said "never".
    Refused,
    /// Nothing before the person was asked.
    Unknown,
}

/// The decisions about workspaces. Those that last are files in the user's state folder, one for
/// each workspace, so that two servers do not write over each other.
#[derive(Debug)]
pub struct Trust {
    store: Option<Store>,
    vouched: bool,
    known: HashMap<PathBuf, Decision>,
}

/// The file in a workspace's state folder. Its second line is the workspace's path, because the
/// folder's name is a hash, and a hash is no proof.
const FILE: &str = "trust";

impl Trust {
    /// `vouched` is the editor's word for all its workspaces. Without a store, decisions last as long
    /// as the session.
    pub fn new(store: Option<Store>, vouched: bool) -> Trust {
        Trust { store, vouched, known: HashMap::new() }
    }

    /// What may run in the workspace at `root` (absolute, without links).
    pub fn decision(&mut self, root: &Path) -> Decision {
        if let Some(decision) = self.known.get(root) {
            return *decision;
        }
        let kept = self.store.as_ref().and_then(|store| read(store, root));
        let decision = match kept {
            Some(decision) => decision,
            None if self.vouched => Decision::Allowed,
            None => Decision::Unknown,
        };
        self.known.insert(root.to_owned(), decision);
        decision
    }

    /// Keeps a decision. It holds for this session even where it cannot be written.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn decide(&mut self, root: &Path, allowed: bool) -> Result<(), StoreError> {
        let decision = if allowed { Decision::Allowed } else { Decision::Refused };
        self.known.insert(root.to_owned(), decision);
        let Some(store) = &self.store else { return Ok(()) };
        let Some(path) = root.to_str() else { return Ok(()) };
        let folder = store.workspace_state(root);
        create_private(&folder)?;
        let word = if allowed { "always" } else { "never" };
        write_atomic(&folder.join(FILE), format!("{word}\n{path}\n").as_bytes())
    }

    /// Takes every decision about a workspace back, the editor's word included: from now on the
    /// person is asked.
    ///
    /// # Errors
    /// Where the file that holds it cannot be removed; nothing runs in this session all the same.
    pub fn revoke(&mut self, root: &Path) -> Result<(), StoreError> {
        self.known.insert(root.to_owned(), Decision::Unknown);
        let Some(store) = &self.store else { return Ok(()) };
        let file = store.workspace_state(root).join(FILE);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::at(&file, error))
            }
            _ => Ok(()),
        }
    }
}

fn read(store: &Store, root: &Path) -> Option<Decision> {
    const LONGEST: u64 = 16 * 1024;
    let file = store.workspace_state(root).join(FILE);
    if file.metadata().ok()?.len() > LONGEST {
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    let (word, path) = text.split_once('\n')?;
    if Some(path.strip_suffix('\n')?) != root.to_str() {
        return None;
    }
    match word {
        "always" => Some(Decision::Allowed),
        "never" => Some(Decision::Refused),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(folder: &tempfile::TempDir) -> Option<Store> {
        Some(Store::at(folder.path().join("cache"), folder.path().join("state")))
    }

    #[test]
    fn nothing_is_allowed_by_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut trust = Trust::new(store(&folder), false);
        assert_eq!(trust.decision(Path::new("/w")), Decision::Unknown);
    }

    #[test]
    fn decisions_are_kept_for_one_workspace() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut trust = Trust::new(store(&folder), false);
        trust.decide(Path::new("/w"), true).expect("written");
        trust.decide(Path::new("/n"), false).expect("written");
        let mut later = Trust::new(store(&folder), false);
        assert_eq!(later.decision(Path::new("/w")), Decision::Allowed);
        assert_eq!(later.decision(Path::new("/n")), Decision::Refused);
        assert_eq!(later.decision(Path::new("/w/inner")), Decision::Unknown);
    }

    #[test]
    fn a_kept_no_is_stronger_than_the_editors_word() {
        let folder = tempfile::tempdir().expect("a folder");
        Trust::new(store(&folder), false).decide(Path::new("/w"), false).expect("written");
        let mut trust = Trust::new(store(&folder), true);
        assert_eq!(trust.decision(Path::new("/w")), Decision::Refused);
        assert_eq!(trust.decision(Path::new("/other")), Decision::Allowed);
    }

    #[test]
    fn revoking_holds_in_this_session_and_the_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut trust = Trust::new(store(&folder), true);
        trust.decide(Path::new("/w"), true).expect("written");
        trust.revoke(Path::new("/w")).expect("removed");
        trust.revoke(Path::new("/w")).expect("twice is fine");
        assert_eq!(trust.decision(Path::new("/w")), Decision::Unknown);
        let mut later = Trust::new(store(&folder), false);
        assert_eq!(later.decision(Path::new("/w")), Decision::Unknown);
    }

    #[test]
    fn a_file_of_another_workspace_or_of_nonsense_allows_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = store(&folder).expect("a store").workspace_state(Path::new("/w"));
        fs::create_dir_all(&state).expect("made");
        for text in ["always\n/other\n", "always", "", "yes\n/w\n", "always\n/w", "\0\0\n/w\n"] {
            fs::write(state.join(FILE), text).expect("written");
            let mut trust = Trust::new(store(&folder), false);
            assert_eq!(trust.decision(Path::new("/w")), Decision::Unknown, "{text:?}");
        }
    }
}
