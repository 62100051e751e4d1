//! `api/events`: server-sent events from the feed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::Event;
use futures_util::stream::{Stream, unfold};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::feed::WorkspaceState;
use crate::scheduler::WorkspaceId;

/// A listening page.
struct Listener {
    feed: watch::Receiver<BTreeMap<WorkspaceId, WorkspaceState>>,
    workspace: WorkspaceId,
    /// The last status and revision sent to it.
    status: Option<Arc<str>>,
    revision: Option<u64>,
    _room: OwnedSemaphorePermit,
}

/// The events of a workspace, starting with its status. A page that reconnects sends the last
/// revision it received (`known`), and is notified at once if it missed something. The stream ends
/// with the workspace.
pub(super) fn events(
    feed: watch::Receiver<BTreeMap<WorkspaceId, WorkspaceState>>,
    workspace: WorkspaceId,
    known: Option<u64>,
    room: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let listener = Listener { feed, workspace, status: None, revision: known, _room: room };
    unfold(listener, |mut listener| async move {
        loop {
            let news = listener.feed.borrow_and_update().get(&listener.workspace).cloned()?;
            // A new page reads the document after this event.
            let known = *listener.revision.get_or_insert(news.revision);
            let id = news.revision.to_string();
            if listener.status.as_ref() != Some(&news.status) {
                let event = Event::default().event("status").data(&*news.status);
                listener.status = Some(news.status);
                return Some((Ok(event.id(known.to_string())), listener));
            }
            if known != news.revision {
                listener.revision = Some(news.revision);
                let event = Event::default().event("panel").id(id.clone()).data(id);
                return Some((Ok(event), listener));
            }
            listener.feed.changed().await.ok()?;
        }
    })
}
