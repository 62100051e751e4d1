//! The layer between standard input and output and tower-lsp. It shields the server from malformed
//! input.
//!
//! Reading: [`frames`] finds messages in any bytes, and [`screen`] parses each once and sanitizes
//! it. Calls go to tower-lsp's service as values, without its stream reader and writer. Responses
//! to the server's own requests go to the [`Outbox`]. Writing: one bounded queue with a time limit.
//! A client that stops reading ends the session instead of growing the queue.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_lsp::jsonrpc::{Request, Response};
use tower_lsp::{ClientSocket, LanguageServer, LspService};
use tower_service::Service;

use self::frames::{Frame, Frames, framed};
use self::screen::{ScreenedMessage, refused, screen};
use crate::outbox::Outbox;

pub(crate) mod frames;
mod parent;
pub(crate) mod screen;

/// The maximum number of messages waiting for the client.
pub(crate) const OUTGOING_LIMIT: usize = 256;

/// The time after which a client that reads nothing counts as gone.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// The time limit for handlers and writes in progress after the end of a session.
const GOODBYE_LIMIT: Duration = Duration::from_millis(400);

/// The maximum number of concurrent requests. With fewer, slow hovers delay edits (measured with
/// tower-lsp's 4).
pub(crate) const IN_FLIGHT_LIMIT: usize = 256;

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// `exit` was received.
    Exit {
        /// Whether `shutdown` came first.
        in_order: bool,
    },
    /// Standard input was closed or cannot be read.
    InputClosed,
    /// Standard output was closed or is not read.
    OutputClosed,
    /// The client's process, given in `initialize`, has exited.
    ParentGone,
}

/// Serves one client until the session ends.
pub(crate) async fn serve<S: LanguageServer>(
    // Notifications and requests to the client go through the outbox, not through tower-lsp's
    // socket.
    (service, _socket): (LspService<S>, ClientSocket),
    outbox: Outbox,
    mut outgoing: mpsc::Receiver<Vec<u8>>,
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> SessionEnd {
    let (to_service, calls) = mpsc::channel(1);
    let parent_gone = CancellationToken::new();
    let mut reading = Box::pin(read(input, to_service, outbox.clone(), parent_gone.clone()));
    let mut serving = Box::pin(answer_calls(service, calls, &outbox));
    let mut writing = Box::pin(async {
        while let Some(frame) = outgoing.recv().await {
            let write = async {
                output.write_all(&frame).await?;
                output.flush().await
            };
            match timeout(WRITE_LIMIT, write).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    return tracing::warn!("cannot write to the client: {error}");
                }
                Err(_) => return tracing::warn!("the client is not reading; giving up"),
            }
        }
    });

    let ended = tokio::select! {
            ended = &mut reading => ended,
            () = &mut writing => return SessionEnd::OutputClosed,
            () = parent_gone.cancelled() => return SessionEnd::ParentGone,
            () = &mut serving => return SessionEnd::InputClosed,
    };
    // Without new calls, the service finishes the pending ones. Then the queue is drained.
    drop(reading);
    outbox.close();
    let _ = timeout(GOODBYE_LIMIT, async {
        tokio::select! {
            () = &mut writing => {}
            () = async { serving.await; outbox.flushed().await } => {}
        }
    })
    .await;
    ended
}

/// A call to the service.
struct Called {
    request: Request,
    /// Dropped when it is answered.
    answered: Option<oneshot::Sender<()>>,
}

async fn read(
    input: impl AsyncRead + Unpin,
    to_service: mpsc::Sender<Called>,
    outbox: Outbox,
    parent_gone: CancellationToken,
) -> SessionEnd {
    let mut frames = Frames::new(input);
    let mut shut_down = false;
    loop {
        let body = match frames.next().await {
            Ok(Some(Frame::Body(body))) => body,
            Ok(Some(Frame::Garbage(why))) => {
                refuse(&outbox, -32700, &format!("invalid input: {why}")).await;
                continue;
            }
            Ok(None) => return SessionEnd::InputClosed,
            Err(error) => {
                tracing::warn!("cannot read standard input: {error}");
                return SessionEnd::InputClosed;
            }
        };
        for screened in screen(body) {
            match screened {
                ScreenedMessage::Call(call) => {
                    let is_exit = call.method() == "exit";
                    shut_down |= call.method() == "shutdown" && call.id().is_some();
                    if pass_on(call, &to_service, &parent_gone).await.is_err() || is_exit {
                        return SessionEnd::Exit { in_order: shut_down };
                    }
                }
                ScreenedMessage::Answer { id, outcome } => outbox.answered(&id, outcome),
                ScreenedMessage::Refused(json) => outbox.write(framed(&json)).await,
                ScreenedMessage::Dropped(why) => tracing::warn!("dropped {why}"),
                ScreenedMessage::NotJson => {
                    refuse(&outbox, -32700, "a message that is not JSON").await;
                }
            }
        }
    }
}

async fn refuse(outbox: &Outbox, code: i64, why: &str) {
    if let ScreenedMessage::Refused(json) = refused(None, code, why) {
        outbox.write(framed(&json)).await;
    }
}

/// Passes a call on, and delays later messages until `initialize` or `shutdown` is answered.
/// tower-lsp refuses messages before the response to `initialize`, and `exit` cancels the response
/// to `shutdown`. Without the delay, a client that does not wait would lose the texts it opens.
async fn pass_on(
    request: Request,
    to_service: &mpsc::Sender<Called>,
    parent_gone: &CancellationToken,
) -> Result<(), SendError<Called>> {
    let is_awaited =
        request.id().is_some() && matches!(request.method(), "initialize" | "shutdown");
    if request.method() == "initialize"
        && let Some(process) = process_id(&request)
    {
        tokio::spawn(parent::watch(process, parent_gone.clone()));
    }
    let (answered, answer) = oneshot::channel();
    let answered = is_awaited.then_some(answered);
    to_service.send(Called { request, answered }).await?;
    if is_awaited {
        // Both are answered at once. The timeout only covers a response lost to a bug.
        let _ = timeout(Duration::from_secs(10), answer).await;
    }
    Ok(())
}

fn process_id(initialize: &Request) -> Option<i32> {
    let id = initialize.params()?.get("processId")?.as_i64()?;
    i32::try_from(id).ok().filter(|id| *id > 0)
}

/// Passes calls to tower-lsp's service in order, and sends responses when they are ready.
async fn answer_calls<S: LanguageServer>(
    mut service: LspService<S>,
    mut calls: mpsc::Receiver<Called>,
    outbox: &Outbox,
) {
    let mut in_flight = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !in_flight.is_empty() {
        tokio::select! {
            called = calls.recv(), if is_open && in_flight.len() < IN_FLIGHT_LIMIT => {
                let Some(Called { request, answered }) = called else {
                    is_open = false;
                    continue;
                };
                // During `initialize` the service is not ready, and does not wake its waiters when
                // it becomes ready.
                loop {
                    match poll_fn(|context| Poll::Ready(service.poll_ready(context))).await {
                        Poll::Pending if in_flight.next().await.is_some() => {}
                        Poll::Pending | Poll::Ready(Ok(())) => break,
                        // `exit` was received.
                        Poll::Ready(Err(_)) => return,
                    }
                }
                let response = service.call(request);
                in_flight.push(async move {
                    if let Ok(Some(response)) = response.await {
                        send(outbox, &response).await;
                    }
                    drop(answered);
                });
            }
            Some(()) = in_flight.next(), if !in_flight.is_empty() => {}
        }
    }
}

async fn send(outbox: &Outbox, response: &Response) {
    match serde_json::to_string(response) {
        Ok(json) => outbox.write(framed(&json)).await,
        Err(error) => tracing::error!("an answer cannot be written: {error}"),
    }
}
