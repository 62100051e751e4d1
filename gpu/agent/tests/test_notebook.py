"""Notebooks run as one program, each cell as a file of its own."""

from __future__ import annotations

import json
import sys
import types
import zlib
from pathlib import Path
from typing import Any

import pytest

from agent_driver import Agent, log, manifest
from ridgeline_agent.process.notebook import Notebook
from ridgeline_agent.process.notebook_modules import MissingModules
from ridgeline_agent.program import notebook_cells


@pytest.fixture(autouse=True)
def nothing_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook_cells, "SKIPPED", [])


def write(folder: Path, *cells: str, **more: Any) -> dict[str, str]:
    """Writes a notebook with these code cells, and returns its entry."""
    written = [
        {"cell_type": "code", "source": cell.splitlines(keepends=True), "outputs": []}
        for cell in cells
    ]
    text = {"cell_type": "markdown", "source": ["# A title\n", "! no command"]}
    path = folder / "train.ipynb"
    path.write_text(json.dumps({"cells": [text, *written], "nbformat": 4, **more}))
    return {"kind": "script", "path": str(path)}


def run(agent: Agent, folder: Path, *cells: str) -> tuple[dict[str, Any], str]:
    """Runs a notebook, and returns the last event and what it printed."""
    finished = agent.wait_for("finished", id=agent.start_entry(folder, write(folder, *cells)))
    return finished, log(folder).decode()


def check(text: str, expected: str) -> None:
    """Checks the Python code of a cell."""
    assert Notebook("train.ipynb", {}).python("train.ipynb#1", text) == expected


def test_what_is_no_python() -> None:
    check(
        "%matplotlib inline\nx = 1", "get_ipython().run_line_magic('matplotlib', 'inline')\nx = 1"
    )
    check("if x:\n    !ls -l\n    y = 1", "if x:\n    pass\n    y = 1")
    check("files = !ls\nhome = %env HOME", "files = []\nhome = None")
    check("%time model(x)\n%timeit\n", "model(x)\npass\n")
    check("torch.nn?\n?torch\nx??", "pass\npass\npass")
    check("\n%%time\nx = 1", "\n\nx = 1")
    check("%%capture out\nx = 1", "\nx = 1")
    check("%%bash\nrm -r data", "")
    check("%timeit -n 10 -r3 f(x)\n%timeit -o f(x)", "f(x)\nf(x)")
    check("pip install torch\nls = 3\nls - 1", "pass\nls = 3\nls - 1")
    assert notebook_cells.note() == (
        "skipped in the notebook: cell 1: !ls -l; cell 1: files = !ls; cell 1: home = %env HOME; "
        "cell 1: %%bash; cell 1: pip install torch"
    )


def test_python_that_looks_like_magic() -> None:
    for text in (
        "x = (7\n  % 4)",
        'text = """\n%matplotlib inline\n!ls\n"""',
        "x = 7 \\\n  % 4",
        "x = a != b",
        "x %= 3",
        "print('a=%d' % x)",
        "x['a=%d' % x] = 3",
        "y = x % 2\nassert x == 1, '?'",
        "# what?\nx = 1",
    ):
        check(text, text)
        compile(text, "cell", "exec")
    assert notebook_cells.note() is None


def test_lines_belong_to_cells(agent: Agent, tmp_path: Path) -> None:
    first = "import torch\n%matplotlib inline\nnet = torch.nn.Linear(8, 8)\n"
    second = "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n!nvidia-smi\n"
    third = (
        "%%time\nfor step in range(40):\n    optimizer.zero_grad()\n"
        "    loss = net(torch.ones(4, 8)).sum()\n    loss.backward()\n    optimizer.step()\n"
    )
    finished, printed = run(agent, tmp_path, first, second, third)
    assert finished["outcome"] == "complete", printed
    recorded = manifest(tmp_path)
    paths = [file["path"] for file in recorded["files"]]
    assert "train.ipynb#3" in paths
    loop = recorded["loop"]
    assert (paths[loop["file"]], loop["line"]) == ("train.ipynb#3", 2)
    # The checksums are those of the cell as it is in the notebook.
    checksums = recorded["files"][paths.index("train.ipynb#3")]["line_crc"]
    assert checksums == [zlib.crc32(line.strip().encode()) for line in third.split("\n")]
    assert [note for note in recorded["notes"] if "nvidia-smi" in note]


def test_cells_share_their_names(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text("added = given + 1\nprint(__name__, added)\n")
    finished, printed = run(
        agent,
        tmp_path,
        "given = 3\n%env MODE=fast\n",
        "%%time\nimport os, sys\nprint(os.environ['MODE'], given, sys.argv[1:])",
        "import asyncio\nawait asyncio.sleep(0)\nprint('awaited')",
        "print(get_ipython() is not None, display(given), __name__)",
        "import builtins\nbuiltins.given = given\n%run more.py\nprint(added)",
    )
    assert finished["outcome"] == "short", printed
    assert printed == "fast 3 []\nawaited\nTrue None __main__\n__main__ 4\n4\n"


def test_a_cell_that_is_written_to_a_file(agent: Agent, tmp_path: Path) -> None:
    finished, printed = run(
        agent,
        tmp_path,
        "\n%%writefile more.py\nadded = 3\n# 'quoted'",
        "%%writefile -a more.py\nadded += 1",
        "from more import added\nprint(added)",
    )
    assert finished["outcome"] == "short", printed
    assert printed == "4\n"


def test_what_was_skipped_is_named_when_a_cell_fails(agent: Agent, tmp_path: Path) -> None:
    _, printed = run(agent, tmp_path, "!wget https://example.com/data", "open('data')")
    assert "skipped in the notebook: cell 1: !wget https://example.com/data" in printed


def test_a_cell_that_fails(agent: Agent, tmp_path: Path) -> None:
    finished, _ = run(agent, tmp_path, "x = 1", "y = 2\nraise ValueError('too few')")
    assert finished["outcome"] == "failed"
    failure = manifest(tmp_path)["failure"]
    paths = [file["path"] for file in manifest(tmp_path)["files"]]
    assert [(paths[frame["file"]], frame["line"]) for frame in failure["frames"]] == [
        ("train.ipynb#2", 2)
    ]
    finished, _ = run(agent, tmp_path, "x = 1", "y = = 2")
    assert manifest(tmp_path)["failure"]["kind"] == "syntax"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "train.ipynb is not a notebook: it is not JSON"),
        ("[" * 100_000, "train.ipynb is not a notebook: it is not JSON"),
        ("[]", "not a notebook of format 4"),
        ('{"worksheets": []}', "not a notebook of format 4"),
    ],
)
def test_no_notebook(agent: Agent, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "train.ipynb").write_text(content)
    entry = {"kind": "script", "path": str(tmp_path / "train.ipynb")}
    finished = agent.wait_for("finished", id=agent.start_entry(tmp_path, entry))
    assert message in finished["message"]


def test_strange_cells_are_ignored(agent: Agent, tmp_path: Path) -> None:
    cells = [None, 3, {"cell_type": "code"}, {"cell_type": "code", "source": "print(5)"}]
    cells += [{"cell_type": "code", "source": [7, "print(", "6)"]}, {"cell_type": 4}]
    finished = agent.wait_for(
        "finished", id=agent.start_entry(tmp_path, write(tmp_path, cells=cells))
    )
    assert (finished["outcome"], log(tmp_path)) == ("short", b"5\n6\n")


def test_modules_of_a_kernel_that_are_not_installed(agent: Agent, tmp_path: Path) -> None:
    imports = """\
from IPython import display as shown, get_ipython
from IPython.display import HTML, clear_output, display
from IPython.core.display import Markdown
import IPython, ipywidgets as widgets
from ipywidgets import HBox, interact
get_ipython().run_line_magic("matplotlib", "inline")
assert IPython.version_info > (8,)
class Row(HBox): pass
row = Row(children=[widgets.FloatProgress(value=0.5)])
assert row.children[0].value == 0.5
row.layout.width = "50%"
assert row and not row.style.bar_color
@interact(rate=(0.0, 1.0))
def plot(rate): return rate
assert plot(2) == 2
with widgets.Output(): shown.clear_output()
"""
    loop = """\
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    clear_output(wait=True)
    display(HTML("<b>1</b>")).update(Markdown("2"))
"""
    finished, printed = run(agent, tmp_path, imports, loop)
    assert finished["outcome"] == "complete", printed


def test_stand_ins_are_for_missing_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = MissingModules()
    spec = finder.find_spec("IPython.display")
    assert spec is not None and spec.loader is finder
    assert finder.find_spec("IPythonic") is None
    # A submodule that an installed IPython lacks is missing.
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    assert finder.find_spec("IPython.display") is None


def test_shell_of_an_installed_ipython(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = types.ModuleType("IPython")
    installed.__dict__["get_ipython"] = lambda: None
    monkeypatch.setitem(sys.modules, "IPython", installed)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    entry = write(
        tmp_path,
        "from IPython import get_ipython\nget_ipython().run_line_magic('env', 'A_VARIABLE=1')",
        "import os\nvalue = os.environ.pop('A_VARIABLE')\n",
    )
    names: dict[str, Any] = {}
    Notebook(entry["path"], names).run()
    assert names["value"] == "1"
    # A library sees no shell.
    assert installed.get_ipython() is None
