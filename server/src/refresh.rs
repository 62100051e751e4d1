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
/// When an editor that may have forgotten its hints is told a second time.
const SECOND_TIME: Duration = Duration::from_millis(700);

/// What can be out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refreshable {
    /// Inlay hints.
    Hints,
    /// Code lenses.
    Lenses,
    /// Diagnostics that the client pulls.
    Diagnostics,
}

impl Refreshable {
    /// All of them.
    pub(crate) const ALL: [Refreshable; 3] =
        [Refreshable::Hints, Refreshable::Lenses, Refreshable::Diagnostics];
}

/// Bits that are set when something is out of date. Clones are the same bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refresh(Arc<Bits>);

#[derive(Debug, Default)]
struct Bits {
    dirty: [AtomicBool; 3],
    wake: Notify,
}

impl Refresh {
    /// Something is out of date.
    pub(crate) fn mark(&self, what: Refreshable) {
        if let Some(bit) = self.0.dirty.get(what as usize) {
            bit.store(true, Ordering::Relaxed);
        }
        self.0.wake.notify_one();
    }

    /// Sends refreshes for `wanted` things for as long as the session lasts. A client that does not
    /// answer delays the next refresh by the request's time limit and nothing else.
    ///
    /// `forgets_hints` is for Neovim: from 0.10 to 0.12 it does not draw hints whose answer comes
    /// after it redrew for another reason, so it is told of them once more when all is quiet.
    pub(crate) async fn keep_sending(
        self,
        client: ToClient,
        wanted: Vec<Refreshable>,
        forgets_hints: bool,
    ) {
        let mut owes_hints = false;
        loop {
            let woken = self.0.wake.notified();
            if !owes_hints {
                woken.await;
            } else if tokio::time::timeout(SECOND_TIME, woken).await.is_err() {
                owes_hints = false;
                client.refresh(Refreshable::Hints).await;
                continue;
            }
            let next = Instant::now() + INTERVAL;
            let take = |what: Refreshable| {
                let bit = self.0.dirty.get(what as usize);
                bit.is_some_and(|bit| bit.swap(false, Ordering::Relaxed)) && wanted.contains(&what)
            };
            let [hints, lenses, diagnostics] = Refreshable::ALL.map(take);
            owes_hints = (owes_hints || hints) && forgets_hints;
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
                // Hints come last: new lenses are a reason to redraw.
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
