//! Programs that fail in different ways: the message names the cause and what to do
//! (docs/failures.md). Libraries that may be missing are replaced by stand-ins with the real messages.

use serde_json::Value;

use crate::sandbox::{CommandResult, Sandbox, python_with_torch, run_to_end};

/// The text output, and the same as JSON.
struct FailureOutput {
    text: String,
    failure: Value,
}

/// A project with a failing `train.py`.
struct Program<'a> {
    files: &'a [(&'a str, &'a str)],
    /// Files of installed packages.
    libraries: &'a [(&'a str, &'a str)],
    options: &'a [&'a str],
    environment: &'a [(&'a str, &'a str)],
}

const NOTHING: Program = Program { files: &[], libraries: &[], options: &[], environment: &[] };

/// Runs it. Returns `None` without a Python with torch.
fn run_failing(train: &str, program: &Program) -> Option<FailureOutput> {
    let sandbox = Sandbox::new();
    let python = python_with_torch()?;
    sandbox.write("train.py", train);
    for (name, text) in program.files {
        sandbox.write(name, text);
    }
    let libraries = sandbox.path("libraries/site-packages");
    for (name, text) in program.libraries {
        let file = libraries.join(name);
        std::fs::create_dir_all(file.parent().expect("it has one")).expect("a folder");
        std::fs::write(file, text).expect("written");
    }
    let json = sandbox.path("failure.json");
    let (own, of_program) = match program.options.iter().position(|option| *option == "--") {
        Some(at) => program.options.split_at(at),
        None => (program.options, &[][..]),
    };
    let mut command = sandbox.ridgeline();
    command.args(["profile", "train.py", "--python"]).arg(python).arg("--json").arg(&json);
    command.args(own).args(of_program).env("PYTHONPATH", &libraries);
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "RANK"] {
        command.env_remove(name);
    }
    command.envs(program.environment.iter().copied());
    let CommandResult { code, stdout, stderr } = run_to_end(&mut command);
    assert_eq!(code, Some(1), "{stdout}\n{stderr}");
    let text = std::fs::read_to_string(&json).unwrap_or_else(|error| panic!("{error}\n{stderr}"));
    if std::env::var_os("RIDGELINE_SHOW").is_some() {
        println!("{stderr}");
    }
    let document: Value = serde_json::from_str(&text).expect("JSON");
    crate::cli::schema::validate(&document, "failure");
    Some(FailureOutput { text: stderr, failure: document["failure"].clone() })
}

impl FailureOutput {
    /// Asserts the cause, and the location: the program's line with `# here`.
    #[track_caller]
    fn has_advice(&self, cause: &str, place: Option<(&str, &str)>) -> &FailureOutput {
        let FailureOutput { text, failure } = self;
        assert_eq!(failure["advice"]["cause"], cause, "{text}\n{failure:#}");
        let advice = failure["advice"]["text"].as_str().expect("a text");
        assert!(text.contains(advice), "`{advice}` is missing in:\n{text}");
        if let Some((file, source)) = place {
            let line = source.lines().position(|line| line.contains("# here")).expect("here") + 1;
            let frame = failure["frames"].as_array().and_then(|frames| frames.last()).expect("one");
            assert_eq!(
                (frame["path"].as_str(), frame["line"].as_u64()),
                (Some(file), Some(line as u64)),
                "{text}"
            );
            assert!(text.contains(&format!("{file}:{line}: ")), "{text}");
        }
        // A paragraph, a few lines of output and advice.
        assert!(!text.contains("Traceback"), "{text}");
        self
    }

    #[track_caller]
    fn contains(&self, part: &str) -> &FailureOutput {
        assert!(self.text.contains(part), "`{part}` is missing in:\n{}", self.text);
        self
    }
}

#[test]
fn missing_file() {
    let data = "def load():\n    return open('data/train.csv').read()  # here\n";
    let train = "import data\nprint('loading\\x1b[31m the data\\x1b[0m')\nprint('10%\\r20%')\ndata.load()\n";
    let program = Program { files: &[("data.py", data)], ..NOTHING };
    let Some(output) = run_failing(train, &program) else { return };
    output.has_advice("missing-file", Some(("data.py", data)))
        .contains("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'")
        .contains("called from train.py:4")
        .contains("train.py exited before its first iteration. Last output:\n  | loading the data\n  | 20%\n")
        .contains("`data/train.csv` does not exist")
        .contains("-- --data PATH");
}

/// The option that sets the path is declared in another file.
#[test]
fn missing_file_of_an_option() {
    let options = "import argparse\nparser = argparse.ArgumentParser()\n\
        parser.add_argument('--data-dir', default='data/')\n";
    let train = "from options import parser\nargs = parser.parse_args()\n\
        open(args.data_dir + 'train.csv')  # here\n";
    let program = Program { files: &[("options.py", options)], ..NOTHING };
    let Some(output) = run_failing(train, &program) else { return };
    output
        .has_advice("missing-file", Some(("train.py", train)))
        .contains("Put the data there, or change `--data-dir`.")
        .contains("`ridgeline profile train.py -- --data-dir PATH`");
}

#[test]
fn file_in_another_folder() {
    let train = "open('configs/base.yaml')  # here\n";
    let program = Program { files: &[("examples/configs/base.yaml", "a: 1\n")], ..NOTHING };
    let Some(output) = run_failing(train, &program) else { return };
    output
        .has_advice("missing-file", Some(("train.py", train)))
        .contains("the project has this file at `examples/configs/base.yaml`")
        .contains("`cd examples && ridgeline profile ../train.py`");
}

#[test]
fn missing_checkpoint() {
    let train = "import torch\ntorch.load('out/model.pt')  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("missing-checkpoint", Some(("train.py", train))).contains("`out/model.pt`");
}

#[test]
fn data_set_download_not_allowed() {
    // torchvision/datasets/mnist.py
    let library = "class MNIST:\n    def __init__(self, root, download=False):\n        \
                   raise RuntimeError('Dataset not found. You can use download=True to download it')\n";
    let train =
        "from torchvision.datasets.mnist import MNIST\nMNIST('data', download=False)  # here\n";
    let files = [("torchvision/datasets/mnist.py", library)];
    let Some(output) = run_failing(train, &Program { libraries: &files, ..NOTHING }) else {
        return;
    };
    output.has_advice("missing-data-set", Some(("train.py", train))).contains("`keep_writes`");
}

#[test]
fn empty_data_set() {
    let train = "from torch.utils.data import DataLoader\nDataLoader([], shuffle=True)  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("empty-data-set", Some(("train.py", train))).contains("num_samples=0");
}

#[test]
fn missing_command() {
    let train = "import subprocess\nsubprocess.run(['no-such-command', '--version'])  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("missing-command", Some(("train.py", train))).contains("`no-such-command`");
}

const ARGPARSE: &str = "import argparse\nparser = argparse.ArgumentParser()\n\
                        parser.add_argument('--dataset', required=True)\n\
                        parser.add_argument('--epochs', type=int)\n\
                        parser.parse_args()  # here\n";

#[test]
fn missing_required_argument() {
    let readme = "```\npython train.py --dataset <name>\n```\n";
    let program = Program { files: &[("README.md", readme)], ..NOTHING };
    let Some(output) = run_failing(ARGPARSE, &program) else { return };
    output
        .has_advice("missing-argument", Some(("train.py", ARGPARSE)))
        .contains("README.md:2 has `python train.py --dataset <name>`")
        .contains("the program exited with code 2: the following arguments are required: --dataset")
        .contains("usage: train.py")
        .contains("`ridgeline profile train.py -- --dataset …`");
}

#[test]
fn unknown_argument() {
    let options = ["--", "--dataset", "mnist", "--epochs", "many"];
    let Some(output) = run_failing(ARGPARSE, &Program { options: &options, ..NOTHING }) else {
        return;
    };
    output
        .has_advice("wrong-argument", Some(("train.py", ARGPARSE)))
        .contains("invalid int value: 'many'")
        .contains("It was run with `--dataset mnist --epochs many`");
}

#[test]
fn missing_click_option() {
    let train = "try:\n    import click\nexcept ImportError:\n    raise SystemExit('no click')\n\
                 @click.command()\n@click.option('--data', required=True)\n\
                 def main(data):\n    pass\nmain()  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    if output.text.contains("no click") {
        println!("skipped: click is not installed");
        return;
    }
    output
        .has_advice("missing-argument", Some(("train.py", train)))
        .contains("Missing option '--data'")
        .contains("-- --data …");
}

#[test]
fn missing_hydra_setting() {
    // hydra/_internal/utils.py prints the exception and exits within its handler.
    let omegaconf = "class MissingMandatoryValue(Exception):\n    pass\n\
                     class Config:\n    def __getattr__(self, name):\n        \
                     raise MissingMandatoryValue(f'Missing mandatory value: data.{name}')\n";
    let hydra = "import sys, traceback\n\
                 from omegaconf import Config\n\
                 def run(task):\n    try:\n        task(Config())\n    except Exception:\n        \
                 print('Error executing job with overrides: []', file=sys.stderr)\n        \
                 traceback.print_exc()\n        sys.exit(1)\n";
    let train =
        "import hydra\ndef main(config):\n    print(config.path)  # here\nhydra.run(main)\n";
    let files = [("omegaconf/__init__.py", omegaconf), ("hydra/__init__.py", hydra)];
    let Some(output) = run_failing(train, &Program { libraries: &files, ..NOTHING }) else {
        return;
    };
    output
        .has_advice("missing-setting", Some(("train.py", train)))
        .contains("Error executing job with overrides: []")
        .contains("-- data.path=…");
}

const WITHOUT_GPU: [(&str, &str); 2] = [("CUDA_VISIBLE_DEVICES", ""), ("HIP_VISIBLE_DEVICES", "")];

#[test]
fn missing_gpu() {
    let train = "import torch\nmodel = torch.nn.Linear(2, 2)\nmodel.to('cuda')  # here\n";
    let program = Program { environment: &WITHOUT_GPU, ..NOTHING };
    let Some(output) = run_failing(train, &program) else { return };
    output
        .has_advice("gpu-absent", Some(("train.py", train)))
        .contains("if it has one")
        .contains("only hides GPUs");
}

#[test]
fn asserted_gpu() {
    let train = "import torch\nassert torch.cuda.is_available()  # here\n";
    let program = Program { environment: &WITHOUT_GPU, ..NOTHING };
    let Some(output) = run_failing(train, &program) else { return };
    output.has_advice("gpu-absent", Some(("train.py", train)));
}

#[test]
fn gpu_hidden_by_our_own_option() {
    let train = "import torch\ntorch.zeros(1, device='cuda')  # here\n";
    let Some(output) = run_failing(train, &Program { options: &["--device", "cpu"], ..NOTHING })
    else {
        return;
    };
    output.has_advice("gpu-hidden", Some(("train.py", train))).contains("`--device cpu`");
}

#[test]
fn missing_other_device() {
    let train = "import torch\nprint(torch.ones(2, device='mps'))  # here\n";
    if cfg!(target_os = "macos") {
        return;
    }
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("backend-absent", Some(("train.py", train))).contains("`mps`");
}

#[test]
fn unreachable_host() {
    let train = "import urllib.request\n\
                 urllib.request.urlopen('http://no-such-host.invalid/mnist.gz')  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output
        .has_advice("no-network", Some(("train.py", train)))
        .contains("does not restrict the network");
}

#[test]
fn connection_refused() {
    let train = "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/')  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("server-absent", Some(("train.py", train)));
}

#[test]
fn missing_package() {
    let train = "import osgeo  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output
        .has_advice("missing-package", Some(("train.py", train)))
        .contains("`osgeo` (the package is called `GDAL`) is not installed in the environment of")
        .contains("-m pip install GDAL`")
        .contains("`--python PATH`");
}

#[test]
fn project_module_not_on_the_path() {
    // A dynamic import, because Ridgeline extends the path for static ones.
    let train = "import importlib\nimportlib.import_module('helpers')  # here\n";
    let program = Program { files: &[("src/helpers.py", "x = 1\n")], ..NOTHING };
    let Some(output) = run_failing(train, &program) else { return };
    output
        .has_advice("own-module", Some(("train.py", train)))
        .contains("`src/helpers.py`")
        .contains("`PYTHONPATH=src ridgeline profile train.py`");
}

#[test]
fn extension_that_is_not_built() {
    let train = "import fast_ops  # here\n";
    let setup =
        "import torch\nsetup(name='ops', ext_modules=[CUDAExtension('fast_ops', ['ops.cu'])])\n";
    let Some(output) =
        run_failing(train, &Program { files: &[("ops/setup.py", setup)], ..NOTHING })
    else {
        return;
    };
    output
        .has_advice("not-built", Some(("train.py", train)))
        .contains("-m pip install --no-build-isolation -e ./ops`");
}

#[test]
fn tracker_without_a_login() {
    // wandb/sdk/wandb_init.py and wandb/errors
    let library = "class UsageError(Exception):\n    pass\n\
                   UsageError.__module__ = 'wandb.errors'\n\
                   def init():\n    raise UsageError('api_key not configured (no-tty). call wandb.login(key=[your_api_key])')\n";
    let train = "import wandb\nwandb.init()  # here\n";
    let files = [("wandb/__init__.py", library)];
    let Some(output) = run_failing(train, &Program { libraries: &files, ..NOTHING }) else {
        return;
    };
    output
        .has_advice("not-logged-in", Some(("train.py", train)))
        .contains("`WANDB_MODE=disabled ridgeline profile train.py`");
}

#[test]
fn program_that_needs_a_launcher() {
    let train = "import torch.distributed\ntorch.distributed.init_process_group('gloo')  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output
        .has_advice("no-launcher", Some(("train.py", train)))
        .contains("`ridgeline profile train.py --launcher \"torchrun --nproc-per-node 1\"`");
}

#[test]
fn program_that_reads_its_rank() {
    let train = "import os\nos.environ['LOCAL_RANK']  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("no-launcher", Some(("train.py", train))).contains("`LOCAL_RANK`");
}

#[test]
fn port_in_use() {
    let train = "import socket\nfirst = socket.socket()\nfirst.bind(('127.0.0.1', 0))\nfirst.listen()\n\
                 second = socket.socket()\nsecond.bind(first.getsockname())  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("port-in-use", Some(("train.py", train)));
}

#[test]
fn checkpoint_with_more_than_weights() {
    let train = "import torch\nclass Config:\n    pass\n\
                 torch.save({'config': Config()}, '/tmp/ridgeline-config.pt')\n\
                 torch.load('/tmp/ridgeline-config.pt', weights_only=True)  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("weights-only", Some(("train.py", train))).contains("`weights_only=False`");
}

#[test]
fn git_lfs_pointer_instead_of_checkpoint() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    let train = "import torch\ntorch.load('model.pt', weights_only=False)  # here\n";
    let program = Program { files: &[("model.pt", pointer)], ..NOTHING };
    let Some(output) = run_failing(train, &program) else { return };
    output.has_advice("git-lfs", Some(("train.py", train))).contains("`git lfs pull`");
}

#[test]
fn truncated_checkpoint() {
    let train = "import io, torch\nfile = io.BytesIO()\ntorch.save(torch.ones(1000), file)\n\
                 cut = io.BytesIO(file.getvalue()[:2000])\ntorch.load(cut)  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("damaged-checkpoint", Some(("train.py", train)));
}

#[test]
fn checkpoint_of_another_model() {
    let train = "import torch\nstate = torch.nn.Linear(2, 2).state_dict()\n\
                 torch.nn.Linear(3, 2).load_state_dict(state)  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("other-checkpoint", Some(("train.py", train))).contains("this Linear");
}

/// The reported line is in the data set, in a worker, and not the loop's.
#[test]
fn exception_in_a_worker() {
    let train = "import torch\nclass Data(torch.utils.data.Dataset):\n    \
                 def __len__(self):\n        return 8\n    \
                 def __getitem__(self, index):\n        \
                 return open(f'images/{index}.png')  # here\n\
                 for batch in torch.utils.data.DataLoader(Data(), num_workers=1):\n    pass\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output
        .has_advice("missing-file", Some(("train.py", train)))
        .contains("No such file or directory: 'images/0.png' (in DataLoader worker process 0)");
}

#[test]
fn worker_that_exits() {
    let train = "import os, torch\nclass Data(torch.utils.data.Dataset):\n    \
                 def __len__(self):\n        return 8\n    \
                 def __getitem__(self, index):\n        os._exit(3)\n\
                 for batch in torch.utils.data.DataLoader(Data(), num_workers=1):  # here\n    pass\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("loader-worker", Some(("train.py", train))).contains("`num_workers=0`");
}

#[test]
fn script_that_starts_processes_on_import() {
    let train = "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n\
                 data = TensorDataset(torch.ones(8, 2))\n\
                 loader = DataLoader(data, num_workers=1, multiprocessing_context='spawn')\n\
                 for batch in loader:  # here\n    pass\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("no-main-guard", None).contains("`if __name__ == \"__main__\":`");
}

#[test]
fn unpicklable_function() {
    let train = "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n\
                 if __name__ == '__main__':\n    \
                 data = TensorDataset(torch.ones(8, 2))\n    \
                 loader = DataLoader(data, num_workers=1, multiprocessing_context='spawn', collate_fn=lambda x: x)\n    \
                 for batch in loader:  # here\n        pass\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("not-picklable", Some(("train.py", train)));
}

#[test]
fn name_missing_in_the_installed_version() {
    let train = "from torch import no_such_name  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output
        .has_advice("package-version", Some(("train.py", train)))
        .contains("does not have this name");
    let train = "import torch\ntorch.no_such_name(3)  # here\n";
    let Some(output) = self::run_failing(train, &NOTHING) else { return };
    if output.failure["advice"].is_null() {
        println!("skipped: Python 3.9 does not say which module it was");
        return;
    }
    output.has_advice("package-version", Some(("train.py", train)));
}

#[test]
fn syntax_of_a_newer_python() {
    let Some(python) = python_with_torch() else { return };
    let version = std::process::Command::new(python).arg("--version").output().expect("it runs");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    if !["3.9.", "3.10.", "3.11."].iter().any(|old| version.contains(&format!("Python {old}"))) {
        println!("skipped: {version} has all the syntax there is");
        return;
    }
    let train = "type Batch = list[int]  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("newer-python", Some(("train.py", train))).contains("requires Python 3.12");
}

#[test]
fn syntax_of_python_2() {
    let train = "import torch\nprint 'epoch', 1  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("python-2", Some(("train.py", train)));
}

#[test]
fn input_prompt_without_an_answer() {
    let train = "answer = input('Overwrite the run? ')  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output.has_advice("standard-input", Some(("train.py", train))).contains("Overwrite the run?");
}

#[test]
fn unset_environment_variable() {
    let train = "import os\nfolder = os.environ['RIDGELINE_NO_SUCH_FOLDER']  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    output
        .has_advice("missing-variable", Some(("train.py", train)))
        .contains("`RIDGELINE_NO_SUCH_FOLDER=… ridgeline profile train.py`");
}

#[test]
#[cfg(target_os = "linux")]
fn unwritable_file() {
    let train = "import torch\nopen('run.log', 'w')  # here\n";
    let program = Program { options: &["--side-effects", "deny"], ..NOTHING };
    let Some(output) = run_failing(train, &program) else { return };
    output.has_advice("write-denied", Some(("train.py", train))).contains("`keep_writes`");
}

/// An error raised by the program itself has no other cause.
#[test]
fn shape_mismatches_need_no_advice() {
    let train = "import torch\nnet = torch.nn.Linear(4, 2)\nprint('begins')\nnet(torch.ones(2, 3))  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    assert!(output.failure["advice"].is_null(), "{}", output.failure);
    output.contains("mat1 and mat2 shapes cannot be multiplied").contains("  | begins\n");
    assert_eq!(output.failure["output"], serde_json::json!(["begins"]));
}

#[test]
fn exit_with_a_message() {
    let train = "import sys\nprint('reading')\nsys.exit('no images in data/')  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    assert!(output.failure["advice"].is_null(), "{}", output.failure);
    output
        .contains("train.py:3: the program exited with the message: no images in data/")
        .contains("  | reading\n");
}

#[test]
fn exit_without_a_message() {
    let train = "import sys\nprint('nothing to do')\nsys.exit(0)\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    assert_eq!(output.failure["kind"], "short");
    output.contains(
        "train.py exited with exit code 0 before its first iteration finished: it called no model",
    )
    .contains("  | nothing to do\n")
    .contains("-- --train");
}

#[test]
fn a_crash_shows_what_was_printed() {
    let train = "import ctypes\nprint('about to crash', flush=True)\nctypes.string_at(0)  # here\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    assert_eq!(output.failure["kind"], "crash");
    output.contains("segmentation fault").contains("  | about to crash\n");
    if cfg!(target_os = "linux") {
        output.contains("at train.py:3 in <module>");
    }
}

/// A timeout names its option, and what the program was doing.
#[cfg(target_os = "linux")]
mod limits {
    use super::{FailureOutput, NOTHING, Program, run_failing};

    fn stopped(
        train: &str,
        files: &[(&str, &str)],
        libraries: &[(&str, &str)],
    ) -> Option<FailureOutput> {
        run_failing(train, &Program { files, libraries, options: &["--seconds", "4"], ..NOTHING })
    }

    #[test]
    fn within_an_import() {
        let library = "import time\ntime.sleep(60)\n";
        let files = [("slow_library/__init__.py", library)];
        let Some(output) = stopped("__import__('slow_library')\n", &[], &files) else { return };
        output
            .contains("train.py exceeded 4 s (the time limit, `--seconds`)")
            .contains(
                "before its first iteration finished. It was importing slow_library: train.py:1",
            )
            .contains("`--seconds 60`")
            .contains("[limits]");
        assert_eq!(output.failure["kind"], "timeout");
    }

    #[test]
    fn while_data_is_loaded() {
        let train = "import time, torch\nclass Data(torch.utils.data.Dataset):\n    \
                     def __len__(self):\n        return 8\n    \
                     def __getitem__(self, index):\n        time.sleep(60)\n\
                     for batch in torch.utils.data.DataLoader(Data()):\n    pass\n";
        let Some(output) = stopped(train, &[], &[]) else { return };
        output.contains("It was loading data: train.py:6 in ").contains("less data");
        let workers = train.replace("Data())", "Data(), num_workers=1)");
        let Some(output) = stopped(&workers, &[], &[]) else { return };
        output.contains("It was loading data: train.py:7");
    }

    #[test]
    fn while_it_waits_for_its_processes() {
        let train = "import subprocess, sys\nprint('started')\n\
                     subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])\n";
        let Some(output) = stopped(train, &[], &[]) else { return };
        output.contains("waiting for its child processes: train.py:3");
    }

    #[test]
    fn in_its_own_code() {
        let train =
            "def prepare():\n    while True:\n        pass\nprint('preparing')\nprepare()\n";
        let Some(output) = stopped(train, &[], &[]) else { return };
        output.contains("It was at train.py:").contains(" in prepare").contains("  | preparing\n");
    }
}

/// The JSON contains no path of this machine.
#[test]
fn the_json_names_no_folder_of_the_machine() {
    let train = "import os\nprint('in', os.getcwd())\nprint(os.path.abspath('data/a.bin'))\n\
                 open(os.path.abspath('data/a.bin'))\n";
    let Some(output) = run_failing(train, &NOTHING) else { return };
    let all = output.failure.to_string();
    assert!(!all.contains(&*std::env::temp_dir().to_string_lossy()), "{all}");
}
