//! Shows a run's progress in the editor, if the editor supports it.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::lsp::client::ToClient;
use crate::profiler::ProgressEvent;

/// The minimum time between reports.
const INTERVAL: Duration = Duration::from_millis(100);

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
        let mut next = Instant::now();
        let mut open = true;
        // The newest event that came too soon after the last report.
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
