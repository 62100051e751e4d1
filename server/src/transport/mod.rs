//! Between standard input and output and tower-lsp: what a client may do to a stream ends here.
//!
//! Reads: [`frames`] finds messages in anything, [`screen`] makes each safe, and what is left goes to
//! tower-lsp through a pipe. Answers to our own requests go to the [`Outbox`] instead. Writes: one
//! bounded queue with a time limit, so that a client that reads nothing ends the session and does
//! not grow it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_lsp::{ClientSocket, LanguageServer, LspService, Server};

use self::frames::{Frame, Frames, find_header, framed};
use self::screen::{Call, Screened, refused, screen};
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
    (service, socket): (LspService<S>, ClientSocket),
    outbox: Outbox,
    mut outgoing: mpsc::Receiver<Vec<u8>>,
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> Ended {
    let (to_service, service_input) = tokio::io::duplex(64 * 1024);
    let (service_output, from_service) = tokio::io::duplex(64 * 1024);
    let handshake = Arc::new(Handshake::default());
    let parent_gone = CancellationToken::new();
    let server = Server::new(service_input, service_output, socket)
        .concurrency_level(IN_FLIGHT_LIMIT)
        .serve(service);

    let mut reading =
        Box::pin(read(input, to_service, outbox.clone(), handshake.clone(), parent_gone.clone()));
    let mut serving = Box::pin(async {
        tokio::join!(server, relay_answers(from_service, &outbox, &handshake));
    });
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
    // The pipe to the service is closed now, so it finishes what it has; then the queue is drained.
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

/// Lets what follows `initialize` and `shutdown` wait until they are answered. tower-lsp refuses what
/// comes before the first, and `exit` takes the second's answer back; a client that does not wait
/// would lose the texts that it opens.
#[derive(Default)]
struct Handshake {
    awaited: Mutex<Option<Value>>,
    answered: Notify,
}

impl Handshake {
    fn concerns(call: &Call) -> bool {
        matches!(call.method.as_str(), "initialize" | "shutdown")
    }

    fn begin(&self, id: &Value) {
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.clone());
    }

    fn sent(&self, body: &str) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(id) = awaited.as_ref() else { return };
        let is_answer = serde_json::from_str::<Value>(body)
            .is_ok_and(|message| message.get("method").is_none() && message.get("id") == Some(id));
        if is_answer {
            *awaited = None;
            self.answered.notify_one();
        }
    }

    async fn done(&self) {
        // Both are answered at once; the limit is for an answer lost to a defect.
        let _ = timeout(Duration::from_secs(10), self.answered.notified()).await;
    }
}

async fn read(
    input: impl AsyncRead + Unpin,
    mut to_service: DuplexStream,
    outbox: Outbox,
    handshake: Arc<Handshake>,
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
                    let is_exit = call.method == "exit";
                    shut_down |= call.method == "shutdown" && call.id.is_some();
                    if pass_on(&call, &mut to_service, &handshake, &parent_gone).await.is_err()
                        || is_exit
                    {
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

async fn pass_on(
    call: &Call,
    to_service: &mut DuplexStream,
    handshake: &Handshake,
    parent_gone: &CancellationToken,
) -> std::io::Result<()> {
    let awaited = call.id.as_ref().filter(|_| Handshake::concerns(call));
    if let Some(id) = awaited {
        handshake.begin(id);
    }
    if call.method == "initialize"
        && let Some(process) = process_id(&call.json)
    {
        tokio::spawn(parent::watch(process, parent_gone.clone()));
    }
    to_service.write_all(&framed(&call.json)).await?;
    if awaited.is_some() {
        handshake.done().await;
    }
    Ok(())
}

fn process_id(initialize: &str) -> Option<i32> {
    let message: Value = serde_json::from_str(initialize).ok()?;
    let id = message.get("params")?.get("processId")?.as_i64()?;
    i32::try_from(id).ok().filter(|id| *id > 0)
}

async fn relay_answers(from_service: DuplexStream, outbox: &Outbox, handshake: &Handshake) {
    let mut frames = Frames::new(from_service);
    while let Ok(Some(frame)) = frames.next().await {
        let Frame::Body(body) = frame else { continue };
        let Ok(body) = String::from_utf8(body) else { continue };
        outbox.write(framed(&body)).await;
        handshake.sent(&body);
    }
}
