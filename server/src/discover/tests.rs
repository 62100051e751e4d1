//! Tests of the program that is chosen for a folder.

use super::*;

const TRAINS: &str = "import torch\nimport model\n\ndef main():\n    net = model.Net()\n    \
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n    for x in range(10):\n        \
    loss = net(x).sum()\n        loss.backward()\n        optimizer.step()\n\n\
    if __name__ == \"__main__\":\n    main()\n";
const MODEL: &str = "import torch\nfrom layers import Block\n\nclass Net(torch.nn.Module):\n    \
    def forward(self, x):\n        return x\n";
const PROVIDER: &str = "def skyline_model_provider():\n    return None\n\n\
    def skyline_input_provider(batch_size=32):\n    return None\n\n\
    def skyline_iteration_provider(model):\n    return None\n";

/// Finds the run of a project with the given files; `opened` and `remembered` may be empty.
#[track_caller]
fn check(files: &[(&str, &str)], opened: &str, remembered: &str, expected: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        std::fs::write(path, text).expect("written");
    }
    let opened = (!opened.is_empty()).then_some(Path::new(opened));
    let remembered = (!remembered.is_empty()).then_some(remembered);
    let mut discovery = Discovery::default();
    let found = discovery.find(folder.path(), opened, remembered);
    let shown = |path: &Path| path.to_string_lossy().replace('\\', "/");
    let found = match found {
        SearchResult::Run(run) => match &run.origin {
            Some(origin) => format!("{} ({origin})", run.display()),
            None => run.display(),
        },
        SearchResult::Provider(path) => format!("provider {}", shown(&path)),
        SearchResult::Several { candidates, leads, trains } => {
            let paths: Vec<String> = candidates.iter().map(|one| one.run.display()).collect();
            let word = match (trains, leads) {
                (false, _) => "none trains",
                (true, true) => "likeliest first",
                (true, false) => "ask",
            };
            format!("{word}: {}", paths.join(" "))
        }
        SearchResult::Nothing { looked_at, .. } => format!("nothing in {looked_at}"),
    };
    assert_eq!(found, expected);
}

/// Scripts of PyTorch's tutorials have a `test_loop`, and Lightning modules a `test_step`.
#[test]
fn functions_named_test_do_not_make_a_script_a_test() {
    let loops = format!("{TRAINS}def test_loop(model):\n    model.eval()\n\ntest_loop(net)\n");
    check(&[("tutorial.py", &loops)], "", "", "tutorial.py");
    let method = format!("{TRAINS}class Net:\n    def test_step(self, batch):\n        pass\n");
    check(&[("tutorial.py", &method)], "", "", "tutorial.py");
}

#[test]
fn a_readme_may_start_above_the_project_or_in_a_list() {
    let readme = "# x\n\n* python other/train_it.py --lr 0.1\n";
    check(
        &[("other/train_it.py", TRAINS), ("other/train_else.py", TRAINS), ("README.md", readme)],
        "",
        "",
        "other/train_it.py --lr 0.1 (command from README.md:3)",
    );
    // Words after a file's name in a sentence are no arguments.
    let prose = "Modify the options in `train.py arg_list` first.\n";
    check(&[("train.py", TRAINS), ("README.md", prose)], "", "", "train.py");
}

#[test]
fn a_readme_may_name_a_shell_script() {
    let readme = "```\nsh scripts/linear/rate.sh\n```\nFor the others, `cd former` first.\n";
    let script = "mkdir -p logs\nmodel=Linear\nfor n in 96 192\ndo\n  python -u run_long.py \\\n  \
        --model $model --n $n >logs/$model.log\ndone\n";
    check(
        &[
            ("run_long.py", TRAINS),
            ("former/long_range_main.py", TRAINS),
            ("former/scripts/a.sh", "python long_range_main.py -x\npython long_range_main.py -y\n"),
            ("scripts/linear/rate.sh", script),
            ("README.md", readme),
        ],
        "",
        "",
        "run_long.py --model Linear --n 96 (command of scripts/linear/rate.sh:5, see README.md:2)",
    );
}

#[test]
fn a_readme_may_omit_the_folder_of_a_shell_script() {
    let readme = "```\nsh ./scripts/weather.sh\n```\n";
    check(
        &[
            ("supervised/run.py", TRAINS),
            ("supervised/scripts/weather.sh", "python run.py --data weather\n"),
            ("README.md", readme),
        ],
        "",
        "",
        "supervised/run.py --data weather (command of supervised/scripts/weather.sh:1, see \
        README.md:2)",
    );
}

/// A command whose arguments are unknown still has a folder.
#[test]
fn the_folder_of_an_incomplete_command() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir_all(folder.path().join("lib")).expect("a folder");
    for (file, text) in [
        ("lib/train.py", TRAINS),
        ("lib/run.sh", "python train.py --data $1 ${@:2}\n"),
        ("README.md", "```\ncd lib\nbash run.sh DATA <folder>\n```\n"),
    ] {
        std::fs::write(folder.path().join(file), text).expect("written");
    }
    let found = Discovery::default().find(folder.path(), None, None);
    let SearchResult::Run(run) = found else { panic!("{found:?}") };
    assert_eq!((run.display().as_str(), run.folder), ("lib/train.py", Some("lib".into())));
}

#[test]
fn a_command_that_prints_help_is_not_the_training() {
    let readme = "```\npython train.py -h\n```\n";
    check(&[("train.py", TRAINS), ("README.md", readme)], "", "", "train.py");
}

#[test]
fn a_command_for_the_folders_of_somebody_else() {
    let script = "python train.py --root \"('/home/no-such-person/data')\"\n";
    check(&[("train.py", TRAINS), ("all.sh", script)], "", "", "train.py");
}

#[test]
fn a_variant_comes_after_the_program_that_it_varies() {
    check(
        &[("src/mnist-mixed.py", TRAINS), ("src/mnist.py", TRAINS)],
        "",
        "",
        "ask: src/mnist.py src/mnist-mixed.py",
    );
}

#[test]
fn a_notebook_may_train_through_a_file() {
    let notebook = |cell: &str| {
        format!(
            "{{\"cells\":[{{\"cell_type\":\"code\",\"source\":[\"{cell}\"]}}],\
            \"metadata\":{{}},\"nbformat\":4,\"nbformat_minor\":5}}"
        )
    };
    let trains = notebook("import torch\\nfrom trainer import fit\\nfit(torch.nn.Linear(1, 1))\\n");
    let shows = notebook("import torch\\nprint(torch.ones(1))\\n");
    let trainer = "import torch\n\ndef fit(net):\n    \
        optimizer = torch.optim.SGD(net.parameters(), lr=1)\n    for _ in range(9):\n        \
        net(torch.ones(1)).sum().backward()\n        optimizer.step()\n";
    check(
        &[("trainer.py", trainer), ("run.ipynb", &trains), ("show.ipynb", &shows)],
        "",
        "",
        "run.ipynb",
    );
    // A script that trains through a file comes first.
    let script = "from trainer import fit\nimport torch\nfit(torch.nn.Linear(1, 1))\n";
    check(
        &[("trainer.py", trainer), ("run.ipynb", &trains), ("scripts/go.py", script)],
        "",
        "",
        "scripts/go.py",
    );
}

#[test]
fn an_evaluation_in_a_readme_is_not_the_training() {
    let readme = "```\npython long_range.py -data x -eval\n```\n";
    check(
        &[("long_range.py", TRAINS), ("main.py", TRAINS), ("README.md", readme)],
        "",
        "",
        "likeliest first: main.py long_range.py",
    );
}

#[test]
fn installed_commands_of_setup_py() {
    let setup = "from setuptools import setup\nsetup(\n    entry_points={'console_scripts': \
        ['learn = net.cli:run', \"learn-vocab=net.vocab:build\"]},\n)\n";
    let module = "import torch\n\ndef run():\n    net = torch.nn.Linear(1, 1)\n    \
        optimizer = torch.optim.SGD(net.parameters(), lr=1)\n    for _ in range(9):\n        \
        net(torch.ones(1)).sum().backward()\n        optimizer.step()\n";
    check(
        &[("setup.py", setup), ("net/__init__.py", ""), ("net/cli.py", module)],
        "",
        "",
        "net.cli:run (command learn from setup.py:3)",
    );
}

#[test]
fn arguments_of_an_installed_command_in_a_readme() {
    let project = "[project.scripts]\nlearn = \"net.cli:run\"\nlearn-vocab = \"net.vocab:build\"\n";
    let module = format!("{TRAINS}\ndef run():\n    pass\n");
    let files = [
        ("pyproject.toml", project),
        ("README.md", "    uv sync\n    uv run learn --out runs/first\n"),
        ("src/net/__init__.py", ""),
        ("src/net/cli.py", &module),
    ];
    let expected = "net.cli:run --out runs/first (command from README.md:2)";
    check(&files, "", "", expected);
}

#[test]
fn the_only_script_is_chosen() {
    check(&[("train.py", TRAINS), ("model.py", MODEL)], "", "", "train.py");
}

#[test]
fn nothing_trains() {
    check(&[("model.py", MODEL), ("notes.txt", TRAINS)], "", "", "nothing in 1");
}

#[test]
fn several_scripts_prompt_and_the_choice_is_remembered() {
    let files = [("a.py", TRAINS), ("b.py", TRAINS), ("model.py", MODEL)];
    check(&files, "", "", "ask: a.py b.py");
    check(&files, "", "b.py", "b.py");
    check(&files, "", "gone.py", "ask: a.py b.py");
    check(&files, "model.py", "b.py", "b.py");
}

#[test]
fn the_opened_script_wins() {
    check(&[("a.py", TRAINS), ("b.py", TRAINS)], "b.py", "a.py", "b.py");
}

#[test]
fn the_script_that_imports_the_opened_file() {
    let other = TRAINS.replace("import model\n", "");
    let files = [
        ("train.py", TRAINS),
        ("other.py", other.as_str()),
        ("model.py", MODEL),
        ("layers.py", "class Block: pass\n"),
    ];
    check(&files, "model.py", "", "train.py");
    check(&files, "layers.py", "other.py", "train.py");
}

#[test]
fn packages_and_relative_imports() {
    let train = TRAINS.replace("import model\n", "from pkg.nets import model\n");
    let files = [
        ("tools/train.py", train.as_str()),
        ("tools/other.py", TRAINS),
        ("pkg/nets/__init__.py", ""),
        ("pkg/nets/model.py", "from .blocks import Block\n"),
        ("pkg/nets/blocks.py", "class Block: pass\n"),
    ];
    check(&files, "pkg/nets/blocks.py", "", "tools/train.py");
}

#[test]
fn providers() {
    let files = [("train.py", TRAINS), ("entry_point.py", PROVIDER)];
    check(&files, "entry_point.py", "", "provider entry_point.py");
    check(&files, "", "", "train.py");
    check(&[("entry_point.py", PROVIDER)], "", "", "provider entry_point.py");
}

#[test]
fn third_party_code_is_ignored() {
    let files = [
        ("train.py", TRAINS),
        (".venv/lib/python3.12/site-packages/lib/train.py", TRAINS),
        ("myenv/pyvenv.cfg", ""),
        ("myenv/train.py", TRAINS),
        (".gitignore", "old/\n"),
        ("old/train.py", TRAINS),
    ];
    check(&files, "", "", "train.py");
}

#[test]
fn cyclic_imports_terminate() {
    let files = [("a.py", "import b\n"), ("b.py", "import a\n"), ("train.py", TRAINS)];
    check(&files, "a.py", "", "train.py");
}

#[test]
fn hostile_files_are_skipped() {
    let deep = "(".repeat(20_000);
    let long = "x = 1\n".repeat(300_000);
    let files = [("train.py", TRAINS), ("deep.py", deep.as_str()), ("long.py", long.as_str())];
    check(&files, "", "", "train.py");
}

#[test]
fn a_changed_file_is_read_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("train.py");
    std::fs::write(&file, "pass\n").expect("written");
    let mut discovery = Discovery::default();
    let nothing = SearchResult::Nothing { looked_at: 1, cut_short: false, likely: Vec::new() };
    assert_eq!(discovery.find(folder.path(), None, None), nothing);
    std::fs::write(&file, TRAINS).expect("written");
    assert_eq!(
        discovery.find(folder.path(), None, None),
        SearchResult::Run(Run::script(Path::new("train.py")))
    );
}

#[test]
fn roots() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let nested = folder.path().join("a/b");
    std::fs::create_dir_all(&nested).expect("folders");
    let file = nested.join("train.py");
    assert_eq!(project_root(&file, None), nested);
    assert_eq!(project_root(&file, Some(folder.path())), folder.path());
    std::fs::write(folder.path().join("a/ridgeline.toml"), "").expect("written");
    assert_eq!(project_root(&file, Some(folder.path())), folder.path().join("a"));
}

/// A loop that another file runs.
const ENGINE: &str = "import torch\n\ndef train(model, data):\n    \
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    for x in data:\n        \
    model(x).sum().backward()\n        optimizer.step()\n\n\
    class Trainer:\n    def __init__(self, model):\n        self.model = model\n\n    \
    def run(self):\n        for x in range(9):\n            self.step(x)\n\n    \
    def step(self, x):\n        self.loss(x).backward()\n        self.optimizer.step()\n";

#[test]
fn libraries_that_train() {
    let keras = "import keras\nmodel = keras.Sequential()\nmodel.compile()\nmodel.fit(x, y)\n";
    check(&[("fit_it.py", keras), ("data.py", "def load(): ...\n")], "", "", "fit_it.py");
    let yolo = "from ultralytics import YOLO\nYOLO('a.yaml').train(data='coco8.yaml', epochs=1)\n";
    check(&[("go.py", yolo)], "", "", "go.py");
}

#[test]
fn a_loop_in_another_file() {
    // Like mnist_hogwild: a process runs a function of another file.
    let spawns = "import torch.multiprocessing as mp\nfrom train import train\n\
        if __name__ == '__main__':\n    p = mp.Process(target=train, args=(1,))\n    p.start()\n";
    check(&[("main.py", spawns), ("train.py", ENGINE)], "", "", "main.py");
    // Like minGPT's projects: a trainer from a neighboring package.
    let project = "from mylib.trainer import Trainer\nfrom mylib.model import Net\n\
        if __name__ == '__main__':\n    trainer = Trainer(Net())\n    trainer.run()\n";
    let files = [
        ("projects/adder/adder.py", project),
        ("mylib/__init__.py", ""),
        ("mylib/trainer.py", ENGINE),
        ("mylib/model.py", MODEL),
        ("setup.py", "from setuptools import setup\nsetup(name='mylib')\n"),
    ];
    check(&files, "", "", "projects/adder/adder.py");
    check(&files, "mylib/trainer.py", "", "projects/adder/adder.py");
    // A function of a module, and one that a package re-exports.
    let calls = "import argparse\nfrom mylib import engine as e\nargparse.ArgumentParser()\ne.train(1, 2)\n";
    check(&[("start.py", calls), ("mylib/engine.py", ENGINE)], "", "", "start.py");
    let handed_on = "from mylib import train\ntrain(1, 2)\n";
    let files = [
        ("start.py", handed_on),
        ("mylib/__init__.py", "from .engine import train\n"),
        ("mylib/engine.py", ENGINE),
    ];
    check(&files, "", "", "start.py");
    // A result that is only kept.
    let kept = "from mylib.engine import train\nhistory = train(1, 2)\n";
    let log = "import torch\nfrom mylib.log import get_logger\nlogger = get_logger()\n";
    let files = [
        ("start.py", kept),
        ("mylib/engine.py", ENGINE),
        ("mylib/log.py", "def get_logger(): ...\n"),
        ("mylib/data.py", log),
    ];
    check(&files, "", "", "start.py");
    // Many modules that only assign something do not hide a program that comes after them.
    let modules = (0..choose::MAX_FOLLOWED_FILES + 5).map(|at| format!("a{at}.py"));
    let modules: Vec<String> = modules.collect();
    let own = [
        ("start.py", handed_on),
        ("report.py", "print(1)\n"),
        ("mylib/__init__.py", "from .engine import train\n"),
        ("mylib/engine.py", ENGINE),
    ];
    let many: Vec<_> = modules.iter().map(|name| (name.as_str(), log)).chain(own).collect();
    check(&many, "", "", "start.py");
    // A method of a class in a module that is imported by name.
    let by_name = "from mylib import algorithms\nalgorithm = algorithms.by_name('ERM')()\n\
        algorithm.run()\n";
    let files = [("start.py", by_name), ("mylib/__init__.py", ""), ("mylib/algorithms.py", ENGINE)];
    check(&files, "", "", "start.py");
}

#[test]
fn a_library_is_not_a_program() {
    check(&[("engine.py", ENGINE), ("model.py", MODEL)], "", "", "nothing in 2");
}

#[test]
fn one_runnable_file_always_runs() {
    check(&[("go.py", "import mystery\nmystery.go()\n")], "", "", "go.py");
    check(
        &[("notebook.py", "# %%\nimport torch\n# %%\nprint(torch.ones(3).sum())\n")],
        "",
        "",
        "notebook.py",
    );
    let files = [
        ("go.py", "import mystery\nmystery.go()\n"),
        ("lib.py", "def f(): ...\n"),
        ("setup.py", "from setuptools import setup\nsetup()\n"),
        ("tests/test_lib.py", "import pytest\npytest.main()\n"),
    ];
    check(&files, "", "", "go.py");
    check(&[("go.py", "import torch\nresult = torch.load('missing.pt')\n")], "", "", "go.py");
    // Saving a file unrelated to PyTorch starts no run.
    check(&files, "go.py", "", "nothing in 4");
    check(&[("a.py", "print(1)\n"), ("b.py", "print(1)\n")], "", "", "nothing in 2");
}

#[test]
fn commands_of_the_project() {
    let readme = "# X\n\n```\npython train.py --batch-size 8\n```\n";
    let expected = "train.py --batch-size 8 (command from README.md:4)";
    let files = [("train.py", TRAINS), ("README.md", readme)];
    check(&files, "", "", expected);
    check(&files, "train.py", "", expected);
    let files = [
        ("train.py", TRAINS),
        ("model.py", MODEL),
        ("Makefile", "fit:\n\tpython train.py --lr 1\n"),
    ];
    check(&files, "model.py", "", "train.py --lr 1 (target fit from Makefile:2)");
    let files = [("a/train.py", TRAINS), ("run.sh", "cd a\npython train.py 'x y'\n")];
    check(&files, "", "", "a/train.py 'x y' (command from run.sh:2)");
    let launch = r#"{"configurations": [{"name": "Small", "type": "debugpy",
        "program": "${workspaceFolder}\\train.py", "args": ["--n", "1"]}]}"#;
    let files = [("train.py", TRAINS), (".vscode/launch.json", launch), ("README.md", readme)];
    check(&files, "", "", "train.py --n 1 (configuration \"Small\" from .vscode/launch.json:1)");
    let readme = "```\n$ python -m pkg.train --x\n```\n";
    let files = [("pkg/__init__.py", ""), ("pkg/train.py", TRAINS), ("README.md", readme)];
    check(&files, "", "", "python -m pkg.train --x (command from README.md:2)");
    let entry = "[project.scripts]\nfit-it = \"pkg.cli:main\"\n";
    let cli = "from .engine import train\ndef main():\n    train(1, 2)\n";
    let files = [
        ("pkg/__init__.py", ""),
        ("pkg/cli.py", cli),
        ("pkg/engine.py", ENGINE),
        ("pyproject.toml", entry),
    ];
    check(&files, "", "", "pkg.cli:main (command fit-it from pyproject.toml:2)");
}

#[test]
fn commands_before_the_program() {
    let script = "python -m pkg.download -n 8\npython -m pkg.train --size 1\npython -m pkg.train --size 2\npython -m pkg.chat\n";
    let readme = "```\npython -m pkg.chat\n```\n\n```\npython -m pkg.train --size 3\n```\n";
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("pkg")).expect("a folder");
    for (path, text) in [
        ("pkg/__init__.py", ""),
        ("pkg/train.py", TRAINS),
        ("pkg/download.py", "print(1)\n"),
        ("pkg/chat.py", "print(1)\n"),
        ("run.sh", script),
        ("README.md", readme),
    ] {
        std::fs::write(folder.path().join(path), text).expect("a file");
    }
    let before = |size: &str| {
        let arguments = ["--size".to_owned(), size.to_owned()];
        let path = Path::new("pkg/train.py");
        Discovery::default().commands_before(folder.path(), path, &arguments)
    };
    let download = ["run.sh:1: python -m pkg.download -n 8"];
    assert_eq!(before("1"), download);
    assert_eq!(before("2"), download);
    // A README describes alternatives.
    assert!(before("3").is_empty());
    assert!(before("4").is_empty());
}

#[test]
fn commands_that_cannot_be_used_unchanged() {
    let check_readme = |line: &str, expected: &str| {
        let readme = format!("```\n{line}\n```\n");
        check(
            &[("train.py", TRAINS), ("README.md", &readme), ("c/small.yaml", "")],
            "",
            "",
            expected,
        );
    };
    check_readme("python train.py --data <path>", "train.py");
    check_readme("python train.py --data /path/to/x", "train.py");
    check_readme("python train.py --config c/gone.yaml", "train.py");
    check_readme(
        "python train.py --config c/small.yaml",
        "train.py --config c/small.yaml (command from README.md:2)",
    );
    check_readme(
        "python train.py --out new.pt",
        "train.py --out new.pt (command from README.md:2)",
    );
    // The first usable command.
    check_readme(
        "python train.py --data $DATA\npython train.py --lr 2\npython train.py --lr 3",
        "train.py --lr 2 (command from README.md:3)",
    );
    check_readme("python gone.py --x 1", "train.py");
    check_readme("python ../train.py --x 1", "train.py");
}

#[test]
fn a_command_decides_between_two_scripts() {
    let readme = "```\npython b.py\n```\n";
    let files = [("a.py", TRAINS), ("b.py", TRAINS), ("README.md", readme)];
    check(&files, "", "", "b.py (command from README.md:2)");
    check(&files, "", "a.py", "a.py");
    check(&[("train.py", TRAINS), ("examples/eval.py", TRAINS)], "", "", "train.py");
}

#[test]
fn the_likeliest_of_several() {
    let readme = ("README.md", "```\npython b.py\npython a.py\n```\n");
    check(
        &[("a.py", TRAINS), ("b.py", TRAINS), ("model.py", MODEL), readme],
        "",
        "",
        "likeliest first: b.py a.py",
    );
    let files = [("train.py", TRAINS), ("legacy_train.py", TRAINS), ("model.py", MODEL)];
    check(&files, "", "", "likeliest first: train.py legacy_train.py");
}

#[test]
fn commands_for_another_task_and_another_folder() {
    let readme = "```\npython train.py eval --image </path/to/image> --out <out>\n\
        python train.py test\npython train.py --evaluate\npython train.py --epochs 2\n```\n";
    let files = [("train.py", TRAINS), ("model.py", MODEL), ("README.md", readme)];
    check(&files, "", "", "train.py --epochs 2 (command from README.md:5)");
    // The README assumes the program's folder.
    let readme = "```\npython train.py --epochs 2\n```\n";
    let files = [("pkg/train.py", TRAINS), ("pkg/model.py", MODEL), ("README.md", readme)];
    check(&files, "", "", "pkg/train.py --epochs 2 (command from README.md:2)");
}

/// A repository of papers' code: the README starts a program whose loop is in another file, and a folder
/// has the original program of a baseline.
#[test]
fn a_program_of_the_readme_comes_before_one_with_its_own_loop() {
    let experiment =
        TRAINS.replace("def main():", "def train():").replace("    main()\n", "    train()\n");
    let run = "from experiment import train\n\nif __name__ == \"__main__\":\n    train()\n";
    let files = [
        ("README.md", "```\npython run_exp.py --model small\n```\n"),
        ("run_exp.py", run),
        ("experiment.py", &experiment[..experiment.find("if __name__").expect("it is there")]),
        ("model.py", MODEL),
        ("baseline/long_range_main.py", TRAINS),
        ("baseline/single_step_main.py", TRAINS),
    ];
    check(&files, "", "", "run_exp.py --model small (command from README.md:2)");
}

#[test]
fn a_copy_of_another_project_comes_after_the_own_program() {
    let files = [
        ("main.py", TRAINS),
        ("model.py", MODEL),
        ("baseline/train.py", TRAINS),
        ("baseline/model.py", MODEL),
        ("baseline/LICENSE", "MIT License"),
        ("LICENSE", "MIT License"),
    ];
    check(&files, "", "", "main.py");
    let files = [("app/train.py", TRAINS), ("app/license.py", ""), ("other/run_it.py", TRAINS)];
    check(&files, "", "", "likeliest first: app/train.py other/run_it.py");
}

#[test]
fn the_first_training_of_the_readme() {
    let with_loader = TRAINS.replace(
        "    for x",
        "    parser = argparse.ArgumentParser()\n    data = DataLoader(parser)\n    for x",
    );
    let readme = "```\npython train_toy.py --data x\npython train_cnf.py --data mnist\n```\n";
    let files = [
        ("train_toy.py", TRAINS),
        ("train_cnf.py", with_loader.as_str()),
        ("model.py", MODEL),
        ("README.md", readme),
    ];
    check(&files, "", "", "likeliest first: train_toy.py --data x train_cnf.py --data mnist");
}

/// A baseline with its own license and commands.
#[test]
fn a_copied_baseline_with_commands() {
    let run = "from exp import Trainer\n\nif __name__ == \"__main__\":\n    Trainer(1).run()\n";
    let files = [
        ("run_it.py", run),
        ("exp.py", ENGINE),
        ("scripts/run.sh", "python run_it.py --x 1\n"),
        ("other/former/main_it.py", TRAINS),
        ("other/former/model.py", MODEL),
        ("other/former/README.md", "```\npython main_it.py --x 1\n```\n"),
        ("other/former/scripts/run.sh", "python main_it.py --x 1\n"),
        ("other/former/LICENSE", "MIT License"),
    ];
    check(&files, "", "", "run_it.py --x 1 (command from scripts/run.sh:1)");
}

#[test]
fn a_tutorial_comes_after_the_program() {
    let main = "from engine import Trainer\n\nif __name__ == \"__main__\":\n    Trainer(1).run()\n";
    let files = [
        ("main.py", main),
        ("engine.py", ENGINE),
        ("tutorials/mnist.py", TRAINS),
        ("model.py", MODEL),
    ];
    check(&files, "", "", "ask: main.py tutorials/mnist.py");
}

#[test]
fn the_readme_starts_main_before_finetune() {
    let readme = "```\npython main.py --lr 1\npython finetune.py --lr 1\n```\n";
    let files = [("main.py", TRAINS), ("finetune.py", TRAINS), ("README.md", readme)];
    check(&files, "", "", "likeliest first: main.py --lr 1 finetune.py --lr 1");
}

#[test]
fn commands_for_a_gpu_where_there_is_none() {
    if has_gpu() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    let readme = "```\npython train.py -net vgg16 -gpu\n```\n";
    let files = [("train.py", TRAINS), ("model.py", MODEL), ("README.md", readme)];
    let expected = "train.py -net vgg16 \
        (command from README.md:2, without -gpu because there is no GPU)";
    check(&files, "", "", expected);
}

#[test]
fn a_command_whose_data_is_here() {
    let readme = "```\npython train.py --data data/large\npython train.py --data data/small\n```\n";
    let files = [
        ("train.py", TRAINS),
        ("model.py", MODEL),
        ("README.md", readme),
        ("data/small/text.txt", "text"),
    ];
    check(&files, "", "", "train.py --data data/small (command from README.md:3)");
}

#[test]
fn the_cpu_where_there_is_no_gpu() {
    if has_gpu() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    let train = format!("p.add_argument('--device', default='cuda')\n{TRAINS}");
    let plain = [("train.py", train.as_str()), ("model.py", MODEL)];
    let why = "--device cpu because there is no GPU (see train.py:1)";
    check(&plain, "", "", &format!("train.py --device cpu ({why})"));
    let readme = "```\npython train.py --lr 1\n```\n";
    let files = [&plain[..], &[("README.md", readme)]].concat();
    check(
        &files,
        "",
        "",
        &format!("train.py --lr 1 --device cpu (command from README.md:2; {why})"),
    );
    let readme = "```\npython train.py --device=cpu\n```\n";
    let files = [&plain[..], &[("README.md", readme)]].concat();
    check(&files, "", "", "train.py --device=cpu (command from README.md:2)");
    // Here `--cuda` turns the GPU off.
    let train = format!("p.add_argument('--cuda', action='store_false')\n{TRAINS}");
    check(
        &[("train.py", train.as_str()), ("model.py", MODEL)],
        "",
        "",
        "train.py --cuda (--cuda because there is no GPU (see train.py:1))",
    );
}

#[test]
fn a_command_is_remembered_whole() {
    let readme = "```\npython a.py --lr 1\npython b.py --lr 2\npython a.py --lr 3\n```\n";
    let files = [("a.py", TRAINS), ("b.py", TRAINS), ("README.md", readme)];
    check(&files, "", "", "likeliest first: a.py --lr 1 b.py --lr 2");
    check(&files, "", "b.py --lr 2", "b.py --lr 2 (command from README.md:3)");
    check(&files, "", "a.py --lr 3", "a.py --lr 3 (command from README.md:4)");
    check(&files, "", "b.py --lr 9", "likeliest first: a.py --lr 1 b.py --lr 2");
}

/// Checks what the run takes from a command of a README besides its arguments.
#[test]
fn variables_and_launchers_of_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let readme = "```\nCUDA_VISIBLE_DEVICES=3 LD_PRELOAD=/x.so SEED=1 torchrun --nproc_per_node=8 train.py\n```\n";
    std::fs::write(folder.path().join("README.md"), readme).expect("written");
    std::fs::write(folder.path().join("train.py"), TRAINS).expect("written");
    let SearchResult::Run(run) = Discovery::default().find(folder.path(), None, None) else {
        panic!("one run")
    };
    assert_eq!(run.environment, BTreeMap::from([("SEED".to_owned(), "1".to_owned())]));
    assert_eq!(run.launcher, ["torchrun", "--standalone", "--nproc-per-node", "1"]);
    let readme = "```\nssh host python train.py\nsrun -N 2 python train.py\n```\n";
    std::fs::write(folder.path().join("README.md"), readme).expect("written");
    let SearchResult::Run(run) = Discovery::default().find(folder.path(), None, None) else {
        panic!("one run")
    };
    assert_eq!(run.launcher, [""; 0]);
}

#[test]
fn hostile_command_files_are_skipped() {
    let line = "python train.py ".repeat(1 << 20);
    let deep = format!("{{\"configurations\": {}", "[".repeat(100_000));
    let escapes = "```\npython train.py \u{1b}]0;x\u{7} --lr 1\n```\n";
    let files = [
        ("train.py", TRAINS),
        ("docs/README.md", line.as_str()),
        (".vscode/launch.json", deep.as_str()),
        ("README.md", escapes),
        ("Makefile", "\t\t\t$(((((\n=\n:\n"),
        ("setup.cfg", "[options.entry_points]\nconsole_scripts =\n = :\n"),
    ];
    check(&files, "", "", "train.py");
}

/// Checks how a file of a project is started: as a script or as which module, and what is added to
/// Python's path.
#[track_caller]
fn check_started(files: &[(&str, &str)], path: &str, expected: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().join("project");
    for (path, text) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        std::fs::write(path, text).expect("written");
    }
    let ImportPath { module, more } = Discovery::default().import_path(&root, Path::new(path));
    let shown = |path: &Path| {
        let inside = path.strip_prefix(folder.path()).expect("inside");
        inside.to_string_lossy().replace('\\', "/")
    };
    let module =
        module.map_or("script".to_owned(), |(name, base)| format!("-m {name} in {}", shown(&base)));
    let more: Vec<String> = more.iter().map(|path| shown(path)).collect();
    assert_eq!([vec![module], more].concat().join(" + "), expected);
}

#[test]
fn scripts_and_modules() {
    check_started(&[("train.py", TRAINS), ("model.py", MODEL)], "train.py", "script");
    let relative = "from .model import Net\n";
    let package = [("pkg/__init__.py", ""), ("pkg/train.py", relative), ("pkg/model.py", MODEL)];
    check_started(&package, "pkg/train.py", "-m pkg.train in project");
    // Without an `__init__.py`, as far up as the dots lead.
    let files = [("pkg/sub/train.py", "from ..model import Net\n"), ("pkg/model.py", MODEL)];
    check_started(&files, "pkg/sub/train.py", "-m pkg.sub.train in project");
    // The open folder is the package.
    let files = [("__init__.py", ""), ("train.py", relative), ("model.py", MODEL)];
    check_started(&files, "train.py", "-m project.train in ");
    // The file's own package by its full name, with and without `__init__.py`.
    let full = "from pkg.model import Net\n";
    let files = [("src/pkg/train.py", full), ("src/pkg/model.py", MODEL)];
    check_started(&files, "src/pkg/train.py", "-m pkg.train in project/src");
    // An installed package of the folder's name.
    let installed = "import quiver\nfrom quiver import Sampler\n";
    check_started(&[("quiver/train.py", installed)], "quiver/train.py", "script");
    let named = "from quiver import model\n";
    let files = [("quiver/train.py", named), ("quiver/model.py", MODEL)];
    check_started(&files, "quiver/train.py", "-m quiver.train in project");
    // Another package of the project.
    let files = [("tools/train.py", full), ("pkg/__init__.py", ""), ("pkg/model.py", MODEL)];
    check_started(&files, "tools/train.py", "script + project");
    // A stray `__init__.py` next to imports by bare names.
    let files = [("a/__init__.py", ""), ("a/train.py", "import model\n"), ("a/model.py", MODEL)];
    check_started(&files, "a/train.py", "script");
    // Both at once.
    let both = "from .model import Net\nimport helper\n";
    let files = [("a/train.py", both), ("a/model.py", MODEL), ("a/helper.py", "")];
    check_started(&files, "a/train.py", "-m a.train in project + project/a");
    // A project folder does not replace an installed package.
    let files = [("tools/train.py", "import datasets\n"), ("datasets/__init__.py", "")];
    check_started(&files, "tools/train.py", "script");
    // A file in a package does not replace an installed or standard library module either.
    let inside = "import numpy\nimport typing\nimport six\n";
    let files = [
        ("tools/train.py", full),
        ("pkg/__init__.py", ""),
        ("pkg/model.py", inside),
        ("pkg/numpy.py", ""),
        ("pkg/typing.py", ""),
        ("pkg/six.py", ""),
    ];
    check_started(&files, "tools/train.py", "script + project");
    // A folder whose name is not an identifier.
    let files = [("my-code/train.py", relative), ("my-code/model.py", MODEL)];
    check_started(&files, "my-code/train.py", "script");
}

/// Among demos, one for several GPUs is not the first.
#[test]
fn demos_for_several_gpus_come_last() {
    let loops = format!("{TRAINS}# a loop\n");
    check(&[("demo_multi_gpu.py", &loops), ("demo_model.py", &loops)], "", "", "demo_model.py");
}

#[test]
fn the_subcommand_that_trains() {
    let main = format!(
        "{TRAINS}s = argparse.ArgumentParser().add_subparsers()\ns.add_parser('eval')\ns.add_parser('train')\n"
    );
    check(&[("main.py", &main)], "", "", "main.py train (subcommand from main.py:16)");
    let two = [("one.py", main.as_str()), ("two.py", main.as_str())];
    check(&two, "", "", "ask: one.py train two.py train");
    check(&two, "", "two.py train", "two.py train (subcommand from two.py:16)");
    let readme = "```\npython main.py train --lr 0.1\n```\n";
    let files = [("main.py", main.as_str()), ("README.md", readme)];
    check(&files, "", "", "main.py train --lr 0.1 (command from README.md:2)");
    let readme = "```\npython main.py crop --size 64\npython main.py --x=1 train\n```\n";
    let files = [("main.py", main.as_str()), ("README.md", readme)];
    check(&files, "", "", "main.py --x=1 train (command from README.md:3)");
    let readme = "```\npython main.py crop --size 64\n```\n";
    let files = [("main.py", main.as_str()), ("README.md", readme)];
    check(&files, "", "", "main.py train (subcommand from main.py:16)");
    let installed = "[project.scripts]\nnet = \"main:run\"\n";
    let files = [("main.py", main.as_str()), ("pyproject.toml", installed)];
    let expected = "main:run train (command net from pyproject.toml:2; subcommand from main.py:16)";
    check(&files, "", "", expected);
}
