//! A simulated user environment: a home, a project, a PATH with `ridgeline`, and a browser that only
//! records the addresses it should open.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Time for processes to exit after the editor has.
const ENDING: Duration = Duration::from_secs(20);

/// A user environment. Processes started in it do not outlive it.
pub(super) struct Sandbox {
    folder: TempDir,
    environment: PathBuf,
}

impl Sandbox {
    /// Creates a home with a copy of a project of this repository. `environment` is the activated
    /// Python environment.
    pub(super) fn with_project(project: &Path, environment: &Path) -> Sandbox {
        let folder = TempDir::new().expect("a temporary folder");
        let sandbox = Sandbox { folder, environment: environment.to_owned() };
        for folder in ["home", "project", "bin", "run"] {
            fs::create_dir(sandbox.path(folder)).expect("a folder");
        }
        // Required by the XDG base directory specification.
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(sandbox.path("run"), private).expect("a mode");
        copy(project, &sandbox.project());
        let program = Path::new(env!("CARGO_BIN_EXE_ridgeline"));
        symlink(program, sandbox.path("bin/ridgeline")).expect("a link");
        let browser = format!("#!/bin/sh\necho \"$1\" >> '{}'\n", sandbox.opened().display());
        sandbox.write_program("bin/xdg-open", &browser);
        sandbox
    }

    /// Returns a path in the home.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the project's folder with symbolic links resolved, as the server reports it.
    pub(super) fn project(&self) -> PathBuf {
        fs::canonicalize(self.path("project")).expect("it is there")
    }

    /// Writes a file and creates its parent folders.
    pub(super) fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.path(name);
        fs::create_dir_all(file.parent().expect("it has one")).expect("a folder");
        fs::write(&file, text).expect("written");
        file
    }

    fn write_program(&self, name: &str, text: &str) {
        let file = self.write(name, text);
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    fn opened(&self) -> PathBuf {
        self.path("opened")
    }

    /// Returns the addresses that the browser was asked to open.
    pub(super) fn opened_addresses(&self) -> Vec<String> {
        let noted = fs::read_to_string(self.opened()).unwrap_or_default();
        noted.lines().map(str::to_owned).collect()
    }

    /// Returns a command in the project with only the user's environment.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let system = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command
            .env_clear()
            .current_dir(self.project())
            .env("PATH", format!("{}:{system}", self.path("bin").display()))
            .env("HOME", self.path("home"))
            .env("XDG_CONFIG_HOME", self.path("home/.config"))
            .env("XDG_CACHE_HOME", self.path("home/.cache"))
            .env("XDG_DATA_HOME", self.path("home/.local/share"))
            .env("XDG_STATE_HOME", self.path("home/.local/state"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("VIRTUAL_ENV", &self.environment)
            // Editors check for a display before they open a browser.
            .env("DISPLAY", ":0")
            .env("LANG", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm-256color")
            .env("COLORTERM", "truecolor")
            // Busy-waiting threads would take the editor's core.
            .env("OMP_WAIT_POLICY", "PASSIVE");
        command
    }

    /// Waits until all processes started in here have ended.
    ///
    /// # Panics
    /// If a process keeps running: an editor, or a server or training run that outlived its editor.
    pub(super) fn assert_everything_ended(&self) {
        let started = Instant::now();
        while !self.processes().is_empty() {
            let left = || self.processes().iter().map(|pid| command_line(*pid)).collect::<Vec<_>>();
            assert!(started.elapsed() < ENDING, "still running: {:#?}", left());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the processes started in here, including reparented ones: all have the home in their
    /// environment.
    fn processes(&self) -> Vec<i32> {
        let home = format!("HOME={}", self.path("home").display());
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_ours = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == home.as_bytes())
        };
        numbers.filter(is_ours).collect()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for pid in self.processes() {
            // It may have just ended.
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
        }
    }
}

fn command_line(pid: i32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            fs::create_dir_all(&target).expect("a folder");
            copy(&source, &target);
        } else {
            fs::copy(&source, &target).expect("copied");
        }
    }
}
