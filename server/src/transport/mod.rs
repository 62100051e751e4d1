//! Between standard input and output and tower-lsp: what a client may do to a stream ends here.
//!
//! Reads: [`frames`] finds messages in anything, [`screen`] parses each once and makes it safe, and calls go
//! to tower-lsp's service as values: its own reading and writing of a stream is not used. Answers to our
//! own requests go to the [`Outbox`] instead. Writes: one
//! bounded queue with a time limit, so that a client that reads nothing ends the session and does
//! not grow it.

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

use self::frames::{Frame, Frames, find_header, framed};
use self::screen::{Screened, refused, screen};
use crate::outbox::Outbox;

pub(crate) mod frames;
mod parent;
mod screen;

/// How many messages wait for the client to read.
pub(crate) const OUTGOING_LIMIT: usize = 256;

/// A client that reads nothing for this long is gone.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// How long handlers and writes in progress may take once the session is over.
const GOODBYE_LIMIT: Duration = Duration::from_millis(400);

/// Requests in flight at once. With fewer, slow hovers delay edits (measured with tower-lsp's 4).
pub(crate) const IN_FLIGHT_LIMIT: usize = 256;

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// `exit`; in order where `shutdown` came before it.
    Exit {
        /// Whether `shutdown` came before.
        in_order: bool,
    },
    /// Standard input was closed, or cannot be read.
    InputClosed,
    /// Standard output was closed, or nobody reads it.
    OutputClosed,
    /// The process that `initialize` named is gone.
    ParentGone,
}

/// Serves one client until the session is over.
pub(crate) async fn serve<S: LanguageServer>(
    // What goes to the client unasked takes the outbox and not tower-lsp's socket.
    (service, _socket): (LspService<S>, ClientSocket),
    outbox: Outbox,
    mut outgoing: mpsc::Receiver<Vec<u8>>,
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> Ended {
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
            () = &mut writing => return Ended::OutputClosed,
            () = parent_gone.cancelled() => return Ended::ParentGone,
            () = &mut serving => return Ended::InputClosed,
    };
    // No more calls come to the service, so it finishes what it has; then the queue is drained.
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

/// A call on its way to the service.
struct Called {
    request: Request,
    /// Dropped once it is answered.
    answered: Option<oneshot::Sender<()>>,
}

async fn read(
    input: impl AsyncRead + Unpin,
    to_service: mpsc::Sender<Called>,
    outbox: Outbox,
    parent_gone: CancellationToken,
) -> Ended {
    let mut frames = Frames::new(input);
    let mut shut_down = false;
    loop {
        let body = match frames.next().await {
            Ok(Some(Frame::Body(body))) => body,
            Ok(Some(Frame::Garbage(why))) => {
                refuse(&outbox, -32700, &format!("invalid input: {why}")).await;
                continue;
            }
            Ok(None) => return Ended::InputClosed,
            Err(error) => {
                tracing::warn!("cannot read standard input: {error}");
                return Ended::InputClosed;
            }
        };
        // A length that was too large swallows what follows; a body that is no JSON shows it.
        let swallowed = find_header(&body).and_then(|at| body.get(at..)).map(<[u8]>::to_vec);
        for screened in screen(body) {
            match screened {
                Screened::Call(call) => {
                    let is_exit = call.method() == "exit";
                    shut_down |= call.method() == "shutdown" && call.id().is_some();
                    if pass_on(call, &to_service, &parent_gone).await.is_err() || is_exit {
                        return Ended::Exit { in_order: shut_down };
                    }
                }
                Screened::Answer { id, outcome } => outbox.answered(&id, outcome),
                Screened::Refused(json) => outbox.write(framed(&json)).await,
                Screened::Dropped(why) => tracing::warn!("dropped {why}"),
                Screened::NotJson => {
                    if let Some(swallowed) = &swallowed {
                        frames.push_back(swallowed);
                    }
                    refuse(&outbox, -32700, "a message that is not JSON").await;
                }
            }
        }
    }
}

async fn refuse(outbox: &Outbox, code: i64, why: &str) {
    if let Screened::Refused(json) = refused(None, code, why) {
        outbox.write(framed(&json)).await;
    }
}

/// `initialize` and `shutdown` hold up what follows until they are answered. tower-lsp refuses what comes
/// before the first, and `exit` takes the second's answer back; a client that does not wait would lose
/// the texts that it opens.
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
        // Both are answered at once; the limit is for an answer lost to a defect.
        let _ = timeout(Duration::from_secs(10), answer).await;
    }
    Ok(())
}

fn process_id(initialize: &Request) -> Option<i32> {
    let id = initialize.params()?.get("processId")?.as_i64()?;
    i32::try_from(id).ok().filter(|id| *id > 0)
}

/// Hands calls to tower-lsp's service in their order, and sends the answers as they are ready.
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
                // While an `initialize` is in flight the service is not ready, and wakes nobody when it is.
                loop {
                    match poll_fn(|context| Poll::Ready(service.poll_ready(context))).await {
                        Poll::Pending if in_flight.next().await.is_some() => {}
                        Poll::Pending | Poll::Ready(Ok(())) => break,
                        // `exit` came.
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
