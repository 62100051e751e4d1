//! Tests the private environment. Shell scripts stand in for Pythons and uv.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use ridgeline_gpu::environment::{SetupError, SetupEvent, installed, setup};
use ridgeline_gpu::interpreter::{Interpreter, SystemEnvironment};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A simulated machine in a folder: `bin/` is its `PATH`, `cache/` its cache, and `log` the list of
/// calls.
struct Machine {
    folder: TempDir,
    surroundings: SystemEnvironment,
}

/// A Python that creates copies of itself as environments (`-m venv FOLDER`), installs (`-m pip`),
/// imports torch once it is installed, and answers the probe. Files such as `disk-full` make a step
/// fail.
const PYTHON: &str = r#"#!/bin/sh
base=BASE
echo "$0 $*" >> "$base/log"
case "$*" in
"-I -m venv "*)
    test -e "$base/no-ensurepip" && { echo "The virtual environment was not created successfully because ensurepip is not available." >&2; exit 1; }
    mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
"-I -m pip install "*)
    echo "Collecting torch"
    test -e "$base/hang" && sleep 600
    test -e "$base/disk-full" && { echo "ERROR: [Errno 28] No space left on device" >&2; exit 1; }
    test -e "$base/no-wheel" && grep -q "3, [1]3" "$0" && { echo "ERROR: No matching distribution found for torch>=2.4" >&2; exit 1; }
    touch "$(dirname "$0")/../torch-is-here" ;;
"-I -c import torch"*)
    test -e "$(dirname "$0")/../torch-is-here" ;;
*)
    torch=null
    test -e "$(dirname "$0")/../torch-is-here" && torch='{"version": "2.8.0", "cuda": null, "hip": null}'
    echo "RIDGELINE-PROBE {\"version\": [VERSION], \"prefix\": \"/p\", \"executable\": null, \"torch\": $torch}" ;;
esac
"#;

impl Machine {
    fn new(pythons: &[(&str, &str)]) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let mut machine = Machine { folder, surroundings: SystemEnvironment::default() };
        fs::create_dir_all(machine.at("bin")).unwrap();
        for (name, version) in pythons {
            let base = machine.folder.path().display().to_string();
            let script = PYTHON.replace("BASE", &base).replace("VERSION", version);
            machine.program(name, &script);
        }
        // The tools that the scripts above need, without the real machine's Pythons and uv.
        for tool in ["mkdir", "cp", "touch", "dirname", "grep", "sleep", "sh"] {
            let found = ["/bin", "/usr/bin"].map(|folder| PathBuf::from(folder).join(tool));
            let found = found.into_iter().find(|path| path.exists()).unwrap();
            std::os::unix::fs::symlink(found, machine.at("bin").join(tool)).unwrap();
        }
        machine.set("PATH", machine.at("bin").to_str().unwrap());
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn set(&mut self, name: &str, value: &str) {
        self.surroundings.variables.insert(name.into(), value.into());
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.at("bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn enable(&self, what: &str) {
        fs::write(self.at(what), "").unwrap();
    }

    fn disable(&self, what: &str) {
        fs::remove_file(self.at(what)).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap_or_default()
    }

    async fn setup(&self) -> (Result<Interpreter, SetupError>, Vec<SetupEvent>) {
        let (sender, mut receiver) = mpsc::channel(1000);
        let cancel = CancellationToken::new();
        let result = setup(&self.at("cache"), &self.surroundings, sender, cancel).await;
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            events.push(event);
        }
        (result, events)
    }

    fn installed(&self) -> Option<PathBuf> {
        installed(&self.at("cache"))
    }
}

#[track_caller]
fn check_error(result: Result<Interpreter, SetupError>, expected: &str) {
    let message = result.unwrap_err().to_string();
    assert!(message.contains(expected), "{expected:?} is not in {message:?}");
}

#[tokio::test]
async fn an_environment_is_created_once_and_then_reused() {
    let machine = Machine::new(&[("python3", "3, 12, 1")]);
    assert_eq!(machine.installed(), None);
    let (environment, events) = machine.setup().await;
    let environment = environment.unwrap();
    assert_eq!(Some(environment.path), machine.installed());
    assert_eq!(environment.torch.unwrap().version, "2.8.0");
    assert_eq!(events.first(), Some(&SetupEvent::LookingForPython));
    assert!(matches!(events[1], SetupEvent::Creating { .. }));
    assert!(
        matches!(&events[2], SetupEvent::Installing { line, .. } if line == "Collecting torch")
    );
    assert_eq!(events.last(), Some(&SetupEvent::Checking));
    machine.setup().await.0.unwrap();
    assert_eq!(machine.log().matches("pip install").count(), 1);
}

#[tokio::test]
async fn the_users_python_only_creates_the_environment() {
    let machine = Machine::new(&[("python3", "3, 12, 1")]);
    machine.setup().await.0.unwrap();
    let own = machine.at("bin/python3").display().to_string();
    for call in machine.log().lines().filter(|call| call.starts_with(&own)) {
        assert!(call.contains("-m venv") || call.contains("import json"), "{call}");
    }
}

#[tokio::test]
async fn variables_that_redirect_installs_are_removed() {
    let mut machine = Machine::new(&[]);
    for name in ["PIP_TARGET", "PIP_USER", "PYTHONPATH", "VIRTUAL_ENV"] {
        machine.set(name, "/elsewhere");
    }
    machine.set("PIP_INDEX_URL", "https://packages.example");
    let script = PYTHON
        .replace("BASE", machine.folder.path().to_str().unwrap())
        .replace("VERSION", "3, 12, 1")
        .replace("#!/bin/sh", "#!/bin/sh\nset >> BASE/variables")
        .replace("BASE", machine.folder.path().to_str().unwrap());
    machine.program("python3", &script);
    machine.setup().await.0.unwrap();
    let variables = fs::read_to_string(machine.at("variables")).unwrap();
    assert!(!variables.contains("/elsewhere"), "{variables}");
    assert!(variables.contains("https://packages.example"));
}

#[tokio::test]
async fn the_best_working_python_is_used() {
    let machine = Machine::new(&[("python3.14", "3, 14, 0"), ("python3.12", "3, 12, 1")]);
    machine.program("python3.13", "#!/bin/sh\necho 'pyenv: not installed' >&2\nexit 127\n");
    assert_eq!(machine.setup().await.0.unwrap().version, (3, 12, 1));
}

#[tokio::test]
async fn a_python_without_torch_wheels_is_skipped() {
    let machine = Machine::new(&[("python3.13", "3, 13, 0"), ("python3.12", "3, 12, 1")]);
    machine.enable("no-wheel");
    assert_eq!(machine.setup().await.0.unwrap().version, (3, 12, 1));
}

#[tokio::test]
async fn a_missing_python_is_reported_with_advice() {
    let machine = Machine::new(&[("python3", "3, 8, 10")]);
    check_error(machine.setup().await.0, "Install one");
}

#[tokio::test]
async fn missing_ensurepip_is_reported_with_advice() {
    let machine = Machine::new(&[("python3", "3, 12, 1")]);
    machine.enable("no-ensurepip");
    check_error(machine.setup().await.0, "python3-venv");
}

#[tokio::test]
async fn a_full_disk_is_reported_and_the_next_setup_continues() {
    let machine = Machine::new(&[("python3", "3, 12, 1")]);
    machine.enable("disk-full");
    check_error(machine.setup().await.0, "the disk is full");
    assert_eq!(machine.installed(), None);
    machine.disable("disk-full");
    machine.setup().await.0.unwrap();
    assert_eq!(machine.log().matches("-m venv").count(), 1, "the half-made one is used");
}

#[tokio::test]
async fn a_cancelled_setup_continues_next_time() {
    let machine = Machine::new(&[("python3", "3, 12, 1")]);
    machine.enable("hang");
    let (sender, mut events) = mpsc::channel(1000);
    let cancel = CancellationToken::new();
    let stop = async {
        while let Some(event) = events.recv().await {
            if matches!(event, SetupEvent::Installing { .. }) {
                cancel.cancel();
            }
        }
    };
    let cache = machine.at("cache");
    let (result, ()) =
        tokio::join!(setup(&cache, &machine.surroundings, sender, cancel.clone()), stop);
    assert!(matches!(result, Err(SetupError::Cancelled)), "{result:?}");
    assert_eq!(machine.installed(), None);
    machine.disable("hang");
    machine.setup().await.0.unwrap();
}

#[tokio::test]
async fn concurrent_setups_create_one_environment() {
    let machine = Machine::new(&[("python3", "3, 12, 1")]);
    let (one, other) = tokio::join!(machine.setup(), machine.setup());
    assert_eq!(one.0.unwrap().path, other.0.unwrap().path);
    assert_eq!(machine.log().matches("pip install").count(), 1);
    let waited = |events: &[SetupEvent]| events.contains(&SetupEvent::WaitingForAnother);
    assert!(waited(&one.1) != waited(&other.1));
}

#[tokio::test]
async fn a_damaged_environment_is_recreated() {
    let machine = Machine::new(&[("python3", "3, 12, 1")]);
    let path = machine.setup().await.0.unwrap().path;
    fs::remove_file(&path).unwrap();
    assert_eq!(machine.installed(), None);
    assert_eq!(machine.setup().await.0.unwrap().path, path);
}

#[tokio::test]
async fn uv_is_used_if_installed() {
    let machine = Machine::new(&[("python3", "3, 12, 1")]);
    let uv = r#"#!/bin/sh
echo "uv $*" >> BASE/log
case "$*" in
"venv "*) mkdir -p "$5/bin" && cp "$4" "$5/bin/python" ;;
"pip install "*) touch "$(dirname "$5")/../torch-is-here" ;;
esac
"#;
    machine.program("uv", &uv.replace("BASE", machine.folder.path().to_str().unwrap()));
    machine.setup().await.0.unwrap();
    let log = machine.log();
    assert!(log.contains("uv pip install --compile-bytecode --python "), "{log}");
    assert!(log.contains("torch>=2.4 numpy"), "{log}");
    assert!(!log.contains("-m pip"), "{log}");
}

#[tokio::test]
async fn an_unwritable_cache_is_reported() {
    let machine = Machine::new(&[("python3", "3, 12, 1")]);
    machine.enable("cache");
    check_error(machine.setup().await.0, "cache");
}
