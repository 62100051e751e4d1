//! What open pages are told unasked. Each page sees the newest state when it gets to it, and
//! nothing is kept for one that does not read.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::scheduler::WorkspaceId;

/// The news of all workspaces. Clones are the same feed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Feed(watch::Sender<BTreeMap<WorkspaceId, News>>);

/// What is new in a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// Grows when the document has changed.
    pub revision: u64,
    /// The document's `status`, as JSON.
    pub status: Arc<str>,
}

impl Default for News {
    fn default() -> News {
        News { revision: 0, status: r#"{"state":"idle","message":null,"run":null}"#.into() }
    }
}

impl Feed {
    /// The document of a workspace has changed.
    pub(crate) fn changed(&self, workspace: WorkspaceId) {
        self.0.send_modify(|all| all.entry(workspace).or_default().revision += 1);
    }

    /// The status of a workspace has changed.
    pub(crate) fn status(&self, workspace: WorkspaceId, status: String) {
        self.0.send_modify(|all| all.entry(workspace).or_default().status = status.into());
    }

    /// A workspace is there no more.
    pub(crate) fn remove(&self, workspace: WorkspaceId) {
        self.0.send_modify(|all| drop(all.remove(&workspace)));
    }

    /// To see what is new from now on.
    pub(crate) fn follow(&self) -> watch::Receiver<BTreeMap<WorkspaceId, News>> {
        self.0.subscribe()
    }
}
