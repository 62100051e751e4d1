//! Finds out which of the files that changed on disk are new to the server, and requests their runs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::documents::DocumentId;
use crate::event::{Event, FileChange};
use crate::scheduler::{Reason, Slot, WorkspaceId};
use crate::state::{GlobalState, Saved};

/// The maximum number of changed files that wait to be checked.
const CHANGES_LIMIT: usize = 1024;

/// An open document whose file has changed.
struct ChangedDocument {
    id: DocumentId,
    now: Saved,
    before: Option<Saved>,
}

impl ChangedDocument {
    /// Returns the change if the file's content is new to the server. Reads the file.
    fn change(self, file: PathBuf) -> Option<FileChange> {
        if self.now.is_on_disk(&file) {
            let is_known = self.before.is_some_and(|before| before.edition == self.now.edition);
            return (!is_known).then_some(FileChange { file, saved: Some((self.id, self.now)) });
        }
        // A user who keeps typing after a save is ahead of the file event.
        let is_known = self.before.is_some_and(|before| before.is_on_disk(&file));
        (!is_known).then_some(FileChange { file, saved: None })
    }
}

impl GlobalState {
    /// Handles written files. These include the editor's own saves, and are the only sign of them
    /// if a client sends no `didSave`.
    pub(crate) fn files_changed(&mut self, files: Vec<PathBuf>) {
        // An estimate may depend on any of them.
        for file in &files {
            if let Some(id) = self.workspaces.around(file) {
                self.scheduler.forget_result(id, Slot::Estimate);
            }
        }
        if !self.settings.watch_files {
            return;
        }
        // After a `git checkout`, one changed file triggers the same run as a thousand.
        let room = CHANGES_LIMIT.saturating_sub(self.changed.len());
        self.changed.extend(files.into_iter().take(room));
        self.check_changes();
    }

    /// Finds the changed files whose content differs from what the client saved, on a worker
    /// thread. There is one worker at a time: later changes wait for it.
    fn check_changes(&mut self) {
        if self.is_checking_changes || self.changed.is_empty() {
            return;
        }
        self.is_checking_changes = true;
        let open: HashMap<&Path, (&DocumentId, Saved)> = self
            .documents
            .iter()
            .filter_map(|(id, document)| {
                Some((document.real.as_deref()?, (id, Saved::of(document, true))))
            })
            .collect();
        let changes = std::mem::take(&mut self.changed).into_iter().map(|file| {
            let known = open.get(file.as_path()).map(|(id, now)| ChangedDocument {
                id: (*id).clone(),
                now: *now,
                before: self.saved.get(id).copied(),
            });
            (file, known)
        });
        let (changes, events): (Vec<_>, _) = (changes.collect(), self.events.clone());
        tokio::spawn(async move {
            let checked = tokio::task::spawn_blocking(move || {
                let new = changes.into_iter().filter_map(|(file, known)| match known {
                    None => Some(FileChange { file, saved: None }),
                    Some(known) => known.change(file),
                });
                new.collect()
            });
            // The panic hook has logged it if the worker panicked.
            let changes: Vec<FileChange> = checked.await.unwrap_or_default();
            // If the event loop has ended, nobody needs the result.
            let _ = events.send(Event::ChangesRead(changes)).await;
        });
    }

    /// Requests runs for the changed files whose content is new.
    pub(crate) fn changes_read(&mut self, changes: Vec<FileChange>) {
        self.is_checking_changes = false;
        let mut wanted: HashMap<WorkspaceId, Reason> = HashMap::new();
        for FileChange { file, saved } in changes {
            let Some(id) = self.workspaces.around(&file) else { continue };
            let reason = match saved {
                None => Reason::ChangedOutside(file),
                Some((document, now)) => {
                    // The client may have sent `didSave` in the meantime.
                    let before = self.saved.get(&document);
                    if before.is_some_and(|before| before.edition == now.edition) {
                        continue;
                    }
                    if self.documents.get(&document).is_some() {
                        self.saved.insert(document, now);
                    }
                    Reason::Saved(file)
                }
            };
            wanted.insert(id, reason);
        }
        for (id, reason) in wanted {
            self.request_run(id, reason);
        }
        self.check_changes();
    }
}
