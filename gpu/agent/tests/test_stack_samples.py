"""Samples of the stack in slow iterations."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ridgeline_agent.patches.overlay import Overlay
from ridgeline_agent.program.sources import Sources, UserCode
from ridgeline_agent.record import stack_samples
from ridgeline_agent.record.stack_samples import StackSamples


def sources(tmp_path: Path) -> Sources:
    user_code = UserCode(str(tmp_path), [str(tmp_path)], [], [])
    return Sources(user_code, Overlay(str(tmp_path), {}))


def functions(tmp_path: Path) -> dict[str, Callable[[StackSamples], bool]]:
    path = tmp_path / "program.py"
    path.write_text("def train(s):\n    return s.take()\ndef evaluate(s):\n    return train(s)\n")
    defined: dict[str, Callable[[StackSamples], bool]] = {}
    exec(compile(path.read_text(), str(path), "exec"), defined)
    return defined


def test_stacks_of_slow_iterations_and_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_samples, "_INTERVAL_SECONDS", 3600)
    of = functions(tmp_path)
    samples = StackSamples()
    for name in ("train", "evaluate", "train"):
        assert of[name](samples) and of["train"](samples)
        samples.iteration_ended()
    # The last iteration does not end.
    assert of["evaluate"](samples)
    samples.stop()
    assert not of["evaluate"](samples)
    here = sources(tmp_path)
    assert samples.json((), here) == []
    # Only lines of user code, which this test is not.
    assert samples.json({1}, here) == [
        {"lines": [{"file": 0, "line": 2}], "slow": 1, "others": 4},
        {"lines": [{"file": 0, "line": 4}, {"file": 0, "line": 2}], "slow": 1, "others": 0},
    ]


def test_number_of_samples_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_samples, "_INTERVAL_SECONDS", 3600)
    monkeypatch.setattr(stack_samples, "_MAX_SAMPLES", 2)
    samples = StackSamples()
    assert [samples.take() for _ in range(3)] == [True, True, False]


def test_sampling_ends_with_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_samples, "_INTERVAL_SECONDS", 0.001)
    ended = threading.Event()
    sample = stack_samples._sample

    def sampled(samples: object) -> None:
        sample(samples)  # type: ignore[arg-type]
        ended.set()

    monkeypatch.setattr(stack_samples, "_sample", sampled)
    samples = StackSamples()
    time.sleep(0.05)
    assert not ended.is_set()
    del samples
    gc.collect()
    assert ended.wait(30)
