//! Pushes changes to open pages. Each page receives the newest state when it reads. Nothing is
//! queued for a page that does not read.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::scheduler::WorkspaceId;

/// The changes of all workspaces. Clones share the feed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Feed(watch::Sender<BTreeMap<WorkspaceId, WorkspaceState>>);

/// The newest state of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkspaceState {
    /// Incremented when the document changes.
    pub revision: u64,
    /// The document's `status`, as JSON.
    pub status: Arc<str>,
}

impl Default for WorkspaceState {
    fn default() -> WorkspaceState {
        WorkspaceState {
            revision: 0,
            status: r#"{"state":"idle","message":null,"run":null}"#.into(),
        }
    }
}

impl Feed {
    /// Reports a change of a workspace's document.
    pub(crate) fn changed(&self, workspace: WorkspaceId) {
        self.0.send_modify(|all| all.entry(workspace).or_default().revision += 1);
    }

    /// Sets the status of a workspace.
    pub(crate) fn status(&self, workspace: WorkspaceId, status: String) {
        self.0.send_modify(|all| all.entry(workspace).or_default().status = status.into());
    }

    /// Removes a workspace.
    pub(crate) fn remove(&self, workspace: WorkspaceId) {
        self.0.send_modify(|all| drop(all.remove(&workspace)));
    }

    /// Subscribes to changes.
    pub(crate) fn follow(&self) -> watch::Receiver<BTreeMap<WorkspaceId, WorkspaceState>> {
        self.0.subscribe()
    }
}
