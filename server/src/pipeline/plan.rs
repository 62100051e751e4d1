//! What will be run, decided without running anything: configuration, discovery, limits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::source::batch_site::{self, Project, Refusal};
use ridgeline_gpu::agent::{Entry, Iterations, Launcher, Prepare, RunLimits, RunRequest};
use ridgeline_gpu::environment;
use ridgeline_gpu::interpreter::Search;
use ridgeline_gpu::limits::{Machine, default_limits};

use super::outcome::{Outcome, Problem, ProblemKind};
use crate::config::{self, Config, DeviceChoice, Loaded, SideEffects};
use crate::discover::{Discovery, Found, project_root};
use crate::documents::text_on_disk;
use crate::store::Store;

/// Iterations to time where nobody says how many.
const TIMED: u32 = 3;
/// The same, where they are quick or unequal: these cost nothing, and of those a few say little.
const TIMED_AT_MOST: u32 = 6;

/// What a person or an editor asks for. All paths are absolute.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The workspace folder.
    pub workspace: PathBuf,
    /// The file whose change is the reason, where there is one.
    pub changed: Option<PathBuf>,
    /// The script or provider file that the person named for this run.
    pub script: Option<PathBuf>,
    /// The script that the person once chose where several fit. Without it, the store is asked.
    pub remembered: Option<PathBuf>,
    /// The editor's choice of interpreter.
    pub editor_python: Option<PathBuf>,
    /// What the person set for this run, over the configuration.
    pub overrides: Overrides,
}

/// What a person set for one run.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
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
pub struct Plan {
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
    launcher: Option<Launcher>,
    request: RunRequest,
}

impl Plan {
    /// The request to the agent for one of the runs that follow a profiled one (other batch sizes, edits
    /// that are compared), for a recording into `out`. What they write is never kept.
    pub fn run_request(&self, out: PathBuf) -> RunRequest {
        RunRequest { out, ..self.request.clone() }.redirected()
    }

    /// The request for the profiled run itself, with the launcher where the plan has one: for an agent
    /// that serves launched runs.
    pub fn launched_request(&self, out: PathBuf) -> RunRequest {
        RunRequest { out, launcher: self.launcher.clone(), ..self.request.clone() }
    }

    /// The same with another batch size: a provider is asked for it, a script finds it in its text. No
    /// file is touched. It reads files.
    ///
    /// # Errors
    /// Why the batch size is not one number that can be replaced.
    pub fn at_batch(mut self, batch_size: u32) -> Result<Plan, Refusal> {
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
            Entry::Module { name } => {
                let base = name.replace('.', "/");
                let file = format!("{base}.py");
                if texts.text(&file).is_some() { file } else { format!("{base}/__main__.py") }
            }
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
            return Err(Refusal { message: format!("{} changed just now", site.file), at: None });
        };
        self.request.overlay.insert(site.file, format!("{before}{batch_size}{after}"));
        Ok(self)
    }

    /// The configuration's variables for the program.
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.request.env
    }

    /// What the agent can do ahead of the run.
    pub fn prepare(&self, preimport: bool) -> Prepare {
        Prepare { root: self.root.clone(), entry: self.entry.clone(), preimport }
    }

    /// What runs, as a person names it: `train.py`, `python -m package.train`.
    pub fn entry_name(&self) -> String {
        match &self.entry {
            Entry::Script { path } | Entry::Provider { path } => {
                path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
            }
            Entry::Module { name } => format!("python -m {name}"),
        }
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
pub fn plan(request: &Request, store: &Store, discovery: &mut Discovery) -> Result<Plan, Outcome> {
    let about = request.script.as_deref().or(request.changed.as_deref());
    let root = match about {
        Some(file) if file.starts_with(&request.workspace) => {
            project_root(file, Some(&request.workspace))
        }
        _ => request.workspace.clone(),
    };
    let Loaded { config, file: _, notes } = config::load(&root).map_err(|error| {
        Outcome::Problem(Problem::new(ProblemKind::Configuration, error.to_string(), ""))
    })?;
    let (entry, is_configured) = choose_entry(request, &root, &config, store, discovery)?;
    if let Entry::Script { path } | Entry::Provider { path } = &entry {
        refuse_what_cannot_run(path)?;
    }
    let overrides = &request.overrides;
    let working_directory = match (&overrides.working_directory, &config.working_directory) {
        (Some(folder), _) => folder.clone(),
        (None, Some(folder)) => inside(&root, folder.as_path(), "working_directory")?,
        (None, None) => root.clone(),
    };
    let args = match &overrides.arguments {
        Some(arguments) => arguments.clone(),
        // The configured arguments are those of the configured program.
        None if is_configured => {
            config.arguments.iter().map(|argument| argument.as_str().to_owned()).collect()
        }
        None => Vec::new(),
    };
    let named = overrides.python.as_deref().map(environment_python);
    let configured_python = named.or_else(|| configured_python(&root, &config));
    let run = RunRequest {
        out: PathBuf::new(),
        root: root.clone(),
        entry: entry.clone(),
        args,
        env: config.environment.variables().clone(),
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
    let launcher = overrides.launcher.as_ref().or(config.launcher.as_ref());
    // A provider's iterations are its own: it has no ranks.
    let launcher = launcher.filter(|_| !matches!(entry, Entry::Provider { .. }));
    Ok(Plan {
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
pub fn configured_python(root: &Path, config: &Config) -> Option<PathBuf> {
    config.python.as_deref().map(|path| environment_python(&root.join(with_home(path))))
}

/// The entry, and whether the configuration named it.
fn choose_entry(
    request: &Request,
    root: &Path,
    config: &Config,
    store: &Store,
    discovery: &mut Discovery,
) -> Result<(Entry, bool), Outcome> {
    let configured = if let Some(script) = &config.script {
        Some(Entry::Script { path: inside(root, script.as_path(), "script")? })
    } else if let Some(provider) = &config.provider {
        Some(Entry::Provider { path: inside(root, provider.as_path(), "provider")? })
    } else {
        config.module.as_ref().map(|module| Entry::Module { name: module.as_str().to_owned() })
    };
    if let Some(script) = &request.script {
        let is_configured = matches!(
            &configured,
            Some(Entry::Script { path } | Entry::Provider { path }) if path == script
        );
        let entry = if discovery.is_provider(script) {
            Entry::Provider { path: script.clone() }
        } else {
            Entry::Script { path: script.clone() }
        };
        return Ok((entry, is_configured));
    }
    if let Some(entry) = configured {
        return Ok((entry, true));
    }
    let changed = request.changed.as_deref().and_then(|file| file.strip_prefix(root).ok());
    let remembered = match &request.remembered {
        Some(script) => script.strip_prefix(root).ok().map(Path::to_owned),
        None => store.remembered_script(root),
    };
    match discovery.find(root, changed, remembered.as_deref()) {
        Found::Script(path) => Ok((Entry::Script { path: root.join(path) }, false)),
        Found::Provider(path) => Ok((Entry::Provider { path: root.join(path) }, false)),
        Found::Several(scripts) => {
            let scripts = scripts
                .into_iter()
                .map(|candidate| (candidate.path, candidate.reasons.join(", ")))
                .collect();
            Err(Outcome::Choose { root: root.to_owned(), scripts })
        }
        Found::Nothing { looked_at, cut_short } => {
            let bound = if cut_short { ", where the search was cut short" } else { "" };
            Err(Outcome::Problem(Problem::new(
                ProblemKind::NothingToRun,
                format!(
                    "no training script was found in {} ({looked_at} Python files looked \
                     at{bound})",
                    root.display()
                ),
                format!("Name it with `script = \"train.py\"` in {}", config::FILE_NAME),
            )))
        }
    }
}

fn refuse_what_cannot_run(path: &Path) -> Result<(), Outcome> {
    let nothing = |what: String, next: &str| {
        Err(Outcome::Problem(Problem::new(ProblemKind::NothingToRun, what, next)))
    };
    let shown = path.display();
    match path.metadata() {
        Err(error) => nothing(format!("{shown} cannot be read: {error}"), ""),
        Ok(metadata) if !metadata.is_file() => nothing(format!("{shown} is no file"), ""),
        Ok(_) => match path.extension().and_then(|extension| extension.to_str()) {
            Some("py" | "pyw") => Ok(()),
            Some("ipynb") => nothing(
                format!("{shown} is a notebook, and notebooks are not run"),
                "Export its training loop as a script, and profile that",
            ),
            _ => nothing(format!("{shown} is no Python file"), "Name a script that ends in .py"),
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
