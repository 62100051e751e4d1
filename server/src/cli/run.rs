//! Shared by `profile` and `demo`: runs a plan with a progress bar until it ends or Ctrl-C, and
//! reports the outcome.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ridgeline_analysis::present::{failure, side_effects};
use ridgeline_gpu::agent::Entry;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::exit::{self, Failure};
use super::terminal::Terminal;
use crate::config;
use crate::pipeline::{Outcome, Pipeline, Plan, Problem, ProblemKind, ProgramFailure};
use crate::profiler::{Profiled, ProgressEvent};
use crate::store::Store;

/// Opens the folders of this user.
pub(super) fn open_store() -> Result<Store, Failure> {
    Store::open().map_err(|error| Failure::failed(error.to_string(), ""))
}

/// Runs asynchronous work to its end. Ctrl-C or a termination signal cancels the token of the work.
/// A second Ctrl-C ends the process at once.
pub(super) fn block_on<T, W: Future<Output = T>>(
    work: impl FnOnce(CancellationToken) -> W,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("could not start: {error}"), ""))?;
    let cancel = CancellationToken::new();
    let result = runtime.block_on(async {
        let interrupts = tokio::spawn(cancel_on_interrupt(cancel.clone()));
        let result = work(cancel.clone()).await;
        interrupts.abort();
        result
    });
    // Do not wait for blocking threads, such as a cancelled read.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(result)
}

async fn cancel_on_interrupt(cancel: CancellationToken) {
    interrupt().await;
    cancel.cancel();
    interrupt().await;
    std::process::exit(i32::from(exit::INTERRUPTED));
}

/// Waits for Ctrl-C or, on Unix, a termination signal.
async fn interrupt() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        // Without a handler, the system's default action ends the process.
        std::future::pending::<()>().await;
    }
}

/// Runs a plan, with a progress bar if standard error is a terminal.
pub(super) async fn run_plan(
    pipeline: &Pipeline,
    plan: &Plan,
    terminal: &Terminal,
    cancel: &CancellationToken,
) -> Result<Profiled, Failure> {
    measured(outcome_of(pipeline, plan, terminal, cancel).await?)
}

/// Returns the newest recording of the plan if nothing has changed since, else runs it. `fresh`
/// forces a run.
pub(super) async fn reuse_or_run(
    pipeline: &Pipeline,
    plan: &Plan,
    fresh: bool,
    terminal: &Terminal,
    cancel: &CancellationToken,
) -> Result<Profiled, Failure> {
    let known = if fresh { None } else { pipeline.reusable(plan).await };
    let Some((profiled, age)) = known else {
        return run_plan(pipeline, plan, terminal, cancel).await;
    };
    let minutes = age.as_secs() / 60;
    let age = match minutes {
        0 => "less than a minute ago".to_owned(),
        1 => "1 minute ago".to_owned(),
        _ => format!("{minutes} minutes ago"),
    };
    terminal.note(&format!(
        "Using the profile of {} from {age}: nothing has changed since. Use `--fresh` to run again",
        plan.entry_name()
    ));
    Ok(profiled)
}

/// Runs a plan and returns its outcome, including a failure of the program.
pub(super) async fn outcome_of(
    pipeline: &Pipeline,
    plan: &Plan,
    terminal: &Terminal,
    cancel: &CancellationToken,
) -> Result<Outcome, Failure> {
    announce(pipeline, plan, terminal, cancel).await?;
    let outcome =
        with_progress_bar(async |progress| pipeline.run(plan, &progress, cancel).await).await;
    if let Some(effects) = outcome.side_effects() {
        let sentences = [side_effects::warning(effects), side_effects::sentence(effects, true)];
        for sentence in sentences.into_iter().flatten() {
            terminal.note(&format!("note: {sentence}"));
        }
    }
    Ok(outcome)
}

/// The measurement, or the reason why there is none.
pub(super) fn measured(outcome: Outcome) -> Result<Profiled, Failure> {
    match outcome {
        Outcome::Measured(profiled) => Ok(*profiled),
        other => Err(failure_of(other)),
    }
}

/// Runs work that reports progress, with a progress bar if standard error is a terminal.
pub(super) async fn with_progress_bar<T>(
    work: impl AsyncFnOnce(mpsc::Sender<ProgressEvent>) -> T,
) -> T {
    let (progress, mut news) = mpsc::channel::<ProgressEvent>(64);
    let bar = progress_bar();
    let shown = async {
        while let Some(event) = news.recv().await {
            if let Some(share) = event.share {
                bar.set_position((share.clamp(0.0, 1.0) * 1000.0) as u64);
            }
            bar.set_message(event.stage);
        }
    };
    let (result, ()) = tokio::join!(work(progress), shown);
    bar.finish_and_clear();
    result
}

fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:24} {msg} {elapsed:.dim}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Prints the program and the Python before the run.
///
/// # Errors
/// If there is no Python with torch.
pub(super) async fn announce(
    pipeline: &Pipeline,
    plan: &Plan,
    terminal: &Terminal,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    let what = match &plan.entry {
        Entry::Provider { .. } => format!("{} (a provider file)", plan.entry_name()),
        _ => plan.display(),
    };
    let launched = plan.launched_by.as_ref().map(|by| format!(", launched by `{by}`"));
    let launched = launched.unwrap_or_default();
    terminal.note(&format!("Profiling {what} in {}{launched}", plan.root.display()));
    for note in &plan.notes {
        terminal.note(&format!("note: {note}"));
    }
    let bar = terminal.spinner("looking for a Python with torch");
    let found = tokio::select! {
        () = cancel.cancelled() => Err(Failure::interrupted()),
        found = pipeline.interpreter(plan) => found.map_err(failure_of),
    };
    bar.finish_and_clear();
    let found = found?;
    let torch = found.torch.as_ref().map_or("unknown", |torch| torch.version.as_str());
    let origin = if plan.python_is_named { String::new() } else { format!(", {}", found.origin) };
    terminal.note(&format!("with {} (torch {torch}{origin})", found.path.display()));
    Ok(())
}

/// Converts any outcome except a measurement to a message with an exit code.
pub(super) fn failure_of(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Measured(_) => Failure::failed("an existing measurement was not used", ""),
        Outcome::Cancelled => Failure::interrupted(),
        Outcome::Choose { root, runs, trains } => {
            let mut what = match trains {
                true => {
                    format!("several scripts in {} could be the training script:", root.display())
                }
                false => format!(
                    "no training script was found in {}. These scripts run PyTorch:",
                    root.display()
                ),
            };
            for run in &runs {
                let why =
                    if run.why.is_empty() { String::new() } else { format!("  ({})", run.why) };
                what.push_str(&format!("\n  {}{why}", run.command));
            }
            let first = runs.first().map_or("train.py", |run| run.command.as_str());
            let python = if first.starts_with("python ") { "" } else { "python " };
            let next = format!(
                "Run one of them in that folder: `ridgeline profile -- {python}{first}`, or set \
                `script = \"…\"` in {}",
                config::FILE_NAME
            );
            Failure { code: exit::NOTHING_TO_RUN, what, next }
        }
        Outcome::Failed(failed) => program_failure(&failed),
        Outcome::Problem(problem) => problem_failure(problem),
    }
}

fn problem_failure(problem: Problem) -> Failure {
    let code = match problem.kind {
        ProblemKind::Configuration => exit::USAGE,
        ProblemKind::NothingToRun => exit::NOTHING_TO_RUN,
        ProblemKind::NoPython => exit::NO_PYTHON,
        ProblemKind::Run | ProblemKind::Files => exit::FAILED,
    };
    Failure { code, what: problem.what, next: with_log(problem.next, problem.log.as_deref()) }
}

/// The program's exception as in Python, without the frames of Ridgeline and torch, followed by the
/// program's last output and the next step.
fn program_failure(failed: &ProgramFailure) -> Failure {
    let ProgramFailure { failure, root, log, side_effects: _ } = failed;
    let page = failure::page(failure, |path| root.join(path).display().to_string());
    Failure::failed(page.what, with_log(page.next, log.as_deref()))
}

fn with_log(next: String, log: Option<&Path>) -> String {
    match log {
        Some(log) if next.is_empty() => format!("Full output: {}", log.display()),
        Some(log) => format!("{next}\nFull output: {}", log.display()),
        None => next,
    }
}
