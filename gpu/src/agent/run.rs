//! A single run, from the request to its outcome.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Timeouts;
use super::connection::{Connection, SendError, truncated};
use super::protocol::{
    EstimateRequest, FromAgent, Outcome, ProbeRequest, RunEvent, RunOutcome, RunRequest, ToAgent,
};

/// How an attempt to run ended.
pub(super) enum Attempt {
    /// With the run's outcome.
    Ended(Box<RunOutcome>),
    /// The agent died before the run began, so a retry repeats nothing.
    NeverStarted(String),
}

/// Whether the process can serve another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Usable,
    Lost,
}

/// The request to the agent.
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

/// A run, an estimate or a probe.
pub(super) struct Run<'a> {
    pub(super) id: u64,
    pub(super) work: Work<'a>,
    pub(super) events: &'a mpsc::Sender<RunEvent>,
    pub(super) cancel: &'a CancellationToken,
    pub(super) patience: Timeouts,
}

impl Run<'_> {
    /// Sends the request and waits for its end. The agent enforces the limits itself; the deadline
    /// here is for an agent that does not.
    pub(super) async fn drive(&self, connection: &mut Connection) -> (Attempt, State) {
        match connection.send(&self.work.message(self.id)).await {
            Ok(()) => {}
            Err(error @ SendError::NotJson(_)) => {
                let outcome = RunOutcome::new(Outcome::Exited, error.to_string());
                return (Attempt::Ended(Box::new(outcome)), State::Usable);
            }
            Err(error @ SendError::NotAccepted) => {
                return (Attempt::NeverStarted(error.to_string()), State::Lost);
            }
        }
        let mut started = false;
        let mut cancelling = false;
        let limit = Duration::from_secs(self.work.limit_seconds()).min(MAX_TIME_LIMIT);
        let mut deadline = Instant::now() + limit + self.patience.grace;
        loop {
            let message = tokio::select! {
                biased;
                message = connection.next() => message,
                () = self.cancel.cancelled(), if !cancelling => {
                    cancelling = true;
                    deadline = deadline.min(Instant::now() + self.patience.grace);
                    if connection.send(&ToAgent::Cancel { id: self.id }).await.is_err() {
                        return (ended_with(Outcome::Cancelled, "cancelled"), State::Lost);
                    }
                    continue;
                }
                () = sleep_until(deadline) => return (self.timed_out(cancelling), State::Lost),
            };
            // A flood of messages must not hide the deadline.
            if Instant::now() >= deadline {
                return (self.timed_out(cancelling), State::Lost);
            }
            match message {
                Some(FromAgent::Started { id, pid }) if id == self.id => {
                    started = true;
                    self.send_event(RunEvent::Started { pid });
                }
                Some(FromAgent::Progress { id, stage, done, total }) if id == self.id => {
                    started = true;
                    self.send_event(RunEvent::Progress { stage, done, total });
                }
                Some(FromAgent::Place { id, mut frame, activity }) if id == self.id => {
                    frame.path = truncated(frame.path);
                    frame.name = truncated(frame.name);
                    let activity = activity.map(truncated);
                    self.send_event(RunEvent::Place { frame, activity });
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
                    frames.truncate(MAX_FRAMES);
                    if let Some(effects) = &mut side_effects {
                        effects.changes.truncate(MAX_CHANGES);
                    }
                    let message = message.map(truncated);
                    let activity = activity.map(truncated);
                    output.truncate(MAX_OUTPUT_LINES);
                    let output = output.into_iter().map(truncated).collect();
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
                    return (Attempt::NeverStarted(truncated(message)), State::Lost);
                }
                // Messages of an earlier run, or without meaning here.
                Some(_) => {}
                None if cancelling => {
                    return (ended_with(Outcome::Cancelled, "cancelled"), State::Lost);
                }
                None => return (self.lost(connection, started).await, State::Lost),
            }
        }
    }

    /// Drops the event if the channel is full: a slow reader must not slow the run.
    fn send_event(&self, event: RunEvent) {
        let _ = self.events.try_send(event);
    }

    fn timed_out(&self, cancelling: bool) -> Attempt {
        if cancelling {
            return ended_with(
                Outcome::Cancelled,
                "cancelled; the agent did not respond and was killed",
            );
        }
        let seconds = self.work.limit_seconds();
        let message = format!(
            "the run exceeded its limit of {seconds} s and the agent did not stop it, so both were \
            killed"
        );
        ended_with(Outcome::Timeout, message)
    }

    async fn lost(&self, connection: &mut Connection, started: bool) -> Attempt {
        let mut reason =
            format!("lost the connection to the agent: {}", connection.describe_exit().await);
        let recent_output = connection.recent_output();
        if !recent_output.is_empty() {
            reason = format!("{reason}. Last output: {recent_output}");
        }
        if started { ended_with(Outcome::AgentLost, reason) } else { Attempt::NeverStarted(reason) }
    }
}

/// The maximum number of stack frames in an outcome.
const MAX_FRAMES: usize = 100;
/// The maximum number of output lines in an outcome.
const MAX_OUTPUT_LINES: usize = 60;
/// The maximum number of file changes in an outcome.
const MAX_CHANGES: usize = 500;

fn ended_with(outcome: Outcome, message: impl Into<String>) -> Attempt {
    Attempt::Ended(Box::new(RunOutcome::new(outcome, message)))
}

/// The maximum time limit. Keeps clock arithmetic from overflowing.
const MAX_TIME_LIMIT: Duration = Duration::from_secs(31 * 24 * 3600);
