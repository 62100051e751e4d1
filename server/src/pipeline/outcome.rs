//! The result of profiling, with messages that say what is wrong, where, and what to do next.

use std::path::PathBuf;

use ridgeline_analysis::present::failure::run::Reader;
use ridgeline_analysis::present::failure::{self, FailurePage, RunFailure};
use ridgeline_analysis::profile::side_effects::SideEffects;
use ridgeline_gpu::agent::{Outcome as AgentOutcome, RunOutcome, RunRequest};
use ridgeline_gpu::interpreter::Interpreter;

use super::plan::Plan;
use super::{recording, run_facts};
use crate::profiler::{Profiled, RunChoice};

/// The result of profiling.
#[derive(Debug)]
pub(crate) enum Outcome {
    Measured(Box<Profiled>),
    Failed(Box<ProgramFailure>),
    /// It was stopped.
    Cancelled,
    /// Several programs may be the training run.
    Choose {
        root: PathBuf,
        /// The likeliest first.
        runs: Vec<RunChoice>,
        /// Whether they train. Otherwise they only run something with PyTorch.
        trains: bool,
    },
    /// Anything else that prevented a measurement.
    Problem(Problem),
}

impl Outcome {
    /// Returns the failure of the program, or of a run without a measurement.
    pub(crate) fn failure(&self) -> Option<&RunFailure> {
        match self {
            Outcome::Failed(failed) => Some(&failed.failure),
            Outcome::Problem(problem) => problem.run.as_deref(),
            Outcome::Measured(_) | Outcome::Cancelled | Outcome::Choose { .. } => None,
        }
    }

    /// Returns the program's writes that were kept from the disk, if it ran and was not allowed to
    /// write.
    pub(crate) fn side_effects(&self) -> Option<&SideEffects> {
        match self {
            Outcome::Measured(profiled) => profiled.profile.side_effects.as_deref(),
            Outcome::Failed(failed) => failed.side_effects.as_ref(),
            Outcome::Problem(problem) => problem.side_effects.as_deref(),
            Outcome::Cancelled | Outcome::Choose { .. } => None,
        }
    }
}

/// A failure of the user's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramFailure {
    /// The error, with paths relative to `root`.
    pub failure: RunFailure,
    pub root: PathBuf,
    /// The program's output, if stored.
    pub log: Option<PathBuf>,
    /// Its writes that were kept from the disk.
    pub side_effects: Option<SideEffects>,
}

/// What prevented a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The category, for exit codes.
    pub kind: ProblemKind,
    /// What is wrong, and where.
    pub what: String,
    /// What to do next; empty if `what` says it already.
    pub next: String,
    /// The run that ended without a measurement. `what` and `next` describe it for the terminal.
    pub run: Option<Box<RunFailure>>,
    /// The program's output, if stored.
    pub log: Option<PathBuf>,
    /// Its writes that were kept from the disk.
    pub side_effects: Option<Box<SideEffects>>,
}

/// The category of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProblemKind {
    /// The configuration is invalid.
    Configuration,
    NothingToRun,
    NoPython,
    Run,
    /// One of our files could not be written or read.
    Files,
}

impl Problem {
    /// Creates a problem without a run or log.
    pub(crate) fn new(
        kind: ProblemKind,
        what: impl Into<String>,
        next: impl Into<String>,
    ) -> Problem {
        let (what, next) = (what.into(), next.into());
        Problem { kind, what, next, run: None, log: None, side_effects: None }
    }

    /// Returns the message for an editor: both sentences.
    pub(crate) fn message(&self) -> String {
        if let Some(run) = &self.run {
            failure::report(run, Reader::Editor).message
        } else if self.next.is_empty() {
            self.what.clone()
        } else {
            format!("{}. {}", self.what, self.next)
        }
    }
}

/// Describes a run without a measurement.
pub(super) async fn without_measurement(
    plan: &Plan,
    request: &RunRequest,
    ended: &RunOutcome,
    interpreter: &Interpreter,
    folder: PathBuf,
) -> Outcome {
    if ended.outcome == AgentOutcome::Cancelled {
        return Outcome::Cancelled;
    }
    let log = Some(folder.join(LOG_FILE)).filter(|log| log.is_file());
    let side_effects = ended.side_effects.clone();
    if let Some((what, next)) = agent_failure(ended) {
        let side_effects = side_effects.map(Box::new);
        let (kind, run) = (ProblemKind::Run, None);
        return Outcome::Problem(Problem { kind, what, next, run, log, side_effects });
    }
    let (plan, request, ended) = (plan.clone(), request.clone(), ended.clone());
    let interpreter = interpreter.clone();
    let described = tokio::task::spawn_blocking(move || {
        let raised =
            (ended.outcome == AgentOutcome::Failed).then(|| recording::failure(&folder)).flatten();
        let is_raised = raised.is_some();
        let failure = raised.unwrap_or_else(|| run_facts::failure_without_exception(&ended));
        let mut failure =
            run_facts::add_run_facts(failure, &plan, &request, &ended, &interpreter, &folder);
        if let Some(rank) = rank_of(&request, &ended).filter(|_| is_raised) {
            failure.message = format!("{} (on {rank})", failure.message);
            if let Some(memory) = &mut failure.memory {
                memory.rank = Some(rank.to_owned());
            }
        }
        (failure, is_raised, plan.root)
    });
    match described.await {
        Ok((failure, true, root)) => {
            Outcome::Failed(Box::new(ProgramFailure { failure, root, log, side_effects }))
        }
        Ok((failure, false, _)) => {
            let FailurePage { what, next } = failure::page(&failure, str::to_owned);
            let (run, side_effects) = (Some(Box::new(failure)), side_effects.map(Box::new));
            Outcome::Problem(Problem { kind: ProblemKind::Run, what, next, run, log, side_effects })
        }
        Err(error) => Outcome::Problem(Problem::new(ProblemKind::Run, error.to_string(), "")),
    }
}

/// Describes a problem of the agent, which is not the program's fault.
fn agent_failure(ended: &RunOutcome) -> Option<(String, String)> {
    let detail = match ended.message.as_deref().map(str::trim) {
        None | Some("") => String::new(),
        Some(message) => format!(": {message}"),
    };
    match ended.outcome {
        AgentOutcome::Busy => {
            Some((format!("the agent is running something else{detail}"), "Try again".into()))
        }
        AgentOutcome::AgentLost => Some((
            format!("lost the connection to the agent{detail}"),
            "The next run starts a new agent; run `ridgeline doctor` for details".to_owned(),
        )),
        _ => None,
    }
}

/// Returns the rank that failed first, from the start of the agent's message: `rank 1`.
fn rank_of<'a>(request: &RunRequest, ended: &'a RunOutcome) -> Option<&'a str> {
    request.launcher.as_ref()?;
    let (rank, _) = ended.message.as_deref()?.split_once(": ")?;
    let number = rank.strip_prefix("rank ")?;
    number.bytes().all(|digit| digit.is_ascii_digit()).then_some(rank)
}

/// The program's output, in the recording's folder.
pub(super) const LOG_FILE: &str = "log.txt";
