//! Whether anything of a workspace may run.
//!
//! A training script is a program, and so is an interpreter that lies in a workspace. Neither runs
//! before the person allowed it once, or the editor vouched for the workspace. Reading files is no
//! running: configuration and source text are data.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::folder_identity::Identity;
use crate::store::{Store, StoreError, create_private, write_atomic};

/// What a person can answer. The titles of the actions are what the editor sends back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This run alone.
    Once,
    /// Every run from now on; kept.
    Always,
    /// No run; kept.
    Never,
}

impl Answer {
    /// In the order in which they are offered.
    pub(crate) const ALL: [Answer; 3] = [Answer::Once, Answer::Always, Answer::Never];

    /// What the editor shows.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Answer::Once => "Run once",
            Answer::Always => "Always for this workspace",
            Answer::Never => "Never",
        }
    }

    /// The answer of that title.
    pub(crate) fn of_title(title: &str) -> Option<Answer> {
        Answer::ALL.into_iter().find(|answer| answer.title() == title)
    }
}

/// What may run in a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Everything: the person said "always", or the editor vouches.
    Allowed,
    /// Nothing: the person said "never".
    Refused,
    /// Nothing before the person was asked.
    Unknown,
}

/// The decisions about workspaces. Those that last are files in the user's state folder, one for
/// each workspace, so that two servers do not write over each other. A decision is about a folder, not
/// about its path: where another project lies at the path, the person is asked again.
#[derive(Debug)]
pub(crate) struct Trust {
    store: Option<Store>,
    vouched: bool,
    known: HashMap<PathBuf, Known>,
    disk: Disk,
}

/// A decision of this session.
#[derive(Debug)]
struct Known {
    decision: Decision,
    /// The folder that it is about; the editor's word is about whatever is there.
    folder: Option<Identity>,
}

/// The file in a workspace's state folder. Its second line is the workspace's path, because the
/// folder's name is a hash, and a hash is no proof; its third says which folder that was.
const FILE: &str = "trust";

impl Trust {
    /// `vouched` is the editor's word for all its workspaces. Without a store, decisions last as long
    /// as the session.
    pub(crate) fn new(store: Option<Store>, vouched: bool) -> Trust {
        Trust { store, vouched, known: HashMap::new(), disk: Disk::default() }
    }

    /// What may run in the workspace at `root` (absolute, without links), and whether that has just become
    /// less because another folder lies there now. While the disk does not answer, nothing is allowed.
    pub(crate) fn decision(&mut self, root: &Path) -> (Decision, bool) {
        if let Some(known) = self.known.get(root) {
            let Some(folder) = known.folder.clone() else { return (known.decision, false) };
            let of = root.to_owned();
            match self.disk.ask(move || folder.is_same_folder(&of)) {
                Some(true) => return (known.decision, false),
                Some(false) => {}
                None => return (Decision::Unknown, false),
            }
            let nothing = self.nothing(root);
            self.known.insert(root.to_owned(), nothing);
            return (Decision::Unknown, true);
        }
        let (store, of) = (self.store.clone(), root.to_owned());
        let Some(kept) = self.disk.ask(move || read(&store?, &of)) else {
            return (Decision::Unknown, false);
        };
        let known = match kept {
            Some(known) => known,
            None if self.vouched => Known { decision: Decision::Allowed, folder: None },
            None => self.nothing(root),
        };
        let decision = known.decision;
        self.known.insert(root.to_owned(), known);
        (decision, false)
    }

    /// Keeps a decision. It holds for this session even where it cannot be written.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(crate) fn decide(&mut self, root: &Path, allowed: bool) -> Result<(), StoreError> {
        let of = root.to_owned();
        let folder = self.disk.ask(move || Identity::of(&of)).flatten();
        let decision = match (allowed, &folder) {
            (false, _) => Decision::Refused,
            (true, Some(_)) => Decision::Allowed,
            // There is nothing at the path that could be allowed.
            (true, None) => Decision::Unknown,
        };
        let about = folder.as_ref().map(Identity::to_string);
        self.known.insert(root.to_owned(), Known { decision, folder });
        let Some(store) = &self.store else { return Ok(()) };
        let (Some(path), Some(about)) = (root.to_str(), about) else { return Ok(()) };
        let folder = store.workspace_state(root);
        let word = if allowed { "always" } else { "never" };
        let text = format!("{word}\n{path}\n{about}\n");
        let written = self.disk.ask(move || {
            create_private(&folder)?;
            write_atomic(&folder.join(FILE), text.as_bytes())
        });
        // One that takes long may succeed all the same.
        written.unwrap_or(Ok(()))
    }

    /// The person has to be asked about what is there now.
    fn nothing(&self, root: &Path) -> Known {
        let of = root.to_owned();
        let folder = self.disk.ask(move || Identity::of_folder(&of)).flatten();
        Known { decision: Decision::Unknown, folder }
    }

    /// Takes every decision about a workspace back, the editor's word included: from now on the
    /// person is asked.
    ///
    /// # Errors
    /// Where the file that holds it cannot be removed; nothing runs in this session all the same.
    pub(crate) fn revoke(&mut self, root: &Path) -> Result<(), StoreError> {
        let nothing = self.nothing(root);
        self.known.insert(root.to_owned(), nothing);
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

/// What was decided about the folder at `root`. A file that does not say which folder it is about, or is
/// about another one, decides nothing.
fn read(store: &Store, root: &Path) -> Option<Known> {
    const LONGEST: u64 = 16 * 1024;
    let file = store.workspace_state(root).join(FILE);
    if file.metadata().ok()?.len() > LONGEST {
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    let text = text.strip_suffix('\n')?;
    let (word, text) = text.split_once('\n')?;
    // A path may hold line ends; an identity holds none.
    let (path, about) = text.rsplit_once('\n')?;
    if Some(path) != root.to_str() {
        return None;
    }
    let folder: Identity = about.parse().ok()?;
    let decision = match word {
        "always" => Decision::Allowed,
        "never" => Decision::Refused,
        _ => return None,
    };
    folder.is_of(root).then_some(Known { decision, folder: Some(folder) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::tests::{git, repository};

    /// A store, and a workspace beside it.
    fn place() -> (tempfile::TempDir, Option<Store>, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().join("cache"), folder.path().join("state"));
        let root = folder.path().join("w");
        fs::create_dir(&root).expect("made");
        (folder, Some(store), root)
    }

    fn decision(store: &Option<Store>, vouched: bool, root: &Path) -> Decision {
        Trust::new(store.clone(), vouched).decision(root).0
    }

    fn allow(store: &Option<Store>, root: &Path) {
        Trust::new(store.clone(), false).decide(root, true).expect("written");
    }

    #[test]
    fn nothing_is_allowed_by_itself() {
        let (_folder, store, root) = place();
        assert_eq!(decision(&store, false, &root), Decision::Unknown);
    }

    #[test]
    fn decisions_are_kept_for_one_workspace() {
        let (folder, store, root) = place();
        let (refused, inner) = (folder.path().join("n"), root.join("inner"));
        fs::create_dir(&refused).expect("made");
        fs::create_dir(&inner).expect("made");
        let mut trust = Trust::new(store.clone(), false);
        trust.decide(&root, true).expect("written");
        trust.decide(&refused, false).expect("written");
        assert_eq!(decision(&store, false, &root), Decision::Allowed);
        assert_eq!(decision(&store, false, &refused), Decision::Refused);
        assert_eq!(decision(&store, false, &inner), Decision::Unknown);
    }

    #[test]
    fn a_kept_no_is_stronger_than_the_editors_word() {
        let (folder, store, root) = place();
        Trust::new(store.clone(), false).decide(&root, false).expect("written");
        assert_eq!(decision(&store, true, &root), Decision::Refused);
        assert_eq!(decision(&store, true, folder.path()), Decision::Allowed);
    }

    #[test]
    fn revoking_holds_in_this_session_and_the_next() {
        let (_folder, store, root) = place();
        let mut trust = Trust::new(store.clone(), true);
        trust.decide(&root, true).expect("written");
        trust.revoke(&root).expect("removed");
        trust.revoke(&root).expect("twice is fine");
        assert_eq!(trust.decision(&root), (Decision::Unknown, false));
        assert_eq!(decision(&store, false, &root), Decision::Unknown);
    }

    #[test]
    fn another_folder_at_the_path_is_asked_about_again() {
        let (folder, store, root) = place();
        let mut trust = Trust::new(store.clone(), false);
        trust.decide(&root, true).expect("written");
        assert_eq!(decision(&store, false, &root), Decision::Allowed);
        // What was there is kept, so that its number is not given to the next folder.
        fs::rename(&root, folder.path().join("before")).expect("moved");
        fs::create_dir(&root).expect("made");
        assert_eq!(decision(&store, false, &root), Decision::Unknown);
        // In the session that allowed it as well.
        assert_eq!(trust.decision(&root), (Decision::Unknown, true));
        assert_eq!(trust.decision(&root), (Decision::Unknown, false));
        // A question about the one is no question about the other.
        fs::rename(&root, folder.path().join("between")).expect("moved");
        fs::create_dir(&root).expect("made");
        assert_eq!(trust.decision(&root), (Decision::Unknown, true));
        fs::remove_dir(&root).expect("removed");
        assert_eq!(decision(&store, false, &root), Decision::Unknown);
    }

    #[test]
    fn a_commit_does_not_change_the_folder_and_another_repository_does() {
        let Some((folder, project)) = repository("a = 1\n") else { return };
        let (_place, store, _) = place();
        allow(&store, &project);
        fs::write(project.join("train.py"), "a = 2\n").expect("written");
        assert!(git(folder.path(), &["commit", "-q", "-a", "-m", "second"]));
        assert_eq!(decision(&store, false, &project), Decision::Allowed);
        // Another project moves in without the folder being made again.
        fs::rename(folder.path().join(".git"), folder.path().join("before")).expect("moved");
        assert_eq!(decision(&store, false, &project), Decision::Unknown);
        for arguments in [&["init", "-q"][..], &["add", "project"], &["commit", "-q", "-m", "z"]] {
            assert!(git(folder.path(), arguments));
        }
        assert_eq!(decision(&store, false, &project), Decision::Unknown);
    }

    #[test]
    fn a_folder_that_becomes_a_repository_is_the_same_folder() {
        let (_folder, store, root) = place();
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
    fn a_file_of_another_workspace_of_an_older_version_or_of_nonsense_allows_nothing() {
        let (_folder, store, root) = place();
        let state = store.as_ref().expect("a store").workspace_state(&root);
        fs::create_dir_all(&state).expect("made");
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
