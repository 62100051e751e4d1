"""Runs estimates and reads their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_driver import Agent, log

SECONDS = 20.0


def estimate(agent: Agent, folder: Path, text: str, **keys: Any) -> dict[str, Any]:
    """Estimates a script and returns its `finished` event, with `ops.json` as `ops`."""
    (folder / "train.py").write_text(text)
    keys = {"op": "estimate", "limits": {"seconds": SECONDS}, **keys}
    entry = {"kind": "script", "path": str(folder / "train.py")}
    identifier = agent.start_entry(folder, entry, **keys)
    finished = agent.wait_for("finished", id=identifier)
    path = folder / "out" / "ops.json"
    finished["ops"] = json.loads(path.read_text()) if path.exists() else None
    return finished


def complete_estimate(agent: Agent, folder: Path, text: str, **keys: Any) -> dict[str, Any]:
    """Estimates a script that must complete and returns its operators and memory."""
    finished = estimate(agent, folder, text, **keys)
    assert finished["outcome"] == "complete", (finished, log(folder))
    ops: dict[str, Any] = finished["ops"]
    assert (ops["outcome"], ops["failure"], ops["notes"]) == ("complete", None, []), ops
    return ops


def operators(ops: dict[str, Any]) -> list[tuple[str, int, int, str]]:
    """The operators in order, as `(operator, phase, line, module)`."""
    columns = ops["ops"]
    paths = [module["path"] for module in ops["modules"]]
    return [
        (
            ops["signatures"][signature]["op"].removeprefix("aten::"),
            phase,
            ops["stacks"][stack][2] if stack >= 0 else -1,
            paths[module] if module >= 0 else "",
        )
        for signature, phase, stack, module in zip(
            columns["signature"], columns["phase"], columns["stack"], columns["module"]
        )
    ]


TRAINING = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 256)
        self.second = nn.Linear(256, 8)
    def forward(self, x):
        x = self.first(x)
        x = torch.relu(x)
        return self.second(x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(5):
    x = torch.randn(512, 64)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
