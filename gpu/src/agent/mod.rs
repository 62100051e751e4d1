//! The agent: a Python process with torch imported that runs the user's training loop on demand.
//!
//! [`Agent`] is a handle that outlives the process behind it: if the process dies, the next run
//! starts another one. Each run has exactly one [`RunOutcome`], whatever the process does. Dropping
//! the handle ends every process that it started.

mod connection;
mod embedded;
mod lines;
#[cfg(feature = "evaluate")]
pub mod model_lister;
mod protocol;
mod run;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio_util::sync::CancellationToken;

use connection::Connection;
use protocol::ToAgent;
pub use protocol::{
    AgentFacts, Claim, DroppedImport, Entry, EstimateRequest, Frame, Iterations, Launcher, Mode,
    Outcome, PROTOCOL_VERSION, Prepare, ProbeRequest, RunEvent, RunLimits, RunOutcome, RunRequest,
    Sandbox, SideEffectsMode, Signals, Stage, Version,
};
use run::{Attempt, Run, State, Work};

/// How to start an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The Python to run it in.
    pub interpreter: PathBuf,
    /// The user's cache folder for Ridgeline: the agent's files are unpacked below it.
    pub cache: PathBuf,
    /// Variables from the configuration, added to this process's environment. Libraries read theirs
    /// when they are loaded, so start another agent when these change.
    pub env: BTreeMap<String, String>,
    /// Never fork: use standby processes.
    pub standby: bool,
    /// Keep a CUDA context ready for the next run. It occupies device memory.
    pub cuda: bool,
    /// Serve only runs that have a launcher. Nothing is imported before them.
    pub launch: bool,
    pub patience: Timeouts,
}

/// Time limits for the agent. Beyond them it is considered stuck and is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the start to `ready`, which includes importing torch.
    pub startup: Duration,
    /// From `prepare` to `ready`, which includes the project's imports. Longer than the two minutes
    /// after which the agent itself gives up on an import and restarts its worker.
    pub prepare: Duration,
    /// Added to a run's own limit; also the time from a cancellation to the end of the run.
    pub grace: Duration,
    /// From the request to exit until the agent is killed.
    pub shutdown: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            startup: Duration::from_secs(120),
            prepare: Duration::from_secs(180),
            grace: Duration::from_secs(10),
            shutdown: Duration::from_secs(3),
        }
    }
}

/// Why the agent could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent's files could not be written to the cache.
    #[error("the agent could not be unpacked to {path}: {source}")]
    Unpack {
        /// The target path.
        path: PathBuf,
        source: std::io::Error,
    },
    /// The program does not exist or is not executable.
    #[error("{interpreter} could not be started: {source}")]
    Spawn {
        /// The Python that was to run it.
        interpreter: PathBuf,
        source: std::io::Error,
    },
    /// It exited or did not respond in time, before it was ready.
    #[error("the agent could not start ({reason}){}", with_output(.output))]
    NotReady {
        reason: String,
        /// The last lines that it printed.
        output: String,
    },
}

fn with_output(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(". Last output: {output}") }
}

/// Unpacks the agent for a process that loads it itself, such as a notebook's kernel. Returns the
/// folder with its package.
///
/// # Errors
/// If the cache cannot be written.
pub fn unpack(cache: &Path) -> Result<PathBuf, AgentError> {
    let unpacked = embedded::unpack(cache);
    let boot = unpacked.map_err(|source| AgentError::Unpack { path: cache.to_owned(), source })?;
    Ok(boot.parent().unwrap_or(cache).to_owned())
}

/// A handle to the agent, see the [module documentation](self).
#[derive(Debug)]
pub struct Agent {
    shared: Arc<Shared>,
}

/// State shared with the task that starts a process in the background.
#[derive(Debug)]
struct Shared {
    options: AgentOptions,
    /// Cancelled when the handle is dropped. Nothing is started after that.
    closing: CancellationToken,
    facts: Mutex<Option<AgentFacts>>,
    prepared: Mutex<Option<Prepare>>,
    next_run: AtomicU64,
    /// The running process, if any. Only the holder of the lock talks to it.
    connection: Arc<tokio::sync::Mutex<Option<Connection>>>,
}

/// The lock on a process. It contains `Some` after [`Agent::ready_connection`].
type ConnectionGuard = OwnedMutexGuard<Option<Connection>>;

impl Agent {
    /// Unpacks the agent, starts it and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot be unpacked or started, with the last lines that it printed.
    pub async fn start(options: AgentOptions) -> Result<Agent, AgentError> {
        let agent = Agent::deferred(options);
        agent.ready_connection().await?;
        Ok(agent)
    }

    /// Returns a handle without a process. The first [`Agent::prepare`] or [`Agent::run`] starts
    /// one.
    pub fn deferred(options: AgentOptions) -> Agent {
        Agent {
            shared: Arc::new(Shared {
                options,
                closing: CancellationToken::new(),
                facts: Mutex::default(),
                prepared: Mutex::default(),
                next_run: AtomicU64::new(1),
                connection: Arc::default(),
            }),
        }
    }

    /// What the agent reported when it was last ready.
    pub fn facts(&self) -> Option<AgentFacts> {
        lock(&self.shared.facts).clone()
    }

    /// Has the agent import the project's third-party modules. The request is stored, so a
    /// restarted agent is prepared again. Waits for a run in progress.
    ///
    /// # Errors
    /// If the agent could not be started, or did not become ready again. If the project's imports
    /// end the agent, it is restarted without them and that is not an error.
    pub async fn prepare(&self, prepare: Prepare) -> Result<AgentFacts, AgentError> {
        *lock(&self.shared.prepared) = Some(prepare);
        let mut guard = self.ready_connection().await?;
        if let Some(connection) = guard.as_mut()
            && let Err(error) = self.shared.prepare(connection).await
        {
            tracing::info!(%error, "the agent exited while importing the project");
            *guard = None;
            drop(guard);
            // The new process is prepared while it starts.
            lock(&self.shared.prepared).iter_mut().for_each(|prepare| prepare.preimport = false);
            self.ready_connection().await?;
        }
        self.facts().ok_or_else(closed)
    }

    /// Runs `request` and returns its outcome. Waits for a run in progress.
    ///
    /// Progress is sent to `events` and dropped if the channel is full. If the agent dies before
    /// the run begins, the request is sent once more, to a new agent. Dropping the future ends the
    /// run and the agent with it; `cancel` ends only the run.
    pub async fn run(
        &self,
        request: RunRequest,
        events: mpsc::Sender<RunEvent>,
        cancel: CancellationToken,
    ) -> RunOutcome {
        self.serve(Work::Run(&request), &events, &cancel).await
    }

    /// Estimates the program on fake tensors and returns the outcome, as [`Agent::run`] does. Waits
    /// for a run in progress, because a concurrent estimate would take CPU time from what is being
    /// timed. Its token also cancels it while it waits.
    pub async fn estimate(
        &self,
        request: EstimateRequest,
        events: mpsc::Sender<RunEvent>,
        cancel: CancellationToken,
    ) -> RunOutcome {
        self.serve(Work::Estimate(&request), &events, &cancel).await
    }

    /// Times single operators and returns the outcome. `probes.json` exists if the outcome is
    /// complete. After other outcomes it may exist with what was measured until then, for example
    /// if an operator crashed. Waits for a run in progress.
    pub async fn probe(
        &self,
        request: ProbeRequest,
        events: mpsc::Sender<RunEvent>,
        cancel: CancellationToken,
    ) -> RunOutcome {
        self.serve(Work::Probe(&request), &events, &cancel).await
    }

    async fn serve(
        &self,
        work: Work<'_>,
        events: &mpsc::Sender<RunEvent>,
        cancel: &CancellationToken,
    ) -> RunOutcome {
        match self.attempt(work, events, cancel).await {
            Attempt::Ended(outcome) => *outcome,
            Attempt::NeverStarted(_) => match self.attempt(work, events, cancel).await {
                Attempt::Ended(outcome) => *outcome,
                Attempt::NeverStarted(reason) => RunOutcome::new(Outcome::AgentLost, reason),
            },
        }
    }

    /// Shuts the agent down gracefully. Dropping the handle kills it.
    pub async fn stop(self) {
        self.shared.closing.cancel();
        let connection = self.shared.connection.lock().await.take();
        if let Some(connection) = connection {
            connection.close(self.shared.options.patience.shutdown).await;
        }
    }

    /// Returns the lock on a process that is ready. The process starts in a separate task, which
    /// continues when the caller is cancelled. Otherwise a series of saves, each cancelling the
    /// previous one, would kill the starting process every time.
    async fn ready_connection(&self) -> Result<ConnectionGuard, AgentError> {
        tokio::spawn(self.shared.clone().ensure_ready()).await.unwrap_or_else(|error| {
            Err(AgentError::NotReady { reason: error.to_string(), output: String::new() })
        })
    }

    async fn attempt(
        &self,
        work: Work<'_>,
        events: &mpsc::Sender<RunEvent>,
        cancel: &CancellationToken,
    ) -> Attempt {
        let cancelled =
            || Attempt::Ended(Box::new(RunOutcome::new(Outcome::Cancelled, "cancelled")));
        if self.facts().is_none() {
            let _ = events.try_send(RunEvent::AgentStarting);
        }
        let ready = tokio::select! {
            biased;
            () = cancel.cancelled() => return cancelled(),
            ready = self.ready_connection() => ready,
        };
        let guard = match ready {
            Ok(guard) => guard,
            Err(error) => {
                return Attempt::Ended(Box::new(RunOutcome::new(
                    Outcome::AgentLost,
                    error.to_string(),
                )));
            }
        };
        let id = self.shared.next_run.fetch_add(1, Ordering::Relaxed);
        let patience = self.shared.options.patience;
        let run = Run { id, work, events, cancel, patience };
        let mut busy = Busy { guard: Some(guard) };
        let Some(connection) = busy.connection() else {
            return Attempt::Ended(Box::new(RunOutcome::new(
                Outcome::AgentLost,
                closed().to_string(),
            )));
        };
        let (attempt, state) = run.drive(connection).await;
        connection.kill_orphans();
        if let Some(facts) = connection.facts() {
            *lock(&self.shared.facts) = Some(facts.clone());
        }
        if state == State::Usable {
            busy.finish();
        }
        attempt
    }
}

/// The lock on a busy process. Dropping it before the work is done (the caller's future was
/// dropped, or the process does not respond) kills the process and its children.
struct Busy {
    guard: Option<ConnectionGuard>,
}

impl Busy {
    fn connection(&mut self) -> Option<&mut Connection> {
        self.guard.as_mut()?.as_mut()
    }

    fn finish(mut self) {
        self.guard = None;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(guard) = &mut self.guard {
            **guard = None;
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.closing.cancel();
        // If a start holds the lock, it notices `closing` and drops the process itself.
        if let Ok(mut connection) = self.shared.connection.try_lock() {
            *connection = None;
        }
    }
}

impl Shared {
    async fn ensure_ready(self: Arc<Self>) -> Result<ConnectionGuard, AgentError> {
        let work = async {
            let mut guard = self.connection.clone().lock_owned().await;
            if !guard.as_mut().is_some_and(Connection::drain) {
                *guard = None;
                *guard = Some(self.open_prepared().await?);
            }
            Ok(guard)
        };
        tokio::select! {
            biased;
            () = self.closing.cancelled() => Err(closed()),
            result = work => result,
        }
    }

    /// Starts a process and prepares it like the previous one.
    async fn open_prepared(&self) -> Result<Connection, AgentError> {
        let mut connection = self.open().await?;
        if lock(&self.prepared).is_none() {
            return Ok(connection);
        }
        if let Err(error) = self.prepare(&mut connection).await {
            tracing::info!(%error, "the agent exited while importing the project");
            drop(connection);
            lock(&self.prepared).iter_mut().for_each(|prepare| prepare.preimport = false);
            connection = self.open().await?;
            self.prepare(&mut connection).await?;
        }
        Ok(connection)
    }

    async fn open(&self) -> Result<Connection, AgentError> {
        *lock(&self.facts) = None;
        let (connection, facts) = Connection::open(&self.options).await?;
        *lock(&self.facts) = Some(facts);
        Ok(connection)
    }

    async fn prepare(&self, connection: &mut Connection) -> Result<(), AgentError> {
        let Some(prepare) = lock(&self.prepared).clone() else { return Ok(()) };
        connection.send(&ToAgent::Prepare { prepare: &prepare }).await.map_err(|error| {
            AgentError::NotReady { reason: error.to_string(), output: connection.recent_output() }
        })?;
        let facts = connection.wait_until_ready(self.options.patience.prepare).await?;
        *lock(&self.facts) = Some(facts);
        Ok(())
    }
}

fn closed() -> AgentError {
    AgentError::NotReady { reason: "it was stopped".to_owned(), output: String::new() }
}

/// Recovers from poisoning: nothing panics while it holds one of these locks, and their values are
/// always consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
