"""Versions of a program take turns of a few iterations."""

from __future__ import annotations

import json
import os
import re
import signal
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from agent_driver import Agent, all_end

# Each iteration writes who it is into one file, in the order in which they happen.
PROGRAM = """\
import torch
from who import name, most
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(most):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    with open("order.txt", "a") as order:
        order.write(name)
    optimizer.step()
"""


def versions(folder: Path, *texts: str) -> list[dict[str, Any]]:
    return [
        {"out": str(folder / "out" / str(number)), "overlay": {"who.py": text}}
        for number, text in enumerate(texts)
    ]


def start(agent: Agent, folder: Path, *texts: str, program: str = PROGRAM, **keys: Any) -> int:
    (folder / "who.py").write_text("raise RuntimeError('the file itself')\n")
    iterations = {"warmup": 2, "timed": 6, "profiled": 1}
    of_all = {"versions": versions(folder, *texts), "turn": 3, "iterations": iterations}
    return agent.start(folder, program, **{**of_all, **keys})


def run(agent: Agent, folder: Path, *texts: str, **keys: Any) -> dict[str, Any]:
    return agent.wait_for("finished", id=start(agent, folder, *texts, **keys))


def manifest(folder: Path, number: int) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "out" / str(number) / "manifest.json").read_text())
    return read


def test_they_take_turns_and_each_has_its_recording(agent: Agent, tmp_path: Path) -> None:
    texts = [f"name, most = {name!r}, 100\n" for name in "abc"]
    finished = run(agent, tmp_path, *texts)
    assert finished["outcome"] == "complete", finished
    order = (tmp_path / "order.txt").read_text()
    turns = [(who, len(list(some))) for who, some in groupby(order)]
    # The warm-up, two turns, and what follows upon them, of each.
    assert turns[:9] == [(who, count) for count in (2, 3, 3) for who in "abc"]
    assert "".join(who for who, _ in turns[9:]) == "abc"
    for number in range(3):
        told = manifest(tmp_path, number)
        assert told["status"] == "complete"
        assert len(told["iterations"]["timed_ns"]) == 6
    assert not (tmp_path / "out" / "manifest.json").exists()
    # The agent serves the next run as before.
    assert agent.run(tmp_path, PROGRAM, overlay={"who.py": texts[0]})["outcome"] == "complete"


# A bracket opens where the time of an iteration begins, and closes where it ends.
SAYS_WHEN_IT_IS_TIMED = """\
from ridgeline_agent.record.timing import Timer
name, most = NAME, 100
begin, end = Timer.begin, Timer.end
def write(text):
    with open("order.txt", "a") as order:
        order.write(text)
Timer.begin = lambda timer: (begin(timer), write("("))
Timer.end = lambda timer, now_ns: (write(")"), end(timer, now_ns))
"""


def test_the_time_of_the_others_does_not_count(agent: Agent, tmp_path: Path) -> None:
    texts = [SAYS_WHEN_IT_IS_TIMED.replace("NAME", repr(name)) for name in "ab"]
    finished = run(agent, tmp_path, *texts)
    assert finished["outcome"] == "complete", finished
    order = (tmp_path / "order.txt").read_text()
    timed = re.findall(r"\((.+?)\)", order)
    assert sorted(timed) == ["a"] * 6 + ["b"] * 6, order


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("name, most = 'b', 7\n", "short"),
        ("raise ValueError('not this one')\n", "failed"),
        ("import os\nos._exit(3)\n", "exited"),
    ],
)
def test_one_that_ends_ends_the_run(agent: Agent, tmp_path: Path, text: str, outcome: str) -> None:
    finished = run(agent, tmp_path, "name, most = 'a', 10_000\n", text)
    assert finished["outcome"] == outcome, finished
    if outcome == "failed":
        assert "not this one" in finished["message"]
    if outcome == "exited":
        assert "with code 3" in finished["message"]
    if outcome == "short":
        assert manifest(tmp_path, 1)["iterations"]["seen"] == 7


def test_nothing_is_left_of_a_run_that_is_cancelled(agent: Agent, tmp_path: Path) -> None:
    program = PROGRAM + "while True: pass\n"
    told = "import os\nopen('pids.txt', 'a').write(f'{os.getpid()}\\n')\nname, most = 'a', 3\n"
    number = start(agent, tmp_path, told, told, program=program)
    agent.wait_for("started", id=number)
    pids = tmp_path / "pids.txt"
    while not pids.exists() or "\n" not in pids.read_text():
        os.sched_yield()
    agent.send({"op": "cancel", "id": number})
    assert agent.wait_for("finished", id=number)["outcome"] == "cancelled"
    assert all_end([int(pid) for pid in pids.read_text().split()])


def test_one_that_is_killed_ends_the_run(agent: Agent, tmp_path: Path) -> None:
    text = f"import os, signal\nname, most = 'b', 9\nos.kill(os.getpid(), {signal.SIGKILL:d})\n"
    finished = run(agent, tmp_path, "name, most = 'a', 10_000\n", text)
    assert finished["outcome"] == "exited"
    assert "with code -9" in finished["message"]


def test_where_a_fork_is_not_safe_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from ridgeline_agent.process import side_by_side
    from ridgeline_agent.protocol.spec import NO_ENTRY, RunSpec

    class Ended(Exception):
        pass

    class Host:
        def finish(self, outcome: str, message: str | None = None) -> None:
            raise Ended(outcome, message)

    def run(*_: Any) -> None:
        raise AssertionError("nothing may be started")

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
def test_strange_requests_are_refused(agent: Agent, tmp_path: Path, keys: dict[str, Any]) -> None:
    finished = run(agent, tmp_path, "name, most = 'a', 100\n", **keys)
    assert finished["outcome"] == "exited"
    assert "cannot be run" in finished["message"]
