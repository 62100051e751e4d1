//! The panel: one page on loopback that shows the newest recording of a project (docs/panel.md).
//!
//! It knows HTTP and no editor. A request of a page becomes a [`PanelRequest`], which the owner of the
//! state answers: the event loop, or `ridgeline panel`, which has no editor.

mod admission;
pub(crate) mod answer;
pub(crate) mod feed;
mod guard;
mod listener;
pub(crate) mod page;
pub(crate) mod request;
mod routes;
mod streams;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use feed::Feed;
use guard::Token;
use request::PanelRequest;

use crate::scheduler::WorkspaceId;

/// The polling interval for new recordings while a panel is served. A poll reads a few folder names
/// and times.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// A running panel. Dropping it closes its port and every connection.
#[derive(Debug)]
pub(crate) struct Panel {
    address: SocketAddr,
    token: Token,
    _stop: DropGuard,
}

impl Panel {
    /// Serves the panel on a loopback port chosen by the system. It does not block, and must be
    /// called within a runtime.
    ///
    /// # Errors
    /// If no port is available or the system has no randomness.
    pub(crate) fn start(questions: mpsc::Sender<PanelRequest>, feed: Feed) -> io::Result<Panel> {
        let token = Token::random()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let stop = CancellationToken::new();
        let router = routes::router(token.clone(), questions, feed);
        tokio::spawn(listener::serve(listener, router, stop.clone()));
        Ok(Panel { address, token, _stop: stop.drop_guard() })
    }

    /// The page's address for a workspace. It contains the token, so show it only to the user.
    pub(crate) fn uri(&self, workspace: WorkspaceId) -> String {
        format!("http://{}/{}/?workspace={}", self.address, self.token.as_str(), workspace.0)
    }
}
