//! Runs that ended without an exception and without a measurement: stopped at a limit, terminated
//! by a signal, or finished too early.

use super::RunFailure;
use super::run::{Reader, RunFacts};
use crate::activity;
use ridgeline_base::units;

const KINDS: &[&str] = &["timeout", "memory_limit", "crash", "short", "exited"];

/// Returns whether the run ended without an exception.
pub(crate) fn ended_without_exception(failure: &RunFailure) -> bool {
    KINDS.contains(&failure.kind.as_str())
}

/// Describes what happened, as a sentence without a full stop.
pub(super) fn description(failure: &RunFailure, reader: Reader) -> String {
    let run = &failure.run;
    let program = match run.program.as_str() {
        "" => "the program",
        program => program,
    };
    let code = run.end.code.map(|code| format!(" with exit code {code}")).unwrap_or_default();
    let detail = match failure.message.trim() {
        "" => String::new(),
        message => format!(": {message}"),
    };
    match failure.kind.as_str() {
        "timeout" => {
            let limit = match reader {
                Reader::Terminal => "the time limit, `--seconds`",
                Reader::Editor => "the time limit, `limits.seconds`",
            };
            format!(
                "{program} exceeded {} s ({limit}) and was stopped {}{}",
                run.seconds,
                stage(run),
                activity_at_stop(failure)
                    .map(|activity_at_stop| format!(". It was {activity_at_stop}"))
                    .unwrap_or_default()
            )
        }
        "memory_limit" => format!(
            "{program} exceeded its memory limit of {} and was stopped{detail}",
            units::bytes(run.memory_bytes as f64)
        ),
        "crash" => {
            format!("{program} was terminated by {}{}", signal_name(run.end.signal), at(failure))
        }
        "short" => format!(
            "{program} exited{code} {}{}",
            after_iterations(run.iterations),
            without_training(run)
        ),
        _ => format!("{program} exited{code} before it was measured{detail}"),
    }
}

/// Suggests a fix.
pub(super) fn suggestion(failure: &RunFailure, reader: Reader) -> Option<String> {
    let run = &failure.run;
    let text = match failure.kind.as_str() {
        "timeout" if failed_process(run).is_some() => format!(
            "A process that the program started failed, and the program waits for it: {}. Without \
            Ridgeline the program would wait as well.",
            super::quoted(failed_process(run).unwrap_or_default())
        ),
        "timeout" => {
            let raised_limit = run.seconds.saturating_mul(2).max(60);
            let more = match reader {
                Reader::Terminal => format!(
                    "Raise the limit: `--seconds {raised_limit}`, or `seconds = {raised_limit}` under [limits] \
                    in ridgeline.toml"
                ),
                Reader::Editor => format!(
                    "Raise the limit: `seconds = {raised_limit}` under [limits] in ridgeline.toml"
                ),
            };
            match how_to_shorten(failure) {
                Some(how_to_shorten) => format!("{more}. {how_to_shorten}."),
                None => format!("{more}."),
            }
        }
        "memory_limit" => "Use a smaller batch or fewer DataLoader workers, or raise `memory` \
            under [limits] in ridgeline.toml."
            .to_owned(),
        "short" if run.iterations == Some(0) && wants_more_gpus(run) => {
            "The program needs GPUs that this machine does not have. Use its own option for the \
            CPU or for fewer GPUs, if it has one."
                .to_owned()
        }
        "short" if run.spawns_by_gpus && run.signals == super::run::SignalCounts::default() => {
            "The program starts a process for each GPU (`torch.cuda.device_count()`), and without a GPU it starts \
            none. Set the number of processes by hand, and use the CPU and the `gloo` backend in them."
                .to_owned()
        }
        "short" if run.iterations == Some(0) => run.with_subcommand(reader).unwrap_or_else(|| {
            format!(
                "Ridgeline measures a training loop. If another script trains, profile that one. If \
                this one needs an option to train, pass it. {}.",
                run.with_arguments(reader, "--train")
            )
        }),
        "short" => {
            "Too few iterations ran, or too little of the time limit was left to repeat the \
            run: let it run longer, or profile the script that trains."
                .to_owned()
        }
        _ => return None,
    };
    Some(text)
}

/// The exception of a child process: `Process w01:`, and below its traceback the exception.
fn failed_process(run: &RunFacts) -> Option<&str> {
    let is_header = |line: &String| line.starts_with("Process ") && line.ends_with(':');
    let lines = || run.output.iter().zip(run.output.iter().skip(1));
    let (_, error) = lines().rfind(|(header, _)| is_header(header))?;
    let is_error = error.split(':').next().is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '.' || c == '_')
    });
    is_error.then_some(error.as_str())
}

/// Returns whether the last line of output says that the program needs more GPUs.
fn wants_more_gpus(run: &RunFacts) -> bool {
    const SHORTAGE_WORDS: [&str; 9] = [
        "sufficient",
        "not enough",
        "at least",
        "not available",
        "unavailable",
        "requires",
        "need",
        "no gpu",
        "no cuda",
    ];
    let last = run.output.last().map(|line| line.to_lowercase()).unwrap_or_default();
    (last.contains("gpu") || last.contains("cuda"))
        && SHORTAGE_WORDS.iter().any(|word| last.contains(word))
}

/// The progress of a run when it was stopped.
fn stage(run: &RunFacts) -> String {
    match (run.end.stage.as_str(), run.end.done) {
        ("warm-up", 0) | ("starting", _) | ("", _) => {
            "before its first iteration finished".to_owned()
        }
        ("warm-up", 1) => "after one iteration, during warm-up".to_owned(),
        ("warm-up", done) => format!("after {done} iterations, during warm-up"),
        ("timing", _) => "while iterations were timed".to_owned(),
        ("profiling", _) => "while iterations were profiled".to_owned(),
        _ => "while the recording was written".to_owned(),
    }
}

/// The activity when the run was stopped, and its line.
fn activity_at_stop(failure: &RunFailure) -> Option<String> {
    let frame = failure.frames.last();
    let place = frame.map(|frame| activity::place(&frame.path, frame.line, &frame.name));
    let activity = activity::of_library(&failure.run.end.activity);
    match (activity, place) {
        (Some(activity), Some(place)) => Some(format!("{activity}: {place}")),
        (Some(activity), None) => Some(activity),
        (None, Some(place)) => Some(format!("at {place}")),
        (None, None) => None,
    }
}

/// Suggests how to make the run take less time.
fn how_to_shorten(failure: &RunFailure) -> Option<&'static str> {
    let run = &failure.run;
    let text = match run.end.activity.as_str() {
        "data" => "Or load less data: fewer samples, or a cached copy",
        "network" => "Or run the program once without Ridgeline to fill its download cache",
        "compile" => "Compiled code is cached, so the next run gets further in the same time",
        "processes" => {
            "Ridgeline measures the program it starts: if the child processes train, profile the \
            script they run"
        }
        "distributed" => "Or start all ranks: `launcher` in ridgeline.toml",
        activity if activity.starts_with("import") => return None,
        _ => match (run.end.stage.as_str(), run.end.done) {
            ("warm-up", 0) | ("starting", _) | ("", _) => {
                "Or do less until its first iteration ends: less data, less evaluation, a smaller \
                batch"
            }
            _ if is_evaluating(failure) => "Or evaluate on less data, or later",
            _ => "Or make iterations shorter: a smaller batch",
        },
    };
    Some(text)
}

/// Whether the names of the functions that ran when the run was stopped suggest an evaluation.
fn is_evaluating(failure: &RunFailure) -> bool {
    let suggests = |word: &str| {
        matches!(word, "val" | "test" | "accuracy")
            || ["eval", "valid"].iter().any(|stem| word.starts_with(stem))
    };
    failure.frames.iter().any(|frame| frame.name.to_lowercase().split(['_', '.']).any(suggests))
}

fn at(failure: &RunFailure) -> String {
    failure.frames.last().map_or_else(String::new, |frame| {
        format!(" at {}:{} in {}", frame.path, frame.line, frame.name)
    })
}

fn after_iterations(seen: Option<u32>) -> String {
    match seen {
        Some(0) => "before its first iteration finished".to_owned(),
        Some(1) => "after one iteration".to_owned(),
        Some(seen) => format!("after {seen} iterations"),
        None => "after too few iterations".to_owned(),
    }
}

/// Describes what a program without training iterations did.
fn without_training(run: &RunFacts) -> String {
    let signals = run.signals;
    if run.iterations != Some(0) {
        return String::new();
    }
    match (signals.module, signals.backward, signals.optimizer) {
        (0, 0, 0) => ": it called no model, and no optimizer stepped".to_owned(),
        (1, 0, 0) => {
            ": it called a model once, without a backward pass or an optimizer step".to_owned()
        }
        (calls, 0, 0) => format!(
            ": it called a model {calls} times, without a backward pass or an optimizer step"
        ),
        _ => String::new(),
    }
}

fn signal_name(signal: Option<i32>) -> String {
    let name = match signal {
        Some(4) => "an illegal instruction",
        Some(6) => "an abort",
        Some(7) => "a bus error",
        Some(8) => "an arithmetic error",
        Some(9) => "SIGKILL",
        Some(11) => "a segmentation fault",
        Some(15) => "a request to terminate",
        Some(other) => return format!("signal {other}"),
        None => return "a crash".to_owned(),
    };
    format!("{name} (signal {})", signal.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::super::run::{End, SignalCounts};
    use super::super::{FailureFrame, page, report};
    use super::*;

    fn ended(kind: &str, end: End, iterations: Option<u32>) -> RunFailure {
        let frame =
            |line, name: &str| FailureFrame { path: "data.py".into(), line, name: name.into() };
        RunFailure {
            kind: kind.into(),
            frames: vec![frame(3, "<module>"), frame(40, "Images.__getitem__")],
            run: Box::new(RunFacts {
                program: "train.py".into(),
                seconds: 120,
                memory_bytes: 8_000_000_000,
                iterations,
                end,
                output: vec!["reading".into(), "epoch 0".into()],
                ..RunFacts::default()
            }),
            ..RunFailure::default()
        }
    }

    #[track_caller]
    fn check(failure: &RunFailure, terminal: Expect, editor: Expect) {
        let page = page(failure, str::to_owned);
        terminal.assert_eq(&format!("{}\n{}", page.what, page.next));
        editor.assert_eq(&report(failure, Reader::Editor).message);
    }

    fn stopped(stage: &str, done: u64, activity: &str) -> RunFailure {
        let end = End { stage: stage.into(), done, activity: activity.into(), ..End::default() };
        ended("timeout", end, None)
    }

    #[test]
    fn a_time_limit() {
        check(
            &stopped("starting", 0, "data"),
            expect![[r#"
            train.py exceeded 120 s (the time limit, `--seconds`) and was stopped before its first iteration finished. It was loading data: data.py:40 in Images.__getitem__
            Last output of the program:
              | reading
              | epoch 0
            Raise the limit: `--seconds 240`, or `seconds = 240` under [limits] in ridgeline.toml. Or load less data: fewer samples, or a cached copy."#]],
            expect![[r#"
                train.py exceeded 120 s (the time limit, `limits.seconds`) and was stopped before its first iteration finished. It was loading data: data.py:40 in Images.__getitem__
                Last output: epoch 0
                Raise the limit: `seconds = 240` under [limits] in ridgeline.toml. Or load less data: fewer samples, or a cached copy."#]],
        );
    }

    #[test]
    fn the_activity_at_the_time_limit() {
        let describe = |stage: &str, done, activity: &str| {
            let failure = stopped(stage, done, activity);
            let what = description(&failure, Reader::Terminal);
            let next = suggestion(&failure, Reader::Terminal).unwrap_or_default();
            let after =
                what.split_once(" and was stopped ").map_or("", |(_, after)| after).to_owned();
            format!("{after} / {next}\n")
        };
        let all = [
            describe("starting", 0, "import transformers"),
            describe("warm-up", 0, ""),
            describe("warm-up", 1, "network"),
            describe("timing", 2, "compile"),
            describe("profiling", 0, "processes"),
            describe("saving", 0, "distributed"),
        ];
        expect![[r#"
            before its first iteration finished. It was importing transformers: data.py:40 in Images.__getitem__ / Raise the limit: `--seconds 240`, or `seconds = 240` under [limits] in ridgeline.toml.
            before its first iteration finished. It was at data.py:40 in Images.__getitem__ / Raise the limit: `--seconds 240`, or `seconds = 240` under [limits] in ridgeline.toml. Or do less until its first iteration ends: less data, less evaluation, a smaller batch.
            after one iteration, during warm-up. It was waiting for the network: data.py:40 in Images.__getitem__ / Raise the limit: `--seconds 240`, or `seconds = 240` under [limits] in ridgeline.toml. Or run the program once without Ridgeline to fill its download cache.
            while iterations were timed. It was compiling (`torch.compile`): data.py:40 in Images.__getitem__ / Raise the limit: `--seconds 240`, or `seconds = 240` under [limits] in ridgeline.toml. Compiled code is cached, so the next run gets further in the same time.
            while iterations were profiled. It was waiting for its child processes: data.py:40 in Images.__getitem__ / Raise the limit: `--seconds 240`, or `seconds = 240` under [limits] in ridgeline.toml. Ridgeline measures the program it starts: if the child processes train, profile the script they run.
            while the recording was written. It was waiting for other ranks: data.py:40 in Images.__getitem__ / Raise the limit: `--seconds 240`, or `seconds = 240` under [limits] in ridgeline.toml. Or start all ranks: `launcher` in ridgeline.toml.
        "#]].assert_eq(&all.concat());
    }

    #[test]
    fn an_evaluation_at_the_time_limit() {
        let advice = |name: &str| {
            let mut failure = stopped("warm-up", 1, "");
            failure.frames.push(FailureFrame { path: "net.py".into(), line: 9, name: name.into() });
            suggestion(&failure, Reader::Terminal).unwrap_or_default()
        };
        for name in ["accuracy", "Trainer.validate", "run_eval", "test_epoch"] {
            assert!(advice(name).ends_with(". Or evaluate on less data, or later."), "{name}");
        }
        for name in ["Net.forward", "latest", "interval", "<module>"] {
            assert!(advice(name).contains("a smaller batch"), "{name}");
        }
    }

    #[test]
    fn a_child_process_that_failed() {
        let mut failure = stopped("starting", 0, "");
        failure.run.output =
            ["Process w00:", "ValueError: too many values to unpack"].map(str::to_owned).to_vec();
        expect![
            "A process that the program started failed, and the program waits for it: \
            `ValueError: too many values to unpack`. Without Ridgeline the program would wait as \
            well."
        ]
        .assert_eq(&suggestion(&failure, Reader::Terminal).unwrap_or_default());
        failure.run.output = ["Process 1 of 2:", "loading the data"].map(str::to_owned).to_vec();
        let other = suggestion(&failure, Reader::Terminal).unwrap_or_default();
        assert!(other.starts_with("Raise the limit"), "{other}");
    }

    #[test]
    fn too_few_gpus() {
        let end = End { code: Some(0), ..End::default() };
        let mut failure = ended("short", end, Some(0));
        failure.run.output =
            vec!["Unable to locate sufficient 2 gpus to run this example.".to_owned()];
        let advice = suggestion(&failure, Reader::Terminal).unwrap_or_default();
        assert!(advice.contains("needs GPUs"), "{advice}");
        failure.run.output = vec!["CUDA is not available".to_owned(), "done".to_owned()];
        let advice = suggestion(&failure, Reader::Terminal).unwrap_or_default();
        assert!(advice.contains("If another script trains"), "{advice}");
        failure.run.spawns_by_gpus = true;
        let advice = suggestion(&failure, Reader::Terminal).unwrap_or_default();
        assert!(advice.contains("without a GPU it starts none"), "{advice}");
    }

    #[test]
    fn an_early_end() {
        let end = End { code: Some(0), ..End::default() };
        let mut failure = ended("short", end, Some(0));
        failure.run.signals = SignalCounts { module: 3, ..SignalCounts::default() };
        check(
            &failure,
            expect![[r#"
                train.py exited with exit code 0 before its first iteration finished: it called a model 3 times, without a backward pass or an optimizer step
                Last output of the program:
                  | reading
                  | epoch 0
                Ridgeline measures a training loop. If another script trains, profile that one. If this one needs an option to train, pass it. Pass the program's own arguments after `--`: `ridgeline profile train.py -- --train`. To keep them, set `arguments` in ridgeline.toml."#]],
            expect![[r#"
                train.py exited with exit code 0 before its first iteration finished: it called a model 3 times, without a backward pass or an optimizer step
                Last output: epoch 0
                Ridgeline measures a training loop. If another script trains, profile that one. If this one needs an option to train, pass it. Set its arguments in ridgeline.toml: `arguments = ["--train"]`."#]],
        );
        failure.run.iterations = Some(1);
        failure.run.signals.optimizer = 1;
        expect!["train.py exited with exit code 0 after one iteration"]
            .assert_eq(&description(&failure, Reader::Terminal));
    }

    #[test]
    fn a_crash_and_a_memory_limit() {
        let end = End { signal: Some(11), ..End::default() };
        check(
            &ended("crash", end, None),
            expect![[r#"
                train.py was terminated by a segmentation fault (signal 11) at data.py:40 in Images.__getitem__
                Last output of the program:
                  | reading
                  | epoch 0"#]],
            expect![[r#"
                train.py was terminated by a segmentation fault (signal 11) at data.py:40 in Images.__getitem__
                Last output: epoch 0"#]],
        );
        check(
            &ended("memory_limit", End::default(), None),
            expect![[r#"
            train.py exceeded its memory limit of 8.0 GB and was stopped
            Last output of the program:
              | reading
              | epoch 0
            Use a smaller batch or fewer DataLoader workers, or raise `memory` under [limits] in ridgeline.toml."#]],
            expect![[r#"
                train.py exceeded its memory limit of 8.0 GB and was stopped
                Last output: epoch 0
                Use a smaller batch or fewer DataLoader workers, or raise `memory` under [limits] in ridgeline.toml."#]],
        );
    }
}
