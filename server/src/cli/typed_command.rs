//! `ridgeline profile -- python train.py --flags`: the user's own command line.

use std::path::{Path, PathBuf};

use ridgeline_analysis::commands::{
    self, Command, FoundCommand, InstalledCommands, MAX_COMMAND_FILE_BYTES, Program,
    begins_a_program, read_command,
};
use ridgeline_gpu::agent::Entry;

use super::exit::{self, Failure};
use super::profile::absolute;
use crate::config::Launcher;
use crate::discover::project_root;
use crate::pipeline::{Request, TypedCommand};

/// The maximum number of nested Makefiles and shell scripts to follow.
const MAX_STEPS: usize = 4;

/// Whether the words after `--` are a command, rather than arguments of the program that is found.
/// `names_path` is set if a script or a folder was named before them.
pub(super) fn is_command(words: &[String], names_path: bool) -> bool {
    let program = words.iter().find(|word| !is_assignment(word));
    program.is_some_and(|program| {
        if names_path { begins_a_program(program) } else { !program.starts_with('-') }
    })
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// The request for a command in the working directory `here`. `chosen` is the Python of the option
/// `--python`.
pub(super) fn request(
    words: &[String],
    here: &Path,
    chosen: Option<&Path>,
) -> Result<Request, Failure> {
    let mut command = read_command(words).map_err(refused)?;
    let mut folder = here.to_owned();
    for _ in 0..MAX_STEPS {
        let Some(inside) = followed(&command, &folder)? else { break };
        command = inside;
        if let Some(more) = command.folder.take() {
            folder.push(more);
        }
    }
    if let Some(more) = command.folder.take() {
        folder.push(more);
    }
    let folder = absolute(&folder)?;
    if !folder.is_dir() {
        return Err(nothing(format!("{} is not a folder", folder.display()), ""));
    }
    let mut python = command
        .python
        .as_deref()
        .map(|python| named_python(python, &folder))
        .transpose()?
        .flatten();
    let entry = entry(&command, &folder, chosen, &mut python)?;
    let workspace = match &entry {
        Entry::Script { path } if path.starts_with(&folder) => project_root(path, Some(&folder)),
        Entry::Script { path } if !is_installed(path) => project_root(path, None),
        _ => project_root(&folder.join("-"), None),
    };
    // Without a project marker, the working directory is the project.
    let workspace = if folder.starts_with(&workspace) { workspace } else { folder.clone() };
    let launcher = match command.launcher.as_slice() {
        [] => None,
        words => Some(Launcher::of_words(words.to_vec()).map_err(|why| Failure::usage(why, ""))?),
    };
    let mut notes = Vec::new();
    if !command.python_options.is_empty() {
        let options = command.python_options.join(" ");
        notes.push(format!("Python's own {options} has no effect on a profiled run"));
    }
    if let Some(tool) = &command.environment_tool
        && tool.starts_with(['c', 'm'])
        && python.is_none()
    {
        notes.push(format!(
            "the environment of `{tool}` is not looked up: pass its Python with --python"
        ));
    }
    let typed = TypedCommand {
        entry,
        arguments: command.arguments,
        environment: command.environment,
        launcher,
        working_directory: folder,
        notes,
    };
    let overrides = crate::pipeline::Overrides { python, ..Default::default() };
    Ok(Request { workspace, command: Some(typed), overrides, ..Request::default() })
}

/// The Python command that a shell script or a Makefile starts.
fn followed(command: &Command, folder: &Path) -> Result<Option<Command>, Failure> {
    let installed = || installed_by(&project_root(&folder.join("-"), None));
    let (file, found) = match &command.program {
        Program::Shell(script) => {
            let file = folder.join(script);
            let text = text(&file)?;
            (script.clone(), commands::shell_script_with(&text, &command.arguments, &installed()))
        }
        Program::MakeTarget(target) => {
            let names = ["GNUmakefile", "makefile", "Makefile"];
            let file = names.iter().map(|name| folder.join(name)).find(|file| file.is_file());
            let file = file.ok_or_else(|| nothing("no Makefile in this folder".to_owned(), ""))?;
            let found = commands::make_target(&text(&file)?, target, &installed());
            (format!("target {target} of {}", file.display()), found)
        }
        _ => return Ok(None),
    };
    let complete: Vec<&FoundCommand> = found.iter().filter(|written| written.is_complete).collect();
    match complete.as_slice() {
        [one] => {
            let mut inside = one.command.clone();
            for (name, value) in &command.environment {
                inside.environment.insert(name.clone(), value.clone());
            }
            Ok(Some(inside))
        }
        [] => Err(nothing(
            format!("no Python program was found in {file} without running it"),
            "Profile the command it runs: `ridgeline profile -- python train.py --epochs 1`",
        )),
        several => {
            let mut what = format!("{file} starts several Python programs:");
            for written in several {
                what.push_str(&format!("\n  line {}: {}", written.line, display(written)));
            }
            let first = several.first().map(|written| display(written)).unwrap_or_default();
            Err(nothing(what, format!("Profile one of them: `ridgeline profile -- {first}`")))
        }
    }
}

fn display(FoundCommand { command, as_written, .. }: &FoundCommand) -> String {
    let program = match &command.program {
        // An installed command.
        Program::Function(_) => return as_written.clone(),
        Program::Script(path) => format!("python {}", shell_words::quote(path)),
        Program::Module(name) => format!("python -m {name}"),
        Program::Shell(name) | Program::Other(name) => name.clone(),
        Program::MakeTarget(target) => format!("make {target}"),
    };
    crate::discover::with_arguments(&program, &command.arguments)
}

fn entry(
    command: &Command,
    folder: &Path,
    chosen: Option<&Path>,
    python: &mut Option<PathBuf>,
) -> Result<Entry, Failure> {
    match &command.program {
        Program::Script(script) => {
            let path = absolute(&folder.join(script))?;
            if !path.is_file() {
                return Err(nothing(
                    format!("file {} does not exist", path.display()),
                    "Run ridgeline in the folder where the command works",
                ));
            }
            Ok(Entry::Script { path })
        }
        Program::Module(name) | Program::Function(name) => Ok(Entry::Module { name: name.clone() }),
        Program::Shell(name) | Program::MakeTarget(name) => Err(nothing(
            format!("{name} starts too many other programs"),
            "Profile the command it finally runs",
        )),
        Program::Other(name) => installed(name, folder, chosen, python),
    }
}

/// The commands that the project's own package installs.
fn installed_by(root: &Path) -> InstalledCommands {
    let files = ["pyproject.toml", "setup.cfg", "setup.py"];
    let texts = files.iter().filter_map(|file| text(&root.join(file)).ok());
    commands::installed(texts.flat_map(|text| commands::entry_points(&text)))
}

/// The entry point of an installed command, such as `litgpt`: of the project itself, or of a Python
/// environment.
fn installed(
    name: &str,
    folder: &Path,
    chosen: Option<&Path>,
    python: &mut Option<PathBuf>,
) -> Result<Entry, Failure> {
    let root = project_root(&folder.join("-"), None);
    if let Some(name) = installed_by(&root).remove(name) {
        return Ok(Entry::Module { name });
    }
    let direct = folder.join(name);
    let file = if name.contains(['/', '\\']) && direct.is_file() {
        Some(direct)
    } else {
        let python_folder = chosen.or(python.as_deref()).and_then(Path::parent).map(Path::to_owned);
        let environments = [".venv", "venv"].map(|name| root.join(name).join("bin"));
        let active = std::env::var_os("VIRTUAL_ENV").map(|it| PathBuf::from(it).join("bin"));
        python_folder
            .into_iter()
            .chain(active)
            .chain(environments)
            .map(|it| it.join(name))
            .find(|it| it.is_file())
            .or_else(|| on_path(name))
    };
    let unknown = || {
        nothing(
            format!("`{name}` is not a Python program in this project"),
            "Profile the Python program it starts: `ridgeline profile -- python train.py`",
        )
    };
    let file = file.ok_or_else(unknown)?;
    let text = text(&file).map_err(|_| unknown())?;
    let first = text.lines().next().unwrap_or_default();
    let interpreter = first.strip_prefix("#!").map(str::trim).filter(|it| it.contains("python"));
    let interpreter = interpreter.ok_or_else(unknown)?;
    // A command of an environment runs with that environment's Python.
    let own = Path::new(interpreter);
    if python.is_none()
        && chosen.is_none()
        && own.is_absolute()
        && own.is_file()
        && !interpreter.contains("env ")
    {
        *python = Some(own.to_owned());
    }
    Ok(Entry::Script { path: absolute(&file)? })
}

/// Whether a program is in an environment rather than in a project.
fn is_installed(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    ["python", "python3", "python.exe"].iter().any(|name| folder.join(name).exists())
}

/// The Python that a command names. Plain `python` means the one found for the project.
fn named_python(word: &str, folder: &Path) -> Result<Option<PathBuf>, Failure> {
    if word.contains(['/', '\\']) {
        let path = absolute(&folder.join(word))?;
        return if path.exists() {
            Ok(Some(path))
        } else {
            Err(Failure {
                code: exit::NO_PYTHON,
                what: format!("no Python at {}", path.display()),
                next: String::new(),
            })
        };
    }
    if matches!(word, "python" | "python3" | "py" | "pypy" | "pypy3") {
        return Ok(None);
    }
    // `uv run --python 3.12` gives a version.
    let name = if word.starts_with(|c: char| c.is_ascii_digit()) {
        format!("python{word}")
    } else {
        word.to_owned()
    };
    let found = on_path(&name);
    if found.is_none() && name == word {
        return Err(Failure {
            code: exit::NO_PYTHON,
            what: format!("`{word}` was not found on PATH"),
            next: "Use the path of a Python, or let Ridgeline find one: `ridgeline profile -- \
                python train.py`"
                .to_owned(),
        });
    }
    Ok(found)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| [folder.join(name), folder.join(format!("{name}.exe"))])
        .find(|file| file.is_file())
}

fn text(file: &Path) -> Result<String, Failure> {
    let wrong = |why: String| nothing(format!("{} cannot be read: {why}", file.display()), "");
    let metadata = file.metadata().map_err(|error| wrong(error.to_string()))?;
    if !metadata.is_file() || metadata.len() > MAX_COMMAND_FILE_BYTES as u64 {
        return Err(wrong("it is not a regular file of a readable size".to_owned()));
    }
    let bytes = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn refused(refusal: commands::Refusal) -> Failure {
    nothing(refusal.what, refusal.next)
}

fn nothing(what: String, next: impl Into<String>) -> Failure {
    Failure { code: exit::NOTHING_TO_RUN, what, next: next.into() }
}
