"""Errors in hooks do not affect the user's program."""

from __future__ import annotations

import os

import pytest

from ridgeline_agent.patches.harmless import HookGuard, Notes, harmless


class Log:
    """Records the start times of the agent's own work."""

    def __init__(self) -> None:
        self.start_times: list[int] = []

    def recorder_ran(self, began_ns: int) -> None:
        self.start_times.append(began_ns)


class Hooks:
    """Two hooks. One of them starts the profiler."""

    def __init__(self) -> None:
        self.guard = HookGuard(Notes("the profiler"))
        self.log = Log()

    @harmless
    def _some_hook(self, number: int) -> float:
        return 1 / number

    @harmless
    def start_profiler(self) -> None:
        self.guard.log, self.guard.iteration_began_ns = self.log, 7


def test_error_in_hook_becomes_a_note() -> None:
    hooks = Hooks()
    assert hooks._some_hook(2) == 0.5
    assert hooks._some_hook(0) is None and hooks._some_hook(0) is None
    assert hooks.guard.notes.texts == [
        "an error within the profiler, not in your program (some hook): "
        "ZeroDivisionError: division by zero"
    ]


def test_hooks_do_nothing_in_child_process_or_when_inert(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = Hooks()
    hooks.guard.is_inert = True
    assert hooks._some_hook(2) is None
    hooks.guard.is_inert = False
    monkeypatch.setattr(os, "getpid", lambda: hooks.guard.process + 1)
    assert hooks._some_hook(0) is None
    assert hooks.guard.notes.texts == []


def test_hook_time_is_logged_while_profiler_runs() -> None:
    hooks = Hooks()
    hooks._some_hook(2)
    assert hooks.log.start_times == []
    # The hook starts the profiler, so the iteration begins during the hook.
    hooks.start_profiler()
    assert hooks.log.start_times == [7]
    hooks._some_hook(0)
    assert len(hooks.log.start_times) == 2 and hooks.log.start_times[1] > 7


def test_number_of_notes_is_limited() -> None:
    notes = Notes("the estimate")
    for number in range(200):
        notes.add(str(number % 100))
    assert notes.texts == [str(number) for number in range(50)]
    assert notes.tolerating("this", lambda: 1 / 0) is None
    assert notes.tolerating("that", lambda a: a, 3) == 3
