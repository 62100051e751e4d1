//! Tells the client that hints, lenses or diagnostics are out of date: at most every 200 ms, one at a
//! time, and only where the client announced that it takes the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::lsp::client::ToClient;

/// Refreshes are not sent more often.
const INTERVAL: Duration = Duration::from_millis(200);
/// What an editor may take to ask for its lenses and draw them.
const REDRAW: Duration = Duration::from_millis(50);

/// What can be out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshable {
    /// Inlay hints.
    Hints,
    /// Code lenses.
    Lenses,
    /// Diagnostics that the client pulls.
    Diagnostics,
}

impl Refreshable {
    /// All of them.
    pub const ALL: [Refreshable; 3] =
        [Refreshable::Hints, Refreshable::Lenses, Refreshable::Diagnostics];
}

/// Bits that are set when something is out of date. Clones are the same bits.
#[derive(Clone, Debug, Default)]
pub struct Refresh(Arc<Bits>);

#[derive(Debug, Default)]
struct Bits {
    dirty: [AtomicBool; 3],
    wake: Notify,
}

impl Refresh {
    /// Something is out of date.
    pub fn mark(&self, what: Refreshable) {
        if let Some(bit) = self.0.dirty.get(what as usize) {
            bit.store(true, Ordering::Relaxed);
        }
        self.0.wake.notify_one();
    }

    /// Sends refreshes for `wanted` things for as long as the session lasts. A client that does not
    /// answer delays the next refresh by the request's time limit and nothing else.
    pub async fn keep_sending(self, client: ToClient, wanted: Vec<Refreshable>) {
        loop {
            self.0.wake.notified().await;
            let next = Instant::now() + INTERVAL;
            let take = |what: Refreshable| {
                let bit = self.0.dirty.get(what as usize);
                bit.is_some_and(|bit| bit.swap(false, Ordering::Relaxed)) && wanted.contains(&what)
            };
            let [hints, lenses, diagnostics] = Refreshable::ALL.map(take);
            tokio::join!(
                async {
                    if lenses {
                        client.refresh(Refreshable::Lenses).await
                    }
                },
                async {
                    if diagnostics {
                        client.refresh(Refreshable::Diagnostics).await
                    }
                },
                // Hints come last: Neovim (0.10 to 0.12) forgets to draw hints that arrive after it
                // redrew for another reason, and new lenses are such a reason.
                async {
                    if hints {
                        sleep(REDRAW).await;
                        client.refresh(Refreshable::Hints).await
                    }
                },
            );
            sleep_until(next).await;
        }
    }
}
