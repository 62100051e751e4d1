//! Delays an action until there is a pause, such as one in typing.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::event::{Event, WorkspaceEvent};
use crate::scheduler::WorkspaceId;

/// A timer that can be restarted. A single task waits for it, however often it is restarted.
#[derive(Debug, Default)]
pub(crate) struct Debouncer {
    /// When the pause is over.
    due: Option<Instant>,
    /// Whether a task is waiting, perhaps for an earlier time than `due`.
    has_task: bool,
}

/// The event that is sent when the pause may be over.
pub(crate) struct Wake<'a> {
    pub events: &'a mpsc::Sender<Event>,
    pub id: WorkspaceId,
    /// Creates the event.
    pub event: fn() -> WorkspaceEvent,
}

impl Debouncer {
    /// Starts the pause, or restarts it.
    pub(crate) fn restart(&mut self, pause: Duration, wake: &Wake<'_>) {
        let due = Instant::now() + pause;
        self.due = Some(due);
        self.wait(due, wake);
    }

    /// Starts the pause unless it has started already.
    pub(crate) fn start(&mut self, pause: Duration, wake: &Wake<'_>) {
        if self.due.is_none() {
            self.restart(pause, wake);
        }
    }

    /// Handles the event. Returns true if the pause is over. If it was restarted, another event
    /// follows.
    pub(crate) fn is_over(&mut self, wake: &Wake<'_>) -> bool {
        self.has_task = false;
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

    /// Returns whether a pause is in progress.
    pub(crate) fn is_started(&self) -> bool {
        self.due.is_some()
    }

    /// Cancels the pause.
    pub(crate) fn cancel(&mut self) {
        self.due = None;
    }

    fn wait(&mut self, due: Instant, wake: &Wake<'_>) {
        if self.has_task {
            return;
        }
        self.has_task = true;
        let (events, event) = (wake.events.clone(), Event::Workspace(wake.id, (wake.event)()));
        tokio::spawn(async move {
            sleep_until(due).await;
            // If the event loop has ended, nobody needs it.
            let _ = events.send(event).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_restarted_pause_ends_once() {
        let (events, mut received) = mpsc::channel(8);
        let event = || WorkspaceEvent::EstimateDue;
        let wake = Wake { events: &events, id: WorkspaceId(3), event };
        let mut debouncer = Debouncer::default();
        let pause = Duration::from_millis(100);
        for _ in 0..10 {
            debouncer.restart(pause, &wake);
            tokio::time::sleep(pause / 2).await;
        }
        let started = Instant::now();
        let mut ends = 0;
        while ends == 0 {
            let event = received.recv().await;
            assert!(matches!(event, Some(Event::Workspace(WorkspaceId(3), _))));
            ends += u32::from(debouncer.is_over(&wake));
        }
        assert_eq!(started.elapsed(), pause / 2);
        assert!(!debouncer.is_started());
        tokio::time::sleep(pause * 10).await;
        assert!(received.try_recv().is_err(), "it ends once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_pause_has_no_effect() {
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
