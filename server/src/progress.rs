//! Shows a run's progress in the editor, if the editor supports it.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::lsp::client::ToClient;
use crate::profiler::ProgressEvent;

/// The minimum time between reports.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long a stage lasts before its seconds are shown, so that the user sees that it goes on.
const LONG_STAGE: Duration = Duration::from_secs(3);
/// The time between reports of a stage's seconds.
const TICK: Duration = Duration::from_secs(1);

/// The stage that is shown.
struct Shown {
    event: ProgressEvent,
    since: Instant,
}

impl Shown {
    /// Returns the stage, with its seconds if it takes long.
    fn message(&self) -> String {
        let lasted = self.since.elapsed();
        match lasted >= LONG_STAGE {
            true => format!("{}, {} s", self.event.stage, lasted.as_secs()),
            false => self.event.stage.clone(),
        }
    }
}

/// Requests a progress from the client. The returned future shows it until `ended` receives the
/// final message (or is dropped). If the client refuses or does not answer, nothing is shown, as
/// the protocol requires.
pub(crate) fn show(
    client: ToClient,
    token: String,
    title: String,
    reason: String,
    mut events: mpsc::Receiver<ProgressEvent>,
    mut ended: oneshot::Receiver<String>,
) -> impl Future<Output = ()> + Send {
    let created = client.create_progress(&token);
    async move {
        // The run may end before the client answers.
        let created = tokio::select! {
            created = created => created,
            _ = &mut ended => return,
        };
        if !created {
            return;
        }
        client.begin_progress(&token, &title, &reason);
        let mut last = Instant::now();
        let mut next = last;
        let mut open = true;
        let mut shown: Option<Shown> = None;
        // Whether an event came since the last report.
        let mut is_new = false;
        let message = loop {
            tokio::select! {
                biased;
                message = &mut ended => break message.unwrap_or_default(),
                event = events.recv(), if open => match event {
                    Some(event) => {
                        let same = shown.take().filter(|shown| shown.event.stage == event.stage);
                        let since = same.map_or_else(Instant::now, |shown| shown.since);
                        shown = Some(Shown { event, since });
                        if !is_new {
                            next = next.min(last + INTERVAL);
                            is_new = true;
                        }
                    }
                    None => open = false,
                },
                () = tokio::time::sleep_until(next), if shown.is_some() => {
                    let Some(shown) = &shown else { continue };
                    let share = shown.event.share;
                    let percentage = share.map(|share| (share.clamp(0.0, 1.0) * 100.0) as u32);
                    if is_new || shown.since.elapsed() >= LONG_STAGE {
                        client.report_progress(&token, &shown.message(), percentage);
                    }
                    last = Instant::now();
                    next = last + TICK;
                    is_new = false;
                }
            }
        };
        client.end_progress(&token, &message);
    }
}
