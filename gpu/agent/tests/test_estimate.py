"""Estimates: the operators that a program would run, determined without running them."""

from __future__ import annotations

from pathlib import Path

from agent_driver import Agent
from estimate_helpers import TRAINING, complete_estimate, estimate, operators


def test_operators_have_phase_line_and_module(agent: Agent, tmp_path: Path) -> None:
    ops = complete_estimate(agent, tmp_path, TRAINING)
    operations = operators(ops)
    assert ("addmm", 1, 9, "first") in operations
    assert ("relu", 1, 10, "") in operations
    assert ("addmm", 1, 11, "second") in operations
    assert ("threshold_backward", 2, 10, "") in operations
    # A weight gradient is attributed to the line and the module of the forward operator.
    assert [operation for operation in operations if operation[0] == "mm"] == [
        ("mm", 2, 11, "second"),
        ("mm", 2, 11, "second"),
        ("mm", 2, 9, "first"),
    ]
    assert {line for _, phase, line, _ in operations if phase == 3} == {19}
    assert not [operation for operation in operations if operation[2] < 0]
    assert ops["loop"] == {"file": 0, "line": 14}
    assert ops["batch"] == {"size": 512, "from": "input", "certain": True}
    assert ops["files"] == ["train.py"]


def test_memory_at_peak(agent: Agent, tmp_path: Path) -> None:
    ops = complete_estimate(agent, tmp_path, TRAINING)
    weights = 4 * (64 * 256 + 256 + 256 * 8 + 8)
    allocated: dict[str, int] = {}
    for size, kind, _, _ in ops["memory"]["at_peak"]:
        allocated[kind] = allocated.get(kind, 0) + size
    assert allocated["weight"] == allocated["optimizer_state"] == weights
    assert ops["memory"]["baseline_bytes"] == 2 * weights
    # relu saves its output. The output of the linear layer is freed when `x` is reassigned.
    assert allocated["activation"] == 4 * (512 * 256 + 1)
    assert allocated["batch"] == 4 * 512 * 64
    assert ops["memory"]["peak_bytes"] == sum(allocated.values())


def test_overlay_and_syntax_error(agent: Agent, tmp_path: Path) -> None:
    wider = TRAINING.replace("256", "512")
    ops = complete_estimate(agent, tmp_path, TRAINING, overlay={"train.py": wider})
    assert {"t": "float32", "s": [512, 512]} in [
        tensor for signature in ops["signatures"] for tensor in signature["out"]
    ]
    finished = estimate(agent, tmp_path, TRAINING, overlay={"train.py": "import torch\nfor"})
    assert finished["outcome"] == "failed"
    assert finished["ops"]["failure"]["kind"] == "syntax"
    assert finished["ops"]["failure"]["frames"][-1]["line"] == 2


def test_failure_reports_line_and_preceding_operators(agent: Agent, tmp_path: Path) -> None:
    text = TRAINING.replace("nn.Linear(256, 8)", "nn.Linear(128, 8)")
    finished = estimate(agent, tmp_path, text)
    assert finished["outcome"] == "failed"
    ops = finished["ops"]
    assert ops["outcome"] == "partial"
    assert ops["failure"]["frames"][-1]["line"] == 11
    assert ("addmm", 1, 9, "first") in operators(ops)


def test_endless_loop_gives_partial_estimate(agent: Agent, tmp_path: Path) -> None:
    text = TRAINING + "\n".join(["while True:", "    x = x + 1"]) + "\n"
    text = text.replace("range(5)", "range(0)").replace("while", "x = torch.ones(4)\nwhile")
    finished = estimate(agent, tmp_path, text, limits={"seconds": 2})
    assert finished["outcome"] == "short"
    assert "within 2" in finished["message"] or "too many operators" in finished["message"]
    assert finished["ops"]["outcome"] == "partial"


ROLLOUT_FIRST = """\
import torch
from torch import nn
policy = nn.Linear(16, 4)
optimizer = torch.optim.Adam(policy.parameters())
LOOP
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


def test_rollout_before_optimizer_steps(agent: Agent, tmp_path: Path) -> None:
    ops = complete_estimate(agent, tmp_path, ROLLOUT_FIRST.replace("LOOP", "for _ in range(3):"))
    assert ops["found_by"] == "optimizer"
    lines = {line for _, _, line, _ in operators(ops)}
    assert lines == {14, 16, 17}
    assert ops["loop"] == {"file": 0, "line": 13}
    assert ops["batch"]["size"] == 50


def test_optimizer_that_never_steps(agent: Agent, tmp_path: Path) -> None:
    text = ROLLOUT_FIRST.replace("LOOP", "for _ in range(1):").partition("    for part")[0]
    ops = complete_estimate(agent, tmp_path, text)
    assert ops["found_by"] == "module"
    # One call of the module and the operators after it.
    assert [name for name, *_ in operators(ops)].count("addmm") == 1


def test_optimizer_that_does_not_step_within_time_limit(agent: Agent, tmp_path: Path) -> None:
    text = ROLLOUT_FIRST.replace("LOOP", "for _ in range(1):").replace("range(300)", "iter(int, 1)")
    finished = estimate(agent, tmp_path, text, limits={"seconds": 3})
    assert finished["outcome"] == "short"
    assert finished["message"] == "the optimizer did not step within 3 s"
    assert finished["ops"]["outcome"] == "partial"
    assert ("addmm", 1, 10, "") in operators(finished["ops"])
