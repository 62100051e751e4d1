//! A private Python environment with torch in the user's cache, created by `ridgeline setup`.
//!
//! The user's interpreter is never changed: it is only used to create an environment elsewhere.
//! Packages come from the sources in the user's configuration of pip or uv.
//!
//! The environment is always at `python/torch` in the cache. It counts only once its completion
//! marker exists, which is written last. A setup that was interrupted continues in the same folder,
//! with what the installer has already downloaded.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::installer::{self, StepError};
use crate::interpreter::{
    Candidate, Consent, Interpreter, Origin, SystemEnvironment, neutral_folder, probe,
    python_of_environment,
};

/// Progress of a setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupEvent {
    /// Another process is creating the same environment; this one waits for it.
    WaitingForAnother,
    /// Looking for a Python to start from.
    LookingForPython,
    /// Creating the empty environment.
    Creating {
        /// The Python that it is based on.
        base: PathBuf,
    },
    /// Downloading and installing torch.
    Installing {
        /// The latest line of the installer's output.
        line: String,
        /// Size of the environment so far, in bytes.
        bytes: u64,
    },
    /// Importing torch for the first time.
    Checking,
}

/// Why the environment could not be created.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Cancelled by the user. The next setup continues from there.
    #[error("setup was cancelled; run `ridgeline setup` to continue")]
    Cancelled,
    /// No suitable Python was found.
    #[error(
        "no Python 3.9 to 3.14 was found on PATH to create an environment with. Install one (or \
        `uv`, which brings its own), then run `ridgeline setup` again{0}"
    )]
    NoPython(String),
    /// The disk is full.
    #[error(
        "the disk is full: torch needs up to {NEEDED_GB} GB in {folder}. Free some space, then run \
        `ridgeline setup` again"
    )]
    DiskFull { folder: PathBuf },
    /// A step failed.
    #[error("{step} failed: {reason}")]
    Failed {
        step: String,
        /// The last lines of its output, or the system's error.
        reason: String,
    },
}

/// The maximum size of an environment with torch and its libraries, in GB.
pub const NEEDED_GB: u32 = 8;

/// Returns the Python of the finished private environment below `cache`, if there is one.
pub fn installed(cache: &Path) -> Option<PathBuf> {
    let folder = folder_of(cache);
    if !folder.join(COMPLETION_MARKER).is_file() {
        return None;
    }
    python_of_environment(&folder, cfg!(windows))
}

/// Creates the private environment below `cache`, or returns the finished one. Safe to call from
/// two processes at once, and again after an interruption.
///
/// # Errors
/// See [`SetupError`]; each message says what to do.
pub async fn setup(
    cache: &Path,
    system: &SystemEnvironment,
    events: mpsc::Sender<SetupEvent>,
    cancel: CancellationToken,
) -> Result<Interpreter, SetupError> {
    let setup =
        Setup { folder: folder_of(cache), system: cleaned(system), events, cancel: cancel.clone() };
    tokio::select! {
        biased;
        // Dropping the future also ends the program that is running at this moment.
        () = cancel.cancelled() => Err(SetupError::Cancelled),
        result = setup.create_or_reuse() => result,
    }
}

/// Written at the end. Contains the base Python, for people who look.
const COMPLETION_MARKER: &str = "ridgeline-complete";

/// The packages to install: torch in a supported version, and numpy, without which torch warns and
/// the data loaders of most programs do not work.
const PACKAGES: [&str; 2] = ["torch>=2.4", "numpy"];

/// The only long step, so its output is reported.
const INSTALLING: &str = "installing torch";

const CREATE_TIMEOUT: Duration = Duration::from_secs(300);
/// Downloading three gigabytes takes an hour on a slow connection.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(3 * 3600);
/// The first import, on a slow disk.
const CHECK_TIMEOUT: Duration = Duration::from_secs(300);

fn folder_of(cache: &Path) -> PathBuf {
    cache.join("python").join("torch")
}

/// Removes variables that would make an installer write elsewhere (`pip install --target`,
/// `--user`) or a Python find other modules. Those that choose package sources stay.
fn cleaned(system: &SystemEnvironment) -> SystemEnvironment {
    const REDIRECTING: [&str; 14] = [
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_ROOT",
        "PIP_USER",
        "PIP_PYTHON",
        "PIP_DRY_RUN",
        "PIP_REQUIREMENT",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONUSERBASE",
        "UV_SYSTEM_PYTHON",
        "UV_PYTHON",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
    ];
    let mut cleaned = system.clone();
    cleaned.variables.retain(|name, _| !REDIRECTING.iter().any(|other| name == OsStr::new(other)));
    cleaned
}

struct Setup {
    folder: PathBuf,
    system: SystemEnvironment,
    events: mpsc::Sender<SetupEvent>,
    cancel: CancellationToken,
}

impl Setup {
    async fn create_or_reuse(&self) -> Result<Interpreter, SetupError> {
        let parent = self.folder.parent().unwrap_or(&self.folder);
        fs::create_dir_all(parent).map_err(|error| self.io_error("creating the folder", &error))?;
        let _lock = self.lock(&parent.join("setup.lock")).await?;
        if self.folder.join(COMPLETION_MARKER).is_file()
            && let Some(python) = python_of_environment(&self.folder, self.system.windows)
            && let Ok(interpreter) = self.probe(&python).await
            && interpreter.usable().is_ok()
        {
            return Ok(interpreter);
        }
        let uv = installer::find_uv(&self.system);
        let bases = self.bases(uv.is_some()).await?;
        let mut failure = None;
        for base in bases {
            match self.create_from(&base, uv.as_deref()).await {
                Err(Failure::NoTorchForThisPython(error)) => failure = Some(error),
                Err(Failure::Final(error)) => return Err(error),
                Ok(interpreter) => return Ok(interpreter),
            }
        }
        Err(failure.unwrap_or_else(|| SetupError::NoPython(String::new())))
    }

    /// One setup at a time. The operating system releases the lock when the process ends.
    async fn lock(&self, path: &Path) -> Result<File, SetupError> {
        let failed = |error: io::Error| self.io_error("locking the folder", &error);
        let file = File::create(path).map_err(failed)?;
        let mut reported = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {
                    if !reported {
                        reported = true;
                        self.send_event(SetupEvent::WaitingForAnother);
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }

    /// Pythons to use as a base, best first.
    async fn bases(&self, has_uv: bool) -> Result<Vec<Base>, SetupError> {
        self.send_event(SetupEvent::LookingForPython);
        let mut found = installer::base_pythons(&self.system).await;
        found.truncate(MAX_BASES);
        let mut bases: Vec<Base> = found.into_iter().map(Base::Installed).collect();
        if bases.is_empty() && has_uv {
            bases.push(Base::DownloadedByUv);
        }
        if bases.is_empty() {
            return Err(SetupError::NoPython(String::new()));
        }
        Ok(bases)
    }

    async fn create_from(&self, base: &Base, uv: Option<&Path>) -> Result<Interpreter, Failure> {
        let python = match self.unfinished(base).await {
            Some(python) => python,
            None => self.create(base, uv).await?,
        };
        self.install(&python, uv).await?;
        self.send_event(SetupEvent::Checking);
        // Importing also writes torch's bytecode caches, which saves time in the first run.
        let mut import = self.command(&python);
        import.args(["-I", "-c", "import torch; torch.ones(1).sum().item()"]);
        self.step("importing torch", import, CHECK_TIMEOUT).await?;
        let interpreter = self.probe(&python).await.map_err(Failure::Final)?;
        if let Err(error) = interpreter.usable() {
            return Err(self.failed("checking the environment", error.to_string()).into());
        }
        fs::write(self.folder.join(COMPLETION_MARKER), base.display_name())
            .map_err(|error| self.io_error("finishing the environment", &error))?;
        Ok(interpreter)
    }

    /// Returns the Python of an unfinished environment from an earlier setup, if it works and has
    /// the same version.
    async fn unfinished(&self, base: &Base) -> Option<PathBuf> {
        let python = python_of_environment(&self.folder, self.system.windows)?;
        let found = self.probe(&python).await.ok()?;
        match base {
            Base::Installed(wanted) if wanted.version != found.version => None,
            _ => Some(python),
        }
    }

    async fn create(&self, base: &Base, uv: Option<&Path>) -> Result<PathBuf, Failure> {
        self.send_event(SetupEvent::Creating { base: base.display_name().into() });
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)
                .map_err(|error| self.io_error("removing an incomplete environment", &error))?;
        }
        let command = match (base, uv) {
            (Base::Installed(base), None) => {
                let mut venv = self.command(&base.path);
                venv.args(["-I", "-m", "venv"]).arg(&self.folder);
                venv
            }
            (_, Some(uv)) => {
                let mut venv = self.command(uv);
                venv.args(["venv", "--no-project", "--python"])
                    .arg(base.for_uv())
                    .arg(&self.folder);
                venv
            }
            (Base::DownloadedByUv, None) => {
                return Err(SetupError::NoPython(String::new()).into());
            }
        };
        self.step("creating an environment", command, CREATE_TIMEOUT).await.map_err(|failure| {
            match failure {
                // Debian and Ubuntu package this part of Python separately.
                Failure::Final(SetupError::Failed { step, reason })
                    if reason.contains("ensurepip") =>
                {
                    let advice = "install its `venv` package (on Debian and Ubuntu: `apt install \
                        python3-venv`) or `uv`, then run `ridgeline setup` again";
                    SetupError::Failed { step, reason: format!("{reason}\n{advice}") }.into()
                }
                other => other,
            }
        })?;
        python_of_environment(&self.folder, self.system.windows)
            .ok_or_else(|| self.failed("creating an environment", "it has no Python".into()).into())
    }

    async fn install(&self, python: &Path, uv: Option<&Path>) -> Result<(), Failure> {
        let mut command = match uv {
            Some(uv) => {
                let mut install = self.command(uv);
                install.args(["pip", "install", "--compile-bytecode", "--python"]).arg(python);
                install
            }
            None => {
                let mut install = self.command(python);
                install.args(["-I", "-m", "pip", "install", "--disable-pip-version-check"]);
                install
            }
        };
        command.args(PACKAGES);
        self.step(INSTALLING, command, INSTALL_TIMEOUT).await
    }

    async fn step(&self, name: &str, command: Command, limit: Duration) -> Result<(), Failure> {
        let on_progress = |line: String, bytes| {
            if name == INSTALLING {
                self.send_event(SetupEvent::Installing { line, bytes });
            }
        };
        match installer::run_step(command, limit, &self.folder, on_progress).await {
            Ok(()) => Ok(()),
            Err(StepError::DiskFull) => {
                Err(Failure::Final(SetupError::DiskFull { folder: self.folder.clone() }))
            }
            Err(StepError::NoWheel(reason)) => {
                Err(Failure::NoTorchForThisPython(self.failed(name, reason)))
            }
            Err(StepError::Other(reason)) => Err(Failure::Final(self.failed(name, reason))),
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // uv.toml or pip.conf of a project must not be found from the current folder.
        command.current_dir(neutral_folder()).env_clear().envs(&self.system.variables);
        command
    }

    async fn probe(&self, python: &Path) -> Result<Interpreter, SetupError> {
        let candidate =
            Candidate { path: python.to_owned(), origin: Origin::Private, needs_consent: false };
        probe(&candidate, &self.system, Consent::NotGiven)
            .await
            .map_err(|error| self.failed("starting the environment's Python", error.to_string()))
    }

    fn send_event(&self, event: SetupEvent) {
        let _ = self.events.try_send(event);
    }

    fn failed(&self, step: &str, reason: String) -> SetupError {
        if self.cancel.is_cancelled() {
            return SetupError::Cancelled;
        }
        SetupError::Failed { step: step.to_owned(), reason }
    }

    fn io_error(&self, step: &str, error: &io::Error) -> SetupError {
        if error.kind() == io::ErrorKind::StorageFull {
            return SetupError::DiskFull { folder: self.folder.clone() };
        }
        self.failed(step, format!("{}: {error}", self.folder.display()))
    }
}

/// The maximum number of Pythons to try, if torch has no wheel for the first.
const MAX_BASES: usize = 3;

/// What the environment is based on.
enum Base {
    Installed(Interpreter),
    /// uv downloads a Python from its configured source.
    DownloadedByUv,
}

impl Base {
    fn display_name(&self) -> String {
        match self {
            Base::Installed(interpreter) => interpreter.path.display().to_string(),
            Base::DownloadedByUv => "uv".to_owned(),
        }
    }

    fn for_uv(&self) -> &OsStr {
        match self {
            Base::Installed(interpreter) => interpreter.path.as_os_str(),
            Base::DownloadedByUv => OsStr::new("3.12"),
        }
    }
}

enum Failure {
    /// Another Python may work.
    NoTorchForThisPython(SetupError),
    Final(SetupError),
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        Failure::Final(error)
    }
}
