//! Watches the process that `initialize` named: where it ends without a word, so does the session.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How often the process is looked for. The session has to end within a second of it.
const INTERVAL: Duration = Duration::from_millis(400);

/// Cancels `gone` once the process `id` is no more. On systems without Unix processes nothing is
/// watched, and the end of standard input has to tell.
pub(super) async fn watch(id: i32, gone: CancellationToken) {
    // A process that was never there (an id out of another container) says nothing about the client.
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
    // EPERM means that it is there and belongs to somebody else.
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
    async fn tells_when_a_process_ends() {
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
    async fn a_process_that_was_never_there_is_not_missed() {
        let gone = CancellationToken::new();
        watch(i32::MAX, gone.clone()).await;
        assert!(!gone.is_cancelled());
    }
}
