//! `ridgeline compare [A] [B]`: compares two runs. Nothing is run.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ridgeline_analysis::base::printable::printable;
use ridgeline_analysis::base::units;
use ridgeline_analysis::compare::compare;
use ridgeline_analysis::compare::run::{InvalidRun, Run};
use ridgeline_analysis::present::compare::{RunLabel, document, markdown, page};
use ridgeline_analysis::present::panel::RunRecord;
use ridgeline_analysis::present::terminal::Style;

use super::CompareArgs;
use super::exit::{self, Failure};
use super::terminal::Terminal;
use super::{output_file, profile, run};
use crate::store::Store;
use crate::{git, history, pipeline};

/// The maximum size of a document from `profile --json` or `check --write-baseline`, in bytes.
const DOCUMENT_LIMIT: u64 = 64 << 20;

/// The number of runs in a list.
const LISTED: usize = 20;

/// The ways to name a run.
const NAMES: &str = "A run is `last`, `last~1`, its number in the list printed by `ridgeline \
    compare`, a commit (`HEAD`, `HEAD~1`, `main`, `a1b2c3d`), a recording folder, a trace, or the \
    output of `profile --json` or `check --write-baseline`";

/// The kinds of baselines.
const BASELINES: &str = "A baseline is the output of `check --write-baseline` or `profile --json`, \
    a recording or a trace";

/// Runs the subcommand.
pub(super) fn run(args: &CompareArgs, terminal: &Terminal) -> Result<(), Failure> {
    let is_printed = |file: &Option<PathBuf>| output_file::is_stdout(file.as_deref());
    if is_printed(&args.json) && is_printed(&args.markdown) {
        return Err(Failure::usage(
            "--json - and --markdown - print to the same output",
            "Write one of them to a file",
        ));
    }
    let project = profile::absolute(&args.project)?;
    let store = run::open_store()?;
    let root = match project.is_file() {
        true => profile::project_of(&project),
        false => with_runs(&store, project),
    };
    let Some(before) = &args.before else {
        return terminal.print(&list(&history::read(&store, &root), &root));
    };
    let (before, named_before) = find(before, &store, &root)?;
    let (after, named_after) = find(&args.after, &store, &root)?;
    let comparison = compare(&before, &after);
    let runs = [&named_before, &named_after];
    if let Some(file) = &args.json {
        output_file::write(&document(&comparison, runs), file)?;
    }
    if let Some(file) = &args.markdown {
        output_file::write_text(&markdown(&comparison, runs), file)?;
    }
    if is_printed(&args.json) || is_printed(&args.markdown) {
        return Ok(());
    }
    let style = Style { color: terminal.colors(), width: terminal.width() };
    terminal.print(&page(&comparison, runs, style))
}

/// The folder whose runs to compare: this one, or the nearest parent with runs.
fn with_runs(store: &Store, folder: PathBuf) -> PathBuf {
    let has_runs = |folder: &&Path| !history::read(store, folder).is_empty();
    folder.ancestors().find(has_runs).map(Path::to_owned).unwrap_or(folder)
}

/// Finds a run by name: an existing file or folder, or else a run of the project's history.
pub(super) fn find(name: &str, store: &Store, root: &Path) -> Result<(Run, RunLabel), Failure> {
    let path = PathBuf::from(name);
    if path.exists() {
        let named = RunLabel { name: name.to_owned(), ..RunLabel::default() };
        let run = of_path(&profile::absolute(&path)?, store);
        return Ok((run.map_err(|why| Failure::failed(why, NAMES))?, named));
    }
    let runs = history::read(store, root);
    let commit = git::Commit::named(root, name);
    let of_text = commit.as_ref().and_then(|commit| {
        let found = history::of_commit(store, root, runs.iter(), commit)?;
        Some(RunRecord { commit: Some(commit.digits.clone()), clean: true, ..found.clone() })
    });
    let digits = commit.as_ref().map_or(name, |commit| &commit.digits);
    let found = in_order(name, &runs).cloned();
    let found = found.or(of_text).or_else(|| recorded(digits, &runs).cloned());
    let found = found.ok_or_else(|| {
        let what = match &commit {
            _ if runs.is_empty() => {
                format!(
                    "file `{name}` does not exist, and {} has not been profiled yet",
                    root.display()
                )
            }
            Some(commit) => format!("{name} is {}, which has not been profiled", commit.short()),
            None => format!("no file or run named `{name}`"),
        };
        Failure::usage(what, NAMES)
    })?;
    let stored = history::run(store, root, found.when_unix_ms).ok_or_else(|| {
        Failure::failed(
            format!("per-line costs of the run `{name}` are not stored"),
            "Old runs, and runs of earlier versions, have only summary metrics",
        )
    })?;
    let named = RunLabel {
        name: name.to_owned(),
        when_unix_ms: Some(found.when_unix_ms),
        commit: found.commit,
        clean: found.clean,
    };
    Ok((stored, named))
}

/// Reads a run from a document, a recording, a trace, or a project folder (its newest run).
/// Otherwise, returns the reason.
fn of_path(path: &Path, store: &Store) -> Result<Run, String> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let mut is_no_document = None;
    if !path.is_dir() {
        match of_document(path).map_err(wrong)? {
            Ok(run) => return Ok(run),
            Err(InvalidRun::Newer(version)) => {
                return Err(wrong(InvalidRun::Newer(version).to_string()));
            }
            Err(why) => is_no_document = Some(why),
        }
    }
    let profiled = match pipeline::is_recording(path) {
        true => pipeline::open(path),
        false if path.is_dir() => pipeline::newest(store, path),
        false => Err("its name is not that of a trace".to_owned()),
    };
    let profiled = profiled.map_err(|why| match is_no_document {
        Some(document) => wrong(format!("{document}; and it is not a recording: {why}")),
        None => wrong(why),
    });
    Ok(Run::of(&profiled?.profile))
}

/// Reads the run in the output of `profile --json` or `check --write-baseline`, or returns why
/// another file, such as a trace, is not one.
///
/// # Errors
/// If it cannot be read.
fn of_document(file: &Path) -> Result<Result<Run, InvalidRun>, String> {
    let unread = |error: std::io::Error| format!("cannot be read: {error}");
    let facts = file.metadata().map_err(unread)?;
    if !facts.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if facts.len() > DOCUMENT_LIMIT {
        return Ok(Err(InvalidRun::Form("it is too large".to_owned())));
    }
    let mut bytes = Vec::new();
    let opened =
        File::open(file).and_then(|file| file.take(DOCUMENT_LIMIT).read_to_end(&mut bytes));
    opened.map_err(unread)?;
    Ok(Run::read(&bytes))
}

/// `last`, `last~2`, or a run's number. Runs are newest first.
fn in_order<'a>(name: &str, runs: &'a [RunRecord]) -> Option<&'a RunRecord> {
    match name.strip_prefix("last") {
        Some("") => runs.first(),
        Some("~") => runs.get(1),
        Some(back) => runs.get(back.strip_prefix('~')?.parse::<usize>().ok()?),
        None => {
            let when = name.parse::<u64>().ok()?;
            runs.iter().find(|run| run.when_unix_ms == when)
        }
    }
}

/// The newest run at the commit with these digits. Runs of the unmodified commit take precedence.
fn recorded<'a>(digits: &str, runs: &'a [RunRecord]) -> Option<&'a RunRecord> {
    let digits = digits.to_ascii_lowercase();
    if digits.len() < 4 || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let is_there = |run: &&RunRecord| {
        let known = run.commit.as_deref().filter(|known| !known.is_empty());
        known.is_some_and(|known| known.starts_with(&digits) || digits.starts_with(known))
    };
    let mut of_it = runs.iter().filter(is_there);
    of_it.clone().find(|run| run.clean).or_else(|| of_it.next())
}

/// Lists the runs of a project, newest first, with the names for comparing them.
fn list(runs: &[RunRecord], root: &Path) -> String {
    if runs.is_empty() {
        return format!("{} has not been profiled yet.\n", printable(&root.display().to_string()));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut text = String::new();
    for (back, run) in runs.iter().enumerate().take(LISTED) {
        let name = if back == 0 { "last".to_owned() } else { format!("last~{back}") };
        let ago = u64::try_from(now).unwrap_or(u64::MAX).saturating_sub(run.when_unix_ms);
        let commit: String = run.commit.iter().flat_map(|commit| commit.chars()).take(7).collect();
        let dirty = if run.clean || commit.is_empty() { "" } else { "+" };
        text += &format!(
            "{name:8}  {}  {:>12}  {:>9}  {:>9}  {:8}  {}\n",
            run.when_unix_ms,
            format!("{} ago", format_age(ago)),
            units::duration(run.time_ns),
            units::bytes(run.peak_bytes as f64),
            printable(&format!("{commit}{dirty}")),
            printable(&run.device),
        );
    }
    text += "\nCompare two runs with `ridgeline compare last~1 last`. A + marks code changed since \
        its commit.\n";
    text
}

/// Formats an age: `3 min`.
pub(super) fn format_age(milliseconds: u64) -> String {
    match milliseconds / 1000 {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Reads a baseline named by the user.
///
/// # Errors
/// If it does not exist or is not a run.
pub(super) fn baseline(file: &Path, store: &Store) -> Result<Run, Failure> {
    if !file.exists() {
        return Err(Failure {
            code: exit::USAGE,
            what: format!("the baseline {} does not exist", file.display()),
            next: format!("Create it with `ridgeline check --write-baseline {}`", file.display()),
        });
    }
    of_path(file, store).map_err(|why| Failure::usage(why, BASELINES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(when_unix_ms: u64, commit: &str, clean: bool) -> RunRecord {
        RunRecord { when_unix_ms, commit: Some(commit.to_owned()), clean, ..RunRecord::default() }
    }

    #[test]
    fn runs_have_names() {
        let runs = [
            run(1700, "a1b2c3d4e5f6", false),
            run(1600, "a1b2c3d4e5f6", true),
            run(1500, "ffff00001111", false),
        ];
        let found = |name: &str| {
            in_order(name, &runs).or_else(|| recorded(name, &runs)).map(|run| run.when_unix_ms)
        };
        assert_eq!(
            (found("last"), found("last~"), found("last~2")),
            (Some(1700), Some(1600), Some(1500))
        );
        assert_eq!(
            (found("1500"), found("a1b2c3d"), found("FFFF")),
            (Some(1500), Some(1600), Some(1500))
        );
        assert_eq!(found("a1b2c3d4e5f60000000000000000000000000000"), Some(1600));
        for nothing in ["last~3", "lastly", "last~x", "a1", "HEAD", "", "12"] {
            assert_eq!(found(nothing), None, "{nothing}");
        }
        let text = list(&runs, Path::new("/p"));
        assert!(text.contains("last~1") && text.contains("a1b2c3d+"), "{text}");
    }
}
