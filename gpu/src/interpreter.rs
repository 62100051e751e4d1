//! Which Python runs the user's program.
//!
//! The order: the configuration's, the editor's, `VIRTUAL_ENV` and `CONDA_PREFIX`, `.venv` and
//! `venv` from the project's root up to the workspace, then `PATH`, and last the private
//! environment that `ridgeline setup` made.
//!
//! **An interpreter that lies in the workspace, or that the workspace's configuration names, is the
//! workspace's code**: probing it runs it. So [`probe`] and [`find`] take a [`Consent`], and refuse
//! such a candidate without it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Whether the person allowed to run code of this workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// They did, or the editor vouches for the workspace.
    Given,
    /// Not yet, or they refused.
    NotGiven,
}

/// What the search depends on beside the file system, as a value.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The environment's variables.
    pub variables: BTreeMap<OsString, OsString>,
    /// Whether environments are laid out as on Windows (`Scripts/python.exe`).
    pub windows: bool,
}

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The project's root: the folder of its configuration. Absolute.
    pub root: PathBuf,
    /// The workspace folder that holds it (the root itself where there is no editor). Absolute.
    pub workspace: PathBuf,
    /// From `ridgeline.toml` or `pyproject.toml`, made absolute.
    pub configured: Option<PathBuf>,
    /// From the editor.
    pub editor: Option<PathBuf>,
    /// The private environment's Python (`crate::environment::installed`).
    pub private: Option<PathBuf>,
}

/// Who names an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// `ridgeline.toml` or `[tool.ridgeline]`.
    Configuration,
    /// The editor's choice.
    Editor,
    /// `VIRTUAL_ENV`.
    VirtualEnv,
    /// `CONDA_PREFIX`.
    Conda,
    /// `.venv` or `venv` beside the project.
    ProjectFolder,
    /// `PATH`.
    Path,
    /// Made by `ridgeline setup`.
    Private,
}

/// A Python that may be the one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Absolute.
    pub path: PathBuf,
    /// Who names it.
    pub origin: Origin,
    /// Running it runs the workspace's code.
    pub needs_consent: bool,
}

/// A Python that was asked about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The program to start. Absolute, links not resolved, since an environment's Python is a link.
    pub path: PathBuf,
    /// Who names it.
    pub origin: Origin,
    /// `(3, 12, 1)`.
    pub version: (u32, u32, u32),
    /// `sys.prefix`.
    pub prefix: PathBuf,
    /// Its torch, where there is one.
    pub torch: Option<Torch>,
}

/// The torch of an interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torch {
    /// `2.15.0+cpu`.
    pub version: String,
    /// `12.8` for a CUDA build.
    pub cuda: Option<String>,
    /// `6.4` for a ROCm build.
    pub hip: Option<String>,
}

/// Why there is no interpreter to run in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterpreterError {
    /// Nothing anywhere.
    #[error(
        "no Python was found (looked at the configuration, the editor, VIRTUAL_ENV, CONDA_PREFIX, .venv, venv and PATH). Install Python 3.9 or newer, or run `ridgeline setup` to get a private environment"
    )]
    NotFound,
    /// Running it needs the person's consent first.
    #[error("{path} belongs to this workspace, so it is not run before you allow it")]
    NeedsConsent {
        /// The Python.
        path: PathBuf,
    },
    /// The named one does not work.
    #[error("the Python at {path} ({origin}) does not work: {reason}")]
    Broken {
        /// The Python.
        path: PathBuf,
        /// Who names it.
        origin: Origin,
        /// What happened.
        reason: String,
    },
    /// It is too old.
    #[error("the Python at {path} is {found}; Ridgeline needs 3.9 or newer")]
    TooOld {
        /// The Python.
        path: PathBuf,
        /// Its version.
        found: String,
    },
    /// It has no torch.
    #[error(
        "the Python at {path} ({origin}) has no torch{detail}. Install it there (`{path} -m pip install torch`), choose another Python with `python = \"…\"` in ridgeline.toml, or run `ridgeline setup` to get a private environment"
    )]
    NoTorch {
        /// The Python.
        path: PathBuf,
        /// Who names it.
        origin: Origin,
        /// The error of its import, where torch is there and broken.
        detail: String,
    },
    /// Its torch is too old.
    #[error("the torch of {path} is {found}; Ridgeline needs 2.4 or newer")]
    OldTorch {
        /// The Python.
        path: PathBuf,
        /// Its version.
        found: String,
    },
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Origin::Configuration => "named in the configuration",
            Origin::Editor => "chosen in the editor",
            Origin::VirtualEnv => "from VIRTUAL_ENV",
            Origin::Conda => "from CONDA_PREFIX",
            Origin::ProjectFolder => "beside the project",
            Origin::Path => "from PATH",
            Origin::Private => "made by `ridgeline setup`",
        })
    }
}

impl Interpreter {
    /// Whether Ridgeline can run in it.
    ///
    /// # Errors
    /// [`InterpreterError::TooOld`], [`InterpreterError::NoTorch`] or [`InterpreterError::OldTorch`].
    pub fn usable(&self) -> Result<&Torch, InterpreterError> {
        todo!()
    }
}

/// The Pythons that exist, best first, none of them run.
pub fn candidates(_search: &Search, _surroundings: &Surroundings) -> Vec<Candidate> {
    todo!()
}

/// Asks a Python about itself: at most 20 s, in a neutral folder, isolated from `PYTHON*` variables.
/// It imports torch, so it can take seconds.
///
/// # Errors
/// Where it needs consent that was not given, or does not work.
pub async fn probe(
    _candidate: &Candidate,
    _consent: Consent,
) -> Result<Interpreter, InterpreterError> {
    todo!()
}

/// The Python to run in: the first that the person chose (by configuration, editor, environment or
/// folder), else the first on `PATH` that has torch, else the private environment.
///
/// The result may lack torch; ask [`Interpreter::usable`].
///
/// # Errors
/// Where there is none, or the chosen one needs consent or does not work.
pub async fn find(
    _search: &Search,
    _surroundings: &Surroundings,
    _consent: Consent,
) -> Result<Interpreter, InterpreterError> {
    todo!()
}
