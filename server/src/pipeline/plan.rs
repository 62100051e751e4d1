//! Decides what will be run, without running anything: configuration, discovery, limits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ridgeline_analysis::python::batch_site::{self, BatchSite};
use ridgeline_analysis::python::semantics::{Project, Refusal};
use ridgeline_gpu::agent::{Entry, Iterations, Launcher, Prepare, RunLimits, RunRequest};
use ridgeline_gpu::environment;
use ridgeline_gpu::interpreter::Search;
use ridgeline_gpu::limits::{Machine, default_limits};

use super::outcome::{Outcome, Problem, ProblemKind};
use super::program::{ChosenProgram, check_is_script, choose, inside};
use crate::batch::Sources;
use crate::config::{self, Config, DeviceChoice, Loaded, SideEffects};
use crate::discover::{Discovery, project_root, with_arguments};
use crate::documents::real_path;
use crate::store::Store;

/// The number of iterations to time by default.
const TIMED: u32 = 3;
/// The maximum number of iterations to time if they are fast or vary. Fast ones cost little, and a
/// few that vary are not representative.
const TIMED_LIMIT: u32 = 6;

/// What a user or an editor requests. All paths are absolute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// The workspace folder.
    pub workspace: PathBuf,
    /// The file whose change caused the run, if any.
    pub changed: Option<PathBuf>,
    /// The script or provider file that the user gave for this run.
    pub script: Option<PathBuf>,
    /// The command that the user typed for this run. It replaces the configuration's program,
    /// arguments and launcher.
    pub command: Option<TypedCommand>,
    /// The choice that the user made earlier among several programs. Without it, the stored one is
    /// used.
    pub remembered: Option<String>,
    /// If there are several programs, run the likeliest one, because there is nobody to ask.
    pub takes_likeliest: bool,
    /// The interpreter set in the editor.
    pub editor_python: Option<PathBuf>,
    /// The user's settings for this run, which override the configuration.
    pub overrides: Overrides,
}

/// A command that a user typed, parsed except for what depends on Python's path.
#[derive(Clone, Debug)]
pub(crate) struct TypedCommand {
    /// The script, module or function.
    pub entry: Entry,
    pub arguments: Vec<String>,
    /// Variables in front of the command.
    pub environment: BTreeMap<String, String>,
    /// What starts its processes.
    pub launcher: Option<config::Launcher>,
    /// The folder in which it was typed, or that it names.
    pub working_directory: PathBuf,
    /// The parts of it that have no effect on a profiled run.
    pub notes: Vec<String>,
}

/// The user's settings for one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// The Python to run with.
    pub python: Option<PathBuf>,
    /// The device to run on.
    pub device: Option<DeviceChoice>,
    /// The batch size to request from a provider.
    pub batch_size: Option<u32>,
    /// The number of iterations to time.
    pub iterations: Option<u32>,
    /// The minimum number of iterations to time, unless this run has its own number.
    pub min_iterations: u32,
    /// The time limit in seconds.
    pub seconds: Option<u32>,
    pub arguments: Option<Vec<String>>,
    pub working_directory: Option<PathBuf>,
    /// What starts the program's processes.
    pub launcher: Option<config::Launcher>,
    /// What happens to the program's writes.
    pub side_effects: Option<SideEffects>,
    /// Whether to estimate even if the system has no sandbox.
    pub without_sandbox: bool,
}

/// What will be run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The project's root, which paths in the profile are relative to.
    pub root: PathBuf,
    /// Where to look for a Python.
    pub search: Search,
    /// The script, module or provider.
    pub entry: Entry,
    /// Whether the user gave the Python for this run.
    pub python_is_named: bool,
    /// Notes for the user about how this was decided.
    pub notes: Vec<String>,
    /// The launcher's command, as shown to the user; `None` if the agent starts the program.
    pub launched_by: Option<String>,
    /// Where the command was found: `command from README.md:14`.
    pub origin: Option<String>,
    /// The program's Python file, if known.
    file: Option<PathBuf>,
    launcher: Option<Launcher>,
    request: RunRequest,
}

impl Plan {
    /// Returns the request to the agent for one of the runs after a profiled one (other batch
    /// sizes, comparisons of edits), which records into `out`. Their writes are never kept.
    pub(crate) fn run_request(&self, out: PathBuf) -> RunRequest {
        RunRequest { out, ..self.request.clone() }.redirected()
    }

    /// Returns the request for the profiled run itself, with the plan's launcher if it has one: for
    /// an agent that serves launched runs.
    pub(crate) fn launched_request(&self, out: PathBuf) -> RunRequest {
        RunRequest { out, launcher: self.launcher.clone(), ..self.request.clone() }
    }

    /// Returns the batch size in the program's text. A provider may have none: it then chooses it
    /// itself. It only reads files.
    ///
    /// # Errors
    /// Why the batch size is not a single number.
    pub(crate) fn batch_size(&self) -> Result<Option<u64>, Refusal> {
        if matches!(self.entry, Entry::Provider { .. }) {
            return Ok(self.request.batch_size);
        }
        let site = self.batch_site(&self.sources())?;
        Ok(Some(site.value))
    }

    /// The texts of the project on disk.
    fn sources(&self) -> Sources {
        Sources::new(&real_path(&self.root), [])
    }

    /// Finds the number in the text that is the batch size.
    fn batch_site(&self, texts: &Sources) -> Result<BatchSite, Refusal> {
        let relative = |path: &Path| {
            path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().replace('\\', "/")
        };
        let path = match &self.entry {
            Entry::Script { path } | Entry::Provider { path } => relative(path),
            Entry::Module { name } => match &self.file {
                Some(file) => relative(file),
                None => {
                    let base = name.replace('.', "/");
                    let file = format!("{base}.py");
                    if texts.text(&file).is_some() { file } else { format!("{base}/__main__.py") }
                }
            },
        };
        let program = batch_site::Entry {
            path,
            working_directory: relative(&self.request.cwd),
            arguments: self.request.args.clone(),
            environment: self.request.env.keys().cloned().collect(),
            ..batch_site::Entry::default()
        };
        batch_site::batch_site(texts, &program)
    }

    /// Returns the same plan with another batch size: a provider gets it as an argument, a script
    /// in an overlay. It only reads files.
    ///
    /// # Errors
    /// Why the batch size is not a single number that can be replaced.
    pub(crate) fn at_batch(mut self, batch_size: u32) -> Result<Plan, Refusal> {
        if matches!(self.entry, Entry::Provider { .. }) {
            self.request.batch_size = Some(u64::from(batch_size));
            return Ok(self);
        }
        let texts = self.sources();
        let site = self.batch_site(&texts)?;
        // The file may have changed since it was searched.
        let text = texts.text(&site.file).unwrap_or_default();
        let around = text.get(..site.span.start).zip(text.get(site.span.end..));
        let Some((before, after)) = around else {
            return Err(Refusal { message: format!("{} has just changed", site.file), at: None });
        };
        self.request.overlay.insert(site.file, format!("{before}{batch_size}{after}"));
        Ok(self)
    }

    /// Returns the environment variables for the program.
    pub(crate) fn environment(&self) -> &BTreeMap<String, String> {
        &self.request.env
    }

    /// Returns what the agent can prepare before the run.
    pub(crate) fn prepare(&self, preimport: bool) -> Prepare {
        Prepare { root: self.root.clone(), entry: self.entry.clone(), preimport }
    }

    /// Returns the program as a user would write it: `train.py`, `python -m package.train`.
    pub(crate) fn entry_name(&self) -> String {
        match &self.entry {
            Entry::Script { path } | Entry::Provider { path } => {
                path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
            }
            Entry::Module { name } if name.contains(':') => name.clone(),
            Entry::Module { name } => format!("python -m {name}"),
        }
    }

    /// Returns the name with its arguments and where the command was found, on one line.
    pub(crate) fn display(&self) -> String {
        let name = match &self.entry {
            Entry::Module { .. } => self.entry_name(),
            _ => shell_words::quote(&self.entry_name()).into_owned(),
        };
        let name = with_arguments(&name, &self.request.args);
        match &self.origin {
            Some(origin) => format!("{name} ({origin})"),
            None => name,
        }
    }

    /// Returns the program's Python file, if known.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

/// Decides what to run. It only reads files.
///
/// # Errors
/// An [`Outcome`] without a measurement: an invalid configuration, nothing to run, or a choice that
/// the user has to make.
pub(crate) fn plan(
    request: &Request,
    store: &Store,
    discovery: &mut Discovery,
) -> Result<Plan, Outcome> {
    let typed = request.command.as_ref().and_then(|command| match &command.entry {
        Entry::Script { path } | Entry::Provider { path } => Some(path.as_path()),
        Entry::Module { .. } => None,
    });
    let target = request.script.as_deref().or(request.changed.as_deref()).or(typed);
    let root = match target {
        Some(file) if file.starts_with(&request.workspace) => {
            project_root(file, Some(&request.workspace))
        }
        _ => request.workspace.clone(),
    };
    let Loaded { config, file: _, mut notes } = configuration(&root)?;
    let mut chosen = choose(request, &root, &config, store, discovery)?;
    chosen.find_imports(&root, discovery);
    notes.append(&mut chosen.notes);
    let (is_configured, is_typed) = (chosen.is_configured, chosen.is_typed);
    let ChosenProgram { entry, arguments: own, origin, file, .. } = chosen;
    // A typed command may be installed: a Python file without an ending.
    if let Entry::Script { path } | Entry::Provider { path } = &entry
        && !is_typed
    {
        check_is_script(path)?;
    }
    let overrides = &request.overrides;
    let own_folder = chosen.own_folder.as_ref();
    let working_directory = match (&overrides.working_directory, &config.working_directory) {
        _ if is_typed && chosen.folder.is_some() => chosen.folder.unwrap_or_default(),
        (Some(folder), None) => own_folder.unwrap_or(folder).clone(),
        (Some(folder), _) => folder.clone(),
        (None, Some(folder)) => inside(&root, folder.as_path(), "working_directory")?,
        (None, None) => chosen.folder.or(own_folder.cloned()).unwrap_or_else(|| root.clone()),
    };
    // What is typed for this run overrides the configuration, which overrides what was found.
    let mut environment = chosen.environment;
    for (name, value) in config.environment.variables() {
        if !(is_typed && environment.contains_key(name)) {
            environment.insert(name.clone(), value.clone());
        }
    }
    extend_python_path(&mut environment, &chosen.python_path, &working_directory, &entry);
    let args = match &overrides.arguments {
        Some(arguments) => arguments.clone(),
        // The configured arguments belong to the configured program.
        None if is_configured => {
            config.arguments.iter().map(|argument| argument.as_str().to_owned()).collect()
        }
        None => own,
    };
    let named = overrides.python.as_deref().map(environment_python);
    let configured_python = named.or_else(|| configured_python(&root, &config));
    let run = RunRequest {
        out: PathBuf::new(),
        root: root.clone(),
        entry: entry.clone(),
        args,
        env: environment,
        cwd: working_directory,
        user_code: user_code(&root, &config)?,
        not_user_code: not_user_code(&root, &config),
        user_packages: user_packages(&config),
        device: overrides.device.unwrap_or(config.device).to_string(),
        iterations: iterations(&config, overrides),
        earlier: Vec::new(),
        batch_size: overrides
            .batch_size
            .or(config.batch_size.map(|size| size.get()))
            .map(u64::from),
        eager: false,
        overlay: BTreeMap::new(),
        launcher: None,
        versions: Vec::new(),
        turn: 1,
        trajectory: None,
        side_effects: overrides.side_effects.unwrap_or(config.side_effects).mode(),
        keep_writes: config.keep_writes.iter().map(|path| path.as_str().to_owned()).collect(),
        without_sandbox: overrides.without_sandbox,
        limits: limits(&config, overrides),
    };
    let search = Search {
        root: root.clone(),
        workspace: request.workspace.clone(),
        configured: configured_python,
        editor: request.editor_python.clone(),
        private: environment::installed(store.cache()),
    };
    let python_is_named = overrides.python.is_some();
    let configured_launcher = config.launcher.as_ref().filter(|_| !is_typed);
    let launcher = overrides.launcher.as_ref().or(configured_launcher).or(chosen.launcher.as_ref());
    // A provider has no ranks.
    let launcher = launcher.filter(|_| !matches!(entry, Entry::Provider { .. }));
    Ok(Plan {
        origin: origin.filter(|_| overrides.arguments.is_none()),
        file,
        launched_by: launcher.map(config::Launcher::display),
        launcher: launcher.map(|launcher| launcher.of_project(&root)),
        root,
        search,
        entry,
        python_is_named,
        notes,
        request: run,
    })
}

/// Returns the request with which a notebook's kernel records one of its cells into `out`. The
/// program runs in the kernel already, so nothing of the configuration that starts one applies.
///
/// # Errors
/// If the configuration is wrong.
pub(crate) fn cell_request(
    root: &Path,
    notebook: PathBuf,
    out: PathBuf,
) -> Result<RunRequest, Outcome> {
    let config = configuration(root)?.config;
    let overrides = Overrides::default();
    // A cell may have few iterations, and it runs only once.
    let iterations = Iterations { warmup: 1, ..iterations(&config, &overrides) };
    Ok(RunRequest {
        out,
        root: root.to_owned(),
        entry: Entry::Script { path: notebook },
        args: Vec::new(),
        env: BTreeMap::new(),
        cwd: root.to_owned(),
        user_code: user_code(root, &config)?,
        not_user_code: not_user_code(root, &config),
        user_packages: user_packages(&config),
        device: DeviceChoice::default().to_string(),
        iterations,
        earlier: Vec::new(),
        batch_size: None,
        eager: false,
        overlay: BTreeMap::new(),
        launcher: None,
        versions: Vec::new(),
        turn: 1,
        trajectory: None,
        side_effects: SideEffects::Allow.mode(),
        keep_writes: Vec::new(),
        without_sandbox: false,
        limits: limits(&config, &overrides),
    })
}

fn configuration(root: &Path) -> Result<Loaded, Outcome> {
    config::load(root).map_err(|error| {
        Outcome::Problem(Problem::new(ProblemKind::Configuration, error.to_string(), ""))
    })
}

fn user_packages(config: &Config) -> Vec<String> {
    config.user_code.packages.iter().map(|package| package.as_str().to_owned()).collect()
}

/// Returns the absolute path of the Python in the configuration.
pub(crate) fn configured_python(root: &Path, config: &Config) -> Option<PathBuf> {
    config.python.as_deref().map(|path| environment_python(&root.join(with_home(path))))
}

/// Prepends folders to the program's `PYTHONPATH`, except the one that Python searches anyway.
fn extend_python_path(
    environment: &mut BTreeMap<String, String>,
    more: &[PathBuf],
    working_directory: &Path,
    entry: &Entry,
) {
    const NAME: &str = "PYTHONPATH";
    let is_module = matches!(entry, Entry::Module { .. });
    let more: Vec<&PathBuf> = more
        .iter()
        .filter(|folder| !(is_module && folder.as_path() == working_directory))
        .collect();
    if more.is_empty() {
        return;
    }
    let known = environment.get(NAME).cloned().or_else(|| std::env::var(NAME).ok());
    let known = known.filter(|known| !known.is_empty()).map(PathBuf::from);
    let known: Vec<PathBuf> =
        known.iter().flat_map(|known| std::env::split_paths(known).collect::<Vec<_>>()).collect();
    if let Ok(joined) = std::env::join_paths(more.into_iter().chain(&known)) {
        environment.insert(NAME.to_owned(), joined.to_string_lossy().into_owned());
    }
}

fn user_code(root: &Path, config: &Config) -> Result<Vec<PathBuf>, Outcome> {
    if config.user_code.paths.is_empty() {
        return Ok(vec![root.to_owned()]);
    }
    config
        .user_code
        .paths
        .iter()
        .map(|path| inside(root, path.as_path(), "user_code.paths"))
        .collect()
}

/// Returns what the configuration excludes, and environments in the project's folder: their
/// packages are not the project's code.
fn not_user_code(root: &Path, config: &Config) -> Vec<PathBuf> {
    let configured = config.user_code.exclude.iter().map(|path| root.join(path.as_path()));
    let environments =
        root.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).filter(
            |folder| folder.join("pyvenv.cfg").is_file() || folder.join("conda-meta").is_dir(),
        );
    configured.chain(environments).collect()
}

fn iterations(config: &Config, overrides: &Overrides) -> Iterations {
    let requested = overrides
        .iterations
        .or(config.iterations.timed.map(|timed| timed.get().max(overrides.min_iterations)));
    let default = TIMED.max(overrides.min_iterations);
    Iterations {
        warmup: config.iterations.warmup.get(),
        timed: requested.unwrap_or(default),
        timed_at_most: requested.is_none().then(|| TIMED_LIMIT.max(default)),
        profiled: config.iterations.profiled.get(),
        found_by: config.iterations.found_by.map(|found_by| found_by.name().to_owned()),
        signals: None,
    }
}

fn limits(config: &Config, overrides: &Overrides) -> RunLimits {
    let defaults = default_limits(&Machine::query());
    RunLimits {
        seconds: overrides
            .seconds
            .or(config.limits.seconds.map(|seconds| seconds.get()))
            .map_or(defaults.seconds, u64::from),
        memory_bytes: config.limits.memory.map_or(defaults.memory_bytes, |memory| memory.bytes()),
        ..defaults
    }
}

/// Expands a leading `~`, which users write in configurations.
fn with_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), directories::BaseDirs::new()) {
        (Ok(rest), Some(dirs)) => dirs.home_dir().join(rest),
        _ => path.to_owned(),
    }
}

/// Returns the Python of an environment, if the path is its folder.
fn environment_python(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_owned();
    }
    let places = ["bin/python", "bin/python3", "Scripts/python.exe", "python.exe"];
    let found = places.iter().map(|place| path.join(place)).find(|python| python.is_file());
    found.unwrap_or_else(|| path.to_owned())
}
