//! Where requests are worked out: a few threads, work that nobody waits for left out, and a panic
//! that ends one request and not the session. Work in the background has threads of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

/// Work at once. Requests are short, and a training run has the other cores.
const THREADS: usize = 4;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    /// The text changed while the answer was worked out, so it would be a guess.
    #[error("the text has changed")]
    ContentModified,
    /// What was asked makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A defect of ours.
    #[error("{0}")]
    Internal(String),
}

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, RequestError>>;

/// Threads for requests. Clones are the same threads.
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
    /// Threads for work in the background, which give way to everything else. There are two, because work that
    /// was stopped may compute on for a while.
    pub(crate) fn background() -> Pool {
        Pool { threads: Arc::new(Semaphore::new(2)), has_low_priority: true }
    }

    /// Works an answer out and sends it. Where nobody waits for it any more (the client cancelled),
    /// it is not begun.
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
                let worked = tokio::task::spawn_blocking(move || guarded(work)).await;
                worked.unwrap_or_else(|error| Err(RequestError::Internal(error.to_string())))
            };
            // The client may have cancelled in the meantime.
            let _ = reply.send(result);
        });
    }
}

/// Does work on a new thread: one that has given up its priority cannot get it back.
async fn at_low_priority<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RequestError> + Send + 'static,
) -> Result<T, RequestError> {
    let (done, worked) = oneshot::channel();
    let started = std::thread::Builder::new().name("background".to_owned()).spawn(move || {
        // Only Linux has a priority for each thread; elsewhere this would slow the whole server.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::nice(19);
        // Whoever wanted it may have gone.
        let _ = done.send(work());
    });
    started.map_err(|error| RequestError::Internal(error.to_string()))?;
    worked.await.unwrap_or_else(|error| Err(RequestError::Internal(error.to_string())))
}

/// Does work that may panic, and gives the panic as an error.
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
    async fn a_panic_is_an_error() {
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
    async fn work_that_nobody_waits_for_is_not_begun() {
        let pool = Pool::default();
        let blocked: Vec<_> =
            (0..THREADS).map(|_| pool.threads.clone().try_acquire_owned().expect("free")).collect();
        let (reply, answer) = oneshot::channel::<Result<(), _>>();
        let (begun, was_begun) = oneshot::channel::<()>();
        pool.answer(reply, move || {
            let _ = begun.send(());
            Ok(())
        });
        drop(answer);
        assert!(was_begun.await.is_err());
        drop(blocked);
    }
}
