//! One agent process: startup, messages, captured output, and shutdown.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::lines::{Line, next_line};
use super::protocol::{AgentFacts, FromAgent, PROTOCOL_VERSION, ToAgent};
use super::{AgentError, AgentOptions, embedded};
use crate::interpreter::neutral_folder;
use crate::process::{self, OnParentExit, ProcessTree};

/// The longest line that is read. The longest legitimate message is a traceback summary.
const LINE_LIMIT: usize = 1024 * 1024;
/// Capacity of the message queue. While it is full, the agent blocks.
const MESSAGE_QUEUE: usize = 64;
/// Messages per second; beyond that, the agent waits for the next second.
const MESSAGES_PER_SECOND: u32 = 2000;
/// Lines per second on stderr, where imports may print a lot.
const PRINTED_LINES_PER_SECOND: u32 = 100_000;
/// Invalid lines on stdout after which the agent is abandoned.
const INVALID_LINE_LIMIT: u32 = 1000;
/// Time limit for writing one message to the agent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of the agent's own output is kept.
const RECENT_OUTPUT_LINES: usize = 20;
const RECENT_OUTPUT_LINE_BYTES: usize = 1000;

/// A running agent. Dropping it kills the agent and every process that it started.
#[derive(Debug)]
pub(super) struct Connection {
    tree: ProcessTree,
    input: Option<ChildStdin>,
    messages: mpsc::Receiver<FromAgent>,
    recent_output: Arc<Mutex<RecentOutput>>,
    /// From the latest `ready`. A restarted worker may report other facts.
    facts: Option<AgentFacts>,
}

impl Connection {
    /// Unpacks the agent, starts it and waits until it is ready.
    pub(super) async fn open(options: &AgentOptions) -> Result<(Self, AgentFacts), AgentError> {
        let cache = options.cache.clone();
        let boot = tokio::task::spawn_blocking(move || embedded::unpack(&cache))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|source| AgentError::Unpack { path: options.cache.clone(), source })?;
        process::adopt_orphans();
        let mut command = Command::new(&options.interpreter);
        command
            .arg("-u")
            .arg(boot)
            .args(options.standby.then_some("--standby"))
            .args(options.cuda.then_some("--cuda"))
            .args(options.launch.then_some("--launch"))
            .current_dir(neutral_folder())
            .envs(&options.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut tree =
            process::spawn(command, OnParentExit::EndsItself).await.map_err(|source| {
                AgentError::Spawn { interpreter: options.interpreter.clone(), source }
            })?;
        let (sender, messages) = mpsc::channel(MESSAGE_QUEUE);
        let recent_output = Arc::new(Mutex::new(RecentOutput::default()));
        if let Some(output) = tree.child.stdout.take() {
            tokio::spawn(read_messages(BufReader::new(output), sender, recent_output.clone()));
        }
        if let Some(errors) = tree.child.stderr.take() {
            tokio::spawn(read_recent_output(BufReader::new(errors), recent_output.clone()));
        }
        let input = tree.child.stdin.take();
        let mut connection = Connection { tree, input, messages, recent_output, facts: None };
        let facts = connection.wait_until_ready(options.patience.startup).await?;
        Ok((connection, facts))
    }

    /// Waits for the agent's next `ready`.
    pub(super) async fn wait_until_ready(
        &mut self,
        time_limit: Duration,
    ) -> Result<AgentFacts, AgentError> {
        let deadline = Instant::now() + time_limit;
        let reason = loop {
            match timeout_at(deadline, self.next()).await {
                Ok(Some(FromAgent::Ready(facts))) if facts.protocol == PROTOCOL_VERSION => {
                    return Ok(facts);
                }
                Ok(Some(FromAgent::Ready(facts))) => {
                    break format!("it uses protocol {}, not {PROTOCOL_VERSION}", facts.protocol);
                }
                Ok(Some(FromAgent::Unusable { message })) => break truncated(message),
                Ok(Some(_)) => {}
                Ok(None) => break self.describe_exit().await,
                Err(_) => break format!("it was not ready after {} seconds", time_limit.as_secs()),
            }
        };
        Err(AgentError::NotReady { reason, output: self.recent_output() })
    }

    /// Returns the next message, or `None` if the agent has exited or was abandoned.
    pub(super) async fn next(&mut self) -> Option<FromAgent> {
        let message = self.messages.recv().await;
        self.remember(message.as_ref());
        message
    }

    fn remember(&mut self, message: Option<&FromAgent>) {
        if let Some(FromAgent::Ready(facts)) = message {
            self.facts = Some(facts.clone());
        }
    }

    /// What the agent reported when it was last ready.
    pub(super) fn facts(&self) -> Option<&AgentFacts> {
        self.facts.as_ref()
    }

    /// Drains messages that arrived while the agent was idle. Returns false if the agent has
    /// exited.
    pub(super) fn drain(&mut self) -> bool {
        loop {
            match self.messages.try_recv() {
                Ok(message) => self.remember(Some(&message)),
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => return false,
            }
        }
        matches!(self.tree.child.try_wait(), Ok(None))
    }

    /// Sends one message.
    ///
    /// # Errors
    /// If it cannot be serialized as JSON (a path that is not Unicode), or the agent does not read
    /// it.
    pub(super) async fn send(&mut self, message: &ToAgent<'_>) -> Result<(), SendError> {
        let mut line = serde_json::to_vec(message).map_err(SendError::NotJson)?;
        line.push(b'\n');
        let input = self.input.as_mut().ok_or(SendError::NotAccepted)?;
        match timeout(WRITE_TIMEOUT, input.write_all(&line)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(SendError::NotAccepted),
        }
    }

    /// Describes how the agent ended, for the user. Kills it if it only closed its output.
    pub(super) async fn describe_exit(&mut self) -> String {
        match timeout(Duration::from_secs(1), self.tree.child.wait()).await {
            Ok(Ok(status)) => format!("its process exited: {status}"),
            Ok(Err(error)) => format!("its process cannot be checked: {error}"),
            Err(_) => {
                self.tree.kill();
                "it closed its output or sent an invalid message".to_owned()
            }
        }
    }

    /// The last lines that the agent printed outside the protocol.
    pub(super) fn recent_output(&self) -> String {
        self.recent_output.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    /// Kills orphans of a run that were reparented to this process.
    pub(super) fn kill_orphans(&self) {
        self.tree.kill_orphans();
    }

    /// Asks the agent to exit, waits at most `time_limit`, then kills it.
    pub(super) async fn close(mut self, time_limit: Duration) {
        let _ = self.send(&ToAgent::Exit).await;
        self.input = None;
        let _ = timeout(time_limit, self.tree.child.wait()).await;
    }
}

/// Truncates a text from the agent to a readable length.
pub(super) fn truncated(text: String) -> String {
    const MAX_CHARS: usize = 4000;
    text.chars().take(MAX_CHARS).collect()
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("the request cannot be serialized as JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("the agent no longer accepts messages")]
    NotAccepted,
}

/// Reads until the end of the output, or until it is clear that this is not an agent.
async fn read_messages(
    mut source: impl AsyncBufRead + Unpin,
    sender: mpsc::Sender<FromAgent>,
    recent_output: Arc<Mutex<RecentOutput>>,
) {
    let mut invalid_lines = 0;
    let mut rate_limit = RateLimit::new(MESSAGES_PER_SECOND);
    loop {
        rate_limit.wait().await;
        let message = match next_line(&mut source, LINE_LIMIT).await {
            Line::End => return,
            Line::TooLong => None,
            Line::Text(line) => {
                let message = serde_json::from_slice(&line).ok();
                if message.is_none() {
                    keep(&recent_output, &line);
                }
                message
            }
        };
        match message {
            Some(FromAgent::Unknown) => {}
            Some(message) => {
                if sender.send(message).await.is_err() {
                    return;
                }
            }
            None => {
                invalid_lines += 1;
                if invalid_lines > INVALID_LINE_LIMIT {
                    return;
                }
            }
        }
    }
}

async fn read_recent_output(
    mut source: impl AsyncBufRead + Unpin,
    recent_output: Arc<Mutex<RecentOutput>>,
) {
    let mut rate_limit = RateLimit::new(PRINTED_LINES_PER_SECOND);
    loop {
        rate_limit.wait().await;
        match next_line(&mut source, LINE_LIMIT).await {
            Line::End => return,
            Line::TooLong => {}
            Line::Text(line) => keep(&recent_output, &line),
        }
    }
}

fn keep(recent_output: &Mutex<RecentOutput>, line: &[u8]) {
    recent_output.lock().unwrap_or_else(PoisonError::into_inner).add(line);
}

/// Limits the rate of lines. The writer blocks when its pipe fills.
struct RateLimit {
    lines_per_second: u32,
    until: Instant,
    lines: u32,
}

impl RateLimit {
    fn new(lines_per_second: u32) -> Self {
        RateLimit { lines_per_second, until: Instant::now() + Duration::from_secs(1), lines: 0 }
    }

    async fn wait(&mut self) {
        self.lines += 1;
        if self.lines <= self.lines_per_second {
            return;
        }
        sleep_until(self.until).await;
        *self = RateLimit::new(self.lines_per_second);
    }
}

/// The last lines of an output.
#[derive(Debug, Default)]
struct RecentOutput {
    lines: VecDeque<String>,
}

impl RecentOutput {
    fn add(&mut self, line: &[u8]) {
        let line = line.get(..RECENT_OUTPUT_LINE_BYTES).unwrap_or(line);
        let text = String::from_utf8_lossy(line);
        let text: String = text.trim_end().chars().filter(|c| !c.is_control()).collect();
        if text.is_empty() {
            return;
        }
        if self.lines.len() == RECENT_OUTPUT_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(text);
    }

    fn text(&self) -> String {
        self.lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}
