//! Finds the commit of a project, and whether a run's files match it.
//!
//! It reads the repository's files itself: no git process runs and no configuration is read, so
//! nothing that a configuration names is started. Objects have a size limit. The other files of the
//! repository have none: a repository is only read after a run, and so belongs to a project whose
//! code the user allowed, which could fill the memory anyway.

use std::error::Error;
use std::path::{Path, PathBuf};

use gix_hash::{Kind, ObjectId, Prefix};
use gix_object::FindExt as _;
use gix_odb::store::init::Options;
use gix_odb::{Handle, HeaderExt as _};
use gix_ref::file::{ReferenceExt as _, Store as References};
use ridgeline_analysis::python::fingerprint;

use crate::documents::SIZE_LIMIT;

/// The number of digits that are stored of a commit's name. Git shows fewer unless they are
/// ambiguous.
const COMMIT_DIGITS: usize = 12;

/// The maximum number of files to compare. A program with more counts as different.
const FILE_LIMIT: usize = 2_000;

/// HEAD at the time of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub commit: String,
    /// Whether every file that was compared is the same in that commit.
    pub clean: bool,
}

/// The path of a file that ran, and the checksums of its lines.
pub(crate) type RanFile<'a> = (&'a Path, &'a [u32]);

/// Compares HEAD of the repository around `root` with the files that ran. Returns `None` if there
/// is no repository, or HEAD has no commit that can be read.
pub(crate) fn head(root: &Path, ran: &[RanFile<'_>]) -> Option<Head> {
    let head = Commit::named(root, "HEAD")?;
    Some(Head { clean: head.has_files(ran), commit: head.digits })
}

/// The maximum number of first parents followed to find a repository's first commit. A longer
/// history counts as unknown, because the user waits for the result.
const FIRST_PARENT_LIMIT: usize = 20_000;

/// Returns the name of the first commit of the repository around `root`, found by following first
/// parents from HEAD. It does not change as commits are added. Returns `None` if there is no
/// repository or no commit.
pub(crate) fn first_commit(root: &Path) -> Option<String> {
    let find = || -> Result<Option<String>, Box<dyn Error>> {
        let Repository { objects, references, .. } = Repository::around(root)?;
        let mut head = references.find("HEAD")?;
        let mut commit = head.peel_to_id(&references, &objects)?;
        let mut buffer = Vec::new();
        for _ in 0..FIRST_PARENT_LIMIT {
            // In a shallow clone, the history ends with a commit that is missing.
            let found = objects.find_commit(&commit, &mut buffer)?;
            let Some(parent) = found.parents().next() else {
                return Ok(Some(commit.to_string()));
            };
            commit = parent;
        }
        Ok(None)
    };
    let found = find();
    found
        .inspect_err(|why| tracing::debug!("{} has no first commit: {why}", root.display()))
        .ok()?
}

/// A commit, with access to its files.
pub(crate) struct Commit {
    /// The first digits of its name.
    pub digits: String,
    objects: Handle,
    tree: ObjectId,
    /// The root of the working tree, without symbolic links.
    folder: Option<PathBuf>,
}

impl Commit {
    /// Resolves a name: `HEAD`, a branch, a tag, the first digits of a commit, or one of these
    /// followed by `~3` for its third ancestor.
    pub(crate) fn named(root: &Path, name: &str) -> Option<Commit> {
        match find(root, name) {
            Ok(commit) => Some(commit),
            Err(why) => {
                tracing::debug!("{name} is no commit of {}: {why}", root.display());
                None
            }
        }
    }

    /// Returns the abbreviated name, as git shows it.
    pub(crate) fn short(&self) -> &str {
        self.digits.get(..7).unwrap_or(&self.digits)
    }

    /// Returns whether all files are the same in this commit. Returns false for an empty list.
    pub(crate) fn has_files(&self, ran: &[RanFile<'_>]) -> bool {
        let is_same = |&(file, checksums): &RanFile<'_>| {
            let file = inside(self.folder.as_deref(), file);
            has_file(&self.objects, self.tree, file, checksums).unwrap_or_else(|why| {
                tracing::debug!("{} cannot be read: {why}", self.digits);
                false
            })
        };
        !ran.is_empty() && ran.len() <= FILE_LIMIT && ran.iter().all(is_same)
    }
}

/// The maximum `n` in `~n`.
const ANCESTOR_LIMIT: u32 = 10_000;

fn find(root: &Path, name: &str) -> Result<Commit, Box<dyn Error>> {
    let (name, back) = match name.split_once('~') {
        Some((name, "")) => (name, 1),
        Some((name, back)) => (name, back.parse::<u32>()?),
        None => (name, 0),
    };
    if back > ANCESTOR_LIMIT {
        return Err("too many ancestors".into());
    }
    let Repository { objects, references, folder } = Repository::around(root)?;
    let mut commit = match references.try_find(name)? {
        Some(mut reference) => reference.peel_to_id(&references, &objects)?,
        None => {
            let found = objects.lookup_prefix(Prefix::from_hex(name)?, None)?;
            found.ok_or("there is none")?.map_err(|()| "there are several")?
        }
    };
    let mut buffer = Vec::new();
    for _ in 0..back {
        let found = objects.find_commit(&commit, &mut buffer)?;
        commit = found.parents().next().ok_or("it has no such ancestor")?;
    }
    let tree = objects.find_commit(&commit, &mut buffer)?.tree();
    Ok(Commit { digits: commit.to_hex_with_len(COMMIT_DIGITS).to_string(), objects, tree, folder })
}

/// The parts of a repository that are read.
struct Repository {
    objects: Handle,
    references: References,
    /// The root of the working tree, without symbolic links.
    folder: Option<PathBuf>,
}

impl Repository {
    fn around(root: &Path) -> Result<Repository, Box<dyn Error>> {
        let (found, _) = gix_discover::upwards(root)?;
        let (git_folder, folder) = found.into_repository_and_work_tree_directories();
        // A linked worktree has its own HEAD and shares everything else.
        let shared = match gix_discover::path::from_plain_file(&git_folder.join("commondir")) {
            Some(shared) => git_folder.join(shared?),
            None => git_folder.clone(),
        };
        let limits = Options { alloc_limit_bytes: Some(SIZE_LIMIT), ..Options::default() };
        let objects = gix_odb::at_opts(shared.join("objects"), Kind::Sha1, None, limits)?;
        let references = References::for_linked_worktree(git_folder, shared, Kind::Sha1);
        let folder = folder.as_deref().and_then(|folder| folder.canonicalize().ok());
        Ok(Repository { objects, references, folder })
    }
}

/// Returns whether a file in the tree has these checksums, which ignore line endings like git.
fn has_file(
    objects: &Handle,
    tree: ObjectId,
    file: Option<PathBuf>,
    checksums: &[u32],
) -> Result<bool, Box<dyn Error>> {
    let Some(file) = file else { return Ok(false) };
    let (mut buffer, mut entries) = (Vec::new(), Vec::new());
    let tree = objects.find_tree_iter(&tree, &mut buffer)?;
    let Some(entry) = tree.lookup_entry_by_path(objects, &mut entries, file)? else {
        return Ok(false);
    };
    if !entry.mode.is_blob() || objects.header(entry.oid)?.size() > SIZE_LIMIT as u64 {
        return Ok(false);
    }
    let blob = objects.find_blob(&entry.oid, &mut buffer)?;
    Ok(std::str::from_utf8(blob.data).is_ok_and(|text| fingerprint(text) == checksums))
}

/// Returns the path of a file relative to the working tree.
fn inside(folder: Option<&Path>, file: &Path) -> Option<PathBuf> {
    Some(file.canonicalize().ok()?.strip_prefix(folder?).ok()?.to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    /// Runs git in a folder. Returns whether it succeeded.
    pub(crate) fn git(folder: &Path, arguments: &[&str]) -> bool {
        let ran = Command::new("git")
            .current_dir(folder)
            .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"])
            .args(arguments)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .status();
        ran.is_ok_and(|status| status.success())
    }

    /// Creates a repository with `train.py` committed below `project`. Returns `None` if git is not
    /// installed.
    pub(crate) fn repository(text: &str) -> Option<(tempfile::TempDir, PathBuf)> {
        let folder = tempfile::tempdir().expect("a folder");
        let project = folder.path().join("project");
        fs::create_dir(&project).expect("created");
        fs::write(project.join("train.py"), text).expect("written");
        for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "x"]] {
            if !git(folder.path(), arguments) {
                println!("skipped: there is no git to make a repository with");
                return None;
            }
        }
        Some((folder, project))
    }

    #[test]
    fn files_that_ran_are_compared_with_the_commit() {
        let Some((_folder, project)) = repository("a = 1\nb = 2\n") else { return };
        let file = project.join("train.py");
        let clean =
            |text: &str| head(&project, &[(&file, &fingerprint(text))]).map(|head| head.clean);
        assert_eq!(clean("a = 1\nb = 2\n"), Some(true));
        // Line endings do not matter.
        assert_eq!(clean("a = 1\r\nb = 2\r\n"), Some(true));
        assert_eq!(clean("a = 1\nb = 3\n"), Some(false));
        let commit = head(&project, &[]).expect("a commit");
        assert!(commit.commit.len() == COMMIT_DIGITS && !commit.clean, "{commit:?}");
    }

    #[test]
    fn names_are_resolved_to_commits() {
        let Some((folder, project)) = repository("a = 1\n") else { return };
        let commit = |name: &str| Commit::named(&project, name).map(|commit| commit.digits);
        let first = commit("HEAD").expect("a commit");
        fs::write(project.join("train.py"), "a = 2\n").expect("written");
        for arguments in [&["add", "."][..], &["commit", "-q", "-m", "y"], &["tag", "v1"]] {
            assert!(git(folder.path(), arguments));
        }
        let second = commit("HEAD").expect("a commit");
        assert!(first != second && first.len() == COMMIT_DIGITS);
        assert_eq!(commit("HEAD~1").as_ref(), Some(&first));
        assert_eq!(commit("v1~").as_ref(), Some(&first));
        assert_eq!(commit(&format!("{}~", &second[..7])).as_ref(), Some(&first));
        assert_eq!(commit(&second[..7].to_uppercase()), Some(second.clone()));
        assert_eq!(commit("v1"), Some(second));
        for nothing in ["HEAD~2", "HEAD~99999999999", "HEAD~x", "gone", "", "../HEAD", "a b", "~"] {
            assert_eq!(commit(nothing), None, "{nothing}");
        }
        // Trees and blobs have names but are not commits.
        let tree = Commit::named(&project, "HEAD").expect("a commit").tree.to_string();
        assert_eq!(commit(&tree), None);
    }

    #[test]
    fn packed_objects_and_linked_worktrees() {
        let Some((folder, project)) = repository("a = 1\n") else { return };
        let loose = head(&project, &[]);
        let tree = folder.path().join("linked");
        let add = ["worktree", "add", "-q", "--detach", tree.to_str().expect("text")];
        assert!(git(folder.path(), &["gc", "-q"]) && git(folder.path(), &add));
        assert_eq!(head(&project, &[]), loose);
        let linked = tree.join("project");
        let found = head(&linked, &[(&linked.join("train.py"), &fingerprint("a = 1\n"))]);
        let commit = loose.expect("a commit").commit;
        assert_eq!(found, Some(Head { commit, clean: true }));
    }

    #[test]
    fn files_outside_the_commit_are_not_clean() {
        let Some((_folder, project)) = repository("a = 1\n") else { return };
        let new = project.join("new.py");
        fs::write(&new, "a = 1\n").expect("written");
        let gone = project.join("gone.py");
        let outside = Path::new("/");
        for file in [new.as_path(), &gone, outside, &project] {
            let found = head(&project, &[(file, &fingerprint("a = 1\n"))]);
            assert_eq!(found.map(|head| head.clean), Some(false), "{}", file.display());
        }
    }

    #[test]
    fn programs_named_in_the_configuration_do_not_run() {
        let Some((folder, project)) = repository("a = 1\n") else { return };
        let ran = folder.path().join("ran");
        let touch = format!("touch {}", ran.display());
        let configuration = folder.path().join(".git/config");
        let text = fs::read_to_string(&configuration).expect("read");
        let hostile = format!(
            "{text}[core]\n fsmonitor = {touch}\n sshCommand = {touch}\n editor = {touch}\n\
             [filter \"x\"]\n clean = {touch}\n smudge = {touch}\n process = {touch}\n\
             [diff]\n external = {touch}\n[include]\n path = /dev/zero\n"
        );
        fs::write(&configuration, hostile).expect("written");
        fs::write(folder.path().join(".gitattributes"), "*.py filter=x\n").expect("written");
        let file = project.join("train.py");
        let found = head(&project, &[(&file, &fingerprint("a = 1\n"))]);
        assert_eq!(found.map(|head| head.clean), Some(true));
        assert!(!ran.exists());
    }

    #[test]
    fn no_repository_means_no_commit() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(head(folder.path(), &[]), None);
        for broken in ["", "gitdir: /nowhere\n", "gitdir: /dev/zero\n"] {
            fs::write(folder.path().join(".git"), broken).expect("written");
            assert_eq!(head(folder.path(), &[]), None, "{broken:?}");
        }
    }
}
