//! `ridgeline annotate FILE`: today's text with the costs of the latest run.

use crate::sandbox::{Sandbox, python_with_torch};

const TRAIN: &str = "import torch\n\
    model = torch.nn.Linear(512, 512)\n\
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n\
    for step in range(200):\n\
    \x20   loss = model(torch.ones(64, 512)).sum()\n\
    \x20   loss.backward()\n\
    \x20   optimizer.step()\n";

#[test]
fn a_file_with_the_costs_of_the_latest_run() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    sandbox.write("train.py", TRAIN);
    sandbox
        .run(&["annotate", "train.py"])
        .exits_with(3)
        .stderr_contains("has not been profiled yet");
    let python = python.to_str().expect("a path");
    sandbox.run(&["profile", "train.py", "--device", "cpu", "--python", python]).exits_with(0);

    let whole = sandbox
        .run(&["annotate", "train.py"])
        .exits_with(0)
        .stderr_contains("source unchanged since");
    let rows: Vec<&str> = whole.stdout.lines().skip(1).collect();
    assert_eq!(rows.len(), TRAIN.lines().count(), "{}", whole.stdout);
    let backward = rows.iter().find(|row| row.ends_with("loss.backward()")).expect("a row");
    assert!(backward.contains("s ") && backward.contains('%'), "{backward}");

    // Costs follow lines that moved, and only the lines that were asked for are printed.
    sandbox.write("train.py", format!("# a comment\n{TRAIN}"));
    let part = sandbox.run(&["annotate", "train.py", "-L", "7,7"]).exits_with(0);
    let part = part.stderr_contains("changed since: train.py").stdout;
    let rows: Vec<&str> = part.lines().skip(1).collect();
    assert!(
        rows.len() == 1 && rows[0].contains('%') && rows[0].ends_with("loss.backward()"),
        "{part}"
    );

    sandbox.write("other.py", "x = 1\n");
    sandbox
        .run(&["annotate", "other.py"])
        .exits_with(1)
        .stderr_contains("has no costs in the latest run");
    sandbox
        .run(&["annotate", "train.py", "-L", "5,4"])
        .exits_with(2)
        .stderr_contains("range of lines");
    sandbox.run(&["annotate", "."]).exits_with(2).stderr_contains("Pass a Python file");
}

/// A file is named as for `profile`: below the working directory, where nothing marks a project, or through a link.
#[cfg(unix)]
#[test]
fn a_file_is_found_as_profile_finds_it() {
    let Some(python) = python_with_torch() else { return };
    let python = python.to_str().expect("a path");
    let sandbox = Sandbox::new();
    sandbox.write("src/train.py", TRAIN);
    let profile = |file: &str| {
        sandbox.run(&["profile", file, "--device", "cpu", "--python", python]).exits_with(0);
    };
    profile("src/train.py");
    sandbox.run(&["annotate", "src/train.py"]).exits_with(0).stdout_contains("loss.backward()");
    sandbox.run(&["report", "src/train.py"]).exits_with(0).stdout_contains("report.html");

    let link = sandbox.path("link");
    std::os::unix::fs::symlink(sandbox.project().join("src"), &link).expect("a link");
    let file = link.join("train.py").to_string_lossy().into_owned();
    profile(&file);
    sandbox.run(&["annotate", &file]).exits_with(0).stdout_contains("loss.backward()");
}
