//! A run that failed, as a person reads it: where it stopped in their code, what was raised, the last lines of
//! what it printed, and the likely cause with what to do.

pub mod advice;
mod ended;
pub mod run;

use serde::Serialize;

use self::advice::{Advice, advice};
pub(super) use self::ended::is_ended;
use self::run::{Reader, RunFacts};
use super::out_of_memory::OutOfMemory;
use ridgeline_base::units;

/// Why a run failed, with paths as the profile has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFailure {
    /// `RuntimeError`.
    pub error_type: String,
    /// The exception's own text.
    pub message: String,
    /// `exception`, `syntax`, `exit` or `memory`; of a run that raised nothing `timeout`, `memory_limit`, `crash`,
    /// `short` or `exited`.
    pub kind: String,
    /// The user's frames, outermost first.
    pub frames: Vec<FailureFrame>,
    /// For out of memory: bytes that were asked for.
    pub requested_bytes: Option<u64>,
    /// For out of memory on a GPU: what held it.
    pub memory: Option<Box<OutOfMemory>>,
    /// What is known of the run.
    pub run: Box<RunFacts>,
}

/// One frame of a failed run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FailureFrame {
    /// Relative to the project's root.
    pub path: String,
    /// Counted from 1.
    pub line: u32,
    /// The function's name.
    pub name: String,
}

/// What is shown at the line that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureReport {
    /// Where: the innermost user frame; nothing where no frame is known.
    pub at: Option<FailureFrame>,
    /// `RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x10 and 20x5)`.
    pub message: String,
    /// The frames around it, innermost first, each with what to say: `called from train`.
    pub related: Vec<(FailureFrame, String)>,
    /// The likely cause, where one is sure; `message` has its text.
    pub advice: Option<Advice>,
}

/// The same as a page of the terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailurePage {
    /// What happened, and where.
    pub what: String,
    /// The last lines of what the program printed, and what to do; may be empty.
    pub next: String,
}

/// A message is cut after this many characters.
const MAX_MESSAGE: usize = 1_000;
/// Deep recursion is told by its innermost frames.
const MAX_RELATED: usize = 20;

/// Frames around the innermost one on a page of the terminal.
const MOST_CALLERS: usize = 4;
/// Lines of output on one.
const MOST_OUTPUT: usize = 6;

/// How a failure is told at its line.
pub fn report(failure: &RunFailure, reader: Reader) -> FailureReport {
    let mut frames = failure.frames.iter().rev().filter(|frame| frame.line > 0).cloned();
    let at = frames.next();
    let held = failure.memory.iter().flat_map(|memory| memory.places());
    let related = frames
        .take(MAX_RELATED)
        .map(|frame| {
            let text = match frame.name.as_str() {
                "" | "<module>" => "called from here".to_owned(),
                name => format!("called from {}", shorten(name, 100)),
            };
            (frame, text)
        })
        .chain(held)
        .collect();
    let advice = advice(failure, reader);
    let mut message = message(failure, reader);
    let is_silent = ended::is_ended(failure) || failure.kind == "exit";
    if is_silent
        && let Some(last) = own_output(failure, 1).last().filter(|line| !message.ends_with(*line))
    {
        message.push_str(&format!("\nLast output: {last}"));
    }
    match &advice {
        Some(advice) => message.push_str(&format!("\n{}", advice.text)),
        None => {
            if let Some(next) = ended::what_to_do(failure, reader) {
                message.push_str(&format!("\n{next}"));
            }
        }
    }
    FailureReport { at, message, related, advice }
}

/// How it is told in the terminal. `place` says how a file of the project is named.
pub fn page(failure: &RunFailure, place: impl Fn(&str) -> String) -> FailurePage {
    let reader = Reader::Terminal;
    let mut what = String::new();
    let mut frames = failure.frames.iter().rev();
    if let Some(frame) = frames.next().filter(|_| !ended::is_ended(failure)) {
        what.push_str(&format!("{}:{}: ", place(&frame.path), frame.line));
    }
    what.push_str(&message(failure, reader).replace('\n', "\n  "));
    if !ended::is_ended(failure) {
        let callers: Vec<&FailureFrame> = frames.collect();
        for frame in callers.iter().take(MOST_CALLERS) {
            let name = shorten(&frame.name, 100);
            what.push_str(&format!("\n  called from {}:{} in {name}", frame.path, frame.line));
        }
        if callers.len() > MOST_CALLERS {
            what.push_str(&format!("\n  and {} more callers", callers.len() - MOST_CALLERS));
        }
    }
    let mut so_far = how_far(failure);
    let output = own_output(failure, MOST_OUTPUT);
    if !output.is_empty() {
        let whose = match so_far.is_empty() {
            true => "Last output of the program:",
            false => "Last output:",
        };
        so_far = format!("{so_far} {whose}").trim_start().to_owned();
    }
    let mut next = vec![so_far];
    next.extend(output.iter().map(|line| format!("  | {line}")));
    match advice(failure, reader) {
        Some(advice) => next.push(advice.text),
        None => next.extend(ended::what_to_do(failure, reader)),
    }
    next.retain(|line| !line.is_empty());
    FailurePage { what, next: next.join("\n") }
}

/// The last lines that say something new: an exception's own text, and those behind it, are told already.
pub(super) fn own_output(failure: &RunFailure, most: usize) -> Vec<String> {
    let told = told_already(failure);
    let is_told = |line: &str| {
        let whole = line.trim_end_matches('…');
        // A long line was cut.
        let is_cut = whole.len() < line.len() && whole.len() > 100;
        told.iter().any(|text| line.ends_with(text) || is_cut && text.starts_with(whole))
    };
    let of_worker = format!("{}: Caught ", failure.error_type);
    let mut lines: Vec<&String> = failure.run.output.iter().collect();
    // What the traceback ends with, and the further lines of its message.
    if failure.kind == "syntax" {
        let at = lines.iter().rposition(|line| line.starts_with("  File \""));
        lines.truncate(at.unwrap_or(lines.len()));
    } else if failure.kind != "exit"
        && let Some(at) =
            lines.iter().position(|line| is_told(line) || line.starts_with(&of_worker))
    {
        lines.truncate(at);
    }
    let from = lines.len().saturating_sub(most);
    lines.iter().skip(from).map(|line| shorten(line, 200)).collect()
}

/// The lines that a traceback ends with: of the exception and of those behind it.
fn told_already(failure: &RunFailure) -> Vec<String> {
    if failure.error_type.is_empty() {
        return Vec::new();
    }
    let mut told: Vec<String> = (failure.message.lines())
        .filter_map(|line| line.strip_prefix("caused by "))
        .map(str::to_owned)
        .collect();
    let first = failure.message.lines().next().unwrap_or_default();
    // The text of a worker's exception is told with where that was.
    told.push(match first.split(" (in ").next().unwrap_or_default().trim_end() {
        "" => failure.error_type.clone(),
        own => format!("{}: {own}", failure.error_type),
    });
    told
}

/// How far the program came.
fn how_far(failure: &RunFailure) -> String {
    let program = match failure.run.program.as_str() {
        "" => "The program",
        program => program,
    };
    match (failure.kind.as_str(), failure.run.iterations) {
        ("syntax", _) | (_, None) => String::new(),
        _ if ended::is_ended(failure) => String::new(),
        (_, Some(0)) => format!("{program} exited before its first iteration."),
        (_, Some(1)) => format!("{program} exited after one iteration."),
        (_, Some(seen)) => format!("{program} exited after {seen} iterations."),
    }
}

fn message(failure: &RunFailure, reader: Reader) -> String {
    if ended::is_ended(failure) {
        return ended::what(failure, reader);
    }
    let own = shorten(failure.message.trim(), MAX_MESSAGE);
    let named = match (failure.error_type.as_str(), own.as_str()) {
        ("", "") => "The run failed without an error message".to_owned(),
        ("", own) => own.to_owned(),
        (error, "") => error.to_owned(),
        (error, own) => format!("{error}: {own}"),
    };
    match failure.kind.as_str() {
        "memory" if failure.memory.is_some() => memory_report(failure),
        "memory" => {
            let asked = failure.requested_bytes.map_or_else(
                || "Out of memory at this line".to_owned(),
                |bytes| {
                    format!("Out of memory: tried to allocate {} at this line", binary_bytes(bytes))
                },
            );
            format!("{asked}\n{named}")
        }
        "exit" => exit_message(failure),
        _ => named,
    }
}

/// What a program that exits by itself said, where that is known.
fn exit_message(failure: &RunFailure) -> String {
    let own = shorten(failure.message.trim(), MAX_MESSAGE);
    match advice::usage_error(&failure.run.output) {
        // What the parser raised within says the same.
        Some(said) => {
            let exit = own.lines().next().unwrap_or_default();
            format!("{exit}: {}", shorten(said, MAX_MESSAGE))
        }
        None => own,
    }
}

/// What held the memory, in place of the allocator's own message. Another exception that was raised
/// from it keeps its text.
fn memory_report(failure: &RunFailure) -> String {
    let Some(memory) = &failure.memory else { return String::new() };
    let mut lines = vec![memory.headline()];
    if !failure.error_type.ends_with("OutOfMemoryError") {
        let own = failure.message.split("\ncaused by ").next().unwrap_or_default().trim();
        lines.push(shorten(&format!("{}: {own}", failure.error_type), MAX_MESSAGE));
    }
    lines.extend(memory.details());
    lines.join("\n")
}

/// PyTorch's own messages count in GiB, so that this text does not contradict the one below it.
fn binary_bytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    let (value, unit) = match bytes {
        bytes if bytes < 1024.0 => (bytes, "B"),
        bytes if bytes < 1024.0 * 1024.0 => (bytes / 1024.0, "KiB"),
        bytes if bytes < 1024.0 * 1024.0 * 1024.0 => (bytes / (1024.0 * 1024.0), "MiB"),
        bytes => (bytes / (1024.0 * 1024.0 * 1024.0), "GiB"),
    };
    format!("{} {unit}", units::significant(value))
}

/// As it is written in a sentence: `train.csv`.
fn quoted(text: &str) -> String {
    format!("`{}`", shorten(text, 200).replace('`', "'"))
}

/// At most `limit` characters.
fn shorten(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(
        kind: &str,
        error_type: &str,
        message: &str,
        requested: Option<u64>,
        expected: Expect,
    ) {
        let frame =
            |line, name: &str| FailureFrame { path: "a.py".into(), line, name: name.into() };
        let failure = RunFailure {
            error_type: error_type.into(),
            message: message.into(),
            kind: kind.into(),
            frames: vec![frame(30, "<module>"), frame(20, "train"), frame(10, "Net.forward")],
            requested_bytes: requested,
            ..RunFailure::default()
        };
        let told = report(&failure, Reader::Terminal);
        let mut text = format!("{}: {}\n", told.at.map_or(0, |at| at.line), told.message);
        for (frame, said) in told.related {
            text += &format!("{}: {said}\n", frame.line);
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn an_exception() {
        check(
            "exception",
            "ValueError",
            "bad shape\n",
            None,
            expect![[r#"
            10: ValueError: bad shape
            20: called from train
            30: called from here
        "#]],
        );
    }

    #[test]
    fn out_of_memory() {
        check(
            "memory",
            "OutOfMemoryError",
            "CUDA out of memory.",
            Some(1 << 31),
            expect![[r#"
            10: Out of memory: tried to allocate 2.0 GiB at this line
            OutOfMemoryError: CUDA out of memory.
            20: called from train
            30: called from here
        "#]],
        );
        check(
            "memory",
            "",
            "",
            None,
            expect![[r#"
            10: Out of memory at this line
            The run failed without an error message
            20: called from train
            30: called from here
        "#]],
        );
    }

    #[test]
    fn an_exit() {
        check(
            "exit",
            "SystemExit",
            "the program exited with code 1",
            None,
            expect![[r#"
            10: the program exited with code 1
            20: called from train
            30: called from here
        "#]],
        );
    }

    #[test]
    fn a_script_of_a_package_is_run_as_a_module() {
        let told = |path: &str| {
            let frame = FailureFrame { path: path.into(), line: 2, ..FailureFrame::default() };
            let failure = RunFailure {
                error_type: "ImportError".into(),
                message: "attempted relative import with no known parent package".into(),
                kind: "exception".into(),
                frames: vec![frame],
                ..RunFailure::default()
            };
            report(&failure, Reader::Terminal).message
        };
        expect![[r#"
            ImportError: attempted relative import with no known parent package
            This file must run as part of its package: set `module = "zoo.nets.train"` in ridgeline.toml to run it like `python -m zoo.nets.train`."#]]
        .assert_eq(&told("zoo/nets/train.py"));
        for path in ["train.py", "/zoo/train.py", "../train.py", "zoo/train"] {
            assert_eq!(told(path).lines().count(), 1, "{path}");
        }
    }

    /// A page of the terminal is a paragraph, a few lines of output, and what to do.
    #[test]
    fn a_page() {
        let frame = |line| FailureFrame { path: "a.py".into(), line, name: format!("f{line}") };
        let mut failure = RunFailure {
            error_type: "FileNotFoundError".into(),
            message: "[Errno 2] No such file or directory: 'data/x.csv'".into(),
            kind: "exception".into(),
            frames: (1..=9).map(frame).collect(),
            ..RunFailure::default()
        };
        failure.run.program = "train.py".into();
        failure.run.iterations = Some(0);
        failure.run.output = (0..9).map(|line| format!("line {line}")).collect();
        failure.run.output.push(format!("FileNotFoundError: {}", failure.message));
        let shown = page(&failure, |path| format!("/project/{path}"));
        expect![[r#"
            /project/a.py:9: FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'
              called from a.py:8 in f8
              called from a.py:7 in f7
              called from a.py:6 in f6
              called from a.py:5 in f5
              and 4 more callers
            train.py exited before its first iteration. Last output:
              | line 3
              | line 4
              | line 5
              | line 6
              | line 7
              | line 8
            The file `data/x.csv` does not exist. Relative paths start at the project folder. Put the data there, or pass another path if the program has an option for it. Pass the program's own arguments after `--`: `ridgeline profile train.py -- --data PATH`. To keep them, set `arguments` in ridgeline.toml."#]].assert_eq(&format!("{}\n{}", shown.what, shown.next));
    }

    #[test]
    fn without_frames() {
        assert_eq!(report(&RunFailure::default(), Reader::Terminal).at, None);
    }

    #[test]
    fn deep_recursion_and_long_messages_are_cut() {
        let frame = FailureFrame { path: "é".into(), line: 1, name: "é".repeat(9_000) };
        let failure = RunFailure {
            message: "漢".repeat(9_000),
            frames: vec![frame; 9_000],
            ..RunFailure::default()
        };
        let told = report(&failure, Reader::Terminal);
        assert_eq!((told.related.len(), told.message.chars().count()), (20, 1_001));
    }
}
