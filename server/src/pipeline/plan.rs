//! What will be run, decided without running anything: configuration, discovery, limits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::python::batch_site::{self};
use ridgeline_analysis::python::semantics::{Project, Refusal};
use ridgeline_gpu::agent::{Entry, Iterations, Launcher, Prepare, RunLimits, RunRequest};
use ridgeline_gpu::environment;
use ridgeline_gpu::interpreter::Search;
use ridgeline_gpu::limits::{Machine, default_limits};

use super::outcome::{Outcome, Problem, ProblemKind};
use crate::config::{self, Config, DeviceChoice, Loaded, SideEffects};
use crate::discover::{Candidate, Discovery, Found, Run, project_root, with_arguments};
use crate::documents::text_on_disk;
use crate::profiler::RunChoice;
use crate::store::Store;

/// Iterations to time where nobody says how many.
const TIMED: u32 = 3;
/// The same, where they are quick or unequal: these cost nothing, and of those a few say little.
const TIMED_AT_MOST: u32 = 6;

/// What a person or an editor asks for. All paths are absolute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// The workspace folder.
    pub workspace: PathBuf,
    /// The file whose change is the reason, where there is one.
    pub changed: Option<PathBuf>,
    /// The script or provider file that the person named for this run.
    pub script: Option<PathBuf>,
    /// The command that the person typed for this run. It stands for the configuration's program, its
    /// arguments and its launcher.
    pub command: Option<TypedCommand>,
    /// What the person once chose where several programs fit. Without it, the store is asked.
    pub remembered: Option<String>,
    /// Where several programs fit, the likeliest one runs: there is nobody to ask.
    pub takes_likeliest: bool,
    /// The editor's choice of interpreter.
    pub editor_python: Option<PathBuf>,
    /// What the person set for this run, over the configuration.
    pub overrides: Overrides,
}

/// A command that a person typed, read but for what Python's path needs.
#[derive(Clone, Debug)]
pub(crate) struct TypedCommand {
    /// The script, module or function.
    pub entry: Entry,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables in front of the command.
    pub environment: BTreeMap<String, String>,
    /// What starts its processes.
    pub launcher: Option<config::Launcher>,
    /// The folder that it was typed in, or that it names.
    pub working_directory: PathBuf,
    /// What of it has no effect on a profiled run.
    pub notes: Vec<String>,
}

/// What a person set for one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// The Python to run with.
    pub python: Option<PathBuf>,
    /// Where to run.
    pub device: Option<DeviceChoice>,
    /// The batch size that a provider is asked for.
    pub batch_size: Option<u32>,
    /// Iterations to time.
    pub iterations: Option<u32>,
    /// Iterations to time at the least where nobody set how many for this run.
    pub least_iterations: u32,
    /// Seconds until the run is stopped.
    pub seconds: Option<u32>,
    /// The program's arguments.
    pub arguments: Option<Vec<String>>,
    /// The folder to run in.
    pub working_directory: Option<PathBuf>,
    /// What starts the processes of the program.
    pub launcher: Option<config::Launcher>,
    /// What becomes of what the program writes.
    pub side_effects: Option<SideEffects>,
    /// Estimates may go on where the system cannot confine them.
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
    /// Whether the person named the Python for this very run.
    pub python_is_named: bool,
    /// What the person should know about how this was decided.
    pub notes: Vec<String>,
    /// What starts its processes, as a person reads it; nothing where the agent does.
    pub launched_by: Option<String>,
    /// Where the command was found that this runs: `command from README.md:14`.
    pub origin: Option<String>,
    /// The program's Python file, where it is known.
    file: Option<PathBuf>,
    launcher: Option<Launcher>,
    request: RunRequest,
}

impl Plan {
    /// The request to the agent for one of the runs that follow a profiled one (other batch sizes, edits
    /// that are compared), for a recording into `out`. What they write is never kept.
    pub(crate) fn run_request(&self, out: PathBuf) -> RunRequest {
        RunRequest { out, ..self.request.clone() }.redirected()
    }

    /// The request for the profiled run itself, with the launcher where the plan has one: for an agent
    /// that serves launched runs.
    pub(crate) fn launched_request(&self, out: PathBuf) -> RunRequest {
        RunRequest { out, launcher: self.launcher.clone(), ..self.request.clone() }
    }

    /// The same with another batch size: a provider is asked for it, a script finds it in its text. No
    /// file is touched. It reads files.
    ///
    /// # Errors
    /// Why the batch size is not one number that can be replaced.
    pub(crate) fn at_batch(mut self, batch_size: u32) -> Result<Plan, Refusal> {
        if matches!(self.entry, Entry::Provider { .. }) {
            self.request.batch_size = Some(u64::from(batch_size));
            return Ok(self);
        }
        let relative = |path: &Path| {
            path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().replace('\\', "/")
        };
        let texts = OnDisk(self.root.clone());
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
        let site = batch_site::batch_site(&texts, &program)?;
        // The file may have changed since it was searched.
        let text = texts.text(&site.file).unwrap_or_default();
        let around = text.get(..site.span.start).zip(text.get(site.span.end..));
        let Some((before, after)) = around else {
            return Err(Refusal { message: format!("{} has just changed", site.file), at: None });
        };
        self.request.overlay.insert(site.file, format!("{before}{batch_size}{after}"));
        Ok(self)
    }

    /// The configuration's variables for the program.
    pub(crate) fn environment(&self) -> &BTreeMap<String, String> {
        &self.request.env
    }

    /// What the agent can do ahead of the run.
    pub(crate) fn prepare(&self, preimport: bool) -> Prepare {
        Prepare { root: self.root.clone(), entry: self.entry.clone(), preimport }
    }

    /// What runs, as a person names it: `train.py`, `python -m package.train`.
    pub(crate) fn entry_name(&self) -> String {
        match &self.entry {
            Entry::Script { path } | Entry::Provider { path } => {
                path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
            }
            Entry::Module { name } if name.contains(':') => name.clone(),
            Entry::Module { name } => format!("python -m {name}"),
        }
    }

    /// The same with its arguments and where the command was found, on one line.
    pub(crate) fn shown(&self) -> String {
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

    /// The program's Python file, where it is known.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

/// The texts of a project as the disk has them.
struct OnDisk(PathBuf);

impl Project for OnDisk {
    fn text(&self, path: &str) -> Option<Arc<str>> {
        let file = config::inside(&self.0, Path::new(path)).ok()?;
        // Reading a named pipe would wait for ever.
        file.is_file().then(|| text_on_disk(&file)).flatten().map(Into::into)
    }
}

/// Decides what to run. It reads files and runs nothing.
///
/// # Errors
/// An [`Outcome`] other than a measurement: a wrong configuration, nothing to run, or a choice that
/// the person has to make.
pub(crate) fn plan(
    request: &Request,
    store: &Store,
    discovery: &mut Discovery,
) -> Result<Plan, Outcome> {
    let typed = request.command.as_ref().and_then(|command| match &command.entry {
        Entry::Script { path } | Entry::Provider { path } => Some(path.as_path()),
        Entry::Module { .. } => None,
    });
    let about = request.script.as_deref().or(request.changed.as_deref()).or(typed);
    let root = match about {
        Some(file) if file.starts_with(&request.workspace) => {
            project_root(file, Some(&request.workspace))
        }
        _ => request.workspace.clone(),
    };
    let Loaded { config, file: _, mut notes } = config::load(&root).map_err(|error| {
        Outcome::Problem(Problem::new(ProblemKind::Configuration, error.to_string(), ""))
    })?;
    let mut chosen = choose(request, &root, &config, store, discovery)?;
    chosen.find_imports(&root, discovery);
    notes.append(&mut chosen.notes);
    let (is_configured, is_typed) = (chosen.is_configured, chosen.is_typed);
    let Chosen { entry, arguments: own, origin, file, .. } = chosen;
    if let Entry::Script { path } | Entry::Provider { path } = &entry {
        refuse_what_cannot_run(path)?;
    }
    let overrides = &request.overrides;
    let own_folder = chosen.module_folder.as_ref();
    let working_directory = match (&overrides.working_directory, &config.working_directory) {
        _ if is_typed && chosen.folder.is_some() => chosen.folder.unwrap_or_default(),
        (Some(folder), None) => own_folder.unwrap_or(folder).clone(),
        (Some(folder), _) => folder.clone(),
        (None, Some(folder)) => inside(&root, folder.as_path(), "working_directory")?,
        (None, None) => chosen.folder.or(own_folder.cloned()).unwrap_or_else(|| root.clone()),
    };
    // What is typed for this run comes before the configuration, and what is found comes after it.
    let mut environment = chosen.environment;
    for (name, value) in config.environment.variables() {
        if !(is_typed && environment.contains_key(name)) {
            environment.insert(name.clone(), value.clone());
        }
    }
    extend_python_path(&mut environment, &chosen.python_path, &working_directory, &entry);
    let args = match &overrides.arguments {
        Some(arguments) => arguments.clone(),
        // The configured arguments are those of the configured program.
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
        user_packages: config
            .user_code
            .packages
            .iter()
            .map(|package| package.as_str().to_owned())
            .collect(),
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
        side_effects: overrides.side_effects.unwrap_or(config.side_effects).mode(),
        keep_writes: config.keep_writes.iter().map(|kept| kept.as_str().to_owned()).collect(),
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
    // A provider's iterations are its own: it has no ranks.
    let launcher = launcher.filter(|_| !matches!(entry, Entry::Provider { .. }));
    Ok(Plan {
        origin: origin.filter(|_| overrides.arguments.is_none()),
        file,
        launched_by: launcher.map(config::Launcher::shown),
        launcher: launcher.map(|launcher| launcher.of_project(&root)),
        root,
        search,
        entry,
        python_is_named,
        notes,
        request: run,
    })
}

/// The Python that the configuration names, from the root of the file system.
pub(crate) fn configured_python(root: &Path, config: &Config) -> Option<PathBuf> {
    config.python.as_deref().map(|path| environment_python(&root.join(with_home(path))))
}

/// What was decided to run.
struct Chosen {
    entry: Entry,
    /// Its Python file, where it is known.
    file: Option<PathBuf>,
    /// The configuration named it.
    is_configured: bool,
    /// The person typed the command.
    is_typed: bool,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    launcher: Option<config::Launcher>,
    folder: Option<PathBuf>,
    /// The folder in which a script has to run that runs as a module.
    module_folder: Option<PathBuf>,
    /// Where Python looks for modules besides.
    python_path: Vec<PathBuf>,
    origin: Option<String>,
    notes: Vec<String>,
}

impl Chosen {
    fn of(entry: Entry, file: Option<PathBuf>) -> Chosen {
        Chosen {
            entry,
            file,
            is_configured: false,
            is_typed: false,
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            launcher: None,
            folder: None,
            module_folder: None,
            python_path: Vec::new(),
            origin: None,
            notes: Vec::new(),
        }
    }

    fn script(path: PathBuf) -> Chosen {
        Chosen::of(Entry::Script { path: path.clone() }, Some(path))
    }

    fn provider(path: PathBuf) -> Chosen {
        Chosen::of(Entry::Provider { path: path.clone() }, Some(path))
    }

    /// What discovery found, below the project's root.
    fn found(root: &Path, run: Run) -> Chosen {
        let path = root.join(&run.path);
        let entry = match run.module {
            Some(name) => Entry::Module { name },
            None => Entry::Script { path: path.clone() },
        };
        Chosen {
            arguments: run.arguments,
            environment: run.environment,
            launcher: config::Launcher::of_words(run.launcher).ok(),
            folder: run.folder.map(|folder| root.join(folder)),
            origin: run.origin,
            ..Chosen::of(entry, Some(path))
        }
    }

    /// Runs a script as a module where its imports need that, and lets Python find what it imports of the
    /// project.
    fn find_imports(&mut self, root: &Path, discovery: &mut Discovery) {
        let Some(file) = self.file.as_deref().and_then(|file| file.strip_prefix(root).ok()) else {
            return;
        };
        let found = match &self.entry {
            Entry::Provider { .. } => return,
            Entry::Module { name } => {
                // `src/pkg/train.py` is looked for in `src`.
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
            // Who installs `src/package` works in the folder above `src`.
            let is_src = base.file_name().is_some_and(|it| it == "src") && base != root;
            let above = base.parent().filter(|_| is_src).unwrap_or(&base);
            self.module_folder = Some(above.to_owned());
            self.python_path.push(base);
        }
        self.python_path.extend(found.more);
    }
}

fn choose(
    request: &Request,
    root: &Path,
    config: &Config,
    store: &Store,
    discovery: &mut Discovery,
) -> Result<Chosen, Outcome> {
    if let Some(command) = &request.command {
        return Ok(typed(command.clone(), root, discovery));
    }
    let configured = if let Some(script) = &config.script {
        Some(Chosen::script(inside(root, script.as_path(), "script")?))
    } else if let Some(provider) = &config.provider {
        Some(Chosen::provider(inside(root, provider.as_path(), "provider")?))
    } else if let Some(module) = &config.module {
        let name = module.as_str().to_owned();
        let folder = config.working_directory.as_ref().map_or(Path::new(""), |it| it.as_path());
        let file = discovery.module_file(root, folder, &name).map(|file| root.join(file));
        Some(Chosen::of(Entry::Module { name }, file))
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
        let chosen = if is_provider { Chosen::provider } else { Chosen::script };
        return Ok(Chosen { is_configured, ..chosen(script.clone()) });
    }
    if let Some(configured) = configured {
        return Ok(Chosen { is_configured: true, ..configured });
    }
    let changed = request.changed.as_deref().and_then(|file| file.strip_prefix(root).ok());
    let remembered = request.remembered.clone().or_else(|| store.remembered_run(root));
    // A choice may have been made from the workspace's folder, with the project below it.
    let remembered = remembered.map(|text| {
        let full = request.workspace.join(&text);
        let inside = full.strip_prefix(root).ok().filter(|_| full.is_file());
        inside.map_or(text, |inside| inside.to_string_lossy().into_owned())
    });
    match discovery.find(root, changed, remembered.as_deref()) {
        Found::Run(run) => Ok(Chosen::found(root, run)),
        Found::Provider(path) => Ok(Chosen::provider(root.join(path))),
        Found::Several { candidates, leads } => {
            if let [first, others @ ..] = candidates.as_slice()
                && leads
                && request.takes_likeliest
            {
                let mut chosen = Chosen::found(root, first.run.clone());
                chosen.notes.push(likeliest(&first.run, others));
                return Ok(chosen);
            }
            let runs = candidates.into_iter().map(|candidate| {
                let origin = candidate.run.origin.clone();
                let why: Vec<String> = candidate.reasons.into_iter().chain(origin).collect();
                RunChoice { command: candidate.run.shown(), why: why.join(", ") }
            });
            Err(Outcome::Choose { root: root.to_owned(), runs: runs.collect() })
        }
        Found::Nothing { looked_at, cut_short, likely } => {
            Err(Outcome::Problem(nothing_to_run(root, looked_at, cut_short, &likely)))
        }
    }
}

fn likeliest(run: &Run, others: &[Candidate]) -> String {
    const MOST: usize = 3;
    let mut names: Vec<String> = others.iter().take(MOST).map(|one| name_of(&one.run)).collect();
    if others.len() > MOST {
        names.push(format!("{} more", others.len() - MOST));
    }
    format!(
        "{} scripts could be the training script; {} is the most likely. The others: {}. To \
        profile another one: `ridgeline profile {}`",
        others.len() + 1,
        name_of(run),
        names.join(", "),
        others.first().map(|one| name_of(&one.run)).unwrap_or_default()
    )
}

fn name_of(run: &Run) -> String {
    run.path.to_string_lossy().replace('\\', "/")
}

fn typed(command: TypedCommand, root: &Path, discovery: &mut Discovery) -> Chosen {
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
    Chosen {
        is_typed: true,
        arguments,
        environment,
        launcher,
        folder,
        notes,
        ..Chosen::of(entry, file)
    }
}

fn nothing_to_run(root: &Path, looked_at: usize, cut_short: bool, likely: &[PathBuf]) -> Problem {
    let bound = if cut_short { ", and the search was cut short" } else { "" };
    let files = if looked_at == 1 { "1 Python file" } else { &format!("{looked_at} Python files") };
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

/// Puts folders in front of the program's `PYTHONPATH`, but for the one that Python looks in anyway.
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

fn refuse_what_cannot_run(path: &Path) -> Result<(), Outcome> {
    let nothing = |what: String, next: &str| {
        Err(Outcome::Problem(Problem::new(ProblemKind::NothingToRun, what, next)))
    };
    let shown = path.display();
    match path.metadata() {
        Err(error) => nothing(format!("{shown} cannot be read: {error}"), ""),
        Ok(metadata) if !metadata.is_file() => nothing(format!("{shown} is not a file"), ""),
        Ok(_) => match path.extension().and_then(|extension| extension.to_str()) {
            Some("py" | "pyw") => Ok(()),
            Some("ipynb") => nothing(
                format!("{shown} is a notebook, and notebooks are not supported"),
                "Export its training loop as a script and profile that",
            ),
            _ => nothing(format!("{shown} is not a Python file"), "Pass a script that ends in .py"),
        },
    }
}

/// A configured path, once links are followed; what leads out of the project is refused.
fn inside(root: &Path, path: &Path, key: &str) -> Result<PathBuf, Outcome> {
    config::inside(root, path).map_err(|why| {
        let what = format!("`{key}` in the configuration of {}: {why}", root.display());
        Outcome::Problem(Problem::new(ProblemKind::Configuration, what, ""))
    })
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

/// What is configured, and environments beside the project: their packages are not its code.
fn not_user_code(root: &Path, config: &Config) -> Vec<PathBuf> {
    let configured = config.user_code.exclude.iter().map(|path| root.join(path.as_path()));
    let environments =
        root.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).filter(
            |folder| folder.join("pyvenv.cfg").is_file() || folder.join("conda-meta").is_dir(),
        );
    configured.chain(environments).collect()
}

fn iterations(config: &Config, overrides: &Overrides) -> Iterations {
    let asked = overrides
        .iterations
        .or(config.iterations.timed.map(|timed| timed.get().max(overrides.least_iterations)));
    let usual = TIMED.max(overrides.least_iterations);
    Iterations {
        warmup: config.iterations.warmup.get(),
        timed: asked.unwrap_or(usual),
        timed_at_most: asked.is_none().then(|| TIMED_AT_MOST.max(usual)),
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

/// The user's own folder for a leading `~`, as people write it in configurations.
fn with_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), directories::BaseDirs::new()) {
        (Ok(rest), Some(dirs)) => dirs.home_dir().join(rest),
        _ => path.to_owned(),
    }
}

/// The Python of an environment, where its folder is named.
fn environment_python(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_owned();
    }
    let places = ["bin/python", "bin/python3", "Scripts/python.exe", "python.exe"];
    let found = places.iter().map(|place| path.join(place)).find(|python| python.is_file());
    found.unwrap_or_else(|| path.to_owned())
}
