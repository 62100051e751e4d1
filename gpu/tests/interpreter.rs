//! Tests which Python is found. Shell scripts stand in for Pythons.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ridgeline_gpu::interpreter::{
    Candidate, Consent, Interpreter, InterpreterError, Origin, Search, SystemEnvironment,
    candidates, find, probe,
};
use tempfile::TempDir;

/// A simulated machine in a folder: `home/` with a workspace `home/work/`, and `bin/` on `PATH`.
struct Machine {
    folder: TempDir,
    search: Search,
    surroundings: SystemEnvironment,
}

/// The answer of a script that stands in for a Python.
const WITH_TORCH: &str = r#"{"version": [3, 12, 1], "prefix": "/p", "executable": null, "torch": {"version": "2.8.0+cpu", "cuda": null, "hip": null}}"#;
const WITHOUT_TORCH: &str =
    r#"{"version": [3, 11, 7], "prefix": "/p", "executable": null, "torch": null}"#;

fn answering(answer: &str) -> String {
    format!("#!/bin/sh\necho noise\necho 'RIDGELINE-PROBE {answer}'\n")
}

impl Machine {
    fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("home/work/project");
        fs::create_dir_all(&root).unwrap();
        let search =
            Search { root, workspace: folder.path().join("home/work"), ..Search::default() };
        let mut machine = Machine { folder, search, surroundings: SystemEnvironment::default() };
        let path = format!("{}:relative:/usr/bin:/bin", machine.at("bin").display());
        machine.set("PATH", &path);
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn set(&mut self, name: &str, value: impl AsRef<Path>) {
        self.surroundings.variables.insert(name.into(), value.as_ref().into());
    }

    fn program(&self, path: &str, script: &str) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn candidates(&self) -> Vec<Candidate> {
        let mut found = candidates(&self.search, &self.surroundings);
        // Ignores the real machine's Pythons.
        found.retain(|candidate| candidate.path.starts_with(self.folder.path()));
        found
    }

    async fn find(&self) -> Result<Interpreter, InterpreterError> {
        find(&self.search, &self.surroundings, Consent::Given).await
    }

    #[track_caller]
    fn check(&self, expected: &[(Origin, &str, bool)]) {
        let found: Vec<_> = self
            .candidates()
            .into_iter()
            .map(|candidate| (candidate.origin, candidate.path, candidate.needs_consent))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(origin, path, consent)| (*origin, self.at(path), *consent))
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn explicit_choices_come_first() {
    let mut machine = Machine::new();
    for path in [
        "configured/python",
        "editor/bin/python",
        "active/bin/python",
        "conda/bin/python3",
        "home/work/project/.venv/bin/python",
        "home/work/venv/bin/python",
        "bin/python3",
        "bin/python",
        "private/bin/python",
    ] {
        machine.program(path, "");
    }
    machine.search.configured = Some(machine.at("configured/python"));
    machine.search.editor = Some(machine.at("editor"));
    machine.search.private = Some(machine.at("private/bin/python"));
    machine.set("VIRTUAL_ENV", machine.at("active"));
    machine.set("CONDA_PREFIX", machine.at("conda"));
    machine.check(&[
        (Origin::Configuration, "configured/python", true),
        (Origin::Editor, "editor/bin/python", true),
        (Origin::VirtualEnv, "active/bin/python", false),
        (Origin::Conda, "conda/bin/python3", false),
        (Origin::ProjectFolder, "home/work/project/.venv/bin/python", true),
        (Origin::ProjectFolder, "home/work/venv/bin/python", true),
        (Origin::Path, "bin/python3", false),
        (Origin::Path, "bin/python", false),
        (Origin::Private, "private/bin/python", false),
    ]);
}

#[test]
fn an_environment_above_the_workspace_is_ignored() {
    let machine = Machine::new();
    machine.program("home/.venv/bin/python", "");
    machine.check(&[]);
}

#[test]
fn an_active_environment_in_the_workspace_needs_consent() {
    let mut machine = Machine::new();
    machine.program("home/work/env/bin/python", "");
    machine.set("VIRTUAL_ENV", machine.at("home/work/env"));
    machine.check(&[(Origin::VirtualEnv, "home/work/env/bin/python", true)]);
}

#[test]
fn a_path_folder_linked_into_the_workspace_needs_consent() {
    let machine = Machine::new();
    machine.program("home/work/tools/python3", "");
    symlink(machine.at("home/work/tools"), machine.at("bin")).unwrap();
    machine.check(&[(Origin::Path, "bin/python3", true)]);
}

#[test]
fn files_that_are_not_executable_are_ignored() {
    let mut machine = Machine::new();
    fs::create_dir_all(machine.at("bin/python3")).unwrap();
    fs::write(machine.at("bin/python"), "not executable").unwrap();
    machine.set("VIRTUAL_ENV", "");
    machine.check(&[]);
}

#[test]
fn windows_paths_are_found() {
    let mut machine = Machine::new();
    machine.surroundings.windows = true;
    machine.program("home/work/project/.venv/Scripts/python.exe", "");
    machine.program("conda/python.exe", "");
    machine.program("bin/python.exe", "");
    machine.set("CONDA_PREFIX", machine.at("conda"));
    machine.check(&[
        (Origin::Conda, "conda/python.exe", false),
        (Origin::ProjectFolder, "home/work/project/.venv/Scripts/python.exe", true),
        (Origin::Path, "bin/python.exe", false),
    ]);
}

#[tokio::test]
async fn no_workspace_code_runs_without_consent() {
    let machine = Machine::new();
    let ran = machine.at("ran");
    let script = format!("#!/bin/sh\ntouch '{}'\n", ran.display());
    machine.program("home/work/project/.venv/bin/python", &script);
    let result = find(&machine.search, &machine.surroundings, Consent::NotGiven).await;
    assert!(matches!(result, Err(InterpreterError::NeedsConsent { .. })), "{result:?}");
    assert!(!ran.exists());
}

#[tokio::test]
async fn a_python_on_path_with_torch_is_preferred() {
    let machine = Machine::new();
    machine.program("bin/python3", &answering(WITHOUT_TORCH));
    machine.program("bin/python", &answering(WITH_TORCH));
    let found = machine.find().await.unwrap();
    assert_eq!(found.path, machine.at("bin/python"));
    assert_eq!(found.version, (3, 12, 1));
    assert_eq!(found.usable().unwrap().version, "2.8.0+cpu");
}

#[tokio::test]
async fn a_chosen_python_without_torch_ends_the_search_with_advice() {
    let mut machine = Machine::new();
    machine.program("active/bin/python", &answering(WITHOUT_TORCH));
    machine.program("bin/python3", &answering(WITH_TORCH));
    machine.set("VIRTUAL_ENV", machine.at("active"));
    let found = machine.find().await.unwrap();
    assert_eq!(found.origin, Origin::VirtualEnv);
    let message = found.usable().unwrap_err().to_string();
    assert!(message.contains("-m pip install torch"), "{message}");
    assert!(message.contains("ridgeline setup"), "{message}");
}

#[tokio::test]
async fn the_private_environment_is_the_last_resort() {
    let mut machine = Machine::new();
    machine.set("PATH", machine.at("bin"));
    machine.program("bin/python3", &answering(WITHOUT_TORCH));
    let private = machine.program("private/bin/python", &answering(WITH_TORCH));
    machine.search.private = Some(private.clone());
    assert_eq!(machine.find().await.unwrap().path, private);
}

#[tokio::test]
async fn the_error_without_a_python_lists_the_searched_places() {
    let mut machine = Machine::new();
    machine.set("PATH", machine.at("bin"));
    let error = machine.find().await.unwrap_err();
    assert_eq!(error, InterpreterError::NotFound);
    assert!(error.to_string().contains("VIRTUAL_ENV"));
}

#[tokio::test]
async fn the_error_names_a_missing_configured_python() {
    let mut machine = Machine::new();
    machine.search.configured = Some(machine.at("nowhere/python"));
    let message = machine.find().await.unwrap_err().to_string();
    assert!(message.contains("nowhere/python"), "{message}");
    assert!(message.contains("from the configuration"), "{message}");
}

#[tokio::test]
async fn a_shim_is_replaced_by_the_python_behind_it() {
    let mut machine = Machine::new();
    machine.set("PATH", format!("{}:/usr/bin:/bin", machine.at("bin").display()));
    let behind = machine.program("versions/3.12/bin/python", "");
    let answer =
        WITH_TORCH.replace("null, \"torch\"", &format!("\"{}\", \"torch\"", behind.display()));
    machine.program("bin/python3", &answering(&answer));
    assert_eq!(machine.find().await.unwrap().path, behind);
}

async fn probe_script(script: &str) -> Result<Interpreter, InterpreterError> {
    let machine = Machine::new();
    let path = machine.program("bin/python3", script);
    let candidate = Candidate { path, origin: Origin::Path, needs_consent: false };
    probe(&candidate, &machine.surroundings, Consent::NotGiven).await
}

#[track_caller]
fn check_broken(result: Result<Interpreter, InterpreterError>, expected: &str) {
    let message = result.unwrap_err().to_string();
    assert!(message.contains(expected), "{expected:?} is not in {message:?}");
}

#[tokio::test]
async fn a_failing_python_shows_its_last_output() {
    let script = "#!/bin/sh\necho 'pyenv: python3: command not found' >&2\nexit 127\n";
    check_broken(probe_script(script).await, "pyenv: python3: command not found");
    check_broken(probe_script("#!/bin/sh\nexit 3\n").await, "exit status: 3");
}

#[tokio::test]
async fn invalid_answers_are_rejected() {
    check_broken(probe_script(&answering("{\"version\": \"new\"}")).await, "exit status: 0");
    check_broken(probe_script(&answering(&"[".repeat(20_000))).await, "exit status: 0");
    check_broken(probe_script(&answering(r#"{"version": [-1, 2, 3]}"#)).await, "exit status: 0");
}

#[tokio::test]
async fn endless_output_is_discarded() {
    let script = format!("#!/bin/sh\nhead -c 5000000 /dev/zero\n{}", &answering(WITH_TORCH)[9..]);
    check_broken(probe_script(&script).await, "exit status: 0");
}

#[tokio::test]
async fn old_pythons_and_old_torch_versions_are_distinguished() {
    let old = WITH_TORCH.replace("[3, 12, 1]", "[2, 7, 18]");
    let error = probe_script(&answering(&old)).await.unwrap().usable().unwrap_err();
    assert!(error.to_string().contains("2.7.18"), "{error}");
    let old = WITH_TORCH.replace("2.8.0+cpu", "1.13.1");
    let error = probe_script(&answering(&old)).await.unwrap().usable().unwrap_err();
    assert!(error.to_string().contains("1.13.1"), "{error}");
}

#[tokio::test]
async fn an_unknown_torch_version_is_accepted() {
    let built = WITH_TORCH.replace("2.8.0+cpu", "unknown");
    assert!(probe_script(&answering(&built)).await.unwrap().usable().is_ok());
}

/// Uses a real Python: modules in the current workspace must not be imported.
#[tokio::test]
async fn a_malicious_torch_in_the_current_folder_is_not_run() {
    let mut machine = Machine::new();
    let own = SystemEnvironment::of_this_process();
    let Some(python) = candidates(&machine.search, &own)
        .into_iter()
        .find(|candidate| candidate.origin == Origin::Path)
    else {
        eprintln!("skipped: no Python on PATH");
        return;
    };
    let ran = machine.at("ran");
    let hostile = format!("open({:?}, 'w')\n__version__ = '2.8.0'\n", ran.display().to_string());
    for path in ["torch.py", "sitecustomize.py", "usercustomize.py", "json.py", "ast.py"] {
        machine.program(&format!("home/work/project/{path}"), &hostile);
    }
    machine.surroundings = own;
    machine.set("PYTHONPATH", machine.at("home/work/project"));
    let result = probe(&python, &machine.surroundings, Consent::NotGiven).await;
    assert!(result.is_ok(), "{result:?}");
    assert!(!ran.exists());
}

/// Uses a real Python: torch is found on `PYTHONPATH`, and its version is read without running it.
#[tokio::test]
async fn torchs_version_is_read_without_running_it() {
    let mut machine = Machine::new();
    machine.surroundings = SystemEnvironment::of_this_process();
    let Some(python) = candidates(&machine.search, &machine.surroundings)
        .into_iter()
        .find(|candidate| candidate.origin == Origin::Path)
    else {
        eprintln!("skipped: no Python on PATH");
        return;
    };
    let ran = machine.at("ran");
    let run = format!("open({:?}, 'w')\n", ran.display().to_string());
    machine.program("site/torch/__init__.py", &run);
    let version = format!("{run}__version__ = '9.9.9+test'\ncuda: str = '77.7'\nhip = None\n");
    machine.program("site/torch/version.py", &version);
    machine.set("PYTHONPATH", machine.at("site"));
    let found = probe(&python, &machine.surroundings, Consent::NotGiven).await.unwrap();
    assert!(!ran.exists());
    // If the Python on PATH has torch installed, that one is found first.
    if let Some(torch) = found.torch.filter(|torch| torch.version.starts_with("9.")) {
        assert_eq!((torch.version.as_str(), torch.cuda.as_deref()), ("9.9.9+test", Some("77.7")));
    }
}
