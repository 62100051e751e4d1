//! The files of a project that a search for programs reads.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ignore::DirEntry;

use super::commands::Kind;
use super::{MAX_COMMAND_DEPTH, is_python};
use crate::notebook::is_notebook;
use crate::walk::{self, Limits};

/// The limits of the walk. Programs are near the root, so a walk that reaches a limit has seen them.
const LIMITS: Limits = Limits { entries: 200_000, depth: 12, time: Duration::from_secs(3) };
/// Folders with third-party code, in addition to those that git ignores.
const FOREIGN_FOLDERS: [&str; 6] =
    ["site-packages", "node_modules", "__pycache__", "venv", "env", "build"];
/// A walk that takes longer than this is not repeated at once.
const LONG: Duration = Duration::from_millis(200);
/// How long the result of a long walk is valid, as a multiple of its duration. One save needs it
/// several times, and in a project with a large data set it takes seconds.
const VALIDITY: u32 = 5;

/// The result of a walk. Paths are relative to the root.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Python files and notebooks with their size in bytes, those nearest to the root first.
    pub programs: Vec<(PathBuf, u64)>,
    /// Files that may have commands.
    pub with_commands: Vec<(PathBuf, Kind)>,
    /// Folders below the root with a license of their own: copies of other projects.
    pub copies: BTreeSet<PathBuf>,
    /// Whether the walk reached a limit.
    pub is_cut_short: bool,
}

/// The last walk, if it was long.
#[derive(Debug, Default)]
pub(super) struct Listings(Option<(PathBuf, Instant, Arc<Listing>)>);

impl Listings {
    /// Walks a project, unless that was done just before.
    pub(super) fn of(&mut self, root: &Path) -> Arc<Listing> {
        let began = Instant::now();
        if let Some((known, until, listing)) = &self.0
            && known == root
            && began < *until
        {
            return Arc::clone(listing);
        }
        let listing = Arc::new(list(root));
        let took = began.elapsed();
        self.0 = (took > LONG).then(|| {
            let until = Instant::now() + took * VALIDITY;
            (root.to_owned(), until, Arc::clone(&listing))
        });
        listing
    }
}

fn list(root: &Path) -> Listing {
    let mut listing = Listing::default();
    let wanted = |entry: &DirEntry| !is_foreign(entry);
    let is_complete = walk::visit_nearest_first(root, wanted, LIMITS, |entry| {
        if let Ok(path) = entry.path().strip_prefix(root) {
            listing.add(path, &entry);
        }
        ControlFlow::Continue(())
    });
    listing.is_cut_short = !is_complete;
    listing
}

impl Listing {
    fn add(&mut self, path: &Path, entry: &DirEntry) {
        if entry.depth() > 1 && is_license(path) {
            self.copies.extend(path.parent().map(Path::to_owned));
        }
        if entry.depth() <= MAX_COMMAND_DEPTH
            && let Some(kind) = Kind::of(entry.path())
        {
            self.with_commands.push((path.to_owned(), kind));
        }
        let is_program = is_python(path) || is_notebook(path);
        if is_program && entry.file_type().is_some_and(|kind| kind.is_file()) {
            let size = entry.metadata().map_or(0, |metadata| metadata.len());
            self.programs.push((path.to_owned(), size));
        }
    }
}

fn is_license(path: &Path) -> bool {
    // Not `license.py`.
    let extension = path.extension().map(|it| it.to_string_lossy().to_lowercase());
    let is_text = extension.is_none_or(|it| matches!(it.as_str(), "txt" | "md" | "rst"));
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    is_text && matches!(stem.as_str(), "license" | "licence" | "copying")
}

fn is_foreign(entry: &DirEntry) -> bool {
    FOREIGN_FOLDERS.iter().any(|foreign| entry.file_name() == *foreign)
        || walk::is_folder(entry) && entry.path().join("pyvenv.cfg").is_file()
}
