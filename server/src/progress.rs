//! Shows a run's progress in the editor, where the editor takes that.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::lsp::client::ToClient;
use crate::profiler::ProgressEvent;

/// Reports are not sent more often.
const INTERVAL: Duration = Duration::from_millis(100);

/// Asks for one progress, and gives what shows it from its beginning to its end. It ends when `ended` tells
/// how (or is dropped). Where the client refuses or does not answer, nothing is shown, as the protocol
/// asks.
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
        // A run that ended while the client made up its mind has no progress to show.
        let created = tokio::select! {
            created = created => created,
            _ = &mut ended => return,
        };
        if !created {
            return;
        }
        client.begin_progress(&token, &title, &reason);
        let mut next = Instant::now();
        let mut open = true;
        // What came too soon after the last report: the newest is told when it is time.
        let mut waiting: Option<ProgressEvent> = None;
        let message = loop {
            tokio::select! {
                biased;
                message = &mut ended => break message.unwrap_or_default(),
                event = events.recv(), if open => match event {
                    Some(event) => waiting = Some(event),
                    None => open = false,
                },
                () = tokio::time::sleep_until(next), if waiting.is_some() => {
                    let Some(event) = waiting.take() else { continue };
                    next = Instant::now() + INTERVAL;
                    let percentage = event.share.map(|share| (share.clamp(0.0, 1.0) * 100.0) as u32);
                    client.report_progress(&token, &event.stage, percentage);
                }
            }
        };
        client.end_progress(&token, &message);
    }
}
