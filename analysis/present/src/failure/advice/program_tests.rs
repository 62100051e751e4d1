//! Causes that programs and their packages report in their own words.

use super::tests::{checked_advice, failure};
use super::*;
use ridgeline_python::DeclaredOption;

/// A program that exits with a code or a message, after its last lines of output.
fn exit(message: &str, output: &[&str]) -> RunFailure {
    let mut failure = failure("SystemExit", message);
    failure.kind = "exit".into();
    failure.run.error.exit_code = Some(1);
    failure.run.output = output.iter().map(|line| (*line).to_owned()).collect();
    failure
}

#[test]
fn programs_that_exit_without_their_data() {
    let message = "the program exited with the message: ";
    let text = checked_advice(
        &exit(&format!("{message}training data not found: data/train.bin"), &[]),
        "missing-file",
    );
    assert!(text.contains("Put the data there"), "{text}");
    let code = "the program exited with code 1";
    checked_advice(
        &exit(code, &["Dataset missing at ./corpus", "Run prepare.py first."]),
        "missing-file",
    );
    checked_advice(&exit(code, &["The folder images/ doesn't exist"]), "missing-file");
    let mut with_command = exit(code, &["Could not find the dataset"]);
    with_command.run.commands = vec!["README.md:3: python prepare.py".into()];
    let text = checked_advice(&with_command, "missing-file");
    assert!(text.ends_with("README.md:3 has `python prepare.py`."), "{text}");
    // Other reasons, and a line that only mentions data.
    checked_advice(&exit(&format!("{message}the loss is not finite"), &[]), "");
    checked_advice(&exit(code, &["Loaded 3 files", "giving up"]), "");
    checked_advice(&exit(code, &["metadata was not found interesting"]), "");
    let mut success = exit("the program exited with code 0", &["validation data not found"]);
    success.run.error.exit_code = Some(0);
    checked_advice(&success, "");
}

#[test]
fn environments_that_need_packages() {
    let text = checked_advice(
        &failure(
            "gymnasium.error.DependencyNotInstalled",
            "Box2D is not installed, you can install it by run `pip install swig` followed by `pip install \"gymnasium[box2d]\"`",
        ),
        "missing-package",
    );
    assert!(
        text.contains("`.venv/bin/python -m pip install \"swig\" \"gymnasium[box2d]\"`"),
        "{text}"
    );
    let text = checked_advice(
        &failure(
            "gym.error.DependencyNotInstalled",
            "pygame is not installed, run `pip install gym[classic_control]`",
        ),
        "missing-package",
    );
    assert!(text.contains("pip install \"gym[classic_control]\"`"), "{text}");
    let text = checked_advice(
        &failure("gym.error.DependencyNotInstalled", "MuJoCo is not installed"),
        "missing-package",
    );
    assert!(text.contains("Install it in the environment of .venv/bin/python."), "{text}");
}

#[test]
fn code_of_another_protobuf() {
    let text = checked_advice(
        &failure(
            "TypeError",
            "Descriptors cannot be created directly.\nIf this call came from a _pb2.py file, your generated code is out of date and must be regenerated with protoc >= 3.19.0.",
        ),
        "package-version",
    );
    assert!(text.contains("protobuf<3.21"), "{text}");
    checked_advice(&failure("TypeError", "Descriptors are sorted"), "");
}

/// A notebook takes no arguments.
#[test]
fn missing_data_of_a_notebook() {
    let mut notebook =
        failure("FileNotFoundError", "[Errno 2] No such file or directory: 'data/x.csv'");
    notebook.run.error.file = Some("data/x.csv".into());
    notebook.run.program = "analysis.ipynb".into();
    let text = checked_advice(&notebook, "missing-file");
    assert!(text.ends_with("or change the path in the notebook."), "{text}");
}

#[test]
fn paths_are_quoted_for_the_shell() {
    let mut missing =
        failure("FileNotFoundError", "[Errno 2] No such file or directory: 'data/x.csv'");
    missing.run.error.file = Some("data/x.csv".into());
    missing.run.program = "my project/it's.py".into();
    let text = checked_advice(&missing, "missing-file");
    assert!(text.contains("`ridgeline profile 'my project/it'\\''s.py' -- --data PATH`"), "{text}");
}

#[test]
fn paths_of_an_option_without_a_value() {
    let option = |name: &str, default: Option<&str>| DeclaredOption {
        name: name.into(),
        default: default.map(str::to_owned),
    };
    let mut unset = failure(
        "TypeError",
        "stat: path should be string, bytes, os.PathLike or integer, not NoneType",
    );
    checked_advice(&unset, "");
    unset.run.options = vec![option("data", None), option("--data-dir", None)];
    let text = checked_advice(&unset, "missing-argument");
    assert!(text.contains("`ridgeline profile train.py -- --data-dir PATH`"), "{text}");
    unset.run.arguments = vec!["--data-dir".into(), "images".into()];
    checked_advice(&unset, "");
}

#[test]
fn programs_with_subcommands() {
    let mut help =
        exit("the program exited with code 2", &["Commands:", "  fit  Train the model."]);
    help.run.error.exit_code = Some(2);
    help.run.program = "main.py".into();
    checked_advice(&help, "");
    help.run.subcommands = vec!["fit".into(), "evaluate".into()];
    let text = checked_advice(&help, "missing-argument");
    assert!(text.starts_with("The program has subcommands: `fit`, `evaluate`. Pass"), "{text}");
    assert!(text.contains("`ridgeline profile main.py -- fit`"), "{text}");
    help.run.arguments = vec!["fit".into()];
    checked_advice(&help, "");
}

#[test]
fn flags_of_absl_without_a_value() {
    let line = "FATAL Flags parsing error: flag --workdir=None: Flag --workdir must have a value other than None.";
    let mut failure = exit("the program exited with code 1", &[line]);
    failure.run.error.raised_in = Some(ridgeline_recording::manifest::RaisedIn {
        path: "absl/app.py".into(),
        name: "_run_init".into(),
    });
    let text = checked_advice(&failure, "missing-argument");
    assert!(text.contains("-- --workdir …"), "{text}");
}

#[test]
fn half_precision_without_a_gpu() {
    let bf16 = "Your setup doesn't support bf16/gpu. You need to assign use_cpu if you want to train the model on CPU.";
    let text = checked_advice(&failure("ValueError", bf16), "precision-needs-gpu");
    assert!(text.contains("`use_cpu=True`"), "{text}");
    let fp16 = "fp16 mixed precision requires a device in ['cuda', 'mps'] (not 'cpu').";
    checked_advice(&failure("ValueError", fp16), "precision-needs-gpu");
}

#[test]
fn commands_that_packages_start() {
    let pydot = failure("FileNotFoundError", "[Errno 2] \"dot\" not found in path.");
    let text = checked_advice(&pydot, "missing-command");
    assert!(text.starts_with("The program runs the command `dot` of Graphviz, which"), "{text}");
    let graphviz = "failed to execute PosixPath('dot'), make sure the Graphviz executables are on your systems' PATH";
    checked_advice(
        &failure("graphviz.backend.execute.ExecutableNotFound", graphviz),
        "missing-command",
    );
}

#[test]
fn modules_that_nothing_imported() {
    let mut failure = failure("AttributeError", "module 'tqdm' has no attribute 'notebook'");
    failure.run.error.module = Some(ridgeline_recording::manifest::ModuleFacts {
        name: "tqdm".into(),
        version: Some("4.70.1".into()),
        not_imported: Some("tqdm.notebook".into()),
    });
    let text = checked_advice(&failure, "module-not-imported");
    assert!(text.contains("add `import tqdm.notebook`"), "{text}");
}
