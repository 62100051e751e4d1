//! Connections within limits: how many there are, how long one may take to say what it wants, and
//! how long it may leave an answer unread. A page has the token, but anybody on this machine can
//! connect.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

/// Connections at once; more wait with the system. A browser opens at most six for a page.
const CONNECTION_LIMIT: usize = 96;

/// For the head of a request, and between two requests.
const HEAD_LIMIT: Duration = Duration::from_secs(5);

/// For the client to take some bytes of an answer.
const WRITE_LIMIT: Duration = Duration::from_secs(20);

/// Of a request's head; the smallest that hyper takes is 8 KB.
const HEAD_BYTES: usize = 16 * 1024;

/// Lines of a request's head.
const HEADER_LIMIT: usize = 64;

/// After an error that says nothing of one connection (no more files may be open), a moment.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let serving = accept(listener, router, stop.clone());
    stop.run_until_cancelled(serving).await;
}

async fn accept(listener: TcpListener, router: Router, stop: CancellationToken) {
    let room = Arc::new(Semaphore::new(CONNECTION_LIMIT));
    // The semaphore is never closed.
    while let Ok(permit) = room.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (router, stop) = (router.clone(), stop.clone());
                tokio::spawn(async move {
                    stop.run_until_cancelled(connection(stream, router)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!("a connection to the panel was not taken: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_LIMIT));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_headers(HEADER_LIMIT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        // A client that goes, or does not keep the limits, is nothing that a person should read of.
        tracing::trace!("a connection to the panel ended: {error}");
    }
}
