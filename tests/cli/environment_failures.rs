//! A full disk, read-only folders, two concurrent processes, and clocks that jump.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::sandbox::{CommandResult, Sandbox, python_with_torch, run_to_end};

const TRAINS: &str = include_str!("scripts/train.py");

fn profile(sandbox: &Sandbox, python: &Path) -> Command {
    sandbox.write("train.py", TRAINS);
    let mut command = sandbox.ridgeline();
    command.args(["profile", "train.py", "--device", "cpu", "--python"]).arg(python);
    command
}

/// Lists all files below a folder.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found
}

fn recordings(sandbox: &Sandbox) -> Vec<PathBuf> {
    let files = walk(&sandbox.path("cache/recordings"));
    let mut found: Vec<PathBuf> = (files.iter())
        .filter(|file| file.file_name().is_some_and(|name| name == "manifest.json"))
        .filter_map(|file| file.parent().map(Path::to_owned))
        .filter(|folder| folder.join("trace.json").is_file())
        .collect();
    found.sort();
    found
}

/// A file system of a few megabytes, in a private mount namespace, fills up during the run. The run
/// reports it, and the next run succeeds once there is space again.
#[test]
#[cfg(target_os = "linux")]
fn disk_full_during_a_recording() {
    let Some(python) = python_with_torch() else { return };
    let in_namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command
    };
    let probed =
        in_namespace("mount -t tmpfs -o size=64k none /mnt").stderr(Stdio::null()).status();
    if !probed.is_ok_and(|status| status.success()) {
        println!("skipped: this machine makes no file system in a user namespace");
        return;
    }
    let sandbox = Sandbox::new();
    let own = profile(&sandbox, python);
    // The agent's files take one megabyte, a trace of a thousand operators several.
    let script = "mkdir -p \"$RIDGELINE_CACHE_DIR\" && \
                  mount -t tmpfs -o size=3m none \"$RIDGELINE_CACHE_DIR\" && exec \"$@\"";
    let mut command = in_namespace(script);
    command.arg("sh").arg(own.get_program()).args(own.get_args());
    command.current_dir(sandbox.project());
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    // Many operators per iteration, so that the recording is larger than the disk.
    let many = "import torch\n\
                net = torch.nn.Linear(8, 8)\n\
                optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n\
                for step in range(100):\n    \
                    optimizer.zero_grad()\n    \
                    loss = net(torch.randn(4, 8)).sum()\n    \
                    for _ in range(3000):\n        \
                        loss = loss + 1\n    \
                    loss.backward()\n    \
                    optimizer.step()\n";
    sandbox.write("train.py", many);
    let full = run_to_end(&mut command);
    assert_eq!(full.code, Some(1), "{}\n{}", full.stdout, full.stderr);
    let stderr = full.stderr.to_lowercase();
    assert!(stderr.contains("no space left") || stderr.contains("disk"), "{}", full.stderr);
    assert!(!stderr.contains("panicked"), "{}", full.stderr);
    // Files outside this disk are intact: the next run finds no partial writes.
    sandbox.write("train.py", TRAINS);
    run_to_end(&mut profile(&sandbox, python)).exits_with(0);
    assert_eq!(recordings(&sandbox).len(), 1);
}

/// Runs as a user without write permission for the cache and state folders.
fn as_somebody_else(command: &Command) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        let mut same = Command::new(command.get_program());
        same.args(command.get_args());
        return Some(copy_environment(command, same));
    }
    // Root can write everywhere.
    const NOBODY: &str = "65534";
    let mut other = Command::new("setpriv");
    other.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    other.arg(command.get_program()).args(command.get_args());
    let can = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        .arg(command.get_program())
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !can.is_ok_and(|status| status.success()) {
        println!("skipped: nobody else can run the binary on this machine");
        return None;
    }
    Some(copy_environment(command, other))
}

fn copy_environment(from: &Command, mut to: Command) -> Command {
    to.current_dir(from.get_current_dir().expect("the project"));
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
    to
}

/// With a read-only home, the error names the folder and the variable to set. Commands that need no
/// folder work.
#[test]
fn read_only_home() {
    let sandbox = Sandbox::new();
    let project = sandbox.project();
    let home = sandbox.path("home");
    fs::create_dir_all(&home).expect("a folder");
    fs::write(project.join("train.py"), TRAINS).expect("written");
    let trace = r#"[{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]"#;
    fs::write(project.join("trace.json"), trace).expect("written");
    for (folder, mode) in [(sandbox.path(""), 0o755), (project, 0o755), (home.clone(), 0o555)] {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("set");
    }
    let run = |arguments: &[&str]| -> Option<CommandResult> {
        let mut command = sandbox.ridgeline();
        command.args(arguments).env("HOME", &home);
        for variable in ["RIDGELINE_CACHE_DIR", "RIDGELINE_STATE_DIR", "XDG_CACHE_HOME"] {
            command.env_remove(variable);
        }
        command.env_remove("XDG_STATE_HOME");
        as_somebody_else(&command).map(|mut command| run_to_end(&mut command))
    };
    let Some(analyzed) = run(&["analyze", "trace.json"]) else { return };
    analyzed.exits_with(0).stdout_contains("aten::mm");
    if let Some(python) = python_with_torch()
        && let Some(profiled) = run(&[
            "profile",
            "train.py",
            "--device",
            "cpu",
            "--python",
            python.to_str().expect("UTF-8"),
        ])
    {
        // Only root may be able to start its Python. Either way, the error gives the reason.
        let result = profiled;
        assert!(matches!(result.code, Some(1 | 4)), "{}\n{}", result.stdout, result.stderr);
        assert!(
            !result.stderr.contains("panicked") && !result.stderr.is_empty(),
            "{}",
            result.stderr
        );
    }
    assert_eq!(walk(&home), Vec::<PathBuf>::new());
}

/// Two processes profile one project at once: both finish, and no recording is lost or mixed up.
#[test]
fn concurrent_runs_in_one_project() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let started: Vec<_> = (0..2)
        .map(|_| {
            let mut command = profile(&sandbox, python);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
        })
        .collect();
    for child in started {
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
    }
    assert_eq!(recordings(&sandbox).len(), 2);
    let runs = sandbox.run(&["compare"]).exits_with(0).stdout;
    assert!(runs.contains("last") && runs.contains("last~1"), "{runs}");
}

/// A recording with a timestamp in the future does not hide later ones.
#[test]
fn clock_set_back() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    run_to_end(&mut profile(&sandbox, python)).exits_with(0);
    let [first] = &recordings(&sandbox)[..] else { panic!("one recording") };
    let year = SystemTime::now() + Duration::from_secs(365 * 24 * 60 * 60);
    let set = fs::File::open(first).and_then(|folder| folder.set_modified(year));
    set.expect("its time is set");
    run_to_end(&mut profile(&sandbox, python)).exits_with(0);
    let of_first = first.file_name().expect("a name").to_owned();
    let newest = recordings(&sandbox)
        .into_iter()
        .max_by_key(|folder| fs::metadata(folder).and_then(|facts| facts.modified()).ok());
    assert_ne!(newest.expect("two").file_name(), Some(of_first.as_os_str()));
}
