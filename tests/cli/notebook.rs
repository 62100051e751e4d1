//! Notebooks on the command line.

use serde_json::{Value, json};

use crate::cli::schema;
use crate::sandbox::{Sandbox, python_with_torch};

/// A notebook with a title and these code cells.
fn notebook(cells: &[&str]) -> String {
    let code = |cell: &&str| {
        let lines: Vec<&str> = cell.split_inclusive('\n').collect();
        json!({"cell_type": "code", "metadata": {}, "execution_count": 1, "outputs": [], "source": lines})
    };
    let title = json!({"cell_type": "markdown", "metadata": {}, "source": ["# Train"]});
    let cells: Vec<Value> = std::iter::once(title).chain(cells.iter().map(code)).collect();
    json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).to_string()
}

const CELLS: [&str; 4] = [
    "import torch\n%matplotlib inline\n!pip list",
    "model = torch.nn.Linear(64, 64)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "%%time\ntotal = 0\nfor step in range(200):\n    loss = model(torch.ones(8, 64)).sum()\n    loss.backward()\n    optimizer.step()\n    total += loss",
    "raise SystemExit('the loop is not the last cell')",
];

#[test]
fn the_cells_of_a_notebook_are_one_program() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let text = notebook(&CELLS);
    sandbox.write("train.ipynb", &text);
    let python = python.to_str().expect("a path");
    // The folder has no script, so the notebook is what trains.
    let command = ["profile", ".", "--device", "cpu", "--python", python, "--json", "-"];
    let profiled = sandbox.run(&command).exits_with(0);
    let json: Value = serde_json::from_str(&profiled.stdout).expect("JSON and nothing else");
    schema::validate(&json, "profile");
    let lines = json["lines"].as_array().expect("lines");
    let has = |line: u64| {
        lines.iter().any(|entry| entry["file"] == "train.ipynb#3" && entry["line"] == line)
    };
    assert!(has(4) && has(5) && has(6), "{lines:?}");
    assert_eq!(json["iteration"]["loop"]["file"], "train.ipynb#3");
    // The rules read the cells as one program.
    let findings = json["findings"].as_array().expect("findings");
    let kept = findings.iter().find(|finding| finding["rule"] == "graph-kept");
    let kept = kept.unwrap_or_else(|| panic!("{findings:#?}"));
    assert_eq!((&kept["file"], &kept["line"]), (&json!("train.ipynb#3"), &json!(7)));
    assert_eq!(kept["fix"], "detach-accumulated");
    let notes = json["notes"].to_string();
    assert!(notes.contains("cell 1: !pip list"), "{notes}");
    assert_eq!(std::fs::read_to_string(sandbox.project().join("train.ipynb")).expect("it"), text);

    let annotated = sandbox.run(&["annotate", "train.ipynb"]).exits_with(0).stdout;
    let backward = annotated.lines().find(|row| row.ends_with("loss.backward()"));
    assert!(backward.is_some_and(|row| row.contains('%')), "{annotated}");
    assert!(annotated.contains("cell 3"), "{annotated}");

    // Costs follow a cell that moves.
    let [imports, model, training, last] = CELLS;
    sandbox.write("train.ipynb", notebook(&[imports, "x = 1", model, training, last]));
    let moved = sandbox.run(&["annotate", "train.ipynb"]).exits_with(0).stderr_contains("changed");
    assert!(moved.stdout.contains("cell"), "{}", moved.stdout);
}

/// Jupyter runs a notebook in its own folder.
#[test]
fn a_notebook_in_a_subfolder() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    let [imports, model, training, _] = CELLS;
    // What the run writes is discarded, but can be imported.
    let write = "%%writefile parts.py\nwidth = '64'";
    let read = "import parts\nwith open('../data/width.txt') as file:\n    assert file.read() == parts.width";
    sandbox.write("notebooks/train.ipynb", notebook(&[imports, write, read, model, training]));
    sandbox.write("data/width.txt", "64");
    let python = python.to_str().expect("a path");
    let program = ["profile", "notebooks/train.ipynb", "--python", python, "--device", "cpu"];
    sandbox.run(&program).exits_with(0).stdout_contains("notebooks/train.ipynb#5:5");
    let found = ["profile", ".", "--python", python, "--device", "cpu"];
    sandbox.run(&found).exits_with(0).stdout_contains("notebooks/train.ipynb#5:5");
    assert!(!sandbox.project().join("notebooks/parts.py").exists());
}

#[test]
fn a_notebook_that_fails() {
    let Some(python) = python_with_torch() else { return };
    let sandbox = Sandbox::new();
    sandbox.write("book.ipynb", notebook(&["import torch", "\nraise ValueError('too few')"]));
    let python = python.to_str().expect("a path");
    sandbox
        .run(&["profile", "book.ipynb", "--python", python])
        .exits_with(1)
        .stderr_contains("book.ipynb#2:2")
        .stderr_contains("too few");
    sandbox.write("book.ipynb", "{");
    sandbox
        .run(&["profile", "book.ipynb", "--python", python])
        .exits_with(1)
        .stderr_contains("is not a notebook");
}
