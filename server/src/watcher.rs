//! Watches Python files and configurations on disk, except those that git ignores. Folders that git
//! ignores (environments, caches, checkpoints) are not watched: they may have more subfolders than
//! the system can watch.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;

use notify_debouncer_full::notify::{Config, RecommendedWatcher, RecursiveMode};
use notify_debouncer_full::{DebounceEventResult, Debouncer, NoCache, new_debouncer_opt};
use tokio::sync::mpsc;

use crate::config;
use crate::event::Event;
use crate::walk::{Limits, is_folder, visit_nearest_first, walk};

/// Changes within this time are reported together. Editors and formatters write a file several
/// times.
const QUIET: Duration = Duration::from_millis(150);

/// The maximum number of watched folders.
const FOLDER_LIMIT: usize = 8192;

/// The limits of the search for folders. Data sets come last in it.
const LIMITS: Limits = Limits { entries: 1_000_000, depth: 64, time: Duration::from_secs(30) };

/// The maximum number of commands and changes that wait for the watcher's thread.
const QUEUE_LIMIT: usize = 1024;

/// The maximum number of changed files reported together. After a `git checkout`, one triggers the
/// same run as a thousand.
const FILE_LIMIT: usize = 256;

/// Watches folders in a thread until it is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    commands: Arc<std_mpsc::SyncSender<Command>>,
}

enum Command {
    Watch(PathBuf),
    Unwatch(PathBuf),
    Changed(Vec<PathBuf>),
}

impl Watcher {
    /// Starts the thread, which sends [`Event::FilesChanged`]. Returns `None` if the system cannot
    /// watch files. Then only saves in the editor count.
    pub(crate) fn start(events: mpsc::Sender<Event>) -> Option<Watcher> {
        let (commands, received) = std_mpsc::sync_channel(QUEUE_LIMIT);
        let commands = Arc::new(commands);
        // The thread owns the debouncer. A strong reference in it would keep the thread waiting for
        // commands forever.
        let sender = Arc::downgrade(&commands);
        let on_changes = move |result: DebounceEventResult| {
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
            let Some(sender) = sender.upgrade().filter(|_| !paths.is_empty()) else { return };
            if sender.try_send(Command::Changed(paths)).is_err() {
                tracing::warn!("files change too fast to keep up");
            }
        };
        let config = Config::default();
        let debouncer =
            new_debouncer_opt::<_, RecommendedWatcher, _>(QUIET, None, on_changes, NoCache, config)
                .inspect_err(|error| tracing::warn!("files cannot be watched: {error}"))
                .ok()?;
        let mut thread = Thread { debouncer, watched: BTreeSet::new(), complained: false };
        let started = std::thread::Builder::new()
            .name("watcher".to_owned())
            .spawn(move || received.iter().for_each(|command| thread.handle(command, &events)));
        started.inspect_err(|error| tracing::warn!("files cannot be watched: {error}")).ok()?;
        Some(Watcher { commands })
    }

    /// Starts watching a folder.
    pub(crate) fn watch(&self, root: &Path) {
        self.send(Command::Watch(root.to_owned()));
    }

    /// Stops watching a folder.
    pub(crate) fn unwatch(&self, root: &Path) {
        self.send(Command::Unwatch(root.to_owned()));
    }

    fn send(&self, command: Command) {
        if self.commands.try_send(command).is_err() {
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
    fn handle(&mut self, command: Command, events: &mpsc::Sender<Event>) {
        match command {
            Command::Watch(root) => {
                self.watch_below(&root);
            }
            Command::Unwatch(root) => {
                let removed: Vec<PathBuf> = self
                    .watched
                    .iter()
                    .filter(|folder| folder.starts_with(&root))
                    .cloned()
                    .collect();
                for folder in removed {
                    self.watched.remove(&folder);
                    // The system no longer watches a folder that was deleted.
                    let _ = self.debouncer.unwatch(&folder);
                }
            }
            Command::Changed(paths) => {
                let mut files = BTreeSet::new();
                for path in paths {
                    if path.is_dir() {
                        if is_listed(&path) {
                            files.extend(self.watch_below(&path));
                        }
                    } else if is_relevant(&path) && files.len() < FILE_LIMIT && is_listed(&path) {
                        files.insert(path);
                    }
                }
                if !files.is_empty() {
                    // If the event loop has ended, this thread ends soon, too.
                    let _ = events.blocking_send(Event::FilesChanged(files.into_iter().collect()));
                }
            }
        }
    }

    /// Watches a folder and its subfolders that git does not ignore. Returns the relevant files in
    /// all of them.
    fn watch_below(&mut self, root: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        visit_nearest_first(
            root,
            |_| true,
            LIMITS,
            |entry| {
                let path = entry.path();
                if is_folder(&entry) {
                    self.watch_one(path);
                } else if found.len() < FILE_LIMIT && is_relevant(path) {
                    found.push(path.to_owned());
                }
                if self.watched.len() < FOLDER_LIMIT {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            },
        );
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

/// Returns whether a change of this file may trigger a run.
fn is_relevant(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == config::FILE_NAME
        || name == config::PYPROJECT
        || (path.extension().is_some_and(|extension| extension == "py") && !name.starts_with('.'))
}

/// Returns whether a path exists and git does not ignore it.
fn is_listed(path: &Path) -> bool {
    let Some(parent) = path.parent() else { return false };
    let mut siblings = walk(parent, |_| true);
    siblings.max_depth(Some(1)).build().flatten().any(|entry| entry.path() == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Waits until `expected` is reported, and returns the other files reported before it.
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
    async fn the_thread_ends_when_the_watcher_is_dropped() {
        let (sender, mut events) = mpsc::channel(1);
        drop(Watcher::start(sender).expect("files can be watched here"));
        // The thread has ended when the last sender of events is dropped.
        assert!(events.recv().await.is_none());
    }

    #[tokio::test]
    async fn reports_python_files_that_git_does_not_ignore() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = crate::documents::real_path(folder.path());
        fs::write(root.join(".gitignore"), "ignored.py\nbuild/\n").expect("written");
        fs::create_dir_all(root.join("build/inner")).expect("created");
        fs::create_dir_all(root.join(".venv/lib")).expect("created");
        let (sender, mut events) = mpsc::channel(64);
        let watcher = Watcher::start(sender).expect("files can be watched here");
        watcher.watch(&root);
        // The folder is watched once the command is handled, so write until the change is reported.
        loop {
            let file = root.join("ready.py");
            fs::write(&file, "").expect("written");
            let ready = wait_for(&mut events, &file);
            if tokio::time::timeout(Duration::from_secs(1), ready).await.is_ok() {
                break;
            }
        }
        for ignored in
            ["ignored.py", "build/b.py", "build/inner/c.py", ".venv/lib/d.py", "notes.txt"]
        {
            fs::write(root.join(ignored), "x").expect("written");
        }
        fs::create_dir(root.join("new")).expect("created");
        fs::write(root.join("new/e.py"), "x").expect("written");
        let mut others = wait_for(&mut events, &root.join("new/e.py")).await;
        others.retain(|file| !file.ends_with("ready.py"));
        assert_eq!(others, Vec::<PathBuf>::new());
    }
}
