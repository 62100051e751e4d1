"""Rounds of nested loops, whose lengths are known from the source."""

from __future__ import annotations

import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from recording import record
from ridgeline_agent.iterations.rhythm import Round, rhythm
from ridgeline_agent.patches.overlay import Overlay
from ridgeline_agent.program.sources import Sources, UserCode
from ridgeline_agent.record.pass_length import PassLength
from ridgeline_agent.record.rounds import round_of

MS = 1_000_000
ITERATIONS = {"warmup": 2, "timed": 3, "timed_at_most": 6, "profiled": 2}


def rounds_at(tmp_path: Path, text: str, **variables: Any) -> list[Round | None]:
    """Runs a program, and returns the round at each call of `here()`."""
    file = tmp_path / "train.py"
    file.write_text(text)
    sources = Sources(UserCode(str(tmp_path), [str(tmp_path)], [], []), Overlay(str(tmp_path), {}))
    sources.file(str(file))
    sources.read_texts_of_files(time.time_ns())
    found: list[Round | None] = []

    def here() -> None:
        found.append(round_of(sys._getframe(1), sources))

    exec(compile(text, str(file), "exec"), {"__name__": "__main__", "here": here, **variables})
    return found


@pytest.mark.parametrize("bar", ["tqdm(range(epochs), desc='')", "trange(epochs)"])
def test_round_of_one_loop(tmp_path: Path, bar: str) -> None:
    text = """
for episode in range(2):
    for epoch in range(epochs):
        here()
"""
    found = rounds_at(tmp_path, text, epochs=3)
    text = text.replace("range(epochs)", bar)
    assert rounds_at(tmp_path, text, epochs=3, tqdm=lambda it, desc: it, trange=range) == found
    assert found == [Round(3, 1), Round(3, 2), Round(3, 3)] * 2
    assert [one.place for one in found[:3] if one] == [2, 1, 0]


def test_round_of_nested_loops_and_functions(tmp_path: Path) -> None:
    text = """
class Agent:
    epochs = 2
    def update(self):
        for _ in range(self.epochs):
            for start in range(0, args.batch, args.batch // 4):
                here()
while agent.goes_on:
    agent.goes_on = False
    agent.update()
"""
    text = text.replace("while agent", "agent = Agent()\nagent.goes_on = True\nwhile agent")
    found = rounds_at(tmp_path, text, args=types.SimpleNamespace(batch=20))
    assert found == [Round(8, done) for done in range(1, 9)]


@pytest.mark.parametrize(
    "loops",
    [
        # Nothing repeats the loop.
        "for step in range(3):\n  here()",
        "for epoch in range(2):\n for batch in [1, 2, 3]:\n  here()",
        "for epoch in range(2):\n for step in range(1, 1000):\n  here()\n  break",
        # The value would come from code of the program.
        "for epoch in range(2):\n for step in range(length()):\n  here()",
        "for epoch in range(2):\n for step in range(settings.steps):\n  here()",
        # The variable was overwritten.
        "for epoch in range(2):\n for _ in range(3):\n  _ = 'loss'\n  here()",
        "for epoch in range(2):\n for step in range(True + 2):\n  here()",
        "for epoch in range(2):\n for step in range(4 if zero else 3):\n  here()",
    ],
)
def test_unknown_rounds(tmp_path: Path, loops: str) -> None:
    names = {"settings": Settings(), "length": lambda: 3, "zero": 0}
    assert set(rounds_at(tmp_path, loops, **names)) == {None}


class Settings:
    """A length that only the program's code knows."""

    @property
    def steps(self) -> int:
        return 3


def learned(tmp_path: Path, text: str) -> list[Round | None]:
    """Runs a program, and returns what is learned at each call of `here()`."""
    installed = tmp_path / "site-packages"
    installed.mkdir(exist_ok=True)
    file = installed / f"library{len(list(installed.iterdir()))}.py"
    file.write_text(text)
    sources = Sources(UserCode(str(tmp_path / "a"), [], [], []), Overlay(str(tmp_path), {}))
    found: list[Round | None] = []
    passes = PassLength(sources)

    def here() -> None:
        found.append(passes.iteration_ended(sys._getframe(1)))

    exec(compile(text, str(file), "exec"), {"__name__": "__main__", "here": here})
    return found


def test_the_length_of_a_pass_is_learned_also_from_a_library(tmp_path: Path) -> None:
    text = """
class Agent:
    epochs = 4
    def update(self):
        for epoch in range(self.epochs):
            for batch in iter([1, 2, 3]):
                for _ in range(1):
                    here()
agent = Agent()
for round in iter([1, 2]):
    agent.update()
"""
    found = learned(tmp_path, text)
    # The first pass was under way. The second one has ended when the third one begins.
    assert found.index(Round(12, 7)) == 6
    assert [one for one in found if one] == [Round(12, 7)]
    assert learned(tmp_path, text.replace("iter([1, 2, 3])", "range(3)")) == [None] * 24


@pytest.mark.parametrize(
    "loops",
    [
        "for batch in iter([1, 2, 3]):\n  here()",
        # The number of passes is unknown.
        "for epoch in [1, 2, 3, 4]:\n for batch in [1, 2]:\n  here()",
        # Only one pass.
        "for epoch in range(1):\n for batch in [1, 2, 3]:\n  here()",
        # The variable was overwritten.
        "for epoch in range(4):\n for batch in [1, 2]:\n  here()\n  epoch = 'loss'",
        # Passes are skipped.
        "for epoch in range(9):\n for batch in [1, 2] if epoch % 2 else []:\n  here()",
    ],
)
def test_unknown_lengths_of_passes(tmp_path: Path, loops: str) -> None:
    assert set(learned(tmp_path, loops)) == {None}


def test_a_slow_first_iteration_of_a_round_is_periodic() -> None:
    times = [2] * 37 + [500] + [2] * 50
    assert rhythm([time * MS for time in times]).period is None
    of_loops = Round(80, 80 - 37)
    found = rhythm([time * MS for time in times], of_loops)
    assert (found.slow, found.period, found.place, found.is_settled) == ((37,), 80, 37, True)
    # The slow one is another one.
    assert rhythm([time * MS for time in times], Round(80, 80 - 36)).period is None
    # Not a whole round.
    assert rhythm([time * MS for time in times[:79]], of_loops).period is None


ROLLOUTS = """
    import time
    import torch
    from torch import nn
    from ridgeline_agent.record import stack_samples
    stack_samples._INTERVAL_SECONDS = 0.002
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.ones(3, 4)
    epochs = 3

    def update():
        global iteration_ms
        for _ in range(epochs):
            for start in range(0, 100, 2):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
                iteration_ms = 5

    while True:
        iteration_ms = 900
        time.sleep(0.05)  # collect
        update()  # update
"""


def test_rollouts_before_many_updates() -> None:
    recording = record(ROLLOUTS, iterations=ITERATIONS)
    assert recording.outcome == "complete", recording.printed
    iterations = recording.manifest["iterations"]
    timed_ms = [ns // MS for ns in iterations["timed_ns"]]
    assert len(timed_ms) >= 150
    assert iterations["period"] == 150
    assert iterations["slow"] == [timed_ms.index(900)]
    # A whole round is too long to be profiled, so samples of the stack show what is slow.
    stacks = [
        ([at["line"] for at in stack["lines"]], stack["slow"], stack["others"])
        for stack in iterations["slow_stacks"]
    ]
    collect = recording.line_of("# collect")
    of_collect = sum(slow for lines, slow, _ in stacks if lines == [collect])
    assert of_collect > sum(slow for _, slow, _ in stacks) / 2
    assert not any(others for lines, _, others in stacks if lines == [collect])
    update = recording.line_of("# update")
    assert any(lines[0] == update and others for lines, _, others in stacks)
    assert recording.manifest["notes"] == []


def test_rollouts_before_updates_with_batches_of_a_generator() -> None:
    program = ROLLOUTS.replace("in range(0, 100, 2)", "in iter([0] * 50)")
    recording = record(program, iterations=ITERATIONS)
    assert recording.outcome == "complete", recording.printed
    iterations = recording.manifest["iterations"]
    timed_ms = [ns // MS for ns in iterations["timed_ns"]]
    assert iterations["period"] == 150
    assert iterations["slow"] == [timed_ms.index(900)]


EVALUATIONS = """
    import time
    import torch
    from torch import nn
    from ridgeline_agent.record.extra import more_times
    more_times._MAX_NS = more_times._MAX_NS_OF_ROUND = 500_000_000
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.ones(3, 4)

    for epoch in range(10):
        for step in range(50):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        evaluate()
"""


@pytest.mark.parametrize(
    "evaluate",
    [
        "time.sleep(60)",
        # About when it is given up.
        "time.sleep(0.98) or exit()",
    ],
)
def test_long_evaluations_are_not_waited_for(evaluate: str) -> None:
    program = EVALUATIONS.replace("evaluate()", evaluate)
    recording = record(program, iterations=ITERATIONS)
    assert recording.outcome == "complete", recording.printed
    assert 24 <= len(recording.manifest["iterations"]["timed_ns"]) < 50
    if "60" in evaluate:
        (note,) = recording.manifest["notes"]
        assert note.startswith("after every 50 iterations, the program does something")
        line = 1 + program.splitlines().index("        time.sleep(60)")
        assert f"a few seconds (train.py:{line}). Times" in note
