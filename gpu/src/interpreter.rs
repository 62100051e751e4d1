//! Which Python runs the user's program.
//!
//! Search order: the configuration, the editor, `VIRTUAL_ENV` and `CONDA_PREFIX`, `.venv` and
//! `venv` from the project's root up to the workspace, `PATH`, and last the private environment of
//! `ridgeline setup`.
//!
//! **An interpreter in the workspace, or named by the workspace's configuration, is workspace
//! code**: probing it runs it. So [`probe`] and [`find`] take a [`Consent`], and refuse such a
//! candidate without it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use crate::process::run_bounded;

/// Whether the user allowed code of this workspace to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// Yes, or the editor trusts the workspace.
    Given,
    /// Not yet, or the user refused.
    NotGiven,
}

/// The inputs of the search apart from the file system.
#[derive(Clone, Debug, Default)]
pub struct SystemEnvironment {
    /// Environment variables.
    pub variables: BTreeMap<OsString, OsString>,
    /// Whether environments are laid out as on Windows (`Scripts/python.exe`).
    pub windows: bool,
}

/// The folders and paths to search.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The project's root, which contains its configuration. Absolute.
    pub root: PathBuf,
    /// The workspace folder that contains the root. Without an editor, the root itself. Absolute.
    pub workspace: PathBuf,
    /// From `ridgeline.toml` or `pyproject.toml`, made absolute.
    pub configured: Option<PathBuf>,
    /// Selected in the editor.
    pub editor: Option<PathBuf>,
    /// The private environment's Python (`crate::environment::installed`).
    pub private: Option<PathBuf>,
}

/// Where an interpreter was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// `ridgeline.toml` or `[tool.ridgeline]`.
    Configuration,
    /// Selected in the editor.
    Editor,
    /// `VIRTUAL_ENV`.
    VirtualEnv,
    /// `CONDA_PREFIX`.
    Conda,
    /// `.venv` or `venv` in the project.
    ProjectFolder,
    /// `PATH`.
    Path,
    /// Created by `ridgeline setup`.
    Private,
}

/// A Python that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Absolute path.
    pub path: PathBuf,
    pub origin: Origin,
    /// Whether running it runs workspace code.
    pub needs_consent: bool,
}

/// A Python that was probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The program to start. Absolute. Symlinks are not resolved, because an environment's Python
    /// is one.
    pub path: PathBuf,
    pub origin: Origin,
    /// For example `(3, 12, 1)`.
    pub version: (u32, u32, u32),
    /// `sys.prefix`.
    pub prefix: PathBuf,
    /// Its torch, if installed.
    pub torch: Option<Torch>,
}

/// The torch of an interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Torch {
    /// For example `2.15.0+cpu`.
    pub version: String,
    /// For example `12.8`; only for CUDA builds.
    pub cuda: Option<String>,
    /// For example `6.4`; only for ROCm builds.
    pub hip: Option<String>,
}

/// Why no interpreter can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterpreterError {
    /// No Python was found.
    #[error(
        "no Python was found (searched: configuration, editor, VIRTUAL_ENV, CONDA_PREFIX, .venv, \
        venv and PATH). Install Python 3.9 or newer, or run `ridgeline setup` to create a private \
        environment"
    )]
    NotFound,
    /// Running it needs the user's consent.
    #[error("{path} belongs to this workspace and is not run without your permission")]
    NeedsConsent { path: PathBuf },
    /// It does not work.
    #[error("the Python at {path} ({origin}) does not work: {reason}")]
    Broken {
        path: PathBuf,
        origin: Origin,
        /// The error.
        reason: String,
    },
    /// Python is too old.
    #[error("the Python at {path} is {found}; Ridgeline needs 3.9 or newer")]
    TooOld { path: PathBuf, found: String },
    /// Torch is not installed.
    #[error(
        "the Python at {path} ({origin}) has no torch. Install it (`{path} -m pip install torch`), \
        choose another Python with `python = \"…\"` in ridgeline.toml, or run `ridgeline setup` to \
        create a private environment"
    )]
    NoTorch { path: PathBuf, origin: Origin },
    /// Torch is too old.
    #[error("torch of {path} is {found}; Ridgeline needs 2.4 or newer")]
    OldTorch { path: PathBuf, found: String },
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Origin::Configuration => "from the configuration",
            Origin::Editor => "selected in the editor",
            Origin::VirtualEnv => "from VIRTUAL_ENV",
            Origin::Conda => "from CONDA_PREFIX",
            Origin::ProjectFolder => "from the project folder",
            Origin::Path => "from PATH",
            Origin::Private => "created by `ridgeline setup`",
        })
    }
}

impl Interpreter {
    /// Checks that Ridgeline can use it, and returns its torch.
    ///
    /// # Errors
    /// [`InterpreterError::TooOld`], [`InterpreterError::NoTorch`] or [`InterpreterError::OldTorch`].
    pub fn usable(&self) -> Result<&Torch, InterpreterError> {
        if self.version < OLDEST_PYTHON {
            let (major, minor, micro) = self.version;
            return Err(InterpreterError::TooOld {
                path: self.path.clone(),
                found: format!("{major}.{minor}.{micro}"),
            });
        }
        let Some(torch) = &self.torch else {
            return Err(InterpreterError::NoTorch { path: self.path.clone(), origin: self.origin });
        };
        // A version that cannot be parsed is a private build. The agent reports what is missing.
        if release_of(&torch.version).is_some_and(|release| release < OLDEST_TORCH) {
            return Err(InterpreterError::OldTorch {
                path: self.path.clone(),
                found: torch.version.clone(),
            });
        }
        Ok(torch)
    }
}

/// Parses `2.15.0+cpu` as `(2, 15)` and `2.4.0a0+git38b96d3` as `(2, 4)`.
fn release_of(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl SystemEnvironment {
    /// Returns the environment of this process.
    pub fn of_this_process() -> SystemEnvironment {
        SystemEnvironment { variables: std::env::vars_os().collect(), windows: cfg!(windows) }
    }

    /// Returns the value of a variable if it is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let value = self.variables.get(OsStr::new(name))?;
        (!value.is_empty()).then_some(value.as_os_str())
    }

    /// Returns the folders of `PATH`, except relative ones, which depend on the current folder.
    pub fn path_folders(&self) -> Vec<PathBuf> {
        let path = self.variable("PATH").unwrap_or_default();
        std::env::split_paths(path).filter(|folder| folder.is_absolute()).collect()
    }
}

/// Returns the existing Pythons, best first, without running any.
pub fn candidates(search: &Search, surroundings: &SystemEnvironment) -> Vec<Candidate> {
    let mut found = CandidateList { search, candidates: Vec::new() };
    for (named, origin) in
        [(&search.configured, Origin::Configuration), (&search.editor, Origin::Editor)]
    {
        if let Some(path) = named {
            // The user may name an environment's folder or its Python. A path that does not exist
            // stays, for the error message.
            let inside = python_of_environment(path, surroundings.windows);
            found.add(inside.unwrap_or_else(|| path.clone()), origin);
        }
    }
    for (variable, origin) in [("VIRTUAL_ENV", Origin::VirtualEnv), ("CONDA_PREFIX", Origin::Conda)]
    {
        if let Some(prefix) = surroundings.variable(variable) {
            found.add_environment(Path::new(prefix), origin, surroundings.windows);
        }
    }
    for folder in folders_up_to_workspace(search) {
        for name in [".venv", "venv"] {
            found.add_environment(&folder.join(name), Origin::ProjectFolder, surroundings.windows);
        }
    }
    let names: &[&str] =
        if surroundings.windows { &["python.exe", "python3.exe"] } else { &["python3", "python"] };
    for name in names {
        for folder in surroundings.path_folders() {
            let path = folder.join(name);
            if is_program(&path) {
                found.add(path, Origin::Path);
            }
        }
    }
    if let Some(private) = search.private.as_ref().filter(|path| is_program(path)) {
        found.add(private.clone(), Origin::Private);
    }
    found.candidates
}

struct CandidateList<'a> {
    search: &'a Search,
    candidates: Vec<Candidate>,
}

impl CandidateList<'_> {
    fn add_environment(&mut self, prefix: &Path, origin: Origin, windows: bool) {
        if let Some(path) = python_of_environment(prefix, windows) {
            self.add(path, origin);
        }
    }

    fn add(&mut self, path: PathBuf, origin: Origin) {
        if self.candidates.iter().any(|known| known.path == path) {
            return;
        }
        let needs_consent = match origin {
            // The editor's choice is often stored in the workspace's settings.
            Origin::Configuration | Origin::Editor | Origin::ProjectFolder => true,
            Origin::VirtualEnv | Origin::Conda | Origin::Path => self.is_in_workspace(&path),
            Origin::Private => false,
        };
        self.candidates.push(Candidate { path, origin, needs_consent });
    }

    /// Whether the program or its folder is in the workspace, with or without following symlinks.
    fn is_in_workspace(&self, path: &Path) -> bool {
        let folder = path.parent().unwrap_or(path);
        let paths =
            [Some(path.to_path_buf()), path.canonicalize().ok(), folder.canonicalize().ok()];
        [&self.search.workspace, &self.search.root]
            .into_iter()
            .filter(|base| !base.as_os_str().is_empty())
            .flat_map(|base| [Some(base.clone()), base.canonicalize().ok()])
            .flatten()
            .any(|base| paths.iter().flatten().any(|path| path.starts_with(&base)))
    }
}

/// Returns the root and its parents up to the workspace. Only the root if it is outside the
/// workspace.
fn folders_up_to_workspace(search: &Search) -> Vec<&Path> {
    if !search.root.starts_with(&search.workspace) || search.workspace.as_os_str().is_empty() {
        return vec![&search.root];
    }
    search.root.ancestors().take_while(|folder| folder.starts_with(&search.workspace)).collect()
}

/// Returns the Python in an environment's folder, if there is one.
pub(crate) fn python_of_environment(prefix: &Path, windows: bool) -> Option<PathBuf> {
    // On Windows, conda puts Python into the top folder of the environment.
    let places: &[&str] = if windows {
        &["Scripts/python.exe", "python.exe"]
    } else {
        &["bin/python", "bin/python3"]
    };
    places.iter().map(|place| prefix.join(place)).find(|path| is_program(path))
}

pub(crate) fn is_program(path: &Path) -> bool {
    let Ok(facts) = std::fs::metadata(path) else { return false };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        facts.is_file() && facts.permissions().mode() & 0o111 != 0
    }
    #[cfg(not(unix))]
    {
        facts.is_file()
    }
}

/// Queries a Python, for at most 20 s, in a neutral folder and isolated from `PYTHON*` variables.
///
/// Reads torch's version without importing it, because the import takes seconds. The agent imports
/// it anyway, and reports a failure with the last lines of output.
///
/// # Errors
/// If it needs consent that was not given, or does not work.
pub async fn probe(
    candidate: &Candidate,
    surroundings: &SystemEnvironment,
    consent: Consent,
) -> Result<Interpreter, InterpreterError> {
    if candidate.needs_consent && consent == Consent::NotGiven {
        return Err(InterpreterError::NeedsConsent { path: candidate.path.clone() });
    }
    let broken = |reason: String| InterpreterError::Broken {
        path: candidate.path.clone(),
        origin: candidate.origin,
        reason,
    };
    let mut command = Command::new(&candidate.path);
    command
        .args(["-I", "-c", PROBE])
        .current_dir(neutral_folder())
        .env_clear()
        .envs(&surroundings.variables);
    let finished = run_bounded(command, PROBE_TIMEOUT, PROBE_OUTPUT_BYTES)
        .await
        .map_err(|error| broken(error.to_string()))?;
    let answer = parse_answer(&finished.stdout).ok_or_else(|| {
        let lines = last_lines(&finished.stderr, 5);
        broken(if lines.is_empty() { finished.status.to_string() } else { lines })
    })?;
    // A shim on PATH (pyenv, asdf) stands for another program. Start that one, because the shim
    // would choose again by the current folder.
    let target = answer.executable.filter(|path| path.is_absolute() && is_program(path));
    let path = match (candidate.origin, target) {
        (Origin::Path, Some(target)) => target,
        _ => candidate.path.clone(),
    };
    let prefix = answer.prefix.unwrap_or_else(|| {
        path.parent().and_then(Path::parent).unwrap_or(Path::new("")).to_path_buf()
    });
    let [major, minor, micro] = answer.version;
    Ok(Interpreter {
        path,
        origin: candidate.origin,
        version: (major, minor, micro),
        prefix,
        torch: answer.torch,
    })
}

/// Finds the Python to use: the first that the user chose (by configuration, editor, environment or
/// folder), else the first on `PATH` that has torch, else the private environment.
///
/// The result may lack torch; check [`Interpreter::usable`].
///
/// # Errors
/// If there is none, or the chosen one needs consent or does not work.
pub async fn find(
    search: &Search,
    surroundings: &SystemEnvironment,
    consent: Consent,
) -> Result<Interpreter, InterpreterError> {
    let mut without_torch = None;
    let mut failure = None;
    for candidate in candidates(search, surroundings) {
        let is_chosen = !matches!(candidate.origin, Origin::Path | Origin::Private);
        match probe(&candidate, surroundings, consent).await {
            // The user wants exactly the environment or Python that they chose, so it ends the
            // search even if it lacks torch.
            result if is_chosen => return result,
            Ok(interpreter) if interpreter.usable().is_ok() => return Ok(interpreter),
            Ok(interpreter) => without_torch = without_torch.or(Some(interpreter)),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match (without_torch, failure) {
        (Some(interpreter), _) => Ok(interpreter),
        (None, Some(error)) => Err(error),
        (None, None) => Err(InterpreterError::NotFound),
    }
}

const OLDEST_PYTHON: (u32, u32, u32) = (3, 9, 0);
const OLDEST_TORCH: (u32, u32) = (2, 4);

const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
const PROBE_OUTPUT_BYTES: usize = 256 * 1024;

/// Printed before the answer, because a `sitecustomize` module may print too.
const PROBE_MARKER: &str = "RIDGELINE-PROBE ";

/// Runs on any Python from 2.7 on, so old versions can be reported. It looks torch up without
/// importing it, and parses its `version.py` without running it. The folders that `-I` ignores (the
/// user's site-packages, `PYTHONPATH`) are only searched.
const PROBE: &str = include_str!("interpreter_probe.py");

#[derive(Debug, Deserialize)]
struct Answer {
    version: [u32; 3],
    prefix: Option<PathBuf>,
    executable: Option<PathBuf>,
    torch: Option<Torch>,
}

fn parse_answer(output: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().rev().find_map(|line| line.strip_prefix(PROBE_MARKER))?;
    serde_json::from_str(line).ok()
}

/// A folder without Python modules or settings of version managers.
pub(crate) fn neutral_folder() -> PathBuf {
    if cfg!(windows) { std::env::temp_dir() } else { PathBuf::from("/") }
}

/// Returns the last lines of a program's output for an error message, at most 2000 characters.
pub(crate) fn last_lines(output: &[u8], count: usize) -> String {
    let text = String::from_utf8_lossy(output);
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.drain(..lines.len().saturating_sub(count));
    let kept = lines.join("\n");
    let excess = kept.chars().count().saturating_sub(2000);
    kept.chars().skip(excess).filter(|c| *c == '\n' || !c.is_control()).collect()
}
