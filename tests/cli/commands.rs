//! The ways to start a program: a bare folder, a package, a command after `--`.

use crate::sandbox::{CommandResult, Sandbox, python_with_torch, run_to_end};

const TRAINS: &str = include_str!("scripts/train.py");

/// Runs `ridgeline` in the project. Returns `None` without torch.
fn ridgeline(sandbox: &Sandbox, words: &[&str]) -> Option<CommandResult> {
    let python = python_with_torch()?;
    let (own, program): (Vec<&str>, Vec<&str>) = match words.iter().position(|word| *word == "--") {
        Some(at) => (words[..at].to_vec(), words[at..].to_vec()),
        None => (words.to_vec(), Vec::new()),
    };
    let mut command = sandbox.ridgeline();
    command.args(own).args(["--device", "cpu", "--python"]).arg(python).args(program);
    Some(run_to_end(&mut command))
}

#[test]
fn scripts_in_subfolders_run_in_the_current_folder() {
    let sandbox = Sandbox::new();
    sandbox.write("images/one.txt", "1");
    let train = with_arguments("['--data', 'images']");
    sandbox.write("style/train.py", format!("import os\nassert os.path.isdir('images')\n{train}"));
    let Some(result) =
        ridgeline(&sandbox, &["profile", "style/train.py", "--", "--data", "images"])
    else {
        return;
    };
    result.exits_with(0).stderr_contains("Profiling style/train.py --data images in ");
}

#[test]
fn the_most_likely_of_several_scripts() {
    let sandbox = Sandbox::new();
    sandbox.write("train.py", TRAINS);
    sandbox.write("legacy_train.py", TRAINS);
    let Some(result) = ridgeline(&sandbox, &["profile", "."]) else { return };
    result
        .exits_with(0)
        .stderr_contains("Profiling train.py in ")
        .stderr_contains("note: 2 scripts could be the training script; train.py is the most likely. The others: legacy_train.py.");
}

#[test]
fn the_first_of_several_equally_likely_scripts() {
    let sandbox = Sandbox::new();
    sandbox.write("dcgan.py", TRAINS);
    sandbox.write("cyclegan.py", TRAINS);
    let Some(result) = ridgeline(&sandbox, &["profile", "."]) else { return };
    result
        .exits_with(0)
        .stderr_contains("Profiling dcgan.py in ")
        .stderr_contains("note: 2 scripts could be the training script, and none is more likely than the others. Profiling the first one, dcgan.py. The others: cyclegan.py.");
}

/// Returns a script that trains only with these arguments.
fn with_arguments(arguments: &str) -> String {
    format!("import sys\nassert sys.argv[1:] == {arguments}, sys.argv\n{TRAINS}")
}

#[test]
fn training_through_a_library() {
    // Imitates the library without installing it.
    let sandbox = Sandbox::new();
    sandbox.write(
        "keras/__init__.py",
        "import torch\nclass Model:\n    def fit(self):\n        net = torch.nn.Linear(8, 8)\n        \
         optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n        for _ in range(50):\n            \
         optimizer.zero_grad()\n            net(torch.randn(4, 8)).sum().backward()\n            \
         optimizer.step()\n",
    );
    sandbox.write("go.py", "import keras\nmodel = keras.Model()\nmodel.fit()\n");
    let Some(result) = ridgeline(&sandbox, &["profile", "."]) else { return };
    result.exits_with(0).stderr_contains("Profiling go.py in ");
}

#[test]
fn a_package_in_a_bare_folder_with_its_readme() {
    let sandbox = Sandbox::new();
    let train = with_arguments("['--lr', '0.1']")
        .replace("import torch\n", "import torch\nfrom .layers import nn as _\n");
    sandbox.write("tiny/__init__.py", "");
    sandbox.write("tiny/layers.py", "from torch import nn\n");
    sandbox.write("tiny/train.py", &train);
    sandbox.write("README.md", "# Tiny\n\n```\n$ python -m tiny.train --lr 0.1\n```\n");
    let Some(result) = ridgeline(&sandbox, &["profile", "."]) else { return };
    result
        .exits_with(0)
        .stderr_contains("Profiling python -m tiny.train --lr 0.1 (command from README.md:4) in ");
    // Given by its path.
    let Some(result) = ridgeline(&sandbox, &["profile", "tiny/train.py", "--", "--lr", "0.1"])
    else {
        return;
    };
    result.exits_with(0).stderr_contains("Profiling python -m tiny.train --lr 0.1 in ");
}

#[test]
fn explicit_commands() {
    let sandbox = Sandbox::new();
    sandbox.write("sub folder/train it.py", with_arguments("['--lr', '0.1', 'a b']"));
    let words =
        ["profile", "--", "SEED=1", "python", "-u", "sub folder/train it.py", "--lr", "0.1", "a b"];
    let Some(result) = ridgeline(&sandbox, &words) else { return };
    result.exits_with(0).stderr_contains("Profiling 'sub folder/train it.py' --lr 0.1 'a b' in ");
    // A shell script with arguments.
    sandbox.write("train.sh", "set -e\npython 'sub folder/train it.py' --lr 0.1 \"$@\"\n");
    let Some(result) = ridgeline(&sandbox, &["profile", "--", "./train.sh", "a b"]) else { return };
    result.exits_with(0);
}

#[test]
fn an_installed_command_and_a_module() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "pyproject.toml",
        "[project]\nname = 'x'\n[project.scripts]\nfit-it = 'tiny.cli:run'\n",
    );
    sandbox
        .write("tiny/cli.py", format!("{}\n\ndef run():\n    main()\n", with_arguments("['--x']")));
    let Some(result) = ridgeline(&sandbox, &["profile", "--", "uv", "run", "fit-it", "--x"]) else {
        return;
    };
    result.exits_with(0).stderr_contains("Profiling tiny.cli:run --x in ");
    sandbox.write("Makefile", "fit:\n\tmkdir -p runs\n\tuv run fit-it --x\n");
    let Some(result) = ridgeline(&sandbox, &["profile", "--", "make", "fit"]) else { return };
    result.exits_with(0).stderr_contains("Profiling tiny.cli:run --x in ");
    let Some(result) = ridgeline(&sandbox, &["profile", "--", "python", "-m", "tiny.cli", "--x"])
    else {
        return;
    };
    result.exits_with(0).stderr_contains("Profiling python -m tiny.cli --x in ");
}

#[test]
fn a_notebook_as_a_script() {
    let sandbox = Sandbox::new();
    let magic = "get_ipython().run_line_magic('matplotlib', 'inline')\n";
    let cell = TRAINS.split("\n\nif __name__").next().expect("a script");
    sandbox.write(
        "book.py",
        format!("# %%\n{magic}{cell}\n\n# In[2]:\nget_ipython().run_cell_magic('time', '', 'main()\\n')\n"),
    );
    let Some(result) = ridgeline(&sandbox, &["profile", "."]) else { return };
    result.exits_with(0);
}

#[test]
fn programs_that_cannot_run_get_advice() {
    let sandbox = Sandbox::new();
    sandbox.write("a.py", "print(1)\n");
    sandbox.write("b.py", "print(1)\n");
    sandbox
        .run(&["profile"])
        .exits_with(3)
        .stderr_contains("a.py, b.py")
        .stderr_contains("ridgeline profile -- python a.py");
    sandbox.run(&["profile", "--", "python", "gone.py"]).exits_with(3).stderr_contains("gone.py");
    sandbox
        .run(&["profile", "--", "python", "-c", "1"])
        .exits_with(3)
        .stderr_contains("Save the code to a script");
    sandbox.write("both.sh", "python a.py\npython b.py --x\n");
    let result = sandbox.run(&["profile", "--", "bash", "both.sh"]).exits_with(3);
    result
        .stderr_contains("line 2: python b.py --x")
        .stderr_contains("ridgeline profile -- python a.py");
    sandbox
        .run(&["profile", "--", "mystery-trainer"])
        .exits_with(3)
        .stderr_contains("mystery-trainer");
}
