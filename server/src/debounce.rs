//! Waits for a pause, such as the one in typing, before something is done.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::event::{Event, WorkspaceEvent};
use crate::scheduler::WorkspaceId;

/// One task waits, however often the pause begins again.
#[derive(Debug, Default)]
pub(crate) struct Debouncer {
    /// When the pause is over.
    due: Option<Instant>,
    /// A task waits, perhaps for an earlier end.
    is_awaited: bool,
}

/// The event that comes when a pause may be over.
pub(crate) struct Wake<'a> {
    /// Where it is sent.
    pub events: &'a mpsc::Sender<Event>,
    /// The workspace.
    pub id: WorkspaceId,
    /// Makes the event.
    pub event: fn() -> WorkspaceEvent,
}

impl Debouncer {
    /// Begins the pause, again if it goes on.
    pub(crate) fn restart(&mut self, pause: Duration, wake: &Wake<'_>) {
        let due = Instant::now() + pause;
        self.due = Some(due);
        self.wait(due, wake);
    }

    /// Begins the pause unless it goes on.
    pub(crate) fn start(&mut self, pause: Duration, wake: &Wake<'_>) {
        if self.due.is_none() {
            self.restart(pause, wake);
        }
    }

    /// Takes the event; true if the pause is over. If it began again, another event follows.
    pub(crate) fn is_over(&mut self, wake: &Wake<'_>) -> bool {
        self.is_awaited = false;
        match self.due {
            Some(due) if due > Instant::now() => {
                self.wait(due, wake);
                false
            }
            due => {
                self.due = None;
                due.is_some()
            }
        }
    }

    /// Whether a pause goes on.
    pub(crate) fn is_started(&self) -> bool {
        self.due.is_some()
    }

    /// Ends the pause; nothing follows from it.
    pub(crate) fn cancel(&mut self) {
        self.due = None;
    }

    fn wait(&mut self, due: Instant, wake: &Wake<'_>) {
        if self.is_awaited {
            return;
        }
        self.is_awaited = true;
        let (events, event) = (wake.events.clone(), Event::Workspace(wake.id, (wake.event)()));
        tokio::spawn(async move {
            sleep_until(due).await;
            // Where the event loop is over, nobody wants it.
            let _ = events.send(event).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_begins_again_ends_once() {
        let (events, mut received) = mpsc::channel(8);
        let event = || WorkspaceEvent::EstimateDue;
        let wake = Wake { events: &events, id: WorkspaceId(3), event };
        let mut debouncer = Debouncer::default();
        let pause = Duration::from_millis(100);
        for _ in 0..10 {
            debouncer.restart(pause, &wake);
            tokio::time::sleep(pause / 2).await;
        }
        let began = Instant::now();
        let mut ends = 0;
        while ends == 0 {
            let event = received.recv().await;
            assert!(matches!(event, Some(Event::Workspace(WorkspaceId(3), _))));
            ends += u32::from(debouncer.is_over(&wake));
        }
        assert_eq!(began.elapsed(), pause / 2);
        assert!(!debouncer.is_started());
        tokio::time::sleep(pause * 10).await;
        assert!(received.try_recv().is_err(), "it ends once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_is_cancelled_leads_to_nothing() {
        let (events, mut received) = mpsc::channel(8);
        let event = || WorkspaceEvent::ReadingDue;
        let wake = Wake { events: &events, id: WorkspaceId(0), event };
        let mut debouncer = Debouncer::default();
        debouncer.start(Duration::from_millis(10), &wake);
        debouncer.cancel();
        received.recv().await.expect("the task that waits");
        assert!(!debouncer.is_over(&wake));
    }
}
