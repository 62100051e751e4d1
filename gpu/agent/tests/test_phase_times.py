"""Times of the phases in timed iterations."""

from __future__ import annotations

from collections.abc import Iterator

from recording import record
from ridgeline_agent.patches.hooks import BACKWARD, DATA, OPTIMIZER
from ridgeline_agent.record.phase_times import PhaseTimes


def phase_times_at(*times: int) -> PhaseTimes:
    ticks: Iterator[int] = iter(times)
    return PhaseTimes(lambda: next(ticks))


def test_time_belongs_to_innermost_phase() -> None:
    times = phase_times_at(0, 10, 30, 40, 100, 110)
    times.entered(BACKWARD)
    times.left(BACKWARD)
    times.entered(OPTIMIZER)
    times.entered(DATA)
    times.left(OPTIMIZER)
    times.left(DATA)
    times.iteration_ended()
    assert times.json(1) == {"backward": [10], "optimizer": [10]}
    assert times.json(2) == {}


def test_backward_inside_optimizer_step() -> None:
    times = phase_times_at(*range(10))
    times.entered(OPTIMIZER)
    times.entered(BACKWARD)
    times.left(BACKWARD)
    times.left(OPTIMIZER)
    times.iteration_ended()
    assert times.json(1) == {}


PROGRAM = """
    import time
    import torch
    from torch import nn
    class Slow(torch.optim.SGD):
        def step(self, closure=None):
            time.sleep(0.01)
            return super().step(closure)
    model = nn.Linear(8, 8)
    optimizer = Slow(model.parameters(), lr=0.1)
    for _ in range(20):
        time.sleep(0.02)
        loss = model(torch.randn(4, 8)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_phases_of_program() -> None:
    iterations = record(PROGRAM).manifest["iterations"]
    phases = iterations["timed_phases"]
    assert len(phases["backward"]) == len(phases["optimizer"]) == len(iterations["timed_ns"])
    for backward, update, total in zip(*phases.values(), iterations["timed_ns"]):
        assert backward > 0 and update >= 10e6 and backward + update + 20e6 <= total


def test_no_phases_with_closure() -> None:
    program = """
    import torch
    from torch import nn
    model = nn.Linear(8, 8)
    optimizer = torch.optim.LBFGS(model.parameters())
    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().sum()
        loss.backward()
        return loss
    for _ in range(20):
        optimizer.step(closure)
    """
    assert record(program).manifest["iterations"]["timed_phases"] == {}
