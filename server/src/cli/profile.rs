//! `ridgeline profile PATH`.

use std::path::{Path, PathBuf};

use ridgeline_analysis::present::failure_json;

use super::exit::{self, Failure};
use super::terminal::Terminal;
use super::{ProfileArgs, RunArgs};
use super::{output_file, report, run, run_findings, script_choice, show, typed_command};
use crate::config::{DEVICES, DeviceChoice, Launcher};
use crate::discover::marked_root;
use crate::findings;
use crate::pipeline::{Overrides, Pipeline, Request};
use crate::what_if;

/// The maximum depth of a script below the working directory for the working directory to count as
/// its project.
const MAX_DEPTH: usize = 4;

/// Runs the subcommand. Naming the path on the command line is the user's consent to run it.
pub(super) fn run(args: &ProfileArgs, terminal: &Terminal) -> Result<(), Failure> {
    let mut request = request(args.path.as_deref(), args.batch_size, &args.run)?;
    request.overrides.launcher = launcher(args.launcher.as_deref())?;
    let store = run::open_store()?;
    let pipeline = Pipeline::new(store.clone());
    let (profiled, recorded_run, found) = run::block_on(|cancel| async move {
        let plan = script_choice::plan(&pipeline, request, terminal, &cancel).await?;
        let outcome = run::outcome_of(&pipeline, &plan, terminal, &cancel).await?;
        if let (Some(failure), Some(file)) = (outcome.failure(), &args.json) {
            output_file::write(&failure_json::document(failure), file)?;
        }
        let profiled = run::measured(outcome)?;
        let recorded_run = what_if::recorded_run(&profiled);
        let mut found =
            run_findings::findings_of_new_run(&pipeline, &plan, &profiled, &recorded_run, &cancel)
                .await?;
        if let (Ok(found), Ok(recorded_run)) = (&mut found, &recorded_run) {
            found.extend(findings::at_unreached_lines(&profiled, recorded_run, found));
        }
        Ok::<_, Failure>((profiled, recorded_run, found))
    })??;
    let sources = show::Sources::read(&profiled);
    if let Some(file) = &args.report {
        report::write(&profiled, &sources, &found, &recorded_run, &store, file)?;
    }
    if let Some(file) = &args.json {
        output_file::write(&show::json(&profiled, &sources, &found), file)?;
    }
    if output_file::is_stdout(args.json.as_deref()) {
        return Ok(());
    }
    let mut text = String::new();
    if args.lines {
        text.push_str(&show::annotated_sources(&profiled, &sources, terminal));
    }
    text.push_str(&show::summary(&profiled, terminal));
    text.push_str(&show::findings(&profiled, &found, args.findings, terminal));
    if let Some(file) = &args.report {
        text.push_str(&format!("\nReport: {}\n", file.display()));
    }
    terminal.print(&text)
}

/// The path argument of a command, or its default.
pub(super) fn named(path: Option<&Path>) -> &Path {
    path.unwrap_or(Path::new("."))
}

/// The request for the run of the command line.
pub(super) fn request(
    path: Option<&Path>,
    batch_size: Option<u32>,
    args: &RunArgs,
) -> Result<Request, Failure> {
    let named = named(path);
    let is_command =
        path.is_none_or(Path::is_dir) && typed_command::is_command(&args.arguments, path.is_some());
    let path = absolute(named)?;
    let metadata = path.metadata().map_err(|error| Failure {
        code: exit::NOTHING_TO_RUN,
        what: format!("{} cannot be read: {error}", named.display()),
        next: "Pass a training script, a project folder or a provider file".to_owned(),
    })?;
    let device = args.device.as_deref().map(parse_device).transpose()?;
    let python = args.python.as_deref().map(absolute).transpose()?;
    let mut overrides = Overrides {
        python,
        device,
        batch_size,
        iterations: args.iterations,
        min_iterations: 0,
        seconds: args.seconds,
        arguments: (!args.arguments.is_empty()).then(|| args.arguments.clone()),
        working_directory: None,
        launcher: None,
        side_effects: args.side_effects,
        // The user typed the command, so an estimate may do as much as a run.
        without_sandbox: true,
    };
    if is_command {
        let mut request =
            typed_command::request(&args.arguments, &path, overrides.python.as_deref())?;
        overrides.arguments = None;
        overrides.python = overrides.python.or(request.overrides.python.take());
        return Ok(Request { overrides, ..request });
    }
    if metadata.is_dir() {
        return Ok(Request {
            workspace: path,
            // In a terminal, the user is asked if none leads clearly.
            takes_likeliest: !script_choice::is_interactive(),
            overrides,
            ..Request::default()
        });
    }
    let workspace = project_of(&path);
    let here = std::env::current_dir().ok().filter(|here| here.starts_with(&workspace));
    overrides.working_directory = here.or_else(|| path.parent().map(Path::to_owned));
    Ok(Request { workspace, script: Some(path), overrides, ..Request::default() })
}

/// Returns the project of an absolute path. A folder is a project. A file belongs to the folder that marks a project, else to
/// the working directory, because `python src/train.py` runs there, and from farther away to its own folder.
pub(super) fn project_of(path: &Path) -> PathBuf {
    if !path.is_file() {
        return path.to_owned();
    }
    let above = std::env::current_dir().ok().filter(|here| {
        let below = path.strip_prefix(here).map_or(usize::MAX, |below| below.components().count());
        below <= MAX_DEPTH && here.parent().is_some()
    });
    let own = path.parent().unwrap_or(path);
    marked_root(path, None).or(above).unwrap_or_else(|| own.to_owned())
}

/// Parses the launcher option.
pub(super) fn launcher(named: Option<&str>) -> Result<Option<Launcher>, Failure> {
    let wrong =
        |why: String| Failure::usage(format!("--launcher: {why}"), "This command names no script");
    named.map(|text| Launcher::parse(text).map_err(wrong)).transpose()
}

/// Parses the device option.
pub(super) fn parse_device(text: &str) -> Result<DeviceChoice, Failure> {
    DeviceChoice::parse(text)
        .ok_or_else(|| Failure::usage(format!("unknown device `{text}`"), format!("Use {DEVICES}")))
}

/// The absolute path. The file itself is never resolved where it is a link: the Python of a virtual
/// environment is one, and loses its packages elsewhere.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(path)
        .map_err(|error| Failure::usage(format!("{}: {error}", path.display()), ""))?;
    // `absolute` keeps `..`, and a root with `..` is a prefix of no other path.
    if !path.components().any(|part| part == std::path::Component::ParentDir) {
        return Ok(path);
    }
    let resolved = match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => folder.canonicalize().map(|folder| folder.join(name)),
        _ => path.canonicalize(),
    };
    Ok(resolved.unwrap_or(path))
}

#[cfg(all(test, unix))]
mod tests {
    use super::absolute;

    #[test]
    fn a_linked_python_above_stays_in_its_environment() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let python = root.join("venv/bin/python");
        std::fs::create_dir_all(python.parent().unwrap()).unwrap();
        std::fs::create_dir_all(root.join("project")).unwrap();
        std::fs::write(root.join("python3.12"), "").unwrap();
        std::os::unix::fs::symlink(root.join("python3.12"), &python).unwrap();

        assert_eq!(absolute(&root.join("project/../venv/bin/python")).unwrap(), python);
        assert_eq!(absolute(&root.join("project/..")).unwrap(), root);
    }
}
