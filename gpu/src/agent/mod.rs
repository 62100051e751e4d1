//! The agent: a Python process with torch imported that runs the user's training loop on demand.
//!
//! [`Agent`] is a handle that survives the process behind it: where the process died, the next run
//! starts another. Whatever the process does, each run has exactly one [`RunOutcome`], and when the
//! handle is dropped, nothing that it started is left.

mod connection;
mod embedded;
mod lines;
#[cfg(feature = "evaluate")]
pub mod model_lister;
mod protocol;
mod run;

use std::collections::BTreeMap;
use std::path::PathBuf;
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
    /// The configuration's variables, on top of this process's own environment. Libraries read
    /// theirs when they are loaded, so where these change, start another agent.
    pub env: BTreeMap<String, String>,
    /// Never fork.
    pub standby: bool,
    /// Keep a CUDA context ready for the next run; it holds memory on the device.
    pub cuda: bool,
    /// Serve runs that have a launcher, and those alone: nothing is imported ahead of them.
    pub launch: bool,
    /// How long to wait for what.
    pub patience: Patience,
}

/// How long the agent may take for what, before it counts as wedged and is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From the start to `ready`: importing torch.
    pub startup: Duration,
    /// From `prepare` to `ready`: the project's imports. More than the two minutes after which the
    /// agent itself gives an import up and starts its worker again.
    pub prepare: Duration,
    /// On top of a run's own limit, and from a cancel to the end of the run.
    pub grace: Duration,
    /// From the request to end until it is killed.
    pub farewell: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            startup: Duration::from_secs(120),
            prepare: Duration::from_secs(180),
            grace: Duration::from_secs(10),
            farewell: Duration::from_secs(3),
        }
    }
}

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its files could not be written into the cache.
    #[error("the agent could not be unpacked to {path}: {source}")]
    Unpack {
        /// Where to.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no such program, or it may not be run.
    #[error("{interpreter} could not be started: {source}")]
    Spawn {
        /// The Python.
        interpreter: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It ended, or said nothing in time, before it was ready.
    #[error("the agent could not start ({reason}){}", with_output(.output))]
    NotReady {
        /// What happened.
        reason: String,
        /// The last lines that it wrote.
        output: String,
    },
}

fn with_output(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(". Last output: {output}") }
}

/// A handle to the agent. See the module's page.
#[derive(Debug)]
pub struct Agent {
    shared: Arc<Shared>,
}

/// What the handle shares with the task that starts a process in the background.
#[derive(Debug)]
struct Shared {
    options: AgentOptions,
    /// Set when the handle is dropped: nothing is started any more.
    closing: CancellationToken,
    facts: Mutex<Option<AgentFacts>>,
    prepared: Mutex<Option<Prepare>>,
    next_run: AtomicU64,
    /// The process, where one is running. Who holds the lock speaks with it.
    connection: Arc<tokio::sync::Mutex<Option<Connection>>>,
}

/// The lock on a process; `Some` while it is held after [`Agent::ready_connection`].
type Held = OwnedMutexGuard<Option<Connection>>;

impl Agent {
    /// Unpacks the agent, starts it and waits until it is ready.
    ///
    /// # Errors
    /// Where it cannot be unpacked or started, with the last lines that it wrote.
    pub async fn start(options: AgentOptions) -> Result<Agent, AgentError> {
        let agent = Agent::deferred(options);
        agent.ready_connection().await?;
        Ok(agent)
    }

    /// A handle without a process yet: the first [`Agent::prepare`] or [`Agent::run`] starts it.
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

    /// What the agent said of itself when it was last ready.
    pub fn facts(&self) -> Option<AgentFacts> {
        lock(&self.shared.facts).clone()
    }

    /// Has the agent import what the project imports. It is remembered, so that an agent that had to
    /// be started again is prepared again. Waits for a run that goes on.
    ///
    /// # Errors
    /// Where the agent could not be started, or did not become ready again. A project whose imports
    /// end the agent is prepared without them.
    pub async fn prepare(&self, prepare: Prepare) -> Result<AgentFacts, AgentError> {
        *lock(&self.shared.prepared) = Some(prepare);
        let mut held = self.ready_connection().await?;
        if let Some(connection) = held.as_mut()
            && let Err(error) = self.shared.prepare(connection).await
        {
            tracing::info!(%error, "the agent exited while importing the project");
            *held = None;
            drop(held);
            // The fresh process is prepared while it starts.
            lock(&self.shared.prepared).iter_mut().for_each(|prepare| prepare.preimport = false);
            self.ready_connection().await?;
        }
        self.facts().ok_or_else(closed)
    }

    /// Runs `request` and returns its one outcome. Waits for its turn where another run goes on.
    ///
    /// News go to `events`; where nobody takes them they are dropped, never waited for. A request
    /// that never began, because the agent died before, is sent once more to a fresh agent. A future that
    /// is dropped ends the agent with the run: `cancel` is the way that keeps it.
    pub async fn run(
        &self,
        request: RunRequest,
        events: mpsc::Sender<RunEvent>,
        cancel: CancellationToken,
    ) -> RunOutcome {
        self.serve(Work::Run(&request), &events, &cancel).await
    }

    /// Has the program run on tensors that hold nothing, and returns the one outcome, as
    /// [`Agent::run`] does. An estimate waits for a run that goes on: beside it, it would take a
    /// processor from what is being timed. One that is not wanted any more is cancelled by its
    /// token, while it waits too.
    pub async fn estimate(
        &self,
        request: EstimateRequest,
        events: mpsc::Sender<RunEvent>,
        cancel: CancellationToken,
    ) -> RunOutcome {
        self.serve(Work::Estimate(&request), &events, &cancel).await
    }

    /// Runs single operators by themselves, and returns the one outcome. `probes.json` is there
    /// where the outcome is complete, and holds what was measured until then where it is another one
    /// and the file is there: an operator may have crashed. It waits for a run that goes on.
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
            Attempt::NeverBegan(_) => match self.attempt(work, events, cancel).await {
                Attempt::Ended(outcome) => *outcome,
                Attempt::NeverBegan(reason) => RunOutcome::new(Outcome::AgentLost, reason),
            },
        }
    }

    /// Ends the agent in good order. Dropping the handle ends it too, without the good order.
    pub async fn stop(self) {
        self.shared.closing.cancel();
        let connection = self.shared.connection.lock().await.take();
        if let Some(connection) = connection {
            connection.close(self.shared.options.patience.farewell).await;
        }
    }

    /// The lock on a process that is ready. The start is a task of its own, which goes on when the
    /// caller is cancelled: otherwise a series of saves, each cancelling the one before, would kill
    /// the starting process each time and never get one.
    async fn ready_connection(&self) -> Result<Held, AgentError> {
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
        let held = match ready {
            Ok(held) => held,
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
        let mut busy = Busy { held: Some(held) };
        let Some(connection) = busy.connection() else {
            return Attempt::Ended(Box::new(RunOutcome::new(
                Outcome::AgentLost,
                closed().to_string(),
            )));
        };
        let (attempt, state) = run.drive(connection).await;
        connection.end_orphans();
        if let Some(facts) = connection.facts() {
            *lock(&self.shared.facts) = Some(facts.clone());
        }
        if state == State::Usable {
            busy.finish();
        }
        attempt
    }
}

/// The lock on a process that is at work. Whoever drops it before the work is over (a run that nobody
/// waits for any more, or a process that does not answer) ends the process with everything below it.
struct Busy {
    held: Option<Held>,
}

impl Busy {
    fn connection(&mut self) -> Option<&mut Connection> {
        self.held.as_mut()?.as_mut()
    }

    fn finish(mut self) {
        self.held = None;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(held) = &mut self.held {
            **held = None;
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.closing.cancel();
        // Where a start holds the lock, it sees `closing` and drops the process itself.
        if let Ok(mut connection) = self.shared.connection.try_lock() {
            *connection = None;
        }
    }
}

impl Shared {
    async fn ensure_ready(self: Arc<Self>) -> Result<Held, AgentError> {
        let work = async {
            let mut held = self.connection.clone().lock_owned().await;
            if !held.as_mut().is_some_and(Connection::catch_up) {
                *held = None;
                *held = Some(self.open_prepared().await?);
            }
            Ok(held)
        };
        tokio::select! {
            biased;
            () = self.closing.cancelled() => Err(closed()),
            result = work => result,
        }
    }

    /// Starts a process and prepares it as the one before was.
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
            AgentError::NotReady { reason: error.to_string(), output: connection.last_words() }
        })?;
        let facts = connection.wait_until_ready(self.options.patience.prepare).await?;
        *lock(&self.facts) = Some(facts);
        Ok(())
    }
}

fn closed() -> AgentError {
    AgentError::NotReady { reason: "it was stopped".to_owned(), output: String::new() }
}

/// Nothing panics while it holds one of these locks, and each value in them is whole at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
