"""What the zygote imports ahead, and what it does when an import makes a fork unsafe."""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest

from agent_driver import TRAINING, Agent, log
from ridgeline_agent.process.preimport import installed_imports
from ridgeline_agent.protocol.spec import Entry
from ridgeline_agent.system import process_tree

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="there is a zygote on Linux alone"
)


def found(folder: Path, **files: str) -> list[str]:
    """The installed modules that the files import, beginning at `train`."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return installed_imports(Entry("script", str(folder / "train.py")), str(folder))


def test_installed_modules_alone(tmp_path: Path) -> None:
    assert found(tmp_path, train="import numpy, nowhere_to_be_found\n") == ["numpy"]


def test_a_submodule_and_a_name_in_a_module(tmp_path: Path) -> None:
    text = "from torch.utils import data\nfrom torch import nn, no_such_name\n"
    assert found(tmp_path, train=text) == ["torch.utils", "torch.utils.data", "torch", "torch.nn"]


def test_through_the_modules_of_the_project(tmp_path: Path) -> None:
    files = {"train": "from net import Net\n", "net": "import numpy\nimport train\n"}
    assert found(tmp_path, **files) == ["numpy"]


def test_relative_imports(tmp_path: Path) -> None:
    files = {
        "train": "import package.one\n",
        "package____init__": "",
        "package__one": "from . import two\n",
        "package__two": "import numpy\n",
    }
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    del files["package____init__"]
    assert found(tmp_path, **files) == ["numpy"]


def test_a_file_of_the_project_comes_first(tmp_path: Path) -> None:
    assert found(tmp_path, train="import numpy\n", numpy="") == []


def test_branches_but_not_functions_or_type_checks(tmp_path: Path) -> None:
    text = """\
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import pydoc
try:
    import numpy
except ImportError:
    import antigravity
def later():
    import turtle
"""
    assert found(tmp_path, train=text) == ["typing", "numpy", "antigravity"]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for text in ("def f(:\n", "x = " + "(" * 20_000 + "\n", "\0", "import numpy."):
        assert found(tmp_path, train=text) == []
    assert installed_imports(Entry("script", str(tmp_path / "gone.py")), str(tmp_path)) == []


class Library:
    """An installed package that does something bad when it is imported."""

    def __init__(self, folder: Path) -> None:
        # The name of the folder is what makes it count as installed.
        self.path = folder / "library" / "site-packages"
        self.path.mkdir(parents=True)

    def has(self, name: str, text: str) -> None:
        (self.path / (name + ".py")).write_text(text)

    def agent(self) -> Agent:
        return Agent(env={"PYTHONPATH": str(self.path)})


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path)


def prepared(agent: Agent, folder: Path, text: str, bad: int = 0) -> dict[str, Any]:
    """The `ready` after a `prepare` for a script with this text and so many bad imports."""
    agent.wait_for("ready")
    script = folder / "train.py"
    script.write_text(text + TRAINING + "train(99)\n")
    entry = {"kind": "script", "path": str(script)}
    agent.send({"op": "prepare", "root": str(folder), "entry": entry, "preimport": True})
    ready = agent.wait_for("ready")
    while len(ready["dropped_imports"]) < bad:
        ready = agent.wait_for("ready")
    return ready


def test_what_is_imported_ahead_is_there(library: Library, tmp_path: Path) -> None:
    library.has("good", "import os\nprocess = os.getpid()\n")
    with library.agent() as agent:
        text = "import good, os\nprint(good.process != os.getpid())\n"
        assert prepared(agent, tmp_path, text)["dropped_imports"] == []
        script = (tmp_path / "train.py").read_text()
        assert agent.run(tmp_path, script)["outcome"] == "complete"
        assert log(tmp_path).startswith(b"True\n")


BAD = {
    "starts_a_thread": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
        "there are 2 threads",
    ),
    "crashes": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "SIGSEGV"),
    "leaves": ("raise SystemExit(3)\n", "SystemExit"),
    "ends_the_process": ("import os\nos._exit(9)\n", "exit code 9"),
    "raises": ("1 / 0\n", "ZeroDivisionError"),
}


def test_imports_that_break_the_zygote_are_left_to_the_run(
    library: Library, tmp_path: Path
) -> None:
    for name, (text, _) in BAD.items():
        library.has(name, text)
    library.has("good", "")
    imports = "".join(f"if 0:\n    import {name}\n" for name in BAD)
    with library.agent() as agent:
        ready = prepared(agent, tmp_path, imports + "import good\n", len(BAD))
        assert ready["mode"] == "fork"
        why = {one["module"]: one["why"] for one in ready["dropped_imports"]}
        assert why.keys() == BAD.keys()
        assert all(part in why[name] for name, (_, part) in BAD.items()), why
        text = "import sys\nprint('good' in sys.modules)\n"
        agent.run(tmp_path, text)
        assert log(tmp_path) == b"True\n"


def test_a_zygote_that_becomes_unsafe_later_is_replaced(library: Library, tmp_path: Path) -> None:
    # Its signal comes while the zygote waits; from then on there are two threads.
    text = """\
import signal, threading, time
def start(*_):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
signal.signal(signal.SIGALRM, start)
"""
    library.has("late", text)
    with library.agent() as agent:
        prepared(agent, tmp_path, "import late\n")
        zygote = process_tree.descendants(agent.process.pid)[0]
        os.kill(zygote, signal.SIGALRM)
        while len(os.listdir(f"/proc/{zygote}/task")) < 2:
            time.sleep(0.01)
        events = agent.events_until_finished(agent.start(tmp_path, TRAINING + "train(99)\n"))
        assert events[-1]["outcome"] == "complete"
        modes = [event["mode"] for event in events if event["event"] == "ready"]
        assert modes[:1] == ["standby"]


def test_the_first_one_makes_torch_itself_unsafe(tmp_path: Path) -> None:
    # As a sitecustomize of an administrator might: nothing can be forked then.
    text = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True)"
    (tmp_path / "sitecustomize.py").write_text(text + ".start()\n")
    with Agent(env={"PYTHONPATH": str(tmp_path)}) as agent:
        ready = agent.wait_for("ready")
        assert ready["mode"] == "standby"
        assert "threads" in ready["why"]
        assert agent.run(tmp_path, TRAINING + "train(99)\n")["outcome"] == "complete"


def test_a_prepare_and_a_run_before_ready(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    entry = {"kind": "script", "path": str(script)}
    with Agent() as agent:
        agent.send({"op": "prepare", "root": str(tmp_path), "entry": entry, "preimport": True})
        assert agent.run(tmp_path, TRAINING + "train(99)\n")["outcome"] == "complete"


def test_a_child_that_is_kept_ready(tmp_path: Path) -> None:
    # Without a GPU there is no context to make, but the way is the same.
    with Agent("--cuda") as agent:
        agent.wait_for("ready")
        for _ in range(3):
            assert agent.run(tmp_path, TRAINING + "train(99)\n")["outcome"] == "complete"
        assert agent.run(tmp_path, "1 / 0\n", device="cpu")["outcome"] == "failed"


def test_a_python_without_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no', name='torch')\n")
    with Agent(env={"PYTHONPATH": str(tmp_path)}) as agent:
        message = agent.wait_for("unusable")["message"]
        assert "has no torch" in message and sysconfig.get_paths()["scripts"] in message
