"""Imports of the zygote before a run, and imports that make forking unsafe."""

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
from ridgeline_agent.process.supervise import Supervisor
from ridgeline_agent.protocol.channel import Sender
from ridgeline_agent.protocol.spec import Entry
from ridgeline_agent.system import process_tree

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux uses a zygote"
)


def imports_of(folder: Path, **files: str) -> list[str]:
    """The installed modules that the files import, starting from `train`."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return installed_imports(Entry("script", str(folder / "train.py")), str(folder))


def test_only_installed_modules_are_imported(tmp_path: Path) -> None:
    assert imports_of(tmp_path, train="import numpy, nowhere_to_be_found\n") == ["numpy"]


def test_submodules_and_names(tmp_path: Path) -> None:
    text = "from torch.utils import data\nfrom torch import nn, no_such_name\n"
    assert imports_of(tmp_path, train=text) == [
        "torch.utils",
        "torch.utils.data",
        "torch",
        "torch.nn",
    ]


def test_imports_through_project_modules(tmp_path: Path) -> None:
    files = {"train": "from net import Net\n", "net": "import numpy\nimport train\n"}
    assert imports_of(tmp_path, **files) == ["numpy"]


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
    assert imports_of(tmp_path, **files) == ["numpy"]


def test_project_file_shadows_installed_module(tmp_path: Path) -> None:
    assert imports_of(tmp_path, train="import numpy\n", numpy="") == []


def test_branches_are_included_but_not_functions_or_type_checking(tmp_path: Path) -> None:
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
    assert imports_of(tmp_path, train=text) == ["typing", "numpy", "antigravity"]


def test_unreadable_files(tmp_path: Path) -> None:
    for text in ("def f(:\n", "x = " + "(" * 20_000 + "\n", "\0", "import numpy."):
        assert imports_of(tmp_path, train=text) == []
    assert installed_imports(Entry("script", str(tmp_path / "missing.py")), str(tmp_path)) == []


class Library:
    """A folder of installed packages that misbehave when they are imported."""

    def __init__(self, folder: Path) -> None:
        # Packages in folders of this name count as installed.
        self.path = folder / "library" / "site-packages"
        self.path.mkdir(parents=True)

    def add(self, name: str, text: str) -> None:
        (self.path / (name + ".py")).write_text(text)

    def agent(self) -> Agent:
        return Agent(env={"PYTHONPATH": str(self.path)})


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path)


def prepare(agent: Agent, folder: Path, text: str, bad_imports: int = 0) -> dict[str, Any]:
    """Returns the `ready` event after a `prepare` request that drops this many imports."""
    agent.wait_for("ready")
    script = folder / "train.py"
    script.write_text(text + TRAINING + "train(99)\n")
    entry = {"kind": "script", "path": str(script)}
    agent.send({"op": "prepare", "root": str(folder), "entry": entry, "preimport": True})
    ready = agent.wait_for("ready")
    while len(ready["dropped_imports"]) < bad_imports:
        ready = agent.wait_for("ready")
    return ready


def test_preimported_module_is_available(library: Library, tmp_path: Path) -> None:
    library.add("good", "import os\nprocess = os.getpid()\n")
    with library.agent() as agent:
        text = "import good, os\nprint(good.process != os.getpid())\n"
        assert prepare(agent, tmp_path, text)["dropped_imports"] == []
        script = (tmp_path / "train.py").read_text()
        assert agent.run(tmp_path, script)["outcome"] == "complete"
        assert log(tmp_path).startswith(b"True\n")


BAD_IMPORTS = {
    "starts_a_thread": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
        "there are 2 threads",
    ),
    "crashes": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "SIGSEGV"),
    "exits": ("raise SystemExit(3)\n", "SystemExit"),
    "ends_the_process": ("import os\nos._exit(9)\n", "exit code 9"),
    "raises": ("1 / 0\n", "ZeroDivisionError"),
}


def test_bad_imports_are_dropped(library: Library, tmp_path: Path) -> None:
    for name, (text, _) in BAD_IMPORTS.items():
        library.add(name, text)
    library.add("good", "")
    imports = "".join(f"if 0:\n    import {name}\n" for name in BAD_IMPORTS)
    with library.agent() as agent:
        ready = prepare(agent, tmp_path, imports + "import good\n", len(BAD_IMPORTS))
        assert ready["mode"] == "fork"
        reasons = {dropped["module"]: dropped["why"] for dropped in ready["dropped_imports"]}
        assert reasons.keys() == BAD_IMPORTS.keys()
        assert all(part in reasons[name] for name, (_, part) in BAD_IMPORTS.items()), reasons
        text = "import sys\nprint('good' in sys.modules)\n"
        agent.run(tmp_path, text)
        assert log(tmp_path) == b"True\n"


def test_long_imports_do_not_start_over(tmp_path: Path) -> None:
    sender = Sender(os.open(tmp_path / "events", os.O_WRONLY | os.O_CREAT))
    supervisor = Supervisor("", sender, [])
    supervisor._prepare = {"op": "prepare", "preimport": True}
    for seconds, expected in ((1, True), (11, False)):
        supervisor._prepare_began = time.monotonic() - seconds
        supervisor._on_unsafe({"module": "slow", "why": "there are 2 threads"})
        assert supervisor._prepare["preimport"] is expected


def test_zygote_that_becomes_unsafe_is_replaced(library: Library, tmp_path: Path) -> None:
    # The signal arrives while the zygote is waiting, and starts a second thread.
    text = """\
import signal, threading, time
def start(*_):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
signal.signal(signal.SIGALRM, start)
"""
    library.add("late", text)
    with library.agent() as agent:
        prepare(agent, tmp_path, "import late\n")
        zygote = process_tree.descendants(agent.process.pid)[0]
        os.kill(zygote, signal.SIGALRM)
        while len(os.listdir(f"/proc/{zygote}/task")) < 2:
            time.sleep(0.01)
        events = agent.events_until_finished(agent.start(tmp_path, TRAINING + "train(99)\n"))
        assert events[-1]["outcome"] == "complete"
        modes = [event["mode"] for event in events if event["event"] == "ready"]
        assert modes[:1] == ["standby"]


def test_standby_if_zygote_is_always_unsafe(tmp_path: Path) -> None:
    # A sitecustomize that starts a thread makes every fork unsafe.
    text = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True)"
    (tmp_path / "sitecustomize.py").write_text(text + ".start()\n")
    with Agent(env={"PYTHONPATH": str(tmp_path)}) as agent:
        ready = agent.wait_for("ready")
        assert ready["mode"] == "standby"
        assert "threads" in ready["why"]
        assert agent.run(tmp_path, TRAINING + "train(99)\n")["outcome"] == "complete"


def test_prepare_and_run_before_ready(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    entry = {"kind": "script", "path": str(script)}
    with Agent() as agent:
        agent.send({"op": "prepare", "root": str(tmp_path), "entry": entry, "preimport": True})
        assert agent.run(tmp_path, TRAINING + "train(99)\n")["outcome"] == "complete"


def test_prepared_cuda_child(tmp_path: Path) -> None:
    # Without a GPU, no CUDA context is created, but the code path is the same.
    with Agent("--cuda") as agent:
        agent.wait_for("ready")
        for _ in range(3):
            assert agent.run(tmp_path, TRAINING + "train(99)\n")["outcome"] == "complete"
        assert agent.run(tmp_path, "1 / 0\n", device="cpu")["outcome"] == "failed"


def test_python_without_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no', name='torch')\n")
    with Agent(env={"PYTHONPATH": str(tmp_path)}) as agent:
        message = agent.wait_for("unusable")["message"]
        assert "has no torch" in message and sysconfig.get_paths()["scripts"] in message
