//! Runs requests on a few threads. Work that nobody waits for any more is skipped, and a panic ends
//! one request, not the session. Background work has its own threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

/// The maximum number of concurrent requests. Requests are short, and the other cores are for
/// training.
const THREADS: usize = 4;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    /// The text changed during the request, so the answer would be wrong.
    #[error("the text has changed")]
    ContentModified,
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A bug in Ridgeline.
    #[error("{0}")]
    Internal(String),
}

/// Sends the answer.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, RequestError>>;

/// A limited number of threads. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    threads: Arc<Semaphore>,
    has_low_priority: bool,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool { threads: Arc::new(Semaphore::new(THREADS)), has_low_priority: false }
    }
}

impl Pool {
    /// Creates a pool for low-priority background work. It has two threads, because stopped work
    /// may continue for a while.
    pub(crate) fn background() -> Pool {
        Pool { threads: Arc::new(Semaphore::new(2)), has_low_priority: true }
    }

    /// Computes an answer and sends it. If nobody waits for it any more (the client cancelled), it
    /// is not computed.
    pub(crate) fn answer<T: Send + 'static>(
        &self,
        mut reply: Reply<T>,
        work: impl FnOnce() -> Result<T, RequestError> + Send + 'static,
    ) {
        let (threads, has_low_priority) = (self.threads.clone(), self.has_low_priority);
        tokio::spawn(async move {
            let permit = tokio::select! {
                permit = threads.acquire_owned() => permit,
                () = reply.closed() => return,
            };
            // The semaphore is never closed, so there always is a permit.
            let Ok(_permit) = permit else { return };
            let result = if has_low_priority {
                at_low_priority(move || guarded(work)).await
            } else {
                let result = tokio::task::spawn_blocking(move || guarded(work)).await;
                result.unwrap_or_else(|error| Err(RequestError::Internal(error.to_string())))
            };
            // The client may have cancelled in the meantime.
            let _ = reply.send(result);
        });
    }
}

/// Runs work on a new thread, because a thread that lowered its priority cannot raise it again.
async fn at_low_priority<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RequestError> + Send + 'static,
) -> Result<T, RequestError> {
    let (done, worked) = oneshot::channel();
    let started = std::thread::Builder::new().name("background".to_owned()).spawn(move || {
        // Only Linux has priorities for single threads. Elsewhere this would slow down the whole
        // server.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::nice(19);
        // The receiver may be gone.
        let _ = done.send(work());
    });
    started.map_err(|error| RequestError::Internal(error.to_string()))?;
    worked.await.unwrap_or_else(|error| Err(RequestError::Internal(error.to_string())))
}

/// Turns a panic of `work` into an error.
pub(crate) fn guarded<T>(
    work: impl FnOnce() -> Result<T, RequestError>,
) -> Result<T, RequestError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Err(RequestError::Internal(format!("internal error of Ridgeline: {message}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_an_error() {
        let (reply, answer) = oneshot::channel::<Result<(), _>>();
        Pool::default().answer(reply, || panic!("on purpose"));
        let expected = "internal error of Ridgeline: on purpose".to_owned();
        assert_eq!(answer.await, Ok(Err(RequestError::Internal(expected))));
    }

    #[tokio::test]
    async fn background_work_has_low_priority_and_may_panic() {
        let pool = Pool::background();
        let (reply, answer) = oneshot::channel::<Result<(), _>>();
        pool.answer(reply, || panic!("on purpose"));
        assert!(matches!(answer.await, Ok(Err(RequestError::Internal(_)))));
        #[cfg(target_os = "linux")]
        {
            let (reply, answer) = oneshot::channel();
            let priority = || rustix::process::nice(0).unwrap_or_default();
            pool.answer(reply, move || Ok(priority()));
            assert_eq!(answer.await, Ok(Ok(19)));
            let (reply, answer) = oneshot::channel();
            Pool::default().answer(reply, move || Ok(priority()));
            assert_eq!(answer.await, Ok(Ok(priority())));
        }
    }

    #[tokio::test]
    async fn cancelled_work_is_not_started() {
        let pool = Pool::default();
        let blocked: Vec<_> =
            (0..THREADS).map(|_| pool.threads.clone().try_acquire_owned().expect("free")).collect();
        let (reply, answer) = oneshot::channel::<Result<(), _>>();
        let (start, started) = oneshot::channel::<()>();
        pool.answer(reply, move || {
            let _ = start.send(());
            Ok(())
        });
        drop(answer);
        assert!(started.await.is_err());
        drop(blocked);
    }
}
