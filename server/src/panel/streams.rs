//! `api/events`: server-sent events from the feed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::Event;
use futures_util::stream::{Stream, unfold};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::feed::News;
use crate::scheduler::WorkspaceId;

/// One page that listens.
struct Listener {
    feed: watch::Receiver<BTreeMap<WorkspaceId, News>>,
    workspace: WorkspaceId,
    /// What it was told last.
    status: Option<Arc<str>>,
    revision: Option<u64>,
    _room: OwnedSemaphorePermit,
}

/// The events of a workspace, from its status on. A page that comes back says which revision it saw
/// last (`known`), and is told at once where it has missed something. The stream ends with the
/// workspace.
pub(super) fn events(
    feed: watch::Receiver<BTreeMap<WorkspaceId, News>>,
    workspace: WorkspaceId,
    known: Option<u64>,
    room: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let listener = Listener { feed, workspace, status: None, revision: known, _room: room };
    unfold(listener, |mut listener| async move {
        loop {
            let news = listener.feed.borrow_and_update().get(&listener.workspace).cloned()?;
            // Who has just come reads the document after this.
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
