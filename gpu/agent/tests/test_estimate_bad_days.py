"""Programs that an estimate cannot follow, or that would do something while it does."""

from __future__ import annotations

from pathlib import Path

from agent_driver import Agent, all_end, log
from test_estimate import TRAINING, estimate, listed, operators

WRITING = """\
import json, logging, os, pathlib, shutil, socket, subprocess, tempfile
import torch
os.makedirs("runs/one", exist_ok=True)
pathlib.Path("runs/two").mkdir(parents=True, exist_ok=True)
with open("runs/one/args.json", "w") as file:
    json.dump({"a": 1}, file)
assert json.load(open("runs/one/args.json")) == {"a": 1}
pathlib.Path("notes.txt").write_text("changed")
with open("kept.txt", "a") as file:
    file.write(" more")
assert open("kept.txt").read() == "kept more"
logging.basicConfig(filename="train.log")
logging.warning("begun")
descriptor = os.open("by_descriptor", os.O_CREAT | os.O_WRONLY)
os.write(descriptor, b"x")
shutil.rmtree("folder")
os.remove("kept.txt")
os.rename("kept.txt", "moved.txt")
torch.save({"a": torch.ones(3)}, "checkpoint.pt")
assert subprocess.check_output(["touch", "started"]) == b""
assert subprocess.run("touch started", shell=True, capture_output=True).returncode == 0
assert os.system("touch started") == 0
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "x").write_text("x")
try:
    socket.create_connection(("127.0.0.1", 9))
except OSError as error:
    print("refused:", error)
"""


def test_an_estimate_changes_nothing(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside.txt").write_text("kept")
    (tmp_path / "kept.txt").write_text("kept")
    (tmp_path / "notes.txt").write_text("mine")
    listed(agent, tmp_path, WRITING + TRAINING)
    out = tmp_path / "out"
    left = {
        str(path.relative_to(tmp_path)): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file() and out not in path.parents
    }
    assert left.pop("train.py")
    assert left == {"folder/inside.txt": "kept", "kept.txt": "kept", "notes.txt": "mine"}
    assert not (tmp_path / "runs").exists()
    assert b"refused:" in log(tmp_path)


def test_a_loop_that_runs_no_operator(agent: Agent, tmp_path: Path) -> None:
    text = "import torch\nx = torch.ones(8)\nx = x + 1\nwhile True: pass\n"
    finished = estimate(agent, tmp_path, text, limits={"seconds": 2})
    assert finished["outcome"] == "short"
    assert [part[:3] for part in operators(finished["ops"])][-1] == ("add.Tensor", 4, 3)


def test_a_loop_that_catches_everything(agent: Agent, tmp_path: Path) -> None:
    text = """\
import torch
while True:
    try:
        torch.ones(8) + 1
    except BaseException:
        pass
"""
    finished = estimate(agent, tmp_path, text, limits={"seconds": 2})
    assert finished["outcome"] in ("short", "timeout")


def test_it_leaves_early(agent: Agent, tmp_path: Path) -> None:
    finished = estimate(agent, tmp_path, "import sys\nsys.exit('no data')\n")
    assert finished["outcome"] == "failed"
    assert finished["ops"]["failure"]["kind"] == "exit"
    finished = estimate(agent, tmp_path, "import torch\ntorch.ones(3)\n")
    assert finished["outcome"] == "short"
    assert finished["ops"]["outcome"] == "partial"


def test_it_reads_its_input(agent: Agent, tmp_path: Path) -> None:
    listed(agent, tmp_path, "import sys\nassert sys.stdin.read() == ''\n" + TRAINING)


def test_processes_that_it_forks_end_with_it(agent: Agent, tmp_path: Path) -> None:
    text = """\
import os, time
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    children.append(child)
print(*children, flush=True)
"""
    listed(agent, tmp_path, text + TRAINING)
    assert all_end([int(word) for word in log(tmp_path).split()[:3]])


def test_a_program_that_patches_torch(agent: Agent, tmp_path: Path) -> None:
    text = """\
import torch
original = torch.nn.Linear.forward
torch.nn.Linear.forward = lambda self, x: original(self, x) * 2
torch.Tensor.double_it = lambda self: self + self
torch.ones(3).double_it()
"""
    assert ("mul.Tensor", 1, 3 + 5, "first") not in operators(
        listed(agent, tmp_path, text + TRAINING)
    )


def test_a_module_of_another_language(agent: Agent, tmp_path: Path) -> None:
    text = """\
import torch
library = torch.library.Library("mylib", "DEF")
library.define("op(Tensor x) -> Tensor")
library.impl("op", lambda x: x + 1, "CPU")
weight = torch.nn.Parameter(torch.randn(100, 100))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(5):
    loss = (weight + torch.ops.mylib.op(torch.randn(100, 100))).sum()
    loss.backward()
    optimizer.step()
"""
    finished = estimate(agent, tmp_path, text)
    assert finished["outcome"] == "complete", log(tmp_path)
    ops = finished["ops"]
    assert ops["outcome"] == "partial"
    assert [(one["line"], one["operator"]) for one in ops["unsupported"]] == [(8, "mylib::op")]
    assert "sum" in [name for name, *_ in operators(ops)]


def test_a_guess_that_decides_is_told_and_others_are_not(agent: Agent, tmp_path: Path) -> None:
    text = (
        TRAINING
        + """\
    total = 0.5 * loss.item() + 1
    print(f"{loss:.3f} {total:.3f}", loss.item())
    if total > 3:
        break
    if (x > 0).any():
        break
    kept = x[x > 0]
"""
    )
    finished = estimate(agent, tmp_path, text)
    assert finished["outcome"] == "complete", log(tmp_path)
    lines = {entry["line"] for entry in finished["ops"]["guessed"]}
    assert lines == {22, 24, 26}
