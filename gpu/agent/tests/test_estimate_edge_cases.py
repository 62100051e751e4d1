"""Estimates of programs with side effects, endless loops or unsupported operators."""

from __future__ import annotations

from pathlib import Path

from agent_driver import Agent, all_exit, log
from estimate_helpers import TRAINING, complete_estimate, estimate, operators

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


def test_estimate_does_not_change_files(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside.txt").write_text("kept")
    (tmp_path / "kept.txt").write_text("kept")
    (tmp_path / "notes.txt").write_text("original")
    complete_estimate(agent, tmp_path, WRITING + TRAINING)
    out = tmp_path / "out"
    remaining = {
        str(path.relative_to(tmp_path)): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file() and out not in path.parents
    }
    assert remaining.pop("train.py")
    assert remaining == {"folder/inside.txt": "kept", "kept.txt": "kept", "notes.txt": "original"}
    assert not (tmp_path / "runs").exists()
    assert b"refused:" in log(tmp_path)


def test_endless_loop_without_operators(agent: Agent, tmp_path: Path) -> None:
    text = "import torch\nx = torch.ones(8)\nx = x + 1\nwhile True: pass\n"
    finished = estimate(agent, tmp_path, text, limits={"seconds": 2})
    assert finished["outcome"] == "short"
    assert [operation[:3] for operation in operators(finished["ops"])][-1] == ("add.Tensor", 4, 3)


def test_endless_loop_that_catches_all_exceptions(agent: Agent, tmp_path: Path) -> None:
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


def test_program_that_exits_early(agent: Agent, tmp_path: Path) -> None:
    finished = estimate(agent, tmp_path, "import sys\nsys.exit('no data')\n")
    assert finished["outcome"] == "failed"
    assert finished["ops"]["failure"]["kind"] == "exit"
    finished = estimate(agent, tmp_path, "import torch\ntorch.ones(3)\n")
    assert finished["outcome"] == "short"
    assert finished["ops"]["outcome"] == "no_iteration"


def test_time_limit_while_the_list_is_written(agent: Agent, tmp_path: Path) -> None:
    text = """\
import signal, sys
listed = sys.modules["ridgeline_agent.estimate.operator_list"]
write = listed.write
def write_late(*args):
    signal.raise_signal(signal.SIGALRM)
    write(*args)
listed.write = write_late
"""
    complete_estimate(agent, tmp_path, text + TRAINING)


def test_program_that_reads_stdin(agent: Agent, tmp_path: Path) -> None:
    complete_estimate(agent, tmp_path, "import sys\nassert sys.stdin.read() == ''\n" + TRAINING)


def test_forked_processes_are_terminated(agent: Agent, tmp_path: Path) -> None:
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
    complete_estimate(agent, tmp_path, text + TRAINING)
    assert all_exit([int(word) for word in log(tmp_path).split()[:3]])


def test_program_that_patches_torch(agent: Agent, tmp_path: Path) -> None:
    text = """\
import torch
original = torch.nn.Linear.forward
torch.nn.Linear.forward = lambda self, x: original(self, x) * 2
torch.Tensor.double_it = lambda self: self + self
torch.ones(3).double_it()
"""
    assert ("mul.Tensor", 1, 3 + 5, "first") not in operators(
        complete_estimate(agent, tmp_path, text + TRAINING)
    )


def test_custom_operator_without_fake_kernel(agent: Agent, tmp_path: Path) -> None:
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
    assert [(call["line"], call["operator"]) for call in ops["unsupported"]] == [(8, "mylib::op")]
    assert "sum" in [name for name, *_ in operators(ops)]


def test_only_guesses_that_affect_operators_are_reported(agent: Agent, tmp_path: Path) -> None:
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
