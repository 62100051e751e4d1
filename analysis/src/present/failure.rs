//! A run that failed, as a person reads it at the line.

use serde::Serialize;

use super::out_of_memory::OutOfMemory;
use crate::units;

/// Why a run failed, with paths as the profile has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFailure {
    /// `RuntimeError`.
    pub error_type: String,
    /// The exception's own text.
    pub message: String,
    /// `exception`, `syntax`, `exit` or `memory`.
    pub kind: String,
    /// The user's frames, outermost first.
    pub frames: Vec<FailureFrame>,
    /// For out of memory: bytes that were asked for.
    pub requested_bytes: Option<u64>,
    /// For out of memory on a GPU: what held it.
    pub memory: Option<Box<OutOfMemory>>,
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
}

/// A message is cut after this many characters.
const MAX_MESSAGE: usize = 1_000;
/// Deep recursion is told by its innermost frames.
const MAX_RELATED: usize = 20;

/// How a failure is told.
pub fn report(failure: &RunFailure) -> FailureReport {
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
    FailureReport { at, message: message(failure), related }
}

fn message(failure: &RunFailure) -> String {
    let own = shorten(failure.message.trim(), MAX_MESSAGE);
    let named = match (failure.error_type.as_str(), own.as_str()) {
        ("", "") => "The run failed and did not say why".to_owned(),
        ("", own) => own.to_owned(),
        (error, "") => error.to_owned(),
        (error, own) => format!("{error}: {own}"),
    };
    match failure.kind.as_str() {
        "memory" if failure.memory.is_some() => memory_report(failure),
        "memory" => {
            let asked = failure.requested_bytes.map_or_else(
                || "Out of memory at this line".to_owned(),
                |bytes| format!("Out of memory: asked for {} at this line", binary_bytes(bytes)),
            );
            format!("{asked}\n{named}")
        }
        "exit" => format!("The program ended before enough iterations ran\n{named}"),
        _ => match package_module(failure) {
            Some(module) => format!(
                "{named}\nThis file runs as part of its package: `module = \"{module}\"` in ridgeline.toml \
                 runs it as `python -m {module}` does"
            ),
            None => named,
        },
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

/// What `python -m` calls a script that was run by its path and takes relative imports for granted.
fn package_module(failure: &RunFailure) -> Option<String> {
    let is_relative = failure.message.contains("relative import with no known parent package");
    let script =
        failure.frames.first().filter(|_| is_relative && failure.error_type == "ImportError")?;
    let module = script.path.strip_suffix(".py")?;
    let is_within = module.contains('/') && !module.starts_with(['/', '.']);
    is_within.then(|| module.replace('/', "."))
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
        let told = report(&RunFailure {
            error_type: error_type.into(),
            message: message.into(),
            kind: kind.into(),
            frames: vec![frame(30, "<module>"), frame(20, "train"), frame(10, "Net.forward")],
            requested_bytes: requested,
            memory: None,
        });
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
            10: Out of memory: asked for 2.0 GiB at this line
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
            The run failed and did not say why
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
            "1",
            None,
            expect![[r#"
            10: The program ended before enough iterations ran
            SystemExit: 1
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
                requested_bytes: None,
                memory: None,
            };
            report(&failure).message
        };
        expect![[r#"
            ImportError: attempted relative import with no known parent package
            This file runs as part of its package: `module = "zoo.nets.train"` in ridgeline.toml runs it as `python -m zoo.nets.train` does"#]]
        .assert_eq(&told("zoo/nets/train.py"));
        for path in ["train.py", "/zoo/train.py", "../train.py", "zoo/train"] {
            assert_eq!(told(path).lines().count(), 1, "{path}");
        }
    }

    #[test]
    fn without_frames() {
        assert_eq!(report(&RunFailure::default()).at, None);
    }

    #[test]
    fn deep_recursion_and_long_messages_are_cut() {
        let frame = FailureFrame { path: "é".into(), line: 1, name: "é".repeat(9_000) };
        let failure = RunFailure {
            message: "漢".repeat(9_000),
            frames: vec![frame; 9_000],
            ..RunFailure::default()
        };
        let told = report(&failure);
        assert_eq!((told.related.len(), told.message.chars().count()), (20, 1_001));
    }
}
