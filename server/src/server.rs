//! `ridgeline lsp`: sets up and runs the language server.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tower_lsp::LspService;
use tracing_subscriber::EnvFilter;

use crate::consent::Permit;
use crate::event_loop;
use crate::lsp::backend::{Backend, EVENT_LIMIT};
use crate::lsp::client::ToClient;
use crate::lsp::ext::{GPUS, HEAT};
use crate::outbox::Outbox;
use crate::pipeline::Pipeline;
use crate::profiler::{
    BoxedFuture, ProfileOutcome, ProfileRequest, Profiler, Program, ProgressEvent,
};
use crate::state::GlobalState;
use crate::store::Store;
use crate::transport::{self, OUTGOING_LIMIT, SessionEnd};

/// The environment variable with the log filter, in the syntax of `tracing-subscriber`, such as
/// `debug`.
const LOG_VARIABLE: &str = "RIDGELINE_LOG";

/// The maximum number of log lines that wait for a client that does not read standard error.
/// Further lines are dropped.
const LOG_LIMIT: usize = 256;

/// Serves one client over standard input and output until it disconnects.
///
/// # Errors
/// If the runtime cannot be started.
pub(crate) fn lsp_main() -> io::Result<SessionEnd> {
    log_to_stderr();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(16)
        .enable_all()
        .build()?;
    let store = Store::open()
        .inspect_err(|error| tracing::warn!("nothing is saved beyond this session: {error}"))
        .ok();
    let profiler: Arc<dyn Profiler> = match &store {
        Some(store) => Arc::new(Arc::new(Pipeline::lasting(store.clone()))),
        None => Arc::new(NoProfiler),
    };
    if let Some(store) = store.clone() {
        runtime.spawn_blocking(move || store.sweep(SystemTime::now()));
    }
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    let ended = runtime.block_on(serve(profiler, store, input, output));
    tracing::info!("the session has ended: {ended:?}");
    // A read of standard input cannot be interrupted, so its thread is not joined.
    runtime.shutdown_timeout(Duration::from_millis(200));
    Ok(ended)
}

pub(crate) async fn serve(
    profiler: Arc<dyn Profiler>,
    store: Option<Store>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> SessionEnd {
    let (outbox, outgoing) = Outbox::new(OUTGOING_LIMIT);
    let (events, received) = mpsc::channel(EVENT_LIMIT);
    let to_client = ToClient::new(outbox.clone());
    let state = GlobalState::new(events.clone(), to_client, profiler, store);
    let looping = tokio::spawn(event_loop::run(state, received));
    let service = LspService::build(|_| Backend::new(events))
        .custom_method(HEAT, Backend::heat)
        .custom_method(GPUS, Backend::gpus)
        .custom_method("window/workDoneProgress/cancel", Backend::progress_cancelled)
        .finish();
    let ended = transport::serve(service, outbox, outgoing, input, output).await;
    // Dropping the state stops the current run.
    looping.abort();
    let _ = looping.await;
    ended
}

/// Logs to standard error through a bounded queue: a client that does not read its end of the pipe
/// must not block the server. Standard output belongs to the protocol.
fn log_to_stderr() {
    let (lines, received) = sync_channel::<Vec<u8>>(LOG_LIMIT);
    let written = std::thread::Builder::new().name("log".to_owned()).spawn(move || {
        for line in received {
            if io::stderr().write_all(&line).is_err() {
                return;
            }
        }
    });
    if written.is_err() {
        return;
    }
    let filter = EnvFilter::try_from_env(LOG_VARIABLE)
        // Some clients send requests that the server does not announce (Kate for symbols). That is
        // not an error.
        .unwrap_or_else(|_| EnvFilter::new("warn,tower_lsp_server::server=off,ridgeline=info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(move || LogLine { lines: lines.clone() })
        .finish();
    // Only tests have set another subscriber before.
    let _ = tracing::subscriber::set_global_default(subscriber);
    std::panic::set_hook(Box::new(|panic| tracing::error!("internal error: {panic}")));
}

struct LogLine {
    lines: SyncSender<Vec<u8>>,
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const LINE_LIMIT: usize = 4096;
        let line = bytes.get(..bytes.len().min(LINE_LIMIT)).unwrap_or_default();
        // A full queue drops the line.
        let _ = self.lines.try_send(line.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reports that nothing can be measured.
struct NoProfiler;

impl Profiler for NoProfiler {
    fn profile(
        &self,
        _request: ProfileRequest,
        _progress: mpsc::Sender<ProgressEvent>,
        _permit: Permit,
    ) -> BoxedFuture<ProfileOutcome> {
        Box::pin(async { nothing_measured() })
    }

    fn find_program(&self, _: ProfileRequest) -> BoxedFuture<Result<Program, ProfileOutcome>> {
        Box::pin(async { Err(nothing_measured()) })
    }
}

fn nothing_measured() -> ProfileOutcome {
    let message = "Cannot measure: there is no user folder for recordings. Set \
        RIDGELINE_CACHE_DIR and RIDGELINE_STATE_DIR.";
    ProfileOutcome::Problem { message: message.to_owned(), log: None }
}
