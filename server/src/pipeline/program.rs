//! Chooses the program to run: the one that the user typed or named, the configured one, or the one
//! that discovery finds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ridgeline_gpu::agent::Entry;

use super::outcome::{Outcome, Problem, ProblemKind};
use super::plan::{Request, TypedCommand};
use crate::config::{self, Config};
use crate::discover::{Candidate, Discovery, Run, SearchResult};
use crate::notebook;
use crate::profiler::RunChoice;
use crate::store::Store;

/// The program that was chosen.
pub(super) struct ChosenProgram {
    pub(super) entry: Entry,
    /// Its Python file, if known.
    pub(super) file: Option<PathBuf>,
    /// Whether the configuration names it.
    pub(super) is_configured: bool,
    /// Whether the user typed the command.
    pub(super) is_typed: bool,
    pub(super) arguments: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) launcher: Option<config::Launcher>,
    pub(super) folder: Option<PathBuf>,
    /// The folder that the program has to run in: of a script that runs as a module, and of a notebook,
    /// which runs in its own folder in Jupyter.
    pub(super) own_folder: Option<PathBuf>,
    /// Additional folders in which Python looks for modules.
    pub(super) python_path: Vec<PathBuf>,
    pub(super) origin: Option<String>,
    pub(super) notes: Vec<String>,
}

impl ChosenProgram {
    fn of(entry: Entry, file: Option<PathBuf>) -> ChosenProgram {
        let notebook = file.as_deref().filter(|file| notebook::is_notebook(file));
        let own_folder = notebook.and_then(Path::parent).map(Path::to_owned);
        ChosenProgram {
            entry,
            file,
            is_configured: false,
            is_typed: false,
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            launcher: None,
            folder: None,
            own_folder,
            python_path: Vec::new(),
            origin: None,
            notes: Vec::new(),
        }
    }

    fn script(path: PathBuf) -> ChosenProgram {
        ChosenProgram::of(Entry::Script { path: path.clone() }, Some(path))
    }

    fn provider(path: PathBuf) -> ChosenProgram {
        ChosenProgram::of(Entry::Provider { path: path.clone() }, Some(path))
    }

    /// Returns a program that discovery found, with a path relative to the project's root.
    fn found(root: &Path, run: Run) -> ChosenProgram {
        let path = root.join(&run.path);
        let entry = match run.module {
            Some(name) => Entry::Module { name },
            None => Entry::Script { path: path.clone() },
        };
        ChosenProgram {
            arguments: run.arguments,
            environment: run.environment,
            launcher: config::Launcher::of_words(run.launcher).ok(),
            folder: run.folder.map(|folder| root.join(folder)),
            origin: run.origin,
            ..ChosenProgram::of(entry, Some(path))
        }
    }

    /// Runs a script as a module if its imports require that, and adds the folders of the project's
    /// modules that it imports to Python's path.
    pub(super) fn find_imports(&mut self, root: &Path, discovery: &mut Discovery) {
        let Some(file) = self.file.as_deref().and_then(|file| file.strip_prefix(root).ok()) else {
            return;
        };
        let found = match &self.entry {
            Entry::Provider { .. } => return,
            Entry::Module { name } => {
                // `src/pkg/train.py` is imported from `src`.
                let depth = name.split(':').next().unwrap_or_default().split('.').count();
                let is_main =
                    file.file_name().is_some_and(|it| it == "__main__.py" || it == "__init__.py");
                let base = file.ancestors().nth(depth + usize::from(is_main));
                self.python_path.extend(base.map(|base| root.join(base)));
                return;
            }
            Entry::Script { .. } => discovery.import_path(root, file),
        };
        if let Some((name, base)) = found.module {
            self.entry = Entry::Module { name };
            // Users who install `src/package` work in the folder above `src`.
            let is_src = base.file_name().is_some_and(|it| it == "src") && base != root;
            let above = base.parent().filter(|_| is_src).unwrap_or(&base);
            self.own_folder = Some(above.to_owned());
            self.python_path.push(base);
        }
        self.python_path.extend(found.more);
    }
}

pub(super) fn choose(
    request: &Request,
    root: &Path,
    config: &Config,
    store: &Store,
    discovery: &mut Discovery,
) -> Result<ChosenProgram, Outcome> {
    if let Some(command) = &request.command {
        return Ok(typed(command.clone(), root, discovery));
    }
    let configured = if let Some(script) = &config.script {
        Some(ChosenProgram::script(inside(root, script.as_path(), "script")?))
    } else if let Some(provider) = &config.provider {
        Some(ChosenProgram::provider(inside(root, provider.as_path(), "provider")?))
    } else if let Some(module) = &config.module {
        let name = module.as_str().to_owned();
        let folder = config.working_directory.as_ref().map_or(Path::new(""), |it| it.as_path());
        let file = discovery.module_file(root, folder, &name).map(|file| root.join(file));
        Some(ChosenProgram::of(Entry::Module { name }, file))
    } else {
        None
    };
    if let Some(script) = &request.script {
        let is_configured = configured.as_ref().is_some_and(|configured| {
            let (Entry::Script { path } | Entry::Provider { path }) = &configured.entry else {
                return false;
            };
            path == script
        });
        let is_provider = discovery.is_provider(script);
        if is_provider {
            return Ok(ChosenProgram { is_configured, ..ChosenProgram::provider(script.clone()) });
        }
        let mut chosen = ChosenProgram { is_configured, ..ChosenProgram::script(script.clone()) };
        let relative = script.strip_prefix(root).unwrap_or(script);
        if !is_configured {
            let run = discovery.named_script(root, relative);
            (chosen.arguments, chosen.origin) = (run.arguments, run.origin);
        }
        return Ok(chosen);
    }
    if let Some(configured) = configured {
        return Ok(ChosenProgram { is_configured: true, ..configured });
    }
    let changed = request.changed.as_deref().and_then(|file| file.strip_prefix(root).ok());
    let remembered = request.remembered.clone().or_else(|| store.remembered_run(root));
    // The choice may have been made in the workspace's folder, above the project.
    let remembered = remembered.map(|text| {
        let full = request.workspace.join(&text);
        let inside = full.strip_prefix(root).ok().filter(|_| full.is_file());
        inside.map_or(text, |inside| inside.to_string_lossy().into_owned())
    });
    match discovery.find(root, changed, remembered.as_deref()) {
        SearchResult::Run(run) => Ok(ChosenProgram::found(root, run)),
        SearchResult::Provider(path) => Ok(ChosenProgram::provider(root.join(path))),
        SearchResult::Several { candidates, leads, trains } => {
            if let [first, others @ ..] = candidates.as_slice()
                && leads
                && trains
                && request.takes_likeliest
            {
                let mut chosen = ChosenProgram::found(root, first.run.clone());
                chosen.notes.push(likeliest(&first.run, others));
                return Ok(chosen);
            }
            let runs = candidates.into_iter().map(|candidate| {
                let origin = candidate.run.origin.clone();
                let why: Vec<String> = candidate.reasons.into_iter().chain(origin).collect();
                RunChoice { command: candidate.run.display(), why: why.join(", ") }
            });
            Err(Outcome::Choose { root: root.to_owned(), runs: runs.collect(), trains })
        }
        SearchResult::Nothing { looked_at, cut_short, likely } => {
            Err(Outcome::Problem(nothing_to_run(root, looked_at, cut_short, &likely)))
        }
    }
}

fn likeliest(run: &Run, others: &[Candidate]) -> String {
    let names: Vec<String> = others.iter().map(|one| name_of(&one.run)).collect();
    format!(
        "{} scripts could be the training script; {} is the most likely. The others: {}. To \
        profile another one: `ridgeline profile {}`",
        others.len() + 1,
        name_of(run),
        first_few(&names),
        others.first().map(|one| name_of(&one.run)).unwrap_or_default()
    )
}

/// Lists the first names, and how many more there are.
pub(crate) fn first_few(names: &[String]) -> String {
    const LIMIT: usize = 3;
    let listed = names.iter().take(LIMIT).cloned();
    let more = names.len().checked_sub(LIMIT + 1).map(|more| format!("{} more", more + 1));
    listed.chain(more).collect::<Vec<_>>().join(", ")
}

fn name_of(run: &Run) -> String {
    run.path.to_string_lossy().replace('\\', "/")
}

fn typed(command: TypedCommand, root: &Path, discovery: &mut Discovery) -> ChosenProgram {
    let TypedCommand { entry, arguments, environment, launcher, working_directory, notes } =
        command;
    let file = match &entry {
        Entry::Script { path } | Entry::Provider { path } => Some(path.clone()),
        Entry::Module { name } => {
            let name = name.split(':').next().unwrap_or_default();
            let folder = working_directory.strip_prefix(root).ok();
            let file = folder.and_then(|folder| discovery.module_file(root, folder, name));
            file.map(|file| root.join(file))
        }
    };
    let folder = Some(working_directory);
    ChosenProgram {
        is_typed: true,
        arguments,
        environment,
        launcher,
        folder,
        notes,
        ..ChosenProgram::of(entry, file)
    }
}

fn nothing_to_run(root: &Path, searched: usize, cut_short: bool, likely: &[PathBuf]) -> Problem {
    let bound = if cut_short { ", and the search was cut short" } else { "" };
    let files = if searched == 1 { "1 Python file" } else { &format!("{searched} Python files") };
    let likely: Vec<String> = likely.iter().map(|path| path.display().to_string()).collect();
    let example = likely.first().map_or("train.py", String::as_str);
    let next = format!(
        "Pass the command that starts it: `ridgeline profile -- python {}`, or set `script = \
        \"{example}\"` in {}",
        shell_words::quote(example),
        config::FILE_NAME
    );
    let nearest = match likely.as_slice() {
        [] => String::new(),
        files => {
            format!(
                ". These scripts run PyTorch, but no training was found in them: {}",
                files.join(", ")
            )
        }
    };
    Problem::new(
        ProblemKind::NothingToRun,
        format!(
            "no training script was found in {} ({files} searched, and the commands in README, \
            Makefile, shell scripts, launch.json and pyproject.toml{bound}){nearest}",
            root.display()
        ),
        next,
    )
}

pub(super) fn check_is_script(path: &Path) -> Result<(), Outcome> {
    let nothing = |what: String, next: &str| {
        Err(Outcome::Problem(Problem::new(ProblemKind::NothingToRun, what, next)))
    };
    let shown = path.display();
    match path.metadata() {
        Err(error) => nothing(format!("{shown} cannot be read: {error}"), ""),
        Ok(metadata) if !metadata.is_file() => nothing(format!("{shown} is not a file"), ""),
        Ok(_) => match path.extension().and_then(|extension| extension.to_str()) {
            Some("py" | "pyw" | notebook::EXTENSION) => Ok(()),
            _ => nothing(
                format!("{shown} is not a Python file"),
                "Pass a script that ends in .py, or a notebook",
            ),
        },
    }
}

/// Returns a configured path with symbolic links resolved. Paths outside the project are refused.
pub(super) fn inside(root: &Path, path: &Path, key: &str) -> Result<PathBuf, Outcome> {
    config::inside(root, path).map_err(|why| {
        let what = format!("`{key}` in the configuration of {}: {why}", root.display());
        Outcome::Problem(Problem::new(ProblemKind::Configuration, what, ""))
    })
}
