//! Decides whether a workspace may run code.
//!
//! A training script is a program, and so is an interpreter inside a workspace. Neither runs before
//! the user has allowed it once or the editor has declared the workspace trusted. Reading files
//! needs no permission: configuration and source text are data.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::folder_identity::Identity;
use crate::store::{Store, StoreError, create_private, write_atomic};

/// The user's possible answers. The editor sends back the title of the button.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This run only.
    Once,
    /// Every run from now on. Stored.
    Always,
    /// No run. Stored.
    Never,
}

impl Answer {
    /// All answers, in the order in which they are offered.
    pub(crate) const ALL: [Answer; 3] = [Answer::Once, Answer::Always, Answer::Never];

    /// Returns the button's title.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Answer::Once => "Run once",
            Answer::Always => "Always for this workspace",
            Answer::Never => "Never",
        }
    }

    /// Returns the answer with this title.
    pub(crate) fn of_title(title: &str) -> Option<Answer> {
        Answer::ALL.into_iter().find(|answer| answer.title() == title)
    }
}

/// What may run in a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Everything: the user chose "always", or the editor trusts the workspace.
    Allowed,
    /// Nothing: the user chose "never".
    Refused,
    /// Nothing before the user is asked.
    Unknown,
}

/// The decisions about workspaces. Stored decisions are files in the user's state folder, one for
/// each workspace, so that two servers do not overwrite each other's. A decision is about a folder,
/// not about its path: if another project is at the path, the user is asked again.
#[derive(Debug)]
pub(crate) struct Trust {
    store: Option<Store>,
    vouched: bool,
    known: HashMap<PathBuf, SessionDecision>,
    disk: Disk,
}

/// A decision of this session.
#[derive(Debug)]
struct SessionDecision {
    decision: Decision,
    /// The folder that the decision is about. `None` for the editor's trust, which covers whatever
    /// is at the path.
    folder: Option<Identity>,
}

/// The file in a workspace's state folder. Its second line is the workspace's path, because the
/// folder's name is only a hash. Its third line identifies the folder.
const FILE: &str = "trust";

impl Trust {
    /// Creates the decisions of a session. `vouched` means that the editor trusts all its
    /// workspaces. Without a store, decisions last as long as the session.
    pub(crate) fn new(store: Option<Store>, vouched: bool) -> Trust {
        Trust { store, vouched, known: HashMap::new(), disk: Disk::default() }
    }

    /// Returns what may run in the workspace at `root` (absolute, without symbolic links), and
    /// whether a decision was just dropped because another folder is there now. While the disk does
    /// not answer, nothing is allowed.
    pub(crate) fn decision(&mut self, root: &Path) -> (Decision, bool) {
        if let Some(known) = self.known.get(root) {
            let Some(folder) = known.folder.clone() else { return (known.decision, false) };
            let path = root.to_owned();
            match self.disk.ask(move || folder.is_same_folder(&path)) {
                Some(true) => return (known.decision, false),
                Some(false) => {}
                None => return (Decision::Unknown, false),
            }
            let undecided = self.undecided(root);
            self.known.insert(root.to_owned(), undecided);
            return (Decision::Unknown, true);
        }
        let (store, path) = (self.store.clone(), root.to_owned());
        let Some(stored) = self.disk.ask(move || read(&store?, &path)) else {
            return (Decision::Unknown, false);
        };
        let known = match stored {
            Some(stored) => stored,
            None if self.vouched => SessionDecision { decision: Decision::Allowed, folder: None },
            None => self.undecided(root),
        };
        let decision = known.decision;
        self.known.insert(root.to_owned(), known);
        (decision, false)
    }

    /// Stores a decision. It applies to this session even if it cannot be written.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn decide(&mut self, root: &Path, allowed: bool) -> Result<(), StoreError> {
        let path = root.to_owned();
        let folder = self.disk.ask(move || Identity::of(&path)).flatten();
        let decision = match (allowed, &folder) {
            (false, _) => Decision::Refused,
            (true, Some(_)) => Decision::Allowed,
            // There is no folder at the path that could be allowed.
            (true, None) => Decision::Unknown,
        };
        let identity = folder.as_ref().map(Identity::to_string);
        self.known.insert(root.to_owned(), SessionDecision { decision, folder });
        let Some(store) = &self.store else { return Ok(()) };
        let (Some(path), Some(identity)) = (root.to_str(), identity) else { return Ok(()) };
        let folder = store.workspace_state(root);
        let word = if allowed { "always" } else { "never" };
        let text = format!("{word}\n{path}\n{identity}\n");
        let written = self.disk.ask(move || {
            create_private(&folder)?;
            write_atomic(&folder.join(FILE), text.as_bytes())
        });
        // A slow write may still succeed.
        written.unwrap_or(Ok(()))
    }

    /// Returns an undecided entry for the folder that is at the path now.
    fn undecided(&self, root: &Path) -> SessionDecision {
        let path = root.to_owned();
        let folder = self.disk.ask(move || Identity::of_folder(&path)).flatten();
        SessionDecision { decision: Decision::Unknown, folder }
    }

    /// Withdraws every decision about a workspace, including the editor's trust. From now on the
    /// user is asked.
    ///
    /// # Errors
    /// If the file with the decision cannot be removed. Nothing runs in this session anyway.
    pub(crate) fn revoke(&mut self, root: &Path) -> Result<(), StoreError> {
        let undecided = self.undecided(root);
        self.known.insert(root.to_owned(), undecided);
        let Some(store) = &self.store else { return Ok(()) };
        let file = store.workspace_state(root).join(FILE);
        let removed = self.disk.ask(move || match fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::at(&file, error))
            }
            _ => Ok(()),
        });
        removed.unwrap_or(Ok(()))
    }
}

/// Reads the stored decision about the folder at `root`. A file that does not identify a folder, or
/// identifies another one, is ignored.
fn read(store: &Store, root: &Path) -> Option<SessionDecision> {
    const SIZE_LIMIT: u64 = 16 * 1024;
    let file = store.workspace_state(root).join(FILE);
    if file.metadata().ok()?.len() > SIZE_LIMIT {
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    let text = text.strip_suffix('\n')?;
    let (word, text) = text.split_once('\n')?;
    // A path may contain line breaks; an identity does not.
    let (path, identity) = text.rsplit_once('\n')?;
    if Some(path) != root.to_str() {
        return None;
    }
    let folder: Identity = identity.parse().ok()?;
    let decision = match word {
        "always" => Decision::Allowed,
        "never" => Decision::Refused,
        _ => return None,
    };
    folder.is_of(root).then_some(SessionDecision { decision, folder: Some(folder) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::tests::{git, repository};

    /// Creates a store, and a workspace next to it.
    fn store_and_workspace() -> (tempfile::TempDir, Option<Store>, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().join("cache"), folder.path().join("state"));
        let root = folder.path().join("w");
        fs::create_dir(&root).expect("created");
        (folder, Some(store), root)
    }

    fn decision(store: &Option<Store>, vouched: bool, root: &Path) -> Decision {
        Trust::new(store.clone(), vouched).decision(root).0
    }

    fn allow(store: &Option<Store>, root: &Path) {
        Trust::new(store.clone(), false).decide(root, true).expect("written");
    }

    #[test]
    fn nothing_is_allowed_by_default() {
        let (_folder, store, root) = store_and_workspace();
        assert_eq!(decision(&store, false, &root), Decision::Unknown);
    }

    #[test]
    fn decisions_are_stored_per_workspace() {
        let (folder, store, root) = store_and_workspace();
        let (refused, inner) = (folder.path().join("n"), root.join("inner"));
        fs::create_dir(&refused).expect("created");
        fs::create_dir(&inner).expect("created");
        let mut trust = Trust::new(store.clone(), false);
        trust.decide(&root, true).expect("written");
        trust.decide(&refused, false).expect("written");
        assert_eq!(decision(&store, false, &root), Decision::Allowed);
        assert_eq!(decision(&store, false, &refused), Decision::Refused);
        assert_eq!(decision(&store, false, &inner), Decision::Unknown);
    }

    #[test]
    fn a_stored_refusal_overrides_the_editors_trust() {
        let (folder, store, root) = store_and_workspace();
        Trust::new(store.clone(), false).decide(&root, false).expect("written");
        assert_eq!(decision(&store, true, &root), Decision::Refused);
        assert_eq!(decision(&store, true, folder.path()), Decision::Allowed);
    }

    #[test]
    fn revoking_applies_to_this_session_and_the_next() {
        let (_folder, store, root) = store_and_workspace();
        let mut trust = Trust::new(store.clone(), true);
        trust.decide(&root, true).expect("written");
        trust.revoke(&root).expect("removed");
        trust.revoke(&root).expect("twice is fine");
        assert_eq!(trust.decision(&root), (Decision::Unknown, false));
        assert_eq!(decision(&store, false, &root), Decision::Unknown);
    }

    #[test]
    fn another_folder_at_the_path_needs_another_decision() {
        let (folder, store, root) = store_and_workspace();
        let mut trust = Trust::new(store.clone(), false);
        trust.decide(&root, true).expect("written");
        assert_eq!(decision(&store, false, &root), Decision::Allowed);
        // The old folder still exists, so the new one cannot get its inode.
        fs::rename(&root, folder.path().join("before")).expect("moved");
        fs::create_dir(&root).expect("created");
        assert_eq!(decision(&store, false, &root), Decision::Unknown);
        // The session that allowed it notices it, too.
        assert_eq!(trust.decision(&root), (Decision::Unknown, true));
        assert_eq!(trust.decision(&root), (Decision::Unknown, false));
        // An unknown folder that is replaced by another unknown one is noticed as well.
        fs::rename(&root, folder.path().join("between")).expect("moved");
        fs::create_dir(&root).expect("created");
        assert_eq!(trust.decision(&root), (Decision::Unknown, true));
        fs::remove_dir(&root).expect("removed");
        assert_eq!(decision(&store, false, &root), Decision::Unknown);
    }

    #[test]
    fn a_commit_does_not_change_the_folder_and_another_repository_does() {
        let Some((folder, project)) = repository("a = 1\n") else { return };
        let (_folder_of_store, store, _) = store_and_workspace();
        allow(&store, &project);
        fs::write(project.join("train.py"), "a = 2\n").expect("written");
        assert!(git(folder.path(), &["commit", "-q", "-a", "-m", "second"]));
        assert_eq!(decision(&store, false, &project), Decision::Allowed);
        // Another project moves into the same folder.
        fs::rename(folder.path().join(".git"), folder.path().join("before")).expect("moved");
        assert_eq!(decision(&store, false, &project), Decision::Unknown);
        for arguments in [&["init", "-q"][..], &["add", "project"], &["commit", "-q", "-m", "z"]] {
            assert!(git(folder.path(), arguments));
        }
        assert_eq!(decision(&store, false, &project), Decision::Unknown);
    }

    #[test]
    fn a_folder_that_becomes_a_repository_is_the_same_folder() {
        let (_folder, store, root) = store_and_workspace();
        fs::write(root.join("train.py"), "a = 1\n").expect("written");
        allow(&store, &root);
        for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "x"]] {
            if !git(&root, arguments) {
                println!("skipped: there is no git to make a repository with");
                return;
            }
        }
        assert_eq!(decision(&store, false, &root), Decision::Allowed);
    }

    #[test]
    fn invalid_files_and_files_of_other_workspaces_or_old_versions_allow_nothing() {
        let (_folder, store, root) = store_and_workspace();
        let state = store.as_ref().expect("a store").workspace_state(&root);
        fs::create_dir_all(&state).expect("created");
        let (path, own) = (root.display(), Identity::of(&root).expect("a folder"));
        for text in [
            format!("always\n/other\n{own}\n"),
            // Before folders had an identity.
            format!("always\n{path}\n"),
            format!("always\n{path}"),
            format!("yes\n{path}\n{own}\n"),
            format!("always\n{path}\n{own}"),
            format!("always\n{path}\nfolder 1\n"),
            format!("always\n{path}\nfolder 0 0 -\n"),
            format!("\0\0\n{path}\n{own}\n"),
            "always".to_owned(),
            String::new(),
        ] {
            fs::write(state.join(FILE), &text).expect("written");
            assert_eq!(decision(&store, false, &root), Decision::Unknown, "{text:?}");
        }
        fs::write(state.join(FILE), format!("always\n{path}\n{own}\n")).expect("written");
        assert_eq!(decision(&store, false, &root), Decision::Allowed);
    }
}
