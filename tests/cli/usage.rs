//! Exit codes and messages of commands without a trace or a Python.

use crate::sandbox::{Sandbox, python_with_torch, run_to_end};

const TRAINS: &str = include_str!("scripts/train.py");

#[test]
fn help_names_commands_and_exit_codes() {
    let help = Sandbox::new().run(&["--help"]).exits_with(0);
    for word in ["demo", "profile", "analyze", "lsp", "doctor", "setup", "report", "Exit codes:"] {
        assert!(help.stdout.contains(word), "{word}");
    }
}

#[test]
fn no_command_is_a_usage_error() {
    Sandbox::new().run::<&str>(&[]).exits_with(2).stderr_contains("ridgeline demo");
}

#[test]
fn wrong_arguments_are_usage_errors() {
    let sandbox = Sandbox::new();
    sandbox.run(&["analyse"]).exits_with(2);
    sandbox.run(&["analyze"]).exits_with(2);
    sandbox.run(&["profile", ".", "--batch-size", "0"]).exits_with(2);
    sandbox.run(&["profile", ".", "--device", "gpu"]).exits_with(2).stderr_contains("cuda:1");
}

#[test]
fn a_project_without_training_has_nothing_to_run() {
    let sandbox = Sandbox::new();
    sandbox.write("model.py", "class Net: pass\n");
    sandbox.run(&["profile", "."]).exits_with(3).stderr_contains("no training script");
    sandbox.run(&["profile", "gone.py"]).exits_with(3).stderr_contains("gone.py");
    sandbox.write("notes.txt", "");
    sandbox.run(&["profile", "notes.txt"]).exits_with(3).stderr_contains("not a Python file");
}

#[test]
fn several_scripts_are_listed() {
    let sandbox = Sandbox::new();
    sandbox.write("a/train.py", TRAINS);
    sandbox.write("b/train.py", TRAINS);
    sandbox
        .run(&["check", "."])
        .exits_with(3)
        .stderr_contains("a/train.py")
        .stderr_contains("b/train.py");
}

#[test]
fn configuration_errors_give_file_and_line() {
    let sandbox = Sandbox::new();
    sandbox.write("train.py", TRAINS);
    sandbox.write("ridgeline.toml", "\nscrpt = 'train.py'\n");
    sandbox
        .run(&["profile", "."])
        .exits_with(2)
        .stderr_contains("ridgeline.toml:2: unknown field `scrpt`");
    sandbox.write("ridgeline.toml", "script = '../train.py'\n");
    sandbox.run(&["profile", "."]).exits_with(2).stderr_contains("outside the project");
    sandbox.write("ridgeline.toml", "script = 'gone.py'\n");
    sandbox.run(&["profile", "."]).exits_with(2).stderr_contains("gone.py");
}

#[test]
fn a_missing_python_gives_advice() {
    let sandbox = Sandbox::new();
    sandbox.write("train.py", TRAINS);
    sandbox.run_without_python(&["profile", "."]).exits_with(4).stderr_contains("ridgeline setup");
}

#[test]
fn doctor_works_without_python() {
    let ended = Sandbox::new().run_without_python(&["doctor"]).exits_with(4);
    for word in ["Python", "Cores", "CUDA driver", "Next steps"] {
        assert!(ended.stdout.contains(word), "{word} in:\n{}", ended.stdout);
    }
}

#[test]
fn doctor_starts_the_agent_only_on_request() {
    let Some(python) = python_with_torch() else { return };
    for (arguments, agent) in
        [(&["doctor"][..], "--full starts it"), (&["doctor", "--full"], "Sandbox")]
    {
        let sandbox = Sandbox::new();
        let ended = run_to_end(sandbox.ridgeline().args(arguments).arg("--python").arg(python));
        assert!(ended.exits_with(0).stdout.contains(agent), "{arguments:?}");
    }
}

/// An unwritable output file is an error before anything runs: not even Python is searched for.
#[test]
fn unwritable_files_are_rejected_first() {
    let sandbox = Sandbox::new();
    sandbox.write("train.py", TRAINS);
    sandbox.write("trace.json", "{}");
    let commands: [(&[&str], &str); 10] = [
        (&["profile", "."], "--json"),
        (&["profile", "."], "--report"),
        (&["demo"], "--report"),
        (&["predict", "."], "--json"),
        (&["whatif", "."], "--json"),
        (&["compare", "last", "last"], "--json"),
        (&["check", "."], "--output"),
        (&["check", "."], "--write-baseline"),
        (&["analyze", "trace.json"], "--json"),
        (&["report"], "--output"),
    ];
    for (command, option) in commands {
        let arguments = [command, &[option, "no/such/folder/file"]].concat();
        let ended = sandbox.run_without_python(&arguments).exits_with(1);
        let ended = ended.stderr_contains(&format!(
            "{option} no/such/folder/file: folder no/such/folder does not exist"
        ));
        ended.stderr_contains("`mkdir -p no/such/folder`");
    }
    let folder = ["profile", ".", "--json", "."];
    sandbox.run_without_python(&folder).exits_with(1).stderr_contains("--json .: this is a folder");
    // The check itself does not create the file.
    let fine = ["profile", ".", "--json", "profile.json"];
    sandbox.run_without_python(&fine).exits_with(4);
    assert!(!sandbox.project().join("profile.json").exists());
}

#[test]
fn report_without_a_profile() {
    Sandbox::new().run(&["report"]).exits_with(3).stderr_contains("ridgeline profile");
}

#[test]
fn colours_only_on_request() {
    let sandbox = Sandbox::new();
    let red = "\u{1b}[1m\u{1b}[31merror";
    let gone = ["analyze", "gone.json"];
    assert!(!sandbox.run(&gone).exits_with(1).stderr.contains('\u{1b}'));
    let always = [&gone[..], &["--color", "always"]].concat();
    assert!(sandbox.run(&always).stderr.contains(red));
    let forced = run_to_end(sandbox.ridgeline().args(gone).env("CLICOLOR_FORCE", "1"));
    assert!(forced.stderr.contains('\u{1b}'));
    let refused =
        run_to_end(sandbox.ridgeline().args(gone).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1"));
    assert!(!refused.stderr.contains('\u{1b}'));
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_is_quiet() {
    use std::process::Stdio;
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .ridgeline()
        .arg("--help")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ridgeline starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_unwritable_folder_is_named() {
    let sandbox = Sandbox::new();
    sandbox.write("train.py", TRAINS);
    let file = sandbox.write("file", "");
    let Some(python) = crate::sandbox::python_with_torch() else { return };
    let mut command = sandbox.ridgeline();
    command.args(["profile", "train.py", "--python"]).arg(python);
    command.env("RIDGELINE_CACHE_DIR", file.join("below"));
    run_to_end(&mut command).exits_with(1).stderr_contains("file/below");
}
