//! The report of a failed run: where it stopped in the user's code, the exception, the last lines
//! of output, and the likely cause with a fix.

pub mod advice;
pub mod run;
mod without_exception;

use serde::Serialize;

use self::advice::{Advice, advice};
use self::run::{Reader, RunFacts};
pub(super) use self::without_exception::ended_without_exception;
use super::out_of_memory::OutOfMemory;
use ridgeline_base::units;

/// Why a run failed. Paths are as in the profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFailure {
    /// `RuntimeError`.
    pub error_type: String,
    /// The message of the exception.
    pub message: String,
    /// `exception`, `syntax`, `exit` or `memory`; for runs that ended without an exception
    /// `timeout`, `memory_limit`, `crash`, `short` or `exited`.
    pub kind: String,
    /// The user's frames, outermost first.
    pub frames: Vec<FailureFrame>,
    /// For out of memory: the size of the failed allocation, in bytes.
    pub requested_bytes: Option<u64>,
    /// For out of memory on a GPU: what the memory was used for.
    pub memory: Option<Box<OutOfMemory>>,
    /// Facts about the run.
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

/// The text shown at the line that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureReport {
    /// The innermost user frame. `None` if no frame is known.
    pub at: Option<FailureFrame>,
    /// `RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x10 and 20x5)`.
    pub message: String,
    /// The calling frames, innermost first, each with its label: `called from train`.
    pub related: Vec<(FailureFrame, String)>,
    /// The likely cause, if a rule is sure; `message` includes its text.
    pub advice: Option<Advice>,
}

/// The report for the terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailurePage {
    /// What happened, and where.
    pub what: String,
    /// The last lines of output, and what to do. May be empty.
    pub next: String,
}

/// The maximum length of a message, in characters.
const MAX_MESSAGE: usize = 1_000;
/// The maximum number of calling frames. For deep recursion these are the innermost ones.
const MAX_RELATED: usize = 20;

/// The maximum number of calling frames in the terminal.
const MAX_CALLERS: usize = 4;
/// The maximum number of lines of program output in the terminal.
const MAX_OUTPUT_LINES: usize = 6;

/// Builds the report that is shown at the line that failed.
pub fn report(failure: &RunFailure, reader: Reader) -> FailureReport {
    let mut frames = failure.frames.iter().rev().filter(|frame| frame.line > 0).cloned();
    let at = frames.next();
    let memory_places = failure.memory.iter().flat_map(|memory| memory.places());
    let related = frames
        .take(MAX_RELATED)
        .map(|frame| {
            let text = match frame.name.as_str() {
                "" | "<module>" => "called from here".to_owned(),
                name => format!("called from {}", shorten(name, 100)),
            };
            (frame, text)
        })
        .chain(memory_places)
        .collect();
    let advice = advice(failure, reader);
    let mut message = message(failure, reader);
    let is_silent = without_exception::ended_without_exception(failure) || failure.kind == "exit";
    if is_silent
        && let Some(last) = own_output(failure, 1).last().filter(|line| !message.ends_with(*line))
    {
        message.push_str(&format!("\nLast output: {last}"));
    }
    match &advice {
        Some(advice) => message.push_str(&format!("\n{}", advice.text)),
        None => {
            if let Some(next) = without_exception::suggestion(failure, reader) {
                message.push_str(&format!("\n{next}"));
            }
        }
    }
    FailureReport { at, message, related, advice }
}

/// Builds the report for the terminal. `place` returns the displayed path of a project file.
pub fn page(failure: &RunFailure, place: impl Fn(&str) -> String) -> FailurePage {
    let reader = Reader::Terminal;
    let mut what = String::new();
    let mut frames = failure.frames.iter().rev();
    if let Some(frame) =
        frames.next().filter(|_| !without_exception::ended_without_exception(failure))
    {
        what.push_str(&format!("{}:{}: ", place(&frame.path), frame.line));
    }
    what.push_str(&message(failure, reader).replace('\n', "\n  "));
    if !without_exception::ended_without_exception(failure) {
        let callers: Vec<&FailureFrame> = frames.collect();
        for frame in callers.iter().take(MAX_CALLERS) {
            let name = shorten(&frame.name, 100);
            what.push_str(&format!("\n  called from {}:{} in {name}", frame.path, frame.line));
        }
        if callers.len() > MAX_CALLERS {
            what.push_str(&format!("\n  and {} more callers", callers.len() - MAX_CALLERS));
        }
    }
    let mut progress = progress_before_exit(failure);
    let output = own_output(failure, MAX_OUTPUT_LINES);
    if !output.is_empty() {
        let label = match progress.is_empty() {
            true => "Last output of the program:",
            false => "Last output:",
        };
        progress = format!("{progress} {label}").trim_start().to_owned();
    }
    let mut next = vec![progress];
    next.extend(output.iter().map(|line| format!("  | {line}")));
    match advice(failure, reader) {
        Some(advice) => next.push(advice.text),
        None => next.extend(without_exception::suggestion(failure, reader)),
    }
    next.retain(|line| !line.is_empty());
    FailurePage { what, next: next.join("\n") }
}

/// Returns the last lines of output, without the traceback's final lines, which repeat the
/// exceptions that the report already shows.
pub(super) fn own_output(failure: &RunFailure, limit: usize) -> Vec<String> {
    let reported = reported_lines(failure);
    let is_reported = |line: &str| {
        let uncut = line.trim_end_matches('…');
        // A long line was truncated.
        let is_cut = uncut.len() < line.len() && uncut.len() > 100;
        reported.iter().any(|text| line.ends_with(text) || is_cut && text.starts_with(uncut))
    };
    let worker_prefix = format!("{}: Caught ", failure.error_type);
    let mut lines: Vec<&String> = failure.run.output.iter().collect();
    // Drop the end of the traceback and the remaining lines of its message.
    if failure.kind == "syntax" {
        let at = lines.iter().rposition(|line| line.starts_with("  File \""));
        lines.truncate(at.unwrap_or(lines.len()));
    } else if failure.kind != "exit"
        && let Some(at) =
            lines.iter().position(|line| is_reported(line) || line.starts_with(&worker_prefix))
    {
        lines.truncate(at);
    }
    let from = lines.len().saturating_sub(limit);
    lines.iter().skip(from).map(|line| shorten(line, 200)).collect()
}

/// The final lines of the traceback: the exception and its causes.
fn reported_lines(failure: &RunFailure) -> Vec<String> {
    if failure.error_type.is_empty() {
        return Vec::new();
    }
    let mut reported: Vec<String> = (failure.message.lines())
        .filter_map(|line| line.strip_prefix("caused by "))
        .map(str::to_owned)
        .collect();
    let first = failure.message.lines().next().unwrap_or_default();
    if !first.contains(char::is_alphanumeric) && !failure.message.trim().is_empty() {
        // Rules and empty lines are not among the lines of output.
        reported.push(format!("{}:", failure.error_type));
        return reported;
    }
    // The message of a worker's exception ends with its location.
    reported.push(match first.split(" (in ").next().unwrap_or_default().trim_end() {
        "" => failure.error_type.clone(),
        own => format!("{}: {own}", failure.error_type),
    });
    reported
}

/// How many iterations the program ran, as a sentence.
fn progress_before_exit(failure: &RunFailure) -> String {
    let program = match failure.run.program.as_str() {
        "" => "The program",
        program => program,
    };
    match (failure.kind.as_str(), failure.run.iterations) {
        ("syntax", _) | (_, None) => String::new(),
        _ if without_exception::ended_without_exception(failure) => String::new(),
        (_, Some(0)) => format!("{program} exited before its first iteration."),
        (_, Some(1)) => format!("{program} exited after one iteration."),
        (_, Some(seen)) => format!("{program} exited after {seen} iterations."),
    }
}

fn message(failure: &RunFailure, reader: Reader) -> String {
    if without_exception::ended_without_exception(failure) {
        return without_exception::description(failure, reader);
    }
    let text = shorten(failure.message.trim(), MAX_MESSAGE);
    let named = match (failure.error_type.as_str(), text.as_str()) {
        ("", "") => "The run failed without an error message".to_owned(),
        ("", text) => text.to_owned(),
        // An assertion without a message is its own.
        (error, "") if failure.run.source.trim_start().starts_with("assert") => {
            format!("{error}: {}", shorten(failure.run.source.trim(), MAX_MESSAGE))
        }
        (error, "") => error.to_owned(),
        (error, text) => format!("{error}: {text}"),
    };
    match failure.kind.as_str() {
        "memory" if failure.memory.is_some() => memory_report(failure),
        "memory" => {
            let headline = failure.requested_bytes.map_or_else(
                || "Out of memory at this line".to_owned(),
                |bytes| {
                    format!("Out of memory: tried to allocate {} at this line", binary_bytes(bytes))
                },
            );
            format!("{headline}\n{named}")
        }
        "exit" => exit_message(failure),
        _ => named,
    }
}

/// The message of a program that exited by itself, with the error of its argument parser if known.
fn exit_message(failure: &RunFailure) -> String {
    let text = shorten(failure.message.trim(), MAX_MESSAGE);
    match advice::usage_error(&failure.run.output) {
        // The exception inside the parser repeats this text.
        Some(usage_error) => {
            let exit = text.lines().next().unwrap_or_default();
            format!("{exit}: {}", shorten(&usage_error, MAX_MESSAGE))
        }
        None => text,
    }
}

/// What the memory was used for, instead of the allocator's message. Another exception raised from
/// it keeps its text.
fn memory_report(failure: &RunFailure) -> String {
    let Some(memory) = &failure.memory else { return String::new() };
    let mut lines = vec![memory.headline()];
    if !failure.error_type.ends_with("OutOfMemoryError") {
        let text = failure.message.split("\ncaused by ").next().unwrap_or_default().trim();
        lines.push(shorten(&format!("{}: {text}", failure.error_type), MAX_MESSAGE));
    }
    lines.extend(memory.details());
    lines.join("\n")
}

/// Formats bytes in GiB as PyTorch's messages do, so that this text agrees with the message below
/// it.
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

/// Quotes a name within a sentence: `train.csv`.
fn quoted(text: &str) -> String {
    format!("`{}`", shorten(text, 200).replace('`', "'"))
}

/// Truncates to `limit` characters.
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
        let reported = report(&failure, Reader::Terminal);
        let mut text = format!("{}: {}\n", reported.at.map_or(0, |at| at.line), reported.message);
        for (frame, label) in reported.related {
            text += &format!("{}: {label}\n", frame.line);
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn a_message_that_begins_with_a_rule_is_not_repeated() {
        let mut failure = RunFailure {
            error_type: "LookupError".into(),
            message: "\n*****\n  Resource 'punkt' not found.".into(),
            kind: "exception".into(),
            ..RunFailure::default()
        };
        failure.run.output = ["loading", "LookupError:", "  Resource 'punkt' not found."]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(own_output(&failure, 6), ["loading"]);
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
    fn a_script_of_a_package_must_run_as_a_module() {
        let message_for = |path: &str| {
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
        .assert_eq(&message_for("zoo/nets/train.py"));
        for path in ["train.py", "/zoo/train.py", "../train.py", "zoo/train"] {
            assert_eq!(message_for(path).lines().count(), 1, "{path}");
        }
    }

    /// The terminal report has a paragraph, a few lines of output, and what to do.
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
    fn deep_recursion_and_long_messages_are_truncated() {
        let frame = FailureFrame { path: "é".into(), line: 1, name: "é".repeat(9_000) };
        let failure = RunFailure {
            message: "漢".repeat(9_000),
            frames: vec![frame; 9_000],
            ..RunFailure::default()
        };
        let reported = report(&failure, Reader::Terminal);
        assert_eq!((reported.related.len(), reported.message.chars().count()), (20, 1_001));
    }
}
