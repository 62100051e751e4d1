"""The library that runs the training loop."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path

from recording import record
from ridgeline_agent.program.calling_library import calling_library
from ridgeline_agent.program.sources import UserCode


def function(path: str, body: str) -> Callable[..., types.FrameType]:
    names: dict[str, Callable[..., types.FrameType]] = {"here": lambda: sys._getframe(1)}
    exec(compile(f"def run(*inner):\n    return {body}\n", path, "exec"), names)
    return names["run"]


def test_outermost_package_below_the_user(tmp_path: Path) -> None:
    user_code = UserCode(str(tmp_path), [str(tmp_path)], [], [])
    packages = "/usr/lib/python3/site-packages"
    call = "inner[0](*inner[1:])"
    user = function(str(tmp_path / "train.py"), call)
    trainer = function(f"{packages}/trainers/trainer.py", call)
    step = function(f"{packages}/steps/step.py", "here()")
    adam = function(f"{packages}/torch/optim/adam.py", "here()")
    assert calling_library(user(trainer, step), user_code) == "trainers"
    assert calling_library(user(trainer, adam), user_code) == "trainers"
    # A callback of the user calls another library.
    assert calling_library(user(trainer, user, step), user_code) == "steps"
    assert calling_library(user(adam), user_code) is None


LOOP = """
def fit(model, optimizer, x):
    for _ in range(12):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""


def test_recording_names_the_library_of_the_loop() -> None:
    # The program is over before the recording is written.
    recording = record(f"""
    import torch
    names = {{}}
    exec(compile({LOOP!r}, "/usr/lib/python3/site-packages/trainers/loop.py", "exec"), names)
    model = torch.nn.Linear(4, 2)
    names["fit"](model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(3, 4))
    """)
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["library"] == "trainers"
