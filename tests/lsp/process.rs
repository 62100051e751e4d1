//! The server as a separate process.

use std::fs;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use ridgeline_test_client::strict_client::StrictClient;

/// Runs a command on the simulated CUDA device.
const SIMULATED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/gpu/simulated/run");

/// Returns a Python with torch that works with the simulated GPU. Prints a message if there is none.
pub(super) fn python_on_simulated_gpu() -> Option<String> {
    let Ok(python) = std::env::var("RIDGELINE_TEST_PYTHON") else {
        println!("skipped: RIDGELINE_TEST_PYTHON names no Python with torch");
        return None;
    };
    let tried = std::process::Command::new(SIMULATED)
        .args(["--python", &python, "true"])
        .output()
        .expect("the simulation's own command");
    let stderr = String::from_utf8_lossy(&tried.stderr);
    if tried.status.code() == Some(77) {
        println!("skipped: {stderr}");
        return None;
    }
    assert!(tried.status.success(), "{stderr}");
    Some(python)
}

/// A server process with its own folders, and a client.
pub(super) struct Server {
    pub client: StrictClient,
    pub process: Child,
    pub root: PathBuf,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server without initializing it.
    pub(super) fn start() -> Server {
        Server::start_with(&[])
    }

    /// Like [`Server::start`], with additional environment variables.
    pub(super) fn start_with(environment: &[(&str, &str)]) -> Server {
        let (folder, process, root) = spawn(environment);
        Server::of(folder, process, root)
    }

    fn of(folder: tempfile::TempDir, mut process: Child, root: PathBuf) -> Server {
        let input = process.stdin.take().expect("piped");
        let output = process.stdout.take().expect("piped");
        let client = StrictClient::new(input, output);
        Server { client, process, root, folder }
    }

    /// Starts and initializes a server with a trusted workspace and these `settings`.
    pub(super) async fn greeted(capabilities: Value, settings: Value) -> Server {
        Server::start().greeted_with(capabilities, settings).await
    }

    /// The same on the simulated GPU, which follows the torch of `python`.
    pub(super) async fn greeted_on_simulated_gpu(
        python: &str,
        capabilities: Value,
        settings: Value,
    ) -> Server {
        let mut command = Command::new(SIMULATED);
        command.args(["--python", python, env!("CARGO_BIN_EXE_ridgeline")]);
        let (folder, process, root) = spawn_command(command, &[]);
        Server::of(folder, process, root).greeted_with(capabilities, settings).await
    }

    /// Initializes a started server.
    pub(super) async fn greeted_with(self, capabilities: Value, settings: Value) -> Server {
        let mut server = self;
        let folder = json!([{"uri": uri(&server.root), "name": "project"}]);
        let mut options = json!({"trusted": true, "watchFiles": false});
        for (key, value) in settings.as_object().into_iter().flatten() {
            options[key] = value.clone();
        }
        let more = json!({"workspaceFolders": folder, "initializationOptions": options});
        server.client.hello(capabilities, more).await;
        server
    }

    /// Writes a file of the project and returns its URI.
    pub(super) fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.root.join(name), text).expect("written");
        uri(&self.root.join(name))
    }

    /// Returns the environment variables for a process that shares this server's folders.
    pub(super) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        environment(self.folder.path())
    }

    /// Shuts the server down and waits for the process to exit.
    pub(super) async fn goodbye(self) -> ExitStatus {
        let Server { client, mut process, folder: _folder, .. } = self;
        client.goodbye().await;
        wait_for_exit(&mut process).await
    }

    /// Returns the process's memory in bytes, or `None` if the system does not report it.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()?)).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    }
}

/// Spawns a server, and creates a folder with a workspace.
pub(super) fn spawn(environment: &[(&str, &str)]) -> (tempfile::TempDir, Child, PathBuf) {
    spawn_command(Command::new(env!("CARGO_BIN_EXE_ridgeline")), environment)
}

fn spawn_command(
    mut command: Command,
    environment: &[(&str, &str)],
) -> (tempfile::TempDir, Child, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let root = fs::canonicalize(folder.path()).expect("it is there").join("project");
    fs::create_dir(&root).expect("created");
    let process = command
        .args(["lsp", "--stdio"])
        .envs(self::environment(folder.path()))
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the built binary");
    (folder, process, root)
}

fn environment(folder: &std::path::Path) -> [(&'static str, PathBuf); 2] {
    [("RIDGELINE_STATE_DIR", folder.join("state")), ("RIDGELINE_CACHE_DIR", folder.join("cache"))]
}

/// Waits for a process to exit. The timeout is for a process that hangs.
pub(super) async fn wait_for_exit(process: &mut Child) -> ExitStatus {
    let ended = tokio::time::timeout(Duration::from_secs(30), process.wait()).await;
    ended.expect("the server did not end").expect("a process")
}

/// Returns the URI of a path without characters that need escaping.
pub(super) fn uri(path: &std::path::Path) -> String {
    format!("file://{}", path.display())
}
