//! Causes for the messages of real libraries. tests/cli/failures.rs runs programs that fail.

use super::*;
use crate::failure::FailureFrame;
use crate::failure::run::UnbuiltModule;
use ridgeline_python::DeclaredOption;
use ridgeline_recording::manifest::{ModuleFacts, RaisedIn};

/// A failure of `train.py`, with typical facts about the run.
pub(super) fn failure(error_type: &str, message: &str) -> RunFailure {
    RunFailure {
        error_type: error_type.into(),
        message: message.into(),
        kind: "exception".into(),
        frames: vec![FailureFrame { path: "train.py".into(), line: 3, name: "main".into() }],
        run: Box::new(RunFacts {
            program: "train.py".into(),
            python: ".venv/bin/python".into(),
            python_version: "3.11.9".into(),
            torch: "2.15.0+cpu".into(),
            device: "auto".into(),
            ..RunFacts::default()
        }),
        ..RunFailure::default()
    }
}

#[track_caller]
fn check(error_type: &str, message: &str, expected: &str) {
    checked_advice(&failure(error_type, message), expected);
}

/// Checks the cause (empty for no advice) and the form of the text, and returns the text for the
/// terminal.
#[track_caller]
pub(super) fn checked_advice(failure: &RunFailure, expected: &str) -> String {
    let mut text = String::new();
    for reader in [Reader::Terminal, Reader::Editor] {
        let found = advice(failure, reader);
        let cause = found.as_ref().map_or("", |advice| advice.cause);
        assert_eq!(cause, expected, "{}: {}", failure.error_type, failure.message);
        let Some(advice) = found else { continue };
        assert!(advice.text.ends_with(['.', ')']) && advice.text.len() < 700, "{}", advice.text);
        assert!(!advice.text.contains("  ") && !advice.text.contains(".."), "{}", advice.text);
        if reader == Reader::Editor {
            assert!(!advice.text.contains("ridgeline profile"), "{}", advice.text);
        }
        text = if reader == Reader::Terminal { advice.text } else { text };
    }
    text
}

#[test]
fn gpus_and_other_devices() {
    for text in [
        "Torch not compiled with CUDA enabled",
        "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver from http://www.nvidia.com/Download/index.aspx",
        "No CUDA GPUs are available",
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU.",
        "ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "nccl2 requires at least one CUDA device",
    ] {
        check("RuntimeError", text, "gpu-absent");
    }
    let mut with_option = failure("RuntimeError", "No CUDA GPUs are available");
    with_option.run.cpu_option = Some("--device cpu".into());
    assert!(checked_advice(&with_option, "gpu-absent").contains("train.py -- --device cpu"));
    let mut built_for_cpu = failure("AssertionError", "Torch not compiled with CUDA enabled");
    built_for_cpu.run.torch_has_gpu = Some(false);
    assert!(checked_advice(&built_for_cpu, "gpu-absent").contains("2.15.0+cpu"));
    let mut hidden = failure("RuntimeError", "No CUDA GPUs are available");
    hidden.run.device = "cpu".into();
    checked_advice(&hidden, "gpu-hidden");
    check("torch.AcceleratorError", "CUDA error: invalid device ordinal", "gpu-index");
    check(
        "RuntimeError",
        "CUDA error: no kernel image is available for execution on the device",
        "gpu-unsupported",
    );
    check("RuntimeError", "PyTorch is not linked with support for mps devices", "backend-absent");
    check("AssertionError", "Torch not compiled with XPU enabled", "backend-absent");
    let missing = "Could not run 'aten::empty.memory_format' with arguments from the 'MPS' backend. This could be because the operator doesn't exist for this backend. 'aten::empty.memory_format' is only available for these backends: [CPU, CUDA, Meta, BackendSelect, AutogradOther, AutogradCPU, AutogradMPS].";
    check("NotImplementedError", missing, "backend-absent");
    // The backend is available but lacks an operator.
    check("NotImplementedError", &missing.replace("CUDA, Meta", "CUDA, MPS, Meta"), "");
    check("NotImplementedError", &missing.replace("aten::empty", "aten::sparse_mask"), "");
    check("AssertionError", "3 is not 4", "");
}

#[test]
fn networks() {
    check(
        "requests.exceptions.ConnectionError",
        "HTTPSConnectionPool(host='example.org', port=443): Max retries exceeded with url: /x",
        "no-network",
    );
    check(
        "OSError",
        "We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
        "no-network",
    );
    check(
        "urllib.error.URLError",
        "<urlopen error [Errno -3] Temporary failure in name resolution>",
        "no-network",
    );
    check(
        "huggingface_hub.errors.LocalEntryNotFoundError",
        "Cannot find the requested files in the disk cache and outgoing traffic has been disabled.",
        "no-network",
    );
    check(
        "requests.exceptions.ConnectionError",
        "HTTPConnectionPool(host='localhost', port=8097): Max retries exceeded (Caused by NewConnectionError: [Errno 111] Connection refused)",
        "server-absent",
    );
    check(
        "requests.exceptions.ProxyError",
        "HTTPSConnectionPool(host='linqs-data.soe.ucsc.edu', port=443): Max retries exceeded (Caused by ProxyError(HTTPSConnection(host='127.0.0.1', port=9): [Errno 111] Connection refused))",
        "no-network",
    );
    check(
        "RuntimeError",
        "Error downloading train-images-idx3-ubyte.gz:\nTried http://yann.lecun.com/exdb/mnist/, got:\n<urlopen error [Errno 111] Connection refused>",
        "no-network",
    );
    check(
        "huggingface_hub.errors.GatedRepoError",
        "403 Client Error. Cannot access gated repo",
        "login-needed",
    );
    check("urllib.error.HTTPError", "HTTP Error 403: Forbidden", "login-needed");
    check("urllib.error.HTTPError", "HTTP Error 500: Internal Server Error", "");
    check("ConnectionRefusedError", "[Errno 111] Connection refused", "server-absent");
    check("ConnectionResetError", "[Errno 104] Connection reset by peer", "");
}

#[test]
fn processes() {
    check(
        "RuntimeError",
        "DataLoader worker (pid 123) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
        "shared-memory",
    );
    check(
        "RuntimeError",
        "unable to write to file </torch_33_2874_0>: No space left on device (28)",
        "shared-memory",
    );
    check(
        "RuntimeError",
        "DataLoader worker (pid 123) is killed by signal: Killed.",
        "loader-worker",
    );
    check("RuntimeError", "DataLoader worker (pid(s) 12, 13) exited unexpectedly", "loader-worker");
    check("RuntimeError", "received 0 items of ancdata", "too-many-files");
    let mut guarded = failure("RuntimeError", "DataLoader worker (pid(s) 12) exited unexpectedly");
    guarded.run.output = vec![
        "An attempt has been made to start a new process before the".into(),
        "current process has finished its bootstrapping phase.".into(),
        "freeze_support()".into(),
    ];
    checked_advice(&guarded, "no-main-guard");
    check("AttributeError", "Can't pickle local object 'main.<locals>.<lambda>'", "");
}

#[test]
fn ranks() {
    check(
        "ValueError",
        "Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set",
        "no-launcher",
    );
    let mut launched = failure("ValueError", "environment variable RANK expected, but not set");
    launched.run.has_launcher = true;
    checked_advice(&launched, "");
    check(
        "torch.distributed.DistNetworkError",
        "The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "port-in-use",
    );
    // The same key in a dictionary other than `os.environ`.
    check("KeyError", "'RANK'", "");
    let mut from_environ = failure("KeyError", "'RANK'");
    from_environ.run.error.raised_in =
        Some(RaisedIn { path: "os.py".into(), name: "__getitem__".into() });
    checked_advice(&from_environ, "no-launcher");
    from_environ.message = "'DATA'".into();
    checked_advice(&from_environ, "missing-variable");
}

#[test]
fn packages() {
    let missing = |name: &str| {
        checked_advice(
            &failure("ModuleNotFoundError", &format!("No module named '{name}'")),
            "missing-package",
        )
    };
    for (module, package) in [
        ("cv2", "opencv-python"),
        ("sklearn.metrics", "scikit-learn"),
        ("yaml", "PyYAML"),
        ("PIL", "Pillow"),
        ("einops", "einops"),
    ] {
        let text = missing(module);
        assert!(text.contains(&format!(".venv/bin/python -m pip install {package}`")), "{text}");
    }
    let message = "No package metadata was found for torch-rechub\ncaused by StopIteration:";
    let text = checked_advice(
        &failure("importlib.metadata.PackageNotFoundError", message),
        "missing-package",
    );
    assert!(text.contains("version of `torch-rechub`, which"), "{text}");
    assert!(text.contains("`.venv/bin/python -m pip install -e .`"), "{text}");
    assert!(
        text.ends_with(
            "Otherwise install the package: `.venv/bin/python -m pip install torch-rechub`."
        ),
        "{text}"
    );
    for (module, has_protobuf) in [("google", true), ("google.colab", false)] {
        let message = format!("No module named '{module}'");
        let text = checked_advice(&failure("ModuleNotFoundError", &message), "only-in-colab");
        assert_eq!(text.contains("install `protobuf`"), has_protobuf, "{text}");
    }
    let mut own = failure("ModuleNotFoundError", "No module named 'models'");
    own.run.found_paths = vec!["src/models".into()];
    assert!(checked_advice(&own, "own-module").contains("PYTHONPATH=src "));
    let mut unbuilt =
        failure("ModuleNotFoundError", "No module named 'MultiScaleDeformableAttention'");
    unbuilt.run.unbuilt =
        Some(UnbuiltModule { source: "models/ops/setup.py".into(), needs_torch: true });
    assert!(
        checked_advice(&unbuilt, "not-built").contains("--no-build-isolation -e ./models/ops`")
    );
    let partial = "cannot import name 'fast' from partially initialized module 'pkg.data' (most likely due to a circular import) (pkg/data/__init__.py)";
    let mut unbuilt = failure("ImportError", partial);
    unbuilt.run.unbuilt =
        Some(UnbuiltModule { source: "pkg/data/fast.pyx".into(), needs_torch: false });
    assert!(checked_advice(&unbuilt, "not-built").contains("`pkg.data.fast` is written in Cython"));
    let version = |error_type: &str, message: &str, name: &str, version: Option<&str>, expected| {
        let mut failure = failure(error_type, message);
        let version = version.map(str::to_owned);
        failure.run.error.module =
            Some(ModuleFacts { name: name.into(), version, ..ModuleFacts::default() });
        checked_advice(&failure, expected)
    };
    let text = version(
        "AttributeError",
        "module 'numpy' has no attribute 'flot'",
        "numpy",
        Some("2.5.5"),
        "package-version",
    );
    assert!(text.starts_with("`numpy` 2.5.5 is installed"), "{text}");
    version(
        "ImportError",
        "cannot import name 'AdamW' from 'transformers'",
        "transformers",
        Some("5.1"),
        "package-version",
    );
    version(
        "ModuleNotFoundError",
        "No module named 'torchvision.models.utils'",
        "torchvision.models.utils",
        Some("0.30"),
        "package-version",
    );
    // A module of the project, and a circular import.
    version("ImportError", "cannot import name 'f' from 'utils'", "utils", None, "");
    version(
        "ImportError",
        "cannot import name 'x' from partially initialized module 'numpy'",
        "numpy",
        Some("2"),
        "",
    );
    check(
        "ValueError",
        "numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject",
        "numpy-binary",
    );
    check(
        "ImportError",
        "libcudnn.so.9: cannot open shared object file: No such file or directory",
        "missing-library",
    );
    check(
        "ImportError",
        "…/_C.so: undefined symbol: _ZN3c106detail14torchCheckFailEPKcS2_jRKSs",
        "binary-mismatch",
    );
}

#[test]
fn removed_names() {
    for (error_type, message, instead) in [
        (
            "AttributeError",
            "module 'numpy' has no attribute 'int'.\n`np.int` was a deprecated alias for …",
            "NumPy 1.24 removed `numpy.int`: the program was written for an older version. Write \
            `int` instead.",
        ),
        (
            "AttributeError",
            "`np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead.",
            "NumPy 2 removed `np.float_`: the program was written for an older version. Write \
            `np.float64` instead.",
        ),
        (
            "AttributeError",
            "'numpy.ndarray' object has no attribute 'tostring'",
            "NumPy 2 removed `numpy.ndarray.tostring`: the program was written for an older \
            version. Write `tobytes` instead.",
        ),
        ("AttributeError", "'DataFrame' object has no attribute 'append'", "`pd.concat`"),
        ("AttributeError", "module 'torch' has no attribute 'rfft'", "`torch.fft.rfft`"),
        (
            "ImportError",
            "cannot import name 'Iterable' from 'collections' (…/collections/__init__.py)",
            "`collections.abc.Iterable`",
        ),
        ("ModuleNotFoundError", "No module named 'imp'", "`importlib`"),
        ("ModuleNotFoundError", "No module named 'distutils.version'", "pip install setuptools`"),
    ] {
        let text = checked_advice(&failure(error_type, message), "removed-name");
        assert!(text.contains(instead), "{text}");
    }
    let mut six = failure("ModuleNotFoundError", "No module named 'torch._six'");
    six.run.source = "from torch._six import inf".into();
    assert!(
        checked_advice(&six, "removed-name").contains("Write `from torch import inf` instead.")
    );
    check("AttributeError", "'DataFrame' object has no attribute 'labels'", "");
    let in_package = |message: &str, path: &str| {
        let mut failure = failure("AttributeError", message);
        failure.run.source = "state, reward = env.step(action)".into();
        failure.run.error.raised_in = Some(RaisedIn { path: path.into(), name: "step".into() });
        failure
    };
    let text = checked_advice(
        &in_package("module 'numpy' has no attribute 'bool8'", "gym/utils/env_checker.py"),
        "removed-name",
    );
    assert_eq!(
        text,
        "The installed package `gym` uses `np.bool8`, which NumPy 2 removed. Its successor \
        is `gymnasium`; to keep it, install an older NumPy: `.venv/bin/python -m pip install \"numpy<2\"`."
    );
    let text = checked_advice(
        &in_package("module 'numpy' has no attribute 'int'.\nMore", "old/a.py"),
        "removed-name",
    );
    assert!(text.contains("Update `old`, or install") && text.contains("numpy<1.24"), "{text}");
    let message =
        "`np.sctypes` was removed in the NumPy 2.0 release. Access dtypes explicitly instead.";
    let text = checked_advice(&in_package(message, "imgaug/imgaug.py"), "removed-name");
    assert!(text.contains("`imgaug` uses `np.sctypes`"), "{text}");
    // The program's own line.
    let mut own = in_package("module 'numpy' has no attribute 'int'", "train.py");
    own.run.source = "labels = labels.astype(np.int)".into();
    assert!(checked_advice(&own, "removed-name").contains("Write `int` instead."));
    let keyword = |function: &str, name: &str, expected| {
        let message = format!("{function} got an unexpected keyword argument '{name}'");
        checked_advice(&failure("TypeError", &message), expected)
    };
    let text = keyword("Trainer.__init__()", "tokenizer", "removed-name");
    assert!(text.contains("Write `processing_class` instead."), "{text}");
    keyword("ReduceLROnPlateau.__init__()", "verbose", "removed-name");
    keyword("TensorDataset.__init__()", "data_tensor", "removed-name");
    keyword("Tensor.backward()", "retain_variables", "removed-name");
    keyword("forward()", "verbose", "");
}

#[test]
fn data_from_commands_that_come_first() {
    let mut failure = failure("FileNotFoundError", "[Errno 2] No such file or directory");
    failure.run.error.errno = Some("ENOENT".into());
    failure.run.error.file = Some("~/.cache/x/tokenizer.pkl".into());
    failure.run.commands_before = vec!["run.sh:3: python -m x.tokenize --n 8".into()];
    let text = checked_advice(&failure, "missing-file");
    assert!(
        text.ends_with(
            "Commands that come first may create it. run.sh:3 has `python -m x.tokenize --n 8`."
        ),
        "{text}"
    );
}

#[test]
fn shell_commands_of_a_notebook() {
    let with = |error_type: &str, message: &str, file: Option<&str>, commands: &[&str]| {
        let mut failure = failure(error_type, message);
        failure.run.program = "a.ipynb".into();
        failure.run.error.errno = file.map(|_| "ENOENT".into());
        failure.run.error.file = file.map(str::to_owned);
        let place = |text: &&str| format!("a.ipynb#2:1: {text}");
        failure.run.notebook_commands = commands.iter().map(place).collect();
        failure
    };
    let missing = "No module named 'mnist1d'";
    let package = |command: &str| {
        let failure =
            with("ModuleNotFoundError", missing, None, &["pip install -q numpy", command]);
        checked_advice(&failure, "missing-package")
    };
    for (command, installed) in [
        (
            "pip install git+https://github.com/greydanus/MNIST1D",
            "git+https://github.com/greydanus/MNIST1D`.",
        ),
        ("pip install -qU \"mnist1d==0.0.2\" && ls", "mnist1d==0.0.2`."),
        ("pip install mnist1d-tools $X", "mnist1d`."),
        ("wget mnist1d", "mnist1d`."),
    ] {
        let text = package(command);
        assert!(text.contains(&format!("`.venv/bin/python -m pip install {installed}")), "{text}");
    }
    let no_file = "[Errno 2] No such file or directory";
    let of_file =
        |commands: &[&str]| with("FileNotFoundError", no_file, Some("data/x.npy"), commands);
    let text = checked_advice(&of_file(&["ls x.npy", "wget https://a.b/x.npy"]), "missing-file");
    assert_eq!(
        text,
        "The file `data/x.npy` does not exist. The notebook gets it with shell commands, which a run skips. Run them \
        once in the project folder: a.ipynb#2:1 has `wget https://a.b/x.npy`."
    );
    let text = checked_advice(&of_file(&["ls", "unzip data.zip"]), "missing-file");
    assert!(text.ends_with("which a run skips. a.ipynb#2:1 has `unzip data.zip`."), "{text}");
    let old = with(
        "ModuleNotFoundError",
        "No module named 'torchtext'",
        None,
        &["pip install torchtext"],
    );
    assert!(checked_advice(&old, "missing-package").contains("no longer developed"));
    let mut elsewhere = of_file(&[]);
    elsewhere.run.found_paths = vec!["other/data/x.npy".into()];
    let text = checked_advice(&elsewhere, "missing-file");
    assert!(text.ends_with("Correct the path in the notebook."), "{text}");
}

#[test]
fn an_option_that_is_not_set() {
    let option = |name: &str| DeclaredOption { name: name.into(), default: None };
    let mut unset = failure("AttributeError", "'NoneType' object has no attribute 'startswith'");
    unset.run.source = "is_2d = args.dataset.startswith('u')".into();
    unset.run.options = vec![option("--data"), option("--dataset")];
    let text = checked_advice(&unset, "missing-argument");
    assert!(text.starts_with("The program's option `--dataset` is not set."), "{text}");
    unset.run.arguments = vec!["--dataset=u1".into()];
    checked_advice(&unset, "");
}

#[test]
fn old_interfaces() {
    let message = "invalid index of a 0-dim tensor. Use `tensor.item()` in Python";
    let text = checked_advice(&failure("IndexError", message), "old-pytorch");
    assert!(text.contains("`loss.item()`"), "{text}");
    let check_line = |error_type: &str, message: &str, line: &str, expected| {
        let mut failure = failure(error_type, message);
        failure.run.source = line.into();
        checked_advice(&failure, expected)
    };
    let unpacks = "too many values to unpack (expected 4)";
    check_line("ValueError", unpacks, "s, r, done, _ = env.step(a)", "old-gym");
    check_line("ValueError", unpacks, "a, b, c, d = batch", "");
    let seed = "'TimeLimit' object has no attribute 'seed'";
    check_line("AttributeError", seed, "env.seed(args.seed)", "old-gym");
    let check_torch = "assert torch.__version__.split('.')[0] == '1'";
    check_line("AssertionError", "", check_torch, "package-version");
    check_line("AssertionError", "", "assert version == 1", "");
}

#[test]
fn syntax() {
    let check_syntax = |message: &str, line: &str, expected| {
        let mut failure = failure("SyntaxError", message);
        failure.kind = "syntax".into();
        failure.run.source = line.into();
        checked_advice(&failure, expected);
    };
    check_syntax("invalid syntax", "type Batch = list[int]", "newer-python");
    check_syntax("expected '('", "def first[T](values: list[T]) -> T:", "newer-python");
    check_syntax("f-string: expecting '}'", "print(f'{names['a']}')", "newer-python");
    check_syntax(
        "Missing parentheses in call to 'print'. Did you mean print(...)?",
        "print 'x'",
        "python-2",
    );
    check_syntax("invalid syntax", "x = x.cuda(async=True)", "old-pytorch");
    // Python 3.11 supports the first, and the others are errors in any version.
    check_syntax("invalid syntax", "match x:", "");
    check_syntax("invalid syntax", "type = = 3", "");
    check_syntax("invalid syntax", "class [T]:", "");
    check_syntax("'(' was never closed", "loss.backward(", "");
}

#[test]
fn trackers_and_displays() {
    check(
        "wandb.errors.errors.UsageError",
        "api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "not-logged-in",
    );
    check(
        "ImportError",
        "Cannot load backend 'TkAgg' which requires the 'tk' interactive framework, as 'headless' is currently running",
        "no-display",
    );
    check(
        "_tkinter.TclError",
        "no display name and no $DISPLAY environment variable",
        "no-display",
    );
    check("EOFError", "EOF when reading a line", "standard-input");
}

#[test]
fn files_and_disks() {
    let check_errno = |errno: &str, file: &str, denied: bool, expected| {
        let mut failure = failure("OSError", "[Errno 1] it failed");
        failure.run.error.errno = Some(errno.into());
        failure.run.error.file = Some(file.into());
        failure.run.writes_denied = denied;
        checked_advice(&failure, expected)
    };
    check_errno("EACCES", "out/x", true, "write-denied");
    check_errno("EACCES", "out/x", false, "");
    check_errno("EROFS", "out/x", false, "write-redirected");
    check_errno("EXDEV", "out/x", false, "write-redirected");
    check_errno("ENOSPC", "out/x", false, "disk-full");
    assert!(
        check_errno("ENOENT", "out/x.pt", false, "missing-checkpoint")
            .contains("The checkpoint `out/x.pt`")
    );
    let mut unprepared =
        failure("FileNotFoundError", "No such file or directory: 'data/web/train.bin'");
    unprepared.run.source = "data = np.memmap(path, dtype=np.uint16, mode='r')".into();
    unprepared.run.preparing_scripts = vec!["data/web/prepare.py".into()];
    let text = checked_advice(&unprepared, "missing-file");
    assert!(text.contains("The file `data/web/train.bin` does not exist."), "{text}");
    assert!(text.contains(" data/web/prepare.py`."), "{text}");
    let mut other = failure("FileNotFoundError", "No such file or directory: 'data/ml-1m.txt'");
    other.run.similar_files = vec!["Video.txt".into(), "wikipedia.txt".into()];
    let text = checked_advice(&other, "missing-file");
    assert!(text.contains("Its folder has `Video.txt` and `wikipedia.txt`."), "{text}");
    let weights = failure("FileNotFoundError", "No such file or directory: 'out/model.bin'");
    checked_advice(&weights, "missing-checkpoint");
    let mut unwritten = failure("FileNotFoundError", "No such file or directory: 'plots/1.png'");
    unwritten.run.source = "    plt.savefig(file, dpi=100)".into();
    unwritten.run.working_directory = "src".into();
    let text = checked_advice(&unwritten, "missing-folder");
    assert!(text.contains("`mkdir -p src/plots`"), "{text}");
    unwritten.run.source = "image = open(file)".into();
    checked_advice(&unwritten, "missing-file");
    check("RuntimeError", "Parent directory out does not exist.", "missing-folder");
    // An absolute path does not depend on the working directory.
    let text = check_errno("ENOENT", "…/x.csv", false, "missing-file");
    assert!(!text.contains("Relative") && text.contains("It is outside of the project"), "{text}");
    check(
        "RuntimeError",
        "Dataset not found or corrupted. You can use download=True to download it",
        "missing-data-set",
    );
    check("FileNotFoundError", "Couldn't find any class folder in data/train.", "missing-data-set");
    check("_pickle.UnpicklingError", "invalid load key, 'v'.", "git-lfs");
    check(
        "RuntimeError",
        "Error(s) in loading state_dict for Net:\n\tMissing key(s)",
        "other-checkpoint",
    );
}

/// The advice names the option that decides where the data is.
#[test]
fn options_for_missing_data() {
    let advice = |path: &str, arguments: &[&str], options: &[(&str, &str)]| {
        let mut failure = failure("FileNotFoundError", "");
        failure.run.error.file = Some(path.into());
        failure.run.arguments = arguments.iter().map(|it| (*it).to_owned()).collect();
        let option = |(name, default): &(&str, &str)| DeclaredOption {
            name: (*name).to_owned(),
            default: Some((*default).to_owned()).filter(|it| !it.is_empty()),
        };
        failure.run.options = options.iter().map(option).collect();
        checked_advice(&failure, "missing-file")
    };
    let options = [("--out", "data"), ("--dataset", "lastfm"), ("--lr", "")];
    // A given value, a default, a name, a part of the path, nothing.
    assert!(advice("in/x.csv", &["--root", "in/"], &options).contains("change `--root`"));
    assert!(advice("data/x.csv", &[], &options).contains("change `--out`"));
    let folder = [("--dataset", "lastfm"), ("--data-dir", "")];
    assert!(advice("/x/lastfm.csv", &[], &folder).contains("change `--data-dir`"));
    assert!(advice("raw/lastfm/x.csv", &[], &options).contains("-- --dataset NAME`"));
    let path = [("--dataset", "data/train.h5")];
    assert!(advice("data/train.h5", &[], &path).contains("-- --dataset PATH`"));
    let text = advice("raw/x.csv", &[], &options);
    assert!(text.contains("Put the data there.") && !text.contains("--data"), "{text}");
    // The message of HDF5 has the path only in its text.
    let hdf5 = "[Errno 2] Unable to synchronously open file (unable to open file: name = \
        'data/train.h5', errno = 2, error message = 'No such file or directory')";
    check("FileNotFoundError", hdf5, "missing-file");
}

#[test]
fn environments_that_gym_does_not_have() {
    check("gym.error.NameNotFound", "Environment Pong doesn't exist.", "unknown-gym-environment");
    check("my.NameNotFound", "Environment Pong doesn't exist.", "");
    let message =
        "Environment version v0 for `Pendulum` is deprecated. Please use `Pendulum-v1` instead.";
    let text =
        checked_advice(&failure("gym.error.DeprecatedEnv", message), "unknown-gym-environment");
    assert!(text.contains("Use `Pendulum-v1` in the program"), "{text}");
}

#[test]
fn options_without_a_value() {
    let mut unset = failure("ValueError", "create cache: failed: dataset_path is None");
    let option = |name: &str, default: Option<&str>| DeclaredOption {
        name: name.to_owned(),
        default: default.map(str::to_owned),
    };
    unset.run.options = vec![option("--create", None), option("--dataset_path", None)];
    let text = checked_advice(&unset, "missing-argument");
    assert!(text.contains("-- --dataset_path …"), "{text}");
    unset.run.arguments = vec!["--dataset_path=x".into()];
    checked_advice(&unset, "");
    let mut key = failure("KeyError", "None");
    key.run.options = vec![option("--in", None), option("--dataset", None)];
    key.run.source = "size = {'a': 1}[args.dataset]".into();
    assert!(checked_advice(&key, "missing-argument").contains("-- --dataset …"));
    key.run.source = "size = sizes[name]".into();
    checked_advice(&key, "");
    unset.run.arguments.clear();
    unset.run.options = vec![option("--create", None), option("--dataset_path", Some("x"))];
    checked_advice(&unset, "");
}

#[test]
fn paths_in_assertions() {
    let mut asserted = failure("AssertionError", "");
    asserted.run.source = "assert os.path.exists(path)".into();
    checked_advice(&asserted, "missing-file");
    asserted.run.options = vec![DeclaredOption { name: "--data_dir".into(), default: None }];
    assert!(checked_advice(&asserted, "missing-file").contains("-- --data_dir PATH`"));
    asserted.run.source = "assert not os.path.exists(out)".into();
    checked_advice(&asserted, "");
}

#[test]
fn packages_that_are_not_on_pypi() {
    let missing = failure("ModuleNotFoundError", "No module named 'apex'");
    let text = checked_advice(&missing, "missing-package");
    assert!(text.contains("https://github.com/NVIDIA/apex") && !text.contains("pip"), "{text}");
}

#[test]
fn asserted_versions_of_packages() {
    let with_line = |line: &str| {
        let mut asserted = failure("AssertionError", "");
        asserted.run.source = line.into();
        checked_advice(&asserted, "package-version")
    };
    let text = with_line("assert timm.__version__ == '0.3.2'  # version check");
    assert!(text.contains("`.venv/bin/python -m pip install \"timm==0.3.2\"`"), "{text}");
    let text = with_line("assert (np.__version__ < \"2\")");
    assert!(text.contains("install \"numpy==…\"`"), "{text}");
    let text = with_line("assert cv2.__version__ == '4.5'");
    assert!(text.contains("install \"opencv-python==4.5\"`"), "{text}");
    assert!(with_line("assert torch.__version__ >= '9'").contains("version of PyTorch"));
}

#[test]
fn discontinued_packages() {
    let missing = failure("ModuleNotFoundError", "No module named 'torchtext.data'");
    assert_eq!(
        checked_advice(&missing, "missing-package"),
        "`torchtext` is not installed in the environment of .venv/bin/python. It is no longer \
        developed: its last version, 0.18, needs PyTorch 2.3, and this environment has 2.15.0+cpu. \
        Choose an environment that has it: `--python PATH`, or `python` in ridgeline.toml."
    );
}

#[test]
fn missing_data_of_nltk() {
    let message = "\n*****\n  Resource 'punkt' not found.\n  >>> nltk.download('punkt')\n";
    let text = checked_advice(&failure("LookupError", message), "missing-data-set");
    assert!(text.contains("`.venv/bin/python -m nltk.downloader punkt`"), "{text}");
    check("LookupError", "unknown encoding: x", "");
}

#[test]
fn an_option_with_other_dashes() {
    let mut failure = failure("SystemExit", "the program exited with code 2");
    failure.kind = "exit".into();
    failure.run.error.raised_in =
        Some(RaisedIn { path: "argparse.py".into(), name: "exit".into() });
    failure.run.error.exit_code = Some(2);
    failure.run.output =
        vec!["run.py: error: unrecognized arguments: --dataset-name cifar10".into()];
    failure.run.options = vec![DeclaredOption { name: "-dataset-name".into(), default: None }];
    let text = checked_advice(&failure, "wrong-argument");
    assert!(text.contains("Its option is called `-dataset-name`, not `--dataset-name`."), "{text}");
}

#[test]
fn parsers() {
    let exit = |raised_in: &str, code: i64, output: &[&str], expected| {
        let mut failure = failure("SystemExit", "the program exited with code 2");
        failure.kind = "exit".into();
        failure.run.error.raised_in =
            Some(RaisedIn { path: raised_in.into(), name: "exit".into() });
        failure.run.error.exit_code = Some(code);
        failure.run.output = output.iter().map(|line| (*line).to_owned()).collect();
        checked_advice(&failure, expected)
    };
    let usage = "usage: train.py [-h] --dataset DATASET";
    let text = exit(
        "argparse.py",
        2,
        &[usage, "train.py: error: the following arguments are required: --dataset, --root"],
        "missing-argument",
    );
    assert!(text.contains("-- --dataset …"), "{text}");
    let text = exit(
        "argparse.py",
        2,
        &[usage, "train.py: error: the following arguments are required: data, out"],
        "missing-argument",
    );
    assert!(text.contains("-- data …"), "{text}");
    let mut with_command = failure("SystemExit", "the program exited with code 2");
    with_command.kind = "exit".into();
    with_command.run.error.raised_in =
        Some(RaisedIn { path: "argparse.py".into(), name: "exit".into() });
    with_command.run.error.exit_code = Some(2);
    with_command.run.output =
        vec!["train.py: error: the following arguments are required: --name".into()];
    with_command.run.commands = vec!["README.md:3: python train.py --name <name>".into()];
    let text = checked_advice(&with_command, "missing-argument");
    assert!(text.ends_with("README.md:3 has `python train.py --name <name>`."), "{text}");
    let text = exit(
        "argparse.py",
        2,
        &[usage, "train.py: error: the following arguments are required: filename"],
        "missing-argument",
    );
    assert!(text.contains("-- filename …"), "{text}");
    exit(
        "argparse.py",
        2,
        &[usage, "train.py: error: unrecognized arguments: --x"],
        "wrong-argument",
    );
    exit(
        "click/core.py",
        2,
        &["Usage: train.py [OPTIONS]", "Error: Missing option '--lr'."],
        "missing-argument",
    );
    exit("click/core.py", 2, &["Error", "Missing option '--lr'."], "missing-argument");
    let text = exit("click/core.py", 2, &["Error: Missing argument 'DATA'."], "missing-argument");
    assert!(text.contains("-- DATA …"), "{text}");
    let text = exit(
        "tyro/_cli.py",
        2,
        &["Required options", "Missing from train.py:", "--out PATH", "Where it goes. (required)"],
        "missing-argument",
    );
    assert!(text.contains("-- --out …"), "{text}");
    exit("tyro/_cli.py", 2, &["Unrecognized options: --x"], "wrong-argument");
    check("argparse.ArgumentError", "Data path must be provided.", "missing-argument");
    check("argparse.ArgumentError", "argument --lr: invalid float", "wrong-argument");
    // `sys.exit(2)` in the program itself, and a help page.
    exit("train.py", 2, &["RuntimeError: x"], "");
    exit("argparse.py", 0, &[usage], "");
    check(
        "omegaconf.errors.MissingMandatoryValue",
        "Missing mandatory value: data.path\n    full_key: data.path",
        "missing-setting",
    );
}

#[test]
fn packages_that_a_message_names() {
    let text = "Requirement 'jsonargparse[signatures]>=4.27.7' not met. HINT: Try running `pip \
        install -U 'jsonargparse[signatures]>=4.27.7'`";
    let text = checked_advice(&failure("ModuleNotFoundError", text), "missing-package");
    let command = "python -m pip install --upgrade \"jsonargparse[signatures]>=4.27.7\"`";
    assert!(text.contains(command), "{text}");
    let text = "Try: `pip install transformers -U` or `pip install -e '.[dev]'`";
    let text = checked_advice(&failure("ImportError", text), "missing-package");
    assert!(text.ends_with("--upgrade \"transformers\"`."), "{text}");
    check("ImportError", "Use `pip install --help`", "");
}

#[test]
fn arguments_read_from_sys_argv() {
    for (error_type, message, source) in [
        ("IndexError", "list index out of range", "path = sys.argv[1]"),
        (
            "ValueError",
            "not enough values to unpack (expected 3, got 1)",
            "_, path, out = sys.argv",
        ),
        ("IndexError", "list index out of range", "batch_size = int(argv[2])"),
    ] {
        let mut absent = failure(error_type, message);
        absent.run.source = source.into();
        let text = checked_advice(&absent, "missing-argument");
        assert!(text.contains(&format!("(`{source}`)")), "{text}");
        assert!(text.contains("ridgeline profile train.py -- VALUE"), "{text}");
    }
}

/// Errors in the program itself have no advice beyond their message.
#[test]
fn no_advice_if_no_rule_is_sure() {
    for (error_type, message) in [
        ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x2)"),
        ("ValueError", "too many values to unpack (expected 2)"),
        ("KeyError", "'lr'"),
        ("TypeError", "forward() missing 1 required positional argument: 'x'"),
        ("AttributeError", "'NoneType' object has no attribute 'shape'"),
        ("IndexError", "list index out of range"),
        ("AssertionError", ""),
        ("", ""),
    ] {
        check(error_type, message, "");
    }
    assert_eq!(advice(&RunFailure::default(), Reader::Terminal), None);
}

/// The table in docs/failures.md lists the cause of every rule.
#[test]
fn docs_list_every_cause() {
    let page = include_str!("../../../../../docs/failures.md");
    let sources = [
        include_str!("arguments.rs"),
        include_str!("checkpoints.rs"),
        include_str!("data.rs"),
        include_str!("devices.rs"),
        include_str!("distributed.rs"),
        include_str!("imports.rs"),
        include_str!("network.rs"),
        include_str!("processes.rs"),
        include_str!("environment.rs"),
        include_str!("versions.rs"),
    ];
    let mut causes = 0;
    for source in sources {
        for rest in source.split("because(").skip(1) {
            let first = rest.trim_start();
            let Some(name) = first.strip_prefix('"').and_then(|rest| rest.split('"').next()) else {
                continue;
            };
            causes += 1;
            assert!(
                page.contains(&format!("| `{name}` |")),
                "{name} is missing in docs/failures.md"
            );
        }
    }
    assert!(causes >= 30, "{causes}");
}
