//! Plans a run of a project in which several scripts may be the training script, and none leads
//! clearly. In a terminal, the user chooses one, and the choice is remembered. Elsewhere, the first
//! one is taken, with a note, if they train.

use std::io::{self, BufRead, IsTerminal as _, Read as _, Write as _};
use std::path::Path;

use ridgeline_analysis::base::printable::printable;
use tokio_util::sync::CancellationToken;

use super::exit::Failure;
use super::run;
use super::terminal::Terminal;
use crate::pipeline::{Outcome, Pipeline, Plan, Request, first_few};
use crate::profiler::RunChoice;

/// The maximum length of an answer, in bytes.
const MAX_ANSWER: u64 = 100;

/// Whether there is a terminal to ask in.
pub(super) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Plans the run.
///
/// # Errors
/// If it cannot be planned, or if the user does not choose a script.
pub(super) async fn plan(
    pipeline: &Pipeline,
    request: Request,
    terminal: &Terminal,
    cancel: &CancellationToken,
) -> Result<Plan, Failure> {
    let (root, runs, trains) = match pipeline.plan(request.clone()).await {
        Err(Outcome::Choose { root, runs, trains }) => (root, runs, trains),
        result => return result.map_err(run::failure_of),
    };
    let is_interactive = is_interactive();
    let chosen = if is_interactive {
        let question = question(&root, &runs, trains);
        let asked = tokio::task::spawn_blocking({
            let count = runs.len();
            move || ask(&mut io::stdin().lock(), &question, count, trains)
        });
        tokio::select! {
            () = cancel.cancelled() => return Err(Failure::interrupted()),
            answer = asked => answer.ok().flatten(),
        }
    } else if !trains {
        // A script that does not train may do anything.
        None
    } else {
        runs.first().inspect(|first| terminal.note(&note(first, &runs))).map(|_| 0)
    };
    let Some(command) = chosen.and_then(|number| runs.get(number)).map(|run| run.command.clone())
    else {
        return Err(run::failure_of(Outcome::Choose { root, runs, trains }));
    };
    if is_interactive {
        match pipeline.store().remember_run(&root, &command) {
            Ok(()) => terminal.note("note: this choice is remembered for this folder"),
            Err(error) => terminal.note(&format!("warning: the choice was not saved: {error}")),
        }
    }
    let request = Request { remembered: Some(command), ..request };
    pipeline.plan(request).await.map_err(run::failure_of)
}

fn note(first: &RunChoice, runs: &[RunChoice]) -> String {
    let others: Vec<String> = runs.iter().skip(1).map(|run| run.command.clone()).collect();
    format!(
        "note: {} scripts could be the training script, and none is more likely than the others. \
        Profiling the first one, {}. The others: {}. For another one, pass its path instead \
        of the folder",
        runs.len(),
        first.command,
        first_few(&others)
    )
}

fn question(root: &Path, runs: &[RunChoice], trains: bool) -> String {
    let mut text = match trains {
        true => format!("Several scripts in {} could be the training script:\n", root.display()),
        false => format!(
            "No training script was found in {}. These scripts run PyTorch:\n",
            root.display()
        ),
    };
    let width = runs.iter().map(|run| run.command.chars().count()).max().unwrap_or_default();
    for (number, RunChoice { command, why }) in runs.iter().enumerate() {
        let line = format!("{:>4}  {command:width$}  {why}", number + 1);
        text.push_str(&printable(line.trim_end()));
        text.push('\n');
    }
    text
}

/// Asks until the answer is one of `count` numbers, and returns it counted from 0. Enter takes the
/// first one, the likeliest, if it trains. Returns `None` if input ends.
fn ask(input: &mut impl BufRead, question: &str, count: usize, has_default: bool) -> Option<usize> {
    let mut out = io::stderr().lock();
    // A closed standard error is ignored.
    let _ = write!(out, "{question}");
    let default = if has_default { ", Enter for 1" } else { "" };
    loop {
        let _ = write!(out, "Which one should be profiled? [1-{count}{default}] ")
            .and_then(|()| out.flush());
        let mut answer = String::new();
        let read = input.by_ref().take(MAX_ANSWER).read_line(&mut answer).ok()?;
        if read == 0 {
            return None;
        }
        if has_default && answer.trim().is_empty() {
            return Some(0);
        }
        if let Ok(number @ 1..) = answer.trim().parse::<usize>()
            && number <= count
        {
            return Some(number - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(input: &str, has_default: bool) -> Option<usize> {
        ask(&mut input.as_bytes(), "", 3, has_default)
    }

    #[test]
    fn enter_takes_the_likeliest_of_scripts_that_train() {
        assert_eq!(answered("\n", true), Some(0));
        assert_eq!(answered("\n2\n", false), Some(1));
        assert_eq!(answered("4\n0\nx\n3\n", true), Some(2));
        assert_eq!(answered("", true), None);
    }
}
