//! Progress notifications of a tool that runs code.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use tokio::sync::mpsc;

use crate::profiler::ProgressEvent;

/// A client that does not read for so long misses a notification. The run does not wait for it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Runs work that reports its progress, and forwards it if the client asked for it.
pub(super) async fn forwarded<T>(
    context: &RequestContext<RoleServer>,
    work: impl AsyncFnOnce(mpsc::Sender<ProgressEvent>) -> T,
) -> T {
    let token = context.meta.get_progress_token();
    let (sender, mut events) = mpsc::channel::<ProgressEvent>(64);
    let forward = async {
        // The protocol wants numbers that grow.
        let mut shown = 0.0_f64;
        while let Some(event) = events.recv().await {
            let Some(token) = &token else { continue };
            let share = event.share.map_or(0.0, f64::from).clamp(0.0, 1.0);
            shown = (shown + 1e-6).max(share);
            let notification = ProgressNotificationParam::new(token.clone(), shown)
                .with_total(1.0_f64.max(shown))
                .with_message(event.stage);
            let _ = tokio::time::timeout(TIMEOUT, context.peer.notify_progress(notification)).await;
        }
    };
    let (result, ()) = tokio::join!(work(sender), forward);
    result
}
