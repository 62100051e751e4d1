//! One agent process: its start, its messages, its last words and its end.

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
use crate::process::{self, ProcessTree, WhenThisDies};

/// The longest line that is read. The longest honest message is a traceback's summary.
const LINE_LIMIT: usize = 1024 * 1024;
/// Messages that wait to be taken; while it is full, the agent waits.
const MESSAGES_WAITING: usize = 64;
/// Messages in a second, beyond which the agent is made to wait for the next second.
const MESSAGES_PER_SECOND: u32 = 2000;
/// The same for what imports print, which may be much.
const PRINTED_LINES_PER_SECOND: u32 = 100_000;
/// Lines that are no message, beyond which the agent is given up.
const NOISE_LIMIT: u32 = 1000;
/// How long the agent may take to read a message.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// What is kept of the agent's own output.
const LAST_WORDS_LINES: usize = 20;
const LAST_WORDS_LINE_BYTES: usize = 1000;

/// A running agent. Dropping it ends the agent and everything that it started.
#[derive(Debug)]
pub(super) struct Connection {
    tree: ProcessTree,
    input: Option<ChildStdin>,
    messages: mpsc::Receiver<FromAgent>,
    last_words: Arc<Mutex<LastWords>>,
    /// What the agent said of itself last: a worker that it had to start again may be another.
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
            process::spawn(command, WhenThisDies::EndsItself).await.map_err(|source| {
                AgentError::Spawn { interpreter: options.interpreter.clone(), source }
            })?;
        let (sender, messages) = mpsc::channel(MESSAGES_WAITING);
        let last_words = Arc::new(Mutex::new(LastWords::default()));
        if let Some(output) = tree.child.stdout.take() {
            tokio::spawn(read_messages(BufReader::new(output), sender, last_words.clone()));
        }
        if let Some(errors) = tree.child.stderr.take() {
            tokio::spawn(read_last_words(BufReader::new(errors), last_words.clone()));
        }
        let input = tree.child.stdin.take();
        let mut connection = Connection { tree, input, messages, last_words, facts: None };
        let facts = connection.wait_until_ready(options.patience.startup).await?;
        Ok((connection, facts))
    }

    /// Waits for the agent's next `ready`.
    pub(super) async fn wait_until_ready(
        &mut self,
        patience: Duration,
    ) -> Result<AgentFacts, AgentError> {
        let deadline = Instant::now() + patience;
        let reason = loop {
            match timeout_at(deadline, self.next()).await {
                Ok(Some(FromAgent::Ready(facts))) if facts.protocol == PROTOCOL_VERSION => {
                    return Ok(facts);
                }
                Ok(Some(FromAgent::Ready(facts))) => {
                    break format!("it uses protocol {}, not {PROTOCOL_VERSION}", facts.protocol);
                }
                Ok(Some(FromAgent::Unusable { message })) => break short(message),
                Ok(Some(_)) => {}
                Ok(None) => break self.why_it_ended().await,
                Err(_) => break format!("it was not ready after {} seconds", patience.as_secs()),
            }
        };
        Err(AgentError::NotReady { reason, output: self.last_words() })
    }

    /// The next message; `None` where the agent has ended or is given up.
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

    /// What the agent said of itself when it was last ready.
    pub(super) fn facts(&self) -> Option<&AgentFacts> {
        self.facts.as_ref()
    }

    /// Throws away what came while nobody listened. False where the agent has ended.
    pub(super) fn catch_up(&mut self) -> bool {
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
    /// In a person's words: where it cannot be written as JSON (a path that is not Unicode), or the
    /// agent does not take it.
    pub(super) async fn send(&mut self, message: &ToAgent<'_>) -> Result<(), SendError> {
        let mut line = serde_json::to_vec(message).map_err(SendError::NotJson)?;
        line.push(b'\n');
        let input = self.input.as_mut().ok_or(SendError::NotTaken)?;
        match timeout(WRITE_LIMIT, input.write_all(&line)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(SendError::NotTaken),
        }
    }

    /// How the agent ended, in a person's words. Kills it where it only stopped talking.
    pub(super) async fn why_it_ended(&mut self) -> String {
        match timeout(Duration::from_secs(1), self.tree.child.wait()).await {
            Ok(Ok(status)) => format!("its process exited: {status}"),
            Ok(Err(error)) => format!("its process cannot be checked: {error}"),
            Err(_) => {
                self.tree.kill();
                "it closed its output or sent an invalid message".to_owned()
            }
        }
    }

    /// The last lines that the agent wrote beside the protocol.
    pub(super) fn last_words(&self) -> String {
        self.last_words.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    /// Ends processes that a run left behind and that were handed to this process.
    pub(super) fn end_orphans(&self) {
        self.tree.kill_orphans();
    }

    /// Asks the agent to end, waits for at most `patience`, then ends it.
    pub(super) async fn close(mut self, patience: Duration) {
        let _ = self.send(&ToAgent::Exit).await;
        self.input = None;
        let _ = timeout(patience, self.tree.child.wait()).await;
    }
}

/// A text of the agent, at a length that a person reads.
pub(super) fn short(text: String) -> String {
    const LONGEST: usize = 4000;
    text.chars().take(LONGEST).collect()
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("the request cannot be serialized as JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("the agent no longer accepts messages")]
    NotTaken,
}

/// Reads until the end of the output, or until it is clear that no agent speaks there.
async fn read_messages(
    mut source: impl AsyncBufRead + Unpin,
    sender: mpsc::Sender<FromAgent>,
    last_words: Arc<Mutex<LastWords>>,
) {
    let mut noise = 0;
    let mut pace = Pace::new(MESSAGES_PER_SECOND);
    loop {
        pace.wait().await;
        let message = match next_line(&mut source, LINE_LIMIT).await {
            Line::End => return,
            Line::TooLong => None,
            Line::Text(line) => {
                let message = serde_json::from_slice(&line).ok();
                if message.is_none() {
                    keep(&last_words, &line);
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
                noise += 1;
                if noise > NOISE_LIMIT {
                    return;
                }
            }
        }
    }
}

async fn read_last_words(mut source: impl AsyncBufRead + Unpin, last_words: Arc<Mutex<LastWords>>) {
    let mut pace = Pace::new(PRINTED_LINES_PER_SECOND);
    loop {
        pace.wait().await;
        match next_line(&mut source, LINE_LIMIT).await {
            Line::End => return,
            Line::TooLong => {}
            Line::Text(line) => keep(&last_words, &line),
        }
    }
}

fn keep(last_words: &Mutex<LastWords>, line: &[u8]) {
    last_words.lock().unwrap_or_else(PoisonError::into_inner).add(line);
}

/// Lets through so many lines a second and no more; the writer waits, since its pipe fills.
struct Pace {
    lines_per_second: u32,
    until: Instant,
    lines: u32,
}

impl Pace {
    fn new(lines_per_second: u32) -> Self {
        Pace { lines_per_second, until: Instant::now() + Duration::from_secs(1), lines: 0 }
    }

    async fn wait(&mut self) {
        self.lines += 1;
        if self.lines <= self.lines_per_second {
            return;
        }
        sleep_until(self.until).await;
        *self = Pace::new(self.lines_per_second);
    }
}

/// The last lines of an output.
#[derive(Debug, Default)]
struct LastWords {
    lines: VecDeque<String>,
}

impl LastWords {
    fn add(&mut self, line: &[u8]) {
        let line = line.get(..LAST_WORDS_LINE_BYTES).unwrap_or(line);
        let text = String::from_utf8_lossy(line);
        let text: String = text.trim_end().chars().filter(|c| !c.is_control()).collect();
        if text.is_empty() {
            return;
        }
        if self.lines.len() == LAST_WORDS_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(text);
    }

    fn text(&self) -> String {
        self.lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}
