"""Estimates: what a program would run, without running it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_driver import Agent, log

SECONDS = 20.0


def estimate(agent: Agent, folder: Path, text: str, **keys: Any) -> dict[str, Any]:
    """The `finished` of an estimate of the text, with its list as `ops`."""
    (folder / "train.py").write_text(text)
    keys = {"op": "estimate", "limits": {"seconds": SECONDS}, **keys}
    entry = {"kind": "script", "path": str(folder / "train.py")}
    identifier = agent.start_entry(folder, entry, **keys)
    finished = agent.wait_for("finished", id=identifier)
    path = folder / "out" / "ops.json"
    finished["ops"] = json.loads(path.read_text()) if path.exists() else None
    return finished


def listed(agent: Agent, folder: Path, text: str, **keys: Any) -> dict[str, Any]:
    """The list of a program that can be estimated whole."""
    finished = estimate(agent, folder, text, **keys)
    assert finished["outcome"] == "complete", (finished, log(folder))
    ops: dict[str, Any] = finished["ops"]
    assert (ops["outcome"], ops["failure"], ops["notes"]) == ("complete", None, []), ops
    return ops


def operators(ops: dict[str, Any]) -> list[tuple[str, int, int, str]]:
    """`(operator, phase, line, module)`, in order."""
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


def test_operators_have_their_phase_line_and_module(agent: Agent, tmp_path: Path) -> None:
    ops = listed(agent, tmp_path, TRAINING)
    seen = operators(ops)
    assert ("addmm", 1, 9, "first") in seen
    assert ("relu", 1, 10, "") in seen
    assert ("addmm", 1, 11, "second") in seen
    assert ("threshold_backward", 2, 10, "") in seen
    # The gradient of a weight belongs to the line of the forward operator, and to its module.
    assert [part for part in seen if part[0] == "mm"] == [
        ("mm", 2, 11, "second"),
        ("mm", 2, 11, "second"),
        ("mm", 2, 9, "first"),
    ]
    assert {line for _, phase, line, _ in seen if phase == 3} == {19}
    assert not [part for part in seen if part[2] < 0]
    assert ops["loop"] == {"file": 0, "line": 14}
    assert ops["batch"] == {"size": 512, "from": "input", "certain": True}
    assert ops["files"] == ["train.py"]


def test_memory_is_what_would_be_held(agent: Agent, tmp_path: Path) -> None:
    ops = listed(agent, tmp_path, TRAINING)
    weights = 4 * (64 * 256 + 256 + 256 * 8 + 8)
    held: dict[str, int] = {}
    for size, kind, _, _ in ops["memory"]["at_peak"]:
        held[kind] = held.get(kind, 0) + size
    assert held["weight"] == held["optimizer_state"] == weights
    assert ops["memory"]["baseline_bytes"] == 2 * weights
    # relu keeps its result, and the linear before it nothing: what it made is given up with `x`.
    assert held["activation"] == 4 * (512 * 256 + 1)
    assert held["batch"] == 4 * 512 * 64
    assert ops["memory"]["peak_bytes"] == sum(held.values())


def test_unsaved_text_and_a_syntax_error(agent: Agent, tmp_path: Path) -> None:
    wider = TRAINING.replace("256", "512")
    ops = listed(agent, tmp_path, TRAINING, overlay={"train.py": wider})
    assert {"t": "float32", "s": [512, 512]} in [
        tensor for signature in ops["signatures"] for tensor in signature["out"]
    ]
    finished = estimate(agent, tmp_path, TRAINING, overlay={"train.py": "import torch\nfor"})
    assert finished["outcome"] == "failed"
    assert finished["ops"]["failure"]["kind"] == "syntax"
    assert finished["ops"]["failure"]["frames"][-1]["line"] == 2


def test_a_mistake_has_its_line_and_what_ran_before(agent: Agent, tmp_path: Path) -> None:
    text = TRAINING.replace("nn.Linear(256, 8)", "nn.Linear(128, 8)")
    finished = estimate(agent, tmp_path, text)
    assert finished["outcome"] == "failed"
    ops = finished["ops"]
    assert ops["outcome"] == "partial"
    assert ops["failure"]["frames"][-1]["line"] == 11
    assert ("addmm", 1, 9, "first") in operators(ops)


def test_an_endless_loop_ends_with_what_it_ran(agent: Agent, tmp_path: Path) -> None:
    text = TRAINING + "\n".join(["while True:", "    x = x + 1"]) + "\n"
    text = text.replace("range(5)", "range(0)").replace("while", "x = torch.ones(4)\nwhile")
    finished = estimate(agent, tmp_path, text, limits={"seconds": 2})
    assert finished["outcome"] == "short"
    assert "within 2" in finished["message"] or "too many operators" in finished["message"]
    assert finished["ops"]["outcome"] == "partial"


PLAYS_FIRST = """\
import torch
from torch import nn
policy = nn.Linear(16, 4)
optimizer = torch.optim.Adam(policy.parameters())
PLAYS
    with torch.no_grad():
        states = []
        for _ in range(300):
            state = torch.randn(1, 16)
            action = policy(state).argmax(-1).item()
            states.append(state)
    states = torch.cat(states)
    for part in states.split(50):
        loss = policy(part).logsumexp(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_program_that_plays_before_it_learns(agent: Agent, tmp_path: Path) -> None:
    ops = listed(agent, tmp_path, PLAYS_FIRST.replace("PLAYS", "for _ in range(3):"))
    assert ops["found_by"] == "optimizer"
    lines = {line for _, _, line, _ in operators(ops)}
    assert lines == {14, 16, 17}
    assert ops["loop"] == {"file": 0, "line": 13}
    assert ops["batch"]["size"] == 50


def test_an_optimizer_that_was_made_for_nothing(agent: Agent, tmp_path: Path) -> None:
    text = PLAYS_FIRST.replace("PLAYS", "for _ in range(1):").partition("    for part")[0]
    ops = listed(agent, tmp_path, text)
    assert ops["found_by"] == "module"
    # One call of the module and what follows it.
    assert [name for name, *_ in operators(ops)].count("addmm") == 1


def test_an_optimizer_that_does_not_step_in_time(agent: Agent, tmp_path: Path) -> None:
    text = PLAYS_FIRST.replace("PLAYS", "for _ in range(1):").replace("range(300)", "iter(int, 1)")
    finished = estimate(agent, tmp_path, text, limits={"seconds": 3})
    assert finished["outcome"] == "short"
    assert finished["message"] == "the optimizer did not step within 3 s"
    assert finished["ops"]["outcome"] == "partial"
    assert ("addmm", 1, 10, "") in operators(finished["ops"])
