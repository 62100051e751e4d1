//! Asks the client to refresh hints, lenses or diagnostics: at most every 200 ms, one request at a
//! time, and only if the client supports it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::lsp::client::ToClient;

/// The minimum time between refreshes.
const INTERVAL: Duration = Duration::from_millis(200);
/// The time an editor may take to request and draw its lenses.
const REDRAW_TIME: Duration = Duration::from_millis(50);
/// The delays before more hint refreshes, for editors that may drop one. On a busy machine, with diagnostics of other
/// servers, they may drop the second one, too.
const MORE_REFRESH_DELAYS: [Duration; 2] = [Duration::from_millis(700), Duration::from_secs(4)];

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
    pub(crate) const ALL: [Refreshable; 3] =
        [Refreshable::Hints, Refreshable::Lenses, Refreshable::Diagnostics];
}

/// The set of things that are out of date. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refresh(Arc<Bits>);

#[derive(Debug, Default)]
struct Bits {
    dirty: [AtomicBool; 3],
    wake: Notify,
}

impl Refresh {
    /// Marks something as out of date.
    pub(crate) fn mark(&self, what: Refreshable) {
        if let Some(bit) = self.0.dirty.get(what as usize) {
            bit.store(true, Ordering::Relaxed);
        }
        self.0.wake.notify_one();
    }

    /// Sends refreshes for `wanted` things until the session ends. A client that does not answer
    /// only delays the next refresh, by the request's timeout.
    ///
    /// `repeats_hints` is for Neovim: versions 0.10 to 0.12 do not draw hints whose answer arrives
    /// after a redraw for another reason, so more refreshes follow once nothing else changes.
    pub(crate) async fn keep_sending(
        self,
        client: ToClient,
        wanted: Vec<Refreshable>,
        repeats_hints: bool,
    ) {
        let mut more_refreshes = [].iter();
        loop {
            let woken = self.0.wake.notified();
            if let Some(delay) = more_refreshes.as_slice().first() {
                if tokio::time::timeout(*delay, woken).await.is_err() {
                    more_refreshes.next();
                    client.refresh(Refreshable::Hints).await;
                    continue;
                }
            } else {
                woken.await;
            }
            let next = Instant::now() + INTERVAL;
            let take = |what: Refreshable| {
                let bit = self.0.dirty.get(what as usize);
                bit.is_some_and(|bit| bit.swap(false, Ordering::Relaxed)) && wanted.contains(&what)
            };
            let [hints, lenses, diagnostics] = Refreshable::ALL.map(take);
            if hints && repeats_hints {
                more_refreshes = MORE_REFRESH_DELAYS.iter();
            }
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
                // Hints come last, because new lenses cause a redraw.
                async {
                    if hints {
                        sleep(REDRAW_TIME).await;
                        client.refresh(Refreshable::Hints).await
                    }
                },
            );
            sleep_until(next).await;
        }
    }
}
