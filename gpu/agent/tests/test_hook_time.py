"""The time of hooks is not part of the timed iterations."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from ridgeline_agent.patches import harmless as harmless_module
from ridgeline_agent.patches.harmless import HookGuard, Notes, harmless
from ridgeline_agent.record import timing
from ridgeline_agent.record.timing import Timer
from ridgeline_agent.system import hook_time


class Clock:
    """A clock that only the test advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000
        for module in (harmless_module, hook_time, timing):
            monkeypatch.setattr(module, "perf_counter_ns", lambda: self.now)


class Hooks:
    """A hook that does what it is given."""

    def __init__(self) -> None:
        self.guard = HookGuard(Notes("the profiler"))
        self.timer = Timer(torch.device("cpu"), self.guard.time)

    @harmless
    def hook(self, work: Callable[[], None]) -> None:
        work()


def test_hooks_are_not_part_of_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, hooks = Clock(monkeypatch), Hooks()
    timer = hooks.timer

    def takes(ns: int) -> None:
        clock.now += ns

    def boundary() -> None:
        takes(3)
        if timer._begun:
            timer.end(clock.now)
        takes(50)
        timer.begin()
        takes(7)

    hooks.hook(boundary)
    for work in (100, 200):
        takes(work)
        hooks.hook(lambda: takes(11))
        takes(1)
        # One hook within another is counted once.
        hooks.hook(lambda: hooks.hook(lambda: takes(13)))
        hooks.hook(boundary)
    assert timer.host_ns == [101, 201]


def test_hooks_of_other_threads_take_no_time_of_an_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, hooks = Clock(monkeypatch), Hooks()
    timer = hooks.timer

    def takes(ns: int) -> None:
        clock.now += ns

    hooks.hook(timer.begin)
    takes(100)
    other = threading.Thread(target=lambda: hooks.hook(lambda: takes(40)))
    other.start()
    other.join()
    hooks.hook(lambda: timer.end(clock.now))
    assert timer.host_ns == [140]
