//! Where requests are worked out: a few threads, work that nobody waits for left out, and a panic
//! that ends one request and not the session.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

/// Work at once. Requests are short, and a training run has the other cores.
const THREADS: usize = 4;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
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
pub type Reply<T> = oneshot::Sender<Result<T, RequestError>>;

/// Threads for requests. Clones are the same threads.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Semaphore>);

impl Default for Pool {
    fn default() -> Pool {
        Pool(Arc::new(Semaphore::new(THREADS)))
    }
}

impl Pool {
    /// Works an answer out and sends it. Where nobody waits for it any more (the client cancelled),
    /// it is not begun.
    pub fn answer<T: Send + 'static>(
        &self,
        mut reply: Reply<T>,
        work: impl FnOnce() -> Result<T, RequestError> + Send + 'static,
    ) {
        let threads = self.0.clone();
        tokio::spawn(async move {
            let permit = tokio::select! {
                permit = threads.acquire_owned() => permit,
                () = reply.closed() => return,
            };
            // The semaphore is never closed, so there always is a permit.
            let Ok(_permit) = permit else { return };
            let worked = tokio::task::spawn_blocking(move || guarded(work)).await;
            let result =
                worked.unwrap_or_else(|error| Err(RequestError::Internal(error.to_string())));
            // The client may have cancelled in the meantime.
            let _ = reply.send(result);
        });
    }
}

/// Does work that may panic, and gives the panic as an error.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, RequestError>) -> Result<T, RequestError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Err(RequestError::Internal(format!("a defect of Ridgeline: {message}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let (reply, answer) = oneshot::channel::<Result<(), _>>();
        Pool::default().answer(reply, || panic!("on purpose"));
        let expected = "a defect of Ridgeline: on purpose".to_owned();
        assert_eq!(answer.await, Ok(Err(RequestError::Internal(expected))));
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_not_begun() {
        let pool = Pool::default();
        let blocked: Vec<_> =
            (0..THREADS).map(|_| pool.0.clone().try_acquire_owned().expect("free")).collect();
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
