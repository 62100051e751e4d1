//! Tells when something changed Python files or configurations on the disk, leaving out what git
//! ignores. Folders that git ignores (environments, caches, checkpoints) are not even watched: they
//! can hold more folders than the system lets anyone watch.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;

use ignore::WalkBuilder;
use notify_debouncer_full::notify::{Config, RecommendedWatcher, RecursiveMode};
use notify_debouncer_full::{DebounceEventResult, Debouncer, NoCache, new_debouncer_opt};
use tokio::sync::mpsc;

use crate::config;
use crate::event::Event;

/// Changes within this time are told at once. Editors and formatters write a file several times.
const QUIET: Duration = Duration::from_millis(150);

/// Folders that are watched at once.
const FOLDER_LIMIT: usize = 8192;

/// Orders and news that wait for the watcher's thread.
const QUEUE_LIMIT: usize = 1024;

/// Changed files that are told at once; after a `git checkout` one is as good as a thousand.
const FILE_LIMIT: usize = 256;

/// A thread that watches folders, as long as this lives.
#[derive(Debug)]
pub(crate) struct Watcher {
    orders: Arc<std_mpsc::SyncSender<Order>>,
}

enum Order {
    Watch(PathBuf),
    Unwatch(PathBuf),
    Changed(Vec<PathBuf>),
}

impl Watcher {
    /// Starts the thread, which sends [`Event::FilesChanged`]. Where the system does not let files be
    /// watched, saves in the editor are all there is.
    pub(crate) fn start(events: mpsc::Sender<Event>) -> Option<Watcher> {
        let (orders, received) = std_mpsc::sync_channel(QUEUE_LIMIT);
        let orders = Arc::new(orders);
        // What the thread owns must not keep it waiting for orders.
        let news = Arc::downgrade(&orders);
        let told = move |result: DebounceEventResult| {
            let changes = match result {
                Ok(changes) => changes,
                Err(errors) => {
                    return errors
                        .iter()
                        .for_each(|error| tracing::warn!("watching files: {error}"));
                }
            };
            let accesses = |kind: notify_debouncer_full::notify::EventKind| kind.is_access();
            let changes = changes.into_iter().filter(|change| !accesses(change.kind));
            let paths: Vec<PathBuf> = changes.flat_map(|change| change.event.paths).collect();
            let Some(news) = news.upgrade().filter(|_| !paths.is_empty()) else { return };
            if news.try_send(Order::Changed(paths)).is_err() {
                tracing::warn!("files change too fast to keep up");
            }
        };
        let config = Config::default();
        let debouncer =
            new_debouncer_opt::<_, RecommendedWatcher, _>(QUIET, None, told, NoCache, config)
                .inspect_err(|error| tracing::warn!("files cannot be watched: {error}"))
                .ok()?;
        let mut thread = Thread { debouncer, watched: BTreeSet::new(), complained: false };
        let started = std::thread::Builder::new()
            .name("watcher".to_owned())
            .spawn(move || received.iter().for_each(|order| thread.obey(order, &events)));
        started.inspect_err(|error| tracing::warn!("files cannot be watched: {error}")).ok()?;
        Some(Watcher { orders })
    }

    /// Watches a folder from now on.
    pub(crate) fn watch(&self, root: &Path) {
        self.order(Order::Watch(root.to_owned()));
    }

    /// Does not watch a folder any more.
    pub(crate) fn unwatch(&self, root: &Path) {
        self.order(Order::Unwatch(root.to_owned()));
    }

    fn order(&self, order: Order) {
        if self.orders.try_send(order).is_err() {
            tracing::warn!("the file watcher cannot keep up");
        }
    }
}

struct Thread {
    debouncer: Debouncer<RecommendedWatcher, NoCache>,
    watched: BTreeSet<PathBuf>,
    complained: bool,
}

impl Thread {
    fn obey(&mut self, order: Order, events: &mpsc::Sender<Event>) {
        match order {
            Order::Watch(root) => {
                self.watch_below(&root);
            }
            Order::Unwatch(root) => {
                let gone: Vec<PathBuf> = self
                    .watched
                    .iter()
                    .filter(|folder| folder.starts_with(&root))
                    .cloned()
                    .collect();
                for folder in gone {
                    self.watched.remove(&folder);
                    // A folder that was deleted is not watched by the system any more.
                    let _ = self.debouncer.unwatch(&folder);
                }
            }
            Order::Changed(paths) => {
                let mut files = BTreeSet::new();
                for path in paths {
                    if path.is_dir() {
                        if is_listed(&path) {
                            files.extend(self.watch_below(&path));
                        }
                    } else if is_ours(&path) && files.len() < FILE_LIMIT && is_listed(&path) {
                        files.insert(path);
                    }
                }
                if !files.is_empty() {
                    // Where the event loop is over, so is this thread soon.
                    let _ = events.blocking_send(Event::FilesChanged(files.into_iter().collect()));
                }
            }
        }
    }

    /// Watches a folder and those in it that git does not ignore; gives the files of ours that are
    /// in folders which were not watched before.
    fn watch_below(&mut self, root: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in walk(root).build().flatten() {
            let path = entry.path();
            if entry.file_type().is_some_and(|kind| kind.is_dir()) {
                self.watch_one(path);
            } else if found.len() < FILE_LIMIT && is_ours(path) {
                found.push(path.to_owned());
            }
        }
        found
    }

    fn watch_one(&mut self, folder: &Path) {
        if self.watched.len() >= FOLDER_LIMIT || !self.watched.insert(folder.to_owned()) {
            return;
        }
        if let Err(error) = self.debouncer.watch(folder, RecursiveMode::NonRecursive)
            && !std::mem::replace(&mut self.complained, true)
        {
            tracing::warn!("{} and possibly others cannot be watched: {error}", folder.display());
        }
    }
}

/// Whether a change of this file can be a reason to profile.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == config::FILE_NAME
        || name == config::PYPROJECT
        || (path.extension().is_some_and(|extension| extension == "py") && !name.starts_with('.'))
}

fn walk(root: &Path) -> WalkBuilder {
    let mut walk = WalkBuilder::new(root);
    // `.gitignore` counts as well where there is no repository (yet).
    walk.require_git(false).follow_links(false);
    walk
}

/// Whether a path exists and git does not ignore it.
fn is_listed(path: &Path) -> bool {
    let Some(parent) = path.parent() else { return false };
    let mut siblings = walk(parent);
    siblings.max_depth(Some(1)).build().flatten().any(|entry| entry.path() == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Waits for `expected` among the files that are told, and gives what else was told before it.
    async fn wait_for(events: &mut mpsc::Receiver<Event>, expected: &Path) -> Vec<PathBuf> {
        let mut others = Vec::new();
        loop {
            let Some(Event::FilesChanged(files)) = events.recv().await else { continue };
            if files.iter().any(|file| file == expected) {
                return others;
            }
            others.extend(files);
        }
    }

    #[tokio::test]
    async fn nothing_is_watched_once_nobody_wants_it() {
        let (sender, mut events) = mpsc::channel(1);
        drop(Watcher::start(sender).expect("files can be watched here"));
        // The thread has ended where the last sender of events is gone.
        assert!(events.recv().await.is_none());
    }

    #[tokio::test]
    async fn tells_of_python_files_that_git_does_not_ignore() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = crate::documents::real_path(folder.path());
        fs::write(root.join(".gitignore"), "ignored.py\nbuild/\n").expect("written");
        fs::create_dir_all(root.join("build/inner")).expect("made");
        fs::create_dir_all(root.join(".venv/lib")).expect("made");
        let (sender, mut events) = mpsc::channel(64);
        let watcher = Watcher::start(sender).expect("files can be watched here");
        watcher.watch(&root);
        // The order is behind the first one, so when it is obeyed the folder is watched.
        loop {
            let file = root.join("ready.py");
            fs::write(&file, "").expect("written");
            let ready = wait_for(&mut events, &file);
            if tokio::time::timeout(Duration::from_secs(1), ready).await.is_ok() {
                break;
            }
        }
        for quiet in ["ignored.py", "build/b.py", "build/inner/c.py", ".venv/lib/d.py", "notes.txt"]
        {
            fs::write(root.join(quiet), "x").expect("written");
        }
        fs::create_dir(root.join("new")).expect("made");
        fs::write(root.join("new/e.py"), "x").expect("written");
        let mut others = wait_for(&mut events, &root.join("new/e.py")).await;
        others.retain(|file| !file.ends_with("ready.py"));
        assert_eq!(others, Vec::<PathBuf>::new());
    }
}
