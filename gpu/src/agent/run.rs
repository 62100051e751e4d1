//! One run, from the request to its one outcome.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Patience;
use super::connection::{Connection, SendError, short};
use super::protocol::{
    EstimateRequest, FromAgent, Outcome, ProbeRequest, RunEvent, RunOutcome, RunRequest, ToAgent,
};

/// How an attempt to run ended.
pub(super) enum Attempt {
    /// With the run's outcome.
    Ended(Box<RunOutcome>),
    /// The agent died before the run began, so that trying again does nothing twice.
    NeverBegan(String),
}

/// Whether the process can serve another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Usable,
    Lost,
}

/// What is asked of the agent.
#[derive(Clone, Copy)]
pub(super) enum Work<'a> {
    Run(&'a RunRequest),
    Estimate(&'a EstimateRequest),
    Probe(&'a ProbeRequest),
}

impl<'a> Work<'a> {
    fn message(self, id: u64) -> ToAgent<'a> {
        match self {
            Work::Run(request) => ToAgent::Run { id, request },
            Work::Estimate(request) => ToAgent::Estimate { id, request },
            Work::Probe(request) => ToAgent::Probe { id, request },
        }
    }

    fn limit_seconds(self) -> u64 {
        match self {
            Work::Run(request) => request.limits.seconds,
            Work::Estimate(request) => request.run.limits.seconds,
            Work::Probe(request) => request.limits.seconds,
        }
    }
}

/// A run, an estimate or a probe, and what it needs.
pub(super) struct Run<'a> {
    pub(super) id: u64,
    pub(super) work: Work<'a>,
    pub(super) events: &'a mpsc::Sender<RunEvent>,
    pub(super) cancel: &'a CancellationToken,
    pub(super) patience: Patience,
}

impl Run<'_> {
    /// Sends the request and listens until the run is over, one way or another. The agent watches
    /// the limits itself; the deadline here is for an agent that does not.
    pub(super) async fn drive(&self, connection: &mut Connection) -> (Attempt, State) {
        match connection.send(&self.work.message(self.id)).await {
            Ok(()) => {}
            Err(error @ SendError::NotJson(_)) => {
                let outcome = RunOutcome::new(Outcome::Exited, error.to_string());
                return (Attempt::Ended(Box::new(outcome)), State::Usable);
            }
            Err(error @ SendError::NotTaken) => {
                return (Attempt::NeverBegan(error.to_string()), State::Lost);
            }
        }
        let mut begun = false;
        let mut cancelling = false;
        let limit = Duration::from_secs(self.work.limit_seconds()).min(LONGEST_RUN);
        let mut deadline = Instant::now() + limit + self.patience.grace;
        loop {
            let message = tokio::select! {
                biased;
                message = connection.next() => message,
                () = self.cancel.cancelled(), if !cancelling => {
                    cancelling = true;
                    deadline = deadline.min(Instant::now() + self.patience.grace);
                    if connection.send(&ToAgent::Cancel { id: self.id }).await.is_err() {
                        return (ended(Outcome::Cancelled, "cancelled"), State::Lost);
                    }
                    continue;
                }
                () = sleep_until(deadline) => return (self.given_up(cancelling), State::Lost),
            };
            // A flood of messages must not keep the deadline from being seen.
            if Instant::now() >= deadline {
                return (self.given_up(cancelling), State::Lost);
            }
            match message {
                Some(FromAgent::Started { id, pid }) if id == self.id => {
                    begun = true;
                    self.tell(RunEvent::Started { pid });
                }
                Some(FromAgent::Progress { id, stage, done, total }) if id == self.id => {
                    begun = true;
                    self.tell(RunEvent::Progress { stage, done, total });
                }
                Some(FromAgent::Finished {
                    id,
                    outcome,
                    message,
                    signal,
                    code,
                    mut frames,
                    activity,
                    stage,
                    done,
                    mut output,
                    mut side_effects,
                }) if id == self.id => {
                    frames.truncate(MOST_FRAMES);
                    if let Some(effects) = &mut side_effects {
                        effects.changes.truncate(MOST_CHANGES);
                    }
                    let message = message.map(short);
                    let activity = activity.map(short);
                    output.truncate(MOST_OUTPUT_LINES);
                    let output = output.into_iter().map(short).collect();
                    let outcome = RunOutcome {
                        outcome,
                        message,
                        signal,
                        code,
                        frames,
                        activity,
                        stage,
                        done,
                        output,
                        side_effects,
                    };
                    return (Attempt::Ended(Box::new(outcome)), State::Usable);
                }
                Some(FromAgent::Unusable { message }) => {
                    return (Attempt::NeverBegan(short(message)), State::Lost);
                }
                // What an older run has still to say, and what has no meaning here.
                Some(_) => {}
                None if cancelling => {
                    return (ended(Outcome::Cancelled, "cancelled"), State::Lost);
                }
                None => return (self.lost(connection, begun).await, State::Lost),
            }
        }
    }

    /// News that nobody takes in time are dropped: a slow reader must not slow the run.
    fn tell(&self, event: RunEvent) {
        let _ = self.events.try_send(event);
    }

    fn given_up(&self, cancelling: bool) -> Attempt {
        if cancelling {
            return ended(
                Outcome::Cancelled,
                "cancelled; the agent did not respond and was killed",
            );
        }
        let seconds = self.work.limit_seconds();
        let message = format!(
            "the run exceeded its limit of {seconds} s and the agent did not stop it, so both were \
            killed"
        );
        ended(Outcome::Timeout, message)
    }

    async fn lost(&self, connection: &mut Connection, begun: bool) -> Attempt {
        let mut reason =
            format!("lost the connection to the agent: {}", connection.why_it_ended().await);
        let last_words = connection.last_words();
        if !last_words.is_empty() {
            reason = format!("{reason}. Last output: {last_words}");
        }
        if begun { ended(Outcome::AgentLost, reason) } else { Attempt::NeverBegan(reason) }
    }
}

/// Frames that are passed on.
const MOST_FRAMES: usize = 100;
/// Lines of its output that are taken.
const MOST_OUTPUT_LINES: usize = 60;
/// The same of what the program wrote.
const MOST_CHANGES: usize = 500;

fn ended(outcome: Outcome, message: impl Into<String>) -> Attempt {
    Attempt::Ended(Box::new(RunOutcome::new(outcome, message)))
}

/// A limit of more than a month is none; it keeps the arithmetic of the clock from overflowing.
const LONGEST_RUN: Duration = Duration::from_secs(31 * 24 * 3600);
