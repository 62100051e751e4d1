//! Everything sent to the client other than responses: notifications, and requests with a timeout.
//!
//! A client may never answer, answer late, or answer twice. None of this may block the server or
//! leak memory. So a request that times out forgets its ID, an answer to an unknown ID is ignored,
//! and the number of pending requests is limited.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::transport::frames::framed;

/// The maximum number of pending requests.
const PENDING_LIMIT: usize = 64;

/// Why a request to the client has no result.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// The request timed out.
    #[error("the client did not respond to {method} in time")]
    TooLate { method: &'static str },
    #[error("the client responded to {method} with an error: {message}")]
    Error { method: &'static str, message: String },
    /// Too many requests are pending, or the session is over.
    #[error("{method} was not sent: the client no longer accepts requests")]
    NotSent { method: &'static str },
}

/// Sends messages to the client. Clones share the queue.
#[derive(Clone, Debug)]
pub(crate) struct Outbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: mpsc::Sender<Vec<u8>>,
    pending: Mutex<HashMap<String, oneshot::Sender<Result<Value, String>>>>,
    next: AtomicU64,
    closed: AtomicBool,
    dropped: AtomicU64,
}

impl Outbox {
    /// Creates an outbox and the queue of frames to write.
    pub(crate) fn new(limit: usize) -> (Outbox, mpsc::Receiver<Vec<u8>>) {
        let (queue, frames) = mpsc::channel(limit);
        let shared = Shared {
            queue,
            pending: Mutex::default(),
            next: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
        };
        (Outbox(Arc::new(shared)), frames)
    }

    /// Sends a notification. It is dropped if the queue is full because the client has not read for
    /// long: the transport's timeout is about to end the session.
    pub(crate) fn notify(&self, method: &str, params: &Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        if self.0.queue.try_send(framed(&message.to_string())).is_err() {
            let dropped = self.0.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::warn!("{method} was not sent: the client is not reading ({dropped} so far)");
        }
    }

    /// Sends a request, and returns a future that waits for its answer for at most `limit`. The
    /// request is queued immediately, before anything queued after this call. This matters for
    /// Emacs: if it waits for an answer, it loses what it reads in the same chunk after that answer
    /// (lsp-mode 10 leaves its filter by `throw`). So messages of a command must be queued before
    /// its answer.
    ///
    /// # Errors
    /// If there is no result, see [`NoAnswer`].
    pub(crate) fn request(
        &self,
        method: &'static str,
        params: &Value,
        limit: Duration,
    ) -> impl Future<Output = Result<Value, NoAnswer>> + Send + use<> {
        let request = self.begin(method, params);
        async move {
            let SentRequest { unsent, receiver, pending } = request?;
            let answered = tokio::time::timeout(limit, async {
                if let Some(frame) = unsent {
                    let sent = pending.outbox.0.queue.send(frame).await;
                    sent.map_err(|_| NoAnswer::NotSent { method })?;
                }
                match receiver.await {
                    Ok(Ok(result)) => Ok(result),
                    Ok(Err(message)) => Err(NoAnswer::Error { method, message }),
                    Err(_) => Err(NoAnswer::NotSent { method }),
                }
            });
            answered.await.unwrap_or(Err(NoAnswer::TooLate { method }))
        }
    }

    fn begin(&self, method: &'static str, params: &Value) -> Result<SentRequest, NoAnswer> {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("ridgeline-{number}");
        let (sender, receiver) = oneshot::channel();
        {
            let mut pending = self.lock();
            if pending.len() >= PENDING_LIMIT || self.0.closed.load(Ordering::Relaxed) {
                return Err(NoAnswer::NotSent { method });
            }
            pending.insert(id.clone(), sender);
        }
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let pending = PendingRequest { outbox: self.clone(), id };
        let unsent = match self.0.queue.try_send(framed(&message.to_string())) {
            Ok(()) => None,
            Err(TrySendError::Full(frame)) => Some(frame),
            Err(TrySendError::Closed(_)) => return Err(NoAnswer::NotSent { method }),
        };
        Ok(SentRequest { unsent, receiver, pending })
    }

    /// Handles the client's answer. IDs without a pending request (answered twice, too late, or
    /// invented) are ignored.
    pub(crate) fn answered(&self, id: &Value, outcome: Result<Value, String>) {
        let waiting = id.as_str().and_then(|id| self.lock().remove(id));
        match waiting {
            // The request may be timing out at this moment.
            Some(waiting) => drop(waiting.send(outcome)),
            None => tracing::debug!("an answer to {id}, which is not open"),
        }
    }

    /// Queues a frame, and waits for room. Used by the transport, which may stop reading while a
    /// client does not read.
    pub(crate) async fn write(&self, frame: Vec<u8>) {
        // The queue is only closed when the session is over.
        let _ = self.0.queue.send(frame).await;
    }

    /// Refuses requests from now on, and fails pending ones.
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
        self.lock().clear();
    }

    /// Waits until everything queued has been taken. It polls, because the queue cannot notify; it
    /// is called once, at the end of the session.
    pub(crate) async fn flushed(&self) {
        let capacity = self.0.queue.max_capacity();
        while self.0.queue.capacity() < capacity {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<Result<Value, String>>>> {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request to the client.
struct SentRequest {
    /// The frame that is not queued yet, because the queue was full.
    unsent: Option<Vec<u8>>,
    receiver: oneshot::Receiver<Result<Value, String>>,
    pending: PendingRequest,
}

/// Removes a pending request when it is dropped, for whatever reason.
struct PendingRequest {
    outbox: Outbox,
    id: String,
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.outbox.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(60);

    fn id_of(frame: &[u8]) -> Value {
        let text = String::from_utf8_lossy(frame);
        let body = text.split("\r\n\r\n").nth(1).unwrap_or_default();
        serde_json::from_str::<Value>(body).expect("JSON")["id"].clone()
    }

    #[tokio::test]
    async fn a_client_that_never_answers_leaks_nothing() {
        let (outbox, _frames) = Outbox::new(4);
        let answer = outbox.request("x", &Value::Null, SOON).await;
        assert_eq!(answer, Err(NoAnswer::TooLate { method: "x" }));
        assert!(outbox.lock().is_empty());
    }

    #[tokio::test]
    async fn late_repeated_and_invented_answers_are_ignored() {
        let (outbox, mut frames) = Outbox::new(4);
        let asking = outbox.request("x", &Value::Null, LATE);
        let answering = async {
            let id = id_of(&frames.recv().await.expect("a frame"));
            outbox.answered(&json!("made up"), Ok(json!(0)));
            outbox.answered(&json!(17), Ok(json!(0)));
            outbox.answered(&id, Ok(json!(1)));
            outbox.answered(&id, Ok(json!(2)));
        };
        let (answer, ()) = tokio::join!(asking, answering);
        assert_eq!(answer, Ok(json!(1)));
        assert!(outbox.lock().is_empty());
    }

    #[tokio::test]
    async fn requests_are_queued_immediately() {
        let (outbox, mut frames) = Outbox::new(4);
        let answer = outbox.request("x", &Value::Null, LATE);
        outbox.write(b"an answer".to_vec()).await;
        outbox.answered(&id_of(&frames.recv().await.expect("a frame")), Ok(json!(1)));
        assert_eq!(frames.recv().await, Some(b"an answer".to_vec()));
        assert_eq!(answer.await, Ok(json!(1)));
    }

    #[tokio::test]
    async fn requests_wait_for_room_and_dropped_ones_leave_nothing_behind() {
        let (outbox, mut frames) = Outbox::new(1);
        outbox.notify("y", &Value::Null);
        let asking = tokio::spawn(outbox.request("x", &Value::Null, LATE));
        drop(outbox.request("z", &Value::Null, LATE));
        assert_eq!(outbox.lock().len(), 1);
        frames.recv().await.expect("the notification");
        outbox.answered(&id_of(&frames.recv().await.expect("a frame")), Ok(json!(1)));
        assert_eq!(asking.await.expect("no panic"), Ok(json!(1)));
        assert!(outbox.lock().is_empty());
    }

    #[tokio::test]
    async fn pending_requests_have_a_limit() {
        let (outbox, _frames) = Outbox::new(PENDING_LIMIT * 2);
        let asking: Vec<_> = (0..PENDING_LIMIT)
            .map(|_| {
                let outbox = outbox.clone();
                tokio::spawn(async move { outbox.request("x", &Value::Null, LATE).await })
            })
            .collect();
        while outbox.lock().len() < PENDING_LIMIT {
            tokio::task::yield_now().await;
        }
        let refused = outbox.request("y", &Value::Null, LATE).await;
        assert_eq!(refused, Err(NoAnswer::NotSent { method: "y" }));
        outbox.close();
        for request in asking {
            assert_eq!(request.await.expect("no panic"), Err(NoAnswer::NotSent { method: "x" }));
        }
    }

    #[tokio::test]
    async fn an_unread_queue_does_not_grow() {
        let (outbox, frames) = Outbox::new(2);
        for _ in 0..100 {
            outbox.notify("x", &Value::Null);
        }
        assert_eq!(frames.len(), 2);
    }
}
