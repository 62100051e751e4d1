//! Watches the client's process, given in `initialize`. If it exits without `exit`, the session
//! ends.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The polling interval. The session has to end within a second of the process.
const INTERVAL: Duration = Duration::from_millis(400);

/// Cancels `gone` once the process `id` has exited. On systems without Unix processes nothing is
/// watched, and only the end of standard input ends the session.
pub(super) async fn watch(id: i32, gone: CancellationToken) {
    // A process that never existed (an id from another container) carries no information about the
    // client.
    if !is_alive(id) {
        tracing::info!(
            "the client's process {id} is not visible from this machine, so it is not \
            monitored"
        );
        return;
    }
    while is_alive(id) {
        tokio::time::sleep(INTERVAL).await;
    }
    gone.cancel();
}

#[cfg(unix)]
fn is_alive(id: i32) -> bool {
    let Some(process) = rustix::process::Pid::from_raw(id) else { return false };
    // EPERM: it exists and belongs to another user.
    !matches!(rustix::process::test_kill_process(process), Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
fn is_alive(_id: i32) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reports_the_end_of_a_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let gone = CancellationToken::new();
        let watching = tokio::spawn(watch(child.id().cast_signed(), gone.clone()));
        tokio::task::yield_now().await;
        assert!(!gone.is_cancelled());
        child.kill().expect("killed");
        child.wait().expect("reaped");
        gone.cancelled().await;
        watching.await.expect("no panic");
    }

    #[tokio::test]
    async fn a_process_that_never_existed_is_ignored() {
        let gone = CancellationToken::new();
        watch(i32::MAX, gone.clone()).await;
        assert!(!gone.is_cancelled());
    }
}
