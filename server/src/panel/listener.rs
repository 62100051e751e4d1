//! Accepts connections within limits: their number (see [`super::admission`]), the time to send a
//! request, and the time to read a response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use super::admission::{Admission, ConnectionSlot};

/// The timeout for the head of a request, and between two requests.
const HEAD_LIMIT: Duration = Duration::from_secs(5);

/// The timeout for the client to read some bytes of a response.
const WRITE_LIMIT: Duration = Duration::from_secs(20);

/// The maximum size of a request's head, in bytes. hyper's minimum is 8 KB.
const HEAD_BYTES: usize = 16 * 1024;

/// The maximum number of headers of a request.
const HEADER_LIMIT: usize = 64;

/// The pause after an error that is not about one connection, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` is cancelled.
pub(super) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let serving = accept(listener, router, stop.clone(), HEAD_LIMIT);
    stop.run_until_cancelled(serving).await;
}

async fn accept(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
    head_limit: Duration,
) {
    let admission = Admission::default();
    loop {
        // Meanwhile, further connections wait in the system's queue.
        while let Some(wait) = admission.wait(Instant::now()) {
            tokio::time::sleep(wait).await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let (router, stop) = (router.clone(), stop.clone());
                let place = Arc::new(admission.enter());
                tokio::spawn(async move {
                    let served = connection(stream, router, place.clone(), head_limit);
                    let until_displaced = place.leave.run_until_cancelled(served);
                    stop.run_until_cancelled(until_displaced).await;
                });
            }
            Err(error) => {
                tracing::debug!("a connection to the panel was not taken: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Serves one connection. Every request carries its place, so that the guard can mark it as
/// authenticated.
async fn connection(
    stream: TcpStream,
    router: Router,
    place: Arc<ConnectionSlot>,
    head_limit: Duration,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_LIMIT));
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(place.clone());
        router.call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_limit)
        .max_headers(HEADER_LIMIT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    if let Err(error) = served.await {
        // A disconnect or an exceeded limit is not worth reporting to the user.
        tracing::trace!("a connection to the panel ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::mpsc;

    use super::*;
    use crate::panel::admission::UNAUTHENTICATED_LIMIT;
    use crate::panel::feed::Feed;
    use crate::panel::guard::Token;
    use crate::panel::routes;

    /// More than the limit, and fewer than the system's queue holds.
    const ATTACKERS: usize = UNAUTHENTICATED_LIMIT + 72;

    /// The test does not depend on time: the head timeout is practically infinite, so a connection
    /// only loses its place to another one.
    #[tokio::test]
    async fn idle_connections_do_not_keep_a_page_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let token = Token::random().expect("random");
        let (questions, _asked) = mpsc::channel(1);
        let router = routes::router(token.clone(), questions, Feed::default());
        let stop = CancellationToken::new();
        const FOR_EVER: Duration = Duration::from_secs(1_000_000);
        let serving = tokio::spawn(accept(listener, router, stop.clone(), FOR_EVER));

        let mut silent = Vec::new();
        for number in 0..ATTACKERS {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            if number % 2 == 0 {
                // An incomplete head.
                let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: ").await;
            }
            silent.push(stream);
        }
        let ask = async || {
            let mut page = TcpStream::connect(address).await.expect("connected");
            let head = format!(
                "GET /{}/ HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n",
                token.as_str()
            );
            page.write_all(head.as_bytes()).await.expect("written");
            let mut answer = String::new();
            page.read_to_string(&mut answer).await.expect("answered");
            answer
        };
        let answer = tokio::time::timeout(Duration::from_secs(60), ask()).await.expect("in time");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

        // The oldest were displaced, and only as many as necessary.
        let rest = silent.split_off(ATTACKERS + 1 - UNAUTHENTICATED_LIMIT);
        for mut stream in silent {
            let mut byte = [0];
            let read = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut byte)).await;
            assert!(!matches!(read.expect("it is closed"), Ok(1..)), "nothing is answered");
        }
        for mut stream in rest {
            let mut byte = [0];
            let read = tokio::time::timeout(Duration::from_millis(1), stream.read(&mut byte)).await;
            assert!(read.is_err(), "it keeps its place: {read:?}");
        }
        stop.cancel();
        serving.abort();
    }

    #[tokio::test]
    async fn an_unauthenticated_connection_is_answered_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (questions, _asked) = mpsc::channel(1);
        let token = Token::random().expect("random");
        let router = routes::router(token, questions, Feed::default());
        let stop = CancellationToken::new();
        let serving = tokio::spawn(accept(listener, router, stop, Duration::from_secs(1_000)));
        let mut client = TcpStream::connect(address).await.expect("connected");
        let head = format!("GET / HTTP/1.1\r\nhost: {address}\r\n\r\n");
        client.write_all(head.as_bytes()).await.expect("written");
        let mut answer = String::new();
        let read = client.read_to_string(&mut answer);
        tokio::time::timeout(Duration::from_secs(60), read).await.expect("closed").expect("read");
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        serving.abort();
    }
}
