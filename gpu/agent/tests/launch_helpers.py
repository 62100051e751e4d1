"""Launches runs of two ranks and checks their recordings."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from agent_driver import Agent, is_alive
from ridgeline_agent.system.process_tree import descendants

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# For tests that do not depend on the launcher.
FORKED = {"command": [sys.executable, str(Path(__file__).with_name("fork_ranks.py"))]}
ITERATIONS = {"warmup": 1, "timed": 2, "profiled": 1}

TRAINING = """\
import os, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(16, 4)
def train(iterations):
    for step in range(iterations):
        step_hook(step)
        model(torch.randn(8, 16)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data.sub_(parameter.grad)
            parameter.grad = None
def step_hook(step):
    {step_hook}
train(1000)
"""
# The line that replaces `{step_hook}`, and the lines at which a rank waits for the other one.
HOOK_LINE, BACKWARD_LINE, ALL_REDUCE_LINE = 16, 10, 12


def start(agent: Agent, folder: Path, step_hook: str = "pass", **keys: Any) -> int:
    """Requests a launched run of the training and returns its ID. `step_hook` runs in each step."""
    (folder / "out").mkdir(exist_ok=True)
    text = TRAINING.replace("{step_hook}", step_hook)
    keys = {"launcher": {"command": TORCHRUN}, "iterations": ITERATIONS, **keys}
    return agent.start(folder, text, **keys)


def run(agent: Agent, folder: Path, step_hook: str = "pass", **keys: Any) -> dict[str, Any]:
    """Launches a run and returns its `finished` event.

    torchrun releases its free port before a rank binds it. If another program takes the port in
    between, the run is started again.
    """
    finished = agent.wait_for("finished", id=start(agent, folder, step_hook, **keys))
    if "EADDRINUSE" in (finished["message"] or ""):
        shutil.rmtree(folder / "out")
        finished = agent.wait_for("finished", id=start(agent, folder, step_hook, **keys))
    remaining = [pid for pid in descendants(agent.process.pid) if is_alive(pid)]
    assert remaining == [], "processes outlive the run"
    return finished


def manifest_of(folder: Path, rank: int) -> dict[str, Any]:
    out = folder / "out" if rank == 0 else folder / "out" / f"rank-{rank}"
    loaded: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return loaded


def check_recordings(folder: Path) -> None:
    for rank in (0, 1):
        result = manifest_of(folder, rank)
        assert result["status"] == "complete"
        iterations = result["iterations"]
        # All ranks must profile the same iterations, or their collectives would not match.
        assert (iterations["seen"], len(iterations["profiled"])) == (4, 1), result["notes"]
        assert not [note for note in result["notes"] if "other ranks" in note], result["notes"]
    names = {path.name for path in (folder / "out").iterdir()}
    assert {"trace.json", "lines.bin", "log.txt", "rank-1"} <= names
    assert not {"ranks", "launch.json"} & names
