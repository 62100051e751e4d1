//! Facts about a run without a measurement, for the message about it.

use std::path::{Path, PathBuf};

use ridgeline_analysis::present::failure::run::{End, RunFacts};
use ridgeline_analysis::present::failure::{FailureFrame, RunFailure};
use ridgeline_analysis::python::{
    DeclaredOption, SourceIndex, cpu_option, declared_options, subcommands,
};
use ridgeline_gpu::agent::{
    Outcome as AgentOutcome, RunOutcome, RunRequest, SideEffectsMode, Stage,
};
use ridgeline_gpu::interpreter::Interpreter;

use super::plan::Plan;
use super::{missing_files, notebook_commands, recording, unbuilt_module};
use crate::config;
use crate::discover::Discovery;
use crate::documents::text_on_disk;
use crate::notebook;

/// Adds all known facts about the run to its failure. It reads files.
pub(super) fn add_run_facts(
    mut failure: RunFailure,
    plan: &Plan,
    request: &RunRequest,
    ended: &RunOutcome,
    interpreter: &Interpreter,
    folder: &Path,
) -> RunFailure {
    let torch = interpreter.torch.as_ref();
    let (major, minor, patch) = interpreter.version;
    let relative = request.cwd.strip_prefix(&plan.root).unwrap_or(&request.cwd);
    *failure.run = RunFacts {
        program: plan.entry_name(),
        arguments: request.args.clone(),
        python: display_path(&interpreter.path, &plan.root),
        python_version: format!("{major}.{minor}.{patch}"),
        torch: torch.map(|torch| torch.version.clone()).unwrap_or_default(),
        torch_has_gpu: torch.map(|torch| torch.cuda.is_some() || torch.hip.is_some()),
        cpu_option: plan.file().and_then(|file| unused_cpu_option(file, &request.args)),
        spawns_by_gpus: plan
            .file()
            .and_then(text_on_disk)
            .is_some_and(|text| spawns_by_gpus(&text)),
        device: request.device.clone(),
        working_directory: relative.to_string_lossy().replace('\\', "/"),
        writes_denied: request.side_effects == SideEffectsMode::Deny,
        has_launcher: request.launcher.is_some(),
        seconds: request.limits.seconds,
        memory_bytes: request.limits.memory_bytes,
        output: ended.output.clone(),
        iterations: recording::iteration_count(folder).filter(|_| ended.outcome.has_manifest()),
        signals: recording::signal_count(folder).unwrap_or_default(),
        end: End {
            stage: ended.stage.map(stage_name).unwrap_or_default().to_owned(),
            done: ended.done,
            activity: ended.activity.clone().unwrap_or_default(),
            code: ended.code,
            signal: ended.signal,
        },
        ..std::mem::take(&mut *failure.run)
    };
    failure.run.source = source(&failure, &plan.root).unwrap_or_default();
    failure.run.found_paths = missing_files::find(&failure, &plan.root);
    failure.run.unbuilt = unbuilt_module::find(&failure, &plan.root);
    let contents = missing_files::folder_contents(&failure, &plan.root);
    failure.run.preparing_scripts = contents.scripts;
    failure.run.similar_files = contents.files;
    if matches!(failure.kind.as_str(), "exception" | "exit") {
        failure.run.options = program_options(&failure, plan);
    }
    if matches!(failure.kind.as_str(), "exit" | "short") {
        failure.run.subcommands = script_subcommands(plan);
    }
    let Some(script) = plan.file().and_then(|file| file.strip_prefix(&plan.root).ok()) else {
        return failure;
    };
    if notebook::is_notebook(script) {
        failure.run.notebook_commands = notebook_commands::find(&failure, &plan.root, script);
        return failure;
    }
    // One search reads each file of the project once.
    let mut discovery = Discovery::default();
    if failure.kind == "exit" || !failure.run.options.is_empty() {
        failure.run.commands = discovery.commands_of(&plan.root, script);
    }
    if failure.run.error.file.as_ref().is_some_and(|file| !file.is_empty()) {
        failure.run.commands_before = discovery.commands_before(&plan.root, script, &request.args);
    }
    failure
}

/// Returns the options that the script declares, the files on the way to the failure, and the files
/// of the project that are named after options.
fn program_options(failure: &RunFailure, plan: &Plan) -> Vec<DeclaredOption> {
    const MAX_FILES: usize = 20;
    let script = plan.file().map(Path::to_owned);
    let frames =
        failure.frames.iter().filter_map(|it| config::inside(&plan.root, Path::new(&it.path)).ok());
    let beside = script.as_deref().and_then(Path::parent).map(option_files).unwrap_or_default();
    let mut files: Vec<PathBuf> = Vec::new();
    for file in script.into_iter().chain(frames).chain(beside) {
        if !files.contains(&file) && files.len() < MAX_FILES {
            files.push(file);
        }
    }
    let texts = files.iter().filter_map(|file| text_on_disk(file));
    texts.flat_map(|text| declared_options(&SourceIndex::new(text))).collect()
}

/// Returns the subcommands that the script declares.
fn script_subcommands(plan: &Plan) -> Vec<String> {
    let text = plan.file().and_then(text_on_disk);
    let found = text.map(|text| subcommands(&SourceIndex::new(text))).unwrap_or_default();
    found.into_iter().map(|one| one.arguments.join(" ")).collect()
}

/// The Python files in a folder that are named after options: `options.py`, `parse_args.py`.
fn option_files(folder: &Path) -> Vec<PathBuf> {
    const MAX_ENTRIES: usize = 1_000;
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(MAX_ENTRIES).flatten();
    let is_named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let words = ["opt", "arg", "pars", "config", "param"];
        name.ends_with(".py") && words.iter().any(|word| name.contains(word))
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_named).collect();
    files.sort();
    files
}

/// Returns the program's own option for the CPU if it is not among its arguments.
fn unused_cpu_option(file: &Path, given: &[String]) -> Option<String> {
    let (option, _) = cpu_option(&SourceIndex::new(text_on_disk(file)?))?;
    let is_given = option.iter().all(|word| given.contains(word));
    (!is_given).then(|| option.join(" "))
}

fn spawns_by_gpus(text: &str) -> bool {
    text.contains("cuda.device_count()") && text.contains("spawn(")
}

/// Returns the source text of the innermost frame's line, which a recording does not contain.
fn source(failure: &RunFailure, root: &Path) -> Option<String> {
    let frame = failure.frames.last()?;
    let file = config::inside(root, Path::new(&frame.path)).ok()?;
    let text = text_on_disk(&file)?;
    let line = text.lines().nth(usize::try_from(frame.line).ok()?.checked_sub(1)?)?;
    Some(line.trim().chars().take(300).collect())
}

/// Returns the failure of a run that ended without an exception or a measurement.
pub(super) fn failure_without_exception(ended: &RunOutcome) -> RunFailure {
    let frames = ended.frames.iter().map(|frame| FailureFrame {
        path: frame.path.clone(),
        line: frame.line,
        name: frame.name.clone(),
    });
    let kind = match ended.outcome {
        AgentOutcome::Timeout => "timeout",
        AgentOutcome::Memory => "memory_limit",
        AgentOutcome::Crashed => "crash",
        AgentOutcome::Short => "short",
        _ => "exited",
    };
    RunFailure {
        message: ended.message.clone().unwrap_or_default(),
        kind: kind.to_owned(),
        frames: frames.collect(),
        ..RunFailure::default()
    }
}

/// Returns a path that the user can use and that reveals little to others who read the JSON:
/// relative to the project, or to the home folder.
fn display_path(path: &Path, root: &Path) -> String {
    if let Ok(inside) = path.strip_prefix(root) {
        return inside.display().to_string();
    }
    let home = directories::BaseDirs::new().map(|dirs| dirs.home_dir().to_owned());
    match home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(inside) => Path::new("~").join(inside).display().to_string(),
        None => path.display().to_string(),
    }
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Starting | Stage::Estimating | Stage::Probing => "starting",
        Stage::WarmUp => "warm-up",
        Stage::Timing => "timing",
        Stage::Profiling => "profiling",
        Stage::Saving => "saving",
    }
}
