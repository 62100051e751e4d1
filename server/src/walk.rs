//! Walks a folder as git would list it.

use std::fs;
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};

/// The maximum size of a file with patterns, in bytes.
const PATTERNS_LIMIT: u64 = 1 << 20;

/// Returns a walk of the files that git does not ignore and the folders that are `wanted`.
/// `.gitignore` also applies if there is no repository (yet).
///
/// The crate opens files with patterns without a look at them, and would wait for ever for the
/// writer of a pipe with such a name. So a folder with one is left out. If it is the walk's own
/// folder or above it, no patterns apply.
pub(crate) fn walk(
    root: &Path,
    wanted: impl Fn(&DirEntry) -> bool + Send + Sync + 'static,
) -> WalkBuilder {
    let mut walk = WalkBuilder::new(root);
    walk.require_git(false).follow_links(false).filter_entry(move |entry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        wanted(entry) && (!is_folder || has_readable_patterns(entry.path()))
    });
    let absolute = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    if !absolute.ancestors().all(has_readable_patterns) {
        walk.standard_filters(false).hidden(true);
    }
    walk
}

/// Whether the files of a folder that git reads patterns from are regular and small, if there are
/// any.
fn has_readable_patterns(folder: &Path) -> bool {
    let mut files =
        [".gitignore", ".ignore", ".git/info/exclude"].map(|name| folder.join(name)).to_vec();
    files.extend(common_folder(folder));
    files.iter().all(|file| {
        fs::metadata(file).map_or(true, |found| found.is_file() && found.len() <= PATTERNS_LIMIT)
    })
}

/// The file that a work tree's `.git` leads to: `commondir` has the repository's folder.
fn common_folder(folder: &Path) -> Option<PathBuf> {
    let link = folder.join(".git");
    let is_link = fs::metadata(&link).is_ok_and(|it| it.is_file() && it.len() <= PATTERNS_LIMIT);
    let text = is_link.then(|| fs::read_to_string(&link).ok()).flatten()?;
    let target = text.lines().next()?.strip_prefix("gitdir: ")?;
    Some(folder.join(target).join("commondir"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(root: &Path) -> Vec<String> {
        let mut names: Vec<String> = walk(root, |entry| entry.file_name() != "unwanted")
            .build()
            .flatten()
            .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
            .filter_map(|entry| Some(entry.file_name().to_str()?.to_owned()))
            .collect();
        names.sort();
        names
    }

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("one")).expect("created");
            fs::write(path, text).expect("written");
        }
    }

    #[test]
    fn leaves_out_what_git_ignores_and_what_is_unwanted() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let files = [
            (".gitignore", "b.py"),
            ("a.py", ""),
            ("b.py", ""),
            ("c/c.py", ""),
            ("unwanted/d.py", ""),
        ];
        write(folder.path(), &files);
        assert_eq!(listed(folder.path()), ["a.py", "c.py"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_with_the_name_of_a_file_with_patterns() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let pipe = |path: &str| {
            let path = folder.path().join(path);
            rustix::fs::mknodat(
                rustix::fs::CWD,
                path,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RUSR,
                0,
            )
            .expect("a pipe");
        };
        let files = [
            ("a.py", ""),
            ("b/b.py", ""),
            ("c/.git", "gitdir: ../d"),
            ("c/c.py", ""),
            ("d/d.py", ""),
        ];
        write(folder.path(), &files);
        pipe("b/.gitignore");
        assert_eq!(listed(folder.path()), ["a.py", "c.py", "d.py"]);
        pipe("d/commondir");
        assert_eq!(listed(folder.path()), ["a.py", "d.py"]);
        pipe(".ignore");
        assert_eq!(listed(folder.path()), ["a.py", "d.py"]);
        assert_eq!(listed(&folder.path().join("d")), ["d.py"]);
    }
}
