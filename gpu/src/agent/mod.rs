//! The agent: a Python process with torch imported that runs the user's training loop on demand.
//!
//! [`Agent`] is a handle that survives the process behind it: where the process died, the next run
//! starts another. Whatever the process does, each run has exactly one [`RunOutcome`], and when the
//! handle is dropped, nothing that it started is left.

mod protocol;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use protocol::{
    AgentFacts, Entry, Iterations, Mode, Outcome, PROTOCOL_VERSION, RunEvent, RunLimits,
    RunOutcome, RunRequest, Stage,
};

/// How to start an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The Python to run it in.
    pub interpreter: PathBuf,
    /// The user's cache folder for Ridgeline: the agent's files are unpacked below it.
    pub cache: PathBuf,
    /// Variables on top of this process's own environment.
    pub env: BTreeMap<String, String>,
    /// How long to wait for what.
    pub patience: Patience,
}

/// How long the agent may take for what, before it counts as wedged and is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From the start (or from `prepare`) to `ready`: torch and the project's imports.
    pub startup: Duration,
    /// On top of a run's own limit, and from a cancel to the end of the run.
    pub grace: Duration,
    /// From the request to end until it is killed.
    pub farewell: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            startup: Duration::from_secs(120),
            grace: Duration::from_secs(10),
            farewell: Duration::from_secs(1),
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
    if output.is_empty() { String::new() } else { format!("; its last lines:\n{output}") }
}

/// What to import ahead of a run, so that the run starts at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepare {
    /// The project's root. Absolute.
    pub root: PathBuf,
    /// What will run.
    pub entry: Entry,
    /// Import the third-party modules that the project imports.
    pub preimport: bool,
}

/// A handle to the agent. See the module's page.
#[derive(Debug)]
pub struct Agent {
    options: AgentOptions,
}

impl Agent {
    /// Unpacks the agent, starts it and waits until it is ready.
    ///
    /// # Errors
    /// Where it cannot be unpacked or started, with the last lines that it wrote.
    pub async fn start(_options: AgentOptions) -> Result<Agent, AgentError> {
        todo!()
    }

    /// What the agent said of itself when it was last ready.
    pub fn facts(&self) -> Option<AgentFacts> {
        todo!("{:?}", self.options)
    }

    /// Has the agent import what the project imports. It is remembered, so that an agent that had to
    /// be started again is prepared again.
    ///
    /// # Errors
    /// Where the agent could not be started, or did not become ready again.
    pub async fn prepare(&self, _prepare: Prepare) -> Result<AgentFacts, AgentError> {
        todo!()
    }

    /// Runs `request` and returns its one outcome. Waits for its turn where another run goes on.
    ///
    /// News go to `events`; where nobody takes them they are dropped, never waited for.
    pub async fn run(
        &self,
        _request: RunRequest,
        _events: mpsc::Sender<RunEvent>,
        _cancel: CancellationToken,
    ) -> RunOutcome {
        todo!()
    }

    /// Ends the agent in good order. Dropping the handle ends it too, without the good order.
    pub async fn stop(self) {
        todo!()
    }
}
