//! Keeps the diagnostics that the client shows equal to what is known: a failing run, findings, and
//! remarks on costs where the client has no better way to learn of them.
//!
//! Placing them reads files and works costs out, so it happens off the event loop. What is placed comes
//! back as an event and is sent where it differs from what the client has.

use std::path::Path;
use std::time::Duration;

use crate::event::Event;
use crate::lsp::client::Importance;
use crate::refresh::Refreshable;
use crate::requests::diagnostic::{self, Placements};
use crate::state::GlobalState;

/// After an edit: somebody who types is not to be flickered at.
const PAUSE: Duration = Duration::from_millis(200);

impl GlobalState {
    /// Diagnostics of a workspace may have changed.
    pub fn show_diagnostics(&mut self, root: &Path) {
        self.refresh.mark(Refreshable::Diagnostics);
        if self.client.pulls_diagnostics {
            return;
        }
        let number = self.next_number();
        let Some(workspace) = self.workspace(root) else { return };
        workspace.placing = number;
        let report = diagnostic::report_of(self, root);
        let (events, root) = (self.events.clone(), root.to_owned());
        tokio::spawn(async move {
            let placed = tokio::task::spawn_blocking(move || report.place()).await;
            let placed = placed.unwrap_or_default();
            // Where the event loop is over, nobody wants it.
            let _ = events.send(Event::DiagnosticsPlaced(root, number, placed)).await;
        });
    }

    /// The text of a document has changed, and findings or remarks in it may have moved or faded.
    pub fn show_remarks_soon(&mut self, file: &Path) {
        let Some(root) = self.root_of(file) else { return };
        let is_shown = self.has_findings(&root);
        let is_remarked = self.settings.remarks
            && self.workspace(&root).is_some_and(|workspace| !workspace.measured.is_empty());
        if !is_shown && !is_remarked {
            return;
        }
        let events = self.events.clone();
        let Some(workspace) = self.workspace(&root) else { return };
        if workspace.placing_soon {
            return;
        }
        workspace.placing_soon = true;
        tokio::spawn(async move {
            tokio::time::sleep(PAUSE).await;
            let _ = events.send(Event::DiagnosticsDue(root)).await;
        });
    }

    /// The pause after an edit is over.
    pub fn diagnostics_due(&mut self, root: &Path) {
        if let Some(workspace) = self.workspace(root) {
            workspace.placing_soon = false;
        }
        self.show_diagnostics(root);
    }

    /// Sends what was placed, unless something newer is being placed.
    pub fn diagnostics_placed(&mut self, root: &Path, number: u64, placements: Placements) {
        let to_client = self.to_client.clone();
        let Some(workspace) = self.workspace(root) else { return };
        if workspace.placing != number {
            return;
        }
        let before = std::mem::replace(&mut workspace.published, placements.placed);
        let now = &workspace.published;
        for gone in before.iter().filter(|old| now.iter().all(|new| new.uri != old.uri)) {
            to_client.publish(&gone.uri, &[]);
        }
        for placed in now.iter().filter(|new| !before.contains(new)) {
            to_client.publish(&placed.uri, &placed.diagnostics);
        }
        for message in placements.homeless {
            self.say_once(root, Importance::Error, &message, false);
        }
    }

    /// Takes everything back that is shown of a workspace, at once: it is going away.
    pub fn take_diagnostics_back(&mut self, root: &Path) {
        let to_client = self.to_client.clone();
        let Some(workspace) = self.workspace(root) else { return };
        workspace.failure = None;
        for shown in workspace.published.drain(..) {
            to_client.publish(&shown.uri, &[]);
        }
        self.refresh.mark(Refreshable::Diagnostics);
    }
}
