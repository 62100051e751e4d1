//! The programs that create an environment: which Python, which installer, and how to read its
//! output.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at, timeout};

use crate::interpreter::{
    Candidate, Consent, Interpreter, Origin, SystemEnvironment, is_program, last_lines, probe,
};
use crate::process::{OnParentExit, spawn};

/// Minor versions of Python 3 that torch has wheels for, best first: mature versions with
/// `sys.monitoring` (3.12 and later), before the newest and the old ones.
const MINOR_VERSIONS: [u32; 6] = [13, 12, 11, 10, 14, 9];

/// Returns the Pythons on `PATH` that can serve as a base, best first. Each one is started, because
/// a version manager has shims for versions that are not installed.
pub(crate) async fn base_pythons(surroundings: &SystemEnvironment) -> Vec<Interpreter> {
    let mut found: Vec<Interpreter> = Vec::new();
    for path in base_paths(surroundings) {
        let candidate = Candidate { path, origin: Origin::Path, needs_consent: false };
        if let Ok(interpreter) = probe(&candidate, surroundings, Consent::NotGiven).await
            && preference(interpreter.version).is_some()
            && !found.iter().any(|known| known.path == interpreter.path)
        {
            found.push(interpreter);
        }
    }
    // The sort is stable, so the order on PATH decides between equals.
    found.sort_by_key(|interpreter| preference(interpreter.version));
    found
}

/// Smaller is better. Returns `None` if torch has no wheel for the version.
fn preference(version: (u32, u32, u32)) -> Option<usize> {
    let (major, minor, _) = version;
    MINOR_VERSIONS.iter().position(|known| major == 3 && *known == minor)
}

fn base_paths(surroundings: &SystemEnvironment) -> Vec<PathBuf> {
    let mut names: Vec<String> = if surroundings.windows {
        vec!["python.exe".into(), "python3.exe".into()]
    } else {
        MINOR_VERSIONS.iter().map(|minor| format!("python3.{minor}")).collect()
    };
    if !surroundings.windows {
        names.extend(["python3".into(), "python".into()]);
    }
    let folders = surroundings.path_folders();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .filter(|path| is_program(path))
        .collect()
}

/// Finds uv on `PATH`. It installs several times faster than pip.
pub(crate) fn find_uv(surroundings: &SystemEnvironment) -> Option<PathBuf> {
    let name = if surroundings.windows { "uv.exe" } else { "uv" };
    surroundings
        .path_folders()
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
}

/// Why a step failed, according to its output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StepError {
    DiskFull,
    /// There is no torch wheel for this Python or machine. Contains the last lines of output.
    NoWheel(String),
    /// Contains the last lines of output.
    Other(String),
}

/// How much of a step's output is kept.
const KEPT_BYTES: usize = 64 * 1024;
/// Interval for measuring the environment's size while nothing is printed.
const SIZE_INTERVAL: Duration = Duration::from_millis(500);

/// Runs a program to its end and reports each line that it prints, together with the size of
/// `folder`.
pub(crate) async fn run_step(
    mut command: Command,
    limit: Duration,
    folder: &Path,
    on_progress: impl Fn(String, u64),
) -> Result<(), StepError> {
    let other = |reason: String| StepError::Other(reason);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tree =
        spawn(command, OnParentExit::Kill).await.map_err(|error| other(error.to_string()))?;
    let (sender, mut pieces) = mpsc::channel(16);
    if let Some(stdout) = tree.child.stdout.take() {
        tokio::spawn(pass_on(stdout, sender.clone()));
    }
    if let Some(stderr) = tree.child.stderr.take() {
        tokio::spawn(pass_on(stderr, sender.clone()));
    }
    drop(sender);
    let mut output = Vec::new();
    let mut line = String::new();
    let mut bytes = 0;
    let mut size_clock = interval_at(Instant::now() + SIZE_INTERVAL, SIZE_INTERVAL);
    let work = async {
        loop {
            tokio::select! {
                piece = pieces.recv() => {
                    let Some(piece) = piece else { break };
                    keep(&mut output, &piece);
                    if let Some(newest) = newest_line(&piece) {
                        line = newest;
                        on_progress(line.clone(), bytes);
                    }
                }
                _ = size_clock.tick() => {
                    bytes = size_in_background(folder).await;
                    on_progress(line.clone(), bytes);
                }
            }
        }
        tree.child.wait().await
    };
    match timeout(limit, work).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(cause(&output, &status.to_string())),
        Ok(Err(error)) => Err(other(error.to_string())),
        Err(_) => Err(other(format!("it took longer than {} minutes", limit.as_secs() / 60))),
    }
}

async fn pass_on(mut source: impl AsyncRead + Unpin, sender: mpsc::Sender<Vec<u8>>) {
    loop {
        let mut piece = Vec::with_capacity(4096);
        let is_read = source.read_buf(&mut piece).await.is_ok_and(|count| count > 0);
        if !is_read || sender.send(piece).await.is_err() {
            return;
        }
    }
}

/// Keeps the end of the output, where errors are.
fn keep(output: &mut Vec<u8>, piece: &[u8]) {
    output.extend_from_slice(piece);
    if output.len() > 2 * KEPT_BYTES {
        output.drain(..output.len() - KEPT_BYTES);
    }
}

/// Returns the last non-empty line of a piece of output. Progress bars end their lines with `\r`.
fn newest_line(piece: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(piece);
    let line = text.split(['\n', '\r']).map(str::trim).rfind(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(200).collect())
}

async fn size_in_background(folder: &Path) -> u64 {
    let folder = folder.to_owned();
    tokio::task::spawn_blocking(move || size_of(&folder)).await.unwrap_or(0)
}

/// Total size of all files below a folder, in bytes. Links are not followed.
fn size_of(folder: &Path) -> u64 {
    let mut waiting = vec![folder.to_owned()];
    let mut total: u64 = 0;
    while let Some(folder) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            match entry.metadata() {
                Ok(facts) if facts.is_dir() => waiting.push(entry.path()),
                Ok(facts) if facts.is_file() => total = total.saturating_add(facts.len()),
                _ => {}
            }
        }
    }
    total
}

/// Recognizes the error messages of pip, uv and Python.
fn cause(output: &[u8], status: &str) -> StepError {
    const DISK_FULL: [&str; 4] = [
        "No space left on device",
        "os error 28",
        "Disk quota exceeded",
        "not enough space on the disk",
    ];
    const NO_WHEEL: [&str; 4] = [
        "No matching distribution found for torch",
        "has no wheels with a matching",
        "no wheels are available",
        "Because torch has no",
    ];
    let text = String::from_utf8_lossy(output);
    if DISK_FULL.iter().any(|sign| text.contains(sign)) {
        return StepError::DiskFull;
    }
    let lines = last_lines(output, 10);
    let reason = if lines.is_empty() { status.to_owned() } else { lines };
    if NO_WHEEL.iter().any(|sign| text.contains(sign)) {
        return StepError::NoWheel(reason);
    }
    StepError::Other(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, expected: StepError) {
        assert_eq!(cause(output.as_bytes(), "exit status: 1"), expected);
    }

    #[test]
    fn a_full_disk_is_recognized_for_pip_and_uv() {
        let pip = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device";
        check(pip, StepError::DiskFull);
        check("  Caused by: failed to write (os error 28)", StepError::DiskFull);
    }

    #[test]
    fn a_python_without_torch_wheels_is_recognized() {
        let pip = "ERROR: No matching distribution found for torch>=2.4";
        check(pip, StepError::NoWheel(pip.into()));
    }

    #[test]
    fn a_silent_failure_shows_its_status() {
        check("\n \n", StepError::Other("exit status: 1".into()));
    }

    #[test]
    fn a_progress_bar_shows_its_last_state() {
        assert_eq!(newest_line(b"\x1b10%\r 20% \r\n").as_deref(), Some("20%"));
        assert_eq!(newest_line(b"\n\r"), None);
    }

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let mut output = Vec::new();
        for _ in 0..100 {
            keep(&mut output, &[b'x'; 4096]);
        }
        keep(&mut output, b"error");
        assert!(output.len() <= 2 * KEPT_BYTES);
        assert!(output.ends_with(b"error"));
    }

    #[test]
    fn mature_pythons_come_before_the_newest_and_the_old() {
        let mut versions = [(3, 9, 1), (3, 14, 0), (3, 12, 3), (2, 7, 18), (3, 8, 0), (3, 13, 1)];
        versions.sort_by_key(|version| preference(*version).unwrap_or(usize::MAX));
        assert_eq!(&versions[..4], &[(3, 13, 1), (3, 12, 3), (3, 14, 0), (3, 9, 1)]);
    }
}
