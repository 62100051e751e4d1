"""The program finds the Python that `python train.py` would have given it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from agent_driver import TRAINING, Agent, log, manifest

# What a program can see of how it was started. The first variable is the test's own, the second
# is set by torch when it is imported, which the agent has done.
LOOK = """\
import json, os, sys
main = sys.modules["__main__"]
# In torch 2.8 a part of it that the zygote imports adds an empty folder of its own at the end.
instantiator = sys.modules.get("torch.distributed.nn.jit.instantiator")
torchs = getattr(instantiator, "INSTANTIATED_TEMPLATE_DIR_PATH", None)
print(json.dumps({
    "argv": sys.argv, "cwd": os.getcwd(), "name": __name__,
    "path": [folder for folder in sys.path if folder != torchs],
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


def seen(agent: Agent, folder: Path, entry: dict[str, Any], **keys: Any) -> dict[str, Any]:
    finished = agent.wait_for("finished", id=agent.start_entry(folder, entry, **keys))
    assert finished["outcome"] == "short", log(folder)
    found: dict[str, Any] = json.loads(log(folder))
    return found


def plain(folder: Path, *arguments: str) -> dict[str, Any]:
    """What Python itself gives the same program."""
    printed = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    found: dict[str, Any] = json.loads(printed)
    return found


def same(agent: Agent, folder: Path, entry: dict[str, Any], *arguments: str) -> None:
    ours = seen(agent, folder, entry, args=["--epochs", "1"])
    theirs = plain(folder, *arguments, "--epochs", "1")
    for key in theirs:
        assert ours[key] == theirs[key], key


def test_a_script(agent: Agent, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOOK)
    same(agent, tmp_path, {"kind": "script", "path": str(script)}, str(script))


def test_a_script_in_a_folder(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "train.py"
    script.write_text('"""What it does."""\n' + LOOK)
    same(agent, tmp_path, {"kind": "script", "path": str(script)}, str(script))


def test_a_module(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "train.py").write_text(LOOK)
    same(agent, tmp_path, {"kind": "module", "name": "package.train"}, "-m", "package.train")


def test_a_package(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text(LOOK)
    same(agent, tmp_path, {"kind": "module", "name": "package"}, "-m", "package")


def test_a_module_that_is_not_there(agent: Agent, tmp_path: Path) -> None:
    for name in ("nowhere", "nowhere.train"):
        entry = {"kind": "module", "name": name}
        finished = agent.wait_for("finished", id=agent.start_entry(tmp_path, entry))
        assert (finished["outcome"], name in finished["message"]) == ("failed", True)


def test_a_function_that_an_installed_command_calls(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "cli.py").write_text(
        "import sys\ndef main():\n    print(__name__, sys.argv[1:])\n"
    )
    entry = {"kind": "module", "name": "package.cli:main"}
    agent.wait_for("finished", id=agent.start_entry(tmp_path, entry, args=["--x"]))
    assert log(tmp_path) == b"package.cli ['--x']\n"
    entry = {"kind": "module", "name": "package.cli:gone"}
    finished = agent.wait_for("finished", id=agent.start_entry(tmp_path, entry))
    assert "package.cli has no function gone" in finished["message"]


def test_a_notebook_as_a_script(agent: Agent, tmp_path: Path) -> None:
    text = (
        "get_ipython().run_line_magic('matplotlib', 'inline')\n"
        "get_ipython().system('exit 1')\n"
        "get_ipython().run_cell_magic('time', '', 'value = 3\\n')\n"
        "get_ipython().run_cell_magic('html', '', '<b>no Python</b>')\n"
        "print(value)\n"
    )
    finished = agent.run(tmp_path, text)
    assert (finished["outcome"], log(tmp_path)) == ("short", b"3\n")
    # Whoever asks whether it is a notebook hears that it is none.
    finished = agent.run(
        tmp_path, "try:\n    exec('get_ipython')\nexcept NameError:\n    print(1)\n"
    )
    assert log(tmp_path) == b"1\n"


def test_the_environment_of_the_configuration(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOK)
    (tmp_path / "library").mkdir()
    env = {"NAME": "a value", "PYTHONPATH": str(tmp_path / "library")}
    entry = {"kind": "script", "path": str(tmp_path / "train.py")}
    found = seen(agent, tmp_path, entry, env=env)
    assert found["environment"].items() >= env.items()
    assert found["path"][1] == str(tmp_path / "library")
    # The next run knows nothing of it.
    assert "NAME" not in seen(agent, tmp_path, entry)["environment"]


def test_the_users_pythonpath_counts_and_is_relative_to_the_program(tmp_path: Path) -> None:
    for folder, value in (("src", 3), ("library", 4)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"of_{folder}.py").write_text(f"value = {value}\n")
    text = "import of_library, of_src\nprint(of_src.value, of_library.value)\n"
    # As of the shell, and as of a configuration that the agent was started with.
    both = os.pathsep.join(["src", str(tmp_path / "library")])
    with Agent(env={"PYTHONPATH": both}) as agent:
        for env in ({}, {"PYTHONPATH": both}):
            finished = agent.run(tmp_path, text, env=env)
            assert (finished["outcome"], log(tmp_path)) == ("short", b"3 4\n")


def test_the_agent_is_not_to_be_imported(agent: Agent, tmp_path: Path) -> None:
    assert "No module named 'boot'" in agent.run(tmp_path, "import boot\n")["message"]


def test_a_file_of_the_project_shadows_a_library(agent: Agent, tmp_path: Path) -> None:
    # torch has imported these for itself, as it would have from elsewhere.
    (tmp_path / "queue.py").write_text("mine = 1\n")
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("mine = 2\n")
    agent.run(tmp_path, "import queue, numpy\nprint(queue.mine, numpy.mine)\n")
    assert log(tmp_path) == b"1 2\n"


def test_modules_of_the_project_are_fresh_in_each_run(agent: Agent, tmp_path: Path) -> None:
    for value in (b"1\n", b"2\n"):
        (tmp_path / "mine.py").write_bytes(b"value = " + value)
        agent.run(tmp_path, "import mine, sys\nprint(mine.value)\nsys.dont_write_bytecode = True\n")
        assert log(tmp_path) == value
        # Python takes a source of the same size and second for unchanged.
        for cached in (tmp_path / "__pycache__").glob("*"):
            cached.unlink()


def test_names_of_main_can_be_pickled(agent: Agent, tmp_path: Path) -> None:
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
    # The tracker of semaphores may complain after that: the run ends without Python's own end.
    assert log(tmp_path).startswith(b"[2, 4]\n" * 3)
    # Other programs have theirs for a moment; what is left behind stays.
    until = time.monotonic() + 20
    while not set(os.listdir("/dev/shm")) <= before and time.monotonic() < until:
        time.sleep(0.2)
    assert set(os.listdir("/dev/shm")) <= before


def test_text_that_is_not_ascii(agent: Agent, tmp_path: Path) -> None:
    agent.run(tmp_path, "\ufeffprint('漢字 🎉')\r\nprint('\\udc80')\r\n")
    assert log(tmp_path) == "漢字 🎉\n\\udc80\n".encode()


def test_eager_turns_the_compiler_off(agent: Agent, tmp_path: Path) -> None:
    text = (
        "import os, torch\nprint(torch._dynamo.config.disable, os.environ['TORCHDYNAMO_DISABLE'])\n"
    )
    agent.run(tmp_path, text, eager=True)
    assert log(tmp_path) == b"True 1\n"


def test_the_cpu_hides_the_gpus(agent: Agent, tmp_path: Path) -> None:
    text = (
        "import os, torch\nprint([os.environ['CUDA_VISIBLE_DEVICES']], torch.cuda.is_available())\n"
    )
    agent.run(tmp_path, text, device="cpu")
    assert log(tmp_path) == b"[''] False\n"


def test_the_number_of_threads_of_the_configuration(agent: Agent, tmp_path: Path) -> None:
    text = "import torch\nprint(torch.get_num_threads())\n"
    agent.run(tmp_path, text, env={"OMP_NUM_THREADS": "1"})
    assert log(tmp_path) == b"1\n"


def test_training_in_a_thread(agent: Agent, tmp_path: Path) -> None:
    text = TRAINING + "import threading\nthreading.Thread(target=train, args=(99,)).start()\n"
    assert agent.run(tmp_path, text)["outcome"] in ("complete", "short")


def test_nothing_of_the_machine_is_in_a_failure(agent: Agent, tmp_path: Path) -> None:
    agent.run(tmp_path, "open('/etc/nowhere/secret.txt')\n")
    text = (tmp_path / "out" / "manifest.json").read_text()
    assert str(tmp_path) not in text and "/etc/nowhere" not in text
    assert "secret.txt" in manifest(tmp_path)["failure"]["message"]
