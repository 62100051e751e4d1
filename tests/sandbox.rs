//! Temporary folders for every test, and what the tests need from the machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

/// The temporary folders of one test. Deleted when it ends.
pub(crate) struct Sandbox {
    folder: TempDir,
}

/// The exit code and output of a command.
pub(crate) struct CommandResult {
    /// The exit code. `None` if a signal ended the command.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Sandbox {
    pub(crate) fn new() -> Sandbox {
        Sandbox { folder: TempDir::new().expect("a temporary folder") }
    }

    /// The project's folder.
    pub(crate) fn project(&self) -> PathBuf {
        let folder = self.folder.path().join("project");
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// Writes a file of the project and returns its path.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let file = self.project().join(name);
        std::fs::create_dir_all(file.parent().expect("it has one")).expect("a folder");
        std::fs::write(&file, bytes).expect("written");
        file
    }

    /// Returns a path outside the project.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a `ridgeline` command with the sandbox's folders and a clean environment.
    pub(crate) fn ridgeline(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ridgeline"));
        command
            .current_dir(self.project())
            .env("RIDGELINE_CACHE_DIR", self.folder.path().join("cache"))
            .env("RIDGELINE_STATE_DIR", self.folder.path().join("state"));
        for variable in
            ["VIRTUAL_ENV", "CONDA_PREFIX", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "RUST_LOG"]
        {
            command.env_remove(variable);
        }
        command
    }

    /// Runs `ridgeline` with these arguments.
    pub(crate) fn run<A: AsRef<std::ffi::OsStr>>(&self, arguments: &[A]) -> CommandResult {
        run_to_end(self.ridgeline().args(arguments))
    }

    /// Runs `ridgeline` without any Python on PATH.
    pub(crate) fn run_without_python<A: AsRef<std::ffi::OsStr>>(
        &self,
        arguments: &[A],
    ) -> CommandResult {
        let empty = self.path("nothing");
        std::fs::create_dir_all(&empty).expect("a folder");
        run_to_end(self.ridgeline().env("PATH", empty).args(arguments))
    }
}

/// Runs a command and waits for its exit.
pub(crate) fn run_to_end(command: &mut Command) -> CommandResult {
    let Output { status, stdout, stderr } = command.output().expect("ridgeline starts");
    CommandResult {
        code: status.code(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

impl CommandResult {
    /// Asserts the exit code, and shows all output if it differs.
    #[track_caller]
    pub(crate) fn exits_with(self, code: i32) -> CommandResult {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Asserts that standard error contains this text.
    #[track_caller]
    pub(crate) fn stderr_contains(self, text: &str) -> CommandResult {
        assert!(self.stderr.contains(text), "`{text}` is missing in:\n{}", self.stderr);
        self
    }

    /// Asserts that standard output contains this text.
    #[track_caller]
    pub(crate) fn stdout_contains(self, text: &str) -> CommandResult {
        assert!(self.stdout.contains(text), "`{text}` is missing in:\n{}", self.stdout);
        self
    }
}

/// The repository's root.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// Returns the folder with sample traces. Prints that the test is skipped if there is none.
pub(crate) fn shared_traces() -> Option<PathBuf> {
    let shared = std::env::var_os("RIDGELINE_SHARED")
        .map_or_else(|| repository().join("../shared"), PathBuf::from);
    let traces = shared.join("traces");
    if traces.is_dir() {
        return Some(traces);
    }
    println!("skipped: no sample traces at {} (set RIDGELINE_SHARED)", traces.display());
    None
}

/// Returns a Python with torch: RIDGELINE_TEST_PYTHON, else the one on PATH. Prints that the test
/// is skipped if there is none.
pub(crate) fn python_with_torch() -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let python = PYTHON.get_or_init(|| {
        let named = std::env::var_os("RIDGELINE_TEST_PYTHON").map(PathBuf::from);
        let python = named.unwrap_or_else(|| PathBuf::from("python3"));
        let where_it_is = "import sys, torch; print(sys.executable)";
        let output = Command::new(python).args(["-c", where_it_is]).output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| PathBuf::from(path.trim()))
    });
    if python.is_none() {
        println!("skipped: no Python with torch (set RIDGELINE_TEST_PYTHON)");
    }
    python.as_deref()
}
