"""Versions of a program that run side by side, taking turns of a few iterations."""

from __future__ import annotations

import json
import os
import re
import signal
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from agent_driver import Agent, all_exit

# Each iteration appends the name of its version to a common file.
PROGRAM = """\
import torch
from version import name, count
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(count):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    with open("order.txt", "a") as order:
        order.write(name)
    optimizer.step()
"""


def versions(folder: Path, *texts: str) -> list[dict[str, Any]]:
    return [
        {"out": str(folder / "out" / str(number)), "overlay": {"version.py": text}}
        for number, text in enumerate(texts)
    ]


def start(agent: Agent, folder: Path, *texts: str, program: str = PROGRAM, **keys: Any) -> int:
    (folder / "version.py").write_text("raise RuntimeError('overlay was not used')\n")
    iterations = {"warmup": 2, "timed": 6, "profiled": 1}
    request = {"versions": versions(folder, *texts), "turn": 3, "iterations": iterations}
    return agent.start(folder, program, **{**request, **keys})


def run(agent: Agent, folder: Path, *texts: str, **keys: Any) -> dict[str, Any]:
    return agent.wait_for("finished", id=start(agent, folder, *texts, **keys))


def manifest(folder: Path, number: int) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(
        (folder / "out" / str(number) / "manifest.json").read_text()
    )
    return loaded


def test_versions_take_turns(agent: Agent, tmp_path: Path) -> None:
    texts = [f"name, count = {name!r}, 100\n" for name in "abc"]
    finished = run(agent, tmp_path, *texts)
    assert finished["outcome"] == "complete", finished
    order = (tmp_path / "order.txt").read_text()
    turns = [(name, len(list(group))) for name, group in groupby(order)]
    # Each version runs its warm-up, two turns, and then its remaining iterations.
    assert turns[:9] == [(name, count) for count in (2, 3, 3) for name in "abc"]
    assert "".join(name for name, _ in turns[9:]) == "abc"
    for number in range(3):
        result = manifest(tmp_path, number)
        assert result["status"] == "complete"
        assert len(result["iterations"]["timed_ns"]) == 6
    assert not (tmp_path / "out" / "manifest.json").exists()
    # The agent can still run a single program.
    assert agent.run(tmp_path, PROGRAM, overlay={"version.py": texts[0]})["outcome"] == "complete"


# Writes brackets at the beginning and the end of each timed iteration.
WRITES_TIMED_ITERATIONS = """\
from ridgeline_agent.record.timing import Timer
name, count = NAME, 100
begin, end = Timer.begin, Timer.end
def write(text):
    with open("order.txt", "a") as order:
        order.write(text)
Timer.begin = lambda timer: (begin(timer), write("("))
Timer.end = lambda timer, now_ns: (write(")"), end(timer, now_ns))
"""


def test_time_of_other_versions_is_not_counted(agent: Agent, tmp_path: Path) -> None:
    texts = [WRITES_TIMED_ITERATIONS.replace("NAME", repr(name)) for name in "ab"]
    finished = run(agent, tmp_path, *texts)
    assert finished["outcome"] == "complete", finished
    order = (tmp_path / "order.txt").read_text()
    timed = re.findall(r"\((.+?)\)", order)
    assert sorted(timed) == ["a"] * 6 + ["b"] * 6, order


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("name, count = 'b', 7\n", "short"),
        ("raise ValueError('not this one')\n", "failed"),
        ("import os\nos._exit(3)\n", "exited"),
    ],
)
def test_run_ends_when_one_version_ends(
    agent: Agent, tmp_path: Path, text: str, outcome: str
) -> None:
    finished = run(agent, tmp_path, "name, count = 'a', 10_000\n", text)
    assert finished["outcome"] == outcome, finished
    if outcome == "failed":
        assert "not this one" in finished["message"]
    if outcome == "exited":
        assert "with code 3" in finished["message"]
    if outcome == "short":
        assert manifest(tmp_path, 1)["iterations"]["seen"] == 7


def test_cancel_terminates_all_versions(agent: Agent, tmp_path: Path) -> None:
    program = PROGRAM + "while True: pass\n"
    text = "import os\nopen('pids.txt', 'a').write(f'{os.getpid()}\\n')\nname, count = 'a', 3\n"
    number = start(agent, tmp_path, text, text, program=program)
    agent.wait_for("started", id=number)
    pids = tmp_path / "pids.txt"
    while not pids.exists() or "\n" not in pids.read_text():
        os.sched_yield()
    agent.send({"op": "cancel", "id": number})
    assert agent.wait_for("finished", id=number)["outcome"] == "cancelled"
    assert all_exit([int(pid) for pid in pids.read_text().split()])


def test_run_ends_when_one_version_is_killed(agent: Agent, tmp_path: Path) -> None:
    text = f"import os, signal\nname, count = 'b', 9\nos.kill(os.getpid(), {signal.SIGKILL:d})\n"
    finished = run(agent, tmp_path, "name, count = 'a', 10_000\n", text)
    assert finished["outcome"] == "exited"
    assert "with code -9" in finished["message"]


def test_unsafe_fork_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from ridgeline_agent.process import side_by_side
    from ridgeline_agent.protocol.spec import NO_ENTRY, RunSpec

    class Ended(Exception):
        pass

    class Host:
        def finish(self, outcome: str, message: str | None = None) -> None:
            raise Ended(outcome, message)

    def run(*_: Any) -> None:
        raise AssertionError("no version may be started")

    monkeypatch.setattr(side_by_side, "why_unsafe", lambda: "there are 2 threads")
    spec = RunSpec(id=1, out="/o", root="/r", entry=NO_ENTRY, cwd="/r")
    with pytest.raises(Ended, match=r"exited.*side by side: there are 2 threads"):
        side_by_side.run_side_by_side(spec, Host(), run)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "keys",
    [
        {"versions": [{}]},
        {"versions": "abc"},
        {"versions": [{"out": "/tmp/x", "batch_size": 0}]},
        {"versions": [{"out": "/tmp/x"}] * 9},
        {"turn": 0},
        {"launcher": {"command": ["mpirun"]}},
    ],
)
def test_invalid_requests_are_rejected(agent: Agent, tmp_path: Path, keys: dict[str, Any]) -> None:
    finished = run(agent, tmp_path, "name, count = 'a', 100\n", **keys)
    assert finished["outcome"] == "exited"
    assert "cannot be run" in finished["message"]
