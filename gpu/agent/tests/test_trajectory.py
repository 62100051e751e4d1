"""The losses and gradients of a program's first steps, compared between versions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_driver import Agent

PROGRAM = """\
import random, torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(50):
    x = torch.randn(32, 8) + random.random()
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
"""


def run(agent: Agent, folder: Path, program: str, **keys: Any) -> dict[str, Any]:
    number = agent.start(folder, program, **{"trajectory": 5, **keys})
    finished = agent.wait_for("finished", id=number)
    assert finished["outcome"] == "complete", finished
    values: dict[str, Any] = json.loads((folder / "out" / "trajectory.json").read_text())
    assert not (folder / "out" / "manifest.json").exists()
    return values


def test_the_same_program_has_the_same_values(agent: Agent, tmp_path: Path) -> None:
    first = run(agent, tmp_path, PROGRAM)
    assert len(first["losses"]) == 5
    assert [count for count, _ in first["gradient_norms"]] == [1, 2, 3, 4, 5]
    assert all(value > 0 for _, value in first["gradient_norms"])
    assert run(agent, tmp_path, PROGRAM) == first
    fused = run(agent, tmp_path, PROGRAM.replace("lr=0.01", "lr=0.01, foreach=True"))
    assert fused["losses"] == pytest.approx(first["losses"], rel=1e-4)
    other = run(agent, tmp_path, PROGRAM.replace("lr=0.01", "lr=0.3"))
    # The first loss is before any step.
    assert other["losses"][0] == first["losses"][0]
    assert other["losses"][4] != pytest.approx(first["losses"][4], rel=0.05)


def test_compiled_code_draws_the_same_random_numbers(agent: Agent, tmp_path: Path) -> None:
    compiled = PROGRAM.replace(
        "optimizer =", "model = torch.compile(model, backend='aot_eager')\noptimizer ="
    )
    first = run(agent, tmp_path, PROGRAM)
    assert run(agent, tmp_path, compiled)["losses"] == pytest.approx(first["losses"], rel=1e-4)


def test_scaled_losses_are_divided_by_their_scale(agent: Agent, tmp_path: Path) -> None:
    scaled = PROGRAM.replace("optimizer =", "scaler = torch.amp.GradScaler('cpu')\noptimizer =", 1)
    scaled = scaled.replace("loss.backward()", "scaler.scale(loss).backward()")
    scaled = scaled.replace("optimizer.step()", "scaler.step(optimizer)\n    scaler.update()")
    first, second = run(agent, tmp_path, PROGRAM), run(agent, tmp_path, scaled)
    assert second["losses"] == pytest.approx(first["losses"], rel=1e-3)
    norms = [[norm for _, norm in one["gradient_norms"]] for one in (first, second)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)


def test_accumulated_gradients_and_short_programs(agent: Agent, tmp_path: Path) -> None:
    program = """\
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    torch.autograd.backward([model(torch.ones(2, 4)).mean(), model(torch.ones(2, 4)).mean()])
    if step % 3 == 2:
        optimizer.step()
        optimizer.zero_grad()
"""
    values = run(agent, tmp_path, program)
    assert len(values["losses"]) == 6
    assert [count for count, _ in values["gradient_norms"]] == [3, 6]


def test_losses_that_are_not_finite(agent: Agent, tmp_path: Path) -> None:
    values = run(agent, tmp_path, PROGRAM.replace(".mean()\n", ".mean() * float('inf')\n"))
    assert values["losses"][0] is None
    assert not any(isinstance(one, float) and math.isnan(one) for one in values["losses"])


def test_a_program_that_fails(agent: Agent, tmp_path: Path) -> None:
    number = agent.start(tmp_path, "raise ValueError('broken')\n", trajectory=5)
    finished = agent.wait_for("finished", id=number)
    assert finished["outcome"] == "exited", finished
    assert "broken" in finished["message"]


def test_sparse_gradients(agent: Agent, tmp_path: Path) -> None:
    program = """\
import torch
table = torch.nn.Embedding(10, 4, sparse=True)
optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
for step in range(9):
    table(torch.tensor([1, 1, 2])).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    values = run(agent, tmp_path, program)
    # Row 1 was used twice.
    expected = math.sqrt(4 * 2**2 + 4 * 1**2)
    assert [norm for _, norm in values["gradient_norms"]] == pytest.approx([expected] * 5)
    assert torch.tensor(values["losses"]).isfinite().all()


def test_an_overlay_is_what_runs(agent: Agent, tmp_path: Path) -> None:
    first = run(agent, tmp_path, PROGRAM)
    edited = run(agent, tmp_path, PROGRAM, overlay={"train.py": PROGRAM.replace("0.01", "0.1")})
    assert edited["losses"][0] == first["losses"][0]
    assert edited["losses"][4] != first["losses"][4]
    half = PROGRAM.replace(
        "    loss = (", "    with torch.autocast('cpu', torch.bfloat16): loss = ("
    )
    edited = run(agent, tmp_path, PROGRAM, overlay={"train.py": half})
    assert edited["losses"][0] != first["losses"][0]
    assert edited["losses"] == pytest.approx(first["losses"], rel=0.05)
