//! Keeps the client's diagnostics in sync with the state: failed runs, findings, and costs if the
//! client has no better way to show them.
//!
//! Placing diagnostics reads files and computes costs, so it happens off the event loop. The result
//! comes back as an event, and is sent if it differs from what the client has.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ridgeline_analysis::present::failure::{FailureFrame, FailureReport};
use serde_json::Value;

use crate::debounce::Wake;
use crate::event::{Event, WorkspaceEvent};
use crate::lsp::client::Importance;
use crate::refresh::Refreshable;
use crate::requests::diagnostic;
use crate::scheduler::WorkspaceId;
use crate::state::GlobalState;
use crate::text_mark::TextMark;

/// The delay after an edit, so that diagnostics do not flicker while the user types.
const PAUSE: Duration = Duration::from_millis(200);

/// A failed run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    /// The project's root, which the frames' paths are relative to.
    pub root: PathBuf,
    /// `exception`, `syntax`, `exit` or `memory`.
    pub kind: String,
    pub report: FailureReport,
}

impl Failure {
    /// Returns the path of a frame's file.
    pub(crate) fn path(&self, frame: &FailureFrame) -> PathBuf {
        self.root.join(&frame.path)
    }

    /// Returns the file in which the failure is shown.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.report.at.as_ref().map(|frame| self.path(frame))
    }
}

/// The diagnostics of one file, in the form the client gets.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    /// The file's URI, as the client writes it if the file is open.
    pub uri: String,
    /// Built by the LSP layer, and opaque here.
    pub diagnostics: Value,
}

/// Where everything is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placements {
    /// Diagnostics by file.
    pub files: Vec<Publication>,
    /// Messages without a file: it was renamed or deleted during the run.
    pub homeless: Vec<String>,
}

/// What the client shows: a checksum of the diagnostics of each file.
#[derive(Debug, Default)]
pub(crate) struct Published(HashMap<String, TextMark>);

impl Published {
    /// Replaces the diagnostics, and returns what to send to the client.
    fn replace(&mut self, files: Vec<Publication>) -> Vec<Publication> {
        let marks = files
            .iter()
            .map(|file| (file.uri.clone(), TextMark::of(&file.diagnostics.to_string())));
        let before = std::mem::replace(&mut self.0, marks.collect());
        let removed = before.keys().filter(|uri| !self.0.contains_key(*uri));
        let mut changed: Vec<Publication> = removed.cloned().map(Publication::none).collect();
        changed.sort_by(|a, b| a.uri.cmp(&b.uri));
        changed.extend(
            files.into_iter().filter(|file| before.get(&file.uri) != self.0.get(&file.uri)),
        );
        changed
    }
}

impl Publication {
    /// Clears the diagnostics of a file.
    fn none(uri: String) -> Publication {
        Publication { uri, diagnostics: Value::Array(Vec::new()) }
    }
}

impl GlobalState {
    /// Updates the diagnostics of a workspace, which may have changed.
    pub(crate) fn show_diagnostics(&mut self, id: WorkspaceId) {
        self.refresh.mark(Refreshable::Diagnostics);
        if self.client.pulls_diagnostics {
            return;
        }
        let number = self.next_number();
        let workspace = &mut self.workspaces[id];
        workspace.placement = number;
        let report = diagnostic::report_of(self, id);
        let events = self.events.clone();
        tokio::spawn(async move {
            let placed = tokio::task::spawn_blocking(move || report.place()).await;
            let placed = placed.unwrap_or_default();
            // If the event loop has ended, nobody needs it.
            let _ = events
                .send(Event::Workspace(id, WorkspaceEvent::DiagnosticsPlaced(number, placed)))
                .await;
        });
    }

    /// Updates diagnostics after a pause: the text has changed, so findings or costs may have moved
    /// or become stale.
    pub(crate) fn show_diagnostics_soon(&mut self, file: &Path) {
        let Some(id) = self.workspaces.around(file) else { return };
        let has_findings = self.has_findings(id);
        let shows_costs = self.settings.remarks && !self.workspaces[id].measured.is_empty();
        if !has_findings && !shows_costs {
            return;
        }
        let wake = Wake { events: &self.events, id, event: || WorkspaceEvent::DiagnosticsDue };
        self.workspaces[id].placement_delay.start(PAUSE, &wake);
    }

    /// Updates diagnostics if the pause after an edit is over.
    pub(crate) fn diagnostics_due(&mut self, id: WorkspaceId) {
        let wake = Wake { events: &self.events, id, event: || WorkspaceEvent::DiagnosticsDue };
        if self.workspaces[id].placement_delay.is_over(&wake) {
            self.show_diagnostics(id);
        }
    }

    /// Sends the placed diagnostics, unless a newer placement is in progress.
    pub(crate) fn diagnostics_placed(
        &mut self,
        id: WorkspaceId,
        number: u64,
        placements: Placements,
    ) {
        let to_client = self.to_client.clone();
        let workspace = &mut self.workspaces[id];
        if workspace.placement != number {
            return;
        }
        for file in workspace.published.replace(placements.files) {
            to_client.publish(&file.uri, &file.diagnostics);
        }
        for message in placements.homeless {
            self.show_message_once(id, Importance::Error, &message, false);
        }
    }

    /// Withdraws all diagnostics of a workspace that is being removed.
    pub(crate) fn withdraw_diagnostics(&mut self, id: WorkspaceId) {
        let to_client = self.to_client.clone();
        let workspace = &mut self.workspaces[id];
        workspace.failure = None;
        for file in workspace.published.replace(Vec::new()) {
            to_client.publish(&file.uri, &file.diagnostics);
        }
        self.refresh.mark(Refreshable::Diagnostics);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_client_is_sent_what_differs_from_what_it_shows() {
        let file = |uri: &str, diagnostics: Value| Publication { uri: uri.to_owned(), diagnostics };
        let sent = |published: &mut Published, files: Vec<Publication>| -> Vec<(String, Value)> {
            let sent = published.replace(files).into_iter();
            sent.map(|file| (file.uri, file.diagnostics)).collect()
        };
        let mut published = Published::default();
        let both = || vec![file("a", json!(["x"])), file("b", json!(["y"]))];
        assert_eq!(sent(&mut published, both()).len(), 2);
        assert_eq!(sent(&mut published, both()), []);
        let changed = sent(&mut published, vec![file("a", json!(["z"]))]);
        assert_eq!(changed, [("b".to_owned(), json!([])), ("a".to_owned(), json!(["z"]))]);
        assert_eq!(sent(&mut published, Vec::new()), [("a".to_owned(), json!([]))]);
        assert_eq!(sent(&mut published, Vec::new()), []);
    }
}
