//! How profiling ended, with messages that say what was wrong, where, and what to do next.

use std::path::PathBuf;

use ridgeline_analysis::present::failure::RunFailure;
use ridgeline_analysis::profile::side_effects::SideEffects;
use ridgeline_analysis::units;
use ridgeline_gpu::agent::{Outcome as Ended, RunOutcome, RunRequest};

use super::plan::Plan;
use super::recording;
use crate::config;
use crate::profiler::Profiled;

/// How profiling ended.
#[derive(Debug)]
pub enum Outcome {
    /// It was measured.
    Measured(Box<Profiled>),
    /// The program failed.
    Failed(Box<ProgramFailure>),
    /// Somebody stopped it.
    Cancelled,
    /// Several scripts fit.
    Choose {
        /// The project's root.
        root: PathBuf,
        /// Relative to the root, likeliest first, each with why it looks like training.
        scripts: Vec<(PathBuf, String)>,
    },
    /// Something is in the way.
    Problem(Problem),
}

impl Outcome {
    /// What the program wrote that was kept from the disk, where it ran and was not allowed to.
    pub fn side_effects(&self) -> Option<&SideEffects> {
        match self {
            Outcome::Measured(profiled) => profiled.profile.side_effects.as_deref(),
            Outcome::Failed(failed) => failed.side_effects.as_ref(),
            Outcome::Problem(problem) => problem.side_effects.as_deref(),
            Outcome::Cancelled | Outcome::Choose { .. } => None,
        }
    }
}

/// How the user's program failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFailure {
    /// What it raised, with paths relative to `root`.
    pub failure: RunFailure,
    /// The project's root.
    pub root: PathBuf,
    /// What the program printed, where it was kept.
    pub log: Option<PathBuf>,
    /// What it wrote that was kept from the disk.
    pub side_effects: Option<SideEffects>,
}

/// What is in the way of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What it is about, for exit codes.
    pub kind: ProblemKind,
    /// What is wrong, and where.
    pub what: String,
    /// What to do next; empty where `what` says it.
    pub next: String,
    /// What the program printed, where it was kept.
    pub log: Option<PathBuf>,
    /// What it wrote that was kept from the disk.
    pub side_effects: Option<Box<SideEffects>>,
}

/// What a problem is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The configuration says something that is not allowed.
    Configuration,
    /// There is no training script.
    NothingToRun,
    /// There is no Python with torch.
    NoPython,
    /// The run ended without a measurement.
    Run,
    /// A file of ours could not be written or read.
    Files,
}

impl Problem {
    /// A problem without a log.
    pub fn new(kind: ProblemKind, what: impl Into<String>, next: impl Into<String>) -> Problem {
        Problem { kind, what: what.into(), next: next.into(), log: None, side_effects: None }
    }

    /// Both sentences in one.
    pub fn message(&self) -> String {
        if self.next.is_empty() {
            self.what.clone()
        } else {
            format!("{}. {}", self.what, self.next)
        }
    }
}

/// What a run that left no measurement means for the person.
pub(super) async fn without_measurement(
    plan: &Plan,
    request: &RunRequest,
    ended: &RunOutcome,
    folder: PathBuf,
) -> Outcome {
    let log = Some(folder.join(LOG_FILE)).filter(|log| log.is_file());
    let side_effects = ended.side_effects.clone();
    if ended.outcome == Ended::Cancelled {
        return Outcome::Cancelled;
    }
    if ended.outcome == Ended::Failed {
        let folder = folder.clone();
        let failure = tokio::task::spawn_blocking(move || recording::failure(&folder)).await;
        if let Ok(Some(mut failure)) = failure {
            if let Some(rank) = rank_of(request, ended) {
                failure.message = format!("{} (on {rank})", failure.message);
                if let Some(memory) = &mut failure.memory {
                    memory.rank = Some(rank.to_owned());
                }
            }
            let root = plan.root.clone();
            return Outcome::Failed(Box::new(ProgramFailure { failure, root, log, side_effects }));
        }
    }
    let seen = match ended.outcome {
        Ended::Short => {
            let folder = folder.clone();
            tokio::task::spawn_blocking(move || recording::iterations_seen(&folder))
                .await
                .ok()
                .flatten()
        }
        _ => None,
    };
    let (what, next) = explain(&plan.entry_name(), request, ended, seen);
    let side_effects = side_effects.map(Box::new);
    Outcome::Problem(Problem { kind: ProblemKind::Run, what, next, log, side_effects })
}

/// The rank that failed first, as the agent's message begins: `rank 1`.
fn rank_of<'a>(request: &RunRequest, ended: &'a RunOutcome) -> Option<&'a str> {
    request.launcher.as_ref()?;
    let (rank, _) = ended.message.as_deref()?.split_once(": ")?;
    let number = rank.strip_prefix("rank ")?;
    number.bytes().all(|digit| digit.is_ascii_digit()).then_some(rank)
}

/// The program's output beside a recording.
pub const LOG_FILE: &str = "log.txt";

/// What happened, and what to do next.
fn explain(
    program: &str,
    request: &RunRequest,
    ended: &RunOutcome,
    seen: Option<u32>,
) -> (String, String) {
    let file = config::FILE_NAME;
    let detail = ended
        .message
        .as_deref()
        .map(str::trim)
        .filter(|message| !message.is_empty())
        .map(|message| format!(": {message}"))
        .unwrap_or_default();
    let code = ended.code.map(|code| format!(" with exit code {code}")).unwrap_or_default();
    match ended.outcome {
        Ended::Timeout => (
            format!(
                "{program} ran longer than {} s and was stopped{detail}",
                request.limits.seconds
            ),
            format!(
                "Let it reach its training loop sooner (a smaller data set, `arguments` in {file}), \
                 or raise `seconds` under [limits] in {file}"
            ),
        ),
        Ended::Memory => (
            format!(
                "{program} needed more memory than the limit of {} and was stopped{detail}",
                units::bytes(request.limits.memory_bytes as f64)
            ),
            format!("Use a smaller batch, or raise `memory` under [limits] in {file}"),
        ),
        Ended::Crashed => (
            format!("{program} was ended by {}{detail}", signal_name(ended.signal)),
            "Its output may say more".to_owned(),
        ),
        Ended::Short => {
            let count = match seen {
                Some(0) => "before its first iteration was complete".to_owned(),
                Some(1) => "after one iteration".to_owned(),
                Some(seen) => format!("after {seen} iterations"),
                None => "after too few iterations".to_owned(),
            };
            (
                format!("{program} ended {count}{code}{detail}"),
                "Ridgeline needs two iterations of the training loop at least: let it run longer, \
                 or name the script that trains"
                    .to_owned(),
            )
        }
        Ended::Exited => (
            format!("{program} ended{code} before it was measured{detail}"),
            "Its output may say why".to_owned(),
        ),
        Ended::Busy => (format!("the agent runs something else{detail}"), "Try again".to_owned()),
        Ended::AgentLost => (
            format!("the agent was lost{detail}"),
            "The next run starts another; `ridgeline doctor` looks closer".to_owned(),
        ),
        // Handled before; said all the same where a manifest could not be read.
        Ended::Failed | Ended::Complete | Ended::Cancelled => (
            format!("{program} failed, and its recording cannot be read{detail}"),
            "Its output may say why".to_owned(),
        ),
    }
}

fn signal_name(signal: Option<i32>) -> String {
    let name = match signal {
        Some(4) => "an illegal instruction",
        Some(6) => "an abort",
        Some(7) => "a bus error",
        Some(8) => "an arithmetic error",
        Some(9) => "a kill",
        Some(11) => "a segmentation fault",
        Some(15) => "a request to terminate",
        Some(other) => return format!("signal {other}"),
        None => return "a crash".to_owned(),
    };
    format!("{name} (signal {})", signal.unwrap_or_default())
}
