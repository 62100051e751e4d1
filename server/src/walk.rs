//! Walks a folder as git would list it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ignore::{DirEntry, WalkBuilder};

/// The maximum size of a file with patterns, in bytes.
const PATTERNS_LIMIT: u64 = 1 << 20;

/// The limits of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum number of files and folders, those that are not wanted included.
    pub entries: usize,
    /// The number of folders below the root.
    pub depth: usize,
    pub time: Duration,
}

/// The usual names of folders with data sets and with the results of runs.
const DATA_FOLDERS: [&str; 14] = [
    "artifacts",
    "checkpoints",
    "data",
    "dataset",
    "datasets",
    "images",
    "lightning_logs",
    "logs",
    "mlruns",
    "output",
    "outputs",
    "results",
    "runs",
    "wandb",
];

/// Visits the files and folders of [`walk`], those nearest to the root first, and in each folder the
/// data last: a data set may have a million files, which must not use up the limits before the
/// programs beside it were seen. Returns whether everything was visited, down to the depth.
pub(crate) fn visit_nearest_first(
    root: &Path,
    wanted: impl Fn(&DirEntry) -> bool + Clone + Send + Sync + 'static,
    limits: Limits,
    visit: impl FnMut(DirEntry) -> ControlFlow<()>,
) -> bool {
    nearest_first(root, |filter| walk(root, filter), wanted, limits, visit)
}

/// Like [`visit_nearest_first`], with the files that git ignores.
pub(crate) fn visit_all_nearest_first(
    root: &Path,
    wanted: impl Fn(&DirEntry) -> bool + Clone + Send + Sync + 'static,
    limits: Limits,
    visit: impl FnMut(DirEntry) -> ControlFlow<()>,
) -> bool {
    let walk = |filter: Filter| {
        let mut walk = WalkBuilder::new(root);
        walk.standard_filters(false).hidden(true).filter_entry(filter);
        walk
    };
    nearest_first(root, walk, wanted, limits, visit)
}

type Filter = Box<dyn Fn(&DirEntry) -> bool + Send + Sync>;

fn nearest_first(
    root: &Path,
    walk: impl Fn(Filter) -> WalkBuilder,
    wanted: impl Fn(&DirEntry) -> bool + Clone + Send + Sync + 'static,
    limits: Limits,
    mut visit: impl FnMut(DirEntry) -> ControlFlow<()>,
) -> bool {
    let began = Instant::now();
    let seen = Arc::new(AtomicUsize::new(0));
    let is_over = {
        let seen = Arc::clone(&seen);
        move || seen.load(Ordering::Relaxed) > limits.entries || began.elapsed() > limits.time
    };
    // The crate walks depth first, so each pass goes one folder deeper. It enters only folders that
    // lead to those of the last pass.
    let mut leading: Arc<HashSet<PathBuf>> = Arc::default();
    for depth in 1..=limits.depth {
        let filter = {
            let (seen, is_over) = (Arc::clone(&seen), is_over.clone());
            let (wanted, leading) = (wanted.clone(), Arc::clone(&leading));
            move |entry: &DirEntry| {
                seen.fetch_add(1, Ordering::Relaxed);
                let is_known = entry.depth() < depth;
                !is_over() && if is_known { leading.contains(entry.path()) } else { wanted(entry) }
            }
        };
        let mut walk = walk(Box::new(filter));
        walk.max_depth(Some(depth))
            .sort_by_file_name(|one, other| (is_data(one), one).cmp(&(is_data(other), other)));
        let mut deepest = Vec::new();
        for entry in walk.build().flatten() {
            if entry.depth() < depth && depth > 1 {
                continue;
            }
            if entry.depth() == depth && is_folder(&entry) {
                deepest.push(entry.path().to_owned());
            }
            if visit(entry).is_break() {
                return false;
            }
        }
        if is_over() {
            return false;
        }
        if deepest.is_empty() {
            return true;
        }
        let to_root = |folder: &'_ PathBuf| -> Vec<PathBuf> {
            let above = folder.ancestors().take_while(|above| *above != root);
            above.map(Path::to_owned).collect()
        };
        leading = Arc::new(deepest.iter().flat_map(to_root).collect());
    }
    true
}

fn is_data(name: &OsStr) -> bool {
    DATA_FOLDERS.iter().any(|folder| name.eq_ignore_ascii_case(folder))
}

pub(crate) fn is_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir())
}

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
        wanted(entry) && (!is_folder(entry) || has_readable_patterns(entry.path()))
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

    /// The names that a visit with a limit of entries sees, and whether it saw all.
    fn visited(root: &Path, entries: usize) -> (Vec<String>, bool) {
        let limits = Limits { entries, depth: 12, time: Duration::from_secs(60) };
        let mut names = Vec::new();
        let all = visit_nearest_first(
            root,
            |entry| entry.file_name() != "unwanted",
            limits,
            |entry| {
                if !is_folder(&entry) {
                    names.push(entry.file_name().to_string_lossy().into_owned());
                }
                ControlFlow::Continue(())
            },
        );
        (names, all)
    }

    #[test]
    fn data_does_not_hide_the_programs_beside_it() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let mut files = vec![
            ("train.py".to_owned(), ""),
            ("src/package/model.py".to_owned(), ""),
            ("src/package/deep/deeper/layer.py".to_owned(), ""),
            ("unwanted/a.py".to_owned(), ""),
            (".gitignore".to_owned(), "ignored.py"),
            ("src/ignored.py".to_owned(), ""),
        ];
        for image in 0..200 {
            files.push((format!("Data/train/{}/{image}.png", image % 7), ""));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        write(folder.path(), &files);
        let (all, is_all) = visited(folder.path(), 1_000);
        assert!(is_all);
        assert_eq!(all.len(), 203);
        assert_eq!(all[..2], ["train.py", "model.py"]);
        assert_eq!(all.iter().filter(|name| name.ends_with(".py")).count(), 3);
        let (some, is_all) = visited(folder.path(), 100);
        assert!(!is_all && some.len() < 100, "{some:?}");
        assert_eq!(some[..2], ["train.py", "model.py"]);
        // Every file and folder is visited once.
        let plain = walk(folder.path(), |entry| entry.file_name() != "unwanted").build().count();
        let mut count = 0;
        let limits = Limits { entries: 1_000, depth: 12, time: Duration::from_secs(60) };
        visit_nearest_first(
            folder.path(),
            |entry| entry.file_name() != "unwanted",
            limits,
            |_| {
                count += 1;
                ControlFlow::Continue(())
            },
        );
        assert_eq!(count, plain);
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
