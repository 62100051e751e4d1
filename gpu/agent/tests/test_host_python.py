"""Programs run in the same Python environment as with `python train.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from agent_driver import TRAINING, Agent, log, manifest

# Prints what a program can see of how it was started. pytest sets the first excluded variable, and
# torch sets the second one when the agent imports it.
INSPECT = """\
import json, os, sys
main = sys.modules["__main__"]
# In torch 2.8, a module that the zygote imports appends an empty folder to sys.path.
instantiator = sys.modules.get("torch.distributed.nn.jit.instantiator")
torch_folder = getattr(instantiator, "INSTANTIATED_TEMPLATE_DIR_PATH", None)
print(json.dumps({
    "argv": sys.argv, "cwd": os.getcwd(), "name": __name__,
    "path": [folder for folder in sys.path if folder != torch_folder],
    "file": __file__, "doc": __doc__, "package": __package__,
    "loader": type(__loader__).__name__,
    "spec": None if __spec__ is None else __spec__.name,
    "globals": sorted(name for name in globals() if name not in ("json", "os", "sys")),
    "is_main": main.__dict__ is globals(),
    "environment": {
        name: value for name, value in os.environ.items()
        if name not in ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR")
    },
    "stdin": sys.stdin.read(), "warnings": sys.warnoptions,
    "excepthook": sys.excepthook is sys.__excepthook__,
}))
"""


def inspect_in_agent(
    agent: Agent, folder: Path, entry: dict[str, Any], **keys: Any
) -> dict[str, Any]:
    finished = agent.wait_for("finished", id=agent.start_entry(folder, entry, **keys))
    assert finished["outcome"] == "short", log(folder)
    result: dict[str, Any] = json.loads(log(folder))
    return result


def inspect_in_python(folder: Path, *arguments: str) -> dict[str, Any]:
    """Runs the same program directly in Python."""
    printed = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    result: dict[str, Any] = json.loads(printed)
    return result


def check_same(agent: Agent, folder: Path, entry: dict[str, Any], *arguments: str) -> None:
    actual = inspect_in_agent(agent, folder, entry, args=["--epochs", "1"])
    expected = inspect_in_python(folder, *arguments, "--epochs", "1")
    for key in expected:
        assert actual[key] == expected[key], key


def test_script(agent: Agent, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(INSPECT)
    check_same(agent, tmp_path, {"kind": "script", "path": str(script)}, str(script))


def test_script_in_subfolder(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "train.py"
    script.write_text('"""What it does."""\n' + INSPECT)
    check_same(agent, tmp_path, {"kind": "script", "path": str(script)}, str(script))


def test_module(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "train.py").write_text(INSPECT)
    check_same(agent, tmp_path, {"kind": "module", "name": "package.train"}, "-m", "package.train")


def test_package(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text(INSPECT)
    check_same(agent, tmp_path, {"kind": "module", "name": "package"}, "-m", "package")


def test_module_that_does_not_exist(agent: Agent, tmp_path: Path) -> None:
    for name in ("missing", "missing.train"):
        entry = {"kind": "module", "name": name}
        finished = agent.wait_for("finished", id=agent.start_entry(tmp_path, entry))
        assert (finished["outcome"], name in finished["message"]) == ("failed", True)


def test_entry_point_function(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "cli.py").write_text(
        "import sys\ndef main():\n    print(__name__, sys.argv[1:])\n"
    )
    entry = {"kind": "module", "name": "package.cli:main"}
    agent.wait_for("finished", id=agent.start_entry(tmp_path, entry, args=["--x"]))
    assert log(tmp_path) == b"package.cli ['--x']\n"
    entry = {"kind": "module", "name": "package.cli:missing"}
    finished = agent.wait_for("finished", id=agent.start_entry(tmp_path, entry))
    assert "package.cli has no function missing" in finished["message"]


def test_notebook_as_script(agent: Agent, tmp_path: Path) -> None:
    text = (
        "get_ipython().run_line_magic('matplotlib', 'inline')\n"
        "get_ipython().system('exit 1')\n"
        "get_ipython().run_cell_magic('time', '', 'value = 3\\n')\n"
        "get_ipython().run_cell_magic('html', '', '<b>no Python</b>')\n"
        "print(value)\n"
    )
    finished = agent.run(tmp_path, text)
    assert (finished["outcome"], log(tmp_path)) == ("short", b"3\n")
    # Code that checks for a notebook finds none.
    finished = agent.run(
        tmp_path, "try:\n    exec('get_ipython')\nexcept NameError:\n    print(1)\n"
    )
    assert log(tmp_path) == b"1\n"


def test_configured_environment(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(INSPECT)
    (tmp_path / "library").mkdir()
    env = {"NAME": "a value", "PYTHONPATH": str(tmp_path / "library")}
    entry = {"kind": "script", "path": str(tmp_path / "train.py")}
    result = inspect_in_agent(agent, tmp_path, entry, env=env)
    assert result["environment"].items() >= env.items()
    assert result["path"][1] == str(tmp_path / "library")
    # The next run does not have the variables.
    assert "NAME" not in inspect_in_agent(agent, tmp_path, entry)["environment"]


def test_pythonpath_is_relative_to_program(tmp_path: Path) -> None:
    for folder, value in (("src", 3), ("library", 4)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"of_{folder}.py").write_text(f"value = {value}\n")
    text = "import of_library, of_src\nprint(of_src.value, of_library.value)\n"
    # From the shell, and from the configuration.
    both = os.pathsep.join(["src", str(tmp_path / "library")])
    with Agent(env={"PYTHONPATH": both}) as agent:
        for env in ({}, {"PYTHONPATH": both}):
            finished = agent.run(tmp_path, text, env=env)
            assert (finished["outcome"], log(tmp_path)) == ("short", b"3 4\n")


def test_program_cannot_import_agent(agent: Agent, tmp_path: Path) -> None:
    assert "No module named 'boot'" in agent.run(tmp_path, "import boot\n")["message"]


def test_project_module_shadows_library(agent: Agent, tmp_path: Path) -> None:
    # torch has already imported the libraries of these names.
    (tmp_path / "queue.py").write_text("value = 1\n")
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("value = 2\n")
    agent.run(tmp_path, "import queue, numpy\nprint(queue.value, numpy.value)\n")
    assert log(tmp_path) == b"1 2\n"


def test_project_modules_are_reloaded_in_each_run(agent: Agent, tmp_path: Path) -> None:
    for value in (b"1\n", b"2\n"):
        (tmp_path / "settings.py").write_bytes(b"value = " + value)
        agent.run(
            tmp_path,
            "import settings, sys\nprint(settings.value)\nsys.dont_write_bytecode = True\n",
        )
        assert log(tmp_path) == value
        # Python considers a source file of the same size and time to be unchanged.
        for cached in (tmp_path / "__pycache__").glob("*"):
            cached.unlink()


def test_objects_of_main_can_be_pickled(agent: Agent, tmp_path: Path) -> None:
    text = """\
import multiprocessing, pickle
class Thing:
    pass
def double(number):
    return 2 * number
if __name__ == '__main__':
    pickle.loads(pickle.dumps(Thing()))
    for method in ('fork', 'spawn', 'forkserver'):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map(double, [1, 2]))
"""
    before = set(os.listdir("/dev/shm"))
    finished = agent.run(tmp_path, text)
    assert finished["outcome"] == "short", log(tmp_path)
    # The resource tracker may print warnings afterwards, as the run exits without finalization.
    assert log(tmp_path).startswith(b"[2, 4]\n" * 3)
    # Other programs may have semaphores for a moment. Leaked ones would remain.
    end = time.monotonic() + 20
    while not set(os.listdir("/dev/shm")) <= before and time.monotonic() < end:
        time.sleep(0.2)
    assert set(os.listdir("/dev/shm")) <= before


def test_non_ascii_text(agent: Agent, tmp_path: Path) -> None:
    agent.run(tmp_path, "\ufeffprint('漢字 🎉')\r\nprint('\\udc80')\r\n")
    assert log(tmp_path) == "漢字 🎉\n\\udc80\n".encode()


def test_eager_disables_compiler(agent: Agent, tmp_path: Path) -> None:
    text = (
        "import os, torch\nprint(torch._dynamo.config.disable, os.environ['TORCHDYNAMO_DISABLE'])\n"
    )
    agent.run(tmp_path, text, eager=True)
    assert log(tmp_path) == b"True 1\n"


def test_cpu_device_hides_gpus(agent: Agent, tmp_path: Path) -> None:
    text = (
        "import os, torch\nprint([os.environ['CUDA_VISIBLE_DEVICES']], torch.cuda.is_available())\n"
    )
    agent.run(tmp_path, text, device="cpu")
    assert log(tmp_path) == b"[''] False\n"


def test_configured_number_of_threads(agent: Agent, tmp_path: Path) -> None:
    text = "import torch\nprint(torch.get_num_threads())\n"
    agent.run(tmp_path, text, env={"OMP_NUM_THREADS": "1"})
    assert log(tmp_path) == b"1\n"


def test_training_in_a_thread(agent: Agent, tmp_path: Path) -> None:
    text = TRAINING + "import threading\nthreading.Thread(target=train, args=(99,)).start()\n"
    assert agent.run(tmp_path, text)["outcome"] in ("complete", "short")


def test_failure_contains_no_absolute_paths(agent: Agent, tmp_path: Path) -> None:
    agent.run(tmp_path, "open('/etc/missing/secret.txt')\n")
    text = (tmp_path / "out" / "manifest.json").read_text()
    assert str(tmp_path) not in text and "/etc/missing" not in text
    assert "secret.txt" in manifest(tmp_path)["failure"]["message"]
